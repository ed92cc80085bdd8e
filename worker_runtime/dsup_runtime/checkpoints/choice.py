"""Which checkpoint all ranks load: the newest that each of them finds whole.

Rank 0 looks and names one at a time; every rank then reads its share of the files. Only
what all of them accept is loaded: on a network file system ranks see different things,
and one that decides by itself resumes another step than the others.
"""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Final

from dsup_runtime import side_group
from dsup_runtime.checkpoints import set_aside
from dsup_runtime.checkpoints.listing import Checkpoint, is_published, newest_first
from dsup_runtime.checkpoints.manifest import Objection, examine
from dsup_runtime.checkpoints.phases import of_all, told_by_main
from dsup_runtime.checkpoints.shares import owner, wait_until_there
from dsup_runtime.errors import CheckpointError
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsup_runtime.checkpoints.saving import Place

_REASONS_TOLD: Final = 5


class Search:
    """One look for the checkpoint to load; every rank makes its own.

    Args:
        place: where to look.

    Attributes:
        rejected: on rank 0, what was not loaded and why, newest first.
    """

    def __init__(self, place: Place) -> None:
        self.rejected: list[str] = []
        self._place = place
        self._undamaged = False
        self._candidates = self._whole_ones()

    def choose(self) -> Checkpoint | None:
        """Return the newest checkpoint that every rank accepts, the same on all.

        Returns:
            It, or None if there is none.

        Raises:
            CheckpointError: if the root cannot be read, if a newer dsup wrote the
                newest, or if the only ones left are whole but not for all ranks:
                training must not begin anew beside them.
            PeerError: if a rank does not take part.
        """
        while found := told_by_main(lambda: next(self._candidates, None)):
            checkpoint = Checkpoint(*found)
            objections = of_all(partial(self._objection, checkpoint.path))
            refusals = {
                rank: Objection(*objection)
                for rank, objection in enumerate(objections)
                if objection
            }
            if not refusals:
                return checkpoint
            told_by_main(partial(self._judge, checkpoint.path, refusals))
        told_by_main(self._refuse_to_begin_anew)
        return None

    def reasons(self) -> str:
        """Return on all ranks why nothing was loaded, as the end of a sentence."""
        return str(told_by_main(self._told))

    def _whole_ones(self) -> Iterator[tuple[int, str]]:
        """Yield what is there in full, newest first; put aside what is damaged."""
        for checkpoint in newest_first(self._place.root):
            if not self._place.storage.rename and not is_published(checkpoint.path):
                continue
            objection = examine(checkpoint.path)
            if objection is None:
                yield checkpoint
            else:
                self._reject(checkpoint.path, objection)

    def _objection(self, path: str) -> Objection | None:
        """Return what speaks against a checkpoint, as this rank sees its share."""
        rank, ranks = side_group.rank(), side_group.size()
        try:
            wait_until_there(path, self._place.visibility_s)
        except CheckpointError as error:
            return Objection(str(error), "unreadable")
        return examine(
            path, checksums=True, wanted=lambda name: owner(name, ranks) == rank
        )

    def _judge(self, path: str, refusals: dict[int, Objection]) -> None:
        """Believe a rank that something is damaged only if it is so from here too."""
        rank, objection = next(iter(refusals.items()))
        seen_here = objection
        if rank != 0:
            ranks = side_group.size()
            again = examine(
                path, checksums=True, wanted=lambda name: owner(name, ranks) in refusals
            )
            because = f"rank {rank} finds that {objection.reason}"
            seen_here = again or Objection(because, "unreadable")
        self._reject(path, seen_here)

    def _reject(self, path: str, objection: Objection) -> None:
        if objection.kind == "newer":
            raise CheckpointError(
                f"cannot load {path}, because its {objection.reason}"
                " (update dsup, or move it aside to resume from an older one)"
            )
        self.rejected.append(f"{path}: {objection.reason}")
        if objection.kind == "unreadable":
            self._undamaged = True
            log.warning("passed over %s, because %s", path, objection.reason)
            return
        try:
            where = set_aside(path)
        except CheckpointError as error:
            log.warning("passed over %s, because %s; %s", path, objection.reason, error)
        else:
            log.warning("put %s aside, because %s", where, objection.reason)

    def _refuse_to_begin_anew(self) -> None:
        if self._undamaged:
            raise CheckpointError(
                f"cannot resume from {self._place.root}, although a checkpoint there is"
                f" not damaged:{self._told()} (see that every rank can read it, or move"
                " it aside to start afresh)"
            )

    def _told(self) -> str:
        return "".join(f" {reason};" for reason in self.rejected[:_REASONS_TOLD])


def compare_restored(checkpoint: Checkpoint, restored: object) -> None:
    """See that all ranks restored the same step.

    Args:
        checkpoint: what was loaded.
        restored: what reading it returned: the step, or anything else.

    Raises:
        CheckpointError: on all ranks, if they differ.
    """
    told = isinstance(restored, Integral) and not isinstance(restored, bool)
    step = int(restored) if told else checkpoint.step  # type: ignore[call-overload]
    steps = of_all(lambda: step, apart=True)
    if min(steps) != max(steps):
        listed = ", ".join(f"{step} on rank {rank}" for rank, step in enumerate(steps))
        raise CheckpointError(
            f"cannot resume from {checkpoint.path}, because the ranks restored"
            f" different steps: {listed[:500]} (each must read what all were told)"
        )
