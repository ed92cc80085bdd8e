"""What stands above the ranks in the status table, and below them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dsup.report.columns import Columns, width
from dsup.report.status_cells import (
    lasting,
    number,
    part,
    parts,
    slope,
    whole,
    word,
)

GAP: Final = "   "

_ROOMY: Final = 100
_SAID_MIN: Final = 16
_NAME_MIN: Final = 8
"""So much of a run's name stays, whatever the width."""

_FULL_MAX_MIN: Final = 600
"""Memory that lasts longer than that may do anything until then."""

_GIB_KB: Final = 1 << 20
_CLOCK: Final = re.compile(r"T(\d\d:\d\d:\d\d)")
_SHORT_NAME: Final = re.compile(r"\d{8}T\d{6}Z-(.+)_[^_]+")
"""Of a run directory's name, what is between its time and its host."""

_GONE: Final[Mapping[str, str]] = {
    "agent": "(its agent has gone)",
    "guard": "(its guard was killed)",
}
"""What is known of a lost run: nobody saw an agent go, but it the guard."""


class _State(NamedTuple):
    """What the first line says of a run; empty for what is unknown.

    Attributes:
        how: how it stands or ended, in a word or a few.
        more: for how long, or after what time and with which code.
    """

    attempt: str
    how: str
    more: str
    step: str
    rate: str


_GIVES_WAY: Final = ("rate", "more", "attempt")
"""What of it goes to the lines below if the first is too narrow, the first one first.
"""


def head(document: Mapping[str, object], cells: int, columns: Columns) -> list[str]:
    """Return the lines above the table: which run, how it stands, and at what time.

    Whatever the width, the first line has the run, how it stands, and its step.
    """
    at = _CLOCK.search(word(document.get("at")))
    clock = f"{at[1]} UTC" if at else ""
    called, state = name(document), _state(document)
    first, left = _first(called, state, cells, columns)
    beside = clock and not left and width(f"{first} {clock}") <= cells
    pieces = [first, *left, *_checkpoint(document), *_means(document)]
    if beside:
        lines = _packed(pieces, cells, columns, len(clock))
        return [f"{lines[0]}{clock.rjust(cells - width(lines[0]))}", *lines[1:]]
    return _packed([*pieces, *filter(None, (clock,))], cells, columns, 0)


def foot(
    document: Mapping[str, object], cells: int, columns: Columns, hint: str
) -> str:
    """Return the line below the table: what failed last, and what can be typed now."""
    failed = parts(document, "attempts")
    said = _attempt(failed[-1]) if failed else ""
    ask = f"dsup diagnose {name(document)}" if failed and cells >= _ROOMY else ""
    hints = "  ".join(map(columns.legible, filter(None, (ask, hint))))
    room = cells - width(hints) - 2 if hints else cells
    shown = columns.fit(said, room, 1)[0] if said and room > _SAID_MIN else ""
    return "  ".join(filter(None, (shown, hints)))[:cells]


def name(document: Mapping[str, object]) -> str:
    """Return what a person calls the run: as much of its name as finds it again."""
    full = word(document.get("run"))
    short = _SHORT_NAME.fullmatch(full)
    return short[1] if short else full


def _first(
    called: str, state: _State, cells: int, columns: Columns
) -> tuple[str, list[str]]:
    """Return the first line, and what of the state it has no room for."""
    kept = state
    for part_of_it in _GIVES_WAY:
        if width(f"dsup {called}  {_said(kept)}") <= cells:
            break
        kept = kept._replace(**{part_of_it: ""})
    said = _said(kept)
    short = columns.fit(called, max(_NAME_MIN, cells - width(f"dsup   {said}")), 1)[0]
    left = {
        "attempt": state.attempt,
        "more": f"for {state.more}" if state.attempt and state.more else state.more,
        "rate": state.rate.replace("/", " steps/"),
    }
    return f"dsup {short}  {said}", [
        text for field, text in left.items() if text and not getattr(kept, field)
    ]


def _said(state: _State) -> str:
    how = f"{state.how} {state.more}".rstrip()
    return ", ".join(filter(None, (state.attempt, how, state.step, state.rate)))


def _packed(
    pieces: Sequence[str], cells: int, columns: Columns, taken: int
) -> list[str]:
    """Return pieces in as few lines as that takes, each of them cut where it must be.

    Args:
        pieces: of a sentence each.
        cells: width of a line.
        columns: what can be shown.
        taken: so much of the first line is wanted for something else.
    """
    first = cells - (taken + 1 if taken else 0)
    lines = [_cut(pieces[0], first, columns)]
    for piece in pieces[1:]:
        glued = f"{lines[-1]}{GAP}{piece}"
        if width(glued) <= (cells if lines[1:] else first):
            lines[-1] = glued
        else:
            lines.append(_cut(piece, cells, columns))
    return lines


