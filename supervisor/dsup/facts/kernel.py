"""Kernel-log records as typed facts: who was killed for memory, who crashed where."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal[
    "oom_global", "oom_memcg", "segfault", "gpf", "trap", "pids_limit"
]


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
            gpf and trap a thread id.
        comm: name of that task, at most 15 characters.
        cgroup: where an OOM victim lived.
        anon_rss_kb: its anonymous memory, KiB.
        lib: base name of the mapped file a crash happened in.
        text: the telling line.
        limit_kb: memory limit that was reached, KiB.
        limit_cgroup: the cgroup that has this limit.
        address: the address a segfault tried to access.
        signum: the signal the fault raised, where that is printed or certain.
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
