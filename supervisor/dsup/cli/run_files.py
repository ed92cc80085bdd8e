"""The files of a run directory, read by somebody who trusts none of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from dsup.cli.safe_files import Opened, is_directory, read_below, tail_below
from dsup.core.errors import DsupError, SpecError
from dsup.core.printable import printable
from dsup.edges.scribe.retention import NAME, is_alive
from dsup.facts import samples
from dsup.linux import file_lock
from dsup.report import last_seen
from dsup.report.typed import a_dict, loads
from dsup.report.verdict_file import FILE_MAX_BYTES, Kept, decode
from dsup_runtime import contract

JOURNAL_MAX_BYTES: Final = 32 * 1024 * 1024
"""Of a longer journal its end is read: it tells how the run ended."""

_PAGE_MAX_BYTES: Final = 1 << 20
_SAMPLES_MAX_BYTES: Final = 1 << 20
_RUN_FILE_MAX_BYTES: Final = 4 * 1024 * 1024
_CLOSED_MAX_BYTES: Final = 4096
_NAME_MAX_CHARS: Final = 255
_ATTEMPTS_MAX: Final = 1000
_TAIL_BYTES: Final = 4096
_CANNOT: Final = "cannot diagnose "
_EXIT: Final = b'"command":"exit"'
_OWN_FILES: Final = (
    contract.VERDICT_FILE,
    contract.HEARTBEATS_FILE,
    contract.SAMPLES_FILE,
    contract.OUTCOME_FILE,
)
"""What torchrun, whose rank logs have the same names, leaves in no attempt."""


class UnreadableRunError(DsupError):
    """A directory is no run's, or cannot be read."""

    exit_code = 1


@contextmanager
def told_as(verb: str) -> Iterator[None]:
    """Have refusals say what the command could not do, in place of ``diagnose``."""
    try:
        yield
    except (UnreadableRunError, SpecError) as error:
        said = str(error)
        if not said.startswith(_CANNOT):
            raise
        raise type(error)(f"cannot {verb} {said.removeprefix(_CANNOT)}") from None


class RunFiles(NamedTuple):
    """What a run directory holds.

    Attributes:
        path: where it is.
        known: run.json; empty if it cannot be read.
        lines: the journal; of a run that was cut off, or goes on, with what was seen
            last of its ranks as one more line.
        written_s: when the journal was last written, CLOCK_REALTIME, seconds.
        verdicts: the verdict of each attempt that has a readable one.
        odd: names of verdicts that cannot be read.
        alive: a scribe holds the journal, or its agent lives on this node; None where
            that cannot be found out.
    """

    path: str
    known: dict[str, object]
    lines: list[str]
    written_s: float
    verdicts: dict[int, Kept]
    odd: tuple[str, ...]
    alive: bool | None


