"""What ranks wrote around a death, for the page: the end of a log, or lines of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from dsup.cli.answer import Diagnosis
from dsup.cli.safe_files import Opened, tail_below
from dsup.core.verdict import LOOKED_AT, Verdict
from dsup_runtime import contract

_TAIL_BYTES: Final = 64 << 10
_BEFORE: Final = 40
_AFTER: Final = 10
_SEARCHED_MAX_BYTES: Final = 256 << 20
"""A line further down a log is not looked for."""

_LINE_MAX_BYTES: Final = 64 << 10


class Output(NamedTuple):
    """Lines of a log.

    Attributes:
        place: the log, or which of its lines they are.
    """

    place: str = ""
    lines: tuple[str, ...] = ()


def last_output(found: Diagnosis) -> Output:
    """Return the end of what the first rank wrote: of stderr, else of stdout."""
    if not found.cases or not found.cases[-1].verdict.first_ranks:
        return Output()
    verdict = found.cases[-1].verdict
    directory = contract.rank_dir("", verdict.attempt, verdict.first_ranks[0])
    for name in (contract.STDERR_FILE, contract.STDOUT_FILE):
        raw = _tail(found.path, f"{directory}/{name}")
        if raw.strip():
            lines = raw.decode(errors="backslashreplace").splitlines()
            return Output(f"{directory}/{name}", tuple(lines))
    return Output()


def around_proof(verdict: Verdict) -> Output:
    """Return the lines of a log around the one that proves most; none if unknown."""
    proof = next(iter(verdict.evidence), None)
    if proof is None or not proof.file or proof.line is None:
        return Output()
    if proof.text.startswith(LOOKED_AT):
        return Output()
    first, last = max(1, proof.line - _BEFORE), proof.line + _AFTER
    lines = tuple(_lines(proof.file, first, last))
    if not lines:
        return Output()
    return Output(f"lines {first} to {first + len(lines) - 1}", lines)


def _lines(path: str, first: int, last: int) -> Iterator[str]:
    """Yield lines of a regular file, counted from 1; none where it cannot be read."""
    try:
        with Opened(*os.path.split(os.path.realpath(path))) as fd:
            read = 0
            with os.fdopen(os.dup(fd), "rb") as file:
                number = 1
                while number <= last and read < _SEARCHED_MAX_BYTES:
                    line = file.readline(_LINE_MAX_BYTES)
                    if not line:
                        return
                    read += len(line)
                    if number >= first:
                        yield line.rstrip(b"\r\n").decode(errors="backslashreplace")
                    number += line.endswith(b"\n")
    except OSError:
        return


def _tail(top: str, below: str) -> bytes:
    """Return the last whole lines of a file; none where it cannot be read."""
    raw = tail_below(top, below, _TAIL_BYTES)
    return raw if len(raw) < _TAIL_BYTES else raw[raw.find(b"\n") + 1 :]
