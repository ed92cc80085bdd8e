"""Kernel-log records as typed facts: who was killed for memory, who crashed where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

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
    """

    seq: int | None
    at_us: int | None
    text: str


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


class Candidate(NamedTuple):
    """A fault and where it was found.

    Attributes:
        place: index of its first record.
    """

    place: int
    fault: KernelFault


TEXT_MAX_CHARS: Final = 8192
"""What is looked at of a record; the kernel cuts its own at 1 to 8 KiB."""

_PIDS: Final = "cgroup: fork rejected by pids controller in "
_GROUP_OF_VICTIM: Final = "Task in "
_GROUP_OF_LIMIT: Final = " killed as a result of limit of "


def match(records: Iterable[Record]) -> list[KernelFault]:
    """Return the faults that records tell of, in the order in which they begin.

    A fault is known by how its record begins, never by words inside: names of tasks,
    files and cgroups are their makers' choice. Its other records are joined to it by
    pid, or where only one fault is open that they can belong to; else they are left
    out, since records of two CPUs come interleaved.

    Args:
        records: of the kernel's own, in the order of the log.
    """
    # The agent imports the types above on its way to the first rank; `re` costs time.
    from dsup.facts import kernel_crash, kernel_oom

    whole = _joined(records)
    found = [
        *kernel_oom.find(whole),
        *kernel_crash.find(whole),
        *_refused_forks(whole),
    ]
    found.sort(key=lambda candidate: candidate.place)
    return [candidate.fault for candidate in found]


def _joined(records: Iterable[Record]) -> list[Record]:
    """Return the records, those capped that are too long, and some put together.

    Kernels of 3.5 to 4.9 print a cgroup's path apart from the words around it, and
    other CPUs may get between: then each piece is a record of its own.
    """
    whole: list[Record] = []
    for record in records:
        text = record.text[:TEXT_MAX_CHARS]
        last = whole[-1].text if whole else ""
        if _goes_on(last, text):
            whole[-1] = whole[-1]._replace(text=(last + text)[:TEXT_MAX_CHARS])
        else:
            whole.append(record._replace(text=text))
    return whole


def _goes_on(last: str, text: str) -> bool:
    """Return whether a record's text is the rest of the last one's."""
    if last in (_PIDS, _GROUP_OF_VICTIM) or last.endswith(_GROUP_OF_LIMIT):
        return text.startswith("/")
    return text.startswith(_GROUP_OF_LIMIT) and last.startswith(_GROUP_OF_VICTIM)


def _refused_forks(records: Sequence[Record]) -> Iterator[Candidate]:
    """Find cgroups that may have no more tasks; the kernel tells of each once."""
    told: set[str] = set()
    for place, record in enumerate(records):
        head, _, path = record.text.partition(_PIDS)
        if head or not record.text.startswith(_PIDS) or path in told:
            continue
        told.add(path)
        yield Candidate(
            place,
            KernelFault(
                "pids_limit",
                cgroup=path.rstrip() or None,
                seq=record.seq,
                at_us=record.at_us,
                text=printable(record.text),
            ),
        )


def within(span_us: int, first_us: int | None, then_us: int | None) -> bool:
    """Return whether two records may belong together, as far as their times tell."""
    return first_us is None or then_us is None or then_us - first_us <= span_us
