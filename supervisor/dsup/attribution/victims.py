"""Rules for attempts in which ranks only lost each other: who went, if anybody knows.

Source: public failure logs. A communication error is never a cause while another
rank's end is unexplained, so these rules come last.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import Account, accounts, all_are_victims, earliest
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import exception, others, sentence, subject
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.error_words import PEER_TYPES

TEARDOWN_S: Final = 5.0
"""A rank's connections close up to so long before it ends, while its interpreter is
torn down: seconds with torch on a busy node."""

_STORE: Final = "store lost"


def early_exit(timeline: Timeline) -> Verdict | None:
    """Name ranks that ended with 0 before the others failed for want of them.

    Symptom: exit 0, then closed connections or time-outs everywhere else. Where rank
    0, the host of the store, goes and the store is what the others miss, the store is
    the cause.
    """
    known = accounts(timeline)
    needy = [a for a in known if a.sort != "clean"]
    failed = [a for a in needy if a.failed]
    by_want = all(a.sort == "communication" or a.status == 1 for a in failed)
    if not failed or not by_want:
        return None
    limit_s = min(a.until_s for a in failed) + TEARDOWN_S
    gone = [a for a in known if a.sort == "clean" and a.from_s <= limit_s]
    if not gone:
        return None
    ranks = tuple(a.rank for a in gone)
    store = 0 in ranks and all(a.how == _STORE for a in failed)
    victims = all(a.sort == "communication" for a in failed)
    whole = len(needy) + len(gone) == timeline.world_size
    certainty: Certainty = "proven" if victims and len(gone) == 1 else "likely"
    who = f"{subject(ranks)} ended with exit 0{_at_step(timeline, gone)}"
    rest = others(len(needy)) if whole else f"{len(needy)} others"
    trained = any(beat.step is not None for beat in timeline.beats.values())
    text = f"{who} while {rest} still {'trained' if trained else 'ran'}"
    if store:
        text = f"Rank 0 ended with exit 0 and took the store from {rest}"
    evidence = (
        *(line for a in gone for line in proof.of_end(a)),
        *proof.of_silence(timeline, ranks),
        *proof.of_victims(timeline, failed),
        *(line for rank in ranks for line in proof.of_beat(timeline, rank)),
    )
    return Verdict(
        timeline.attempt,
        "store_lost" if store else "early_exit",
        (0,) if store else ranks,
        certainty,
        min(a.until_s for a in gone),
        sentence(text),
        "early_exit",
        evidence,
        status=0,
        signature="exit 0",
    )


def own_connection(timeline: Timeline) -> Verdict | None:
    """Name ranks whose own, Python-level connection broke before any other failure.

    Symptom: ``BrokenPipeError`` or ``ConnectionResetError`` of a script's own socket or
    pipe; the process group's errors are of other types. A guess.
    """
    failed = [a for a in accounts(timeline) if a.failed]
    first = earliest(failed)
    own = [a for a in first if a.told is not None and a.told.type in PEER_TYPES]
    if not own or len(own) < len(first) or not all_are_victims(timeline):
        return None
    ranks = tuple(a.rank for a in own)
    told = [a.told for a in own if a.told is not None]
    text = f"{subject(ranks, timeline.world_size)} likely raised {exception(told[0])}"
    return Verdict(
        timeline.attempt,
        "python_exception",
        ranks,
        "guess",
        min(a.until_s for a in own),
        sentence(f"{text}; no peer had ended"),
        "own_connection",
        tuple(line for one in told for line in proof.of_raised(timeline, one)),
        status=own[0].status,
        signature=told[0].type,
    )


def store_host_first(timeline: Timeline) -> Verdict | None:
    """Name rank 0, the store's host, if it ended first and the rest lost the store.

    Symptom: ``failed to recv, got 0 bytes``, ``Connection was likely closed``. Why rank
    0 went is not known, so it is a guess.
    """
    failed = [a for a in accounts(timeline) if a.failed]
    first = earliest(failed)
    lost = [a for a in failed if a.rank != 0 and a.how == _STORE]
    alone = tuple(a.rank for a in first) == (0,)
    if not alone or not lost or not all_are_victims(timeline):
        return None
    host = first[0]
    text = f"Rank 0, the host of the store, ended first: {host.how or 'no reason said'}"
    return Verdict(
        timeline.attempt,
        "store_lost",
        (0,),
        "guess",
        host.until_s,
        sentence(f"{text}; the cause may lie behind it"),
        "store_host_first",
        (*proof.of_end(host), *proof.of_victims(timeline, [host, *lost])),
        status=host.status,
        signature="rank 0 first",
    )


def only_victims(timeline: Timeline) -> Verdict | None:
    """Name no rank where all ended of communication errors and none is unaccounted for.

    Symptom: every rank of the world is a victim. The network between them may have
    failed; which rank was first says nothing. A guess.
    """
    failed = [a for a in accounts(timeline) if a.failed]
    if not failed or not all_are_victims(timeline):
        return None
    if len(accounts(timeline)) < timeline.world_size:
        return None
    kinds = sorted({a.how for a in failed})
    text = f"All {len(failed)} ranks lost each other ({', '.join(kinds)})"
    if len(failed) < timeline.world_size:
        text = f"{subject(a.rank for a in failed)} lost the others ({', '.join(kinds)})"
    return Verdict(
        timeline.attempt,
        "nccl_network",
        (),
        "guess",
        min(a.until_s for a in failed),
        sentence(f"{text}, and no rank failed otherwise: the network may have failed"),
        "only_victims",
        proof.of_victims(timeline, failed),
        signature="only victims",
    )


def _at_step(timeline: Timeline, gone: list[Account]) -> str:
    steps = {timeline.beats[a.rank].step for a in gone if a.rank in timeline.beats}
    (step,) = steps if len(steps) == 1 else (None,)
    return f" at step {step}" if step is not None else ""
