"""Checkpoint directories: half a checkpoint is never mistaken for a whole one.

    root/step-00002000/   the state files, in any tree, and manifest.json
    root/.tmp-00002000-0/ a checkpoint being written (step, attempt)
    root/latest           the name of the last one committed: a hint, never the truth
    root/.trash-*         on its way out

A writer asks ``begin`` for a directory, fills it and calls ``commit``: every file is
flushed and summed, the manifest names them all, and one rename publishes the whole. A
reader trusts names and manifests only: ``newest_valid`` walks down by step number until
``verify`` has nothing to object. What it rejects is never deleted, so a person can
look at it. Power loss is covered by the order of the fsyncs: files, manifest,
directories, the rename's parent.

One process writes a root at a time, usually rank 0; any number may read. Ranks must not
decide one by one what to load (network file systems show them different directories):
one decides and tells the others. The agent's aide imports this module, so it needs the
standard library only and imports fast.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from dsup_runtime.checkpoint_manifest import (
    explained,
    step_name,
    verify,
    write_manifest,
)
from dsup_runtime.disk import (
    discard,
    move_to_trash,
    remove,
    sync_directory,
    write_new,
)
from dsup_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Scan",
    "begin",
    "commit",
    "newest_valid",
    "prune",
    "verify",
]

LATEST: Final = "latest"

_STEP_NAME: Final = re.compile(r"step-([0-9]{8,18})")
_TMP_NAME: Final = re.compile(r"\.tmp-([0-9]{8,18})-([0-9]{1,9})")


class Checkpoint(NamedTuple):
    """A complete checkpoint.

    Attributes:
        step: how many steps its state has seen; -1 if only a foreign name tells.
        path: its directory (a foreign one may be a file), absolute.
    """

    step: int
    path: str


class Scan(NamedTuple):
    """What a look for the newest checkpoint found.

    Attributes:
        newest: the newest complete one; None if there is none.
        rejected: newer ones that are not complete, newest first: path and reason.
    """

    newest: Checkpoint | None
    rejected: tuple[tuple[str, str], ...]


def begin(root: str | os.PathLike[str], step: int, *, attempt: int = 0) -> str:
    """Make the directory that the files of one checkpoint are written to.

    What an earlier try at this step or an older attempt left behind is removed.

    Args:
        root: the directory of all checkpoints; made if missing.
        step: how many steps the state has seen, >= 0.
        attempt: the life of the worker group that writes, counted from 0.

    Returns:
        The path to fill and to hand to ``commit``.

    Raises:
        CheckpointError: if it cannot be made.
    """
    home = os.path.abspath(root)
    tmp = os.path.join(home, f".tmp-{step:08d}-{attempt}")
    if not _TMP_NAME.fullmatch(os.path.basename(tmp)):
        message = f"cannot begin a checkpoint, because {step} is no step number"
        raise CheckpointError(message)
    with explained(f"begin a checkpoint in {home}"):
        if not os.path.isdir(home):
            os.makedirs(home, exist_ok=True)
            sync_directory(os.path.dirname(home))
        for name, (_, old_attempt) in _temporary(home):
            if old_attempt < attempt:
                discard(os.path.join(home, name))
        if os.path.lexists(tmp):
            discard(tmp)
        os.mkdir(tmp)
        sync_directory(home)
    return tmp


def commit(
    tmp: str, step: int, *, meta: Mapping[str, object] | None = None
) -> Checkpoint:
    """Publish a directory made by ``begin``; after this it survives a power loss.

    If the step is there already and valid, it stays and ``tmp`` is dropped; a broken
    one makes room first. After an error, start again with ``begin``.

    Args:
        tmp: what ``begin`` returned, filled, with no other process writing to it.
        step: the same step as given to ``begin``.
        meta: anything JSON can say about the state; kept in the manifest.

    Raises:
        CheckpointError: if it cannot be published; older checkpoints are unharmed.
    """
    home, name = os.path.split(os.path.abspath(tmp))
    match = _TMP_NAME.fullmatch(name)
    if match is None or int(match[1]) != step:
        message = f"cannot commit {tmp}, because begin did not make it for step {step}"
        raise CheckpointError(message)
    final = os.path.join(home, step_name(step))
    with explained(f"commit {final}"):
        write_manifest(tmp, step, int(match[2]), meta or {})
        _publish(tmp, final)
        sync_directory(home)
    # The checkpoint is safe now; a hint that cannot be written is not worth an error.
    with contextlib.suppress(OSError):
        _write_latest(home, final)
    return Checkpoint(step, final)


def newest_valid(root: str | os.PathLike[str], *, checksums: bool = False) -> Scan:
    """Find the newest checkpoint that is whole, falling back to the one before.

    Only as many are opened as it takes; links and foreign names are passed over. A
    root that does not exist has no checkpoints.

    Args:
        root: the directory of all checkpoints.
        checksums: see ``verify``.

    Raises:
        CheckpointError: if ``root`` cannot be read.
    """
    rejected: list[tuple[str, str]] = []
    for checkpoint in _newest_first(os.path.abspath(root)):
        reason = verify(checkpoint.path, checksums=checksums)
        if reason is None:
            return Scan(checkpoint, tuple(rejected))
        rejected.append((checkpoint.path, reason))
    return Scan(None, tuple(rejected))


def prune(root: str | os.PathLike[str], *, keep: int = 3) -> tuple[str, ...]:
    """Remove all valid checkpoints but the newest few, and what crashes left over.

    Broken checkpoints neither count nor go. Call it after ``commit`` in the same
    process; what cannot be deleted now is deleted by a later call.

    Args:
        root: the directory of all checkpoints.
        keep: how many valid ones stay; the newest always does.

    Returns:
        The paths that are gone.

    Raises:
        CheckpointError: if ``root`` cannot be read or written.
    """
    home = os.path.abspath(root)
    valid = [found for found in _newest_first(home) if verify(found.path) is None]
    outdated = [found.path for found in valid[max(keep, 1) :]]
    with explained(f"prune checkpoints in {home}"):
        for path in outdated:
            move_to_trash(path)
        for name, (step, _) in _temporary(home):
            if valid and step <= valid[0].step:
                move_to_trash(os.path.join(home, name))
        leftovers = [name for name in os.listdir(home) if name.startswith(".trash-")]
    for name in leftovers:
        with contextlib.suppress(OSError):
            remove(os.path.join(home, name))
    return tuple(outdated)


def _newest_first(home: str) -> list[Checkpoint]:
    found = []
    with explained(f"look for checkpoints in {home}"):
        try:
            with os.scandir(home) as entries:
                for entry in entries:
                    match = _STEP_NAME.fullmatch(entry.name)
                    if match and entry.is_dir(follow_symlinks=False):
                        found.append(Checkpoint(int(match[1]), entry.path))
        except FileNotFoundError:
            return []
    return sorted(found, reverse=True)


def _temporary(home: str) -> Iterator[tuple[str, tuple[int, int]]]:
    for name in os.listdir(home):
        if match := _TMP_NAME.fullmatch(name):
            yield name, (int(match[1]), int(match[2]))


def _publish(
    tmp: str, final: str, *, rename: Callable[[str, str], None] = os.rename
) -> None:
    if os.path.lexists(final):
        if verify(final) is None:
            discard(tmp)
            return
        move_to_trash(final)
    try:
        rename(tmp, final)
    except FileNotFoundError:
        # NFS repeats a RENAME whose answer was lost: the second finds nothing to do.
        if verify(final) is not None:
            raise


def _write_latest(home: str, final: str) -> None:
    draft = os.path.join(home, f".{LATEST}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    write_new(draft, os.path.basename(final).encode() + b"\n")
    os.replace(draft, os.path.join(home, LATEST))
    sync_directory(home)
