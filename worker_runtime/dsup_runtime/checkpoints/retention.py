"""Which checkpoints stay: the newest valid ones, and what somebody asked to keep."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from dsup_runtime.checkpoints.files import DEFAULT, Storage, explained, read_capped
from dsup_runtime.checkpoints.listing import (
    LATEST,
    PINNED,
    Checkpoint,
    is_half_of_ours,
    newest_first,
    temporary,
)
from dsup_runtime.checkpoints.manifest import verify
from dsup_runtime.disk import move_to_trash, remove

if TYPE_CHECKING:
    from collections.abc import Iterator


def prune(
    root: str | os.PathLike[str], *, keep: int = 3, storage: Storage = DEFAULT
) -> tuple[str, ...]:
    """Remove all valid checkpoints but the newest few, and what crashes left over.

    Broken checkpoints neither count nor go. Call it after ``commit`` in the same
    process; what cannot be deleted now is deleted by a later call.

    Args:
        root: the directory of all checkpoints.
        keep: how many valid ones stay; the newest always does, and so do the one that
            ``latest`` names and pinned ones.
        storage: how they were published.

    Returns:
        The paths that are gone.

    Raises:
        CheckpointError: if ``root`` cannot be read or written.
    """
    outdated = retire(root, keep=keep, storage=storage)
    empty_trash(root)
    return outdated


def retire(
    root: str | os.PathLike[str], *, keep: int = 3, storage: Storage = DEFAULT
) -> tuple[str, ...]:
    """Do what ``prune`` does, but leave the deleting to ``empty_trash``."""
    home = os.path.abspath(root)
    reasons = [(found, verify(found.path)) for found in newest_first(home)]
    valid = [found for found, reason in reasons if reason is None]
    outdated = [
        found.path for found in valid[max(keep, 1) :] if not _is_held(home, found.path)
    ]
    with explained(f"prune checkpoints in {home}"):
        for path in (*outdated, *_leftovers(home, valid, reasons, storage)):
            move_to_trash(path)
    return tuple(outdated)


def empty_trash(root: str | os.PathLike[str]) -> None:
    """Delete what was moved out of sight, as far as it can be deleted."""
    home = os.path.abspath(root)
    with contextlib.suppress(OSError):
        for name in os.listdir(home):
            if name.startswith(".trash-"):
                with contextlib.suppress(OSError):
                    remove(os.path.join(home, name))


def _is_held(home: str, path: str) -> bool:
    """Return whether a checkpoint stays however old it is."""
    if os.path.lexists(os.path.join(path, PINNED)):
        return True
    try:
        hint = read_capped(os.path.join(home, LATEST))
    except OSError:
        return False
    return hint.strip() == os.path.basename(path).encode()


def _leftovers(
    home: str,
    valid: list[Checkpoint],
    reasons: list[tuple[Checkpoint, str | None]],
    storage: Storage,
) -> Iterator[str]:
    """Yield what crashes left and no save can be filling any more."""
    if not valid:
        return
    newest = valid[0].step
    for name, (step, _) in temporary(home):
        if step <= newest:
            yield os.path.join(home, name)
    if storage.rename:
        return
    for found, _ in reasons:
        if found.step < newest and is_half_of_ours(found.path):
            yield found.path
