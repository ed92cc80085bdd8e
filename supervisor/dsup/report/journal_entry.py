"""A verdict as an entry of systemd's journal: one line, and fields to find it by. Pure.

``journalctl MESSAGE_ID=…`` finds every verdict of a node; the two numbers are dsup's
own for ever.
"""

from __future__ import annotations

import json
from typing import Final

from dsup.core.output import Tone
from dsup.core.verdict import Verdict
from dsup.report import panel

VERDICT_ID: Final = "6f2b0f9d5c1e4b7f9a4f7d3f0c8e21a5"
AMENDED_ID: Final = "d1c7a3b84e0f4a6c8f59b2e6a07d934c"
_RANKS_MAX: Final = 64


def entry(verdict: Verdict, next_text: str) -> tuple[str, str, Tone]:
    """Return the line, its fields as JSON, and how grave it is.

    Args:
        verdict: what happened.
        next_text: what dsup does next; empty to say nothing of it.
    """
    again = next_text.startswith("restart")
    line = panel.one_line(verdict, next_text)
    return line, _fields(verdict, VERDICT_ID), "warning" if again else "failure"


def amendment(before: Verdict, after: Verdict) -> tuple[str, str, Tone]:
    """Return the same of a verdict that late facts changed.

    Args:
        before: what was published.
        after: what is true.
    """
    line = panel.amended(before, after) or panel.one_line(after, "")
    return line, _fields(after, AMENDED_ID), "warning"


def _fields(verdict: Verdict, message_id: str) -> str:
    return json.dumps(
        {
            "MESSAGE_ID": message_id,
            "DSUP_ATTEMPT": verdict.attempt,
            "DSUP_CAUSE": verdict.cause,
            "DSUP_CERTAINTY": verdict.certainty,
            "DSUP_RANK": list(verdict.first_ranks[:_RANKS_MAX]),
        }
    )
