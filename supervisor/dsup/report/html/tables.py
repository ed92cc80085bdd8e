"""The tables of evidence and of ends. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dsup.core.exits import signal_name
from dsup.core.verdict import LOOKED_AT, Evidence, Verdict
from dsup.report.html import phrases
from dsup.report.html.happened import source
from dsup.report.html.lives import Attempt, RankLife, Role, roles
from dsup.report.html.rows import said
from dsup.report.html.values import Story
from dsup.report.html.words import (
    DASH,
    between,
    capped,
    ended,
    later,
    pieces,
    size,
)
from dsup.report.sentences import spans

ENDS_MAX: Final = 16

_ORDER: Final = ("first", "own", "victim", "ended", "told", "done", "open")

_KMSG: Final = " [kmsg seq "
_TELLING: Final = re.compile(
    r"CONSTRAINT_[A-Z_]{1,40}|anon-rss:\d{1,15}kB|oom_kill \d{1,9} (?:->|→) \d{1,9}"
    r"|SIG[A-Z]{2,8}\d{0,2}|exit code \d{1,3}|(?:Killed process|pid[ =])[ =]?\d{1,10}"
    r"|Xid \(PCI:[0-9A-Fa-f:.]{1,20}\): \d{1,5}|segfault at [0-9a-f]{1,16}"
    r"|fallen off the bus|(?<!\w)[A-Z]\w{0,60}(?:Error|Exception|Interrupt)(?!\w)"
    r"|(?:CUDA|NCCL) error|#\d{1,9}"
)
_LEADS: Final = ("Killed process ", "pid ", "pid=")
"""What stands before the telling number, and is not marked itself."""

_ANON: Final = re.compile(r"anon-rss:(\d{1,15})kB")
_PID: Final = re.compile(r"(?:Killed process|pid[ =:])[ =]?(\d{1,10})")


class Piece(NamedTuple):
    """A part of a raw line that is marked or not, cut where a line may break."""

    parts: tuple[str, ...]
    marked: bool


class Proof(NamedTuple):
    """One row of the evidence.

    Attributes:
        when: how much later than the death; empty if unknown.
        reading: what a raw line says, in plain words; empty for nothing.
    """

    number: int
    when: str
    source: str
    rank: str
    pieces: tuple[Piece, ...]
    reading: str
    where: tuple[str, ...]


class Ended(NamedTuple):
    """Ranks that ended alike."""

    ranks: str
    role: str
    how: str
    first: bool


def evidence(story: Story) -> list[Proof]:
    """Return what the verdict rests on, in its order: the proof first."""
    main, attempt = story.main, story.attempt
    if main is None:
        return []
    lives = attempt.ranks if attempt else ()
    pids = {life.pid: life.rank for life in lives if life.pid}
    zero_s = phrases.died_s(story)
    return [
        _proof(number, one, main.verdict, zero_s, pids)
        for number, one in enumerate(main.verdict.evidence, 1)
        if not one.text.startswith(LOOKED_AT)
    ]


def quiet(story: Story) -> list[str]:
    """Return what was looked at and proves nothing."""
    main = story.main
    if main is None:
        return []
    return [
        capped(one.text.removeprefix(LOOKED_AT).lstrip(", :"), 300)
        for one in main.verdict.evidence
        if one.text.startswith(LOOKED_AT)
    ]


def silent(story: Story) -> tuple[str, str]:
    """Return which rules had nothing to say: asked before the one that spoke; after."""
    if story.main is None:
        return "", ""
    verdict = story.main.verdict
    tried = [one.rule for one in verdict.looked]
    at = tried.index(verdict.rule) if verdict.rule in tried else len(tried)
    parts = verdict.looked[:at], verdict.looked[at + 1 :]
    names = [", ".join(one.rule for one in part if not one.cause) for part in parts]
    return names[0], names[1]


def ends(story: Story) -> list[Ended]:
    """Return who ended and of what, the first ranks on top."""
    if story.main is None:
        return []
    attempt = story.attempt or _named(story.main.verdict)
    lives = {life.rank: life for life in attempt.ranks}
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank, role in roles(attempt).items():
        groups.setdefault(_group(role, lives[rank].status), []).append(rank)
    ranked = sorted(groups.items(), key=lambda item: _ORDER.index(str(item[0][0])))
    found = roles(attempt)
    zero_s = phrases.died_s(story)
    rows = [
        _ended(story, attempt, ranks, found[ranks[0]], zero_s) for _, ranks in ranked
    ]
    if len(rows) > ENDS_MAX:
        left = len(rows) - ENDS_MAX
        more = Ended("", "", f"and {left} more ways to end", first=False)
        rows = [*rows[:ENDS_MAX], more]
    return rows


def _named(verdict: Verdict) -> Attempt:
    """Return an attempt of the ranks that its verdict names, where no more is known."""
    died = [victim.rank for victim in verdict.victims]
    ranks = sorted({*verdict.first_ranks, *died, *verdict.ended_by_dsup})
    lives = tuple(RankLife(rank, 0.0) for rank in ranks)
    return Attempt(verdict.attempt, 0.0, 0.0, lives, verdict)


def _proof(
    number: int,
    one: Evidence,
    verdict: Verdict,
    zero_s: float | None,
    pids: Mapping[int, int],
) -> Proof:
    text, place = _placed(one)
    victim = one.rank is not None and one.rank not in verdict.first_ranks
    when = ""
    if zero_s is not None and one.at_s is not None:
        when = later(one.at_s - zero_s)
    return Proof(
        number=number,
        when=when,
        source=source(one),
        rank=DASH if one.rank is None else str(one.rank),
        pieces=tuple(marked(capped(text), mark=not victim)),
        reading=_reading(text, pids) if one.source == "kernel" else "",
        where=tuple(pieces(place)) if place else (),
    )


def _placed(one: Evidence) -> tuple[str, str]:
    """Return a text, and where it stands."""
    if one.source == "kernel" and one.text.endswith("]"):
        text, found, seq = one.text.rpartition(_KMSG)
        if found:
            return text, f"kmsg seq {seq[:-1]}"
    if not one.file:
        return one.text, ""
    return one.text, one.file if one.line is None else f"{one.file}:{one.line}"


def marked(text: str, *, mark: bool) -> list[Piece]:
    """Return a line in pieces, its telling words marked."""
    found: list[Piece] = []
    start = 0
    for hit in _TELLING.finditer(text) if mark else ():
        lead = next((word for word in _LEADS if hit[0].startswith(word)), "")
        begin = hit.start() + len(lead)
        if begin > start:
            found.append(Piece(tuple(pieces(text[start:begin])), marked=False))
        found.append(Piece((text[begin : hit.end()],), marked=True))
        start = hit.end()
    rest = text[start:]
    return [*found, Piece(tuple(pieces(rest)), marked=False)] if rest else found


def _reading(text: str, pids: Mapping[int, int]) -> str:
    parts = []
    resident, pid = _ANON.search(text), _PID.search(text)
    if resident:
        parts.append(f"{size(int(resident[1]))} resident")
    if pid and int(pid[1]) in pids:
        parts.append(f"pid {pid[1]} is rank {pids[int(pid[1])]} itself")
    return "; ".join(parts)


def _group(role: Role, status: int | None) -> tuple[object, ...]:
    if role.kind in {"ended", "told", "open"}:
        return (role.kind,)
    return role.kind, role.of, said(role), status if role.kind != "victim" else None


def _ended(
    story: Story,
    attempt: Attempt,
    ranks: Sequence[int],
    role: Role,
    zero_s: float | None,
) -> Ended:
    lives = {life.rank: life for life in attempt.ranks}
    gone = [end_s for r in ranks if (end_s := lives[r].end_s) is not None]
    late = [] if zero_s is None else [end_s - zero_s for end_s in gone]
    when = f", {between(min(late), max(late))}" if late else ""
    status = ended(lives[ranks[0]].status)
    ender = phrases.ender(story)
    match role.kind:
        case "first":
            verdict = attempt.verdict
            words = phrases.short(verdict) if verdict else ""
            return Ended(spans(ranks), "first", _joined(words, status), first=True)
        case "victim":
            of = "victim" if len(ranks) == 1 else "victims"
            whom = of if role.of is None else f"{of} of rank {role.of}"
            how = said(role) or status
            return Ended(spans(ranks), whom, f"{how}{when}", first=False)
        case "ended":
            how = f"{_signals(attempt, ranks)}{ender}"
            last = f"; all gone at {later(max(late))}" if late else ""
            return Ended(spans(ranks), f"ended by {ender}", f"{how}{last}", first=False)
        case "told":
            how = f"{_signals(attempt, ranks)}{ender}, exit 0"
            return Ended(
                spans(ranks), f"told to end by {ender}", f"{how}{when}", first=False
            )
        case "own":
            return Ended(spans(ranks), "failed too", f"{status}{when}", first=False)
        case "done":
            return Ended(spans(ranks), "done", f"exit 0{when}", first=False)
        case _:
            words = "no end seen" if story.launcher == "dsup" else f"last line{when}"
            return Ended(spans(ranks), "unknown", words, first=False)


def _joined(words: str, status: str) -> str:
    return f"{words}, {status}" if status and status not in words else words


def _signals(attempt: Attempt, ranks: Sequence[int]) -> str:
    """Return ``SIGTERM from `` for ranks that got one."""
    here = set(ranks)
    told = [s.signum for s in attempt.signals if not here.isdisjoint(s.ranks)]
    names = dict.fromkeys(map(signal_name, told))
    return f"{', then '.join(names)} from " if names else "a signal from "
