"""Each rank's part of a checkpoint: the files it answers for, and what it says of them.

Every file has exactly one owner, told by its name alone: the rank whose number is in it
(``__3_0.distcp``, ``mp_rank_03``, ``rank-3.pt``, ``random_states_3.pkl``), else rank 0:
``model_3.safetensors`` is the third of several models to accelerate, and rank 0's. So
the ranks share the work of flushing and summing without talking to each other, and
share it again when they load, although there may be more or fewer of them by then.

A rank's answer is ``rank-00003.json`` in the checkpoint: ``format``, ``rank``,
``world_size`` and ``files`` as in the manifest, which rank 0 makes of all of them.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final

from dsup_runtime.checkpoints.files import (
    Entry,
    Storage,
    describe,
    explained,
    packed,
    read_capped,
    tree,
)
from dsup_runtime.checkpoints.listing import BEGUN
from dsup_runtime.checkpoints.manifest import FORMAT, MANIFEST
from dsup_runtime.disk import write_new
from dsup_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBER: Final = re.compile(
    r"(?:__|rank[-_=]?|(?:rng|random)_states?_)0*([0-9]{1,9})(?![0-9])"
)
_OWN_NAME: Final = re.compile(r"rank-[0-9]{5,9}\.json")
_LOOK_AGAIN_S: Final = 0.05


def owner(name: str, ranks: int) -> int:
    """Return the rank that answers for a file.

    Args:
        name: the file's, relative to the checkpoint.
        ranks: how many ranks share the work.
    """
    found = _NUMBER.search(name)
    return int(found[1]) % ranks if found else 0


def rank_file(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank:05d}.json"


def is_own(name: str) -> bool:
    """Return whether a name in a checkpoint is one of dsup's own."""
    return name in (MANIFEST, BEGUN) or bool(_OWN_NAME.fullmatch(name))


def refuse_own_names(folder: str) -> None:
    """See that no state file has a name of dsup's, before a rank writes such a file.

    Raises:
        CheckpointError: if one has.
    """
    with explained(f"commit {folder}"):
        names = set(os.listdir(folder)) - {BEGUN}
    if taken := sorted(filter(is_own, names)):
        raise CheckpointError(
            f"cannot commit {folder}, because {taken[0]} is dsup's own name"
            " (write the state to another file)"
        )


def write_share(folder: str, rank: int, ranks: int, storage: Storage) -> None:
    """Flush and sum the files that a rank answers for, and write its file.

    Args:
        folder: the directory that all ranks have written to.
        rank: this rank.
        ranks: how many there are.
        storage: how bytes get onto the disk.

    Raises:
        CheckpointError: if that cannot be done.
    """
    with explained(f"write the checkpoint in {folder}"):
        files = [
            describe(folder, name, storage)
            for name in tree(folder)
            if not is_own(name) and owner(name, ranks) == rank
        ]
        told = {"format": FORMAT, "rank": rank, "world_size": ranks, "files": files}
        data = packed(told, task=f"commit {folder}", what="list of files")
        write_new(os.path.join(folder, rank_file(rank)), data, fsync=storage.fsync)


def read_shares(folder: str, ranks: int, *, visible_within_s: float) -> list[Entry]:
    """Return the entries of all ranks' files, once they agree with what is there.

    Args:
        folder: the directory that all ranks have written to.
        ranks: how many there are.
        visible_within_s: how long a file of another rank may take to be seen, seconds.

    Raises:
        CheckpointError: if a rank's file is missing or wrong, or a file is not as long
            as its rank said.
    """
    entries: list[Entry] = []
    with explained(f"commit {folder}"):
        for rank in range(ranks):
            path = os.path.join(folder, rank_file(rank))
            wait_until_there(path, visible_within_s)
            entries += _parsed(path, rank, ranks)
        told = {entry["name"]: entry["bytes"] for entry in entries}
        there = {
            name: os.lstat(os.path.join(folder, name)).st_size
            for name in tree(folder)
            if not is_own(name)
        }
    if told != there:
        wrong = min(dict(told.items() ^ there.items()))
        raise CheckpointError(
            f"cannot commit {folder}, because {wrong} is not what its rank wrote: is"
            " another process writing there? (use one root a run)"
        )
    return sorted(entries, key=lambda entry: str(entry["name"]))


def wait_until_there(
    path: str,
    within_s: float,
    *,
    now_s: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until a path that another rank made can be seen from here.

    A network file system may hide it for half a minute; listing its directory asks the
    server anew.

    Args:
        path: the path.
        within_s: how long to wait, seconds.
        now_s: the clock, seconds.
        wait: lets a time pass, seconds.

    Raises:
        CheckpointError: if it does not appear.
    """
    home, name = os.path.split(path)
    end_s = now_s() + within_s
    while not os.path.lexists(path):
        if now_s() >= end_s:
            raise CheckpointError(
                f"cannot see {path} from here {within_s:.0f} s after another rank made"
                " it (choose a directory that all ranks share)"
            )
        wait(_LOOK_AGAIN_S)
        if os.path.isdir(home) and name in os.listdir(home):
            return


def _parsed(path: str, rank: int, ranks: int) -> list[Entry]:
    told: Any = None
    try:
        told = json.loads(read_capped(path))
        if (told["format"], told["rank"], told["world_size"]) == (FORMAT, rank, ranks):
            return [dict(entry) for entry in told["files"]]
    except (ValueError, LookupError, TypeError):
        pass
    raise CheckpointError(
        f"cannot commit {os.path.dirname(path)}, because {os.path.basename(path)} is"
        f" not what rank {rank} of {ranks} writes (use one root a run)"
    )
