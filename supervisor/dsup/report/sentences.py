"""The parts of a report's sentences: ranks, times, victims. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Final

from dsup.core.verdict import Verdict, Victim

SPANS_MAX: Final = 8
"""So many spans of ranks are written out; the others are counted."""

_HOW_MAX_CHARS: Final = 200
_DELAY: Final = re.compile(r",? *\+(\d{1,9}(?:\.\d{1,9})?) s$")


def spans(numbers: Iterable[int], glue: str = ", ") -> str:
    """Return ``0-2, 5`` for 0, 1, 2 and 5."""
    found: list[list[int]] = []
    ranks = sorted(set(numbers))
    for number in ranks:
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    shown = [_span(span) for span in found[:SPANS_MAX]]
    if len(found) > SPANS_MAX:
        shown.append(f"… ({len(ranks)} in all)")
    return glue.join(shown)


def ranks(numbers: Iterable[int]) -> str:
    """Return ``rank 1`` or ``ranks 0-2, 5``."""
    listed = set(numbers)
    return f"rank{'' if len(listed) == 1 else 's'} {spans(listed)}"


def _span(span: list[int]) -> str:
    return "-".join(map(str, span))


def clock(at_s: float, offset_s: float, *, tenths: bool = False) -> str:
    """Return the time of day in UTC.

    Args:
        at_s: agent clock, seconds.
        offset_s: CLOCK_REALTIME minus the agent's clock, seconds.
        tenths: with tenths of a second, cut off and not rounded.
    """
    wall_s = at_s + offset_s
    try:
        shown = time.strftime("%H:%M:%S", time.gmtime(wall_s))
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"
    return f"{shown}.{int(wall_s * 10) % 10}" if tenths else shown


def told(verdict: Verdict) -> str:
    """Return the summary as it stands inside a sentence: no capital, no full stop."""
    sentence = " ".join(verdict.summary.split()).rstrip(".")
    proper = sentence[1:2].isupper()  # NVRM, SIGTERM
    return sentence if proper else sentence[:1].lower() + sentence[1:]


def victims(verdict: Verdict, launcher: str = "dsup") -> str:
    """Return who died of whom and how, and whom the launcher ended; may be empty."""
    alike: dict[tuple[int | None, str], list[Victim]] = {}
    for victim in verdict.victims:
        how, _ = _how(victim)
        alike.setdefault((victim.of, how), []).append(victim)
    parts = [_alike(of, how, group) for (of, how), group in alike.items()]
    said = ["; ".join(parts)] if parts else []
    ended, left = whom_dsup_ended(verdict), verdict.left_with_0
    said += [f"ended by {launcher}: {ranks(ended)}"] if ended else []
    said += [f"told to end by {launcher}: {ranks(left)} (exit 0)"] if left else []
    return " · ".join(said)


def whom_dsup_ended(verdict: Verdict) -> list[int]:
    """Return the ranks that dsup signalled, without those that then left with 0."""
    left = set(verdict.left_with_0)
    return [rank for rank in verdict.ended_by_dsup if rank not in left]


def _alike(of: int | None, how: str, group: Sequence[Victim]) -> str:
    who = ranks(victim.rank for victim in group)
    whose = "" if of is None else f", of rank {of}"
    delays = [late for _, late in map(_how, group) if late]
    if delays:
        first, last = min(delays, key=float), max(delays, key=float)
        when = f"+{first} s" if first == last else f"+{first} to +{last} s"
        how = f"{how}, {when}" if how else when
    return f"{who}{whose} ({how})" if how else f"{who}{whose}"


def _how(victim: Victim) -> tuple[str, str]:
    """Return how a rank ended, and how many seconds later; empty where not told."""
    how = victim.how[:_HOW_MAX_CHARS].strip()
    delay = _DELAY.search(how)
    return (how[: delay.start()], delay[1]) if delay else (how, "")
