"""Everything that is read of a node, each by a process that may hang.

All readers work at once. One that gives no answer in time is killed and not waited for:
its silence is a finding. So the whole takes no longer than the slowest limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from dsup.checkup import readings
from dsup.checkup.readers.cgroups import cgroups
from dsup.checkup.readers.devices import driver, holders, network
from dsup.checkup.readers.interpreter import interpreter
from dsup.checkup.readers.kernel_log import kernel_log_readable
from dsup.checkup.readers.storage import space
from dsup.checkup.readers.system import clock, limits, system
from dsup.checkup.readings import READER_S, Asked, Gpus, Readings, Row, Space
from dsup.edges.aide import Aides
from dsup.edges.loop import Loop
from dsup.edges.probe import protocol
from dsup.edges.probe.client import Answer, Probe
from dsup.facts import nvml

ALL_S: Final = 10.5
"""What everything may take: NVML has ten seconds to start."""

SHM: Final = "/dev/shm"  # noqa: S108 (it is looked at)
_SPACE: Final = "space "
_CODE_MAX_DIGITS: Final = 6
_SILENT: Final = f"NVML gave no answer within {ALL_S:g} s: the driver may hang"


class _Reader(NamedTuple):
    work: Callable[[], Row]
    kind: type[Any]


def gather(asked: Asked) -> Readings:
    """Read a node.

    Args:
        asked: what it is to be judged against.
    """
    loop = Loop()
    aides = Aides(loop)
    answers: dict[str, bytes] = {}
    todo = _readers(asked)
    for name, reader in todo.items():
        work = partial(_encoded, reader.work)
        until_s = time.monotonic() + READER_S
        aides.start(work, until_s, partial(answers.__setitem__, name))
    asking = _Asking(loop, aides)
    until_s = time.monotonic() + ALL_S
    try:
        while len(answers) < len(todo) or not asking.over:
            if time.monotonic() >= until_s:
                break
            loop.turn(min(aides.deadline(), asking.probe.deadline(), until_s))
            aides.expire(time.monotonic())
            asking.probe.expire()
    finally:  # whoever interrupts it leaves nobody behind
        asking.probe.stop()
        aides.hurry(0.0)
        aides.expire(time.monotonic())
    rows = {
        name: readings.decode(reader.kind, answers.get(name, b""))
        for name, reader in todo.items()
    }
    spaces = {
        name.removeprefix(_SPACE): rows.pop(name)
        for name in tuple(rows)
        if name.startswith(_SPACE)
    }
    return Readings(asked=asked, spaces=spaces, gpus=asking.told(), **rows)


def _readers(asked: Asked) -> dict[str, _Reader]:
    """Return the readers by the field of ``Readings`` that they fill."""
    root, environment = asked.root, asked.environment
    found = {
        "kernel_log": _Reader(kernel_log_readable, readings.KernelLog),
        "system": _Reader(partial(system, environment, root), readings.System),
        "limits": _Reader(limits, readings.Limits),
        "cgroups": _Reader(partial(cgroups, os.getpid(), root), readings.Cgroups),
        "clock": _Reader(clock, readings.Clock),
        "network": _Reader(partial(network, asked.master_port, root), readings.Network),
        "driver": _Reader(partial(driver, root), readings.Driver),
        "holders": _Reader(partial(holders, root), readings.Holders),
    }
    if asked.python:
        work = partial(interpreter, asked.python, environment)
        found["interpreter"] = _Reader(work, readings.Interpreter)
    for name, path in _places(asked).items():
        look = partial(space, path, root, writes=path != SHM)
        found[f"{_SPACE}{name}"] = _Reader(look, Space)
    return found


def _places(asked: Asked) -> Mapping[str, str]:
    return {**asked.places, SHM: SHM}


def _encoded(work: Callable[[], Row]) -> bytes:
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
        for what in (protocol.HEALTH, protocol.REST, protocol.FITNESS):
            self.probe.ask(what, self._take, patient=True)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to come."""
        return not self._left

    def _take(self, answer: Answer) -> None:
        self._left -= 1
        self._bodies += answer.bodies
        self._why_not = self._why_not or answer.why_not

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
            versions=nvml.decode_versions(self.probe.cards),
        )


def _pass_over(_: bytes) -> None:
    """Take an event: what happens while the doctor looks is in the readings, too."""
