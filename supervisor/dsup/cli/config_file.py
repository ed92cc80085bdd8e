"""``--config``: a job from a TOML file, below the command line and variables.

Its keys are the names of options, and ``script`` and ``args``. Every value is checked
as the command line's would be, whether or not something above it wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click

_BYTES_MAX: Final = 1 << 20
_WORDS: Final = ("script", "args")
"""Arguments that a file may give, too."""


class _File(NamedTuple):
    """A file of options.

    Attributes:
        path: as it was given.
        text: its content.
        context: of the command.
        params: what may be set, by its spellings.
    """

    path: str
    text: str
    context: click.Context
    params: Mapping[str, click.Parameter]

    def refusal(self, key: str, reason: str) -> click.UsageError:
        """Return what is said of a key, and in which line it stands."""
        line = _line_of(key, self.text)
        place = f"{self.path}:{line}" if line else self.path
        return click.UsageError(f"{place}: {reason}", self.context)


def load(context: click.Context, _: click.Parameter, path: str | None) -> str | None:
    """Make the values of a file the context's defaults; return its path.

    Raises:
        click.UsageError: if it cannot be read, or has what no option takes.
    """
    if path and not context.resilient_parsing:
        text = _read(context, path)
        file = _File(path, text, context, _settable(context.command.params))
        values = _parsed(file)
        params = {key: _known(file, key) for key in values}
        _refuse_twice(file, params)
        context.default_map = {
            param.name or "": _checked(file, key, param, values[key])
            for key, param in params.items()
        }
    return path


def script_and_args(context: click.Context) -> tuple[str | None, tuple[str, ...]]:
    """Return what runs: a script that is given takes no arguments out of a file."""
    script, args = context.params["script"], context.params["args"]
    given = click.core.ParameterSource.COMMANDLINE
    if context.get_parameter_source("script") is not given:
        return script, args
    return script, args if context.get_parameter_source("args") is given else ()


def _settable(params: list[click.Parameter]) -> dict[str, click.Parameter]:
    """Return what a file may set, by its spellings."""
    found = {
        spelling.removeprefix("--"): param
        for param in params
        if param.envvar and not param.is_eager
        for spelling in param.opts
        if spelling.startswith("--")
    }
    return found | {p.name: p for p in params if p.name in _WORDS}


def _read(context: click.Context, path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # Only the opening must not wait; what comes through a pipe is read to its end.
        os.set_blocking(fd, True)
        with open(fd, "rb") as file:
            raw = file.read(_BYTES_MAX + 1)
        if len(raw) <= _BYTES_MAX:
            return _decoded(context, path, raw)
        reason = f"it has more than {_BYTES_MAX} bytes"
    except OSError as error:
        reason = str(error.strerror).lower()
    except ValueError as error:
        reason = str(error)
    raise click.UsageError(f"the file {path} cannot be read: {reason}", context)


def _decoded(context: click.Context, path: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        from dsup.cli import toml_error

        raise click.UsageError(toml_error.not_utf8(path, raw, error), context) from None


def _parsed(file: _File) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.text)
    except (ValueError, RecursionError) as error:
        from dsup.cli import toml_error

        reason = toml_error.told(file.path, file.text, error)
        raise click.UsageError(reason, file.context) from None


def _known(file: _File, key: str) -> click.Parameter:
    spelled = key.replace("_", "-")
    if spelled in file.params:
        return file.params[spelled]
    from difflib import get_close_matches

    near = get_close_matches(spelled, file.params, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "keys are names of options"
    raise file.refusal(key, f"unknown key {key!r}: {hint}")


def _refuse_twice(file: _File, params: Mapping[str, click.Parameter]) -> None:
    """Refuse an option that is set by two of its spellings.

    Raises:
        click.UsageError: there is one.
    """
    seen = dict[str, str]()
    for key, param in params.items():
        first = seen.setdefault(param.name or "", key)
        if first != key:
            line = _line_of(first, file.text)
            raise file.refusal(
                key, f"{key} is {first} of line {line} again (keep one of them)"
            )


def _checked(file: _File, key: str, param: click.Parameter, value: object) -> object:
    """Return a value as the command line would have it.

    Raises:
        click.UsageError: the command line would refuse it.
    """
    if param.nargs != 1:
        if not isinstance(value, list):
            raise file.refusal(key, f'{key} is a list of words: ["--lr", "0.1"]')
        return [_word(file, key, item) for item in value]
    flag = getattr(param, "is_flag", False)
    if isinstance(value, bool) and not flag:
        takes = param.make_metavar(file.context)
        raise file.refusal(key, f"{key} is {takes}, not {str(value).lower()}")
    if flag and not isinstance(value, bool):
        raise file.refusal(key, f"{key} is true or false, not {value!r:.40}")
    if isinstance(value, list) and not _is_list(param):
        raise file.refusal(key, f"{key} is one word, not a list")
    plain = value if flag else _plain(file, key, value)
    try:
        param.type_cast_value(file.context, plain)
    except click.BadParameter as error:
        raise file.refusal(key, f"{key}: {error.message}") from None
    return plain


def _plain(file: _File, key: str, value: object) -> str:
    """Return a value as a word; a list is joined by commas."""
    if isinstance(value, list):
        return ",".join(_word(file, key, item) for item in value)
    return _word(file, key, value)


def _word(file: _File, key: str, value: object) -> str:
    if isinstance(value, int | float | str) and "\0" not in str(value):
        return str(value)
    kind = "NUL" if isinstance(value, str) else type(value).__name__
    raise file.refusal(key, f"a {kind} for {key!r} is not a value")


def _is_list(param: click.Parameter) -> bool:
    """Return whether the command line takes several values, separated by commas."""
    return ",..." in (getattr(param, "metavar", None) or "")


def _line_of(key: str, text: str) -> int:
    """Return the line where a key of the top level stands, from 1; 0 if not found."""
    name = re.escape(key)
    found = re.search(rf"^[ \t\[]*([\"']?){name}\1[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 0
