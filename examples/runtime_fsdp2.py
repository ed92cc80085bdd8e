"""A small job under FSDP2 (torch's ``fully_shard``), with all of dsup_runtime.

    dsup launch --nproc 2 --checkpoint-dir saved examples/runtime_fsdp2.py
    torchrun --nproc-per-node 2 examples/runtime_fsdp2.py
    python examples/runtime_fsdp2.py

Each rank holds, copies and saves its shards alone. What they saved fits any number of
ranks, and so does the order of the samples: it goes on with more or fewer of them.
"""

import argparse
from functools import partial
from typing import Any, NamedTuple

import torch
from sine import read_arguments, small_job
from torch import nn
from torch.distributed.checkpoint import state_dict, state_dict_loader, state_dict_saver
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader
from writer import join_group

import dsup_runtime as rt
from dsup_runtime.resumable_sampler import ResumableSampler


class Moments(NamedTuple):
    """What the optimizer keeps of each parameter, by name: so DCP finds it again."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's shards; a new optimizer gets some here, to load into."""
        return state_dict.get_optimizer_state_dict(*self)

    def load_state_dict(self, shards: dict[str, Any]) -> None:
        """Take them back."""
        state_dict.set_optimizer_state_dict(*self, shards)


def train(args: argparse.Namespace) -> None:
    """Train from the newest checkpoint to the last epoch, or until asked to stop."""
    device, rank, (model, data) = join_group(), rt.info().rank, small_job()
    optimizer = torch.optim.AdamW(fully_shard(model.to(device)).parameters(), lr=0.01)
    done, saved = rt.Progress(), rt.CheckpointDir(args.checkpoints, every=args.every)
    moments = Moments(model, optimizer)
    state = {"model": model, "moments": moments, "progress": done}
    guard = rt.StepGuard(model, optimizer, snapshot=rt.Snapshot(state))
    saved.load(lambda folder: state_dict_loader.load(state, checkpoint_id=folder))
    rows = DataLoader(data, 32, sampler=ResumableSampler(len(data)))
    print(f"rank {rank} begins at step {done.step}")
    for done.epoch in range(done.epoch, args.epochs):
        for x, y in done.skip(rows):
            rt.beat(done.step)
            rt.fault_point("step", done.step)
            loss = mse_loss(model(x.to(device)), y.to(device))
            guard.arm(loss).backward()
            done.advance(len(x), applied=guard.step(batch_id=done.batch))
            if saved.due(done.step):
                saved.save(done.step, partial(write, state), healthy=guard.healthy)
            if rt.should_stop(done.step):
                break
        if rt.should_stop():
            break
    saved.save(done.step, partial(write, state), healthy=guard.healthy)
    print(f"rank {rank} ends at step {done.step}")


def write(state: dict[str, Any], folder: str) -> None:
    """Write the shards of all ranks, as all of them do."""
    state_dict_saver.save(state, checkpoint_id=folder)


if __name__ == "__main__":
    arguments = read_arguments("A small job under FSDP2.")
    with rt.run():
        train(arguments)
