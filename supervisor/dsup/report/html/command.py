"""What was launched, as run.json tells, without secrets. Pure.

Everything here comes from a file that anybody may have written, so each value is
looked at before it is used.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final

from dsup.report.masked import masked_text, masked_words
from dsup.report.run_file import shown
from dsup.report.secret_names import MASK, is_secret

_OPTIONS_MAX: Final = 200
_ARGUMENTS_MAX: Final = 400
_ARGUMENTS: Final = ("script", "args")
"""They are no options, and stand in the command, secrets masked."""

_TEXT_MAX: Final = 1000
_TOLD: Final = (
    "CUDA_", "DSUP_", "GLOO_", "MASTER_", "NCCL_", "OMP_", "PYTORCH_", "TORCH_",
)  # fmt: skip
"""Beginnings of variables that bear on ranks; others are nobody's business."""


def program(known: Mapping[str, object]) -> str:
    """Return the script's or module's name; empty if unknown."""
    for name, value, origin in _options(known):
        if name == "script" and origin != "default":
            return masked_text(os.path.basename(value))[:_TEXT_MAX]
    return ""


def launched(known: Mapping[str, object]) -> str:
    """Return the command that launches it again; empty if unknown."""
    options = {name: value for name, value, origin in _options(known) if _given(origin)}
    script = {name: options.pop(name, "") for name in _ARGUMENTS}["script"]
    argv = [one for one in _list(known.get("argv")) if isinstance(one, str)]
    if not script or script not in argv:
        return ""
    words = ["dsup", "launch"]
    for name, value in options.items():
        if value == "False":
            continue
        words.append(f"--{name}" if value == "True" else f"--{name}={value}")
    rest = argv[argv.index(script) + 1 :][:_ARGUMENTS_MAX]
    return shlex.join(masked_words([*words, script, *rest]))


def options(known: Mapping[str, object]) -> tuple[tuple[str, str, str], ...]:
    """Return name, value and origin of each option, secrets masked."""
    return tuple(
        (name, shown(name, value)[:_TEXT_MAX], origin)
        for name, value, origin in _options(known)
        if name not in _ARGUMENTS
    )


def environment(known: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the variables that bear on ranks, secrets masked."""
    found = known.get("environment")
    if not isinstance(found, dict):
        return ()
    return tuple(
        (name, MASK if is_secret(name) else masked_text(value)[:_TEXT_MAX])
        for name, value in sorted(found.items())
        if isinstance(value, str) and name.startswith(_TOLD)
    )[:_OPTIONS_MAX]


def versions(known: Mapping[str, object], dsup: str) -> tuple[tuple[str, str], ...]:
    """Return names and versions of what the run stood on."""
    found = [("dsup", dsup)] if dsup else []
    for name, key in (("Linux", "kernel"), ("Python", "python")):
        value = known.get(key)
        if isinstance(value, str) and value:
            found.append((name, value[:_TEXT_MAX]))
    return tuple(found)


def _given(origin: str) -> bool:
    return origin == "command line"


def _options(known: Mapping[str, object]) -> list[tuple[str, str, str]]:
    found = known.get("options")
    if not isinstance(found, dict):
        return []
    rows = []
    for name, row in list(found.items())[:_OPTIONS_MAX]:
        if not isinstance(row, dict):
            continue
        value, origin = row.get("value"), row.get("origin")
        if isinstance(value, str) and isinstance(origin, str):
            rows.append((name, value, origin[:_TEXT_MAX]))
    return rows


def _list(found: object) -> list[object]:
    return found if isinstance(found, list) else []
