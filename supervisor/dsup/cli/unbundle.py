"""A bundle that came from somebody else, unpacked where it can do no harm.

Nothing in it is trusted: it is read member by member within caps, and whatever dsup
would not have packed (a link, a device, a path that leads elsewhere) ends the reading.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Final, NamedTuple

from dsup.cli.answer import Case, Diagnosis
from dsup.cli.bundle import MANIFEST, SCHEMA
from dsup.cli.diagnosis import Seen, diagnosis
from dsup.cli.foreign import of_logs, of_verdict
from dsup.cli.run_files import UnreadableRunError
from dsup.cli.safe_files import read_below
from dsup.core.printable import printable
from dsup_runtime import contract

MEMBERS_MAX: Final = 25_000
TOTAL_BYTES: Final = 8 << 30
RATIO_MAX: Final = 200
FREE_BYTES: Final = 64 << 20
"""So much may come out of any bundle, however small it is."""

_READ_BYTES: Final = 1 << 20
_NAME_MAX_CHARS: Final = 512
_DEPTH_MAX: Final = 16
_NAMES_MAX_CHARS: Final = 200
_MANIFEST_BYTES: Final = 4 << 20
_PLAIN: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _RefusedError(Exception):
    """A bundle holds what dsup does not pack; says what."""


class _Known(NamedTuple):
    """What a manifest says.

    Attributes:
        kind: ``run``, ``logs`` or ``verdict``; empty for what is no bundle of dsup's.
        name: of the run.
        seen: what its own node could tell.
    """

    kind: str
    name: str
    seen: Seen


@contextlib.contextmanager
def unpacked(path: str, members: int = MEMBERS_MAX) -> Iterator[str]:
    """Give a private directory with a bundle's files, gone afterwards.

    Args:
        path: the bundle.
        members: so many files it may hold.

    Raises:
        UnreadableRunError: it is no bundle, or holds what a bundle does not.
    """
    with tempfile.TemporaryDirectory(
        prefix="dsup-", ignore_cleanup_errors=True
    ) as into:
        try:
            _unpack(path, into, members)
        except _RefusedError as error:
            raise _unreadable(path, str(error)) from None
        except (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError):
            raise _unreadable(path, "it is no whole tar.gz file") from None
        except gzip.BadGzipFile:
            raise _unreadable(path, "it is no gzip file") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise _unreadable(path, f"of: {reason}") from None
        yield into


def of_bundle(path: str, at: str) -> Diagnosis:
    """Return what an unpacked bundle says.

    Args:
        path: the bundle.
        at: where its files are.

    Raises:
        DsupError: it holds nothing that can be read.
    """
    known = _manifest(at)
    run = os.path.join(at, "run")
    if known.kind == "run" and os.path.isdir(run):
        found = diagnosis(run, known.seen)
    elif known.kind == "verdict":
        found = of_verdict(os.path.join(at, "logs", "0", contract.VERDICT_FILE))
    else:
        logs = os.path.join(at, "logs")
        roots = [os.path.join(logs, one) for one in _listed(logs)]
        found = of_logs(roots or [at])
    return _as_bundled(found, known, at, path)


def _as_bundled(found: Diagnosis, known: _Known, at: str, path: str) -> Diagnosis:
    """Return a diagnosis that tells of the bundle instead of a place soon gone."""
    cases = tuple(_relocated(case, at, path) for case in found.cases)
    remarks = tuple(one.replace(f"{at}/", "") for one in found.remarks)
    name = known.name or os.path.basename(path)
    return found._replace(name=name, cases=cases, remarks=remarks, bundle=path)


def _relocated(case: Case, at: str, path: str) -> Case:
    verdict = case.verdict
    evidence = tuple(
        one._replace(file=_without(one.file, at)) for one in verdict.evidence
    )
    places = case.more.replace(f"{at}/", "")
    if case.logs and verdict.first_ranks:
        log = contract.rank_dir("run", verdict.attempt, verdict.first_ranks[0])
        places = f"{log}/{case.log}" if case.log else log
    return case._replace(
        verdict=verdict._replace(evidence=evidence),
        logs="",
        more=f"{places} in {os.path.basename(path)}" if places else "",
    )


def _without(file: str, at: str) -> str:
    """Return a file's name in the bundle, without the number of its argument."""
    if not file.startswith(f"{at}/"):
        return file
    parts = file.removeprefix(f"{at}/").split("/")
    numbered = len(parts) > 2 and parts[0] == "logs"  # noqa: PLR2004 (logs/0/name)
    return "/".join(parts[2:] if numbered else parts)


