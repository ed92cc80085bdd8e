"""A rank that joins a gloo group, works together, and fails in its first attempts."""

import os
import signal
import sys

import act
import torch
import torch.distributed as dist


def main():
    """Add up the ranks; in attempts before FAILS, rank 1 then dies."""
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    act.emit("reduced", total=total.item())
    dist.barrier()
    if int(act.ATTEMPT) < int(sys.argv[1]) and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    act.emit("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
