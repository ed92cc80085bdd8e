"""The journal: every event and command of a run as one JSON line each.

Line 0 is the header with the run's ``Spec``; the others carry a running number ``n``,
so that a line written twice (a scribe was replaced) is recognised. ``replay`` runs the
events through ``machine.decide`` again and compares: within one version of dsup a
journal and the machine must tell the same story.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, cast, get_args, get_type_hints

from dsup.core import events as ev
from dsup.core import machine
from dsup.core.commands import Command
from dsup.core.errors import JournalError
from dsup.core.events import Event
from dsup.core.plan import Policy
from dsup.core.state import Spec

VERSION: Final = 1
LINE_MAX_CHARS: Final = 65_536

_OFTEN: Final = re.compile(
    r'\{"n":[0-9]{1,18},"event":"(?:tick|progressed)",'
    r'"at_s":(-?[0-9]{1,16}(?:\.[0-9]{1,24})?(?:e[+-]?[0-9]{1,3})?)'
    r'(?:,"attempt":([0-9]{1,9}),"step":([0-9]{1,18}))?\}'
)

_EVENTS: Final = {
    get_type_hints(cls)["kind"].__args__[0]: cls for cls in get_args(Event)
}
_COMMANDS: Final = {
    get_type_hints(cls)["kind"].__args__[0]: cls for cls in get_args(Command)
}


class Entry(NamedTuple):
    """One line of a journal after the header."""

    n: int
    event: Event | None
    command: Command | None


def header(spec: Spec) -> str:
    """Return the first line of a journal."""
    fields = {**spec._asdict(), "policy": spec.policy._asdict()}
    return _dumps({"n": 0, "journal": VERSION, "spec": fields})


def encode(n: int, item: Event | Command) -> str:
    """Return the line of an event or command.

    Args:
        n: its running number, from 1.
        item: what happened or was ordered.
    """
    fields = item._asdict()
    kind = fields.pop("kind")
    role = "event" if kind in _EVENTS else "command"
    return _dumps({"n": n, role: kind, **fields})


def decode_header(line: str) -> Spec:
    """Return the spec of a journal.

    Raises:
        JournalError: if the line is no header of a version known here.
    """
    fields = _loads(line)
    if fields.get("journal") != VERSION:
        found = fields.get("journal", "none")
        message = (
            f"cannot read the journal, because its version is {found!r}, not {VERSION} "
            "(read it with the dsup that wrote it)"
        )
        raise JournalError(message)
    spec = fields.get("spec")
    policy = spec.pop("policy", None) if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(policy, dict):
        raise JournalError("cannot read the journal, because its header has no spec")
    built = _build(Spec, {**spec, "policy": _build(Policy, policy)})
    return cast("Spec", built)


def decode(line: str) -> Entry:
    """Return what a line after the header says.

    Raises:
        JournalError: if it is no such line.
    """
    fields = _loads(line)
    n, event, command = (fields.pop(key, None) for key in ("n", "event", "command"))
    cls = _EVENTS.get(_word(event)) or _COMMANDS.get(_word(command))
    if cls is None or type(n) is not int:
        message = (
            f"cannot read the journal, because a line has no known kind: {line!r:.80}"
        )
        raise JournalError(message)
    item = _build(cls, {"kind": event or command, **fields})
    return Entry(n, item if event else None, None if event else item)


def often(line: str) -> ev.Tick | ev.Progressed | None:
    """Return the event of a line of those kinds that fill a journal; None for others.

    A long run has millions of them, which ``decode`` would take a minute for. A line
    that is written in any other way than ``encode`` does is left to ``decode``.
    """
    match = _OFTEN.fullmatch(line)
    if match is None:
        return None
    at_s, attempt, step = match.groups()
    if '"t' in line[:32]:
        return ev.Tick("tick", float(at_s)) if step is None else None
    if step is None:
        return None
    return ev.Progressed("progressed", float(at_s), int(attempt), int(step))


def entries(lines: Iterable[str]) -> Iterator[Entry]:
    """Yield each line once, in order; a line that came twice is dropped.

    Raises:
        JournalError: at the first line that cannot be read.
    """
    last = 0
    for line in lines:
        entry = decode(line)
        if entry.n > last:
            last = entry.n
            yield entry


def replay(lines: Iterable[str]) -> tuple[list[Command], list[Command]]:
    """Run a journal's events through the machine again.

    Args:
        lines: the whole journal, header first.

    Returns:
        The commands on record and the commands the machine gives now.

    Raises:
        JournalError: if a line cannot be read.
    """
    rest = iter(lines)
    state = machine.initial(decode_header(next(rest, "")))
    recorded: list[Command] = []
    given: list[Command] = []
    for entry in entries(rest):
        if entry.event is not None:
            state, commands = machine.decide(state, entry.event)
            given.extend(commands)
        elif entry.command is not None:
            recorded.append(entry.command)
    return recorded, given


def _dumps(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), allow_nan=False)


def _loads(line: str) -> dict[str, Any]:
    if len(line) > LINE_MAX_CHARS:
        raise JournalError("cannot read the journal, because a line is too long")
    try:
        fields = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        message = (
            f"cannot read the journal, because a line is no JSON object: {line!r:.80}"
        )
        raise JournalError(message)
    return fields


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _no_number(word: str) -> None:
    """Refuse NaN and Infinity, which JSON does not have but Python reads."""
    raise ValueError(word)


_hints = cache(get_type_hints)
"""They are looked up for each line, and cost more than the line."""


def _build(cls: Any, fields: dict[str, Any]) -> Any:  # noqa: ANN401 (a NamedTuple class)
    hints = _hints(cls)
    # A journal from before a field was there is read as its default.
    fields = {**cls._field_defaults, **fields}
    if set(hints) != set(fields):
        odd = sorted(set(hints) ^ set(fields))
        raise JournalError(
            f"cannot read the journal, because {cls.__name__} has other fields: {odd}"
        )
    return cls(**{name: _value(hints[name], value) for name, value in fields.items()})


def _value(hint: Any, value: object) -> object:  # noqa: ANN401 (a type annotation)
    if isinstance(value, list):
        value = tuple(value)
    allowed = get_args(hint) or (hint,)
    if ... in allowed or type(value) is tuple:
        fits = (
            type(value) is tuple
            and ... in allowed
            and all(type(item) in allowed for item in value)
        )
    elif isinstance(value, str) and str not in allowed:
        fits = value in allowed
    else:
        fits = type(value) in allowed or (float in allowed and type(value) is int)
    if not fits:
        raise JournalError(
            f"cannot read the journal, because {value!r:.40} is no {hint}"
        )
    return value
