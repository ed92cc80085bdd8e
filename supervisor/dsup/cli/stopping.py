"""Asks for the end of a run, and waits for it with a line that tells how far it is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from dsup.cli.find_run import all_runs
from dsup.cli.run_files import RunFiles, read_run
from dsup.cli.run_status import account_of, ask
from dsup.cli.stop_choice import live
from dsup.control_client import NotRunningError
from dsup.core.errors import SpecError
from dsup.core.printable import printable
from dsup.edges.scribe.retention import is_alive
from dsup.report import account
from dsup_runtime import contract

_LOOK_S: Final = 0.2
_WRITTEN_S: Final = 10.0
"""So long what the agent has handed over may take to be written."""

_NAMED_MAX: Final = 3
_CLEAR: Final = "\r\x1b[K"


def ask_to_stop(path: str, environment: Mapping[str, str], *, now: bool) -> None:
    """Have a run's agent end it.

    Args:
        path: the run directory.
        environment: names the places where runs are kept.
        now: kill the ranks.

    Raises:
        SpecError: it does not run, or not here.
        NoAnswerError: its agent refuses, or does not answer.
    """
    try:
        ask(path, {"ask": "stop", "now": now})
    except NotRunningError as error:
        raise _idle(path, environment, str(error)) from None


def wait(path: str) -> str:
    """Wait until a run is over; return what became of it, as one line."""
    with _line() as show:
        while True:
            try:
                show(_progress(ask(path, {"ask": "status"})))
            except NotRunningError:
                break
            time.sleep(_LOOK_S)
        files = _written(path)
    became = account.outcome(account.account(files.lines), files.alive)
    return f"{os.path.basename(path)}: {became}"


def _written(path: str) -> RunFiles:
    """Return the files of a run whose agent has gone, once the last is written."""
    until_s = time.monotonic() + _WRITTEN_S
    while (files := read_run(path)).alive and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return files


def _progress(told: Mapping[str, Any]) -> str:
    """Return how far a stop is, for a terminal's line."""
    alive, size, stop = told.get("alive"), told.get("world_size"), told.get("stop")
    parts = [f"{alive} of {size} ranks left", str(told.get("stage"))]
    if isinstance(told.get("step"), int):
        parts.append(f"step {told['step']:,}")
    left_s = stop.get("kill_in_s") if isinstance(stop, dict) else None
    if isinstance(left_s, int | float) and alive:
        parts.append(f"SIGKILL in {left_s:.0f} s")
    return printable(f"stopping: {', '.join(parts)}")


@contextmanager
def _line() -> Iterator[Any]:
    """Give a function that shows a line in place of the one before; on a terminal."""
    shows = sys.stderr.isatty()

    def show(text: str) -> None:
        if shows:
            width = max(1, os.get_terminal_size(sys.stderr.fileno()).columns - 1)
            print(f"{_CLEAR}{text[:width]}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if shows:
            print(_CLEAR, end="", file=sys.stderr, flush=True)


def _idle(path: str, environment: Mapping[str, str], why: str) -> SpecError:
    """Return why a run cannot be stopped whose agent is not there."""
    name, files = os.path.basename(path), read_run(path)
    told = account_of(files)
    host, here = files.known.get("host"), os.uname().nodename
    others = [run.name for run in live(all_runs(environment))]
    also = f" (still running: {', '.join(others[:_NAMED_MAX])})" if others else ""
    if account.state(told, files.alive) == "running" and host in (None, here):
        return SpecError(f"cannot stop {name}, because {_unheard(files, why)}{also}")
    if account.state(told, files.alive) == "running":
        return SpecError(
            f"cannot stop {name}, because it runs on {host}, and this is {here} (run "
            "dsup stop there)"
        )
    became = account.outcome(told, files.alive)
    return SpecError(f"cannot stop {name}, because {became}{also}")


def _unheard(files: RunFiles, why: str) -> str:
    """Return why nobody hears the wish though a run seems to go on.

    Args:
        files: the run's.
        why: its socket does not lead to anybody.
    """
    agent = files.known.get("agent")
    if is_alive(files.known) and isinstance(agent, dict):
        pid = agent.get("pid")
        return f"its agent, pid {pid}, does not listen (kill -INT {pid} stops the run)"
    if isinstance(agent, dict):
        journal = os.path.join(files.path, contract.JOURNAL_FILE)
        return (
            "its agent is gone, and so is the run; somebody still holds its journal "
            f"(see who: fuser {journal})"
        )
    return f"its agent is not there: {why.partition('because ')[2]}"
