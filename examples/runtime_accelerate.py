"""A small job under Hugging Face accelerate, with dsup_runtime in its loop.

    dsup launch --nproc 2 --checkpoint-dir saved examples/runtime_accelerate.py
    torchrun --nproc-per-node 2 examples/runtime_accelerate.py
    python examples/runtime_accelerate.py

``should_stop`` takes the place of ``set_trigger`` and ``check_trigger``: it costs no
collective under dsup, and what it answered once it answers again to the outer loop.
"""

import argparse

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from sine import read_arguments, small_job
from torch.nn.functional import mse_loss
from torch.optim import AdamW
from torch.utils.data import DataLoader

import dsup_runtime as rt


def train(args: argparse.Namespace) -> None:
    """Train from the newest checkpoint to the last epoch, or until asked to stop."""
    # Not told that CPUs are meant, accelerate would train every rank for itself there.
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    model, data = small_job()
    model, optimizer, rows = accelerator.prepare(
        model, AdamW(model.parameters(), lr=0.01), DataLoader(data, 32, shuffle=True)
    )
    done, saved = rt.Progress(), rt.CheckpointDir(args.checkpoints, every=args.every)
    accelerator.register_for_checkpointing(done)
    saved.load(accelerator.load_state)
    print(f"rank {accelerator.process_index} begins at step {done.step}")
    for done.epoch in range(done.epoch, args.epochs):
        rows.set_epoch(done.epoch)
        for x, y in done.skip(rows):
            rt.beat(done.step)
            rt.fault_point("step", done.step)
            accelerator.backward(mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            done.advance(len(x), applied=not accelerator.optimizer_step_was_skipped)
            if saved.due(done.step):
                saved.save(done.step, accelerator.save_state, meta=done)
            if rt.should_stop(done.step):
                break
        if rt.should_stop():
            break
    saved.save(done.step, accelerator.save_state, meta=done)
    print(f"rank {accelerator.process_index} ends at step {done.step}")


if __name__ == "__main__":
    arguments = read_arguments("A small job under accelerate.")
    with rt.run():
        train(arguments)
