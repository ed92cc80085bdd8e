"""``run.json``: what was asked for and where it came from, without secrets."""

from __future__ import annotations

import json
import platform
from typing import Final

from dsup.core.job import Job

_SECRET_WORDS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def run_file(job: Job, boot_id: str, wall_ns: int, monotonic_ns: int) -> bytes:
    """Return the content of run.json.

    Args:
        job: what was asked for.
        boot_id: the kernel's name for the time since the node was booted.
        wall_ns: CLOCK_REALTIME, nanoseconds, paired with
        monotonic_ns: CLOCK_MONOTONIC, nanoseconds.
    """
    environment = {
        name: "***" if is_secret(name) else value
        for name, value in sorted(job.environment.items())
    }
    fields = {
        "schema": "dsup.run/1",
        "run_id": job.run_id,
        "argv": job.argv,
        "world_size": job.spec.world_size,
        "options": {
            o.name: {"value": o.value, "origin": o.origin} for o in job.options
        },
        "environment": environment,
        "host": platform.node(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "boot_id": boot_id,
        "clocks": {"realtime_ns": wall_ns, "monotonic_ns": monotonic_ns},
    }
    return json.dumps(fields, indent=1).encode(errors="surrogateescape") + b"\n"


def is_secret(name: str) -> bool:
    """Return whether the value of a variable is to be masked."""
    return any(word in name.upper() for word in _SECRET_WORDS)
