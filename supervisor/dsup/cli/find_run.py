"""Which run directory is meant: the newest, or one by its name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from dsup.cli.run_dir import _defaults
from dsup.cli.run_files import read_run, run_file
from dsup.core.errors import DsupError, SpecError
from dsup.edges.scribe.retention import NAME
from dsup.report import account
from dsup_runtime import contract

_NAMED_MAX: Final = 5
_IDS_MAX: Final = 500
"""So many runs are looked into for a run id that is not in their name."""


class Run(NamedTuple):
    """A run directory; of two runs, the newer one is the greater.

    Attributes:
        second: when it began, as its name begins.
        written_s: when its journal was last written, for those of one second.
    """

    second: str
    written_s: float
    name: str
    parent: str

    @property
    def path(self) -> str:
        """Where it is."""
        return os.path.join(self.parent, self.name)


def find_run(asked: str, environment: Mapping[str, str]) -> str:
    """Return the directory of the run that is meant.

    Args:
        asked: a run id, or a part of a run's name; empty for the newest.
        environment: names the places where runs are kept.

    Raises:
        SpecError: there is none, or more than one.
    """
    if "/" in asked:
        raise SpecError(
            f"cannot find {asked}, because there is no such file or directory "
            "(without an argument the newest run is taken)"
        )
    runs, where = all_runs(environment), kept_in(environment)
    if not runs:
        named = f"{asked}, because it is no file, and no run" if asked else ""
        raise SpecError(
            f"cannot find {named or 'a run, because none'} is kept in {where} "
            "(give its directory)"
        )
    return _by_name(asked, runs, where).path if asked else runs[0].path


def kept_in(environment: Mapping[str, str]) -> str:
    """Return where runs are looked for, in words."""
    places = ", ".join(_places(environment))
    return places or _asked(environment) or "any default place"


def named_like(word: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of runs that have a word in them."""
    for place in _places(environment):
        yield from (run.name for run in runs_in(place) if word in run.name)


def all_runs(environment: Mapping[str, str]) -> list[Run]:
    """Return every run where dsup launch keeps runs, the newest first."""
    places = _places(environment)
    return sorted((run for place in places for run in runs_in(place)), reverse=True)


def runs_in(parent: str) -> Iterator[Run]:
    """Yield the runs in a directory; none where it cannot be read."""
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in filter(NAME.fullmatch, names):
        try:
            found = os.lstat(os.path.join(parent, name, contract.JOURNAL_FILE))
        except OSError:
            continue
        yield Run(name.partition("-")[0], found.st_mtime, name, parent)


def likely(asked: str, runs: list[Run]) -> tuple[list[Run], list[Run], list[Run]]:
    """Return runs of exactly that name, those with it in theirs, those of that id."""
    named = [run for run in runs if asked in run.name]
    exact = [run for run in named if asked in (run.name, run.name.rpartition("_")[0])]
    of_id = [] if named else [run for run in runs[:_IDS_MAX] if _id(run) == asked]
    return exact, named, of_id


def _by_name(asked: str, runs: list[Run], where: str) -> Run:
    exact, named, of_id = likely(asked, runs)
    # Launched again and again under one id of its owner's, the newest is meant.
    found = exact[:1] or named or of_id[:1]
    if not found and os.path.splitext(asked)[1]:
        raise SpecError(
            f"cannot find {asked}, because there is no such file here, and no run "
            f"in {where} has that in its name"
        )
    if not found:
        raise SpecError(
            f"cannot find run {asked}, because no run in {where} has that in its name "
            f"or as its id (the newest is {runs[0].name})"
        )
    if len(found) > 1:
        names = ", ".join(map(_told, found[:_NAMED_MAX]))
        more = ", …" if len(found) > _NAMED_MAX else ""
        raise SpecError(
            f"cannot tell which run {asked} is, because {len(found)} names have that "
            f"in them: {names}{more} (give more of the name)"
        )
    return found[0]


def _told(run: Run) -> str:
    """Return a run's name and what became of it; its name tells when it began."""
    try:
        files = read_run(run.path)
        became = str(account.state(account.account(files.lines), files.alive))
    except DsupError:
        became = "cannot be read"
    return f"{run.name} ({became})"


def _places(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the directories where runs of this user may be, each once.

    Where one was asked for, it alone: there ``dsup launch`` keeps them.
    """
    asked = _asked(environment)
    for place in [asked] if asked else dict.fromkeys(_defaults(environment)):
        try:
            owner = os.stat(place).st_uid
        except OSError:
            continue
        if place == asked or owner in (os.getuid(), 0):
            yield place


def _asked(environment: Mapping[str, str]) -> str:
    return environment.get("DSUP_RUNS_DIR") or environment.get("PET_LOG_DIR") or ""


def _id(run: Run) -> object:
    return run_file(run.path).get("run_id")
