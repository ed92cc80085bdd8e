"""The kernel log as raw records: read without blocking, kept in bounded memory.

What they mean is the judge's business; the agent never parses them.

Source: https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
"""

from __future__ import annotations

import os
from typing import Final

PATH: Final = "/dev/kmsg"
RECORD_MAX_BYTES: Final = 16_384
"""A buffer that is too small loses the record; the kernel cuts at half of this."""

KEPT_MAX_BYTES: Final = 262_144
_READS_MAX: Final = 20_000
_JOURNAL_MAX_BYTES: Final = 1 << 20
_TELLING: Final = (b"oom", b"Killed process", b"segfault", b"trap", b"fault", b"pids")


class KernelLog:
    """What the kernel has written since this object was made.

    Args:
        path: where its records are read.

    Attributes:
        error: why it cannot be read; empty if it can.
        lost: how many records were overwritten before they were read.
    """

    def __init__(self, path: str = PATH) -> None:
        self.error = ""
        self.lost = 0
        self._last_seq: int | None = None
        self._kept: list[bytes] = []
        self._fd = self._open(path)

    @property
    def records(self) -> tuple[bytes, ...]:
        """Return the records that are kept, oldest first."""
        return tuple(self._kept)

    def drain(self) -> None:
        """Read what has come; never block."""
        for _ in range(_READS_MAX if self._fd >= 0 else 0):
            try:
                record = os.read(self._fd, RECORD_MAX_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # overwritten: the sequence numbers tell how many
            except OSError:
                continue  # one record that is longer than any should be
            self._count(record)
            self._kept.append(record)
        self._trim()

    def close(self) -> None:
        """Read no more; what was read stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, path: str) -> int:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(path, flags)
            os.lseek(fd, 0, os.SEEK_END)
        except OSError as error:
            reason = (error.strerror or "").lower()
            self.error = (
                f"cannot read the kernel log, because {reason} (grant CAP_SYSLOG, or "
                "set kernel.dmesg_restrict=0)"
            )
            return -1
        return fd

    def _count(self, record: bytes) -> None:
        word = record.split(b",", 2)[1:2]
        if not word or not word[0].isdigit():
            return
        seq = int(word[0])
        if self._last_seq is not None and seq > self._last_seq + 1:
            self.lost += seq - self._last_seq - 1
        self._last_seq = seq

    def _trim(self) -> None:
        """Forget the oldest records that tell nothing, then the oldest of all."""
        size = sum(map(len, self._kept))
        for keep_telling in (True, False):
            if size <= KEPT_MAX_BYTES:
                return
            kept = []
            for record in self._kept:
                telling = keep_telling and any(word in record for word in _TELLING)
                if size > KEPT_MAX_BYTES and not telling:
                    size -= len(record)
                else:
                    kept.append(record)
            self._kept = kept


def from_journal(since_us: int, limit_s: float) -> tuple[list[str], str]:
    """Return what journald has of the kernel's log; this may block until the limit.

    Args:
        since_us: nothing that is older, microseconds since boot.
        limit_s: give up after so long, seconds.

    Returns:
        Lines for ``kmsg.parse_journal``, and why there are none; empty if it was read.
    """
    import subprocess
    import time

    since_s = time.time_ns() / 1e9 - (time.monotonic() - since_us / 1e6)
    command = ["journalctl", "-k", "-q", "-o", "json", "--no-pager"]
    try:
        done = subprocess.run(  # noqa: S603 (its words are ours)
            [*command, "-n", "4000", f"--since=@{since_s:.6f}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"cannot read the journal, because {error}"
    lines = done.stdout[-_JOURNAL_MAX_BYTES:].decode(errors="replace").splitlines()
    if done.returncode != 0 or not lines:
        return [], "the journal has no kernel log that may be read"
    return lines, ""