def _cut(piece: str, cells: int, columns: Columns) -> str:
    """Return a piece that fits; its blanks stay as they are if it does."""
    if width(piece) <= cells and columns.unicode:
        return piece
    lead, gap, rest = piece.partition("  ")
    if width(piece) <= cells:
        return f"{columns.legible(lead)}{gap}{columns.legible(rest)}"
    return columns.fit(piece, max(1, cells), 1)[0]


def _state(document: Mapping[str, object]) -> _State:
    live = document.get("live") is True
    runs = document.get("outcome") == "running" or live
    step, rate = number(document.get("step")), number(document.get("steps_per_s"))
    how, more = _stage(document) if runs else _ended(document)
    return _State(
        attempt=f"attempt {whole(number(document.get('attempt')))}" if runs else "",
        how=how,
        more=more,
        step="" if step is None else f"step {step:.0f}",
        rate="" if rate is None or not live else f"{rate:.2f}/s",
    )


def _stage(document: Mapping[str, object]) -> tuple[str, str]:
    """Return how a run stands, and for how long."""
    stage = word(document.get("stage"))
    left_s, ran_s = (number(document.get(k)) for k in ("pause_left_s", "attempt_s"))
    if left_s is not None:
        return f"restart in {lasting(left_s)}", ""
    if stage == "parking":
        return "stopping at the next step", ""
    said = stage.replace("_", " ") or "running"
    return said, lasting(ran_s) if said == "running" and ran_s else ""


def _ended(document: Mapping[str, object]) -> tuple[str, str]:
    """Return how a run ended, and after what time and with which code."""
    outcome, ran_s = word(document.get("outcome")), number(document.get("run_s"))
    code = number(part(document, "exit").get("code"))
    how = f"(exit code {code:.0f})" if code else ""
    after = "" if ran_s is None else f"after {lasting(ran_s)}"
    gone = word(document.get("lost"))
    lost = _GONE.get(gone, "")
    return outcome or "ended", f"{after} {how or lost}".strip()


def _checkpoint(document: Mapping[str, object]) -> Iterator[str]:
    found = part(document, "checkpoint")
    step, old_s = number(found.get("step")), number(found.get("age_s"))
    if step is not None:
        yield f"checkpoint {step:.0f}" + (f", {lasting(old_s)} ago" if old_s else "")


def _means(document: Mapping[str, object]) -> Iterator[str]:
    yield from _alive(document)
    live = document.get("live") is True
    yield from _memory(part(document, "memory"), live=live)
    restarts = part(document, "restarts")
    used, limit = number(restarts.get("used")), number(restarts.get("limit"))
    if used is not None and (used or limit):
        of = "" if limit is None else f" of {limit:.0f}"
        yield f"restarts {used:.0f}{of} used"
    new = number(part(document, "ledger").get("ettr"))
    if new is not None:
        yield f"new steps {new * 100:.0f} % of the time"


def _alive(document: Mapping[str, object]) -> Iterator[str]:
    alive, size = (number(document.get(k)) for k in ("alive", "world_size"))
    if document.get("live") is True and alive is not None and alive != size:
        yield f"{alive:.0f} of {whole(size)} ranks alive"
    stop = part(document, "stop")
    if stop and document.get("live") is True:
        yield f"stop asked for: {word(stop.get('reason')) or word(stop.get('kind'))}"


def _memory(memory: Mapping[str, object], *, live: bool) -> Iterator[str]:
    """Yield the memory of all ranks; of a run that is over, it was the last."""
    used, limit, rate = (
        number(memory.get(key)) for key in ("used_kb", "limit_kb", "kb_per_min")
    )
    if used is None:
        return
    last, of = "" if live else "last ", f" of {_gib(limit)}" if limit else ""
    said = f"cgroup {last}{_gib(used)}{of} GiB"
    if live and rate is not None and slope(rate) != "+0.0":
        said += f", {slope(rate)}/min"
        minutes = (limit - used) / rate if limit and rate > 0 else _FULL_MAX_MIN
        if minutes < _FULL_MAX_MIN:
            said += f": full in {max(0, minutes):.0f} min"
    yield said


def _gib(kb: float) -> str:
    """Return ``365`` or ``34.1``: three digits."""
    size = kb / _GIB_KB
    return f"{size:.0f}" if size >= 99.95 else f"{size:.1f}"  # noqa: PLR2004 (digits)


def _attempt(failed: Mapping[str, object]) -> str:
    at = _CLOCK.search(word(failed.get("at")))
    summary = word(failed.get("summary")).rstrip(".")
    proper = summary[1:2].isupper()  # NVRM, SIGTERM
    told = summary if proper else summary[:1].lower() + summary[1:]
    when = f", {at[1]}" if at else ""
    return f"attempt {whole(number(failed.get('attempt')))}{when}: {told}"