def read_run(path: str) -> RunFiles:
    """Return what a run directory holds.

    Raises:
        UnreadableRunError: it holds no journal that can be read.
    """
    name = contract.JOURNAL_FILE
    try:
        with Opened(path, name) as fd:
            alive = _is_alive(path, fd)  # first: what is written until then, is read
            lines = _lines(fd)
            written_s = os.fstat(fd).st_mtime
    except FileNotFoundError:
        raise UnreadableRunError(
            f"cannot diagnose {path}, because it holds no {name}: it is no run "
            "directory of dsup's (give the directory of one run)"
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UnreadableRunError(
            f"cannot diagnose {path}, because its {name} cannot be read: {reason}"
        ) from None
    verdicts, odd = read_verdicts(path)
    lines += _unwritten(path, lines)
    return RunFiles(path, run_file(path), lines, written_s, verdicts, odd, alive)


def is_over(path: str) -> bool:
    """Return whether a run has ended, or its directory has gone.

    Where no lock can tell, its journal does: a run whose agent was killed goes on then.
    """
    try:
        with Opened(path, contract.JOURNAL_FILE) as fd:
            alive = _is_alive(path, fd)
            if alive is None:
                size = os.fstat(fd).st_size
                tail = os.pread(fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
                return _EXIT in tail
    except OSError:
        return True
    return not alive


def run_file(path: str) -> dict[str, object]:
    """Return what a run's run.json says; nothing if it cannot be read."""
    try:
        return a_dict(loads(read_below(path, contract.RUN_FILE, _RUN_FILE_MAX_BYTES)))
    except (OSError, ValueError):
        return {}


def why_unknown(path: str) -> str:
    """Return why ``run_file`` has nothing to say."""
    name = contract.RUN_FILE
    try:
        empty = not read_below(path, name, _RUN_FILE_MAX_BYTES).strip()
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {(error.strerror or str(error)).lower()}"
    return f"{name} is empty" if empty else f"{name} is cut off or damaged"


def is_of_run(path: str) -> bool:
    """Return whether a directory holds what only a run of dsup's leaves behind.

    So it is told where neither journal nor run.json is there.
    """
    attempt = contract.attempt_dir(path, 0)
    if NAME.fullmatch(os.path.basename(os.path.abspath(path))):
        return os.path.isdir(attempt)
    return any(os.path.lexists(os.path.join(attempt, name)) for name in _OWN_FILES)


def page_of(path: str, attempt: int) -> bytes:
    """Return the heartbeat page of an attempt, as it was kept; empty for none."""
    name = f"{contract.attempt_dir('', attempt)}/{contract.HEARTBEATS_FILE}"
    try:
        return read_below(path, name, _PAGE_MAX_BYTES)
    except OSError:
        return b""


def samples_of(path: str, attempt: int) -> tuple[samples.Sample, ...]:
    """Return the last samples of an attempt, those of some minutes at least."""
    name = f"{contract.attempt_dir('', attempt)}/{contract.SAMPLES_FILE}"
    last = tail_below(path, name, _SAMPLES_MAX_BYTES)
    return samples.decode_all(last.split(b"\n"))


def closed_by(path: str) -> str | None:
    """Return the run whose launch closed this one; empty if unknown, None for none."""
    try:
        raw = read_below(path, contract.CLOSED_FILE, _CLOSED_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    with suppress(ValueError):
        by = a_dict(loads(raw)).get("by")
        if isinstance(by, str):
            return printable(by[:_NAME_MAX_CHARS])
    return ""


def read_verdicts(path: str) -> tuple[dict[int, Kept], tuple[str, ...]]:
    """Return a run's verdicts by attempt, and names of those that cannot be read."""
    kept, odd = {}, []
    for number in _attempts(path):
        name = f"{contract.attempt_dir('', number)}/{contract.VERDICT_FILE}"
        try:
            found = decode(read_below(path, name, FILE_MAX_BYTES + 1))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            odd.append(name)
            continue
        if found.verdict.attempt == number:
            kept[number] = found
        else:
            odd.append(name)
    return kept, tuple(odd)


def goes_on(path: str) -> bool | None:
    """Return whether somebody writes a run's journal; None where nobody can tell.

    Raises:
        OSError: it has none that can be read.
    """
    with Opened(path, contract.JOURNAL_FILE) as fd:
        return _is_alive(path, fd)


def _is_alive(path: str, journal_fd: int) -> bool | None:
    """Return whether a scribe holds the journal, or else the agent is there.

    Between two scribes nobody holds it.
    """
    held = file_lock.is_shared(journal_fd)
    return held or is_alive(run_file(path)) or held


def _lines(fd: int) -> list[str]:
    size = os.fstat(fd).st_size
    start = max(0, size - JOURNAL_MAX_BYTES)
    raw = os.pread(fd, JOURNAL_MAX_BYTES, start)
    whole = raw[raw.find(b"\n") + 1 :] if start else raw
    return whole.decode(errors="replace").split("\n")


def _unwritten(path: str, lines: list[str]) -> list[str]:
    """Return what a journal's next line would have said, had somebody written it."""
    cut = last_seen.cut(lines)
    if cut is None:
        return []
    page, known = page_of(path, cut.attempt), samples_of(path, cut.attempt)
    return list(filter(None, [last_seen.one_more(cut, page, known)]))


def _attempts(path: str) -> Iterator[int]:
    for number in range(_ATTEMPTS_MAX):
        if not is_directory(path, contract.attempt_dir("", number)):
            return
        yield number
