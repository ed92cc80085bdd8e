"""A small job under DeepSpeed: two layers learn a sine.

``dsup launch`` replaces the ``deepspeed`` command. That one adds ``--local_rank=N`` to
the script's arguments; dsup, as torchrun, says it in LOCAL_RANK alone, which DeepSpeed
reads just as well. A script that still parses the argument must not require it.

    deepspeed --num_gpus 2 examples/with_deepspeed.py
    torchrun --nproc-per-node 2 examples/with_deepspeed.py
    dsup launch --nproc 2 examples/with_deepspeed.py

To go on after a failure where it was, let the script ``--save saved`` and give dsup
``--checkpoint-glob 'saved/epoch-*' --resume-arg=--resume={path}``.
"""

import argparse
import os

import deepspeed
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

CONFIG = {
    "train_micro_batch_size_per_gpu": 32,
    # torch's own Adam: DeepSpeed's would have to be compiled first.
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A small job under DeepSpeed.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--save", metavar="DIR", help="save each epoch there")
    parser.add_argument("--resume", metavar="PATH", help="go on from what was saved")
    parser.add_argument("--local_rank", help="added by DeepSpeed's launcher, unused")
    return parser.parse_args()


def main() -> None:
    """Train as long as asked for."""
    args = read_arguments()
    if not torch.cuda.is_available():
        # On CPUs it would first compile an all-reduce, for a minute; gloo has one.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 1024).unsqueeze(1)
    engine, _, rows, _ = deepspeed.initialize(
        model=nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)),
        training_data=TensorDataset(x, x.sin()),
        config=CONFIG,
    )
    print(f"rank {engine.global_rank} of {engine.world_size}", flush=True)
    done = 0
    if args.resume:
        _, saved = engine.load_checkpoint(*os.path.split(args.resume))
        done = saved["epoch"]
    for epoch in range(done + 1, args.epochs + 1):
        rows.data_sampler.set_epoch(epoch)
        total = torch.zeros((), device=engine.device)
        for x, y in rows:
            loss = mse_loss(engine(x.to(engine.device)), y.to(engine.device))
            engine.backward(loss)
            engine.step()
            total += loss.detach() / len(rows) / engine.world_size
        deepspeed.comm.all_reduce(total)
        if engine.global_rank == 0:
            print(f"epoch {epoch}  loss {total:.6f}", flush=True)
        if args.save:
            engine.save_checkpoint(args.save, f"epoch-{epoch}", {"epoch": epoch})
    engine.destroy()
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
