"""The status of a run as a table of its ranks, at most as large as the terminal. Pure.

A row with a note is marked. Past ``ROWS_MAX`` ranks, or where the terminal is lower,
those of which nothing is to be said share a row, which shows the worst of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dsup.core.output import Tone
from dsup.report.columns import Columns, width
from dsup.report.sentences import spans
from dsup.report.status_cells import (
    UNKNOWN,
    UNMEASURED,
    Row,
    age,
    gib,
    rows,
    slope,
    whole,
)
from dsup.report.status_head import foot, head

ROWS_MAX: Final = 24
WIDE: Final = 100
NARROW: Final = 80
NOTE_CELLS: Final = 11
"""A note has so much room at least; for a longer one columns give way."""

_LOW: Final = 8
"""Where there are so few lines below the head, none of them is left empty."""

_NOTE_MAX: Final = 34
_FALLBACK: Final = ("gpu", "cpu %", "step age", "pid", "ecc", "GiB/min", "phase")
"""What gives way, the first one first."""

_MUST: Final = 4
"""So many of these give way to the width of the terminal, the others to nothing."""

_SMALL: Final = frozenset({"rank", "step", "beat"})

_GRAVE: Final = ("killed", "exit", "silent", "frozen", "no step", "did", "ECC", "GPU")
"""How the notes begin that are shown first where not all ranks can be."""


class Look(NamedTuple):
    """What there is room for.

    Attributes:
        cells: width of a line.
        lines: how many there may be; None for any number.
        ranks: so many have a row of their own at most.
        unicode: the stream shows more than ASCII.
        hint: what to type, at the end of the last line.
    """

    cells: int = WIDE
    lines: int | None = None
    ranks: int = ROWS_MAX
    unicode: bool = True
    hint: str = ""


class _Column(NamedTuple):
    """A column: its head, its least width, and what a rank has in it."""

    title: str
    least: int
    cell: Callable[[Row], str]
    left: bool = False


class _Line(NamedTuple):
    """A row of the table: one rank, or several of which nothing is to be said."""

    row: Row
    first: str
    note: str
    marked: bool


Toned = tuple[str, Tone]


def _of_living(shown: Callable[[Row], str]) -> Callable[[Row], str]:
    """Return a cell that can be read of every process, so that none is unknown."""
    return lambda row: UNKNOWN if row.alive and shown(row) == UNMEASURED else shown(row)


def _phase(row: Row) -> str:
    if row.status is not None:
        return "ended"
    return row.phase or (UNMEASURED if row.alive else "ended" if row.pid else "")


def _ecc(row: Row) -> str:
    return {"unknown": UNKNOWN, "": UNMEASURED}.get(row.ecc, row.ecc)


_COLUMNS: Final = (
    _Column("pid", 6, _of_living(lambda row: whole(row.pid))),
    _Column("gpu", 3, lambda row: whole(row.gpu)),
    _Column("phase", 5, _phase, left=True),
    _Column("step", 7, lambda row: whole(row.step)),
    _Column("beat", 5, lambda row: age(row.beat_age_s)),
    _Column("step age", 8, lambda row: age(row.step_age_s)),
    _Column("cpu %", 5, lambda row: whole(row.cpu_percent)),
    _Column("rss GiB", 7, _of_living(lambda row: gib(row.rss_kb))),
    _Column("GiB/min", 7, lambda row: slope(row.kb_per_min)),
    _Column("ecc", 3, _ecc, left=True),
)


def table(document: Mapping[str, object], look: Look) -> list[Toned]:
    """Return the lines of a run's status, each with how grave it is.

    Args:
        document: ``dsup.status/1``.
        look: what there is room for.
    """
    columns = Columns(look.unicode)
    above = head(document, look.cells, columns)
    below = foot(document, look.cells, columns, look.hint)
    tight = look.lines is not None and look.lines <= len(above) + _LOW
    blank = [] if tight else [""]
    under = [*blank, below] if below else []
    room = look.ranks
    if look.lines is not None:
        taken = len(above) + len(blank) + 1 + len(under)
        room = max(1, min(room, look.lines - taken))
    ranks = _ranks(_lines(rows(document), room), look.cells, columns)
    top: list[Toned] = [(line, "plain") for line in (*above, *blank)]
    bottom: list[Toned] = [(line, "plain") for line in under]
    return _fitting([*top, *ranks], bottom, look.lines)


def _fitting(upper: list[Toned], lower: list[Toned], lines: int | None) -> list[Toned]:
    """Return what there is room for: the last line says how to leave."""
    if lines is None or len(upper) + len(lower) <= lines:
        return [*upper, *lower]
    return [*upper[: max(0, lines - 1)], *lower[-1:]][:lines]


def _lines(found: Sequence[Row], room: int) -> list[_Line]:
    """Return the rows: a rank each, and one for the rest where not all have room."""
    if len(found) <= room:
        return list(map(_line, found))
    noted = [row for row in found if row.marked]
    shown = sorted(sorted(noted, key=_gravity)[: room - 1])
    ranks = {row.rank for row in shown}
    return [*map(_line, shown), _rest([r for r in found if r.rank not in ranks])]


def _line(row: Row) -> _Line:
    return _Line(row, str(row.rank), row.remark, row.marked)


def _gravity(row: Row) -> tuple[bool, int]:
    return not row.remark.startswith(_GRAVE), row.rank


def _rest(found: Sequence[Row]) -> _Line:
    """Return one row for several ranks, with the worst of each value."""
    phases = {_phase(row) for row in found}
    eccs = {row.ecc for row in found}
    worst = found[0]._replace(
        pid=None,
        gpu=None,
        alive=False,
        status=None,
        phase=phases.pop() if len(phases) == 1 else "mixed",
        step=_extreme(min, [row.step for row in found]),
        beat_age_s=_extreme(max, [row.beat_age_s for row in found]),
        step_age_s=_extreme(max, [row.step_age_s for row in found]),
        cpu_percent=_extreme(min, [row.cpu_percent for row in found]),
        rss_kb=_extreme(max, [row.rss_kb for row in found]),
        kb_per_min=_extreme(max, [row.kb_per_min for row in found]),
        ecc=next((ecc for ecc in ("bad", "unknown", "ok") if ecc in eccs), ""),
    )
    noted = sum(row.marked for row in found)
    ranks = spans(row.rank for row in found)
    note = f"{noted} with a note, of {ranks}" if noted else ranks
    return _Line(worst, f"{len(found)} more", note, noted > 0)


def _extreme(
    choose: Callable[[list[float]], float], values: Sequence[float | None]
) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _ranks(lines: Sequence[_Line], cells: int, columns: Columns) -> list[Toned]:
    if not lines:
        return [("no rank runs", "plain")]
    rank = _Column("rank", 4, lambda row: str(row.rank))
    firsts = [rank.title, *(line.first for line in lines)]
    across = 2 + max(rank.least, *map(width, firsts))
    chosen = _chosen(lines, cells, across)
    titles = [_placed(c.title, c, size) for c, size in chosen]
    out: list[Toned] = [(f"{'rank':>{across}}{''.join(titles)}  note"[:cells], "plain")]
    for line in lines:
        mark = ">" if line.marked else " "
        text = f"{mark}{line.first:>{across - 1}}"
        text += "".join(_placed(c.cell(line.row), c, size) for c, size in chosen)
        room = cells - width(text) - 2
        note = columns.fit(line.note, room, 1)[0] if line.note and room > 0 else ""
        shown = f"{columns.legible(text) if not text.isascii() else text}  {note}"
        out.append((shown.rstrip()[:cells], "warning" if line.marked else "plain"))
    return out


def _chosen(
    lines: Sequence[_Line], cells: int, taken: int
) -> list[tuple[_Column, int]]:
    """Return the columns that there is room for, each with its width.

    Args:
        lines: the rows.
        cells: width of a line.
        taken: so much of it is the ranks'.
    """
    notes = (width(line.note) for line in lines if line.marked)
    wanted = min(_NOTE_MAX, max(NOTE_CELLS, *notes, 0))
    sized = [(column, _size(column, lines)) for column in _COLUMNS]
    if cells < NARROW:
        return [(column, size) for column, size in sized if column.title in _SMALL]
    for title in _FALLBACK[:_MUST]:
        if taken + sum(size + 2 for _, size in sized) + 2 + wanted <= cells:
            break
        sized = [(column, size) for column, size in sized if column.title != title]
    return sized


def _size(column: _Column, lines: Sequence[_Line]) -> int:
    cells = (width(column.cell(line.row)) for line in lines)
    return max(column.least, len(column.title), *cells)


def _placed(text: str, column: _Column, size: int) -> str:
    return f"  {text:<{size}}" if column.left else f"  {text:>{size}}"
