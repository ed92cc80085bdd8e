"""The manifest of a checkpoint: which files make it whole, and whether they are there.

``manifest.json`` is one object: ``format``, ``step``, ``attempt``, ``meta`` and
``files``, a list of ``{"name", "bytes", "crc32"}`` with names relative to it. It is
written last and read by other processes, perhaps of another version of dsup, so nothing
in it is trusted: its size is capped, names may not leave the directory, links are never
followed. CRC-32 catches silent corruption and mixed-up files, not malice.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import zlib
from typing import TYPE_CHECKING, Any, Final

from dsup_runtime.disk import strerror, sync_directory, write_new
from dsup_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"

_MANIFEST_MAX_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MORE_SPACE: Final = "free some space or keep fewer checkpoints"
_OTHER_PLACE: Final = "choose a directory that the job can write"
_ADVICE: Final = {errno.ENOSPC: _MORE_SPACE, errno.EDQUOT: _MORE_SPACE}


@contextlib.contextmanager
def explained(task: str) -> Iterator[None]:
    """Turn an OSError in a block into a CheckpointError: cannot TASK, because."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, _OTHER_PLACE)
        message = f"cannot {task}, because {strerror(error)} ({advice})"
        raise CheckpointError(message) from error


def step_name(step: int) -> str:
    """Return the name of a step's directory; sorts by step up to 8 digits."""
    return f"step-{step:08d}"


def write_manifest(
    folder: str, step: int, attempt: int, meta: Mapping[str, object]
) -> None:
    """Flush all files of a directory to the disk, then the manifest that lists them.

    Raises:
        CheckpointError: if what lies there cannot be a checkpoint.
        OSError: if something cannot be read, written or flushed.
    """
    files = list(_flushed(folder))
    if not files:
        message = f"cannot commit {folder}, because it holds no files"
        raise CheckpointError(message)
    manifest = {"format": FORMAT, "step": step, "attempt": attempt, "files": files}
    try:
        text = json.dumps({**manifest, "meta": dict(meta)}, allow_nan=False, indent=1)
    except (TypeError, ValueError) as error:
        message = f"cannot commit {folder}, because JSON cannot hold its meta: {error}"
        raise CheckpointError(message) from error
    write_new(os.path.join(folder, MANIFEST), text.encode())
    sync_directory(folder)


def verify(path: str | os.PathLike[str], *, checksums: bool = False) -> str | None:
    """Say why a checkpoint must not be loaded.

    Args:
        path: a ``step-*`` directory.
        checksums: also read every file and compare its CRC-32 (about 1 GB/s): finds
            flipped bits, which ``torch.load`` does not.

    Returns:
        The reason in a few words; None if nothing speaks against it.
    """
    home = os.path.abspath(path)
    try:
        if not stat.S_ISDIR(os.lstat(home).st_mode):
            return "it is not a directory"
        manifest = json.loads(_read_capped(os.path.join(home, MANIFEST)))
    except FileNotFoundError as error:
        return f"{os.path.basename(error.filename)} is missing"
    except OSError as error:
        return f"{MANIFEST} cannot be read: {strerror(error)}"
    except (ValueError, RecursionError):
        return f"{MANIFEST} is not JSON"
    return _objection(manifest, os.path.basename(home)) or next(
        _bad_files(home, manifest["files"], checksums=checksums), None
    )


def _flushed(folder: str, prefix: str = "") -> Iterator[dict[str, object]]:
    """Flush a tree bottom-up and yield a manifest entry for each of its files."""
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        name = prefix + entry.name
        if name == MANIFEST or not _is_plain(entry):
            what = "dsup's own name" if name == MANIFEST else "no file or directory"
            message = f"cannot commit {folder}, because {entry.name} is {what}"
            raise CheckpointError(message)
        if entry.is_dir():
            yield from _flushed(entry.path, f"{name}/")
        else:
            size, crc = _read_through(entry.path, flush=True)
            yield {"name": name, "bytes": size, "crc32": f"{crc:08x}"}
    sync_directory(folder)


def _is_plain(entry: os.DirEntry[str]) -> bool:
    follow = False
    return entry.is_dir(follow_symlinks=follow) or entry.is_file(follow_symlinks=follow)


def _read_through(path: str, *, flush: bool = False) -> tuple[int, int]:
    """Return a file's size and CRC-32, as they read now."""
    size = crc = 0
    chunk = memoryview(bytearray(_CHUNK_BYTES))
    with open(os.open(path, _READ_FLAGS), "rb", buffering=0) as file:
        if flush:
            os.fsync(file.fileno())
        while count := file.readinto(chunk):
            size += count
            crc = zlib.crc32(chunk[:count], crc)
    return size, crc


def _read_capped(path: str) -> bytes:
    with open(os.open(path, _READ_FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = file.read(_MANIFEST_MAX_BYTES + 1)
    if len(data) > _MANIFEST_MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {_MANIFEST_MAX_BYTES} bytes", path)
    return data


def _objection(manifest: Any, folder_name: str) -> str | None:  # noqa: ANN401 (JSON)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        return f"{MANIFEST} is not dsup's"
    if manifest["format"] > FORMAT:
        return f"format {manifest['format']} is newer than this dsup reads ({FORMAT})"
    step, files = manifest.get("step"), manifest.get("files")
    if not isinstance(step, int) or not isinstance(files, list) or not files:
        return f"{MANIFEST} is incomplete"
    if step_name(step) != folder_name:
        return f"{MANIFEST} is that of step {step}"
    return None


def _bad_files(home: str, files: list[Any], *, checksums: bool) -> Iterator[str]:
    plain_folders = {""}
    for entry in files:
        name = _safe_name(entry)
        if name is None:
            yield f"{MANIFEST} has an entry that names no file in the checkpoint"
            return
        try:
            reason = _bad_file(home, entry, plain_folders, checksums=checksums)
        except FileNotFoundError:
            reason = f"{name} is missing"
        except OSError as error:
            reason = f"{name} cannot be read: {strerror(error)}"
        if reason:
            yield reason


def _safe_name(entry: Any) -> str | None:  # noqa: ANN401 (an item of a JSON list)
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or "\0" in name:
        return None
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return None
    return None if {"", ".", ".."} & set(name.split("/")) else name


def _bad_file(
    home: str, entry: dict[str, Any], plain_folders: set[str], *, checksums: bool
) -> str | None:
    name = entry["name"]
    folder = os.path.dirname(name)
    while folder not in plain_folders:
        if not stat.S_ISDIR(os.lstat(os.path.join(home, folder)).st_mode):
            return f"{folder} is not a directory"
        plain_folders.add(folder)
        folder = os.path.dirname(folder)
    path = os.path.join(home, name)
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        return f"{name} is not a regular file"
    if status.st_size != entry.get("bytes"):
        return f"{name} has {status.st_size} bytes instead of {entry.get('bytes')}"
    if checksums and f"{_read_through(path)[1]:08x}" != entry.get("crc32"):
        return f"{name} does not match its checksum"
    return None
