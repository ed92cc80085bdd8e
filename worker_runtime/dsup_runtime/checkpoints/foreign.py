"""The newest complete checkpoint of a layout that is not dsup's (--checkpoint-glob).

The pattern is a shell glob, ``**`` included; the files and directories it matches are
the candidates, all but tracker files.

*Newest* is the highest step, then the youngest. The step is read from what the pattern
left open of the path: the last number behind ``step``, ``iter(ation)`` or Composer's
``ba``, else behind ``checkpoint``, ``ckpt`` or ``epoch``, else the last number, but for
the extension's. ``epoch=3-step=1000-v1.ckpt`` and ``iter_0001000/mp_rank_00/x.pt`` are
both step 1000. Without a number (``best.pt``) it is -1: older than all others.

*Complete* is what none of these rules refutes, in this order:

1. Neither its name nor a file in it says that it is unfinished (``tmp-checkpoint-500``,
   ``x.tmp``, ``x.dirty``, ``checkpoint-is-incomplete.txt``).
2. A tracker file beside it (``latest``, ``latest_checkpointed_iteration.txt``) does not
   name a smaller step. One that names this step proves nothing: DeepSpeed writes it
   while other ranks still save.
3. It has bytes in it.
4. ``*.distcp`` files have ``.metadata`` beside them, which PyTorch's distributed
   checkpoint writes last. With it, nothing more is asked.
5. A file that begins as a zip archive (``torch.save``) ends as one.
6. No file of it changes between two looks; if all are older than ``SETTLED_S``, one
   look is enough.

A layout without a mark of its own can still deceive them: a directory whose last files
were never begun looks whole.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Final

from dsup_runtime.checkpoints import Checkpoint, Scan
from dsup_runtime.disk import strerror

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLED_S: Final = 10.0
"""What was not written to for so long is not being written to any more, seconds."""

NO_STEP: Final = -1

_STEPS: Final = (
    re.compile(r"(?i)(?<![a-z])(?:step|iter|iteration|ba)s?[-_=.]*([0-9]{1,18})"),
    re.compile(r"(?i)(?:checkpoint|ckpt|epoch)s?[-_=.]*([0-9]{1,18})"),
    re.compile(r"([0-9]{1,18})"),
)
_EXTENSION: Final = re.compile(r"(?i)\.[a-z_]+[0-9]*$")
_UNFINISHED_NAME: Final = re.compile(
    r"^tmp[-_.]|\.(tmp|temp|part|partial|dirty|incomplete)$|-checkpoint-tmp"
)
_UNFINISHED_FILE: Final = "checkpoint-is-incomplete.txt"
_TRACKERS: Final = ("latest", "latest_checkpointed_iteration.txt")
_TRACKER_MAX_BYTES: Final = 4096
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ZIP_START: Final = b"PK\x03\x04"
_ZIP_END: Final = b"PK\x05\x06"
_ZIP_END_MAX_BYTES: Final = 22 + 65535


Files = dict[str, tuple[int, int]]
"""The files of a candidate by relative name: size, bytes, and time of change, ns."""


def _wall_s() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)


def newest_foreign(
    pattern: str,
    *,
    interval_s: float = 2.0,
    wait: Callable[[float], object] = time.sleep,
    now_s: Callable[[], float] = _wall_s,
) -> Scan:
    """Find the newest complete checkpoint that a pattern matches.

    Args:
        pattern: a shell glob.
        interval_s: the time between two looks at one that is not settled, seconds.
        wait: lets that time pass.
        now_s: the clock of file times, seconds since the epoch.

    Returns:
        It, and the newer ones that are not complete, each with the reason.
    """
    rejected: list[tuple[str, str]] = []
    for candidate in _newest_first(os.path.join(os.getcwd(), pattern)):
        home = os.path.realpath(candidate.path)
        try:
            files = _look(home)
            reason = _objection(candidate, home, files)
            if reason is None and not _is_certain(files, now_s()):
                wait(interval_s)
                reason = None if _look(home) == files else "it is still changing"
        except OSError as error:
            reason = f"it cannot be read: {strerror(error)}"
        if reason is None:
            return Scan(candidate, tuple(rejected))
        rejected.append((candidate.path, reason))
    return Scan(None, tuple(rejected))


def step_in(text: str) -> int:
    """Return the step that a name speaks of; -1 if it has no number."""
    for pattern in _STEPS[:-1]:
        if numbers := pattern.findall(text):
            return int(numbers[-1])
    numbers = _STEPS[-1].findall(_EXTENSION.sub("", text))
    return int(numbers[-1]) if numbers else NO_STEP


def _newest_first(pattern: str) -> list[Checkpoint]:
    wildcard = re.search(r"[*?[]", pattern)
    fixed = os.path.dirname(pattern[: wildcard.start()] if wildcard else pattern)
    found = []
    for match in glob.iglob(pattern, recursive=True):
        path = os.path.abspath(match)
        if os.path.basename(path) in _TRACKERS:
            continue
        try:
            changed_ns = os.stat(path).st_mtime_ns
        except OSError:  # gone since the listing, or a link to nowhere
            continue
        step = step_in(match[len(fixed) :].rstrip("/"))
        found.append((step, changed_ns, path))
    return [Checkpoint(step, path) for step, _, path in sorted(found, reverse=True)]


def _look(home: str) -> Files:
    """Return the regular files of a candidate; links in it are not followed."""
    if not os.path.isdir(home):
        status = os.stat(home)
        return {"": (status.st_size, status.st_mtime_ns)} if _is_file(status) else {}
    files = {}
    for folder, _, names in os.walk(home):
        for name in names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if _is_file(status):
                files[path[len(home) + 1 :]] = (status.st_size, status.st_mtime_ns)
    return files


def _is_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


def _objection(candidate: Checkpoint, home: str, files: Files) -> str | None:
    parent, name = os.path.split(candidate.path)
    if _UNFINISHED_NAME.search(name) or _UNFINISHED_FILE in files:
        return "it says that it is unfinished"
    for tracker in _TRACKERS:
        if NO_STEP < _tracked_step(os.path.join(parent, tracker)) < candidate.step:
            return f"the file {tracker} beside it names an older step"
    if not any(size for size, _ in files.values()):
        return "it is empty"
    shards = _shard_folders(files)
    if not all(_is_marked(files, folder) for folder in shards):
        return "its .metadata is missing"
    for file in () if shards else files:
        if _is_cut_off(os.path.join(home, file) if file else home):
            return f"{file or name} ends too early"
    return None


def _tracked_step(path: str) -> int:
    try:
        with open(os.open(path, _READ_FLAGS), "rb") as file:
            if not _is_file(os.fstat(file.fileno())):
                return NO_STEP
            return step_in(file.read(_TRACKER_MAX_BYTES).decode("utf-8", "replace"))
    except OSError:
        return NO_STEP


def _shard_folders(files: Files) -> set[str]:
    return {os.path.dirname(name) for name in files if name.endswith(".distcp")}


def _is_marked(files: Files, folder: str) -> bool:
    size, _ = files.get(os.path.join(folder, ".metadata"), (0, 0))
    return size > 0


def _is_cut_off(path: str) -> bool:
    """Whether a file begins as a zip archive but lacks its directory at the end."""
    with open(os.open(path, _READ_FLAGS), "rb") as file:
        if file.read(len(_ZIP_START)) != _ZIP_START:
            return False
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _ZIP_END_MAX_BYTES, 0))
        return _ZIP_END not in file.read(_ZIP_END_MAX_BYTES)


def _is_certain(files: Files, now_s: float) -> bool:
    youngest_ns = max(changed_ns for _, changed_ns in files.values())
    return bool(_shard_folders(files)) or now_s - youngest_ns / 1e9 > SETTLED_S
