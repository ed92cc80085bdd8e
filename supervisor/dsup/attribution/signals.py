"""Rules about deaths by a signal that somebody sent, or the kernel at a limit.

Sources: signal(7), setrlimit(2).
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import Account, leaders
from dsup.attribution.crashes import CRASHES
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import sentence, subject, was
from dsup.core.exits import SIGINT, SIGKILL, signal_name
from dsup.core.verdict import Certainty, Verdict

_LIMITS: Final = {
    24: "processor time (ulimit -t)",
    25: "the size of a file (ulimit -f)",
}
"""What SIGXCPU and SIGXFSZ are sent for."""


def limit_reached(timeline: Timeline) -> Verdict | None:
    """Name ranks that ended with SIGXCPU or SIGXFSZ: a ulimit was reached.

    Symptom: that signal in the wait status. The kernel sends it at RLIMIT_CPU and
    RLIMIT_FSIZE (setrlimit(2)), and hardly anybody else does; Python ignores SIGXFSZ,
    so that a rank in which it kills has set its handler back.
    """
    dead = _terminated(timeline)
    if not dead or -dead[0].status not in _LIMITS:
        return None
    name, limit = signal_name(-dead[0].status), _LIMITS[-dead[0].status]
    text = f"killed by {name}, which the kernel sends at a limit on {limit}"
    return _ended_by_signal(timeline, dead, "proven", ("limit_reached", text))


def terminated(timeline: Timeline) -> Verdict | None:
    """Name ranks that ended with a signal that somebody sent, perhaps they themselves.

    Symptom: SIGTERM, SIGINT, SIGHUP and their like in the wait status of a rank that
    dsup had not signalled. No other rank's end does that. Only likely for SIGINT, with
    which Python also ends after a KeyboardInterrupt that the program raised itself.
    """
    dead = _terminated(timeline)
    if not dead or -dead[0].status in _LIMITS:
        return None
    raised = dead[0].status == -SIGINT
    rest = ", not dsup, or raised KeyboardInterrupt" if raised else ": not dsup"
    text = f"killed by {signal_name(-dead[0].status)} of unknown sender{rest}"
    sure: Certainty = "likely" if raised else "proven"
    return _ended_by_signal(timeline, dead, sure, ("terminated", text))


def _terminated(timeline: Timeline) -> list[Account]:
    """Return the leaders that ended with the same signal, neither crash nor SIGKILL."""
    dead = [
        a
        for a in leaders(timeline)
        if a.sort == "signal"
        and a.end is not None
        and a.status != -SIGKILL
        and -a.status not in CRASHES
    ]
    return [a for a in dead if a.status == dead[0].status]


def _ended_by_signal(
    timeline: Timeline, alike: list[Account], sure: Certainty, rule: tuple[str, str]
) -> Verdict:
    """Return the verdict that a signal ended these; the rule's name and its words."""
    ranks = tuple(a.rank for a in alike)
    evidence = (
        *(line for a in alike for line in proof.of_end(a)),
        *proof.of_silence(timeline, ranks),
        *(line for rank in ranks for line in proof.of_last_lines(timeline, rank)),
    )
    return Verdict(
        timeline.attempt,
        "killed",
        ranks,
        sure,
        min(a.until_s for a in alike),
        sentence(f"{subject(ranks, timeline.world_size)} {was(ranks)} {rule[1]}"),
        rule[0],
        evidence,
        status=alike[0].status,
        signature=signal_name(-alike[0].status),
    )
