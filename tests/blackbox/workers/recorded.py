"""A rank that raises where torch records it."""

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    """Fail as a script does that was written for torchrun."""
    raise ValueError("bad batch 17")


main()
