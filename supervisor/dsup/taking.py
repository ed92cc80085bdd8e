"""Taking stacks: an aide has all ranks of the attempt at hand say where they are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from dsup.captures import Captures, Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dsup.edges.capture import Order
    from dsup.edges.group import Rank
    from dsup.facts.captured import Found

_HURRY_S: Final = 0.5
"""So much before its deadline an aide is to have written what it has."""


class Helpers(Protocol):
    """What this needs of the aides."""

    def start(
        self,
        work: Callable[[], bytes],
        deadline_s: float,
        done: Callable[[bytes], None],
        *,
        kept: Collection[int] = (),
    ) -> None:
        """Have work done by a child; ``done`` gets its answer, empty for none."""


class Taking:
    """Has stacks taken, one capture at a time, and keeps what they show.

    Args:
        path: the PATH to find a program in that looks at ranks from outside.
        aides: take the stacks.
        desk: keeps them.

    Attributes:
        busy: stacks are being taken.
        captures: of the attempt at hand.
        ranks: of it; their memory files stay open until ``close``.
    """

    def __init__(self, path: str, aides: Helpers, desk: Desk) -> None:
        self.busy = False
        self.captures = Captures(-1)
        self.ranks: dict[int, Rank] = {}
        self._path = path
        self._aides = aides
        self._desk = desk
        self._environments: dict[int, Mapping[str, str]] = {}
        self._spy = ""

    def begin(
        self,
        attempt: int,
        ranks: Mapping[int, Rank],
        environments: Sequence[Mapping[str, str]],
    ) -> None:
        """Begin with an attempt.

        Args:
            attempt: its number.
            ranks: all of them.
            environments: of each rank, in their order.
        """
        self.captures = Captures(attempt)
        self.ranks = dict(ranks)
        self._environments = dict(enumerate(environments))

    def start(
        self,
        alive: Collection[int],
        exited: Collection[int],
        deadline_s: float,
        done: Callable[[Found], None],
        *,
        final: bool,
    ) -> None:
        """Have stacks taken.

        Args:
            alive: ranks that have not ended.
            exited: ranks that have, with 0.
            deadline_s: when to give it up, agent clock, seconds.
            done: gets what was found, unless ``close`` comes first.
            final: the attempt is about to be ended.
        """
        self.busy = True
        answered = partial(self._answered, self.captures, done)
        try:
            self.captures.open()
        except OSError:
            answered(b"")
            return
        order = self._order(alive, exited, deadline_s - _HURRY_S, final=final)
        files = [one.stacks for one in order.targets if one.stacks >= 0]
        from dsup.edges import capture

        work = partial(capture.work, order)
        self._aides.start(work, deadline_s, answered, kept=(order.out, *files))

    def close(self) -> None:
        """Let everything go that belongs to the attempt, but for what it has shown."""
        self.captures.close()
        self.busy = False

    def _order(
        self,
        alive: Collection[int],
        exited: Collection[int],
        until_s: float,
        *,
        final: bool,
    ) -> Order:
        from dsup.edges import capture
        from dsup.edges.group import STACKS_FD
        from dsup.linux import recorder_pipe, spy

        self._spy = self._spy or spy.find(self._path)
        targets = tuple(
            capture.Target(rank, self.ranks[rank].pid, self.ranks[rank].stacks)
            for rank in sorted(alive)
            if rank in self.ranks
        )
        return capture.Order(
            targets,
            tuple(sorted(exited)),
            STACKS_FD,
            self.captures.fd,
            self.captures.end,
            until_s,
            final,
            self._spy,
            tuple(recorder_pipe.recorders(self._environments, alive)),
        )

    def _answered(
        self, captures: Captures, done: Callable[[Found], None], answer: bytes
    ) -> None:
        if captures is not self.captures or not self.busy:
            return  # of an attempt that is over
        from dsup.facts.captured import decode

        found = decode(answer)
        self.busy = False
        captures.keep(found, self._desk)
        done(found)
