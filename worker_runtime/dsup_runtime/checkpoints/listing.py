"""What there is in a directory of checkpoints, by its names alone."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from dsup_runtime.checkpoints.files import explained
from dsup_runtime.checkpoints.manifest import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

LATEST: Final = "latest"
PINNED: Final = "pinned"
"""A file of this name in a checkpoint keeps it for good."""

BEGUN: Final = ".dsup-begun"
"""On a store without a rename, a directory with this file in it is dsup's own.

Without it, one that has no manifest may be anybody's, and is never deleted.
"""

TMP_NAME: Final = re.compile(r"\.tmp-([0-9]{8,18})-([0-9]{1,9})")

_STEP_NAME: Final = re.compile(r"step-([0-9]{8,18})")


class Checkpoint(NamedTuple):
    """A complete checkpoint.

    Attributes:
        step: how many steps its state has seen; -1 if only a foreign name tells.
        path: its directory (a foreign one may be a file), absolute.
    """

    step: int
    path: str


def newest_first(root: str | os.PathLike[str]) -> list[Checkpoint]:
    """Return what has the name of a checkpoint, whole or not, by step number.

    Raises:
        CheckpointError: if ``root`` cannot be read; one that is missing has none.
    """
    home = os.path.abspath(root)
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


def temporary(home: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the directories being written: name, and step and attempt."""
    for name in os.listdir(home):
        if match := TMP_NAME.fullmatch(name):
            yield name, (int(match[1]), int(match[2]))


def is_half_of_ours(path: str) -> bool:
    """Return whether a directory is a checkpoint of dsup's that was never published."""
    begun = os.path.lexists(os.path.join(path, BEGUN))
    return begun and not is_published(path)


def is_published(path: str) -> bool:
    """Return whether a checkpoint has a manifest, sound or not."""
    return os.path.lexists(os.path.join(path, MANIFEST))
