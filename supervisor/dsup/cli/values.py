"""Option values that click has no type for; each refusal names what is allowed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from dsup.core.environment import visible_gpus
from dsup.core.errors import SpecError
from dsup.core.limits import Limits
from dsup.linux.topology import device_count
from dsup_runtime.contract import PHASES

_RANKS_MAX: Final = 4096
_T = TypeVar("_T")

_ALLOWED: Final = (
    "PHASE=LENGTH,..., a LENGTH or off; phases are "
    f"{', '.join(PHASES)}; lengths are seconds, 30m, 2h, 1d12h, auto or off"
)

_SECONDS_MAX: Final = 2**31 - 1
"""68 years; torch reads time-outs into 32 bits."""

_DURATION: Final = re.compile(
    r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?"
)


class Parsed(click.ParamType[_T]):
    """Whatever a pure function makes of a text.

    Args:
        name: what the help calls a value.
        parse: returns it, or raises a ValueError that says what is allowed.
    """

    def __init__(self, name: str, parse: Callable[[str], _T]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> _T:
        """Return the value, or refuse."""
        try:
            return self._parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Seconds(click.ParamType[float]):
    """A finite, non-negative number of seconds."""

    name = "seconds"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or refuse."""
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not 0 <= number <= _SECONDS_MAX:
            allowed = f"a number of seconds from 0 to {_SECONDS_MAX}"
            self.fail(f"{value!r} is not {allowed}", param, ctx)
        return number


class Duration(click.ParamType[float]):
    """A length of time above 0: seconds, or days, hours, minutes and seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds, or refuse."""
        try:
            return duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def duration(text: str) -> float:
    """Return a length of time, seconds.

    Raises:
        ValueError: if the text is none; it says what is allowed.
    """
    parts = _DURATION.fullmatch(text)
    try:
        seconds = _seconds(parts.groups()) if parts else float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds <= _SECONDS_MAX:
        return seconds
    message = (
        f"{text!r} is not a length of time above 0 and up to {_SECONDS_MAX} seconds "
        "(seconds as in 90, or as in 30m, 2h, 1d12h, 1h30m15s)"
    )
    raise ValueError(message)


def _seconds(parts: tuple[str | None, ...]) -> float:
    """Return how long days, hours, minutes and seconds are together."""
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


class Pauses(click.ParamType[tuple[float, ...]]):
    """Seconds, separated by commas."""

    name = "seconds,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the pauses, or refuse."""
        if isinstance(value, tuple):
            return value
        one = Seconds()
        return tuple(one.convert(word, param, ctx) for word in str(value).split(","))


class CommTimeout(click.ParamType[float | None]):
    """Seconds, or ``inherit`` for None: torch's own limits stay."""

    name = "seconds|inherit"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the seconds, None for ``inherit``, or refuse."""
        return None if value == "inherit" else Seconds().convert(value, param, ctx)


class HangAfter(click.ParamType["Limits | None"]):
    """Limits of phases, one for ranks that tell nothing, or ``off`` for None."""

    name = "phase=seconds,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limits | None:
        """Return the limits, None for ``off``, or refuse."""
        if value is None or isinstance(value, Limits):
            return value
        text = str(value).strip()
        try:
            return None if text == "off" else hang_limits(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def hang_limits(text: str) -> Limits:
    """Return what words as in ``train=auto,init=30m,600`` change of the usual limits.

    Raises:
        ValueError: if they say nothing, or one thing twice.
    """
    usual, told = Limits(), dict[str, Any]()
    for word in text.split(","):
        phase, equals, length = (part.strip() for part in word.rpartition("="))
        if equals and phase not in PHASES:
            message = f"{phase!r} is no phase ({_ALLOWED})"
            raise ValueError(message)
        field = f"{phase}_s" if equals else "unseen_s"
        if field in told:
            message = f"{text!r} sets {phase or 'ranks without a phase'} twice"
            raise ValueError(message)
        told[field] = _limit(length, getattr(usual, field))
    return usual._replace(**told)


def _limit(text: str, usual_s: float | None) -> float | None:
    if text == "auto":
        return usual_s
    if text == "off":
        return math.inf
    try:
        return duration(text)
    except ValueError:
        message = f"{text!r} is no length of time above 0 ({_ALLOWED})"
        raise ValueError(message) from None


class Ranks(click.ParamType[str]):
    """A number of ranks, or a word for how to find it."""

    name = "N|cpu|gpu|auto"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the value unchanged, or refuse."""
        text = str(value)
        if text in {"cpu", "gpu", "auto"}:
            return text
        number = int(text) if text.isascii() and text.isdigit() else 0
        if not 1 <= number <= _RANKS_MAX:
            allowed = f"a number from 1 to {_RANKS_MAX}, cpu, gpu or auto"
            self.fail(f"{text!r} is not {allowed}", param, ctx)
        return text


def rank_count(value: str, environment: Mapping[str, str], root: str = "/") -> int:
    """Return how many ranks a checked ``Ranks`` value stands for on this node.

    Args:
        value: a number, ``cpu``, ``gpu`` or ``auto``.
        environment: may hide GPUs.
        root: where /dev and /sys are.

    Raises:
        SpecError: if one rank per GPU is asked for and there is none.
    """
    if value.isdigit():
        return int(value)
    cpus = os.cpu_count() or 1
    if value == "cpu":
        return cpus
    gpus = _gpu_count(environment, root)
    if gpus:
        return gpus
    if value == "auto":
        return cpus
    raise SpecError(
        "cannot start one rank per GPU, because no GPU is visible (look at "
        "CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, /dev/nvidia* and /sys/class/kfd, "
        "or give --nproc N)"
    )


def _gpu_count(environment: Mapping[str, str], root: str) -> int:
    visible = visible_gpus(environment)
    if visible is None:
        return device_count(root)
    # As CUDA reads it: the list ends at the first -1.
    seen = visible[: visible.index("-1")] if "-1" in visible else visible
    return len([word for word in seen if word])
