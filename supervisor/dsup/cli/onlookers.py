"""What is asked for beside the run itself, looked at before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dsup.core.errors import SpecError


def check(options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Refuse an address, a file or a command that can never do.

    Args:
        options: of ``dsup launch``.
        environment: has the path that a command is looked for in.

    Raises:
        SpecError: one of them can not be.
    """
    if options["metrics"]:
        from dsup.core.address import address

        address(options["metrics"])
    if options["metrics_file"]:
        _check_file(os.path.abspath(options["metrics_file"]))
    if options["on_event"]:
        _check_command(options["on_event"], environment.get("PATH", os.defpath))


def _check_file(path: str) -> None:
    directory = os.path.dirname(path)
    reason = ""
    if os.path.isdir(path):
        reason = "it is a directory"
    elif not os.path.isdir(directory):
        reason = f"there is no directory {directory}"
    elif not os.access(directory, os.W_OK | os.X_OK):
        reason = f"{directory} cannot be written into"
    if reason:
        raise SpecError(
            f"cannot write metrics into {path}, because {reason} (node_exporter reads "
            "*.prom of its --collector.textfile.directory)"
        )


def _check_command(text: str, path: str) -> None:
    import shlex

    try:
        words = shlex.split(text)
    except ValueError as error:
        reason = str(error).lower()
        raise SpecError(
            f"cannot use --on-event {text!r}, because its words do not come to an end "
            f"({reason})"
        ) from None
    if not words or not words[0]:
        raise SpecError("cannot use --on-event, because it names no command")
    program = words[0]
    places = [""] if "/" in program else path.split(os.pathsep)
    found = [os.path.join(place, program) if place else program for place in places]
    if any(os.path.isfile(one) and os.access(one, os.X_OK) for one in found):
        return
    there = any(os.path.exists(one) for one in found)
    reason = "it cannot be executed" if there else "there is no such program"
    raise SpecError(
        f"cannot use --on-event {text!r}, because {reason}: {program} (no shell runs "
        "it; words are split as one does)"
    )
