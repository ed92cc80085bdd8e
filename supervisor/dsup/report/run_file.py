"""``run.json``: what was asked for and where it came from, without secrets."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from typing import Final

from dsup.core.job import Job, Option

_ARGUMENTS: Final = "args"
MASK: Final = "***"
_ENDINGS: Final = ("key", "token", "secret", "password")
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
        name: MASK if is_secret(name) else value
        for name, value in sorted(job.environment.items())
    }
    fields = {
        "schema": "dsup.run/1",
        "run_id": job.run_id,
        "argv": without_secrets(job.argv),
        "world_size": job.spec.world_size,
        "options": {
            o.name: {"value": _shown(o), "origin": o.origin} for o in job.options
        },
        "environment": environment,
        "host": platform.node(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "boot_id": boot_id,
        "clocks": {"realtime_ns": wall_ns, "monotonic_ns": monotonic_ns},
    }
    return json.dumps(fields, indent=1).encode(errors="surrogateescape") + b"\n"


def _shown(option: Option) -> str:
    """Return an option's value; of the script's arguments those that are no secrets."""
    if option.name != _ARGUMENTS:
        return MASK if is_secret(option.name) and option.value else option.value
    return " ".join(without_secrets(option.value.split(" ")))


def without_secrets(words: Iterable[str]) -> list[str]:
    """Return a command without the values of arguments that have a secret's name."""
    shown, secret = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if secret and not word.startswith("-"):
            shown.append(MASK)
            secret = False
            continue
        # A --tokenizer or --max-tokens is none, and needed to repeat the run.
        named = word.startswith("-") and ends_secret(name.lstrip("-"))
        shown.append(f"{name}={MASK}" if named and equals else word)
        secret = named and not equals
    return shown


def is_secret(name: str) -> bool:
    """Return whether the value of a variable is to be masked."""
    return any(word in name.upper() for word in _SECRET_WORDS)


def ends_secret(name: str) -> bool:
    """Return whether a name in small letters is that of a secret: its last word."""
    words = name.replace("-", "_").replace(".", "_").lower().strip("_").split("_")
    return words[-1] in _ENDINGS and (len(words) > 1 or words[-1] != "key")
