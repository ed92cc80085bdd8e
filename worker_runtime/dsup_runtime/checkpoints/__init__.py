"""Checkpoint directories: half a checkpoint is never mistaken for a whole one.

    root/step-00002000/   the state files, in any tree, and manifest.json
    root/.tmp-00002000-0/ a checkpoint being written (step, attempt)
    root/latest           the name of the last one committed: a hint, never the truth
    root/step-*.corrupt   found damaged when it was to be loaded, or in the way of a
                          new one of its step; never deleted
    root/.trash-*         on its way out

A file ``pinned`` in a checkpoint keeps it for good. On a store without an atomic rename
(``Storage(rename=False)``) files are written in place, and the manifest publishes them:
what has none is no checkpoint. What dsup began there has a file ``.dsup-begun``.

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
from typing import TYPE_CHECKING, NamedTuple

from dsup_runtime.checkpoints.files import (
    DEFAULT,
    Entry,
    Storage,
    describe,
    explained,
    tree,
)
from dsup_runtime.checkpoints.listing import (
    BEGUN,
    LATEST,
    TMP_NAME,
    Checkpoint,
    is_half_of_ours,
    newest_first,
    temporary,
)
from dsup_runtime.checkpoints.manifest import (
    MANIFEST,
    Contents,
    examine,
    step_name,
    verify,
    write_manifest,
)
from dsup_runtime.checkpoints.retention import prune
from dsup_runtime.disk import (
    discard,
    move_to_trash,
    sync_directory,
    write_new,
)
from dsup_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


class Scan(NamedTuple):
    """What a look for the newest checkpoint found.

    Attributes:
        newest: the newest complete one; None if there is none.
        rejected: newer ones that are not complete, newest first: path and reason.
    """

    newest: Checkpoint | None
    rejected: tuple[tuple[str, str], ...]


def begin(
    root: str | os.PathLike[str],
    step: int,
    *,
    attempt: int = 0,
    storage: Storage = DEFAULT,
) -> str:
    """Make the directory that the files of one checkpoint are written to.

    What an earlier try at this step or an older attempt left behind is removed.

    Args:
        root: the directory of all checkpoints; made if missing.
        step: how many steps the state has seen, >= 0.
        attempt: the life of the worker group that writes, counted from 0.
        storage: how it is going to be published.

    Returns:
        The path to fill and to hand to ``commit``.

    Raises:
        CheckpointError: if it cannot be made.
    """
    home = os.path.abspath(root)
    tmp = os.path.join(home, f".tmp-{step:08d}-{attempt}")
    if not TMP_NAME.fullmatch(os.path.basename(tmp)):
        message = f"cannot begin a checkpoint, because {step} is no step number"
        raise CheckpointError(message)
    with explained(f"begin a checkpoint in {home}"):
        if not os.path.lexists(home):
            os.makedirs(home, exist_ok=True)
            sync_directory(os.path.dirname(home))
        for name, (_, old_attempt) in temporary(home):
            if old_attempt < attempt:
                discard(os.path.join(home, name))
        if not storage.rename:
            tmp = os.path.join(home, step_name(step))
            _make_room(tmp)
        elif os.path.lexists(tmp):
            discard(tmp)
        _make(tmp, storage)
    return tmp


def commit(
    tmp: str,
    step: int,
    *,
    meta: Mapping[str, object] | None = None,
    contents: Contents | None = None,
    storage: Storage = DEFAULT,
) -> Checkpoint:
    """Publish a directory made by ``begin``; after this it survives a power loss.

    If the step is there already and valid, it stays and ``tmp`` is dropped; anything
    else of its name is put aside first. After an error, start again with ``begin``.

    Args:
        tmp: what ``begin`` returned, filled, with no other process writing to it.
        step: the same step as given to ``begin``.
        meta: anything JSON can say about the state; kept in the manifest.
        contents: what the manifest says, where the files are flushed and summed
            already; None to do that here.
        storage: the same as given to ``begin``.

    Raises:
        CheckpointError: if it cannot be published; older checkpoints are unharmed.
    """
    home, name = os.path.split(os.path.abspath(tmp))
    attempt = _attempt_in(name, step, storage)
    if attempt is None:
        message = f"cannot commit {tmp}, because begin did not make it for step {step}"
        raise CheckpointError(message)
    final = os.path.join(home, step_name(step))
    with explained(f"commit {final}"):
        if contents is None:
            contents = Contents(step, _described(tmp, storage), attempt, 1, meta or {})
        write_manifest(tmp, contents, storage)
        if storage.rename:
            _publish(tmp, final)
        if storage.fsync:
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
    for checkpoint in newest_first(root):
        reason = verify(checkpoint.path, checksums=checksums)
        if reason is None:
            return Scan(checkpoint, tuple(rejected))
        rejected.append((checkpoint.path, reason))
    return Scan(None, tuple(rejected))


def set_aside(path: str) -> str:
    """Rename what is no checkpoint, so that no later look finds it; return its name.

    Raises:
        CheckpointError: if it cannot be renamed.
    """
    aside, number = f"{path}.corrupt", 1
    while os.path.lexists(aside):
        number += 1
        aside = f"{path}.corrupt-{number}"
    with explained(f"put {path} aside, which is damaged"):
        os.rename(path, aside)
    return aside


def _make(tmp: str, storage: Storage) -> None:
    os.mkdir(tmp)
    if not storage.rename:
        write_new(os.path.join(tmp, BEGUN), b"", fsync=storage.fsync)
    if storage.fsync:
        sync_directory(os.path.dirname(tmp))


def _attempt_in(name: str, step: int, storage: Storage) -> int | None:
    if not storage.rename:
        return 0 if name == step_name(step) else None
    match = TMP_NAME.fullmatch(name)
    return int(match[2]) if match and int(match[1]) == step else None


def _described(folder: str, storage: Storage) -> list[Entry]:
    names = [name for name in tree(folder) if name != BEGUN]
    if MANIFEST in names:
        message = f"cannot commit {folder}, because {MANIFEST} is dsup's own name"
        raise CheckpointError(message)
    return [describe(folder, name, storage) for name in names]


def _make_room(final: str) -> None:
    """Move what is no checkpoint out of the way of a new one of its step."""
    if not os.path.lexists(final):
        return
    if is_half_of_ours(final):
        move_to_trash(final)
        return
    objection = examine(final)
    if objection is None or objection.kind != "damaged":
        because = objection.reason if objection else "it is whole"
        raise CheckpointError(
            f"cannot write {final} again, because {because} (move it aside first)"
        )
    aside = set_aside(final)
    from dsup_runtime.rank_log import (
        log,
    )  # the aide, which never commits, is to be fast

    log.warning("put %s aside, because %s", aside, objection.reason)


def _publish(
    tmp: str, final: str, *, rename: Callable[[str, str], None] = os.rename
) -> None:
    if os.path.lexists(final) and verify(final) is None:
        discard(tmp)
        return
    _make_room(final)
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
