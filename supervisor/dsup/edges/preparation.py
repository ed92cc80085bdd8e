"""What an attempt needs on disk: done where it may block, so mostly in an aide.

The agent itself makes attempt 0's directories, before any rank runs; from then on an
aide touches the file systems and answers in JSON.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from dsup_runtime import contract

REMOVED: Final = b"removed"
_REASON_MAX_CHARS: Final = 300
_REJECTED_MAX: Final = 8
_REFUSALS: Final = (NotADirectoryError, PermissionError)


class Location(NamedTuple):
    """Where checkpoints are.

    Attributes:
        directory: --checkpoint-dir; empty for none.
        pattern: --checkpoint-glob; empty for none.
    """

    directory: str
    pattern: str


class Found(NamedTuple):
    """The answer of an aide.

    Attributes:
        step: step of the newest valid checkpoint; None when there is none.
        path: its path; empty when there is none.
        error: why there is no answer; empty when there is one.
        rejected: newer ones that are not valid, ``path: reason``; at most eight.
        refused: the error is one that trying again will not cure.
        strangers: where nothing was found, how many entries of another layout there
            are in the directory.
    """

    step: int | None = None
    path: str = ""
    error: str = ""
    rejected: tuple[str, ...] = ()
    strangers: int = 0
    refused: bool = False


def make_directories(run_dir: str, attempt: int, local_world_size: int) -> None:
    """Make the directories of an attempt's rank logs."""
    for rank in range(local_world_size):
        os.makedirs(contract.rank_dir(run_dir, attempt, rank), exist_ok=True)


def temporary_name(parent: str) -> str:
    """Return a fresh path for an attempt's TMPDIR.

    It is short because a unix socket's path may have 107 bytes.
    """
    return os.path.join(parent, f"dsup-{os.urandom(3).hex()}")


def prepare(interpreter: str, tmp_dir: str) -> bytes:
    """Make a TMPDIR and open the job's program once; in an aide.

    A program on a file system that hangs shall hang this aide, and not the agent that
    is about to start ranks with it.
    """
    return _answer(lambda: _prepare(interpreter, tmp_dir))


def search(location: Location) -> bytes:
    """Look for the newest valid checkpoint; in an aide."""
    return _answer(lambda: _newest(location))


def remove(tmp_dir: str) -> bytes:
    """Remove an attempt's TMPDIR with all that killed ranks left there; in an aide.

    Returns:
        ``REMOVED``; anything else an asker hears means that something is left.
    """
    try:
        os.rmdir(tmp_dir)
    except OSError:
        import shutil

        shutil.rmtree(tmp_dir, ignore_errors=True)
    return b"" if os.path.lexists(tmp_dir) else REMOVED


def decode(answer: bytes) -> Found:
    """Return an aide's answer; silence is an error of its own."""
    if not answer:
        return Found(error="the file systems gave no answer")
    import json

    try:
        step, path, error, rejected, strangers, refused = json.loads(answer)
    except ValueError:
        return Found(error="an answer of the file systems was cut short")
    return Found(step, path, error, tuple(rejected), strangers, refused)


def _answer(work: Callable[[], Found]) -> bytes:
    import json

    try:
        found = work()
    except Exception as error:  # noqa: BLE001 (nobody else would ever hear of it)
        refused = isinstance(error.__cause__ or error, _REFUSALS)
        found = Found(error=str(error)[:_REASON_MAX_CHARS], refused=refused)
    return json.dumps(found).encode()


def _prepare(interpreter: str, tmp_dir: str) -> Found:
    os.mkdir(tmp_dir, 0o700)
    if os.path.isabs(interpreter):
        try:
            os.close(os.open(interpreter, os.O_RDONLY | os.O_CLOEXEC))
        except PermissionError:
            return Found()  # it may be there to be executed only, and it did not hang
    return Found()


def _newest(location: Location) -> Found:
    if location.directory:
        from dsup_runtime import checkpoints

        scan = checkpoints.newest_valid(location.directory)
    else:
        from dsup_runtime.checkpoints import foreign

        scan = foreign.newest_foreign(location.pattern, wait=time.sleep)
    rejected = tuple(
        f"{path}: {reason}"[:_REASON_MAX_CHARS]
        for path, reason in scan.rejected[:_REJECTED_MAX]
    )
    if scan.newest is None:
        return Found(rejected=rejected, strangers=_strangers(location.directory))
    return Found(scan.newest.step, scan.newest.path, rejected=rejected)


def _strangers(directory: str) -> int:
    try:
        names = os.listdir(directory) if directory else []
    except FileNotFoundError:
        return 0
    ours = ("step-", ".", "latest")
    return sum(not name.startswith(ours) for name in names)
