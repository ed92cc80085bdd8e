"""What several attempts of a run have in common: the same death twice is no accident.

Pure. Attempts are alike where their signatures are; which rank it was may differ, and
is told, because a death that wanders is the code's, and one that stays is a machine's.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsup.core.verdict import Verdict
from dsup.report.sentences import ranks


def compared(verdicts: Sequence[Verdict]) -> str:
    """Return what is the same in attempts, one line; empty for fewer than two."""
    told = [one for one in verdicts if one.signature]
    if len(told) < 2:  # noqa: PLR2004 (one alone is like no other)
        return ""
    last = told[-1]
    alike = [one for one in told if one.signature == last.signature]
    if len(alike) == len(told):
        said = f"the same signature in all {len(told)}: {last.cause}{_where(alike)}"
    elif len(alike) > 1:
        others = [one for one in told if one.signature != last.signature]
        numbers = _numbers(alike)
        said = (
            f"the same signature in {numbers}: {last.cause}{_where(alike)}; another in "
            f"{_numbers(others)}"
        )
    else:
        causes = ", then ".join(one.cause for one in told[-3:])
        said = f"the last one has a signature of its own: {causes}"
    return f"attempts compared: {said}"


def _where(alike: Sequence[Verdict]) -> str:
    """Return whether it was the same rank each time; empty where none is known."""
    named = [one.first_ranks for one in alike]
    if not all(named):
        return ""
    if len(set(named)) == 1:
        return f", each time {ranks(named[0])}"
    return f", {', then '.join(ranks(one) for one in named[-3:])}"


def _numbers(verdicts: Sequence[Verdict]) -> str:
    return " and ".join(str(one.attempt) for one in verdicts[-3:])
