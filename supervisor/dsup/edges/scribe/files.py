"""The scribe's files: appended to while the disk takes it, kept in memory while not.

A full disk must not fail anybody's print(). A log that can not be written keeps its
last 64 KiB, and is tried again once a second. The journal has the first claim: a
reserve of 1 MiB is given back to the disk for it, and rank logs wait until there is
room to take the reserve again.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from dsup.edges.scribe.sink import DISK_FULL
from dsup_runtime.contract import ROTATED_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable

RESERVE_FILE = ".reserve"
RESERVE_BYTES = 1024 * 1024
KEPT_BYTES = 64 * 1024
LINE_SEARCH_BYTES = KEPT_BYTES // 4
"""How much more is given up so that what is kept begins with a line."""
RETRY_S = 1.0
LINE_WINDOW_BYTES = 256 * 1024


def open_append(path: str, mode: int, *, readable: bool = False) -> int:
    """Open a regular file for appending, made if it is not there.

    Raises:
        OSError: it can not be, or is a link, a FIFO or a device somebody put there.
    """
    access = os.O_RDWR if readable else os.O_WRONLY
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(path, access | os.O_APPEND | os.O_CREAT | safe, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileExistsError(17, "not a regular file", path)
    return fd


def cut_torn_line(fd: int) -> None:
    """Remove what follows the last newline: its writer was killed, and resends it."""
    start, tail = _window(fd)
    os.ftruncate(fd, start + tail.rfind(b"\n") + 1)


def last_line(path: str) -> bytes:
    """Return the last whole line of a file that is appended to; empty for none.

    Raises:
        OSError: it cannot be read, or is not regular.
    """
    fd = open_append(path, 0o600, readable=True)
    try:
        lines = _window(fd)[1].split(b"\n")
    finally:
        os.close(fd)
    return lines[-2] if len(lines) > 1 else b""


def _window(fd: int) -> tuple[int, bytes]:
    """Return where the window for the last line of a file begins, and what is in it."""
    start = max(0, os.fstat(fd).st_size - LINE_WINDOW_BYTES)
    return start, os.pread(fd, LINE_WINDOW_BYTES, start)


class Reserve:
    """Space on the run directory's disk that can be given back in need.

    Attributes:
        spent: whether it was given back and could not be taken again.
    """

    def __init__(self, run_dir: str) -> None:
        self.spent = False
        self._path = os.path.join(run_dir, RESERVE_FILE)
        self._held = self._take()

    def release(self) -> bool:
        """Give the space back; return whether there was any."""
        if not self._held:
            return False
        self.remove()
        self.spent = True
        return True

    def renew(self) -> None:
        """Take the space again if it was given back and the disk has it."""
        if self.spent and self._take():
            self.spent, self._held = False, True

    def remove(self) -> None:
        """Leave no file behind."""
        self._held = False
        try:
            os.unlink(self._path)
        except OSError:
            return

    def _take(self) -> bool:
        try:
            fd = open_append(self._path, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError:
            self.remove()
            return False
        finally:
            os.close(fd)
        return True


class LogFile:
    """One file that is only appended to, and never fails its caller.

    Attributes:
        error: why it can not be written now, None while it can.
        lost: bytes of the present trouble that memory did not hold.
        size: bytes in the file, as far as it was opened.
    """

    def __init__(self, path: str, mode: int, *, whole_lines: bool = False) -> None:
        self.error: OSError | None = None
        self.lost = 0
        self.size = 0
        self._path = path
        self._mode = mode
        self._whole_lines = whole_lines
        self._kept = bytearray()
        self._fd = -1
        self._write(b"")

    def append(self, data: bytes) -> None:
        """Write the data, or keep its end in memory."""
        if not self.error:
            data = data[self._write(data) :]
        if self.error:
            self._keep(data)

    def hold(self, error: OSError) -> None:
        """Keep what comes in memory, though the disk may still have a little room."""
        self.error = self.error or error

    def retry(self) -> None:
        """Write what was kept; ``error`` tells whether that went well."""
        self.error = None
        del self._kept[: self._write(bytes(self._kept))]

    def rotate(self) -> bool:
        """Give the file another name, in place of an older one; return whether it has.

        What is appended next begins a new file.
        """
        try:
            os.rename(self._path, self._path + ROTATED_SUFFIX)
        except OSError:
            return False
        self.close()
        self.size = 0
        return True

    def close(self) -> None:
        """Close the descriptor; what is kept stays."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _write(self, data: bytes) -> int:
        done = 0
        try:
            if self._fd < 0:
                self._open()
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
            self.size += done
        except OSError as error:
            self.error = error
            self.close()  # a stale or truncated handle must not outlive the trouble
            return 0 if self._whole_lines else done
        return done

    def _open(self) -> None:
        self._fd = open_append(self._path, self._mode, readable=self._whole_lines)
        if self._whole_lines:
            cut_torn_line(self._fd)
        self.size = os.fstat(self._fd).st_size

    def _keep(self, data: bytes) -> None:
        self._kept += data
        excess = len(self._kept) - KEPT_BYTES
        if excess > 0:
            line = self._kept.find(b"\n", excess - 1, excess + LINE_SEARCH_BYTES) + 1
            self.lost += line or excess
            del self._kept[: line or excess]


