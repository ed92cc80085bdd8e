"""The panel: a failed attempt on a terminal, understood in five seconds. Pure.

The sentence is on top and what happens next at the bottom, nearest the prompt. It is
as wide as the smallest terminal, at most ``HEIGHT`` lines between its rules, and means
the same without colours.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from dsup.core.output import Tone
from dsup.core.verdict import LOOKED_AT, Evidence, Verdict
from dsup.report.columns import Columns, width
from dsup.report.sentences import clock, spans, told, victims
from dsup_runtime import contract

WIDTH: Final = 80
HEIGHT: Final = 14
ONE_LINE_MAX: Final = 200
LAST_WORDS: Final = 4
APART: Final = " · "
"""Between two places in ``Setting.more``."""


_SHORT_NAME: Final = re.compile(r"\d{8}T\d{6}Z-(.+-[0-9a-f]{6})_[^_]+")
"""Of a run directory's name, what no other run has."""

_KEY: Final = 10
_VALUE: Final = WIDTH - _KEY
_PROOF_ROOM: Final = 3
_ALL: Final = 8
"""So many lines are enough for any one thing that dsup says."""

_TAG_MAX: Final = 32
_KMSG: Final = " [kmsg seq "
_STREAMS: Final = ("stderr", "stdout")
_RAW: Final = ("kernel", "note", "error_file", "log", "launcher", *_STREAMS)
"""Sources whose text somebody else wrote: what is told may begin late in it."""


class Setting(NamedTuple):
    """What a panel needs beside the verdict.

    Attributes:
        run: what ``dsup diagnose`` knows the run by: its name, or its directory; empty
            to say nothing of it.
        node: name of the node.
        pids: pid of each rank.
        offset_s: CLOCK_REALTIME minus the agent's clock, seconds.
        next_text: what dsup does next; empty to say nothing of it.
        logs: the run directory; empty where the ranks have no logs.
        unicode: the stream shows more than ASCII.
        steps: the last step of each rank that tells its steps.
        launcher: who started the ranks; empty for dsup.
        more: where to look, instead of ``run`` and ``logs``; empty for these. Places
            are parted by `` · ``.
        log: name of the log of the first rank that has its last words; empty for none.
        again: that it was not the first time; empty to say nothing of it.
        zone: of the times; empty where a log does not tell it.
        roomy: a person asked for it: what to do and what follows are not cut.
    """

    run: str
    node: str
    pids: Mapping[int, int]
    offset_s: float
    next_text: str
    logs: str
    unicode: bool = True
    steps: Mapping[int, int] = {}
    launcher: str = ""
    more: str = ""
    log: str = contract.STDERR_FILE
    again: str = ""
    roomy: bool = False
    zone: str = "UTC"


def panel(verdict: Verdict, setting: Setting) -> tuple[str, ...]:
    """Return the lines of a panel, its rules included."""
    return tuple(line for line, _ in toned(verdict, setting))


def toned(verdict: Verdict, setting: Setting) -> tuple[tuple[str, Tone], ...]:
    """Return the lines of a panel, each with how grave it is."""
    columns = Columns(setting.unicode)
    parts = _parts(verdict, setting, columns, lines=_ALL if setting.roomy else 2)
    if HEIGHT - _height(parts) < _PROOF_ROOM and not setting.roomy:
        parts = _parts(verdict, setting, columns, lines=1)
    room = HEIGHT - _height(parts)
    proof = _proof(verdict, columns, max(room, _ALL) if setting.roomy else room)
    inner = [*parts.above, *((line, _PLAIN) for line in proof), *parts.below]
    line = columns.legible("━")
    top = _rule(verdict, setting, line)
    return ((top, _PLAIN), *inner, (line * WIDTH, _PLAIN))


