"""``run.json``: what was asked for and where it came from, without secrets."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from typing import Final, NamedTuple

from dsup.core.job import Job
from dsup.report.secret_names import MASK, is_secret, may_hold_secret

_ARGUMENTS: Final = "args"


class Agent(NamedTuple):
    """Which process the agent is.

    Attributes:
        boot_id: the kernel's name for the time since the node was booted.
        pid: the agent's.
        start: when it was made, clock ticks since boot; None if unknown.
    """

    boot_id: str
    pid: int
    start: int | None


def run_file(
    job: Job, agent: Agent, wall_ns: int, monotonic_ns: int, control: str = ""
) -> bytes:
    """Return the content of run.json.

    Args:
        job: what was asked for.
        agent: who runs it.
        wall_ns: CLOCK_REALTIME, nanoseconds, paired with
        monotonic_ns: CLOCK_MONOTONIC, nanoseconds.
        control: where the control socket is; empty for the run directory.
    """
    environment = {
        name: MASK if is_secret(name) else _text(value)
        for name, value in sorted(job.environment.items())
    }
    fields = {
        "schema": "dsup.run/1",
        "run_id": job.run_id,
        "argv": _words(job.argv),
        "world_size": job.spec.world_size,
        "options": {
            o.name: {"value": shown(o.name, o.value), "origin": o.origin}
            for o in job.options
        },
        "environment": environment,
        "host": platform.node(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "boot_id": agent.boot_id,
        "agent": {"pid": agent.pid, "start": agent.start},
        "clocks": {"realtime_ns": wall_ns, "monotonic_ns": monotonic_ns},
    }
    fields |= origin(job)
    if control:
        fields["control"] = control
    if job.preflight:
        names = ("check", "state", "text", "fix")
        fields["preflight"] = [
            dict(zip(names, map(_text, row), strict=True)) for row in job.preflight
        ]
    return json.dumps(fields, indent=1).encode(errors="surrogateescape") + b"\n"


def origin(job: Job) -> dict[str, str]:
    """Return where a launch comes from, as run.json has it."""
    return {name: _text(value) for name, value in job.parentage._asdict().items()}


def shown(name: str, value: str) -> str:
    """Return an option's value without secrets."""
    if name != _ARGUMENTS:
        return MASK if value and is_secret(name) else _text(value)
    # They were joined by spaces; what is in quotes or braces holds more than a word.
    return " ".join(_words(_text(value).split(" ")))


def _text(text: str) -> str:
    if not may_hold_secret(text):
        return text
    # The agent comes here before its first rank runs: most runs need not wait for it.
    from dsup.report.masked import masked_text

    return masked_text(text)


def _words(words: Sequence[str]) -> list[str]:
    if not may_hold_secret(" ".join(words)):
        return list(words)
    from dsup.report.masked import masked_words

    return masked_words(words)
