"""Stragglers of the attempt at hand: who is slower than its peers, and why, if known.

Step times are compared now and then, which costs next to nothing. Only while a rank
lags it is asked why: the kernel at each look, the GPUs once, through the probe; an aide
reads what they have said. What is known when the rank is named stands with it.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, Protocol

from dsup.core import events as ev

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsup.core.stragglers import Lag
    from dsup.devices import Found
    from dsup.edges.slowness import Slowness

EVERY_S: Final = 10.0
"""A straggler is one for a minute."""

READ_S: Final = 2.0
_QUESTIONS: Final = ("glance", "read")


class Helpers(Protocol):
    """What this needs of the aides."""

    def start(
        self,
        work: Callable[[], bytes],
        deadline_s: float,
        done: Callable[[bytes], None],
    ) -> None:
        """Have work done by a child; ``done`` gets its answer, empty for none."""


class Clues(Protocol):
    """What this needs of whoever has the devices."""

    def glance(self) -> None:
        """Have the GPUs asked what they do at this moment."""

    @property
    def found(self) -> Found | None:
        """What they have said; None where nobody asked them."""


class Straggling:
    """Compares the ranks of one attempt.

    Args:
        attempt: its number.
        pids: pid of each rank.
        aides: read what devices say.
        clues: has the devices; None for no such thing.
        post: takes the events that come of it.

    Attributes:
        due_s: when the next look is due, agent clock, seconds.
    """

    def __init__(
        self,
        attempt: int,
        pids: Mapping[int, int],
        aides: Helpers,
        clues: Clues | None,
        post: Callable[[ev.Event], None],
    ) -> None:
        self.due_s = 0.0
        self._attempt = attempt
        self._pids = pids
        self._aides = aides
        self._clues = clues
        self._post = post
        self._lags: dict[int, Lag] = {}
        self._slowness: Slowness | None = None
        self._asked = 0
        self._of_gpus: dict[int, str] = {}

    def look(self, steps_s: Mapping[int, float], now_s: float) -> None:
        """Tell of ranks that have been slower than their peers for some time.

        Args:
            steps_s: the usual step time of each rank that has one, seconds.
            now_s: agent clock, seconds.
        """
        from dsup.core import stragglers

        self.due_s = now_s + EVERY_S
        reasons = self._reasons(now_s)
        self._lags, found = stragglers.observe(self._lags, steps_s, now_s, reasons)
        for one in found:
            fields = self._attempt, one.rank, one.times, one.why
            self._post(ev.Straggles("straggles", now_s, *fields))

    def close(self) -> None:
        """Close every file."""
        if self._slowness:
            self._slowness.close()
            self._slowness = None

    def _reasons(self, now_s: float) -> dict[int, str]:
        """Return why ranks that lag may do so, the devices' reasons first."""
        lagging = [r for r, lag in self._lags.items() if lag.since_s is not None]
        if not lagging:
            self.close()
            self._asked, self._of_gpus = 0, {}
            return {}
        if self._slowness is None:
            from dsup.edges.slowness import Slowness

            self._slowness = Slowness(self._pids)
        of_kernel = self._slowness.look(lagging, now_s)
        self._ask()
        said = {r: (self._of_gpus.get(r), of_kernel.get(r)) for r in lagging}
        return {rank: " and ".join(filter(None, both)) for rank, both in said.items()}

    def _ask(self) -> None:
        """Have the GPUs asked, and at the next look what they have said be read."""
        if self._clues is None or self._asked == len(_QUESTIONS):
            return
        found = self._clues.found
        if found is None or not found.probed.present:
            return
        question = _QUESTIONS[self._asked]
        self._asked += 1
        if question == "glance":
            self._clues.glance()
            return
        from functools import partial

        deadline_s = time.monotonic() + READ_S
        self._aides.start(partial(read, found), deadline_s, self._on_read)

    def _on_read(self, answer: bytes) -> None:
        told = json.loads(answer) if answer else {}
        self._of_gpus = {int(rank): why for rank, why in told.items()}


def read(found: Found) -> bytes:
    """Return as JSON why GPUs may slow their ranks: what a device says, an aide reads.

    Args:
        found: what is known of the devices.
    """
    from dsup.facts import gpu_slow, nvml
    from dsup.facts.hardware import gpu_of

    cards = nvml.decode_cards(found.probed.cards)
    used = {rank: gpu_of(cards, access) for rank, access in found.access.items()}
    return json.dumps(gpu_slow.reasons(found.probed, used)).encode()
