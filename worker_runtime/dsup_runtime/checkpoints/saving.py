"""What ranks do before and after a checkpoint's files are written."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from dsup_runtime import checkpoints, side_group, worker_info
from dsup_runtime.checkpoints.files import Storage, explained, packed
from dsup_runtime.checkpoints.manifest import Contents, Objection, read_manifest
from dsup_runtime.checkpoints.phases import together
from dsup_runtime.checkpoints.retention import empty_trash, retire
from dsup_runtime.checkpoints.shares import (
    read_shares,
    refuse_own_names,
    wait_until_there,
    write_share,
)
from dsup_runtime.errors import CheckpointError
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

THERE: Final = ""
"""Stands for the directory to write to where the step is saved already."""

_WHERE: Final = "saving a checkpoint"
_PLAIN: Final = (bool, int, float, str)


class Place(NamedTuple):
    """Where checkpoints are and what becomes of them.

    Attributes:
        root: their directory, absolute.
        keep: how many valid ones stay.
        storage: how they get there.
        visibility_s: how long what one rank made may stay unseen by another, seconds.
    """

    root: str
    keep: int
    storage: Storage
    visibility_s: float


class Written(NamedTuple):
    """A checkpoint whose files are being written, or have been.

    Attributes:
        step: how many steps its state has seen.
        folder: where they are.
        meta: what is said about the state.
        ended: waits for the end of this rank's writing, and raises its error.
    """

    step: int
    folder: str
    meta: Mapping[str, object]
    ended: Callable[[], object]


def plain(meta: object) -> dict[str, object]:
    """Return what the manifest keeps of the caller's word on the state.

    A copy of now, for the caller may change his own before it is written.

    Raises:
        CheckpointError: if it says nothing that a manifest can hold.
    """
    task = "save the meta of a checkpoint"
    mapping = meta
    if meta is None:
        mapping = {}
    elif callable(getattr(meta, "state_dict", None)) and not isinstance(meta, Mapping):
        state = meta.state_dict()  # type: ignore[attr-defined]
        mapping = {key: each for key, each in state.items() if isinstance(each, _PLAIN)}
    if not isinstance(mapping, Mapping):
        raise CheckpointError(
            f"cannot {task}, because {type(meta).__name__} is neither a mapping nor"
            " has it a state_dict (give a mapping of what JSON can hold)"
        )
    if side_group.rank() != 0:
        return {}
    copy: dict[str, object] = json.loads(packed(dict(mapping), task=task, what="meta"))
    return copy


def tried(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Run the caller's own code, in his own thread; return its result and its error."""
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 (raised in the phase that follows)
        return None, error


def opened(place: Place, step: int, failure: Exception | None = None) -> str | None:
    """Have rank 0 make the directory for a step, and wait until all ranks see it.

    Args:
        place: where.
        step: the step.
        failure: what speaks against it on this rank, before anything is made.

    Returns:
        The same on all ranks: its path; THERE if the step is saved already; None if
        there can be none.
    """

    def make() -> str | None:
        if failure is not None:
            raise failure
        return _make(place, step)

    told = together(_WHERE, make)
    if told is None:
        return None
    folder = str(told[0])
    if folder == THERE:
        return THERE
    seen = together(_WHERE, lambda: wait_until_there(folder, place.visibility_s))
    return folder if seen else None


def published(place: Place, written: Written) -> bool:
    """Flush, sum and publish what all ranks have written; return whether it worked.

    The same on all ranks. Old checkpoints are retired in the same go.
    """
    rank, ranks = side_group.rank(), side_group.size()

    _, failure = tried(written.ended)

    def end() -> None:
        if failure is not None:
            raise failure
        refuse_own_names(written.folder)

    def share() -> None:
        write_share(written.folder, rank, ranks, place.storage)

    def publish() -> None:
        if rank == 0:
            _publish(place, written, ranks)

    # Each part ends on all ranks before the next begins on one.
    return all(
        together(_WHERE, part, apart=part is end) for part in (end, share, publish)
    )


def _make(place: Place, step: int) -> str | None:
    if side_group.rank() != 0:
        return None
    newest = checkpoints.newest_valid(place.root).newest
    if newest is not None:
        if newest.step == step:
            return THERE
        if newest.step > step:
            raise CheckpointError(
                f"cannot save step {step}, because {newest.path} is newer: the step ran"
                " backwards, or another run wrote there (load it first, or use another"
                " root)"
            )
        _refuse_if_full(place.root, newest.path)
    attempt = worker_info.read_attempt()
    return checkpoints.begin(place.root, step, attempt=attempt, storage=place.storage)


def _refuse_if_full(root: str, newest: str) -> None:
    """Refuse a checkpoint for which there is less room than the last one took.

    The write would fail half-way, on some rank, in the middle of a collective.
    """
    manifest = read_manifest(newest)
    with explained(f"begin a checkpoint in {root}"):
        found = os.statvfs(root)
    if isinstance(manifest, Objection) or not found.f_blocks:  # a store may not tell
        return
    free = found.f_bavail * found.f_frsize
    needed = sum(entry["bytes"] for entry in manifest["files"])
    if free < needed:
        raise CheckpointError(
            f"cannot begin a checkpoint in {root}, because {free} bytes are free and"
            f" the last one took {needed} (free some space or keep fewer checkpoints)"
        )


def _publish(place: Place, written: Written, ranks: int) -> None:
    files = read_shares(written.folder, ranks, visible_within_s=place.visibility_s)
    attempt = worker_info.read_attempt()
    contents = Contents(written.step, files, attempt, ranks, written.meta)
    checkpoints.commit(
        written.folder, written.step, contents=contents, storage=place.storage
    )
    try:
        retire(place.root, keep=place.keep, storage=place.storage)
    except CheckpointError as error:
        log.warning("%s", error)
    threading.Thread(
        target=empty_trash, args=(place.root,), name="dsup-sweeper", daemon=True
    ).start()
