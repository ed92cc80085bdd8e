"""The manifest of a checkpoint: which files make it whole, and whether they are there.

``manifest.json`` is one object: ``format``, ``step``, ``attempt``, ``world_size``,
``healthy``, ``versions``, ``checksum`` (crc32, sha256 or none), ``meta`` and ``files``,
a list of ``{"name", "bytes", "crc32"}`` with names relative to it. It is written last
and read by other processes, perhaps of another version of dsup, so nothing in it is
trusted: its size is capped, names may not leave the directory, links are never
followed. Checksums catch silent corruption and mixed-up files, not malice.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsup_runtime.checkpoints.files import (
    CHECKSUMS,
    Entry,
    Storage,
    packed,
    read_capped,
    read_through,
    sync_tree,
)
from dsup_runtime.disk import strerror, sync_directory, write_new
from dsup_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"

_NOT_A_FILE: Final = (
    *(errno.EINVAL, errno.EISDIR),
    *(errno.ELOOP, errno.ENOTDIR, errno.ENXIO),
)


class Contents(NamedTuple):
    """What a manifest says.

    Attributes:
        step: how many steps the state has seen.
        files: all files of the checkpoint, each once.
        attempt: the life of the worker group that wrote it, from 0.
        world_size: how many ranks wrote it.
        meta: anything JSON can hold.
    """

    step: int
    files: list[Entry]
    attempt: int = 0
    world_size: int = 1
    meta: Mapping[str, object] = {}


class Objection(NamedTuple):
    """What speaks against loading a checkpoint.

    Attributes:
        reason: in a few words.
        kind: "damaged": it is not what its manifest says, or has none;
            "unreadable": this process cannot tell;
            "newer": a later dsup can read it.
    """

    reason: str
    kind: str = "damaged"


class _Refused(Exception):  # noqa: N818 (an answer within this module)
    """A manifest says nothing that can be used."""

    def __init__(self, reason: str, kind: str = "damaged") -> None:
        super().__init__(reason)
        self.objection = Objection(reason, kind)


def step_name(step: int) -> str:
    """Return the name of a step's directory; sorts by step up to 8 digits."""
    return f"step-{step:08d}"


def write_manifest(folder: str, contents: Contents, storage: Storage) -> None:
    """Write the manifest of a directory whose files are there, and flush the tree.

    Raises:
        CheckpointError: if there is nothing in it, or JSON cannot hold its meta, or
            the manifest would be larger than what is read.
        OSError: if something cannot be written or flushed.
    """
    if not contents.files:
        message = f"cannot commit {folder}, because it holds no files"
        raise CheckpointError(message)
    manifest = {
        "format": FORMAT,
        "step": contents.step,
        "attempt": contents.attempt,
        "world_size": contents.world_size,
        "healthy": True,  # what is not is never committed
        "versions": _versions(),
        "checksum": storage.checksum,
        "files": contents.files,
        "meta": dict(contents.meta),
    }
    data = packed(manifest, task=f"commit {folder}", what="meta and list of files")
    if storage.fsync:
        sync_tree(folder)
    write_new(os.path.join(folder, MANIFEST), data, fsync=storage.fsync)
    if storage.fsync:
        sync_directory(folder)


def read_manifest(path: str) -> dict[str, Any] | Objection:
    """Return what the manifest of a checkpoint says, or why it says nothing."""
    home = os.path.abspath(path)
    try:
        return _parsed(home)
    except _Refused as refused:
        return refused.objection


def examine(
    path: str | os.PathLike[str],
    *,
    checksums: bool = False,
    wanted: Callable[[str], bool] | None = None,
) -> Objection | None:
    """Return what speaks against loading a checkpoint; None for nothing.

    Args:
        path: a ``step-*`` directory.
        checksums: see ``verify``.
        wanted: which files to look at, by name; None for all.
    """
    home = os.path.abspath(path)
    manifest = read_manifest(home)
    if isinstance(manifest, Objection):
        return manifest
    checksum = manifest["checksum"] if checksums else "none"
    return next(_bad_files(home, manifest["files"], checksum, wanted), None)


def verify(path: str | os.PathLike[str], *, checksums: bool = False) -> str | None:
    """Say why a checkpoint must not be loaded.

    Args:
        path: a ``step-*`` directory.
        checksums: also read every file and compare its checksum (CRC-32: about 1 GB/s):
            finds flipped bits, which ``torch.load`` does not.

    Returns:
        The reason in a few words; None if nothing speaks against it.
    """
    objection = examine(path, checksums=checksums)
    return objection and objection.reason


def _kind(error: OSError) -> str:
    return "damaged" if error.errno in _NOT_A_FILE else "unreadable"


def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    if torch := sys.modules.get("torch"):
        versions["torch"] = str(torch.__version__)
    return versions


def _parsed(home: str) -> dict[str, Any]:
    try:
        if not stat.S_ISDIR(os.lstat(home).st_mode):
            raise _Refused("it is not a directory")
        manifest = json.loads(read_capped(os.path.join(home, MANIFEST)))
    except FileNotFoundError as error:
        raise _Refused(f"{os.path.basename(error.filename)} is missing") from error
    except OSError as error:
        reason = f"{MANIFEST} cannot be read: {strerror(error)}"
        raise _Refused(reason, _kind(error)) from error
    except RecursionError as error:
        reason = f"{MANIFEST} cannot be read: it is nested too deeply"
        raise _Refused(reason, "unreadable") from error
    except ValueError as error:
        raise _Refused(f"{MANIFEST} is not JSON") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise _Refused(f"{MANIFEST} is not dsup's")
    if manifest["format"] > FORMAT:
        reason = f"format {manifest['format']} is newer than this dsup reads ({FORMAT})"
        raise _Refused(reason, "newer")
    return _checked(manifest, os.path.basename(home))


def _checked(manifest: dict[str, Any], folder_name: str) -> dict[str, Any]:
    step, files = manifest.get("step"), manifest.get("files")
    if not isinstance(step, int) or not isinstance(files, list) or not files:
        raise _Refused(f"{MANIFEST} is incomplete")
    if step_name(step) != folder_name:
        raise _Refused(f"{MANIFEST} is that of step {step}")
    if manifest.setdefault("checksum", CHECKSUMS[0]) not in CHECKSUMS:
        raise _Refused(f"{MANIFEST} names no checksum that dsup knows")
    return manifest


def _bad_files(
    home: str, files: list[Any], checksum: str, wanted: Callable[[str], bool] | None
) -> Iterator[Objection]:
    plain_folders = {""}
    for entry in files:
        name = _safe_name(entry)
        if name is None:
            yield Objection(
                f"{MANIFEST} has an entry that names no file in the checkpoint"
            )
            return
        if wanted is not None and not wanted(name):
            continue
        try:
            reason = _bad_file(home, entry, plain_folders, checksum)
        except FileNotFoundError:
            reason = f"{name} is missing"
        except OSError as error:
            yield Objection(f"{name} cannot be read: {strerror(error)}", _kind(error))
            return
        if reason:
            yield Objection(reason)


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
    home: str, entry: Entry, plain_folders: set[str], checksum: str
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
    if checksum == "none":
        return None
    if read_through(path, checksum)[1] != entry.get(checksum):
        return f"{name} does not match its checksum"
    return None
