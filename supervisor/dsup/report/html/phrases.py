"""The page's own sentences: heading, reasons, captions. Pure."""

from __future__ import annotations

import math
import re
from typing import Final

from dsup.core.verdict import Verdict
from dsup.report.html import growth
from dsup.report.html.lives import Attempt, began_s, named
from dsup.report.html.values import Story
from dsup.report.html.words import count, duration, ended
from dsup.report.sentences import ranks as ranks_words
from dsup.report.sentences import spans, whom_dsup_ended

SHORT: Final = {
    "python_exception": "raised an exception",
    "import_error": "could not import a module",
    "config_error": "refused its configuration",
    "checkpoint_error": "could not load its checkpoint",
    "cuda_oom": "ran out of GPU memory",
    "device_assert": "failed a device-side assertion",
    "collective_mismatch": "called another collective",
    "early_exit": "ended early with 0",
    "numeric_divergence": "diverged",
    "disk_full": "met a full disk",
    "spawn_error": "could not be started",
    "preempted": "was preempted",
    "time_limit": "reached its time limit",
    "user_interrupt": "was stopped by hand",
    "host_oom": "killed by the kernel (OOM)",
    "segfault": "crashed (segmentation fault)",
    "sigbus": "crashed (bus error)",
    "abort": "aborted",
    "killed": "was killed, sender unknown",
    "agent_killed": "lost dsup's agent",
    "cuda_error": "met a CUDA error",
    "dataloader_worker": "lost a DataLoader worker",
    "unknown": "failed, cause unknown",
    "pids_limit": "could start no process",
    "gpu_hardware": "lost its GPU",
    "unkillable": "cannot be killed",
    "node_rebooted": "lost its node (reboot)",
    "hang": "hung",
    "nccl_network": "lost the network",
    "storage_io": "met a storage failure",
    "port_in_use": "met a port in use",
    "store_lost": "lost the store",
    "node_lost": "lost its node",
}
"""What a first rank did, in a few words; one for each cause."""

_RAISED: Final = re.compile(r"(?:[A-Za-z_][\w.]{0,80}\.)?([A-Z]\w{0,60})(?=:|$| \()")
_SUBJECT: Final = re.compile(
    r"(?:All \d{1,6} ranks|Node \S{1,80}"
    r"|Ranks? \d{1,6}(?:(?:-|, | and | to )\d{1,6}){0,40})(?= )"
)
_MEMORY: Final = ("host_oom", "killed", "dataloader_worker", "unknown", "agent_killed")
_UNSURE: Final = {"likely": "likely ", "guess": "perhaps "}


def subject(sentence: str) -> tuple[str, str]:
    """Return a verdict's sentence as its subject and the rest, without a full stop."""
    whole = sentence.strip()
    whole = whole.removesuffix(".")
    found = _SUBJECT.match(whole)
    return (found[0], whole[found.end() :]) if found else ("", whole)


def short(verdict: Verdict) -> str:
    """Return what the first rank did: ``raised ValueError``."""
    if verdict.cause == "unknown" and verdict.status not in {0, 1}:
        return f"ended by {ended(verdict.status)}, cause unknown"
    if verdict.cause == "python_exception":
        sources = ("note", "error_file", "log", "stderr")
        for one in verdict.evidence:
            raised = _RAISED.match(one.text) if one.source in sources else None
            if raised:
                return f"raised {raised[1]}"
    return SHORT.get(verdict.cause, verdict.cause)


def first_words(story: Story) -> str:
    """Return what stands at the end of the first rank's row."""
    verdict = story.main.verdict if story.main else None
    if verdict is None:
        return ""
    unsure = _UNSURE.get(verdict.certainty, "")
    return f"{unsure}first · {short(verdict).removeprefix('was ')}"


def title(story: Story) -> str:
    """Return the title of the page."""
    main = story.main
    if main is None:
        return f"{story.name} · dsup"
    verdict = main.verdict
    if verdict.first_ranks:
        who = ranks_words(verdict.first_ranks).capitalize()
        return f"{who} {short(verdict)} · {story.name} · dsup"
    return f"{verdict.cause} · {story.name} · dsup"


def reasons(story: Story) -> list[str]:
    """Return at most two lines on why: growth, or what is missing; what came of it."""
    main, attempt = story.main, story.attempt
    if main is None:
        return []
    verdict = main.verdict
    grown = ""
    if attempt and verdict.cause in _MEMORY:
        grown = growth.sentence(attempt)
    came = " ".join(filter(None, (_aftermath(story, verdict), _alike(story))))
    lines = [grown or _missing(verdict), came]
    return [line for line in lines if line]


