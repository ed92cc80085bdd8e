"""A small job under Hugging Face accelerate: two layers learn a sine.

``accelerate launch`` is torchrun with settings from a file: ``dsup launch`` replaces
it, and the script stays as it is. How many processes that file asked for goes into
``--nproc``, the rest into ``Accelerator(...)`` or the ``ACCELERATE_*`` variables.

    accelerate launch --cpu --num_processes 2 examples/with_accelerate.py
    torchrun --nproc-per-node 2 examples/with_accelerate.py
    dsup launch --nproc 2 examples/with_accelerate.py

To go on after a failure where it was, let the script ``--save saved`` and give dsup
``--checkpoint-glob 'saved/epoch-*' --resume-arg=--resume={path}``.
"""

import argparse

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset


def small_job() -> tuple[nn.Module, TensorDataset]:
    """Return a model, and what it is to learn."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    x = torch.linspace(-3, 3, 1024).unsqueeze(1)
    return model, TensorDataset(x, x.sin())


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A small job under accelerate.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--save", metavar="DIR", help="save each epoch there")
    parser.add_argument("--resume", metavar="PATH", help="go on from what was saved")
    return parser.parse_args()


def main() -> None:
    """Train as long as asked for."""
    args = read_arguments()
    # Not told that CPUs are meant, accelerate would train every rank for itself there.
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    me, ranks = accelerator.process_index, accelerator.num_processes
    print(f"rank {me} of {ranks}", flush=True)

    model, data = small_job()
    model, optimizer, rows = accelerator.prepare(
        model, AdamW(model.parameters(), lr=0.01), DataLoader(data, 32, shuffle=True)
    )
    done = 0
    if args.resume:
        accelerator.load_state(args.resume)
        done = int(args.resume.rpartition("-")[2])
    for epoch in range(done + 1, args.epochs + 1):
        rows.set_epoch(epoch)  # a resumed run then sees the rows in the same order
        total = torch.zeros((), device=accelerator.device)
        for x, y in rows:
            loss = mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        mean = accelerator.reduce(total / len(rows), "mean").item()
        accelerator.print(f"epoch {epoch}  loss {mean:.6f}", flush=True)
        if args.save:
            accelerator.save_state(f"{args.save}/epoch-{epoch}")
    # Where a model under DDP outlives its group, gloo's threads may hang the rank.
    del model
    accelerator.free_memory()
    accelerator.end_training()


if __name__ == "__main__":
    main()
