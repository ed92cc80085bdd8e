"""The run directory as the scribe writes it: names, directories, journal, copies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsup.edges.scribe.files import LogFile
from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.edges.scribe.files import Disk
    from dsup.edges.scribe.protocol import Settings
    from dsup.edges.scribe.stream import Stream

STREAM_FILES = (contract.STDOUT_FILE, contract.STDERR_FILE)
COPY_BYTES = 256 * 1024
SAVED_MAX_BYTES = 64 * 1024 * 1024


class Desk:
    """Carries out what the agent wants in the run directory."""

    def __init__(self, settings: Settings, disk: Disk) -> None:
        self._settings = settings
        self._disk = disk
        path = os.path.join(settings.run_dir, contract.JOURNAL_FILE)
        self._journal = LogFile(path, settings.file_mode, whole_lines=True)

    def open_log(self, stream: Stream, local_rank: int, which: int) -> None:
        """Give a stream its log file, unless there are to be none."""
        if not self._settings.rank_logs:
            return
        run_dir = self._settings.run_dir
        directory = contract.rank_dir(run_dir, stream.attempt, local_rank)
        path = os.path.join(directory, STREAM_FILES[which])
        log = LogFile(path, self._settings.file_mode)
        stream.log_to(self._disk, log, os.path.relpath(path, run_dir))

    def journal(self, line: bytes) -> None:
        """Append a line to the journal."""
        self._disk.append_line(self._journal, contract.JOURNAL_FILE, line)

    def prepare(self, attempt: int) -> str | None:
        """Make the directories of an attempt; return why that failed, or None."""
        run_dir, ranks = self._settings.run_dir, self._settings.local_world_size
        paths = [contract.attempt_dir(run_dir, attempt)]
        if self._settings.rank_logs:
            paths += [
                contract.rank_dir(run_dir, attempt, rank) for rank in range(ranks)
            ]
        return self._disk.try_with_reserve(lambda: self._make(paths))

    def save(self, name: str, fd: int) -> str | None:
        """Copy what a descriptor holds to a file; return why that failed, or None.

        Args:
            name: where to, relative to the run directory.
            fd: a regular file or memfd, read from its beginning; its offset stays.
        """
        path = os.path.join(self._settings.run_dir, name)
        return self._disk.try_with_reserve(lambda: self._copy(path, fd))

    def _make(self, paths: list[str]) -> None:
        for path in paths:
            try:
                os.mkdir(path, self._settings.dir_mode)
            except FileExistsError:
                continue

    def _copy(self, path: str, fd: int) -> None:
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
        os.rename(part, path)
