"""What several attempts of a run have in common: the same death twice is no accident.

Pure. Attempts are alike where their signatures are; which rank it was may differ, and
is told, because a death that wanders is the code's, and one that stays is a machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsup.core.verdict import Verdict
from dsup.report.sentences import ranks, spans


def compared(verdicts: Sequence[Verdict]) -> str:
    """Return what is the same in attempts, one line; empty for fewer than two."""
    told = [one for one in verdicts if one.signature]
    if len(told) < 2:  # noqa: PLR2004 (one alone is like no other)
        return ""
    last, alike = told[-1], like_last(told)
    if len(alike) == len(told):
        said = f"the same signature in all {len(told)}: {last.cause}{_where(alike)}"
    elif len(alike) > 1:
        others = [one for one in told if one.signature != last.signature]
        said = (
            f"the same signature in {_numbers(alike)}: {last.cause}{_where(alike)}; "
            f"another in {_numbers(others)}"
        )
    else:
        causes = ", then ".join(one.cause for one in told[-3:])
        said = f"the last one has a signature of its own: {causes}"
    return f"attempts compared: {said}"


def again(verdicts: Sequence[Verdict]) -> str:
    """Return that the last death was not the first of its kind; empty if it was."""
    alike = like_last(verdicts)
    if len(alike) < 2:  # noqa: PLR2004 (one alone is like no other)
        return ""
    where = _where(alike)
    return f"{_numbers(alike)} died the same way{where}: starting again did not help"


def comparison(verdicts: Sequence[Verdict]) -> dict[str, Any] | None:
    """Return the same for programs; None where there is nothing to compare."""
    alike = like_last(verdicts)
    if len(verdicts) < 2 or not alike:  # noqa: PLR2004 (one alone is like no other)
        return None
    return {
        "signature": alike[-1].signature,
        "attempts": [one.attempt for one in alike],
        "same_ranks": len({one.first_ranks for one in alike}) == 1,
    }


def like_last(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that have the last one's signature, itself among them."""
    mark = verdicts[-1].signature if verdicts else ""
    return [one for one in verdicts if mark and one.signature == mark]


def _where(alike: Sequence[Verdict]) -> str:
    """Return whether it was the same rank each time; empty where none is known."""
    named = [one.first_ranks for one in alike]
    if not all(named):
        return ""
    if len(set(named)) == 1:
        return f", each time {ranks(named[0])}"
    return f", {', then '.join(ranks(one) for one in named[-3:])}"


def _numbers(verdicts: Sequence[Verdict]) -> str:
    many = "" if len(verdicts) == 1 else "s"
    return f"attempt{many} {spans(one.attempt for one in verdicts)}"
