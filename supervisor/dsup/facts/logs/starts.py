"""Where in a log an attempt or a run begins and ends. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dsup.facts.logs import own_words
from dsup.facts.logs.line import LogLine

_COMMAND: Final = re.compile(
    r"(?:\+ |(?:\([\w.-]{1,40}\) )?[\w.@:~/-]{0,100}[$#] )?(?:\S{0,200}/)?"
    r"(?:srun|mpirun|mpiexec|horovodrun|torchrun|deepspeed|accelerate launch|composer"
    r"|python3? -m torch\.distributed\.\w{3,6})(?: |$)"
)
_RESTARTS: Final = re.compile(r"\s{0,8}restart_count=(\d{1,6})\b")
_REPLY: Final = re.compile(
    r"Setting worker\d{1,6} reply file to: .{0,400}/attempt_(\d{1,6})/"
)
_SPAWNED: Final = re.compile(
    r"process \d{1,8} spawned with command: .{0,4000}local_rank=(\d+)"
)
_MEMBER: Final = re.compile(
    r"Initializing distributed: GLOBAL_RANK: (\d{1,6}), MEMBER: "
)

_OF_AGENT: Final = re.compile(
    r"\(exitcode: -?\d{1,5}\) local_rank: \d{1,6} \(pid: (\d{1,9})\)"
    r"|Sending process (\d{1,9}) closing signal"
)

_STARTS: Final = (
    "Starting elastic_operator with launch configs",
    "Starting with JobEnvironment(",
    "] cmd = ",
    "WORLD INFO DICT: ",
    "Setting OMP_NUM_THREADS environment variable for each process",
)
_AGAIN: Final = (
    "will restart worker group",
    "Restarting worker group",
)
_ENDS: Final = (
    "ChildFailedError",
    "exits with return code",
    "exits successfully",
    "Killing subprocess ",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
    "srun: error: ",
    "srun: Force Terminated",
    "CANCELLED AT",
    "mpirun detected that",
    "mpirun noticed that",
    "mpiexec noticed that",
    "mpiexec detected that",
    "crashed with exit code",
    "exited with code",
    "Requeued job",
    "Exiting gracefully",
    "Job has completed",
    "Root Cause (first observed failure)",
)


class Sign(NamedTuple):
    """What a line tells of attempts.

    Attributes:
        kind: ``start`` of a run by a launcher, ``attempt`` that a launcher counts,
            ``again``: the next attempt begins after this line, ``failed``: an agent
            has seen a worker fail, ``closing``: it ends one, ``end``.
        number: of the attempt, or the pid of an agent's worker; None if not told.
        key: whose start it is, or which agent's word; a second one of the same is of
            another run. Empty for nobody's.
    """

    kind: str
    number: int | None = None
    key: str = ""


def sign(line: LogLine) -> Sign | None:
    """Return what a line tells of attempts; None for nothing."""
    text = line.text
    told = _numbered(text)
    if told is not None:
        return told
    if any(word in text for word in _AGAIN):
        return Sign("again")
    told = _start(line, text)
    if told is not None:
        return told
    if any(word in text for word in _ENDS) or own_words.is_header(text):
        return Sign("end")
    if "(exitcode: " in text or "closing signal" in text:
        return _of_agent(line)
    return None


def _numbered(text: str) -> Sign | None:
    if "attempt_" in text and (found := _REPLY.search(text)):
        return Sign("attempt", int(found[1]))
    if "restart_count=" in text and (found := _RESTARTS.match(text)):
        return Sign("attempt", int(found[1]))
    return None


def _start(line: LogLine, text: str) -> Sign | None:
    if any(word in text for word in _STARTS) or _COMMAND.match(text):
        return Sign("start")
    if own_words.is_start(text):
        return Sign("start")
    if "spawned with" in text and (found := _SPAWNED.search(text)):
        return Sign("start", key=f"{line.place.node} {found[1]}")
    if "GLOBAL_RANK" in text and (found := _MEMBER.search(text)):
        return Sign("start", key=f"member {found[1]}")
    return None


def _of_agent(line: LogLine) -> Sign | None:
    """Return that an agent saw a worker fail, once in each attempt, or ends one."""
    place, found = line.place, _OF_AGENT.search(line.text)
    if found is None or place.pid is None:
        return None
    key = f"{place.node} {place.label} {place.pid}"
    if found[2]:
        return Sign("closing", int(found[2]), key)
    return Sign("failed", int(found[1]), key)
