"""Dead letters: one JSON line for every batch that was dropped, one file a rank.

Each rank appends to ``rank-NNNNN.jsonl`` in a directory that may be shared, whole lines
only, through the restarts of a run. A full file, a full disk or a directory that cannot
be written costs letters, with one warning each, but never the training.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
from typing import TYPE_CHECKING, Any, Final

from dsup_runtime.disk import strerror
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_MAX_BYTES: Final = 64 << 20
"""What one rank may write, restarts included."""

BATCH_ID_MAX_BYTES: Final = 16 << 10
"""A longer batch id is cut down to the beginning of its ``repr``."""

_FLAGS: Final = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | os.O_NOFOLLOW
    | os.O_NONBLOCK
    | os.O_CLOEXEC
)


class DeadLetters:
    """Where one rank's dead letters go; nothing is made before the first one.

    Args:
        folder: the directory of all ranks' files; made if missing.
        max_bytes: how large this rank's file may grow, bytes.
    """

    __slots__ = ("_folder", "_max_bytes", "_warned")

    def __init__(
        self, folder: str | os.PathLike[str], *, max_bytes: int = FILE_MAX_BYTES
    ) -> None:
        self._folder = os.path.abspath(folder)
        self._max_bytes = max_bytes
        self._warned: set[int | None] = set()

    def path(self, rank: int) -> str:
        """Return the path of one rank's file."""
        return os.path.join(self._folder, f"rank-{rank:05d}.jsonl")

    def write(self, rank: int, letter: Mapping[str, object]) -> bool:
        """Append one letter.

        Args:
            rank: the rank whose batch it is.
            letter: its fields: ``batch_id`` may be anything, the others what JSON
                knows; floats that are not finite become strings.

        Returns:
            Whether it is in the file. Of each reason why not, the first is logged.
        """
        fields = {name: _finite(value) for name, value in letter.items()}
        if "batch_id" in fields:
            fields["batch_id"] = presentable(letter["batch_id"])
        line = json.dumps(fields, default=repr).encode() + b"\n"
        path = self.path(rank)
        try:
            os.makedirs(self._folder, exist_ok=True)
            _append(path, line, self._max_bytes)
        except OSError as error:
            if error.errno not in self._warned:
                self._warned.add(error.errno)
                log.warning(
                    "cannot write a dead letter to %s, because %s (training goes on;"
                    " the next ones may be lost too)",
                    path,
                    strerror(error),
                )
            return False
        return True


def presentable(batch_id: object) -> Any:  # noqa: ANN401 (JSON)
    """Return a batch id as JSON can hold it, tensors and arrays as lists.

    What JSON cannot hold, or not in 16 KiB, becomes the beginning of its ``repr``.
    """
    plain = batch_id
    # The caller's own object may raise anything.
    with contextlib.suppress(Exception):
        plain = batch_id.tolist() if hasattr(batch_id, "tolist") else batch_id
        if len(json.dumps(plain, allow_nan=False)) <= BATCH_ID_MAX_BYTES:
            return plain
    try:
        return repr(plain)[: BATCH_ID_MAX_BYTES // 8]
    except Exception:  # noqa: BLE001 (as above)
        return f"<{type(batch_id).__name__}>"


def _finite(value: object) -> object:
    odd = isinstance(value, float) and not math.isfinite(value)
    return str(value) if odd else value


def _append(path: str, line: bytes, max_bytes: int) -> None:
    """Append a line whole or not at all; only this process writes to the file."""
    fd = os.open(path, _FLAGS, 0o666)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        if found.st_size + len(line) > max_bytes:
            raise OSError(errno.EFBIG, f"it has reached {max_bytes} bytes", path)
        if os.write(fd, line) < len(line):
            with contextlib.suppress(OSError):
                os.ftruncate(fd, found.st_size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(fd)
