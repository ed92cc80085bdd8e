"""Rules for attempts whose ranks all died of each other's end, or of waiting.

Source: public failure logs. Where only victims speak, the one to name is who is
missing among them: frozen, asleep in the kernel, gone with exit 0, or not come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dsup.attribution import proof, whereabouts
from dsup.attribution.accounts import Account, accounts, all_are_victims, words
from dsup.attribution.timeline import Standing, Timeline
from dsup.attribution.wording import (
    listed,
    one_line,
    others,
    sentence,
    subject,
    was,
)
from dsup.core.verdict import Certainty, Evidence, Verdict
from dsup.facts.errors import is_timeout

_FROZEN: Final = frozenset("Tt")
_ASLEEP: Final = "D"
_ACCUSED: Final = re.compile(
    r"Ranks? (\d{1,7}(?:, \d{1,7}){0,63}) failed to pass monitoredBarrier"
)
_MISSED: Final = re.compile(
    r"because (?:rank [\d, ]{1,400} has ended and )?rank (\d{1,7}(?:, \d{1,7}){0,63}) "
    r"did not come"
)
"""What the runtime's own barrier says, see ``dsup_runtime.errors.BarrierTimeout``."""

_LOOKED_AT_CHARS: Final = 4096
_MET: Final = frozenset(
    {
        "connection closed by peer",
        "connection failed",
        "NCCL remote error",
        "store lost",
    }
)
"""What a rank meets that comes when the others are gone."""


def frozen(timeline: Timeline) -> Verdict | None:
    """Name ranks that stood in state T or t while the others failed.

    Symptom: SIGSTOP, a debugger. Looked at just before dsup's own signal. Nothing
    that the others say can tell it: they time out, or wait.
    """
    known = accounts(timeline)
    stopped = [s for s in _alive(timeline) if s.state in _FROZEN]
    if not stopped or not any(a.failed for a in known) or any(a.strong for a in known):
        return None
    text = "stopped by SIGSTOP (state T)"
    if all(stood.state == "t" for stood in stopped):
        text = "stopped by a debugger (state t)"
    seen = _seen(timeline, stopped, text)
    return _hang(timeline, _ranks(stopped), "proven", ("frozen", seen))


def asleep_in_kernel(timeline: Timeline) -> Verdict | None:
    """Name ranks that slept uninterruptibly while the others failed.

    Symptom: state D, and where in the kernel (a dead NFS server, a driver). Likely:
    a rank may pass through state D at any time.
    """
    asleep = [s for s in _alive(timeline) if s.state == _ASLEEP]
    if not asleep or not all_are_victims(timeline):
        return None
    where = sorted({s.wchan for s in asleep if s.wchan not in {"", "0"}})
    text = f"asleep in the kernel (state D{', ' if where else ''}{', '.join(where)})"
    seen = _seen(timeline, asleep, text)
    return _hang(timeline, _ranks(asleep), "likely", ("asleep_in_kernel", seen))


def did_not_come(timeline: Timeline) -> Verdict | None:
    """Name ranks that were alive and silent where the others had timed out.

    Symptom: every end is a time-out of a collective, of the store or of a monitored
    barrier, and some ranks did not end. Likely for one rank; a guess for several, and
    nobody is named where more ranks stand than timed out (one rank alone in a
    collective is the guilty one then). Steps of the heartbeat page narrow them down.
    """
    waited = [a for a in accounts(timeline) if a.failed]
    alive = list(_alive(timeline))
    if not alive or not all_are_victims(timeline):
        return None
    if not any(is_timeout(a.how) for a in waited):
        return None
    accused = _ranks(alive) & _accused(timeline)
    suspects = accused or _behind(timeline, _ranks(alive))
    if len(suspects) > len(waited) and not accused:
        return _nobody_came(timeline, waited, alive)
    certainty: Certainty = "likely" if len(suspects) == 1 else "guess"
    what = "did not enter the collective the others waited in"
    if any("clients" in _said(timeline, a) for a in waited):
        what = "did not join the process group the others waited for"
    return _hang(timeline, suspects, certainty, ("did_not_come", what))


def lived_on(timeline: Timeline) -> Verdict | None:
    """Name the one rank that lives while all others lost their connections.

    Symptom: ``connection closed by peer`` everywhere, yet one rank never ended: it
    closed its group and then hung, as in an exit handler. A guess.
    """
    alive = list(_alive(timeline))
    failed = [a for a in accounts(timeline) if a.failed]
    if len(alive) != 1 or len(failed) < 2 or not all_are_victims(timeline):  # noqa: PLR2004
        return None
    if len(failed) + 1 != timeline.world_size:
        return None
    what = f"lived on while {others(len(failed))} lost their connections"
    return _hang(timeline, _ranks(alive), "guess", ("lived_on", what))


