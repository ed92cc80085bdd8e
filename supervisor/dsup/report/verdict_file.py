"""Verdicts as bytes: ``verdict.json`` for people and programs, and the judge's answer.

What is read back is trusted in nothing: it may be garbage, of a type or size that no
verdict has, or carry what would move a terminal's cursor. Whatever passes has the
types of ``Verdict`` and texts that are printable and capped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from dsup.core.exits import CAUSES
from dsup.core.printable import printable
from dsup.core.verdict import (
    LOOKED_AT,
    SUMMARY_MAX_CHARS,
    Advice,
    Evidence,
    Looked,
    Verdict,
    Victim,
)
from dsup.report.typed import a_dict, a_list, build, loads

WIRE_MAX_BYTES: Final = 65_535
FILE_MAX_BYTES: Final = 4 * 1024 * 1024
EVIDENCE_MAX: Final = 24
TEXT_MAX_CHARS: Final = 500
HOW_MAX_CHARS: Final = 100
WORD_MAX_CHARS: Final = 100
RANKS_MAX: Final = 2048
LOOKED_MAX: Final = 64
LOOKED_RANKS_MAX: Final = 64
CHANGES_MAX: Final = 12

_RULE_MAX_CHARS: Final = 40
_YEAR_9999_S: Final = 253_402_300_799


class Most(NamedTuple):
    """How much of a verdict is kept, the first ones of each kind.

    Attributes:
        evidence: pieces of it.
        ranks: ranks of each kind.
        looked: ranks that each rule would name.
        changes: sentences on what would change the answer.
    """

    evidence: int = EVIDENCE_MAX
    ranks: int = RANKS_MAX
    looked: int = LOOKED_RANKS_MAX
    changes: int = CHANGES_MAX


WHOLE: Final = Most()
_TIGHTER: Final = (
    WHOLE,
    Most(looked=4),
    Most(12, 512, 4, 8),
    Most(4, 64, 1, 4),
    Most(1, 8, 0, 1),
)
"""Tried until an answer is small enough."""


class Kept(NamedTuple):
    """What a verdict.json holds.

    Attributes:
        verdict: its times are CLOCK_REALTIME, seconds; NaN where nothing told them.
        nodes: where its first ranks ran.
        ended: exit code of the run and whose it is; None where the run went on.
    """

    verdict: Verdict
    nodes: tuple[str, ...]
    ended: tuple[int, str] | None


def fields(
    verdict: Verdict, *, node: str, offset_s: float, ended: tuple[int, str] | None
) -> dict[str, Any]:
    """Return a verdict as programs read it.

    Args:
        verdict: what happened.
        node: name of the node; empty if unknown.
        offset_s: CLOCK_REALTIME minus the verdict's clock, seconds.
        ended: exit code of the run and ``rank`` or ``dsup``, whose code that is; None
            where the attempt was restarted, or that is not known yet.
    """
    said = capped(verdict)
    return {
        "attempt": said.attempt,
        "cause": said.cause,
        "first_ranks": said.first_ranks,
        "first_nodes": [node] if said.first_ranks and node else [],
        "certainty": said.certainty,
        "at": stamp(said.at_s, offset_s),
        "summary": said.summary,
        "rule": said.rule,
        "evidence": [_evidence(one, node, offset_s) for one in said.evidence],
        "victims": [victim._asdict() for victim in said.victims],
        "ended_by_dsup": said.ended_by_dsup,
        "left_with_0": said.left_with_0,
        "advice": said.advice._asdict() if said.advice else None,
        "exit": {"code": ended[0], "origin": ended[1]} if ended else None,
        "status": said.status,
        "signature": said.signature,
        "looked": [one._asdict() for one in said.looked],
        "would_change": said.would_change,
    }


def encode(
    verdict: Verdict, *, node: str, offset_s: float, ended: tuple[int, str] | None
) -> bytes:
    """Return the content of a verdict.json; the arguments are those of ``fields``."""
    known = fields(verdict, node=node, offset_s=offset_s, ended=ended)
    text = json.dumps(known, indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def decode(raw: bytes) -> Kept:
    """Return what a verdict.json says; fields of later versions are passed over.

    Raises:
        ValueError: it is none.
    """
    if len(raw) > FILE_MAX_BYTES:
        raise ValueError("a verdict.json is not that large")
    found = a_dict(loads(raw))
    timeless = "at" in found and found["at"] is None
    known = {
        **found,
        "at_s": 0.0 if timeless else _seconds(found.get("at")),
        "evidence": [_an_evidence(one) for one in _some(found, "evidence")],
        "victims": [_listed(Victim, a_dict(one)) for one in _some(found, "victims")],
        "looked": [_listed(Looked, a_dict(one)) for one in _later(found, "looked")],
        "left_with_0": _later(found, "left_with_0"),
        "would_change": _later(found, "would_change"),
    }
    if known.get("advice") is not None:
        known["advice"] = _listed(Advice, a_dict(known["advice"]))
    verdict = _verdict(_listed(Verdict, known))
    if timeless:
        verdict = verdict._replace(at_s=math.nan)
    nodes = tuple(_word(build(str, one)) for one in _some(found, "first_nodes"))
    return Kept(verdict, nodes, _ended(found.get("exit")))


def to_wire(verdict: Verdict) -> bytes:
    """Return a verdict for ``from_wire``, in at most ``WIRE_MAX_BYTES``.

    Raises:
        ValueError: a time in it is no number.
    """
    answers = (_wire(capped(verdict, most)) for most in _TIGHTER)
    return next(answer for answer in answers if len(answer) <= WIRE_MAX_BYTES)


def from_wire(raw: bytes) -> Verdict:
    """Return the verdict that ``to_wire`` was given, as far as it was kept.

    Raises:
        ValueError: the answer is none of ``to_wire``'s.
    """
    if len(raw) > WIRE_MAX_BYTES:
        raise ValueError("an answer is not that large")
    return _verdict(loads(raw))


def capped(verdict: Verdict, most: Most = WHOLE) -> Verdict:
    """Return a verdict with printable texts, none of its parts too long."""
    advice = verdict.advice
    return verdict._replace(
        first_ranks=verdict.first_ranks[: most.ranks],
        summary=_text(verdict.summary, SUMMARY_MAX_CHARS),
        rule=_word(verdict.rule),
        evidence=tuple(
            one._replace(
                text=_text(one.text, TEXT_MAX_CHARS), file=_text(one.file, 255)
            )
            for one in verdict.evidence[: most.evidence]
        ),
        victims=tuple(
            one._replace(how=_text(one.how, HOW_MAX_CHARS))
            for one in verdict.victims[: most.ranks]
        ),
        ended_by_dsup=verdict.ended_by_dsup[: most.ranks],
        left_with_0=verdict.left_with_0[: most.ranks],
        advice=advice
        and Advice(_word(advice.action), _text(advice.text, TEXT_MAX_CHARS)),
        signature=_text(verdict.signature, TEXT_MAX_CHARS),
        looked=tuple(
            Looked(
                _text(one.rule, _RULE_MAX_CHARS),
                _text(one.cause, _RULE_MAX_CHARS),
                one.first_ranks[: most.looked],
            )
            for one in verdict.looked[:LOOKED_MAX]
        ),
        would_change=tuple(
            _text(one, TEXT_MAX_CHARS) for one in verdict.would_change[: most.changes]
        ),
    )


def _verdict(found: object) -> Verdict:
    verdict = build(Verdict, found)
    if verdict.cause not in CAUSES:
        raise ValueError("no known cause")
    return capped(verdict)


def _wire(verdict: Verdict) -> bytes:
    compact = (",", ":")
    text = json.dumps(verdict, ensure_ascii=False, allow_nan=False, separators=compact)
    return text.encode()


def _text(text: str, most: int) -> str:
    """Return a text as one printable line; the end of a long one is cut."""
    line = printable(" ".join(text[: 2 * most].split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _word(text: str) -> str:
    return _text(text, WORD_MAX_CHARS)


def _evidence(one: Evidence, node: str, offset_s: float) -> dict[str, Any]:
    return {
        "source": one.source,
        "rank": one.rank,
        "node": node or None,
        "at": None if one.at_s is None else stamp(one.at_s, offset_s),
        "text": one.text,
        "file": one.file,
        "line": one.line,
        "dismissed": one.text.startswith(LOOKED_AT),
    }


def stamp(at_s: float, offset_s: float) -> str | None:
    """Return a time as ISO 8601 in UTC; None for one that is no number.

    Args:
        at_s: on any clock, seconds.
        offset_s: CLOCK_REALTIME minus that clock, seconds.
    """
    if math.isnan(at_s):
        return None
    wall_s = min(max(at_s + offset_s, 0.0), _YEAR_9999_S)
    at = datetime.fromtimestamp(wall_s, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _seconds(told: object) -> float | None:
    """Return a time as CLOCK_REALTIME in seconds; None for none.

    Raises:
        ValueError: it is no time with its distance from UTC.
    """
    if told is None:
        return None
    if not isinstance(told, str) or len(told) > WORD_MAX_CHARS:
        raise ValueError("not a time")
    at = datetime.fromisoformat(told)
    if at.tzinfo is None:
        raise ValueError("a time of an unknown place")
    return (at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


def _some(found: Mapping[str, object], name: str) -> list[object]:
    return a_list(found.get(name))[:RANKS_MAX]


def _later(found: Mapping[str, object], name: str) -> list[object]:
    """Return a list that a file of an earlier version does not have."""
    return _some(found, name) if found.get(name) is not None else []


def _an_evidence(found: object) -> list[object]:
    one = a_dict(found)
    return _listed(Evidence, {**one, "at_s": _seconds(one.get("at"))})


def _listed(cls: Any, found: Mapping[str, object]) -> list[object]:  # noqa: ANN401
    return [found.get(name) for name in cls._fields]


def _ended(found: object) -> tuple[int, str] | None:
    if found is None:
        return None
    ended = a_dict(found)
    return build(int, ended.get("code")), _word(build(str, ended.get("origin")))
