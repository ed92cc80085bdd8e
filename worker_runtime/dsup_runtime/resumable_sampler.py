"""An order of training data from any place of which training can go on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dsup_runtime import side_group

if TYPE_CHECKING:
    from collections.abc import Iterator


class ResumableSampler:
    """An order of samples that is a function of (seed, epoch), and can start anywhere.

    The ranks take turns in it, so that after each step what all of them have consumed
    is one piece of the order from its start. Each rank gets the same number; the last
    ``length % ranks`` samples of the order, other ones in each epoch, are left out.

    For ``DataLoader(data, batch_size, sampler=ResumableSampler(len(data)))``; do not
    drop its last batch, which is as short on all ranks.

    Args:
        length: samples in an epoch, >= 1.
        seed: draws the orders, >= 0; the same on all ranks.
        rank: this rank among those that share the data; None asks the process group.
        ranks: how many those are; None asks the process group.
        shuffle: whether there is another order than 0, 1, 2, …

    Attributes:
        ranks: how many ranks share the data.
        order: what the orders are a function of, in words.

    Raises:
        ValueError: if an argument is none of that.
    """

    def __init__(
        self,
        length: int,
        seed: int = 0,
        *,
        rank: int | None = None,
        ranks: int | None = None,
        shuffle: bool = True,
    ) -> None:
        self.ranks = side_group.size() if ranks is None else ranks
        self._rank = side_group.rank() if rank is None else rank
        if not (length >= 1 and seed >= 0 and 0 <= self._rank < self.ranks):
            raise ValueError(
                f"cannot sample {length!r} with seed {seed!r} for rank {self._rank!r}"
                f" of {self.ranks!r}, because there is no such order (count samples"
                " from 1, seeds and ranks from 0)"
            )
        self.order = f"{length} samples, seed {seed if shuffle else 'none'}"
        self._length = length
        self._seed = seed
        self._shuffle = shuffle
        self._epoch = 0
        self._consumed = 0

    def start(self, epoch: int, consumed: int) -> None:
        """Let the next iteration begin in the middle of an epoch.

        Args:
            epoch: the epoch, from 0.
            consumed: how many samples of it all ranks together have had.
        """
        self._epoch = epoch
        self._consumed = min(consumed, self._length)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin an epoch, as with ``DistributedSampler``."""
        self.start(epoch, 0)

    def __len__(self) -> int:
        """Return how many samples the next iteration has for this rank."""
        return (self._length - self._consumed) // self.ranks

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's rest of the epoch."""
        first = self._consumed + self._rank
        mine = slice(first, first + len(self) * self.ranks, self.ranks)
        if not self._shuffle:
            return iter(range(self._length)[mine])
        import torch

        word = hashlib.sha256(f"{self._seed} {self._epoch}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(word[:8]) >> 1)
        order = torch.randperm(self._length, generator=generator)[mine]
        return map(int, order)
