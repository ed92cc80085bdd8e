"""DataLoader workers that die, raise, or find no shared memory."""

import torch
from torch.utils.data import DataLoader, Dataset

from dsup_runtime import oom


class Samples(Dataset):
    """Some good samples, and then what the scenario wants."""

    def __init__(self, bad, good):
        self.bad, self.good = bad, good

    def __len__(self):
        """Return how many there are."""
        return 64

    def __getitem__(self, index):
        """Return a sample."""
        return torch.ones(16) if index < self.good else self.bad(index)


def _read(bad, good=8):
    for _ in DataLoader(Samples(bad, good), batch_size=2, num_workers=1):
        pass


def killed_for_memory():
    """A worker needs more than its cgroup has."""
    _read(lambda _: oom.die())


def killed_at_once():
    """The same, at its first sample."""
    _read(lambda _: oom.die(), good=0)


def raises():
    """A worker meets a sample that it cannot decode."""

    def bad(index):
        raise ValueError(f"sample {index} is no JPEG")

    _read(bad)


def fills_shared_memory():
    """A worker hands over a batch that is larger than /dev/shm."""
    _read(lambda _: torch.ones(16 << 20))
