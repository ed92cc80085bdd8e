"""The run before this one: found, and closed if nobody else will ever close it.

It runs in an aide of the agent, once the ranks run, and trusts nothing of what it
reads. A run is closed once: under the lock that its scribe would hold if it lived.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from dsup.core.errors import DsupError
from dsup.edges.scribe.retention import is_alive
from dsup.linux import file_lock
from dsup.report.run_file import origin
from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.cli.run_files import RunFiles
    from dsup.core.events import TookOver
    from dsup.core.job import Job
    from dsup.core.verdict import Verdict

SCHEMA: Final = "dsup.closed/1"

_LOOKED_AT: Final = 50
DRAINING_S: Final = 12.0
"""A scribe that has lost its agent reads on for at most ten."""

_LOOK_S: Final = 0.1
_NAME: Final = re.compile(r"\d{8}T\d{6}Z(-.+-)[0-9a-f]{6}(_.+)")
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
_PART: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFE


def look_back(job: Job, draining_s: float = DRAINING_S) -> bytes:
    """Return what became of the run before, as ``takeover.encode`` does.

    It is closed if the same parent launched it; a person's is only looked at. Nothing
    is returned of one that ended as it should, or that somebody has closed.

    Args:
        job: what is done now.
        draining_s: how long a scribe without an agent is waited for.
    """
    parent, own = os.path.split(job.run_dir)
    names = _alike(os.listdir(parent), own)
    for path in _newest_first(os.path.join(parent, name) for name in names):
        known = _matching(path, job)
        if known is not None and _is_dead(path, known, draining_s):
            return _of_dead(path, job)
    return b""


def _alike(names: Iterable[str], own: str) -> list[str]:
    """Return the newest runs of a program of that name on this node, but this one."""
    mine = _NAME.fullmatch(own)
    found = (_NAME.fullmatch(name) for name in names if name != own)
    alike = (one[0] for one in found if one and mine and one.groups() == mine.groups())
    return sorted(alike, reverse=True)[:_LOOKED_AT]


def _newest_first(paths: Iterable[str]) -> list[str]:
    """Return runs in order; of those of one second, by when they were written last."""
    found = []
    for path in paths:
        with suppress(OSError):
            written_ns = os.lstat(os.path.join(path, contract.JOURNAL_FILE)).st_mtime_ns
            found.append((os.path.basename(path)[:16], written_ns, path))
    return [path for _, _, path in sorted(found, reverse=True)]


def _matching(path: str, job: Job) -> Mapping[str, object] | None:
    """Return the run.json of a run of the same job, user and node; None of another."""
    from dsup.cli.run_files import run_file

    with suppress(OSError):
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return None
        known = run_file(path)
        wanted = {**origin(job), "host": os.uname().nodename}
        if all(known.get(name) == value for name, value in wanted.items()):
            return known
    return None


def _is_dead(path: str, known: Mapping[str, object], draining_s: float) -> bool:
    """Return whether neither agent nor scribe is there; a scribe may still read on."""
    from dsup.cli.run_files import is_over

    if _may_live(known):
        return False
    until_s = time.monotonic() + draining_s
    while not is_over(path):
        if time.monotonic() > until_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _may_live(known: Mapping[str, object]) -> bool:
    """Return whether a run's agent lives, or nobody can tell."""
    match known.get("agent"):
        case {"pid": int(), "start": int()}:
            return is_alive(dict(known))
        case _:
            return True


def _of_dead(path: str, job: Job) -> bytes:
    """Return what became of a run that is dead, and close it if it is to be."""
    from dsup.cli.diagnosis import rebooted
    from dsup.cli.run_clocks import clocks
    from dsup.cli.run_files import closed_by, page_of, read_run
    from dsup.core.events import TookOver
    from dsup.report import account, hindsight, past
    from dsup.takeover import Found, encode

    try:
        files = read_run(path)
        told = account.account(files.lines)
    except DsupError:
        return b""
    if files.alive is not False or not told.gone or closed_by(path) is not None:
        return b""
    again = not told.guard_lost and rebooted(files)
    node = os.uname().nodename
    page = page_of(path, told.attempt)
    verdict = hindsight.agent_gone(told, node=node, rebooted=again, page=page)
    failed, best = past.failed_in_a_row(told, files.lines)
    name = os.path.basename(path)
    known = name, verdict.cause, told.attempt, failed, best
    before = TookOver("took_over", time.monotonic(), *known)
    found = Found(before, closed=False)
    if job.parentage.parent:
        by = os.path.basename(job.run_dir)
        found = found._replace(closed=True)
        if not _close(files, verdict, clocks(files, told).offset_s, before, by):
            return b""
    return encode(found)


def _close(
    files: RunFiles, verdict: Verdict, offset_s: float, before: TookOver, by: str
) -> bool:
    """Close a run; return whether it was this launch that did.

    The verdict goes first: a run that is marked as closed has one.
    """
    from dsup.report import verdict_file

    with suppress(OSError), _claimed(files.path) as mode:
        if mode is None:
            return False
        if verdict.attempt not in files.verdicts:
            node = os.uname().nodename
            said = verdict_file.encode(
                verdict, node=node, offset_s=offset_s, ended=None
            )
            _keep(contract.attempt_dir(files.path, verdict.attempt), said, mode)
        fd = os.open(os.path.join(files.path, contract.CLOSED_FILE), _NEW, mode)
        told = {"cause": before.cause, "failed_attempts": before.failed_attempts}
        with suppress(OSError), os.fdopen(fd, "wb") as file:
            file.write(json.dumps({"schema": SCHEMA, "by": by, **told}).encode())
        return True
    return False


@contextmanager
def _claimed(path: str) -> Iterator[int | None]:
    """Hold a run's lock, and yield its files' mode; None if somebody else has it.

    Raises:
        OSError: its journal cannot be opened.
    """
    fd = os.open(os.path.join(path, contract.JOURNAL_FILE), os.O_RDWR | _SAFE)
    try:
        try:
            file_lock.seize(fd)
        except BlockingIOError:
            yield None
            return
        yield stat.S_IMODE(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def _keep(directory: str, content: bytes, mode: int) -> None:
    """Write an attempt's verdict, whole or not at all; none where nothing was kept."""
    with suppress(FileNotFoundError):
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
        try:
            if contract.VERDICT_FILE in os.listdir(at):
                return  # of a version that cannot be read here
            part = f".{contract.VERDICT_FILE}.{os.getpid()}"
            with os.fdopen(os.open(part, _PART, mode, dir_fd=at), "wb") as file:
                file.write(content)
            os.rename(part, contract.VERDICT_FILE, src_dir_fd=at, dst_dir_fd=at)
        finally:
            os.close(at)
