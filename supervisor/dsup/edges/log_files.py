"""Log files of somebody else's job: found, opened, and read in bounded memory.

The path that a user gives is followed wherever it points; a link inside a directory is
not, as it may lead out of the job's logs, or in a circle. Nothing but regular files is
opened inside a directory: a FIFO there would wait for its writer for ever. A file that
grows is read up to the size that it had when it was opened.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from dsup.core.printable import printable
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.scan import BLOCK_BYTES, limits_for, scan

DEPTH_MAX: Final = 8
ENTRIES_MAX: Final = 200_000
"""So many names of directories are looked at: a data set may lie beside the logs."""

_NO_LOG: Final = "no file in it is named like a log (name the files themselves)"
_ONLY_LINKS: Final = (
    "its logs are symbolic links, which are followed only where they are named "
    "(name the files themselves)"
)
_EMPTY_SHOWN: Final = 4
_SAMPLE_BYTES: Final = 65_536
_CONTROLS_RATIO: Final = 20
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b\x08\x07"))
_SUFFIXES: Final = (".log", ".out", ".err", ".txt", ".stdout", ".stderr", ".logs")
_NAMES: Final = frozenset(("stdout", "stderr", "log", "output", "nohup.out"))
_GZIP: Final = b"\x1f\x8b"
_GZIP_WBITS: Final = 31
_PACKED: Final = {
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")


class Caps(NamedTuple):
    """How much is read.

    Attributes:
        files: so many logs of all directories.
        unpacked: so many bytes of a compressed log: a few kilobytes can hold terabytes
            of zeros.
    """

    files: int = 4096
    unpacked: int = 8 * 1024**3


class _Found(NamedTuple):
    """A file to read.

    Attributes:
        path: to open; ``-`` for standard input.
        follow: a link may be followed: the user named it.
    """

    path: str
    follow: bool


class LogFiles:
    """The logs below some paths.

    Args:
        paths: files, directories, FIFOs, or ``-`` for standard input.
        caps: how much is read of them.

    Attributes:
        remarks: what could not be read and why, a sentence each; complete once
            ``lines`` is exhausted.
        bytes_read: how much of the files was looked at, unpacked.
    """

    def __init__(self, paths: Sequence[str], caps: Caps | None = None) -> None:
        self._caps = caps or Caps()
        self.remarks: list[str] = []
        self.bytes_read = 0
        self._empty: list[str] = []
        self._entries = self._links = 0
        self._files: dict[str, _Found] = {}
        for path in paths:
            self._find(path)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the files that will be read, printable."""
        return tuple(map(printable, self._files))

    def lines(self) -> Iterator[RawLine]:
        """Yield what is worth reading of all files, one after the other."""
        limits = limits_for(len(self._files))
        for found in self._files.values():
            yield from scan(printable(found.path), self._blocks(found), limits)
        self._tell_of_empty()

    def _tell_of_empty(self) -> None:
        """Say which logs of directories are empty: a rank that wrote nothing is news.

        Where all are, there is no log.
        """
        if self._empty and self.bytes_read:
            self.remarks.append(f"nothing was written to {_named(self._empty)}")
            return
        for path in self._empty:
            self._remark(path, "it is empty")

    def _find(self, path: str) -> None:
        if path != "-" and os.path.isdir(path):
            before = len(self._files)
            self._search(path, 0)
            if len(self._files) == before:
                self._remark(path, _NO_LOG if not self._links else _ONLY_LINKS)
            return
        self._add(_Found(path, follow=True))

    def _add(self, found: _Found) -> None:
        if found.path in self._files:
            return
        most = self._caps.files
        if len(self._files) < most:
            self._files[found.path] = found
            return
        remark = f"only the first {most} logs are read (name those that matter)"
        if remark not in self.remarks:
            self.remarks.append(remark)

    def _search(self, directory: str, depth: int) -> None:
        try:
            entries = sorted(os.scandir(directory), key=_natural)
        except OSError as error:
            self._remark(directory, _why(error))
            return
        self._entries += len(entries)
        if self._entries > ENTRIES_MAX:
            self._remark(directory, f"more than {ENTRIES_MAX} files lie there")
            return
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and _is_log(entry.name):
                self._add(_Found(entry.path, follow=False))
            elif entry.is_symlink() and _is_log(entry.name):
                self._links += 1
            elif entry.is_dir(follow_symlinks=False) and depth < DEPTH_MAX:
                self._search(entry.path, depth + 1)

    def _blocks(self, found: _Found) -> Iterator[bytes]:
        """Yield a file's bytes; nothing where it is no log."""
        try:
            fd = _open(found)
        except OSError as error:
            self._remark(found.path, _why(error))
            return
        if not found.follow and not os.fstat(fd).st_size:
            self._empty.append(found.path)
            os.close(fd)
            return
        try:
            yield from self._unpacked(found.path, present(fd))
        except OSError as error:
            self._remark(found.path, _why(error))
        finally:
            if found.path != "-":
                os.close(fd)

    def _unpacked(self, path: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(blocks, b"")
        try:
            if first.startswith(_GZIP):
                blocks = _gunzip(first, blocks, self._caps.unpacked)
                first = next(blocks, b"")
            yield from self._text(path, first, blocks)
        except zlib.error:
            self._remark(path, "its compressed data are broken (read up to there)")
        except _TooMuchError:
            size = self._caps.unpacked // 1024**2
            self._remark(path, f"unpacked it is larger than {size} MiB (read so far)")

    def _text(
        self, path: str, first: bytes, blocks: Iterator[bytes]
    ) -> Iterator[bytes]:
        refusal = _refusal(first)
        if refusal:
            self._remark(path, refusal)
            return
        for block in chain((first,), blocks):
            self.bytes_read += len(block)
            yield block

    def _remark(self, path: str, why: str) -> None:
        name = "standard input" if path == "-" else printable(path)
        self.remarks.append(f"cannot read {name} as a log, because {why}")


def _named(paths: Sequence[str]) -> str:
    """Return the first of some files, and how many more there are."""
    shown = ", ".join(printable(path) for path in paths[:_EMPTY_SHOWN])
    more = len(paths) - _EMPTY_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


class _TooMuchError(Exception):
    """More comes out of a compressed file than is read of any."""


def _open(found: _Found) -> int:
    """Return a descriptor of a file that can be read to an end.

    Raises:
        OSError: it cannot be opened, or is neither a file nor a pipe.
    """
    if found.path == "-":
        return 0
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
    if not found.follow:
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(found.path, flags)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind) or (found.follow and stat.S_ISFIFO(kind)):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is neither a file nor a pipe")


