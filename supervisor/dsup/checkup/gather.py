"""Everything that is read of a node, each by a process that may hang.

All readers work at once. One that gives no answer in time is killed and not waited for:
its silence is a finding. So the whole takes no longer than the slowest limit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from dsup.checkup import readings
from dsup.checkup.readers.cgroups import cgroups
from dsup.checkup.readers.devices import driver, holders, network
from dsup.checkup.readers.interpreter import interpreter
from dsup.checkup.readers.kernel_log import kernel_log_readable
from dsup.checkup.readers.still import Glimpse, glimpse
from dsup.checkup.readers.storage import space, sync
from dsup.checkup.readers.system import clock, limits, system
from dsup.checkup.readings import (
    PATIENT_S,
    READER_S,
    Asked,
    Gpus,
    Readings,
    Row,
    Space,
    Sync,
)
from dsup.core.state import NEVER
from dsup.edges.aide import Aides
from dsup.edges.loop import Loop
from dsup.edges.probe import protocol
from dsup.edges.probe.client import DIED, NOT_STARTED, Answer, Probe
from dsup.facts import nvml
from dsup.linux import libc

ALL_S: Final = 10.5
"""What everything may take: NVML has ten seconds to start."""

SHM: Final = "/dev/shm"  # noqa: S108 (it is looked at)
_SPACE: Final = "space "
_SYNC: Final = "sync "
_PR_SET_PDEATHSIG: Final = 1
_LOOK_S: Final = 0.5
_STILL_S: Final = 3.0
_RUNS: Final = "R"
_CODE_MAX_DIGITS: Final = 6
_SILENT: Final = f"NVML gave no answer within {ALL_S:g} s: the driver may hang"


class _Reader(NamedTuple):
    work: Callable[[], Row]
    kind: type[Any]
    limit_s: float = READER_S


def gather(asked: Asked) -> Readings:
    """Read a node.

    Args:
        asked: what it is to be judged against.
    """
    loop = Loop()
    aides = Aides(loop)
    todo = _readers(asked)
    asking = _Asking(loop, aides)
    heard: dict[str, bytes] = {}
    silent: set[str] = set()
    until_s = time.monotonic() + ALL_S
    try:
        for name, reader in todo.items():
            deadline_s = until_s - ALL_S + reader.limit_s
            hear = partial(_hear, heard, silent, name, deadline_s)
            aides.start(partial(_encoded, reader.work), deadline_s, hear)
        asking.begin()
        while len(heard) < len(todo) or not asking.over:
            if time.monotonic() >= until_s:
                break
            loop.turn(min(aides.deadline(), asking.deadline(), until_s))
            asking.look()
            aides.expire(time.monotonic())
            asking.probe.expire()
    finally:  # whoever interrupts it leaves nobody behind
        asking.probe.stop()
        aides.hurry(0.0)
        aides.expire(time.monotonic())
    return _put_together(asked, todo, heard, silent)._replace(gpus=asking.told())


def _hear(
    heard: dict[str, bytes], silent: set[str], name: str, until_s: float, answer: bytes
) -> None:
    """Keep an answer; one that died was not silent until its end."""
    heard[name] = answer
    if not answer and time.monotonic() >= until_s:
        silent.add(name)


def _put_together(
    asked: Asked,
    todo: Mapping[str, _Reader],
    heard: Mapping[str, bytes],
    silent: Collection[str],
) -> Readings:
    rows = {
        name: readings.decode(reader.kind, heard.get(name, b""))
        for name, reader in todo.items()
    }
    spaces = _spaces(asked, rows, silent)
    return Readings(asked=asked, spaces=spaces, silent=frozenset(silent), **rows)


def _spaces(
    asked: Asked, rows: dict[str, Any], silent: Collection[str]
) -> dict[str, Space | None]:
    """Take what is told of directories out of the rows, and put it together."""
    found: dict[str, Space | None] = {}
    for name, path in _places(asked).items():
        place: Space | None = rows.pop(f"{_SPACE}{name}")
        written: Sync | None = rows.pop(f"{_SYNC}{name}", None)
        if place is None and f"{_SPACE}{name}" in silent:
            place = Space(path, silent=True)
        elif place and written:
            place = place._replace(sync_ms=written.ms)
            if written.error and not place.error:
                place = place._replace(error=written.error, whose=written.whose)
        elif place and f"{_SYNC}{name}" in silent:
            place = place._replace(syncing=True)
        found[name] = place
    return found


def _readers(asked: Asked) -> dict[str, _Reader]:
    """Return the readers by the field of ``Readings`` that they fill."""
    root, environment = asked.root, asked.environment
    found = {
        "kernel_log": _Reader(kernel_log_readable, readings.KernelLog),
        "system": _Reader(partial(system, environment, root), readings.System),
        "limits": _Reader(limits, readings.Limits),
        "cgroups": _Reader(
            partial(cgroups, asked.ancestor or os.getpid(), root), readings.Cgroups
        ),
        "clock": _Reader(clock, readings.Clock),
        "network": _Reader(partial(network, asked.master_port, root), readings.Network),
        "driver": _Reader(partial(driver, root), readings.Driver),
        "holders": _Reader(partial(holders, root), readings.Holders, PATIENT_S),
    }
    if asked.python:
        work = partial(interpreter, asked.python, environment)
        found["interpreter"] = _Reader(work, readings.Interpreter, PATIENT_S)
    for name, path in _places(asked).items():
        look = partial(space, path, root, writes=path != SHM)
        found[f"{_SPACE}{name}"] = _Reader(look, Space, PATIENT_S)
        if path != SHM:
            found[f"{_SYNC}{name}"] = _Reader(partial(sync, path), Sync, PATIENT_S)
    return found


def _places(asked: Asked) -> Mapping[str, str]:
    return {**asked.places, SHM: SHM}


def _encoded(work: Callable[[], Row]) -> bytes:
    libc.call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    return readings.encode(work())


class _Asking:
    """NVML, asked by the probe: it can tell which GPU does not answer.

    Args:
        loop: watches the probe.
        aides: bury it.

    Attributes:
        probe: the process that asks.
    """

    def __init__(self, loop: Loop, aides: Aides) -> None:
        self.probe = Probe(loop, aides.bury, time.monotonic, _pass_over, READER_S)
        self._bodies: list[bytes] = []
        self._why_not = ""
        self._left = 3
        self._seen: Glimpse | None = None
        self._moved_s = self._looked_s = time.monotonic()
        self._hung = False

    def begin(self) -> None:
        """Ask everything that there is to ask."""
        for what in (protocol.HEALTH, protocol.REST, protocol.FITNESS):
            try:
                self.probe.ask(what, self._take, patient=True)
            except OSError as error:
                self._take(Answer((), f"{NOT_STARTED}, because {error.strerror}"))

    def look(self) -> None:
        """See whether the process that asks still moves."""
        now_s = time.monotonic()
        self._looked_s = now_s
        if not self.probe.pid:
            return
        seen = glimpse(self.probe.pid)
        if seen != self._seen or (seen and seen.state == _RUNS):
            self._seen, self._moved_s = seen, now_s

    def deadline(self) -> float:
        """Return when there is something to do, agent clock, seconds."""
        look_s = self._looked_s + _LOOK_S if self.probe.pid else NEVER
        return min(self.probe.deadline(), look_s)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to come."""
        return not self._left

    def _take(self, answer: Answer) -> None:
        self._left -= 1
        self._bodies += answer.bodies
        if answer.why_not and not self._why_not:
            self._why_not = answer.why_not
            self._hung = self._is_still()

    def _is_still(self) -> bool:
        """Return whether it stood still, and is no longer to be expected to move."""
        if self._why_not == DIED or self._why_not.startswith(NOT_STARTED):
            return False
        return time.monotonic() - self._moved_s >= _STILL_S

    def told(self) -> Gpus:
        """Return what NVML has said."""
        code = self.probe.failed[:_CODE_MAX_DIGITS].decode(errors="replace")
        failed = None
        if code:
            failed = int(code) if code.lstrip("-").isdecimal() else nvml.UNKNOWN
        return Gpus(
            cards=nvml.decode_cards(self.probe.cards),
            readings=nvml.decode_readings(self._bodies),
            failed=failed,
            why_not=self._why_not or ("" if self.over else _SILENT),
            hung=self._hung if self.over else self._is_still(),
            versions=nvml.decode_versions(self.probe.cards),
        )


def _pass_over(_: bytes) -> None:
    """Take an event: what happens while the doctor looks is in the readings, too."""
