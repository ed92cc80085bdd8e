"""Where in a log an attempt or a run begins and ends. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

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
            ``again``: the next attempt begins after this line, ``end``.
        number: of the attempt; None if not told.
        key: whose start it is; a second one of the same is of another run. Empty for
            nobody's.
    """

    kind: str
    number: int | None = None
    key: str = ""


def sign(line: LogLine) -> Sign | None:
    """Return what a line tells of attempts; None for nothing."""
    text = line.text
    if "attempt_" in text and (found := _REPLY.search(text)):
        return Sign("attempt", int(found[1]))
    if "restart_count=" in text and (found := _RESTARTS.match(text)):
        return Sign("attempt", int(found[1]))
    if any(word in text for word in _AGAIN):
        return Sign("again")
    if any(word in text for word in _STARTS) or _COMMAND.match(text):
        return Sign("start")
    if "spawned with" in text and (found := _SPAWNED.search(text)):
        return Sign("start", key=f"{line.place.node} {found[1]}")
    if "GLOBAL_RANK" in text and (found := _MEMBER.search(text)):
        return Sign("start", key=f"member {found[1]}")
    if any(word in text for word in _ENDS):
        return Sign("end")
    return None