def _unpack(path: str, into: str, members: int) -> None:
    """Unpack a bundle.

    Raises:
        _RefusedError: a member is nothing that a bundle holds.
        OSError, ValueError: it cannot be read or stored.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _RefusedError("it is no regular file")
        most = min(TOTAL_BYTES, FREE_BYTES + RATIO_MAX * found.st_size)
        with (
            gzip.GzipFile(fileobj=file) as zipped,
            tarfile.open(fileobj=_Bounded(zipped, most), mode="r:") as tar,
        ):
            _members(tar, into, members)


def _members(tar: tarfile.TarFile, into: str, members: int) -> None:
    for number, member in enumerate(tar):
        if number >= members:
            raise _RefusedError(f"it holds more than {members} files")
        name = _safe_name(member)
        if member.isdir():
            continue
        source = tar.extractfile(member)
        if source is None:
            raise _RefusedError(f"{_shown(name)} holds nothing")
        _store(source, os.path.join(into, name), member.mtime)


def _safe_name(member: tarfile.TarInfo) -> str:
    """Return where a member belongs, below the directory.

    Raises:
        _RefusedError: it is no file, or its path leads elsewhere.
    """
    name = member.name
    if member.issym() or member.islnk():
        raise _RefusedError(f"{_shown(name)} is a link (dsup packs none)")
    plain = member.type in _PLAIN and not member.issparse()
    if not plain and not member.isdir():
        raise _RefusedError(f"{_shown(name)} is no regular file (dsup packs no other)")
    parts = name.removeprefix("./").rstrip("/").split("/")
    strange = "\0" in name or name.startswith("/") or len(name) > _NAME_MAX_CHARS
    if strange or ".." in parts or len(parts) > _DEPTH_MAX:
        raise _RefusedError(f"the path {_shown(name)} leads out of it")
    return "/".join(part for part in parts if part not in {"", "."})


def _store(source: IO[bytes], path: str, mtime_s: float) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fd = os.open(path, _NEW, 0o600)
    with os.fdopen(fd, "wb") as file:
        while chunk := source.read(_READ_BYTES):
            file.write(chunk)
        file.flush()
        if 0 <= mtime_s < 1 << 40:  # what the run's times may be reckoned from
            os.utime(fd, (mtime_s, mtime_s))


class _Bounded(io.RawIOBase):
    """What comes out of a gzip file, up to a limit, and never much at once.

    A header may claim to be gigabytes long, and would be read into memory whole.
    """

    def __init__(self, inner: gzip.GzipFile, most: int) -> None:
        self._inner = inner
        self._most = most

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        if not 0 <= size <= _READ_BYTES:
            raise _RefusedError("a header in it is far too long")
        self._check(self._inner.tell() + size)
        return self._inner.read(size)

    def tell(self) -> int:
        """Return how many bytes have come out."""
        return self._inner.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Pass over bytes."""
        if whence == os.SEEK_SET:
            self._check(offset)
        return self._inner.seek(offset, whence)

    def seekable(self) -> bool:
        """Return that it can pass over bytes."""
        return True

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def _check(self, at: int) -> None:
        if at > self._most + _READ_BYTES:
            raise _RefusedError(f"more than {self._most >> 20} MiB come out of it")


def _manifest(at: str) -> _Known:
    try:
        found = json.loads(read_below(at, MANIFEST, _MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        found = {}
    known = found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}
    kind, name, alive = known.get("kind"), known.get("name"), known.get("alive")
    return _Known(
        kind if isinstance(kind, str) else "",
        printable(name[:_NAMES_MAX_CHARS]) if isinstance(name, str) else "",
        Seen(alive if isinstance(alive, bool) else None, known.get("rebooted") is True),
    )


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path), key=lambda name: (len(name), name))
    except OSError:
        return []


def _shown(name: str) -> str:
    return printable(name[:_NAMES_MAX_CHARS])


def _unreadable(path: str, why: str) -> UnreadableRunError:
    return UnreadableRunError(f"cannot read bundle {path}, because {why}")
