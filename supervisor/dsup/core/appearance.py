"""Whether dsup colours its lines and redraws one, and how much it says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup.core.job import Level

_LEVELS: Final[Mapping[str, Level]] = {
    "DEBUG": "verbose",
    "INFO": "verbose",
    "ERROR": "quiet",
    "CRITICAL": "quiet",
    "FATAL": "quiet",
}


class Appearance(NamedTuple):
    """What a console is good for.

    Attributes:
        colour: colours are shown, not printed as rubbish.
        status: a line can be redrawn.
    """

    colour: bool
    status: bool


def appearance(environment: Mapping[str, str], *, terminal: bool) -> Appearance:
    """Return what the console is good for.

    NO_COLOR wins over FORCE_COLOR, and both win over what is found out.

    Args:
        environment: what dsup was started with.
        terminal: both stdout and stderr are a terminal.
    """
    able = terminal and environment.get("TERM") != "dumb" and not environment.get("CI")
    forced = environment.get("FORCE_COLOR", "") not in {"", "0"}
    plain = bool(environment.get("NO_COLOR"))
    return Appearance(colour=not plain and (forced or able), status=able)


def speaks_unicode(environment: Mapping[str, str]) -> bool:
    """Return whether the console shows more than ASCII, as far as the locale tells.

    Services and containers often have no locale at all, and read UTF-8.
    """
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next(filter(None, (environment.get(name) for name in names)), "utf-8")
    return "utf" in locale.lower()


def level(environment: Mapping[str, str]) -> Level:
    """Return how much LOGLEVEL asks for; the normal measure if it says nothing."""
    return _LEVELS.get(environment.get("LOGLEVEL", "").upper(), "normal")
