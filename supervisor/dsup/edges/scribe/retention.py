"""Old run directories: what is proven to be one, and dead, is removed beyond a number.

A directory next to this run's is removed only if it has a run's name with this node's
name in it, belongs to this user, holds a run.json of dsup's schema, has no other file
system mounted in it, and nobody holds the lock on its journal that every scribe holds
while it lives. Whatever goes wrong, the directory stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from typing import TYPE_CHECKING

from dsup.linux import proc
from dsup_runtime.contract import JOURNAL_FILE, RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = re.compile(r"\d{8}T\d{6}Z-.+-[0-9a-f]{6}_(?P<host>.+)")
SCHEMA = "dsup.run/"
MOUNT_POINT = 4  # field 5 of /proc/self/mountinfo, with blanks as \\040
RUN_FILE_MAX_BYTES = 4 * 1024 * 1024
PROOF = (JOURNAL_FILE, RUN_FILE)
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | SAFE


def claim(journal_fd: int) -> None:
    """Lock a run as alive until this descriptor is closed."""
    try:
        fcntl.flock(journal_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # no locks on this file system: then none can prove a run dead
        return


def prune(run_dir: str, keep: int | None) -> Iterator[bool]:
    """Remove old runs beside this one, one file for each step.

    Args:
        run_dir: this run's directory; it counts, and is never removed.
        keep: how many runs stay; None for all.

    Yields:
        True, after each step.
    """
    if keep is None:
        return
    parent, own = os.path.split(run_dir)
    try:
        parent_fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for name in old_runs(os.listdir(parent_fd), own, keep):
            yield from _remove_if_dead(name, parent_fd)
    except OSError:
        return
    finally:
        os.close(parent_fd)


def old_runs(names: list[str], own: str, keep: int) -> list[str]:
    """Return the names of this node's oldest runs beyond a number, oldest first."""
    mine = NAME.fullmatch(own)
    if not mine:
        return []
    matches = [match for match in map(NAME.fullmatch, names) if match]
    runs = sorted(m[0] for m in matches if m["host"] == mine["host"] and m[0] != own)
    return runs[: max(0, len(runs) + 1 - max(1, keep))]


def _remove_if_dead(name: str, parent_fd: int) -> Iterator[bool]:
    yield True
    try:
        fd = os.open(name, DIRECTORY, dir_fd=parent_fd)
    except OSError:
        return
    journal_fd = -1
    try:
        journal_fd = os.open(JOURNAL_FILE, os.O_RDWR | SAFE, dir_fd=fd)
        fcntl.flock(journal_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_run(fd) and not _has_mounts(fd):
            yield from _empty(fd)
            os.rmdir(name, dir_fd=parent_fd)
    except (OSError, ValueError, RecursionError):  # alive, or not ours to judge
        return
    finally:
        if journal_fd >= 0:
            os.close(journal_fd)
        os.close(fd)


def _is_run(fd: int) -> bool:
    """Return whether a directory is this user's and holds a run.json of dsup's.

    Raises:
        OSError: it has none that can be read.
        ValueError: it is no JSON.
    """
    if os.fstat(fd).st_uid != os.geteuid():
        return False
    file_fd = os.open(RUN_FILE, os.O_RDONLY | SAFE, dir_fd=fd)
    try:
        if not stat.S_ISREG(os.fstat(file_fd).st_mode):
            return False
        run = json.loads(os.read(file_fd, RUN_FILE_MAX_BYTES))
    finally:
        os.close(file_fd)
    return isinstance(run, dict) and str(run.get("schema")).startswith(SCHEMA)


def _has_mounts(fd: int) -> bool:
    """Return whether a file system, never a run's own, is mounted below a directory."""
    below = os.readlink(f"/proc/self/fd/{fd}") + "/"
    table = proc.read_text("/proc/self/mountinfo")
    points = (line.split()[MOUNT_POINT] for line in table.splitlines())
    return not table or any(
        point.encode().decode("unicode_escape").startswith(below) for point in points
    )


def _empty(fd: int) -> Iterator[bool]:
    """Remove what a directory holds; what proves it a run goes last."""
    walk = os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=fd)
    for path, directories, files, inner_fd in walk:
        kept = PROOF if path == "." else ()
        for name in files:
            if name not in kept:
                os.unlink(name, dir_fd=inner_fd)
                yield True
        for name in directories:
            _remove_directory(name, inner_fd)
            yield True
    for name in PROOF:
        os.unlink(name, dir_fd=fd)


def _remove_directory(name: str, parent_fd: int) -> None:
    try:
        os.rmdir(name, dir_fd=parent_fd)
    except NotADirectoryError:  # a link to one
        os.unlink(name, dir_fd=parent_fd)
