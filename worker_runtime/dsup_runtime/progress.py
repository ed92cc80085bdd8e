"""How far training is, and from where its data goes on after a restart.

``Progress`` counts samples, not batches: with another number of ranks, or batches of
another size, the rest of the epoch is still exactly what no rank has seen. That takes
an order of the samples that is a function of (seed, epoch) alone, drawn anew after
every restart, and ranks that go through it side by side, so that what all have consumed
is one piece from its start. ``ResumableSampler`` is such an order; a permutation drawn
from a generator whose state was saved in the middle of an epoch is not.
"""

from __future__ import annotations

import base64
import io
import itertools
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dsup_runtime import side_group
from dsup_runtime.errors import CheckpointError
from dsup_runtime.resumable_sampler import ResumableSampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

_AT_END: Final = "end"
"""Stands for the state of a loader that has no more batches in this epoch."""

_COUNTS: Final = ("step", "samples", "epoch", "batch", "skipped")


class Progress:
    """Where training is; goes into the checkpoint with the model.

    A rank's ``Progress`` is that of all ranks: they advance together.

    Args:
        step: steps tried, those included whose update was skipped.
        samples: samples of this epoch that all ranks together have consumed.
        epoch: the epoch, from 0. Setting another one sets samples and batch to 0.
        batch: batches of this epoch that each rank has consumed.
        skipped: steps whose update was skipped.

    Raises:
        ValueError: if a number is below 0 or none.
    """

    __slots__ = (
        "_epoch",
        "_loader",
        "_loader_state",
        "_order",
        "_pending",
        "_ranks",
        "_skipped",
        "batch",
        "samples",
        "step",
    )

    def __init__(
        self,
        step: int = 0,
        samples: int = 0,
        epoch: int = 0,
        batch: int = 0,
        skipped: int = 0,
    ) -> None:
        numbers = (step, samples, epoch, batch, skipped)
        for name, number in zip(_COUNTS, numbers, strict=True):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ValueError(
                    f"cannot set {name} to {number!r}, because it counts from 0"
                )
        self.step = step
        self.samples = samples
        self.batch = batch
        self._epoch = epoch
        self._skipped = skipped
        self._pending: list[object] = []
        self._ranks = 0
        self._order = ""
        self._loader: Any = None
        self._loader_state = ""

    @property
    def epoch(self) -> int:
        """The epoch, from 0; ``for progress.epoch in range(progress.epoch, n)`` works.

        Setting another one begins it: its samples and batches count from 0.
        """
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self.samples = self.batch = 0
            self._loader, self._loader_state = None, ""
        self._epoch = epoch

    @property
    def skipped(self) -> int:
        """Steps whose update was skipped."""
        self._settle()
        return self._skipped

    @property
    def applied(self) -> int:
        """Steps whose update was made: what schedules and averages count."""
        return self.step - self.skipped

    def advance(self, samples: int, applied: object = True) -> None:
        """Count a step; all ranks do, each with as many samples as the others.

        Args:
            samples: how many samples this rank took in it.
            applied: whether the optimizer made the update. Something whose truth is
                known later is asked when it is needed, at the next step at the latest.
        """
        self._settle()
        self._pending.append(applied)
        self.step += 1
        self.batch += 1
        self.samples += samples * (self._ranks or side_group.size())

    def skip(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield the batches of this epoch that no rank has consumed yet.

        A loader whose sampler is a ``ResumableSampler`` begins in the middle, without
        touching what is skipped, on any number of ranks. One with a ``state_dict``
        (torchdata's StatefulDataLoader) is handed the state it had. Of any other the
        consumed batches are drawn and dropped: exact as long as the number of ranks,
        the batches and the order stay as they were.

        Args:
            loader: makes the batches of one epoch.

        Raises:
            CheckpointError: if the rest cannot be told: the order is another than the
                one that was consumed so far, or the ranks are.
        """
        sampler = _sampler_of(loader)
        self._ranks = getattr(sampler, "ranks", 0)
        self._loader = None
        if isinstance(sampler, ResumableSampler):
            self._check_order(sampler.order)
            sampler.start(self._epoch, self.samples)
            return iter(loader)
        self._check_order(f"batches on {side_group.size()} ranks")
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(self._epoch)
        if not _knows_its_place(loader):
            return itertools.islice(loader, self.batch, None)
        return self._followed(loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the state: numbers and words, the same names at all times.

        So ``torch.load`` reads it with ``weights_only``, and DCP in place.
        """
        self._settle()
        loader = _packed(self._loader.state_dict()) if self._loader is not None else ""
        numbers = (self.step, self.samples, self._epoch, self.batch, self._skipped)
        return {
            **dict(zip(_COUNTS, numbers, strict=True)),
            "order": self._order,
            "loader": loader or self._loader_state,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from where a state was taken."""
        self.rewind(state_dict)
        self._epoch = int(state_dict["epoch"])
        self.samples = int(state_dict["samples"])
        self.batch = int(state_dict["batch"])
        self._order = str(state_dict["order"])
        self._loader_state = str(state_dict["loader"])
        self._loader = None

    def rewind(self, state_dict: dict[str, Any]) -> None:
        """Go back to the steps of a state, but not in the data.

        For a rollback: what came after the state holds the batches that spoiled the
        numbers, and they are not to come again.
        """
        self._pending.clear()
        self.step = int(state_dict["step"])
        self._skipped = int(state_dict["skipped"])

    def _followed(self, loader: Any) -> Iterator[Any]:  # noqa: ANN401 (the caller's)
        """Yield the rest of a loader that knows where it is, and know when it ends.

        After its end its own state means the next epoch.
        """
        if self._loader_state == _AT_END:
            return
        if self._loader_state:
            loader.load_state_dict(_unpacked(self._loader_state))
        self._loader = loader
        yield from loader
        self._loader, self._loader_state = None, _AT_END

    def _settle(self) -> None:
        """Count the last step as skipped if it turns out that it was."""
        while self._pending:
            self._skipped += not self._pending.pop()

    def _check_order(self, order: str) -> None:
        """Refuse to go on in the middle of an epoch in another order."""
        if self.samples and self._order and order != self._order:
            raise CheckpointError(
                f"cannot resume epoch {self._epoch} after {self.samples} samples,"
                f" because the data was in another order ({self._order}, now {order};"
                " keep it, or set progress.samples and progress.batch to 0 to begin"
                " the epoch anew)"
            )
        self._order = order


def _sampler_of(loader: object) -> Any:  # noqa: ANN401 (the caller's)
    """Return what gives a loader its order; None if that cannot be told."""
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, ResumableSampler):
        return sampler
    return getattr(getattr(loader, "batch_sampler", None), "sampler", sampler)


def _knows_its_place(loader: object) -> bool:
    """Return whether a loader has a state; accelerate's always look as if they had."""
    claims = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
    return claims and bool(getattr(loader, "use_stateful_dataloader", True))


def _packed(state: object) -> str:
    """Return a loader's state as a word, for which ``torch.load`` needs no trust."""
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def _unpacked(word: str) -> Any:  # noqa: ANN401 (the loader's)
    import torch

    return torch.load(io.BytesIO(base64.b64decode(word)), weights_only=True)
