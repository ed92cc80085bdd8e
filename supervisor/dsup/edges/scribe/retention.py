"""Old run directories: what is proven to be one, and dead, is removed beyond a number.

A directory next to this run's is removed only if it has a run's name with this node's
name in it, belongs to this user, holds a run.json of dsup's schema, has no other file
system mounted in it, nobody holds the lock on its journal that every scribe holds
while it lives, and the agent that run.json tells of is no more. Whatever goes wrong,
the directory stays.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from typing import TYPE_CHECKING

from dsup.edges.scribe.files import open_append
from dsup.edges.scribe.sink import DISK_FULL
from dsup.linux import file_lock, proc
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
SHARED = fcntl.LOCK_SH | fcntl.LOCK_NB
"""What the first scribes held alone, and runs of theirs still look for."""


class Claim:
    """Shows everybody that a run's scribe lives, as soon as that can be.

    Args:
        path: of the run's journal.
        mode: of that file, should it not be there.

    Attributes:
        settled: it is held, or never can be: this file system knows no locks, and
            then none can prove a run dead.
    """

    def __init__(self, path: str, mode: int) -> None:
        self.settled = False
        self._path = path
        self._mode = mode
        self._fd = -1
        self.hold()

    def hold(self) -> None:
        """Take the lock unless that is settled; somebody else may have it for now."""
        if self.settled:
            return
        try:
            if self._fd < 0:
                self._fd = open_append(self._path, self._mode, readable=True)
            file_lock.share(self._fd)
            fcntl.flock(self._fd, SHARED)
        except OSError as error:
            waits = isinstance(error, BlockingIOError) or error.errno in DISK_FULL
            self.settled = not waits
        else:
            self.settled = True


def is_alive(known: dict[str, object]) -> bool:
    """Return whether a run's agent is proven to live on this node.

    Args:
        known: the run's run.json; one that makes no sense proves nothing.
    """
    agent = known.get("agent")
    if not isinstance(agent, dict) or not (boot_id := known.get("boot_id")):
        return False
    pid, start = agent.get("pid"), agent.get("start")
    if type(pid) is not int or boot_id != proc.boot_id():
        return False
    found = proc.stat(pid)
    return found is not None and found.start == start and found.state not in "ZX"


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
        file_lock.seize(journal_fd)
        fcntl.flock(journal_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_dead_run(fd) and not _has_mounts(fd):
            yield from _empty(fd)
            os.rmdir(name, dir_fd=parent_fd)
    except (OSError, ValueError, RecursionError):  # alive, or not ours to judge
        return
    finally:
        if journal_fd >= 0:
            os.close(journal_fd)
        os.close(fd)


def _is_dead_run(fd: int) -> bool:
    """Return whether a directory is this user's, with a run.json of a dead agent's.

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
    if not isinstance(run, dict) or not str(run.get("schema")).startswith(SCHEMA):
        return False
    return not is_alive(run)


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
