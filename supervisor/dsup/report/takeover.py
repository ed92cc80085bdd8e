"""What is said of the run before, which was cut off. Pure."""

from __future__ import annotations

import posixpath

from dsup.core import events as ev


def line(event: ev.TookOver) -> str:
    """Return the line about a run that was closed, and whose count goes on."""
    count = event.failed_attempts
    goes_on = "attempt counts" if count == 1 else "attempts count"
    return (
        f"the run before, {event.run}, ended when {_cut(event.cause)} (attempt "
        f"{event.ended_in}); its {count} failed {goes_on} on"
    )


def left_behind(run: str, cause: str, directory: str) -> str:
    """Return the line about a run that a person launched, and launches again.

    Args:
        run: its name.
        cause: what ended it.
        directory: where ``dsup diagnose`` is to look for it; empty where it will.
    """
    where = posixpath.join(directory, run)
    return (
        f"the run before, {run}, ended without a word: {_cut(cause)}; "
        f"dsup diagnose {where}"
    )


def _cut(cause: str) -> str:
    if cause == "node_rebooted":
        return "its node was rebooted"
    return "its agent was killed"
