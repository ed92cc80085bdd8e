"""The run directory as the scribe writes it: names, directories, journal, copies."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from dsup.core import events as ev
from dsup.core import journal
from dsup.core.errors import JournalError
from dsup.edges.scribe import text
from dsup.edges.scribe.files import LogFile, last_line, open_append
from dsup.edges.scribe.rank_log import Filter, Index, RankLog
from dsup.edges.scribe.retention import Claim
from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.core.output import Route
    from dsup.edges.scribe.files import Disk
    from dsup.edges.scribe.protocol import Settings

STREAM_FILES = (contract.STDOUT_FILE, contract.STDERR_FILE)
COPY_BYTES = 256 * 1024
SAVED_MAX_BYTES = 64 * 1024 * 1024


def stamp_now() -> bytes:
    """Return the present as it stands before a line."""
    return text.stamp(time.time_ns())


class Desk:
    """Carries out what the agent wants in the run directory.

    Attributes:
        claim: shows others that this scribe lives.
    """

    def __init__(self, settings: Settings, disk: Disk) -> None:
        self._settings = settings
        self._disk = disk
        self._path = path = os.path.join(settings.run_dir, contract.JOURNAL_FILE)
        self._journal = LogFile(path, settings.file_mode, whole_lines=True)
        self.claim = Claim(path, settings.file_mode)
        self._filters: dict[int, Filter] = {}
        self._filters_of = -1

    def open_log(self, attempt: int, local_rank: int, which: int) -> RankLog | None:
        """Return the log of a stream, None where none is kept."""
        if not self._settings.route(local_rank, which).file:
            return None
        run_dir, mode = self._settings.run_dir, self._settings.file_mode
        directory = contract.rank_dir(run_dir, attempt, local_rank)
        path = os.path.join(directory, STREAM_FILES[which])
        index = Index(path, mode, time.time_ns)
        name = os.path.relpath(path, run_dir)
        log = RankLog(self._disk, LogFile(path, mode), name, index)
        if self._settings.output.timestamps:
            log.stamped(stamp_now)
        if self._settings.output.max_bytes:
            log.limited(self._settings.output.max_bytes)
        return log

    def open_filter(self, attempt: int, which: int, route: Route) -> Filter | None:
        """Return what copies a stream's matching lines; None if nothing can match."""
        if not route.filters:
            return None
        if attempt != self._filters_of:
            for old in self._filters.values():
                old.close()
            self._filters, self._filters_of = {}, attempt
        if which not in self._filters:
            name = contract.FILTERED_PREFIX + STREAM_FILES[which]
            name = os.path.join(contract.attempt_dir("", attempt), name)
            path = os.path.join(self._settings.run_dir, name)
            log = LogFile(path, self._settings.file_mode)
            self._filters[which] = Filter(self._disk, log, name)
        return self._filters[which].of(route.filters, route.prefix)

    def journal(self, line: bytes) -> None:
        """Append a line to the journal."""
        self._disk.append_line(self._journal, contract.JOURNAL_FILE, line)

    def orphaned(self, at_s: float) -> None:
        """End the journal of an agent that has gone with a line that tells when.

        Args:
            at_s: when it was seen to go, agent clock, seconds.
        """
        with suppress(OSError, JournalError):
            n = journal.decode(last_line(self._path).decode(errors="replace")).n
            self.journal(journal.encode(n + 1, ev.Tick("tick", at_s)).encode())

    def append(self, name: str, lines: bytes) -> None:
        """Append lines to a file; none of them is missed if that cannot be."""
        path = os.path.join(self._settings.run_dir, name)
        with suppress(OSError):
            fd = open_append(path, self._settings.file_mode)
            try:
                os.write(fd, lines)
            finally:
                os.close(fd)

    def prepare(self, attempt: int) -> str | None:
        """Make the directories of an attempt; return why that failed, or None."""
        run_dir, ranks = self._settings.run_dir, self._settings.local_world_size
        paths = [contract.attempt_dir(run_dir, attempt)]
        if self._settings.rank_logs:
            paths += [
                contract.rank_dir(run_dir, attempt, rank) for rank in range(ranks)
            ]
        return self._disk.try_with_reserve(lambda: self._make(paths))

    def save(self, name: str, fd: int, *, keep: bool = False) -> str | None:
        """Copy what a descriptor holds to a file; return why that failed, or None.

        Args:
            name: where to, relative to the run directory.
            fd: a regular file or memfd, read from its beginning; its offset stays.
            keep: a file that is there stays, whoever made it.
        """
        path = os.path.join(self._settings.run_dir, name)
        return self._disk.try_with_reserve(lambda: self._copy(path, fd, keep=keep))

    def _make(self, paths: list[str]) -> None:
        for path in paths:
            try:
                os.mkdir(path, self._settings.dir_mode)
            except FileExistsError:
                continue

    def _copy(self, path: str, fd: int, *, keep: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        part = path + ".part"
        copy = os.open(part, flags | os.O_CLOEXEC, self._settings.file_mode)
        try:
            for offset in range(0, SAVED_MAX_BYTES, COPY_BYTES):
                chunk = os.pread(fd, COPY_BYTES, offset)
                while chunk:
                    chunk = chunk[os.write(copy, chunk) :]
                if os.fstat(fd).st_size <= offset + COPY_BYTES:
                    break
        finally:
            os.close(copy)
        if not keep or not _added(part, path):
            os.rename(part, path)


def _added(part: str, path: str) -> bool:
    """Give a file its name, unless that is taken; its old name goes.

    Returns:
        False if it still has its old name: the file system knows no second one.
    """
    try:
        os.link(part, path)
    except OSError:
        if not os.path.lexists(path):
            return False
    os.unlink(part)
    return True
