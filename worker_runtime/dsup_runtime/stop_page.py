"""The page half of the global stop: how ranks and dsup's agent settle on one check.

A rank numbers its checks. At each it stores the number, then reads one word of the
agent's: ``FREEZE``. While that is 0 it goes on. To stop the ranks, the agent sets it,
waits until every check that may have missed it has its number stored, takes the
greatest, and publishes the one after it. A rank that meets the freeze waits for that
number, and leaves at the check that has it, or at the first one past it.

No rank ever answers the agent. One that sits in a collective of the next step could
not, while the one it waits for stands here: both are let go by the same published
number, and meet in the step before the stop.

Where a rank has failed, and the agent ends the others, there is no check that all could
come to: the agent publishes ``AT_ONCE``, and whoever sees it goes.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NamedTuple

from dsup_runtime import contract
from dsup_runtime.contract import (
    AT_ONCE,
    FLAG_STOPS_ITSELF,
    HEADER_FREEZE,
    HEADER_STOP_KIND,
    HEADER_STOP_RANK,
    HEADER_STOP_REASON,
    HEADER_STOP_STEP,
    SLOT_FLAGS,
    SLOT_SEQUENCE,
    SLOT_WANTED,
    STOP_KINDS,
)
from dsup_runtime.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsup_runtime.page import Page

_POLL_S: Final = 0.0003
_REASON_WORDS: Final = 8
_UNKNOWN_KIND: Final = STOP_KINDS.index("preempt")  # loses nothing, claims nothing


class Decision(NamedTuple):
    """What was decided for all ranks.

    Attributes:
        kind: an index into STOP_KINDS.
        reason: in a few words.
        rank: global rank that asked; None for nobody in particular.
    """

    kind: int
    reason: str
    rank: int | None


class StopPage:
    """A page on which all ranks of the world have a slot, and this one's is ours.

    Where it is no shared memory, each check brings the slot to the agent: a number may
    come too late to be counted, and its rank leaves a check after the others.

    Args:
        page: the whole page.
        grace_s: how long an announced stop may take to be published, seconds.

    Attributes:
        is_memory: whether the agent sees at once what is stored here.
    """

    __slots__ = ("_gave_up", "_grace_s", "_page", "_slot", "_words", "is_memory")

    def __init__(self, page: Page, *, grace_s: float) -> None:
        self._page = page
        self.is_memory = page.is_memory
        self._words = page.words
        self._slot = page.slot
        self._grace_s = grace_s
        self._gave_up = False
        self._slot[SLOT_FLAGS] |= FLAG_STOPS_ITSELF

    def keeps(self, *, alone: bool) -> bool:
        """Return whether, without shared memory, the agent is to name the checks still.

        Not where it is out of reach, nor for ranks that can ask each other: one of them
        that left a check late would hang in a collective.

        Args:
            alone: there is no process group.
        """
        if alone and self._page.exchange():
            return True
        self._slot[SLOT_FLAGS] &= ~FLAG_STOPS_ITSELF
        self._page.exchange()
        return False

    def check(self, number: int) -> Decision | None:
        """Store where this rank is; return what was decided if it is to leave here.

        Args:
            number: of this check, from 1, one more each time.

        Raises:
            PeerError: if dsup ends the ranks, because one has failed.
        """
        self._slot[SLOT_SEQUENCE] = number  # before the look: who misses it is seen
        if not self.is_memory:
            self._page.exchange()
        if not self._words[HEADER_FREEZE] or not self._is_published():
            return None
        lost = ended(self._page)
        if lost is not None:
            raise lost
        leaves = number >= self._words[HEADER_STOP_STEP]
        return _published(self._words) if leaves else None

    def want(self, kinds: Iterable[int]) -> None:
        """Ask the agent for a stop of the greatest kind wanted here.

        A signal handler may want more while this runs: then its word stays.

        Args:
            kinds: indices into STOP_KINDS, as they are now each time they are asked.
        """
        slot = self._slot
        while slot[SLOT_WANTED] != (greatest := max(kinds)):
            slot[SLOT_WANTED] = greatest

    def _is_published(self) -> bool:
        """Wait until the agent has published the stop it announced, or took it back."""
        words = self._words
        end_s = monotonic() + (0 if self._gave_up else self._grace_s)
        while words[HEADER_STOP_STEP] == contract.NO_STEP:
            if not words[HEADER_FREEZE]:
                return False
            if monotonic() >= end_s:
                self._give_up()
                return False
            sleep(_POLL_S)
            self._page.exchange()
        return True

    def _give_up(self) -> None:
        if self._gave_up:
            return
        self._gave_up = True
        from dsup_runtime.rank_log import log

        log.warning(
            "cannot stop as dsup announced, because it has not said within %.1f s at"
            " which step (training goes on; see whether the agent still runs)",
            self._grace_s,
        )


def ended(page: Page) -> PeerError | None:
    """Return why ranks are ended that have nothing to agree on; None if they are not.

    Args:
        page: as it is now.
    """
    words = page.words
    if not words[HEADER_FREEZE] or words[HEADER_STOP_STEP] != AT_ONCE:
        return None
    return failure(*_published(words)[1:])


def failure(reason: str, rank: int | None) -> PeerError:
    """Return what is raised where another rank's failure ends this one."""
    return PeerError(
        f"cannot go on, because {reason} (look at the rank it names)",
        ranks=[] if rank is None else [rank],
    )


def _published(words: memoryview[int]) -> Decision:
    kind, rank = words[HEADER_STOP_KIND], words[HEADER_STOP_RANK]
    end = HEADER_STOP_REASON + _REASON_WORDS
    reason = words[HEADER_STOP_REASON:end].tobytes().rstrip(b"\0")
    return Decision(
        kind if 0 < kind < len(STOP_KINDS) else _UNKNOWN_KIND,
        reason.decode(errors="ignore"),  # it may be cut within a character
        None if rank < 0 else rank,
    )
