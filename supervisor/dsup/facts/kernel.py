"""Kernel-log records as typed facts: who was killed for memory, who crashed where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from dsup.core.printable import printable

Kind: TypeAlias = Literal[
    "oom_global",
    "oom_memcg",
    "segfault",
    "gpf",
    "trap",
    "xid",
    "sxid",
    "mce",
    "ecc_mem",
    "aer",
    "hung_task",
    "lockup",
    "io_error",
    "ib_link",
    "pids_limit",
]

Severity: TypeAlias = Literal["", "corrected", "nonfatal", "fatal"]
"""What the kernel itself calls a hardware error; empty where it says nothing."""


class Record(NamedTuple):
    """One record of the kernel's own log.

    Attributes:
        seq: its sequence number; None where the source has none.
        at_us: when, microseconds since boot on the kernel's clock (close to
            CLOCK_MONOTONIC); None where the source does not tell.
        text: the message, unescaped, without any prefix; it may have several lines.
        goes_on: it is the rest of the record before it.
        stamp: the time of the wall as the source shows it, if it shows one.
        wall_us: that time where ``at_us`` is unknown, microseconds; only differences
            within one log count.
    """

    seq: int | None
    at_us: int | None
    text: str
    goes_on: bool = False
    stamp: str = ""
    wall_us: int | None = None


class KernelFault(NamedTuple):
    """What one fault's records say; None where they do not say it.

    Attributes:
        pid: as the kernel printed it: in the initial pid namespace, and for segfault,
            gpf and trap a thread id. Without one, an OOM kill is known to have begun,
            but not of whom.
        comm: name of that task, at most 15 characters.
        cgroup: where an OOM victim lived; where only the limit's cgroup is told, that:
            the victim lived there or below. For pids_limit, where a fork was refused.
        anon_rss_kb: its anonymous memory, KiB.
        lib: base name of the mapped file a crash happened in.
        text: the telling line, printable.
        limit_kb: memory limit that was reached, KiB.
        limit_cgroup: the cgroup that has this limit.
        address: the address a segfault tried to access.
        signum: the signal the fault raised, where that is printed or certain.
        severity: of mce, ecc_mem, aer and sxid, in the kernel's own word.
        device: what the record is about, as it names it: a block device, a port, an
            NVSwitch, a memory controller; empty where it names none.
        previous_xid: the Xid that a record says this one was caused by.
        stamp: as in ``Record``.
    """

    kind: Kind
    pid: int | None = None
    comm: str | None = None
    xid: int | None = None
    pci: str | None = None
    cgroup: str | None = None
    anon_rss_kb: int | None = None
    lib: str | None = None
    seq: int | None = None
    at_us: int | None = None
    text: str = ""
    limit_kb: int | None = None
    limit_cgroup: str | None = None
    address: int | None = None
    signum: int | None = None
    severity: Severity = ""
    device: str = ""
    previous_xid: int | None = None
    stamp: str = ""


class Candidate(NamedTuple):
    """A fault and where it was found.

    Attributes:
        place: index of its first record.
    """

    place: int
    fault: KernelFault


TEXT_MAX_CHARS: Final = 8192
"""What is looked at of a record; the kernel cuts its own at 1 to 8 KiB."""

FAULTS_MAX: Final = 100_000
"""So many are kept, the first ones; a log may have gigabytes."""

_PIDS: Final = "cgroup: fork rejected by pids controller in "
_GROUP_OF_VICTIM: Final = "Task in "
_GROUP_OF_LIMIT: Final = " killed as a result of limit of "


class Reading(Protocol):
    """What is known of one family of faults after the records so far."""

    def take(self, place: int, record: Record) -> None:
        """Take one record in."""

    def found(self) -> Iterable[Candidate]:
        """Return the faults; no more records follow."""


class Matching:
    """The faults of a log that is read record by record.

    Attributes:
        left_out: how many faults were found beyond those that are kept.
    """

    def __init__(self) -> None:
        # The agent imports the types above on its way to the first rank; `re` costs
        # time.
        from dsup.facts.kernel_readings import readings

        self.left_out = 0
        self._readings = (*readings(), _RefusedForks())
        self._pending: Record | None = None
        self._place = 0

    def take(self, record: Record) -> None:
        """Take one record in; one that goes on waits for its rest."""
        text = record.text[:TEXT_MAX_CHARS]
        last = self._pending
        if last is not None and (record.goes_on or _goes_on(last.text, text)):
            whole = (last.text + text)[:TEXT_MAX_CHARS]
            self._pending = last._replace(text=whole)
            return
        self._pass_on()
        self._pending = record._replace(text=text)

    def skip(self, count: int) -> None:
        """Take note of records that tell of nothing."""
        if count:
            self._pass_on()
            self._place += count

    def faults(self) -> list[KernelFault]:
        """Return the faults, in the order in which they begin."""
        self._pass_on()
        found = [one for reading in self._readings for one in reading.found()]
        found.sort(key=lambda candidate: candidate.place)
        self.left_out = max(0, len(found) - FAULTS_MAX)
        return [candidate.fault for candidate in found[:FAULTS_MAX]]

    def _pass_on(self) -> None:
        record, self._pending = self._pending, None
        if record is not None:
            for reading in self._readings:
                reading.take(self._place, record)
            self._place += 1


def match(records: Iterable[Record]) -> list[KernelFault]:
    """Return the faults that records tell of, in the order in which they begin.

    A fault is known by how its record begins, never by words inside: names of tasks,
    files and cgroups are their makers' choice. Its other records are joined to it by
    what they name (a pid, a device, a page), or where only one fault is open that they
    can belong to; else they are left out, since records of two CPUs come interleaved.

    Args:
        records: of the kernel's own, in the order of the log.
    """
    matching = Matching()
    for record in records:
        matching.take(record)
    return matching.faults()


def _goes_on(last: str, text: str) -> bool:
    """Return whether a record's text is the rest of the last one's.

    Kernels of 3.5 to 4.9 print a cgroup's path apart from the words around it, and
    other CPUs may get between: then each piece is a record of its own.
    """
    if last in (_PIDS, _GROUP_OF_VICTIM) or last.endswith(_GROUP_OF_LIMIT):
        return text.startswith("/")
    return text.startswith(_GROUP_OF_LIMIT) and last.startswith(_GROUP_OF_VICTIM)


class _RefusedForks:
    """Cgroups that may have no more tasks; the kernel tells of each once."""

    def __init__(self) -> None:
        self._told: dict[str, Candidate] = {}

    def take(self, place: int, record: Record) -> None:
        """Take one record in."""
        if not record.text.startswith(_PIDS) or len(self._told) > FAULTS_MAX:
            return
        path = record.text[len(_PIDS) :].rstrip()
        fault = told("pids_limit", record)._replace(cgroup=path or None)
        self._told.setdefault(path, Candidate(place, fault))

    def found(self) -> Iterable[Candidate]:
        """Return the faults."""
        return self._told.values()


def told(kind: Kind, record: Record) -> KernelFault:
    """Return a fault of which no more is known than the record that tells of it."""
    return KernelFault(
        kind,
        seq=record.seq,
        at_us=record.at_us,
        text=printable(record.text),
        stamp=record.stamp,
    )


def within(span_us: int, first: Record, then: Record) -> bool:
    """Return whether two records may belong together, as far as their times tell."""
    if first.at_us is not None and then.at_us is not None:
        return then.at_us - first.at_us <= span_us
    if first.wall_us is not None and then.wall_us is not None:
        return then.wall_us - first.wall_us <= span_us
    return True
