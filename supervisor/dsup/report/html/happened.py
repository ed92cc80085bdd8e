"""What happened around a death, and how it is written over the rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Final, NamedTuple

from dsup.core.exits import SIGKILL, signal_name
from dsup.core.verdict import LOOKED_AT, Evidence, Verdict
from dsup.report.html.chart import GUTTER, LEFT, RIGHT, WIDTH, Text, clear_of
from dsup.report.html.lives import Attempt
from dsup.report.html.scale import Scale
from dsup.report.html.values import Story
from dsup.report.html.words import duration, fitted
from dsup.report.sentences import ranks as ranks_words

BEFORE_S: Final = 1.0
TIER: Final = 31.0

_TIERS: Final = 3
_EVENTS_MAX: Final = 4
_NEAR_PX: Final = 7.0
_HEAD_PX: Final = 250.0
_SAME_S: Final = 0.02
_ENDS: Final = "dsup ends the others"
_KILLS: Final = "dsup kills what is left"

SOURCES: Final = {
    "kernel": "kernel log",
    "note": "note",
    "error_file": "error.json",
    "status": "wait status",
    "state": "process state",
    "counters": "counters",
    "nvml": "NVML",
    "audit": "audit log",
    "launcher": "launcher",
    "log": "log",
}
"""How the page names where evidence is from; others are named as they are."""

_HEADS: Final = (
    ("Killed process", 3),
    ("segfault at", 3),
    ("Xid", 4),
    ("oom_kill", 4),
)
"""Where the news begins in a long line, and how many words of it tell it."""


class Event(NamedTuple):
    """What happened at one moment, for all rows.

    Attributes:
        more: a second, quiet line.
    """

    at_s: float
    text: str
    more: str = ""


class Head(NamedTuple):
    """The head of a vertical line, and its texts."""

    x: float
    y: float
    texts: tuple[Text, ...]


def events(story: Story, attempt: Attempt, zero_s: float) -> list[Event]:
    """Return what happened around the death, in order."""
    verdict = attempt.verdict
    if verdict is None:
        return []
    found = [_proof(verdict, zero_s)]
    first = [life for life in attempt.ranks if life.rank in verdict.first_ranks]
    ends = [life.end_s for life in first if life.end_s is not None]
    if len(ends) == 1:
        rank = first[0].rank
        what = "was gone" if story.launcher == "dsup" else "printed its last line"
        late = f"after {duration(ends[0] - zero_s)}"
        found.append(Event(ends[0], f"rank {rank} {what}", late))
    found += [
        Event(
            sent.at_s,
            _KILLS if sent.signum == SIGKILL else _ENDS,
            f"{signal_name(sent.signum)} to {ranks_words(sent.ranks)}",
        )
        for sent in attempt.signals
        if sent.ranks and sent.at_s >= zero_s - BEFORE_S
    ]
    return sorted(found, key=lambda event: round(event.at_s, 3))


def source(evidence: Evidence) -> str:
    """Return where a piece of evidence is from, in words."""
    return SOURCES.get(evidence.source, evidence.source)


def _proof(verdict: Verdict, zero_s: float) -> Event:
    """Return how the death itself is known."""
    near = [
        (number, one)
        for number, one in enumerate(verdict.evidence, 1)
        if one.at_s is not None and abs(one.at_s - zero_s) <= _SAME_S
        if not one.text.startswith(LOOKED_AT)
    ]
    if not near:
        return Event(zero_s, "it began", verdict.cause)
    text = f"{source(near[0][1])}: {_head_of(near[0][1].text)}"
    cited = ", ".join(f"E{number}" for number, _ in near[:4])
    return Event(zero_s, fitted(text, 12.5, _HEAD_PX, bold=True), cited)


def _head_of(text: str) -> str:
    for word, many in _HEADS:
        at = text.find(word)
        if at >= 0:
            return " ".join(text[at : at + 120].split()[:many]).rstrip(",;:")
    return text[:120]


def _merged(found: Sequence[Event], scale: Scale) -> list[Event]:
    """Return events, those that lie on one line told together."""
    merged: list[Event] = []
    for event in found:
        last = merged[-1] if merged else None
        if last is not None and scale.x(event.at_s) - scale.x(last.at_s) < _NEAR_PX:
            text = f"{last.text}; {event.text}"
            merged[-1] = last._replace(text=text, more=last.more or event.more)
        else:
            merged.append(event)
    return merged


def event_heads(found: Sequence[Event], scale: Scale) -> tuple[list[Head], int]:
    """Return the heads of events and how many tiers of them there are.

    A line goes from its head down through the rows, so a head whose words it would
    cross goes above it; so does the earlier one of two that would touch.
    """
    merged = _merged(found, scale)[:_EVENTS_MAX]
    heads = [Head(x, 0, _head_texts(e, x)) for e in merged for x in [scale.x(e.at_s)]]
    tier = _tiers(heads)
    tiers = 1 + max(tier, default=0)
    placed = []
    for head, at in zip(heads, tier, strict=True):
        top = TIER * (tiers - 1 - at)
        moved = tuple(text._replace(y=text.y + top + 10) for text in head.texts)
        placed.append(Head(head.x, top, moved))
    return placed, tiers


def _tiers(heads: Sequence[Head]) -> list[int]:
    """Return how many tiers above the lowest each head is."""
    tier = [0] * len(heads)
    for _ in heads:
        for a, b in permutations(range(len(heads)), 2):
            crossed = any(_crosses(heads[b].x, text) for text in heads[a].texts)
            touch = any(not clear_of(text, heads[b].texts) for text in heads[a].texts)
            earlier = touch and a < b and tier[a] == tier[b]
            if (crossed and tier[a] <= tier[b]) or earlier:
                tier[a] = min(tier[b] + 1, _TIERS)
    return tier


def _crosses(x: float, text: Text) -> bool:
    left, _, right, _ = text.box
    return left - 2 < x < right + 2


def _head_texts(event: Event, x: float) -> tuple[Text, ...]:
    """Return a head's lines, on the side of its line where they fit.

    The first line may reach over the ends of rows; the second would meet their heading.
    """
    lines = (
        Text(x + 4, 0, event.text, "bold"),
        Text(x + 4, 14, event.more, "axis"),
    )
    edges = (WIDTH, GUTTER - 8)
    over = any(text.box[2] > edge for text, edge in zip(lines, edges, strict=True))
    left = over and x > (LEFT + RIGHT) / 2
    texts = []
    for text, edge in zip(lines, edges, strict=True):
        room = x - LEFT if left else edge - x - 4
        seen = fitted(text.text, text.size, room, bold=text.kind == "bold")
        moved = text._replace(text=seen)
        texts.append(moved._replace(x=x - 4, anchor="end") if left else moved)
    return tuple(text for text in texts if text.text)
