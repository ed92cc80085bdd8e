"""``dsup diagnose --bundle``: what a colleague needs, in one file, without secrets.

A member is masked before it is stored, in chunks of whole lines, so that a log of
gigabytes costs no memory. What was masked and what was left out is in the manifest.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Final, NamedTuple

from dsup import __version__
from dsup.cli import bundle_files
from dsup.cli.answer import Diagnosis
from dsup.cli.bundle_files import Choice, Logs, Part
from dsup.cli.foreign import STDIN
from dsup.cli.safe_files import Opened
from dsup.core.errors import SpecError
from dsup.core.printable import printable
from dsup.report.masked import Masked, masked, masked_json

SCHEMA: Final = "dsup.bundle/1"
MANIFEST: Final = "dsup-bundle.json"

_INNER: Final = "dsup-bundle.tar"
"""A gzip file tells the name of what is in it; by this one a bundle is known again."""

_CHUNK_BYTES: Final = 1 << 20
_KEY_BYTES: Final = 16 << 10
_LISTED_MAX: Final = 1000
_TOLD_MAX: Final = 3
_BEGIN: Final = b"-----BEGIN "
_END: Final = b"-----END "


class Extras(NamedTuple):
    """What is made for the reader, and is no file yet.

    Attributes:
        answer: the JSON of the diagnosis.
        panel: as a terminal shows it; empty where nothing failed.
        page: report.html, its secrets masked already; empty for none.
    """

    answer: str
    panel: str
    page: str


class Made(NamedTuple):
    """What became of it.

    Attributes:
        files: how many files are in it.
        hidden: how many secrets were masked.
        left_out: what is not in it.
    """

    files: int
    hidden: int
    left_out: tuple[str, ...]


def choice(found: Diagnosis, logs: Logs) -> Choice:
    """Return which files a bundle takes.

    Raises:
        SpecError: what was read cannot be read a second time.
    """
    if found.kind == "run":
        return bundle_files.of_run(found, logs)
    for path in found.paths:
        if path == STDIN or not (os.path.isfile(path) or os.path.isdir(path)):
            raise SpecError(
                f"cannot pack {path}, because it can be read only once (save it to a "
                "file first)"
            )
    return bundle_files.of_logs(found.paths, logs)


def write(
    file: IO[bytes], found: Diagnosis, extras: Extras, logs: Logs, own: Sequence[bytes]
) -> Made:
    """Write a bundle.

    Args:
        file: takes it.
        found: what it is about.
        extras: what is made for the reader.
        logs: how much of the ranks' logs it takes.
        own: values of secrets that are known here.

    Raises:
        OSError: it cannot be written.
    """
    chosen = choice(found, logs)
    with (
        gzip.GzipFile(_INNER, "wb", 6, file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        writer = _Writer(tar, tuple(own))
        for part in chosen.parts:
            writer.add(part)
        for name, content in _made(extras, own):
            writer.put(name, content)
        left_out = (*chosen.left_out, *writer.failed)
        hidden = writer.hidden
        writer.put(MANIFEST, Masked(_manifest(found, writer.cut, left_out, hidden), 0))
    return Made(writer.files, hidden, left_out)


def is_bundle(head: bytes) -> bool:
    """Return whether a file that begins so is a bundle, or empty."""
    return not head or (head[:2] == b"\x1f\x8b" and _INNER.encode() in head[:64])


def told(made: Made, path: str) -> str:
    """Return what became of a bundle, in one line."""
    said = [
        f"{_many(made.files, 'file')}",
        f"{_many(made.hidden, 'secret')} masked" if made.hidden else "no secret found",
    ]
    if made.left_out:
        more = ", …" if len(made.left_out) > _TOLD_MAX else ""
        names = ", ".join(made.left_out[:_TOLD_MAX])
        said.append(f"{_many(len(made.left_out), 'file')} left out: {names}{more}")
    return f"the bundle is in {path}: {'; '.join(said)}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _made(extras: Extras, own: Sequence[bytes]) -> Iterator[tuple[str, Masked]]:
    answer, panel, page = (one.encode(errors="backslashreplace") for one in extras)
    yield "diagnosis.json", masked_json(answer, own, lines=False)
    if panel:
        yield "panel.txt", masked(panel, own)
    if page:
        yield "report.html", Masked(page, 0)  # made of texts without secrets


def _manifest(
    found: Diagnosis, cut: Sequence[str], left_out: Sequence[str], hidden: int
) -> bytes:
    basis = found.basis
    fields = {
        "schema": SCHEMA,
        "kind": found.kind,
        "name": found.name,
        "dsup": __version__,
        # What only the run's own node could tell.
        "alive": basis.files.alive if basis else None,
        "rebooted": basis.rebooted if basis else False,
        "masked": hidden,
        "ends_only": [printable(name) for name in cut[:_LISTED_MAX]],
        "left_out": [printable(name) for name in left_out[:_LISTED_MAX]],
    }
    return json.dumps(fields, indent=1).encode() + b"\n"


class _Writer:
    """Adds members without secrets, and notes what was done to them."""

    def __init__(self, tar: tarfile.TarFile, own: tuple[bytes, ...]) -> None:
        self._tar = tar
        self._own = own
        self._made_s = 0
        self.files = 0
        self.hidden = 0
        self.cut: list[str] = []
        self.failed: list[str] = []

    def add(self, part: Part) -> None:
        """Add a file, or its end; one that cannot be read is noted."""
        with tempfile.TemporaryFile() as draft:
            try:
                with Opened(part.top, part.below) as fd:
                    found = os.fstat(fd)
                    start = max(0, found.st_size - part.most)
                    for piece in self._pieces(fd, start, part):
                        draft.write(piece)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                self.failed.append(f"{part.below} (cannot be read: {reason})")
                return
            if start:
                self.cut.append(part.name)
            size = draft.tell()
            draft.seek(0)
            self._made_s = max(self._made_s, int(found.st_mtime))
            self._store(part.name, draft, size, int(found.st_mtime))

    def put(self, name: str, content: Masked) -> None:
        """Add a text that was made just now, as old as what it is about."""
        self.hidden += content.hidden
        self._store(name, io.BytesIO(content.raw), len(content.raw), self._made_s)

    def _store(self, name: str, file: IO[bytes], size: int, mtime: int) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = size, max(0, mtime), 0o600
        self._tar.addfile(member, file)
        self.files += 1

    def _pieces(self, fd: int, start: int, part: Part) -> Iterator[bytes]:
        if part.form == "binary":
            yield os.pread(fd, part.most, start)
            return
        if part.form == "json":
            whole = os.pread(fd, part.most, start)
            yield self._count(masked_json(whole, self._own, lines=False))
            return
        for lines in _lines(fd, start, part.most):
            if part.form == "lines":
                yield self._count(masked_json(lines, self._own, lines=True))
            else:
                yield self._count(masked(lines, self._own))

    def _count(self, piece: Masked) -> bytes:
        self.hidden += piece.hidden
        return piece.raw


def _lines(fd: int, start: int, most: int) -> Iterator[bytes]:
    """Yield a file from an offset in pieces of whole lines, and no half of a first one.

    A piece is longer than a chunk only by a line, or by a private key's lines.
    """
    end, at = start + most, start
    kept = b""
    if start:
        first = os.pread(fd, min(_CHUNK_BYTES, most), start)
        at = start + _whole_from(first)
    while chunk := os.pread(fd, min(_CHUNK_BYTES, end - at), at):
        at += len(chunk)
        kept += chunk
        cut = _cut(kept)
        if cut:
            yield kept[:cut]
            kept = kept[cut:]
    if kept:
        yield kept


def _whole_from(first: bytes) -> int:
    """Return where the first whole line begins; the first whole word if it is endless.

    What stands before may be the half of a secret.
    """
    newline = first.find(b"\n") + 1
    return newline or first.find(b" ") + 1 or len(first)


def _cut(kept: bytes) -> int:
    """Return up to where pieces may be cut: behind a line, before an open key."""
    cut = kept.rfind(b"\n") + 1
    if not cut and len(kept) >= 2 * _CHUNK_BYTES:
        cut = kept.rfind(b" ") + 1 or len(kept)
    key = kept.rfind(_BEGIN, max(0, cut - _KEY_BYTES), cut)
    is_open = key > 0 and _END not in kept[key:cut]
    return key if is_open else cut
