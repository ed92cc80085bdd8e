"""Stops of a whole job from outside, as its log tells them.

A signal to the launcher is one: hang-up and interrupt come from somebody at a
terminal, SIGTERM from a scheduler or an outer launcher. Slurm's ``CANCELLED AT`` alone
is none: it follows the first bad exit too; only its ``DUE TO`` is a reason.

Source: torch.distributed.elastic's agent, slurmd, submitit, Lightning, LSF, PBS.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.kept import Kept
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.said import Stop
from dsup.facts.logs.shown import shown

_SIGINT: Final = 2
_SIGTERM: Final = 15
_BY_USER: Final = frozenset({1, 2, 3})
"""SIGHUP, SIGINT and SIGQUIT: a terminal sends them."""

_SIGNAL: Final = re.compile(
    r"Received (\d{1,2}) death signal|Process \d{1,9} got signal: (\d{1,2})"
)
_NAMED: Final = re.compile(
    r"(?:Received|got signal:) (?:Signals\.)?(SIG(?:TERM|INT|HUP|QUIT))"
    r"(?: death signal|$)"
)
"""Python before 3.11 prints a signal by its name."""

_NAMES: Final = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGTERM": _SIGTERM}
_WORDS: Final = (
    (
        "time_limit",
        (
            "DUE TO TIME LIMIT",
            "TERM_RUNLIMIT",
            "exceeded limit walltime",
            "has timed out, attempting to requeue",
            "this job is timed-out",
        ),
    ),
    (
        "preempted",
        (
            "DUE TO PREEMPTION",
            "DUE TO JOB REQUEUE",
            "this job is preempted",
            "TERM_PREEMPT",
            "spot interruption",
            "Spot instance interruption",
            "instance is being preempted",
            "reason: Preempt",
            "was preempted",
        ),
    ),
)
_PBS: Final = re.compile(r"PBS: job killed: walltime \d{1,9} exceeded limit")


class Stops:
    """The stops that lines tell of.

    Attributes:
        stops: all of them.
    """

    def __init__(self) -> None:
        self.stops: Kept[Stop] = Kept(50, 50)

    def feed(self, line: LogLine) -> bool:
        """Take in a line; return whether it tells of a stop."""
        # What Slurm's daemon says stands in no line of a rank, unless it is quoted.
        quoted = line.ranked and "slurmstepd: " in line.text
        told = None if quoted else _stop(line.text)
        if told is None:
            return False
        cause, signum = told
        self.stops.add(
            Stop(
                cause,
                shown(line.text),
                line.file,
                line.number,
                line.order,
                line.at_s,
                signum,
            )
        )
        return True


def _stop(text: str) -> tuple[str, int | None] | None:
    signum = _signal(text) if "death signal" in text or " got signal: " in text else 0
    if signum:
        return ("user_interrupt" if signum in _BY_USER else "preempted"), signum
    if text.startswith("^C") or text.strip() == "KeyboardInterrupt":
        return "user_interrupt", _SIGINT
    for cause, words in _WORDS:
        if any(word in text for word in words):
            return cause, None
    return ("time_limit", None) if "PBS: " in text and _PBS.search(text) else None


def _signal(text: str) -> int:
    found, named = _SIGNAL.search(text), _NAMED.search(text)
    if found:
        return int(found[1] or found[2])
    return _NAMES[named[1]] if named else 0
