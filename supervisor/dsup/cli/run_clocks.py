"""How a run's clock stands to the time of day, and when the run began.

run.json tells it. Where it is gone or cut off, what is left of the run does, less well.
"""

from __future__ import annotations

import os
import time
from calendar import timegm
from contextlib import suppress
from typing import Final, NamedTuple

from dsup.cli.run_files import RunFiles
from dsup.edges.scribe.retention import NAME
from dsup.report.account import Account
from dsup_runtime import contract

_CLOCK_MAX_S: Final = 1 << 40


class Clocks(NamedTuple):
    """What is known of a run's time.

    Attributes:
        offset_s: CLOCK_REALTIME minus the agent's clock, seconds.
        started_s: when the run began, CLOCK_REALTIME, seconds.
        source: what tells it, in words.
    """

    offset_s: float
    started_s: float
    source: str


def clocks(files: RunFiles, told: Account) -> Clocks:
    """Return a run's clocks, from the best source there is."""
    found = (_of_run_file(files), _of_verdicts(files, told), _of_name(files, told))
    last_s = told.last.at_s if told.last else 0.0
    guess = files.written_s - last_s, files.written_s
    return next(filter(None, found), Clocks(*guess, "the journal's last change"))


def _of_run_file(files: RunFiles) -> Clocks | None:
    found = files.known.get("clocks")
    if isinstance(found, dict):
        wall_ns, agent_ns = found.get("realtime_ns"), found.get("monotonic_ns")
        if type(wall_ns) is int and type(agent_ns) is int:
            offset_s, wall_s = (wall_ns - agent_ns) / 1e9, wall_ns / 1e9
            if 0 <= offset_s <= _CLOCK_MAX_S and wall_s <= _CLOCK_MAX_S:
                return Clocks(offset_s, wall_s, contract.RUN_FILE)
    return None


def _of_verdicts(files: RunFiles, told: Account) -> Clocks | None:
    """Return what a rank's end tells, which a verdict has in the time of day."""
    start_s = _start_s(told)
    for number, kept in sorted(files.verdicts.items()) if start_s else ():
        life = told.lives.get(number)
        ends = {end.rank: end.at_s for end in life.ends} if life else {}
        for one in kept.verdict.evidence:
            if one.source == "status" and one.at_s is not None and one.rank in ends:
                offset_s = one.at_s - ends[one.rank]
                return Clocks(offset_s, start_s + offset_s, "its verdicts")
    return None


def _of_name(files: RunFiles, told: Account) -> Clocks | None:
    """Return what a run's name tells: the second in which it was launched."""
    name = os.path.basename(os.path.abspath(files.path))
    start_s = _start_s(told)
    if not NAME.fullmatch(name) or not start_s:
        return None
    with suppress(ValueError):
        stamp = time.strptime(name.partition("-")[0], "%Y%m%dT%H%M%SZ")
        wall_s = float(timegm(stamp))
        return Clocks(wall_s - start_s, wall_s, "the directory's name")
    return None


def _start_s(told: Account) -> float:
    """Return when the first rank ran, agent clock, seconds; 0 if unknown."""
    first = told.lives.get(0)  # a long journal is read from its end
    return (first.started_s if first else None) or 0.0