def one_line(verdict: Verdict, next_text: str) -> str:
    """Return a verdict as one line of a journal, the sentence first.

    Args:
        verdict: what happened.
        next_text: what dsup does next; empty to say nothing of it.
    """
    sure = "" if verdict.certainty == "unknown" else f", {verdict.certainty}"
    of = spans((victim.rank for victim in verdict.victims), ",")
    known = [f"attempt {verdict.attempt}", f"victims {of}" if of else "", next_text]
    rest = f"{sure}; {'; '.join(filter(None, known))}"
    columns = Columns()
    room = ONE_LINE_MAX - min(width(rest), ONE_LINE_MAX // 2)
    sentence = columns.fit(told(verdict), room, 1)[0]
    return columns.fit(f"{sentence}{rest}", ONE_LINE_MAX, 1)[0]


def amended(before: Verdict, after: Verdict) -> str:
    """Return how a late fact changed a verdict; empty if no person would care."""
    was, now = _core(before), _core(after)
    if was == now:
        return ""
    old = [_named(before), before.cause, before.certainty]
    changed = [word for word, a, b in zip(old, was, now, strict=True) if a != b]
    sure = "" if after.cause == after.certainty else f", {after.certainty}"
    text = f"{told(after)} ({after.cause}{sure}; before: {', '.join(changed)})"
    return f"verdict amended: {Columns().legible(text)}"


_PLAIN: Final[Tone] = "plain"


class _Parts(NamedTuple):
    """What stands above the proof and below it."""

    above: list[tuple[str, Tone]]
    below: list[tuple[str, Tone]]


def _height(parts: _Parts) -> int:
    return len(parts.above) + len(parts.below)


def _parts(verdict: Verdict, setting: Setting, columns: Columns, lines: int) -> _Parts:
    def rows(key: str, text: str, most: int, tone: Tone = "plain") -> None:
        value = columns.fit(text, _VALUE, most) if text else []
        below.extend((line, tone) for line in _keyed(key, value))

    below: list[tuple[str, Tone]] = []
    rows("cause", _cause(verdict), 1)
    rows("first", _first(verdict, setting), 1, "failure")
    sentence = columns.fit(verdict.summary, WIDTH, 2)
    above = [*((line, "failure") for line in sentence), ("", _PLAIN), *below]
    below = []
    rows("victims", victims(verdict, setting.launcher or "dsup"), lines)
    rows("again", setting.again, 2)
    rows("do", verdict.advice.text if verdict.advice else "", max(2, lines))
    rows("next", setting.next_text, lines, "warning")
    more = _keyed("more", _more(verdict, setting, columns))
    return _Parts(above, [*below, *((line, _PLAIN) for line in more)])


def _keyed(key: str, value: list[str]) -> list[str]:
    """Return lines with the key before the first one."""
    return [
        f" {key if number == 0 else '':{_KEY - 1}}{line}"
        for number, line in enumerate(value)
    ]


def _rule(verdict: Verdict, setting: Setting, line: str) -> str:
    by = f"{setting.launcher}, " if setting.launcher else ""
    head = f"{line * 2} dsup {line} {by}attempt {verdict.attempt} failed "
    at = clock(verdict.at_s, setting.offset_s)
    zone = f" {setting.zone}" if setting.zone else ""
    tail = f" {at}{zone} {line * 2}" if math.isfinite(verdict.at_s) else ""
    return f"{head}{line * (WIDTH - len(head) - len(tail))}{tail}"


def _cause(verdict: Verdict) -> str:
    if verdict.cause == verdict.certainty:
        return verdict.cause
    return f"{verdict.cause}, {verdict.certainty}"


def _first(verdict: Verdict, setting: Setting) -> str:
    at = clock(verdict.at_s, setting.offset_s, tenths=True)
    when = f", {at}" if math.isfinite(verdict.at_s) else ""
    where = f" on {setting.node}" if verdict.first_ranks and setting.node else ""
    if len(verdict.first_ranks) != 1 or setting.launcher:
        return f"{_named(verdict)}{where}{when}"
    rank = verdict.first_ranks[0]
    pid, step = setting.pids.get(rank), setting.steps.get(rank)
    ids = f"local {rank}" if pid is None else f"local {rank}, pid {pid}"
    stood = "" if step is None else f", step {step}"
    return f"rank {rank}{where} ({ids}){when}{stood}"


def _named(verdict: Verdict) -> str:
    ranks = verdict.first_ranks
    if not ranks:
        return "no rank can be named"
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"


def _core(verdict: Verdict) -> tuple[object, ...]:
    return verdict.first_ranks, verdict.cause, verdict.certainty


def _more(verdict: Verdict, setting: Setting, columns: Columns) -> list[str]:
    """Return where to look: what to type, or the log for who has typed it already.

    A run goes by the short form of its name where the full one takes a line more. What
    is to be copied is never cut: a line may be wider than the panel for it.
    """
    if setting.more:
        return _packed(setting.more.split(APART), columns)
    first = verdict.first_ranks[:1]
    if setting.run:
        short = _SHORT_NAME.fullmatch(setting.run)
        runs = (setting.run, short[1]) if short else (setting.run,)
        told = [_packed(_commands(run, first, setting), columns) for run in runs]
        return min(told, key=len)
    if not setting.logs:
        return []
    log = contract.attempt_dir("", verdict.attempt)
    for rank in first:
        log = contract.rank_dir("", verdict.attempt, rank)
        log += f"/{setting.log}" if setting.log else ""
    return [columns.legible(f"{setting.logs}/{log}")]


def _commands(run: str, first: Sequence[int], setting: Setting) -> list[str]:
    """Return what to type, of the ranks that were first for one of them."""
    word = shlex.quote(run)
    rank = "".join(f" --rank {number}" for number in first)
    logs = [f"dsup logs {word}{rank}"] if setting.logs else []
    return [f"dsup diagnose {word}", *logs]


def _packed(places: Sequence[str], columns: Columns) -> list[str]:
    """Return places in lines, each of them whole, as few lines as that takes."""
    lines: list[str] = []
    dot = columns.legible(APART)
    for place in map(columns.legible, places):
        glued = f"{lines[-1]} {dot} {place}" if lines else place
        if lines and width(glued) <= _VALUE:
            lines[-1] = glued
        else:
            lines.append(place)
    return lines


def _proof(verdict: Verdict, columns: Columns, room: int) -> list[str]:
    """Return what the verdict rests on, as much of it as there is room for."""
    shown = _shown(verdict)
    indent = max((width(e.source) for e in shown), default=0)
    indent = max(indent, len("kernel")) + 2
    rows: list[str] = []
    before = (None, *(e.source for e in shown))
    for (last, source), evidence in zip(pairwise(before), shown, strict=True):
        left = min(2, room - len(rows))
        if left == 0:
            break
        cells = _VALUE - indent
        text, tag = _placed(evidence)
        whose = _whose(evidence, verdict)
        said = columns.fit(f"{whose}{text}", cells, left, raw=source in _RAW)
        said = _tagged(said, columns.legible(tag), cells, left, columns)
        label = "" if last == source else source
        rows += [
            f"{label if number == 0 else '':{indent}}{line}"
            for number, line in enumerate(said)
        ]
    return _keyed("proof", rows)


def _shown(verdict: Verdict) -> list[Evidence]:
    """Return the evidence without all but the last words of the ranks.

    Nor is anything shown that was looked at and is no proof: cut to a line's width, it
    would read as one.
    """
    words = [e for e in verdict.evidence if e.source in _STREAMS]
    return [
        e
        for e in verdict.evidence
        if (e.source not in _STREAMS or e in words[-LAST_WORDS:])
        and not e.text.startswith(LOOKED_AT)
    ]


def _whose(evidence: Evidence, verdict: Verdict) -> str:
    """Return ``rank 3: `` for a rank's own words where that is not clear anyway."""
    known = verdict.first_ranks == (evidence.rank,) or evidence.rank is None
    return "" if known or evidence.source not in _STREAMS else f"rank {evidence.rank}: "


def _placed(evidence: Evidence) -> tuple[str, str]:
    """Return an evidence's text, and in brackets where it stands; empty if unknown."""
    text, kmsg, number = evidence.text.rpartition(_KMSG)
    if kmsg and evidence.source == "kernel":
        return text, f"{kmsg.lstrip()}{number}"
    file = evidence.file
    if file.startswith("attempt_"):
        file = file.partition("/")[2] or file
    file = _end_of(file)
    if not file:
        return evidence.text, ""
    line = "" if evidence.line is None else f":{evidence.line}"
    return evidence.text, f"[{file}{line}]"


def _end_of(file: str) -> str:
    """Return as many of a path's last parts as are short enough: one alone is not one.

    In a tree of logs there is a ``stderr.log`` in every directory.
    """
    if len(file) <= _TAG_MAX:
        return file
    parts = file.split("/")
    ends = ("/".join(parts[at:]) for at in range(1, len(parts)))
    end = next((one for one in ends if len(one) <= _TAG_MAX - 2), "")
    return f"…/{end}" if "/" in end else end


def _tagged(
    rows: list[str], tag: str, cells: int, lines: int, columns: Columns
) -> list[str]:
    """Return lines with the place they are from at their right end."""
    if not tag:
        return rows
    gap = cells - width(rows[-1]) - width(tag)
    if gap < 2 and len(rows) < lines:  # noqa: PLR2004 (what separates two columns)
        return [*rows, f"{tag:>{cells}}"]
    last = columns.fit(rows[-1], cells - width(tag) - 2, 1)[0]
    gap = cells - width(last) - width(tag)
    return [*rows[:-1], f"{last}{' ' * gap}{tag}"]
