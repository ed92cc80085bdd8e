"""``--config``: options from a TOML file, below the command line and variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

_BYTES_MAX: Final = 1 << 20


def load(context: click.Context, _: click.Parameter, path: str | None) -> str | None:
    """Make the values of a file the context's defaults; return its path.

    Raises:
        click.UsageError: if it cannot be read, or has what no option takes.
    """
    if path and not context.resilient_parsing:
        names = _names(context.command.params)
        context.default_map = {
            _known(context, path, key, names): _plain(context, path, key, value)
            for key, value in _read(context, path).items()
        }
    return path


def _names(params: Iterable[click.Parameter]) -> dict[str, str]:
    """Return the name in the code of each option that a file may set."""
    return {
        spelling.removeprefix("--"): param.name or ""
        for param in params
        if param.envvar and not param.is_eager
        for spelling in param.opts
        if spelling.startswith("--")
    }


def _read(context: click.Context, path: str) -> Mapping[str, Any]:
    import tomllib

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # Only the opening must not wait; what comes through a pipe is read to its end.
        os.set_blocking(fd, True)
        with open(fd, "rb") as file:
            text = file.read(_BYTES_MAX + 1).decode()
        if len(text) <= _BYTES_MAX:
            return tomllib.loads(text)
        reason = f"it has more than {_BYTES_MAX} bytes"
    except OSError as error:
        reason = str(error.strerror).lower()
    except (ValueError, RecursionError) as error:
        reason = f"it is no TOML: {error}"
    raise click.UsageError(f"the file {path} cannot be read: {reason}", context)


def _known(
    context: click.Context, path: str, key: str, names: Mapping[str, str]
) -> str:
    spelled = key.replace("_", "-")
    if spelled in names:
        return names[spelled]
    from difflib import get_close_matches

    near = get_close_matches(spelled, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "keys are names of options"
    raise click.UsageError(f"{path} has the unknown key {key!r}: {hint}", context)


def _plain(context: click.Context, path: str, key: str, value: object) -> object:
    """Return a value as the command line would have it: a list joined by commas."""
    if isinstance(value, list):
        return ",".join(str(_plain(context, path, key, item)) for item in value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float | str) and "\0" not in str(value):
        return str(value)
    kind = "NUL" if isinstance(value, str) else type(value).__name__
    raise click.UsageError(f"{path} has a {kind} for {key!r}, not a value", context)
