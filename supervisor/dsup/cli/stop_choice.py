"""Which run ``dsup stop`` means: only one that goes on here, and never one of several.

What would be a guess, a newest run or a part of two names, could end somebody's work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from dsup.cli.find_run import Run, all_runs, kept_in, likely, runs_in
from dsup.cli.run_files import read_run, run_file
from dsup.cli.run_status import run_path
from dsup.control_client import listens, socket_of
from dsup.core.errors import DsupError, SpecError
from dsup.report import account
from dsup_runtime import contract

_NAMED_MAX: Final = 5


def run_to_stop(word: str | None, environment: Mapping[str, str]) -> str:
    """Return the directory of the run that is meant.

    Args:
        word: of the command line: a directory, a part of a name, or an id; None for
            the one that goes on.
        environment: names the places where runs are kept.

    Raises:
        SpecError: there is no such run, or more than one.
        UnreadableRunError: it is nothing that can be read.
    """
    if word is None:
        runs, where = all_runs(environment), kept_in(environment)
        return _only(runs, where).path if runs else run_path(None, environment)
    if word and os.path.isdir(word):
        inside = _inside(word)
        return _only(inside, word).path if inside else run_path(word, environment)
    if not word or "/" in word or os.path.lexists(word):
        return run_path(word, environment)
    exact, named, of_id = likely(word, live(all_runs(environment)))
    found = exact or named or of_id
    if len(found) > 1:
        raise _several(f"cannot tell which run {word} is", found)
    return found[0].path if found else run_path(word, environment)


def live(runs: Sequence[Run]) -> list[Run]:
    """Return those whose agents listen on this node."""
    return [run for run in runs if listens(socket_of(run.path, run_file(run.path)))]


def _inside(directory: str) -> list[Run]:
    """Return the runs in a directory that is none itself, the newest first."""
    if os.path.exists(os.path.join(directory, contract.JOURNAL_FILE)):
        return []
    return sorted(runs_in(os.path.abspath(directory)), reverse=True)


def _only(runs: Sequence[Run], where: str) -> Run:
    found = live(runs)
    if len(found) == 1:
        return found[0]
    if found:
        raise _several("cannot tell which run to stop", found)
    raise SpecError(
        f"cannot stop a run, because none of those in {where} runs here (the newest is "
        f"{runs[0].name}: {_became(runs[0])})"
    )


def _several(what: str, found: Sequence[Run]) -> SpecError:
    names = ", ".join(run.name for run in found[:_NAMED_MAX])
    more = ", …" if len(found) > _NAMED_MAX else ""
    return SpecError(
        f"{what}, because {len(found)} run here: {names}{more} (name one of them)"
    )


def _became(run: Run) -> str:
    try:
        files = read_run(run.path)
        return account.outcome(account.account(files.lines), files.alive)
    except DsupError:
        return "what became of it cannot be read"
