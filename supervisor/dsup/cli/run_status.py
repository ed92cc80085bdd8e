"""The status document of a run directory: from its agent, or from its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from dsup import control_client
from dsup.cli.asked import meant
from dsup.cli.run_files import (
    RunFiles,
    UnreadableRunError,
    page_of,
    read_run,
    run_file,
    samples_of,
)
from dsup.core.errors import JournalError, SpecError
from dsup.core.ledger import balance
from dsup.report import account, ledger, past
from dsup.report.snapshot import Name

_NS: Final = 1e-9


def run_path(word: str | None, environment: Mapping[str, str]) -> str:
    """Return the directory of the run that is meant.

    Args:
        word: of the command line; None for the newest run.
        environment: names the places where runs are kept.

    Raises:
        SpecError: there is no such run, or more than one.
        UnreadableRunError: it is nothing that can be read.
    """
    item = meant([] if word is None else [word], environment).items[0]
    if item.kind != "run":
        raise SpecError(
            f"cannot ask {word}, because it is no run directory of dsup's (give a "
            "run's name, or its directory)"
        )
    return item.path


def status_of(path: str) -> Mapping[str, Any]:
    """Return the status document of a run, live where its agent answers.

    Raises:
        UnreadableRunError: it holds no journal that can be read.
        NoAnswerError: its agent refuses, or does not answer.
    """
    try:
        return ask(path, {"ask": "status"})
    except control_client.NotRunningError:
        return from_files(read_run(path))


def ask(
    path: str,
    request: Mapping[str, object],
    deadline_s: float = control_client.DEADLINE_S,
) -> Mapping[str, Any]:
    """Return the answer of a run's agent.

    Args:
        path: the run directory.
        request: such as ``{"ask": "status"}``.
        deadline_s: how long it may take, seconds.

    Raises:
        NotRunningError: nobody listens.
        NoAnswerError: it refuses, or does not answer.
    """
    socket = control_client.socket_of(path, run_file(path))
    return control_client.ask(socket, request, deadline_s)


def from_files(files: RunFiles) -> dict[str, Any]:
    """Return the status document of a run as its directory tells it.

    Raises:
        UnreadableRunError: not one line of its journal can be read.
    """
    told = account_of(files)
    began_s, offset_s = _clocks(files.known)
    kept = files.verdicts
    return past.document(
        past.Past(
            name=_name(files),
            told=told,
            lines=files.lines,
            alive=files.alive,
            began_s=began_s,
            offset_s=offset_s,
            written_s=files.written_s,
            verdicts=[kept[number].verdict for number in sorted(kept)],
            page=page_of(files.path, told.attempt),
            samples=samples_of(files.path, told.attempt),
        ),
        _ledger(files, offset_s),
    )


def account_of(files: RunFiles) -> account.Account:
    """Return what a run's journal tells.

    Raises:
        UnreadableRunError: not one line of it can be read.
    """
    try:
        return account.account(files.lines)
    except JournalError as error:
        reason = str(error).partition("because ")[2]
        raise UnreadableRunError(
            f"cannot diagnose {files.path}, because its journal cannot be read: "
            f"{reason}"
        ) from None


def _ledger(files: RunFiles, offset_s: float | None) -> Mapping[str, Any] | None:
    """Return where the time went; of a run that goes on, until its last word."""
    now_s = None
    if files.alive and offset_s is not None:
        now_s = files.written_s - offset_s
    found = balance(ledger.of_journal(files.lines), now_s)
    return found and ledger.document(found)


def _name(files: RunFiles) -> Name:
    """Return which run it is; its directory's name tells the program and the node."""
    run, known = os.path.basename(files.path), files.known
    words, _, host = run.rpartition("_")
    run_id, node = known.get("run_id"), known.get("host")
    return Name(
        run=run,
        run_id=run_id if isinstance(run_id, str) else words,
        run_dir=files.path,
        node=node if isinstance(node, str) else host,
        program=words.partition("-")[2].rpartition("-")[0] or words,
    )


def _clocks(known: Mapping[str, object]) -> tuple[float | None, float | None]:
    """Return when a run began on its agent's clock, and how far that was behind."""
    match known.get("clocks"):
        case {"realtime_ns": int(wall_ns), "monotonic_ns": int(monotonic_ns)}:
            return monotonic_ns * _NS, (wall_ns - monotonic_ns) * _NS
        case _:
            return None, None
