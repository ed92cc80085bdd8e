"""Which files a bundle takes, how much of each, and what is left out. Decides only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.cli.answer import Diagnosis
from dsup.cli.safe_files import files_below, read_below
from dsup_runtime import contract

Logs: TypeAlias = Literal["all", "tail", "none"]
Form: TypeAlias = Literal["text", "json", "lines", "binary"]

LOUD_BYTES: Final = 1 << 20
"""Of the logs of first ranks and victims this much of the end is taken."""

QUIET_BYTES: Final = 64 << 10
FOREIGN_BYTES: Final = 16 << 20
WHOLE_BYTES: Final = 4 << 30
PART_BYTES: Final = 32 << 20
"""Of any other file of a run; a longer one is left out."""

FILES_MAX: Final = 20_000
TOTAL_BYTES: Final = 512 << 20
"""All that is taken together, before it is packed, unless all logs are asked for."""

_SNIFFED_BYTES: Final = 4096

_FORMS: Final[dict[str, Form]] = {
    ".json": "json",
    ".jsonl": "lines",
    ".txt": "text",
    ".log": "text",
    ".out": "text",
    ".err": "text",
}
_SKIPPED: Final = (contract.INDEX_SUFFIX, ".html", ".gz", ".tgz", ".sock")
_RANK_FILE_DEPTH: Final = 3  # attempt_0/1/stderr.log


class Part(NamedTuple):
    """A file, or its end, that goes into a bundle.

    Attributes:
        top: a directory of which nothing below is reached through a link.
        below: its path there.
        name: its name in the bundle.
        most: so many of its last bytes are taken.
        form: how secrets are found in it.
    """

    top: str
    below: str
    name: str
    most: int
    form: Form


class Choice(NamedTuple):
    """What a bundle holds.

    Attributes:
        parts: files, in order.
        left_out: what is not in it, and why, one line each.
    """

    parts: tuple[Part, ...]
    left_out: tuple[str, ...]


class _Taker:
    """Takes files as long as there is room."""

    def __init__(self, logs: Logs) -> None:
        self._room = WHOLE_BYTES if logs == "all" else TOTAL_BYTES
        self._parts: list[Part] = []
        self._left_out: list[str] = []

    def take(self, part: Part, size: int) -> None:
        """Take a file, or leave it out."""
        taken = min(size, part.most)
        if not part.most or taken > self._room or len(self._parts) >= FILES_MAX:
            self.leave(part.below, size)
            return
        self._room -= taken
        self._parts.append(part)

    def leave(self, below: str, size: int) -> None:
        """Note what is left out."""
        self._left_out.append(f"{below} ({size} bytes)")

    def choice(self) -> Choice:
        """Return what was taken."""
        return Choice(tuple(self._parts), tuple(self._left_out))


def of_run(found: Diagnosis, logs: Logs) -> Choice:
    """Return which files of a run directory a bundle takes."""
    loud, taker = _loud(found), _Taker(logs)
    for below, seen in files_below(found.path):
        form = _form(below)
        if form is None:
            if not below.endswith(_SKIPPED):
                taker.leave(below, seen.st_size)
            continue
        is_log = below.endswith((".log", ".log" + contract.ROTATED_SUFFIX))
        most = _log_most(below, loud, logs) if is_log else PART_BYTES
        cuttable = is_log or below == contract.JOURNAL_FILE
        if seen.st_size > most and not cuttable:
            most = 0
        part = Part(found.path, below, f"run/{below}", most, form)
        taker.take(part, seen.st_size)
    return taker.choice()


def of_logs(paths: Iterable[str], logs: Logs) -> Choice:
    """Return which of another launcher's files a bundle takes."""
    most = {"all": WHOLE_BYTES, "tail": FOREIGN_BYTES, "none": 0}[logs]
    taker = _Taker(logs)
    for number, path in enumerate(paths):
        for top, below, size in _foreign(path):
            part = Part(top, below, f"logs/{number}/{below}", most, "text")
            if _is_text(top, below):
                taker.take(part, size)
            else:
                taker.leave(below, size)
    return taker.choice()


def _is_text(top: str, below: str) -> bool:
    """Return whether a file looks like a log; a folder may hold checkpoints as well."""
    try:
        return b"\0" not in read_below(top, below, _SNIFFED_BYTES)
    except OSError:
        return True  # whoever packs it says why it cannot be read


def _foreign(path: str) -> Iterator[tuple[str, str, int]]:
    """Yield the files of a path: its directory, its name there, its size."""
    if os.path.isdir(path):
        for below, found in files_below(path):
            yield path, below, found.st_size
        return
    # What the user names is taken, also where that name is a link.
    top, name = os.path.split(os.path.realpath(path))
    yield top, name, os.path.getsize(path)


def _form(below: str) -> Form | None:
    """Return how a file of a run is read; None for one that nobody needs."""
    name = os.path.basename(below)
    if name == contract.HEARTBEATS_FILE:
        return "binary"
    if name.endswith(_SKIPPED):
        return None
    return _FORMS.get(os.path.splitext(name.removesuffix(contract.ROTATED_SUFFIX))[1])


def _loud(found: Diagnosis) -> set[str]:
    """Return the directories of first ranks and victims."""
    ranks = (
        (case.verdict.attempt, rank)
        for case in found.cases
        for rank in (
            *case.verdict.first_ranks,
            *(victim.rank for victim in case.verdict.victims),
        )
    )
    return {contract.rank_dir("", attempt, rank) for attempt, rank in ranks}


def _log_most(below: str, loud: set[str], logs: Logs) -> int:
    if logs != "tail":
        return WHOLE_BYTES if logs == "all" else 0
    shared = below.count("/") < _RANK_FILE_DEPTH - 1
    return LOUD_BYTES if shared or os.path.dirname(below) in loud else QUIET_BYTES
