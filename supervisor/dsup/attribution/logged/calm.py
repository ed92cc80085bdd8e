"""Whether a log tells of any failure at all.

Most text that people hand over by mistake does not: the log of a run that went well, a
script, a configuration. There is no verdict on it then.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution.logged.survived import all_outlived, succeeded
from dsup.core.verdict import Verdict
from dsup.facts.logs.said import LoggedAttempt

_OF_JOBS: Final = frozenset({"other", "crash"})
_LAST_LINES: Final = 8
_ENDED: Final = (
    *("train_runtime", "100%|", "training complete", "training finished"),
    *("worker group successfully finished", "saved final", "final.pt"),
)


def had_ended(attempt: LoggedAttempt) -> bool:
    """Return whether the training had come to its end: it says so, or its bar does."""
    if any(one.done for one in attempt.progress.values()):
        return True
    last = " ".join(attempt.last_lines[-_LAST_LINES:]).lower()
    return any(words in last for words in _ENDED)


def is_calm(attempt: LoggedAttempt, verdict: Verdict) -> bool:
    """Return whether a log tells of no failure, so that no verdict is due.

    Symptom: no rule spoke. Then either nothing in the text is of a job, or no line of
    it has a word that failures are told with, and it does not break off between two
    steps.
    """
    if verdict.rule != "unknown":
        return False
    steps = any(one.step is not None for one in attempt.progress.values())
    is_job = bool(attempt.launcher or attempt.ranks or attempt.world_size or steps)
    is_job = is_job or any(one.kind in _OF_JOBS for one in attempt.complaints)
    if not is_job:
        return True
    if succeeded(attempt):
        return True
    if had_ended(attempt) and all_outlived(attempt):
        failing = any(end.status != 0 for end in attempt.ends)
        return not (failing or attempt.stops or attempt.collectives)
    told = (attempt.errors, attempt.ends, attempt.collectives, attempt.complaints)
    failed = attempt.troubled or any(told) or bool(attempt.stops)
    return not failed and (not steps or had_ended(attempt))
