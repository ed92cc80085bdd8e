"""A small job under DeepSpeed, with dsup_runtime in its loop.

    dsup launch --nproc 2 --checkpoint-dir saved examples/runtime_deepspeed.py
    torchrun --nproc-per-node 2 examples/runtime_deepspeed.py
    python examples/runtime_deepspeed.py

There is no StepGuard: with fp16 DeepSpeed skips steps itself, on all ranks, and
``was_step_applied`` tells. Nor its file ``latest``, which it writes before all ranks
have written their part: CheckpointDir knows better.
"""

import argparse
import os
from functools import partial
from typing import Any

import deepspeed
from sine import read_arguments, small_job
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader
from with_deepspeed import CONFIG
from writer import join_group

import dsup_runtime as rt
from dsup_runtime.resumable_sampler import ResumableSampler


def train(args: argparse.Namespace) -> None:
    """Train from the newest checkpoint to the last epoch, or until asked to stop."""
    if join_group().type == "cpu":
        # On CPUs it would first compile an all-reduce, for a minute; gloo has one.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    os.environ.setdefault("LOCAL_RANK", "0")  # it insists, also without a launcher
    model, data = small_job()
    engine = deepspeed.initialize(model=model, config=CONFIG)[0]
    rows = DataLoader(data, 32, sampler=ResumableSampler(len(data)))
    done, saved = rt.Progress(), rt.CheckpointDir(args.checkpoints, every=args.every)
    saved.load(lambda d: done.load_state_dict(engine.load_checkpoint(d, "engine")[1]))
    print(f"rank {engine.global_rank} begins at step {done.step}")
    for done.epoch in range(done.epoch, args.epochs):
        for x, y in done.skip(rows):
            rt.beat(done.step)
            rt.fault_point("step", done.step)
            guess = engine(x.to(engine.device))
            engine.backward(mse_loss(guess, y.to(engine.device)))
            engine.step()
            done.advance(len(x), applied=engine.was_step_applied())
            if saved.due(done.step):
                saved.save(done.step, partial(write, engine, done), meta=done)
            if rt.should_stop(done.step):
                break
        if rt.should_stop():
            break
    saved.save(done.step, partial(write, engine, done), meta=done)
    print(f"rank {engine.global_rank} ends at step {done.step}")
    engine.destroy()


def write(engine: Any, done: rt.Progress, folder: str) -> None:  # noqa: ANN401 (DeepSpeed's)
    """Write the state of all ranks, as all of them do."""
    engine.save_checkpoint(folder, "engine", done.state_dict(), save_latest=False)


if __name__ == "__main__":
    arguments = read_arguments("A small job under DeepSpeed.")
    with rt.run():
        train(arguments)
