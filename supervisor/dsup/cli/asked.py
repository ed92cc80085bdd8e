"""What the words of ``dsup diagnose`` mean: runs, bundles, verdicts, logs.

A word is a path if there is something of that name, else a part of a run's name. What
kind of thing a path is, is seen by looking at it, never by what it is called alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.cli.find_run import find_run, named_like, runs_in
from dsup.cli.foreign import STDIN
from dsup.cli.run_files import UnreadableRunError, is_of_run
from dsup.core.errors import SpecError
from dsup_runtime import contract

Kind: TypeAlias = Literal["run", "bundle", "verdict", "logs"]

BUNDLE_ENDINGS: Final = (".tar.gz", ".tgz")

_STDIN_NAMES: Final = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_KERNEL_LOGS: Final = ("/dev/kmsg", "/proc/kmsg")
_NULL: Final = os.makedev(1, 3)
_RUN_PARTS: Final = (contract.JOURNAL_FILE, contract.RUN_FILE)


class Item(NamedTuple):
    """One thing to be diagnosed."""

    kind: Kind
    path: str


class Meant(NamedTuple):
    """What the words mean.

    Attributes:
        items: in the order of the words.
        remarks: what was chosen, where there was a choice.
    """

    items: tuple[Item, ...]
    remarks: tuple[str, ...] = ()


def meant(words: Sequence[str], environment: Mapping[str, str]) -> Meant:
    """Return what words mean; the newest run if there are none.

    Raises:
        SpecError: a word means nothing, or more than one thing.
        UnreadableRunError: it is nothing that can be read.
    """
    if not words:
        return Meant((Item("run", find_run("", environment)),))
    items, remarks = list[Item](), list[str]()
    for word in words:
        item, said = _of_word(word, environment)
        items.append(item)
        remarks += said
    unique = tuple(dict.fromkeys(items))
    return Meant(unique, tuple(dict.fromkeys(remarks)))


def _of_word(word: str, environment: Mapping[str, str]) -> tuple[Item, list[str]]:
    if not word:
        raise SpecError(
            'cannot tell which run "" is, because every name has that in it (is a '
            "variable empty? give a part of a run's name, or its directory)"
        )
    if word in _KERNEL_LOGS:
        raise SpecError(
            f"cannot diagnose {word}, because it is the kernel's log of now (dsup "
            "kernel-log --live reads it)"
        )
    if word == STDIN:
        _refuse_endless(word, os.fstat(0))
        return Item("logs", word), []
    try:
        found = os.stat(word)
    except OSError as error:
        return _missing(word, environment, error)
    item, remarks = _of_path(word, found)
    if "/" not in word and item.kind != "run":
        also = next(named_like(word, environment), "")
        if also:
            remarks.append(f"{word} is read as a file, not as run {also}")
    return item, remarks


def _missing(
    word: str, environment: Mapping[str, str], error: OSError
) -> tuple[Item, list[str]]:
    if os.path.islink(word):
        raise UnreadableRunError(
            f"cannot diagnose {word}, because it is a link to nothing"
        )
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise _unreadable(word, error)
    return Item("run", find_run(word, environment)), []


def _of_path(word: str, found: os.stat_result) -> tuple[Item, list[str]]:
    mode = found.st_mode
    if stat.S_ISDIR(mode):
        return _of_directory(word)
    if stat.S_ISREG(mode):
        return _of_file(word), []
    if word in _STDIN_NAMES:
        return _of_word(STDIN, {})
    _refuse_endless(word, found)
    return Item("logs", word), []


def _of_directory(path: str) -> tuple[Item, list[str]]:
    """Return what a directory is: a run, runs, a part of a run, or logs."""
    try:
        names = os.listdir(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if not names:
        raise UnreadableRunError(f"cannot diagnose {path}, because it is empty")
    if any(part in names for part in _RUN_PARTS) or is_of_run(path):
        return Item("run", os.path.abspath(path)), []
    # A unit's state directory, say, has its runs one level down.
    for place in (path, os.path.join(path, "runs")):
        runs = sorted(runs_in(place), reverse=True)
        if runs:
            there = names if place == path else []
            return Item("run", runs[0].path), list(_chosen(place, there, len(runs)))
    parent, name = os.path.split(os.path.abspath(path))
    part = name.startswith("attempt_")
    if part and os.path.exists(os.path.join(parent, contract.JOURNAL_FILE)):
        return Item("run", parent), [f"{path} is a part of run {parent}"]
    return Item("logs", path), []


def _chosen(path: str, names: Sequence[str], runs: int) -> Iterator[str]:
    if runs > 1:
        yield f"{path} holds {runs} runs; the newest is shown (name another to see it)"
    logs = sum(name.endswith((".log", ".out", ".err")) for name in names)
    if logs:
        many = "a log" if logs == 1 else f"{logs} logs"
        yield f"{path} holds {many} beside its runs, not read (name them to have them)"


def _of_file(path: str) -> Item:
    name = os.path.basename(path)
    parent = os.path.dirname(os.path.abspath(path))
    if name == contract.JOURNAL_FILE:
        return Item("run", parent)
    if name == contract.VERDICT_FILE:
        return Item("verdict", path)
    if name.endswith(".html"):
        raise UnreadableRunError(
            f"cannot diagnose {path}, because it is a page (open it in a browser; give "
            "the run directory, or the logs)"
        )
    if name.endswith(BUNDLE_ENDINGS):
        return Item("bundle", path)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise _unreadable(path, error) from None
    return Item("logs", path)


def _refuse_endless(word: str, found: os.stat_result) -> None:
    """Refuse what is no file and never ends.

    Raises:
        SpecError: it is a device or a socket; says what to do instead.
    """
    mode = found.st_mode
    name = "standard input" if word == STDIN else word
    terminal = word == STDIN and stat.S_ISCHR(mode) and os.isatty(0)
    if stat.S_ISCHR(mode) and not terminal and found.st_rdev != _NULL:
        raise SpecError(f"cannot diagnose {name}, because it is a device (give a file)")
    if stat.S_ISBLK(mode) or (stat.S_ISSOCK(mode) and word != STDIN):
        what = "a device" if stat.S_ISBLK(mode) else "a socket"
        raise SpecError(f"cannot diagnose {name}, because it is {what} (give a file)")


def _unreadable(path: str, error: OSError) -> UnreadableRunError:
    reason = (error.strerror or str(error)).lower()
    return UnreadableRunError(
        f"cannot diagnose {path}, because it cannot be read: {reason}"
    )
