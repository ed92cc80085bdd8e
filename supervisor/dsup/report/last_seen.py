"""What was seen last of an attempt that is cut off: more than its journal tells. Pure.

A journal tells of steps once a minute. The heartbeat page and the samples beside it are
seconds old at most, and of the very moment where the agent alone was killed. What they
know is put as one more event, so that whoever reads the journal reads on to there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.core.errors import JournalError
from dsup.core.verdict import Evidence
from dsup.facts.samples import Sample
from dsup.report.sentences import ranks
from dsup.report.slots import Slots

SLACK_S: Final = 60.0
"""A heartbeat counts if it is at most so much younger than all that dsup itself wrote:
nothing that a rank tells is trusted."""

_SIGNS_MAX: Final = 8


class Cut(NamedTuple):
    """The last attempt of a journal that tells of no end of the run.

    Attributes:
        n: the number of its last line.
        at_s: the time of its last event.
        whole: no rank of the attempt has ended.
    """

    attempt: int
    n: int
    at_s: float
    whole: bool


def cut(lines: Sequence[str]) -> Cut | None:
    """Return where a journal is cut off; None where the run has ended.

    Args:
        lines: a journal as it is found.
    """
    n, at_s, whole = None, None, True
    for line in reversed(lines):
        if at_s is not None and not _bears(line):
            continue
        with suppress(JournalError):
            entry = journal.decode(line)
            n = entry.n if n is None else n
            if isinstance(entry.command, cmd.Exit):
                return None
            if isinstance(entry.command, cmd.Prepare):
                number = entry.command.attempt
                return None if at_s is None else Cut(number, n, at_s, whole)
            whole = whole and not isinstance(entry.event, ev.RankExited)
            if at_s is None and entry.event is not None:
                at_s = entry.event.at_s
    return None


def _bears(line: str) -> bool:
    """Return whether a line may tell of a beginning or an end: most do not."""
    return '"prepare"' in line or '"rank_exited"' in line or '"exit"' in line


def one_more(cut: Cut, page: bytes, samples: Sequence[Sample]) -> str:
    """Return a journal's line that is not in it: when, and at which step, ranks were.

    Args:
        cut: where the journal is cut off.
        page: the attempt's heartbeat page as it was kept; empty for none.
        samples: the attempt's, oldest first.

    Returns:
        The line; empty where nothing is younger than the journal.
    """
    slots = Slots(page)
    known_s = max([cut.at_s, *(one.at_s for one in samples[-1:])])
    kept_s = slots.kept_s
    limit_s = known_s + SLACK_S if kept_s is None else max(kept_s, known_s)
    beats = [slots.beat_s(rank) for rank in slots.ranks]
    heard = [beat_s for beat_s in beats if beat_s is not None and beat_s <= limit_s]
    at_s = max([known_s if kept_s is None else limit_s, *heard])
    if at_s <= cut.at_s:
        return ""
    finished = slots.finished() if cut.whole else None
    event: ev.Event = ev.Tick("tick", at_s)
    if finished is not None:
        step, made_s = finished
        made_s = made_s if 0 < made_s <= at_s else at_s
        event = ev.Stepped("stepped", at_s, cut.attempt, step, made_s)
    return journal.encode(cut.n + 1, event)


def signs(page: bytes, ended: Collection[int], at_s: float) -> Iterator[Evidence]:
    """Yield what living ranks told last, those first that had been silent for longest.

    Args:
        page: the heartbeat page as it was kept; empty for none.
        ended: ranks whose end is known.
        at_s: when anything was seen last, agent clock, seconds.
    """
    slots = Slots(page)
    alike: dict[tuple[int, str], list[int]] = {}
    for rank in slots.ranks:
        beat_s = slots.beat_s(rank)
        if beat_s is not None and rank not in ended and math.isfinite(beat_s):
            ago_s = max(0.0, at_s - beat_s)
            alike.setdefault((int(ago_s), slots.phase(rank) or "?"), []).append(rank)
    for (_, phase), who in sorted(alike.items(), reverse=True)[:_SIGNS_MAX]:
        beat_s = max(slots.beat_s(rank) or 0.0 for rank in who)
        before_s = max(0.0, at_s - beat_s)
        step = _steps([slots.step(rank) for rank in who])
        text = f"{step}phase {phase}, {before_s:.1f} s before the end"
        one = who[0] if len(who) == 1 else None
        named = text if one is not None else f"{ranks(who)}: {text}"
        yield Evidence("heartbeat", named, one, min(beat_s, at_s))


def _steps(told: Sequence[int | None]) -> str:
    known = [step for step in told if step is not None]
    if not known:
        return ""
    first, last = min(known), max(known)
    return f"step {last}, " if first == last else f"steps {first}-{last}, "