def present(fd: int) -> Iterator[bytes]:
    """Yield what a file holds now, or what comes out of a pipe until its end."""
    told = os.fstat(fd)
    left = told.st_size if stat.S_ISREG(told.st_mode) else None
    while left is None or left > 0:
        block = os.read(fd, min(BLOCK_BYTES, BLOCK_BYTES if left is None else left))
        if not block:
            return
        left = None if left is None else left - len(block)
        yield block


def _gunzip(first: bytes, blocks: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the unpacked bytes of one or more gzip members.

    Raises:
        zlib.error: they are broken, or end too early.
    """
    member = zlib.decompressobj(wbits=_GZIP_WBITS)
    total, ended = 0, False
    for packed in chain((first,), blocks):
        left = packed
        while left:
            block = member.decompress(left, BLOCK_BYTES)
            total += len(block)
            if total > most:
                raise _TooMuchError
            yield block
            left = member.unconsumed_tail
            ended = member.eof
            if ended:
                left = member.unused_data.lstrip(b"\0")
                member = zlib.decompressobj(wbits=_GZIP_WBITS)
    if not ended:
        yield member.flush()
        raise zlib.error


def _refusal(first: bytes) -> str:
    """Return why a file that begins like this is no log; empty if it may be one."""
    if not first:
        return "it is empty"
    for magic, name in _PACKED.items():
        if first.startswith(magic):
            return f"it is packed with {name} (unpack it first)"
    if first.startswith(_WIDE):
        return "its text is UTF-16 (convert it with iconv -f utf-16 -t utf-8)"
    # A log that was truncated under its writer begins with a hole of zeros.
    sample = first.lstrip(b"\0")[:_SAMPLE_BYTES]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if not sample or controls * _CONTROLS_RATIO > len(sample):
        return "its bytes are no text"
    return ""


def _why(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return reason[:1].lower() + reason[1:]


def _is_log(name: str) -> bool:
    """Return whether a file in a directory is named like a log, rotated or packed."""
    stem = name.lower().removesuffix(".gz")
    head, _, number = stem.rpartition(".")
    if number.isdigit():
        stem = head
    return stem.endswith(_SUFFIXES) or stem in _NAMES or stem.startswith("slurm-")


def _natural(entry: os.DirEntry[str]) -> tuple[int, str]:
    """Return a key that puts ``rank_10`` after ``rank_9``."""
    return len(entry.name), entry.name
