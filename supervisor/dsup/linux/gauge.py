"""How long tasks of a process's cgroup had to wait: pressure and quota, as counters.

The files are opened once and read again and again. Where a cgroup does not tell its
pressure, that of the node stands in; where the kernel tells none, there is none.

Source: https://docs.kernel.org/accounting/psi.html, and ``cpu.stat`` in
https://docs.kernel.org/admin-guide/cgroup-v2.html and scheduler/sched-bwc.html.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from dsup.linux import cgroup

_READ_BYTES: Final = 1024
_QUOTA_FILES: Final = ("cpu.max", "cpu.cfs_quota_us")
_NO_QUOTA: Final = (b"", b"max", b"-1")


class Gauge:
    """The counters of the cgroup that a process lives in.

    Args:
        pid: the process.
        root: stands for ``/`` wherever a path is read.
    """

    def __init__(self, pid: int, root: str = "") -> None:
        told, table = cgroup.membership(pid, root), cgroup.mounts(root)
        unified = cgroup.home("", told, table)
        chain = unified.chain if unified else ()
        self._cpu = _first(_pressure_files(chain, "cpu", root))
        self._memory = _first(_pressure_files(chain, "memory", root))
        bound = cgroup.home("cpu", told, table) or unified
        self._quotas = [
            fd
            for directory in (bound.chain if bound else ())
            if _has_quota(directory)
            and (fd := _first([f"{directory}/cpu.stat"])) is not None
        ]

    def read(self) -> tuple[int, int, int, int]:
        """Return microseconds waited for processors and memory, periods, throttled.

        The last two are of a quota of processor time, and 0 where there is none; of
        several the one that was used up more often.
        """
        quotas = [_quota(fd) for fd in self._quotas]
        periods, throttled = max(quotas, key=lambda quota: quota[1], default=(0, 0))
        return _waited(self._cpu), _waited(self._memory), periods, throttled

    def close(self) -> None:
        """Close the files."""
        for fd in (self._cpu, self._memory, *self._quotas):
            if fd is not None:
                os.close(fd)
        self._cpu = self._memory = None
        self._quotas = []


def _pressure_files(chain: tuple[str, ...], what: str, root: str) -> list[str]:
    own = [f"{directory}/{what}.pressure" for directory in chain[:1]]
    return [*own, f"{root}/proc/pressure/{what}"]


def _first(paths: list[str]) -> int | None:
    """Return a descriptor of the first file that can be read; None for none."""
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if _content(fd):
                return fd
            os.close(fd)
    return None


def _content(fd: int | None) -> bytes:
    """Return what a file says now; nothing if it cannot be read any more."""
    if fd is None:
        return b""
    try:
        return os.pread(fd, _READ_BYTES, 0)
    except OSError:
        return b""


def _has_quota(directory: str) -> bool:
    for name in _QUOTA_FILES:
        fd = _first([f"{directory}/{name}"])
        if fd is not None:
            word = _content(fd).split()[:1]
            os.close(fd)
            return b"".join(word) not in _NO_QUOTA
    return False


def _waited(fd: int | None) -> int:
    _, found, rest = _content(fd).partition(b"total=")
    number = rest.partition(b"\n")[0]
    return int(number) if found and number.isdigit() else 0


def _quota(fd: int) -> tuple[int, int]:
    """Return the periods of a quota and in how many it was used up."""
    words = _content(fd).split()
    told = dict(zip(words[::2], words[1::2], strict=False))
    periods, throttled = told.get(b"nr_periods", b"0"), told.get(b"nr_throttled", b"0")
    return int(periods), int(throttled)
