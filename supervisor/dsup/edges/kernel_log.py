"""The kernel log as raw bytes: what came since an attempt began, newest kept.

Nothing is parsed here but sequence numbers. A record that may tell of a fault is kept
longer than others: a driver's dump, or another tenant's noise, must not push it out.

Source: https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from dsup.core.printable import printable
from dsup.facts.kernel import Record
from dsup.facts.kernel_words import telling
from dsup.linux import libc

PATH: Final = "/dev/kmsg"
KEPT_MAX_BYTES: Final = 262_144

_RECORD_MAX_BYTES: Final = 8192
"""A read with less room than the record needs loses it."""

_READS_MAX: Final = 32_768
"""At most so many records a drain: some 50 ms."""

_REPLAYED_MAX: Final = 4_194_304
"""The largest log has fewer records; one that grows faster than it is read never ends.
"""

_DEVICE: Final = os.makedev(1, 11)
_JOURNAL: Final = ("-o", "json", "--no-pager", "--all", "--lines=4000")
_OF_KERNEL: Final = ("-k",)
_OF_AUDIT: Final = ("-b", "_TRANSPORT=audit", "_AUDIT_TYPE=1701")
_JOURNAL_MAX_BYTES: Final = 4_194_304
_PART_BYTES: Final = 65_536
_COMPLAINT_MAX_BYTES: Final = 300
_PR_SET_PDEATHSIG: Final = 1


class _Kept:
    """Records with the order of their arrival, and their size in bytes."""

    def __init__(self) -> None:
        self.rows: deque[tuple[int, bytes]] = deque()
        self.size = 0

    def add(self, number: int, raw: bytes) -> None:
        """Take one in."""
        self.rows.append((number, raw))
        self.size += len(raw)

    def drop(self) -> None:
        """Forget the oldest."""
        self.size -= len(self.rows.popleft()[1])


class KernelLog:
    """Records of the kernel log from now on.

    Args:
        path: where it is.
        read: reads one record from a descriptor, as ``os.read`` does.

    Attributes:
        fd: readable when there is a record; -1 where the log cannot be read.
        error: why it cannot be read; empty if it can.
        lost: how many records were overwritten before they were read, or were telling
            and had to give way to newer ones.
    """

    def __init__(
        self, path: str = PATH, read: Callable[[int, int], bytes] = os.read
    ) -> None:
        self.fd = -1
        self.error = ""
        self.lost = 0
        self._path = path
        self._read = read
        self._next: int | None = None
        self._telling = _Kept()
        self._other = _Kept()
        self._tells: Callable[[bytes], object] | None = None
        self._count = 0
        try:
            self.fd = _open(path)
        except OSError as error:
            self._give_up(error)

    @property
    def records(self) -> tuple[bytes, ...]:
        """Return the records that are kept, oldest first."""
        rows = sorted((*self._telling.rows, *self._other.rows))
        return tuple(raw for _, raw in rows)

    def drain(self) -> None:
        """Take in the records that are waiting; never block."""
        for _ in range(_READS_MAX if self.fd >= 0 else 0):
            try:
                raw = self._read(self.fd, _RECORD_MAX_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # The next number shows how many are missing, if there was one before.
                self.lost += self._next is None
            except OSError as error:
                if error.errno != errno.EINVAL:  # that one has no room, and is gone
                    self._give_up(error)
                    return
            else:
                if not raw:
                    return
                self._keep(raw)

    def close(self) -> None:
        """Stop reading; what was read stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _give_up(self, error: OSError) -> None:
        self.error = f"cannot read the kernel log, because {_reason(error, self._path)}"
        self.close()

    def _keep(self, raw: bytes) -> None:
        number = raw.split(b",", 2)[1:2]
        if number and number[0].isdigit():
            seq = int(number[0][:20])
            self.lost += max(0, seq - self._next) if self._next is not None else 0
            self._next = max(seq + 1, self._next or 0)
        # Facility 0, the kernel's own, has one digit before the comma.
        self._tells = self._tells or telling()
        tells = raw[1:2] == b"," and self._tells(raw)
        self._count += 1
        (self._telling if tells else self._other).add(self._count, raw)
        while self._telling.size + self._other.size > KEPT_MAX_BYTES:
            if self._other.rows:
                self._other.drop()
            else:
                self._telling.drop()
                self.lost += 1


