"""Rules for attempts whose ranks all died of each other's end, or of waiting.

Source: public failure logs. Where only victims speak, the one to name is who is
missing among them: frozen, asleep in the kernel, gone with exit 0, or not come.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.attribution import proof, whereabouts
from dsup.attribution.accounts import Account, accounts, all_are_victims, words
from dsup.attribution.timeline import Standing, Timeline
from dsup.attribution.wording import (
    listed,
    others,
    sentence,
    subject,
    was,
)
from dsup.core.verdict import Certainty, Verdict
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
    return _hang(timeline, stopped, "proven", ("frozen", seen))


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
    return _hang(timeline, asleep, "likely", ("asleep_in_kernel", seen))


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
    accused = [s for s in alive if s.rank in _accused(timeline)]
    suspects = accused or _behind(timeline, alive)
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
    return _hang(timeline, alive, "guess", ("lived_on", what))


def _hang(
    timeline: Timeline,
    suspects: list[Standing],
    certainty: Certainty,
    rule: tuple[str, str],
) -> Verdict:
    """Return the verdict that these ranks hang; the rule's name and what they did."""
    name, what = rule
    ranks = tuple(sorted(s.rank for s in suspects))
    failed = [a for a in accounts(timeline) if a.failed]
    verb = {"proven": "hung", "likely": "likely hung"}.get(certainty, "may have hung")
    it = "it" if len(ranks) == 1 else "they"
    still = ranks if _still_there(timeline, ranks) else ()
    at = whereabouts.of_rank(timeline, still[0]).said if still else ""
    who = f"{subject(ranks, timeline.world_size)} {verb}{f' {at}' if at else ''}"
    text = f"{who}: {it} {what}"
    evidence = (
        *(line for stood in suspects for line in proof.of_standing(stood)),
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


def _behind(timeline: Timeline, alive: list[Standing]) -> list[Standing]:
    """Return those with fewer steps than the rest; all where steps do not tell."""
    steps = {rank: beat.step or 0 for rank, beat in timeline.beats.items()}
    if len(steps) < timeline.world_size:
        return alive
    behind = [s for s in alive if steps.get(s.rank, 0) < max(steps.values())]
    return behind or alive
