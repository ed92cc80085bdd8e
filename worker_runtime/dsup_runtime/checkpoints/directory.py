"""Checkpoints that all ranks write and load together: all of it, or nothing.

``save`` goes through phases, and after each every rank knows how it went on all:

1. rank 0 makes the directory; the others wait until they see it;
2. the caller's ``write`` fills it: a collective, whose errors are raised at once;
3. each rank flushes and sums the files it answers for (``checkpoint_shares``);
4. rank 0 writes the manifest of them all and publishes it by one rename;
5. rank 0 retires old ones; deleting them goes on beside the training;
6. all ranks return the same answer.

An error in 1, 3 or 4 is no reason to leave the others alone: it is kept, the save is
given up on every rank, and the next agreed stop ends the run. Until the rename nothing
that was there before is touched. ``load`` is in ``checkpoint_choice``; the rules of the
directory itself are in ``checkpoints``, which the agent shares.

With no process group, or alone in it, everything is the same and local; but where the
launcher started more ranks than there are in it, each would take itself for the only
one, so they are refused. A rank that freezes is noticed (see ``phases``).
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Final, Protocol, cast

from dsup_runtime import checkpoints, deferred, heartbeat
from dsup_runtime.checkpoints.choice import Search, compare_restored
from dsup_runtime.checkpoints.files import CHECKSUMS, Storage
from dsup_runtime.checkpoints.phases import meet, refuse_without_group
from dsup_runtime.checkpoints.saving import (
    THERE,
    Place,
    Written,
    opened,
    plain,
    published,
    tried,
)
from dsup_runtime.errors import CheckpointError, NoValidCheckpoint
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup_runtime.checkpoints.listing import Checkpoint

_VISIBILITY_MAX_S: Final = 1e6


class Pending(Protocol):
    """A write that goes on in the background, such as a ``Future``."""

    def done(self) -> bool:
        """Return whether it has ended, well or not."""

    def result(self) -> object:
        """Wait for its end; raise what it raised."""


class CheckpointDir:
    """A directory of checkpoints, written and read by all ranks together.

    Every rank makes one with the same arguments, and calls ``save``, ``load`` and
    ``finish`` in the same order as the others.

    Args:
        root: the directory, the same file system for all ranks; made at the first save.
        every: ``due`` is true once for each multiple of so many steps, >= 1.
        keep: how many valid checkpoints stay, >= 1; the newest always does.
        checksum: crc32, sha256, or none, which leaves flipped bits to chance; the
            manifest says which.
        fsync: whether a checkpoint survives a power loss.
        commit: what publishes one: "rename", or "manifest" on stores whose rename is
            not atomic.
        visibility_s: how long what rank 0 made may stay unseen by another, seconds.

    Raises:
        ValueError: if an argument is none of that.
        TypeError: if ``root`` is no path.
    """

    def __init__(  # noqa: PLR0913 (settings, all named)
        self,
        root: str | os.PathLike[str],
        *,
        every: int = 2000,
        keep: int = 3,
        checksum: str = "crc32",
        fsync: bool = True,
        commit: str = "rename",
        visibility_s: float = 60.0,
    ) -> None:
        self._every = _count("every", every)
        _count("keep", keep)
        if not 0 <= visibility_s < _VISIBILITY_MAX_S:  # also refuses nan
            raise _wrong("visibility_s", visibility_s, "a length of time, seconds")
        if checksum not in CHECKSUMS:
            raise _wrong("checksum", checksum, f"one of {', '.join(CHECKSUMS)}")
        if commit not in ("rename", "manifest"):
            raise _wrong("commit", commit, "rename or manifest")
        if not os.fspath(root):
            raise _wrong("root", root, "a directory")
        storage = Storage(checksum, fsync, rename=commit == "rename")
        self._place = Place(os.path.abspath(root), keep, storage, visibility_s)
        self._last = -1  # step of the last checkpoint saved or loaded here
        self._tried = 0  # step of the last save that was not refused, or of the load
        self._flight: Written | None = None
        self._pending: Pending | None = None

    def due(self, step: int) -> bool:
        """Return whether it is time to save; local, and the same on all ranks.

        True at the first step at or past a multiple of ``every``, once: not again for
        a step that training came back to after a rollback.

        Args:
            step: how many steps the state has seen.
        """
        return step // self._every > self._tried // self._every

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint whose files have the right sizes.

        Local: ranks must not decide by it what to load.

        Raises:
            CheckpointError: if the directory cannot be read.
        """
        return checkpoints.newest_valid(self._place.root).newest

    def save(
        self,
        step: int,
        write: Callable[[str], object],
        *,
        meta: object = None,
        healthy: bool = True,
        wait: bool = True,
    ) -> bool:
        """Save the state of all ranks as one checkpoint; all ranks call it.

        A save still under way is finished first. A step that is there already stays as
        it is. Not called for a state that is sick: give ``healthy=False`` while a guard
        skips steps, and nothing is written, for good checkpoints would be retired in
        favour of it.

        Args:
            step: how many steps the state has seen; the same on all ranks.
            write: fills the directory it is given, on all ranks: ``torch.save`` of
                each rank's state to a file of its own, ``dcp.save`` to a directory
                inside. With ``wait=False`` it may return a ``Pending``: then what it
                is to write must be copied by the time it returns.
            meta: a mapping of what JSON can hold, or an object with ``state_dict``,
                whose numbers and words are kept; that of rank 0 goes into the
                manifest, which is 16 MiB at most, as it is before the write.
            healthy: whether this rank's state is fit to resume from.
            wait: whether to return only once the checkpoint is published; else
                ``finish`` does that.

        Returns:
            The same on all ranks: whether there is a checkpoint of this step, or,
            with ``wait=False``, whether one is being written. False means that this
            state is not on the disk: because it is sick on a rank; because a newer
            step is there, from before a rollback, which a log line says; or because
            something failed, which is deferred on the rank where it did. What was
            there before stays the newest in each case.

        Raises:
            CheckpointError: on all ranks, if they are at different steps, or have no
                process group.
            PeerError: if a rank does not take part.
            Exception: at once, what ``write`` raises.
        """
        step = _step(step)
        self._begin("save a checkpoint")
        with heartbeat.phase("checkpoint"):
            if not self._agreed(step, healthy=healthy):
                return False
            self._tried = step
            said, failure = tried(lambda: plain(meta))
            tmp = opened(self._place, step, failure)
            if tmp == THERE:
                self._last = step
            if not tmp:
                return tmp == THERE
            self._pending = _pending(write(tmp))
            ended = self._pending.result if self._pending else _nothing
            self._flight = Written(step, tmp, said or {}, ended)
            return self._finished(self._flight) if wait else True

    def finish(self, *, wait: bool = True) -> bool:
        """Publish the save that was begun with ``wait=False``; all ranks call it.

        Args:
            wait: whether to wait for its end; else, if a rank still writes, everything
                stays as it is.

        Returns:
            The same on all ranks: False if that save failed, or is still under way.

        Raises:
            CheckpointError: if the process group is gone.
            PeerError: if a rank does not take part.
        """
        deferred.forbid("CheckpointDir")
        if self._flight is None:
            return True
        refuse_without_group("finish a checkpoint")
        with heartbeat.phase("checkpoint"):
            done = self._pending is None or self._pending.done()
            if not wait and not all(meet(done)):
                return False
            return self._finished(self._flight)

    def load(
        self, read: Callable[[str], object], *, require: bool = False
    ) -> Checkpoint | None:
        """Load the newest checkpoint that is whole for every rank; all ranks call it.

        Each rank sums its share of the files. One that is damaged is renamed to
        ``step-*.corrupt``, and the one before it is tried. ``DSUP_RESUME_FROM`` is a
        hint for other programs: what counts is what all ranks find here.

        Args:
            read: restores the state from the directory it is given, on all ranks; it
                may return the step it restored, which is then compared.
            require: whether there must be one.

        Returns:
            What was loaded, the same on all ranks; None if there is nothing yet.

        Raises:
            NoValidCheckpoint: on all ranks, if ``require`` and there is none.
            CheckpointError: on all ranks, if the directory cannot be read, if a newer
                dsup wrote the newest, if there is one that only some ranks can read,
                if they restored different steps, or if they have no process group.
            PeerError: if a rank does not take part.
            Exception: at once, what ``read`` raises.
        """
        self._begin("load a checkpoint")
        with heartbeat.phase("checkpoint"):
            meet("load")
            search = Search(self._place)
            found = search.choose()
            if found is not None:
                compare_restored(found, read(found.path))
                self._tried = self._last = found.step
            elif require:
                raise NoValidCheckpoint(
                    f"cannot resume, because no checkpoint in {self._place.root} is"
                    f" valid:{search.reasons() or ' there is none'} (without require a"
                    " run begins anew)"
                )
            return found

    def _begin(self, task: str) -> None:
        """See that all ranks can do something, with no save under way any more."""
        deferred.forbid("CheckpointDir")
        refuse_without_group(task)
        self.finish()

    def _agreed(self, step: int, *, healthy: bool) -> bool:
        """Return whether all ranks want to save the same step, and a fit state."""
        answers = meet([step, bool(healthy)])
        steps = [told for told, _ in answers]
        if min(steps) != max(steps):
            listed = ", ".join(f"{told} on rank {n}" for n, told in enumerate(steps))
            raise CheckpointError(
                f"cannot save, because the ranks are at different steps: {listed[:500]}"
                " (all must take part in every step)"
            )
        sick = [rank for rank, (_, fit) in enumerate(answers) if not fit]
        if sick:
            log.warning("refused to save step %d: rank %s is not healthy", step, sick)
            return False
        if step < self._last:
            log.warning(
                "cannot save step %d, because step %d was saved or loaded before it and"
                " stays the newest until training has passed it (if training ends here,"
                " this state is lost: go on to step %d, or save it to another root)",
                step,
                self._last,
                self._last + 1,
            )
            return False
        return True

    def _finished(self, flight: Written) -> bool:
        """Take a save through the phases after the write."""
        self._flight = self._pending = None
        if not published(self._place, flight):
            return False
        self._last = flight.step
        heartbeat.tell_saved(flight.step)
        return True


def _pending(written: object) -> Pending | None:
    """Return what a write returned, if it goes on in the background."""
    if callable(getattr(written, "result", None)) and hasattr(written, "done"):
        return cast("Pending", written)
    return None


def _nothing() -> None:
    """Wait for a write that has ended."""


def _step(step: int) -> int:
    number = operator.index(step)
    if number < 0:
        raise _wrong("step", step, "the number of a step, from 0")
    return number


def _count(name: str, count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise _wrong(name, count, "a whole number from 1")
    return count


def _wrong(name: str, value: object, expected: str) -> ValueError:
    return ValueError(f"cannot set {name} to {value!r}, because it is {expected}")
