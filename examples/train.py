"""The training loop that dsup_runtime is made for: a small transformer writes Python.

    dsup launch --nproc 2 --checkpoint-dir saved examples/train.py --checkpoints saved
    torchrun --nproc-per-node 2 examples/train.py
    python examples/train.py

Nothing but the checkpoint is carried from step to step, so a run that was killed and
resumed ends with the weights of one that was not, on CPUs bit by bit.
"""

import argparse
import os
from functools import partial

import torch
from torch.nn.parallel import DistributedDataParallel
from writer import BATCH, CONTEXT, Library, Writer, join_group, load, loss_of, save

import dsup_runtime as rt


def train(args: argparse.Namespace, device: torch.device) -> Writer:
    """Train from the newest checkpoint to the last step, or until asked to stop."""
    torch.manual_seed(args.seed)
    writer, library = Writer(args.width).to(device), Library(args.seed, device)
    optimizer, done = torch.optim.AdamW(writer.parameters(), lr=3e-3), rt.Progress()
    state = {"writer": writer, "optimizer": optimizer, "progress": done}
    saved = rt.CheckpointDir(args.checkpoints, every=args.every, keep=3)
    saved.load(partial(load, state))
    guard = rt.StepGuard(writer, optimizer, snapshot=rt.Snapshot(state))
    model = DistributedDataParallel(writer)
    # DDP regroups its gradients after the first backward pass, and then sums round
    # differently: with that pass made before the first step, all lives are alike.
    model(torch.zeros(1, CONTEXT, dtype=torch.long, device=device)).sum().backward()
    optimizer.zero_grad()
    shown = {done.step + 1, args.steps, *range(0, args.steps, 10)}
    while done.step < args.steps:
        rt.beat(done.step)
        fault = rt.fault_point("step", done.step)
        loss = loss_of(model, library.rows(done.batch))
        guard.arm(loss * float("nan") if fault == "nan" else loss).backward()
        done.advance(BATCH, applied=guard.step(batch_id=done.batch))
        if rt.info().is_main and done.step in shown:
            rt.try_or_defer(print, f"step {done.step:5}  loss {loss:.3f}", flush=True)
        stop = rt.should_stop(done.step)
        if stop or saved.due(done.step):
            saved.save(done.step, partial(save, state), healthy=guard.healthy)
        if stop:
            break
    return writer


def main() -> None:
    """Read the command line, train, and show what was learnt."""
    parser = argparse.ArgumentParser(description="A small job to try a launcher with.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoints", metavar="DIR", default="checkpoints")
    parser.add_argument("--checkpoint-every", type=int, default=50, dest="every")
    parser.add_argument("--fault", metavar="KIND:RANK@STEP", help="break a rank, once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=128, help="a multiple of 4")
    args = parser.parse_args()
    if args.fault:
        os.environ["DSUP_FAULT"] = args.fault
    with rt.run() as run:
        writer = train(args, join_group())
        run.leave()  # raises, unless all ranks are well and nobody asked to stop
        if rt.info().is_main:
            with rt.phase("eval", limit_s=900):
                print(f"\n{writer.write('def ', 240)}", flush=True)
            print(f"\nweights sha256 {writer.digest()}", flush=True)


if __name__ == "__main__":
    main()