def replay(
    take: Callable[[bytes], None],
    path: str = PATH,
    read: Callable[[int, int], bytes] = os.read,
) -> str:
    """Give every record that the kernel log still has to a function, oldest first.

    Returns:
        Why it cannot be read; empty if it was.
    """
    fd = -1
    try:
        fd = _open(path, end=False)
        for _ in range(_REPLAYED_MAX):
            try:
                raw = read(fd, _RECORD_MAX_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # overwritten just now: the numbers show how many
            if not raw:
                break
            take(raw)
    except OSError as error:
        return f"cannot read the kernel log, because {_reason(error, path)}"
    finally:
        if fd >= 0:
            os.close(fd)
    return ""


def from_journal(
    since_us: int, limit_s: float, program: str = "journalctl"
) -> tuple[list[str], str]:
    """Return what journald knows of the kernel log; only an aide may wait for that.

    Args:
        since_us: earlier records are left out; clock of the kernel log, microseconds.
        limit_s: how long journald may take; what came until then is used.
        program: what prints it, one JSON object a line.

    Returns:
        Lines for ``kmsg.parse_journal``, oldest first, and why there is nothing to
        read; that is empty where kernel records were found, be they all too old.
    """
    from dsup.facts.kmsg import parse_journal

    command = [program, *_OF_KERNEL, *_JOURNAL]
    found, complaint = _entries(command, limit_s, parse_journal)
    if not found:
        why = complaint or "it has none (join the group systemd-journal)"
        return [], f"cannot read kernel records from the journal, because {why}"
    return [line for line, at_us in found if at_us is None or at_us >= since_us], ""


def abends_from_journal(
    since_us: int, limit_s: float, program: str = "journalctl"
) -> list[str]:
    """Return what journald knows from audit of deaths by signals.

    Args:
        since_us: earlier records are left out; clock of the kernel log, microseconds.
        limit_s: how long journald may take; what came until then is used.
        program: what prints it, one JSON object a line.

    Returns:
        Lines for ``kmsg.parse_audit``, oldest first; none where journald does not
        listen to audit, or may not be asked.
    """
    from dsup.facts.kmsg import parse_audit

    found, _ = _entries([program, *_JOURNAL, *_OF_AUDIT], limit_s, parse_audit)
    return [line for line, at_us in found if at_us is None or at_us >= since_us]


def _entries(
    command: list[str], limit_s: float, parse: Callable[[str], Record | None]
) -> tuple[list[tuple[str, int | None]], str]:
    """Return the lines that are records, with their times, and a complaint."""
    told, complaint = _printed(command, time.monotonic() + limit_s)
    found = []
    for line in told.decode(errors="replace").splitlines():
        record = parse(line)
        if record:
            found.append((line, record.at_us))
    return found, complaint


def _open(path: str, *, end: bool = True) -> int:
    """Open the log, at its end or at its oldest record."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    fd = os.open(path, flags)
    info = os.fstat(fd)
    # Containers put /dev/null or /dev/console in its place: those say nothing.
    if stat.S_ISCHR(info.st_mode) and info.st_rdev != _DEVICE:
        os.close(fd)
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    if end and (stat.S_ISCHR(info.st_mode) or stat.S_ISREG(info.st_mode)):
        os.lseek(fd, 0, os.SEEK_END)
    return fd


def _reason(error: OSError, path: str) -> str:
    match error.errno:
        case errno.EACCES | errno.EPERM:
            wanted = "grant CAP_SYSLOG or set kernel.dmesg_restrict=0"
            return f"permission was denied ({wanted})"
        case errno.ENOENT:
            return f"there is no {path} (give the host's to this container)"
        case errno.ENODEV:
            return f"{path} is another device (give the host's to this container)"
        case _:
            return f"{path} fails: {error.strerror} (see dmesg)"


def _printed(command: list[str], deadline_s: float) -> tuple[bytes, str]:
    """Return the end of what a program prints, and its complaint or one about it."""
    import subprocess

    told, to_told = os.pipe2(os.O_CLOEXEC)
    complaint = os.memfd_create("dsup-journal", os.MFD_CLOEXEC)
    try:
        process = subprocess.Popen(  # noqa: S603 (a constant; PATH says where it is)
            command,
            stdin=subprocess.DEVNULL,
            stdout=to_told,
            stderr=complaint,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 (an aide has no threads)
        )
    except OSError as error:
        os.close(to_told)
        return b"", f"{command[0]} does not start: {error.strerror}"
    else:
        os.close(to_told)
        end, whole = _end_of(told, deadline_s)
        process.kill()
        process.wait()
        said = os.pread(complaint, _COMPLAINT_MAX_BYTES, 0).decode(errors="replace")
        first = printable(said.partition("\n")[0])
        return end, first if whole else f"{command[0]} took too long"
    finally:
        os.close(told)
        os.close(complaint)


def _end_of(fd: int, deadline_s: float) -> tuple[bytes, bool]:
    """Return the last bytes before a deadline, and whether it was the end of all."""
    told = bytearray()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(max(0, deadline_s - time.monotonic()) * 1000):
        part = os.read(fd, _PART_BYTES)
        if not part:
            return bytes(told), True
        told += part
        del told[:-_JOURNAL_MAX_BYTES]
    return bytes(told), False


def _die_with_parent() -> None:
    """An aide that is given up is killed; nothing that it started may stay."""
    libc.call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