def came_late(timeline: Timeline) -> Verdict | None:
    """Name ranks that came when the others had timed out: they speak like victims.

    Symptom: ranks time out in a collective, and one more meets closed connections after
    the last time-out. Whose connections closed before that had waited as well. Only
    where every rank failed of that, so that nobody else is missing, and fewer came late
    than timed out. Likely for one rank; a guess for several, and where one rank alone
    had waited. A monitored barrier or the steps of the heartbeat page narrow them down.
    """
    failed = [a for a in accounts(timeline) if a.failed]
    waited = [a for a in failed if is_timeout(a.how)]
    rest = [a for a in failed if not is_timeout(a.how)]
    if len(failed) < timeline.world_size or not all_are_victims(timeline):
        return None
    if not waited or any(a.how not in _MET for a in rest):
        return None
    last_s = max(a.until_s for a in waited)
    after = {a.rank for a in rest if a.from_s > last_s}
    late = after & _accused(timeline) or _behind(timeline, after)
    if not late or len(late) >= max(2, len(waited)):
        return None
    certainty: Certainty = "likely" if len(late) == 1 < len(waited) else "guess"
    count = "the other rank" if len(waited) == 1 else f"{len(waited)} others"
    met = tuple(
        line for a in rest if a.rank in late for line in _met(timeline, a, last_s)
    )
    rule = "came_late", f"came when {count} had timed out"
    return _hang(timeline, late, certainty, rule, met)


def _met(timeline: Timeline, account: Account, last_s: float) -> tuple[Evidence, ...]:
    """Return what a rank met that came late, and how late."""
    (said,) = proof.of_victims(timeline, [account])
    after = f"{account.from_s - last_s:.1f} s after the last time-out"
    text = one_line(f"rank {account.rank}, {after}: {said.text}")
    return (said._replace(text=text), *proof.of_end(account))


def _hang(
    timeline: Timeline,
    suspects: set[int],
    certainty: Certainty,
    rule: tuple[str, str],
    met: tuple[Evidence, ...] = (),
) -> Verdict:
    """Return the verdict that these ranks hang; the rule's name and what they did."""
    name, what = rule
    ranks = tuple(sorted(suspects))
    failed = [a for a in accounts(timeline) if a.failed and a.rank not in suspects]
    verb = {"proven": "hung", "likely": "likely hung"}.get(certainty, "may have hung")
    it = "it" if len(ranks) == 1 else "they"
    still = ranks if _still_there(timeline, ranks) else ()
    at = whereabouts.of_rank(timeline, still[0]).said if still else ""
    who = f"{subject(ranks, timeline.world_size)} {verb}{f' {at}' if at else ''}"
    text = f"{who}: {it} {what}"
    evidence = (
        *met,
        *(
            line
            for stood in timeline.standing
            if stood.rank in suspects
            for line in proof.of_standing(stood)
        ),
        *whereabouts.of_stacks(timeline, still),
        *proof.of_victims(timeline, failed),
        *(line for a in accounts(timeline) for line in proof.of_beat(timeline, a.rank)),
    )
    return Verdict(
        timeline.attempt,
        "hang",
        ranks,
        certainty,
        min((a.until_s for a in failed), default=timeline.started_s),
        sentence(text),
        name,
        evidence,
        signature=name,
    )


def _still_there(timeline: Timeline, ranks: tuple[int, ...]) -> bool:
    """Return whether ranks made no step after stacks were taken, as far as is known."""
    taken_s = timeline.stacks_s
    beats = [timeline.beats[rank] for rank in ranks if rank in timeline.beats]
    if taken_s is None or not beats:
        return False
    return all(beat.progress_s is None or beat.progress_s <= taken_s for beat in beats)


def _seen(timeline: Timeline, suspects: list[Standing], text: str) -> str:
    """Return what these ranks were seen to be, and that the others waited."""
    rest = others(timeline.world_size - len(suspects))
    return f"{was(tuple(s.rank for s in suspects))} {text}, and {rest} waited"


def _nobody_came(
    timeline: Timeline, waited: list[Account], alive: list[Standing]
) -> Verdict:
    named = subject(a.rank for a in waited)
    ranks = listed(s.rank for s in alive)
    text = (
        f"{named} timed out waiting; which of ranks {ranks} did not come is not known"
    )
    return Verdict(
        timeline.attempt,
        "hang",
        (),
        "guess",
        min(a.until_s for a in waited),
        sentence(text),
        "did_not_come",
        (
            *proof.of_victims(timeline, waited),
            *(line for stood in alive for line in proof.of_standing(stood)),
        ),
        signature="did_not_come",
    )


def _alive(timeline: Timeline) -> tuple[Standing, ...]:
    """Return ranks that stood when dsup first signalled, and had told nothing."""
    known = {a.rank: a for a in accounts(timeline)}
    return tuple(s for s in timeline.standing if known[s.rank].sort == "none")


def _accused(timeline: Timeline) -> set[int]:
    """Return ranks that others say did not come to a barrier."""
    found = (
        match
        for account in accounts(timeline)
        for form in (_ACCUSED, _MISSED)
        for match in form.findall(_said(timeline, account))
    )
    return {int(number) for match in found for number in match.split(", ")}


def _said(timeline: Timeline, account: Account) -> str:
    """Return what a victim said, capped."""
    told = account.told.text if account.told else ""
    return (told or words(timeline, account.rank).line)[:_LOOKED_AT_CHARS]


def _ranks(standing: Iterable[Standing]) -> set[int]:
    return {stood.rank for stood in standing}


def _behind(timeline: Timeline, suspects: set[int]) -> set[int]:
    """Return those with fewer steps than the rest; all where steps do not tell."""
    steps = {rank: beat.step or 0 for rank, beat in timeline.beats.items()}
    if len(steps) < timeline.world_size:
        return suspects
    most = max(steps.values())
    behind = {rank for rank in suspects if steps.get(rank, 0) < most}
    return behind or suspects