class Disk:
    """All logs of the run directory, and what is said when they can not be written."""

    def __init__(
        self, run_dir: str, say: Callable[[str], None], now: Callable[[], float]
    ) -> None:
        self._run_dir = run_dir
        self._say = say
        self._now = now
        self._reserve = Reserve(run_dir)
        self._troubled: dict[LogFile, bool] = {}  # insertion order, as in a set
        self._lost = 0
        self._retry_at = 0.0

    @property
    def troubled(self) -> bool:
        """Return whether something waits to be written."""
        return bool(self._troubled)

    def append(self, log: LogFile, name: str, data: bytes) -> None:
        """Append to a rank's log; say so once if the disk does not take it."""
        if self._reserve.spent:
            log.hold(OSError(DISK_FULL[0], os.strerror(DISK_FULL[0])))
        log.append(data)
        if log.error and log not in self._troubled:
            self._trouble(log, name, log.error)

    def append_line(self, log: LogFile, name: str, line: bytes) -> None:
        """Append to the journal, which may use the reserve."""
        log.append(line + b"\n")
        if log.error and log.error.errno in DISK_FULL and self._reserve.release():
            log.retry()
        if log.error and log not in self._troubled:
            self._trouble(log, name, log.error)

    def try_with_reserve(self, action: Callable[[], None]) -> str | None:
        """Do something that needs space; return why it could not be done, or None."""
        try:
            try:
                action()
            except OSError as error:
                if error.errno not in DISK_FULL or not self._reserve.release():
                    raise
                action()
        except OSError as error:
            return reason(error)
        return None

    def tick(self) -> None:
        """Try again what could not be written, at most once a second."""
        if self._troubled and self._now() >= self._retry_at:
            self.retry()

    def retry(self) -> None:
        """Try again now; say so when all is well."""
        self._retry_at = self._now() + RETRY_S
        self._reserve.renew()
        for log in [] if self._reserve.spent else list(self._troubled):
            log.retry()
            if not log.error:
                del self._troubled[log]
                self._lost += log.lost
                log.lost = 0
        if not self._troubled:
            lost, self._lost = self._lost, 0
            self._say(f"dsup: logs are written again: {lost:,} bytes were lost")

    def close(self) -> None:
        """Write what still can be, and give the reserve back for it."""
        self._reserve.remove()
        self._reserve.spent = False
        if self._troubled:
            self.retry()
        for log in self._troubled:
            why = reason(log.error) if log.error else "the disk is full"
            self._say(f"dsup: cannot write the last lines of a log, because {why}")

    def _trouble(self, log: LogFile, name: str, error: OSError) -> None:
        if not self._troubled:
            self._retry_at = self._now() + RETRY_S
            self._say(
                f"dsup: cannot write {name}, because {reason(error)}: "
                "keeping the last 64 KiB of each stream in memory"
            )
        self._troubled[log] = True


def reason(error: OSError) -> str:
    """Return the system's words for an error, as they stand inside a sentence."""
    return (error.strerror or str(error)).lower()
