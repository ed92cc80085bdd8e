"""The node's devices during a run: GPUs by the probe, network ports by sysfs.

They are asked twice an attempt: when the ranks have started, and at the first death.
Nothing here waits, and nothing is interpreted: that is the judge's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dsup.edges import ports
from dsup.edges.probe import protocol
from dsup.edges.probe.client import ANSWER_S, Answer, Probe
from dsup.facts.hardware import Access
from dsup.facts.nvml import Probed
from dsup.linux import nvidia

if TYPE_CHECKING:
    from dsup.edges.probe.client import Watcher

EVENTS_MAX: Final = 256

_PORTS: Final = b"ports"
_LOOKS_S: Final = (5.0, 30.0, 120.0, 600.0)
"""When it is looked at which GPUs the ranks have open, after their start."""


class Helpers(Protocol):
    """What this needs of the aides."""

    @property
    def watcher(self) -> Watcher:
        """Calls back when a descriptor is ready."""

    @property
    def refusal(self) -> OSError | None:
        """Why there is no child, while ``done`` is told of it; else None."""

    def start(
        self,
        work: Callable[[], bytes],
        deadline_s: float,
        done: Callable[[bytes], None],
        /,
    ) -> None:
        """Have work done by a child; ``done`` gets its answer, empty for none."""

    def bury(self, pid: int, /) -> None:
        """Kill a child and collect it."""


class Found(NamedTuple):
    """All that is known of the devices, raw.

    Attributes:
        probed: what the probe said.
        access: what tells each rank's GPU.
        ports_before: answer for ``ports.decode``, after the ranks had started.
        ports_after: the same after the first death.
    """

    probed: Probed = Probed()
    access: Mapping[int, Access] = {}
    ports_before: bytes = b""
    ports_after: bytes = b""


class Devices:
    """The devices of a node, from the start of the first rank on.

    Args:
        aides: do what may block.
        late: called when an answer, or an event, has come after the first death.
    """

    def __init__(self, aides: Helpers, late: Callable[[], None]) -> None:
        self._aides = aides
        self._late = late
        self._probe = Probe(aides.watcher, aides.bury, time.monotonic, self._on_event)
        self._present = nvidia.is_present()
        self._has_ports = ports.are_there()
        self._attempt = -1
        self._found = Found()
        self._pids: Mapping[int, int] = {}
        self._looks: list[float] = []
        self._awaited: set[bytes] = set()
        self._ports_asked = False

    @property
    def pids(self) -> set[int]:
        """The probe, while there is one."""
        return {self._probe.pid} - {0}

    @property
    def found(self) -> Found:
        """What is known of the attempt at hand."""
        probed = self._found.probed._replace(
            cards=self._probe.cards, failed=self._probe.failed, present=self._present
        )
        return self._found._replace(probed=probed)

    @property
    def awaited(self) -> bool:
        """Whether an answer is still to come that was asked for after a death."""
        return bool(self._awaited)

    def started(
        self,
        attempt: int,
        pids: Mapping[int, int],
        environments: Iterable[Mapping[str, str]],
    ) -> None:
        """Ask how everything is, now that the ranks of an attempt have started.

        Args:
            attempt: its number.
            pids: pid of each rank.
            environments: of each rank, in their order.
        """
        self._attempt, self._pids = attempt, dict(pids)
        self._awaited, self._ports_asked = set(), False
        self._found = Found(access=dict(enumerate(map(_access, environments))))
        now_s = time.monotonic()
        self._looks = [now_s + after_s for after_s in _LOOKS_S]
        done = partial(self._on_before, attempt)
        self._probe.ask(protocol.HEALTH, done, patient=True)
        self._probe.ask(protocol.REST, done, patient=True)
        if self._has_ports:
            keep = partial(self._on_ports_before, attempt)
            self._aides.start(ports.read, now_s + ANSWER_S, keep)

    def died(self) -> None:
        """Ask how the GPUs are, for a rank has died; once an attempt."""
        probed = self._found.probed
        if probed.asked:
            return
        self._keep(probed._replace(asked=True))
        self._awaited |= {protocol.HEALTH, protocol.REST}
        for what in (protocol.HEALTH, protocol.REST):
            done = partial(self._on_after, self._attempt, what)
            self._probe.ask(what, done, patient=what == protocol.REST)

    def glance(self) -> None:
        """Ask what the GPUs do at this moment; the last answer counts.

        Whoever judges does not wait for it.
        """
        done = partial(self._on_glance, self._attempt)
        self._probe.ask(protocol.LOAD, done)

    def ended(self, living: Mapping[int, int]) -> None:
        """Ask for all there is to know: the ranks have got their signal.

        Args:
            living: pid of each rank that has not ended.
        """
        self.died()
        self.look_at(living)
        if self._has_ports and not self._ports_asked:
            self._ports_asked = True
            self._awaited |= {_PORTS}
            keep = partial(self._on_ports_after, self._attempt)
            self._aides.start(ports.read, time.monotonic() + ANSWER_S, keep)

    def look(self, now_s: float) -> None:
        """See now and then which GPUs the ranks have open."""
        if not self._looks or now_s < self._looks[0]:
            return
        while self._looks and now_s >= self._looks[0]:
            self._looks.pop(0)
        self.look_at(self._pids)

    def look_at(self, ranks: Mapping[int, int]) -> None:
        """See which GPUs ranks have open.

        Args:
            ranks: pid of each.
        """
        if not self._probe.cards:
            return
        access = dict(self._found.access)
        for rank, pid in ranks.items():
            minors = nvidia.open_minors(pid)
            if minors and rank in access:
                access[rank] = access[rank]._replace(minors=minors)
        self._found = self._found._replace(access=access)

    def deadline(self) -> float:
        """Return when ``on_tick`` is due, agent clock, seconds."""
        return self._probe.deadline()

    def on_tick(self) -> None:
        """Do what has become due."""
        self._probe.expire()

    def stop(self) -> None:
        """End the probe."""
        self._awaited = set()
        self._probe.stop()

    def _on_before(self, attempt: int, answer: Answer) -> None:
        if attempt == self._attempt:
            probed = self._found.probed
            self._keep(probed._replace(before=probed.before + answer.bodies))
            self._keep(self._excused(answer))

    def _on_after(self, attempt: int, what: bytes, answer: Answer) -> None:
        if attempt != self._attempt:
            return
        probed = self._found.probed
        self._keep(probed._replace(after=probed.after + answer.bodies))
        self._keep(self._excused(answer))
        self._arrived(what)

    def _on_glance(self, attempt: int, answer: Answer) -> None:
        if attempt == self._attempt:
            loads = answer.bodies or self._found.probed.loads
            self._keep(self._excused(answer)._replace(loads=loads))

    def _on_ports_before(self, attempt: int, answer: bytes) -> None:
        if attempt == self._attempt:
            self._found = self._found._replace(ports_before=answer)

    def _on_ports_after(self, attempt: int, answer: bytes) -> None:
        if attempt == self._attempt:
            self._found = self._found._replace(ports_after=answer)
            self._arrived(_PORTS)

    def _on_event(self, body: bytes) -> None:
        probed = self._found.probed
        if len(probed.events) < EVENTS_MAX:
            self._keep(probed._replace(events=(*probed.events, body)))
            if probed.asked:
                self._late()

    def _excused(self, answer: Answer) -> Probed:
        """Return what is known with the latest reason why that is not all."""
        return self._found.probed._replace(why_not=answer.why_not)

    def _keep(self, probed: Probed) -> None:
        self._found = self._found._replace(probed=probed)

    def _arrived(self, what: bytes) -> None:
        self._awaited.discard(what)
        if not self._awaited:
            self._late()


def _access(environment: Mapping[str, str]) -> Access:
    return Access(
        local_rank=int(environment["LOCAL_RANK"]),
        visible=environment.get("CUDA_VISIBLE_DEVICES"),
        order=environment.get("CUDA_DEVICE_ORDER", ""),
    )