def _missing(verdict: Verdict) -> str:
    if verdict.certainty == "proven" or not verdict.would_change:
        return ""
    said = verdict.would_change[0].strip().rstrip(".")
    lower = said if said[1:2].isupper() else f"{said[:1].lower()}{said[1:]}"
    return f"What could change this answer: {lower}."


def _aftermath(story: Story, verdict: Verdict) -> str:
    died = [victim.rank for victim in verdict.victims]
    parts = [f"{ranks_words(died)} died of it"] if died else []
    ended, left = whom_dsup_ended(verdict), verdict.left_with_0
    if ended:
        parts.append(f"{ender(story)} ended {ranks_words(ended)}")
    if left:
        parts.append(f"{ranks_words(left)} left with 0 when {ender(story)} said so")
    return f"{capital('; '.join(parts))}." if parts else ""


def capital(text: str) -> str:
    """Return a text as a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def _alike(story: Story) -> str:
    """Return which earlier attempts died alike."""
    verdicts = {one.verdict.attempt: one.verdict for one in story.told}
    if len(verdicts) < 2:  # noqa: PLR2004
        return ""
    last = verdicts.pop(story.told[-1].verdict.attempt)
    alike = last.signature
    same = [n for n, v in verdicts.items() if alike and v.signature == alike]
    many = "" if len(verdicts) == 1 else "s"
    if len(same) == len(verdicts):
        same_rank = all(v.first_ranks == last.first_ranks for v in verdicts.values())
        first = ", and in the same rank" if same_rank and last.first_ranks else ""
        return f"Attempt{many} {spans(verdicts)} died the same way{first}."
    if not same:
        return f"Attempt{many} {spans(verdicts)} died of something else."
    return f"Of {len(verdicts)} earlier attempts, {spans(same)} died the same way."


def tale(story: Story) -> str:
    """Return the picture of the run in two sentences, for those who do not see it."""
    attempts = count(len(story.attempts), "attempt")
    whole = f"{count(story.world_size, 'rank')}, {attempts}."
    main = story.main
    if main is None:
        return f"{whole} {story.outcome[:1].upper()}{story.outcome[1:]}."
    return f"{whole} {main.verdict.summary}"


def caption(story: Story, *, shown: int, blocks: bool) -> str:
    """Return what the first picture shows.

    Args:
        story: what the page tells.
        shown: how many attempts it shows.
        blocks: older attempts are drawn as blocks of one width.
    """
    attempts = len(story.attempts)
    if not story.clock:
        return "The order of the ranks' lines; the log has no clock, so no times."
    which = "the only attempt"
    if blocks:
        which = "the last attempt whole, older ones as blocks"
    elif shown < attempts:
        which = f"the last {shown} of {attempts} attempts"
    elif attempts > 1:
        which = "both attempts" if attempts == 2 else f"all {attempts} attempts"  # noqa: PLR2004
    attempt = story.attempt
    folded = attempt is not None and len(attempt.ranks) > 16  # noqa: PLR2004
    who = "the ranks that matter, others folded" if folded else "all ranks"
    scene = f"The whole run: {who}, {which}."
    return f"{scene} {_began(story)}".strip()


def attempt_detail(attempt: Attempt, before: Attempt | None) -> str:
    """Return what stands beside an attempt's name: its steps, the pause before it."""
    parts = []
    if attempt.stepped:
        (_, first), (_, last) = attempt.stepped
        begin = first if attempt.from_step is None else attempt.from_step
        parts.append(f"steps {begin} to {last}")
    elif attempt.from_step is not None:
        parts.append(f"from step {attempt.from_step}")
    if before is not None:
        pause_s = attempt.start_s - before.end_s
        if pause_s >= 1:
            parts.append(f"after a pause of {duration(pause_s)}")
    return " · ".join(parts)


def ender(story: Story) -> str:
    """Return who ended ranks that had done nothing."""
    return "dsup" if story.launcher == "dsup" else "the launcher"


def died_s(story: Story) -> float | None:
    """Return when it began, CLOCK_REALTIME; None if no clock tells."""
    main = story.main
    if main is None or not story.clock:
        return None
    if story.attempt is not None:
        return began_s(story.attempt)
    return main.verdict.at_s if math.isfinite(main.verdict.at_s) else None


def _began(story: Story) -> str:
    main, attempt = story.main, story.attempt
    if main is None or attempt is None:
        return ""
    first = named(attempt)
    if not first:
        return "" if not main.verdict.first_ranks else "All ranks failed alike."
    verdicts = {one.verdict.attempt: one.verdict.first_ranks for one in story.told}
    who = ranks_words(first).capitalize()
    if len(verdicts) > 1 and len(set(verdicts.values())) == 1:
        where = "both" if len(verdicts) == 2 else f"all {len(verdicts)}"  # noqa: PLR2004
        return f"{who} went first in {where}."
    return f"{who} went first."
