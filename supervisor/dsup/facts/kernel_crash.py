"""Crashes in the kernel log: what a task did that the processor refused.

Source: Linux arch/x86/mm/fault.c, arch/x86/kernel/traps.c, arch/arm64/kernel/traps.c,
arch/powerpc/kernel/traps.c, arch/riscv/kernel/traps.c, 2.6.18 to 6.18.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dsup.facts.kernel import (
    FAULTS_MAX,
    Candidate,
    KernelFault,
    Kind,
    Record,
    told,
    within,
)
from dsup.facts.kernel_words import COMM

_SIGILL: Final = 4
_SIGTRAP: Final = 5
_SIGBUS: Final = 7
_SIGFPE: Final = 8
_SIGSEGV: Final = 11

_TASK = rf"(?P<comm>{COMM}{{0,15}})\[(?P<pid>\d{{1,10}})\]"

_SEGFAULT: Final = re.compile(
    rf"{_TASK}: segfault (?:\((?P<signum>\d{{1,3}})\) )?"
    r"at (?P<address>[0-9a-f]{1,16}) (?:[re]?ip|nip) ",
    re.DOTALL,
)
"""Examples: ``python[41]: segfault at 8 ip 7f1e sp 7ffc error 4 in libc.so.6[98f0a,
7f8690044000+156000] likely on CPU 1``; on POWER ``…: segfault (11) at 8 nip 7f1e``."""

_UNHANDLED: Final = re.compile(
    rf"{_TASK}: unhandled (?:signal |(?P<what>.{{1,60}}?) \()(?P<signum>\d{{1,3}})\)?"
    r"(?: code 0x[0-9a-f]{1,8})? at (?:0x)?(?P<address>[0-9a-f]{1,16})",
    re.DOTALL,
)
"""Examples: arm64 up to 4.17 ``python[41]: unhandled level 2 translation fault (11) at
0x00000028, esr 0x92000006``; RISC-V ``…: unhandled signal 11 code 0x1 at 0x28``."""

_EXCEPTION: Final = re.compile(
    rf"{_TASK}: unhandled exception: (?P<what>[^\n]{{0,200}})", re.DOTALL
)
"""Example: arm64 since 4.18 ``python[41]: unhandled exception: DABT (lower EL), ESR
0x92000006, level 2 translation fault in libc.so.6[7f86+156000]``."""

_TRAP: Final = re.compile(
    rf"(?:traps: )?{_TASK} (?:trap (?P<trap>[a-z0-9 ]{{1,40}})"
    r"|(?P<gpf>general protection)(?: fault)?|(?P<cet>control protection)) [re]?ip:",
    re.DOTALL,
)
"""Examples: ``traps: python[41] trap invalid opcode ip:7f1e sp:7ffc error:0 in
libx.so[7f1e+43000]``; ``traps: python[41] general protection fault ip:7f1e …``."""

_OOPS: Final = re.compile(
    r"(?:Oops: )?(?:(?P<gpf>general protection fault)"
    r"|(?P<trap>invalid opcode|divide error|int3))"
    r"(?:, [^:\n]{1,100})?: [0-9a-f]{4} \[#?\d{1,6}\]"
)
"""In the kernel itself: ``general protection fault, probably for non-canonical address
0xdead000000000100: 0000 [#1] SMP``; the task it ran for is named later."""

_DUMP: Final = re.compile(
    r"(?:CPU: \d{1,6} (?:UID: \d{1,10} )?PID: |Pid: )(?P<pid>\d{1,10}),? "
    r"[Cc]omm: (?P<comm>.{1,60}?)(?: Kdump: loaded)?(?: Not tainted| Tainted: |\Z)",
    re.DOTALL,
)
_MAPPED: Final = re.compile(
    r",? in (?P<lib>.{1,1200})\[(?:[0-9a-f]{1,16},)?[0-9a-f]{1,16}\+[0-9a-f]{1,16}\]",
    re.DOTALL,
)
"""Example: `` in libc.so.6[98f0a,7f8690044000+156000]``; the first number is new."""

_BY_NAME: Final = {
    "divide error": _SIGFPE,
    "coprocessor segment overrun": _SIGFPE,
    "invalid opcode": _SIGILL,
    "iret exception": _SIGILL,
    "int3": _SIGTRAP,
    "alignment check": _SIGBUS,
    "segment not present": _SIGBUS,
    "stack segment": _SIGBUS,
    "bounds": _SIGSEGV,
    "invalid tss": _SIGSEGV,
    "overflow": _SIGSEGV,
}
"""Signals of x86 traps by their names."""

_BY_WORDS: Final = {
    "translation fault": _SIGSEGV,
    "permission fault": _SIGSEGV,
    "access flag fault": _SIGSEGV,
    "alignment": _SIGBUS,
    "external abort": _SIGBUS,
    "parity": _SIGBUS,
    "undefined instruction": _SIGILL,
    "illegal instruction": _SIGILL,
    "brk": _SIGTRAP,
}
"""Signals of arm64 exceptions by words in their description, in lower case."""

_TRAP_SIGNALS: Final = frozenset({_SIGILL, _SIGTRAP, _SIGFPE})


class _Rest(NamedTuple):
    """How soon the rest of a crash is told, if it is told at all."""

    records: int
    lasts_us: int


@dataclass(slots=True, eq=False)
class _Crash:
    place: int
    record: Record
    fault: KernelFault


_LIB_COMES: Final = _Rest(4, 100_000)
_TASK_COMES: Final = _Rest(100, 5_000_000)


class Crashes:
    """The crashes that the records so far tell of."""

    def __init__(self) -> None:
        self._crashes: list[_Crash] = []
        self._latest: deque[_Crash] = deque(maxlen=_TASK_COMES.records)

    def take(self, place: int, record: Record) -> None:
        """Take one record in."""
        fault = _of_user(record) or _of_kernel(record)
        if fault is not None:
            crash = _Crash(place, record, fault)
            if len(self._crashes) <= FAULTS_MAX:
                self._crashes.append(crash)
            self._latest.append(crash)
        elif found := _MAPPED.match(record.text):
            self._add_lib(place, record, _lib(found))
        elif found := _DUMP.match(record.text):
            self._add_task(place, record, found)

    def found(self) -> Iterator[Candidate]:
        """Return the crashes."""
        return (Candidate(crash.place, crash.fault) for crash in self._crashes)

    def _add_lib(self, place: int, record: Record, lib: str) -> None:
        """Give the one crash that lacks it the file, where that is its own record."""
        recent = self._recent(place, record, _LIB_COMES)
        named = [crash for crash in recent if crash.fault.pid is not None]
        lacking = [crash for crash in named if crash.fault.lib is None]
        if len(lacking) == 1:
            lacking[0].fault = lacking[0].fault._replace(lib=lib)

    def _add_task(self, place: int, record: Record, found: re.Match[str]) -> None:
        """Give the one crash that lacks it the task."""
        recent = self._recent(place, record, _TASK_COMES)
        lacking = [crash for crash in recent if crash.fault.pid is None]
        if len(lacking) == 1:
            pid, comm = int(found["pid"]), found["comm"]
            lacking[0].fault = lacking[0].fault._replace(pid=pid, comm=comm)

    def _recent(self, place: int, record: Record, rest: _Rest) -> Iterator[_Crash]:
        """Return the crashes that a record may complete, the latest first."""
        for crash in reversed(self._latest):
            if place - crash.place > rest.records:
                return
            if within(rest.lasts_us, crash.record, record):
                yield crash


def _of_user(record: Record) -> KernelFault | None:
    """Return the crash of a process that a record tells of."""
    for pattern, read in _READERS:
        found = pattern.match(record.text)
        if found:
            fault = read(found, record)
            # The first of these words is the kernel's own; later ones may be a file's.
            place = record.text.find(" in ", found.end("pid"))
            mapped = _MAPPED.match(record.text, place) if place >= 0 else None
            return fault._replace(
                pid=int(found["pid"]),
                comm=found["comm"],
                lib=_lib(mapped) if mapped else None,
            )
    return None


def _segfault(found: re.Match[str], record: Record) -> KernelFault:
    signum = int(found["signum"]) if found["signum"] else _SIGSEGV
    address = int(found["address"], 16)
    return told("segfault", record)._replace(address=address, signum=signum)


def _unhandled(found: re.Match[str], record: Record) -> KernelFault:
    signum, address = int(found["signum"]), int(found["address"], 16)
    return told(_kind(signum), record)._replace(address=address, signum=signum)


def _exception(found: re.Match[str], record: Record) -> KernelFault:
    what = found["what"].lower().partition(" in ")[0]
    signum = next((n for words, n in _BY_WORDS.items() if words in what), None)
    return told(_kind(signum), record)._replace(signum=signum)


def _trap(found: re.Match[str], record: Record) -> KernelFault:
    if found["gpf"]:
        return told("gpf", record)._replace(signum=_SIGSEGV)
    signum = _BY_NAME.get(found["trap"].lower()) if found["trap"] else _SIGSEGV
    return told("trap", record)._replace(signum=signum)


_READERS: Final = (
    (_SEGFAULT, _segfault),
    (_TRAP, _trap),
    (_EXCEPTION, _exception),
    (_UNHANDLED, _unhandled),
)


def _of_kernel(record: Record) -> KernelFault | None:
    """Return a crash of the kernel's own, which ends the task that it ran for.

    By which signal is not certain, and which task only its dump tells.
    """
    found = _OOPS.match(record.text)
    return told("gpf" if found["gpf"] else "trap", record) if found else None


def _kind(signum: int | None) -> Kind:
    return "trap" if signum in _TRAP_SIGNALS else "segfault"


def _lib(found: re.Match[str]) -> str:
    return found["lib"].rpartition("/")[2].removesuffix(" (deleted)")
