"""Rules about collectives: who called another one, who did not come, who was behind.

Time-outs are victims' words. What tells is the difference between ranks: another
operation under the same number, an earlier number, no word at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from dsup.attribution.logged.calm import had_ended
from dsup.attribution.logged.saying import Finding, verdict, who
from dsup.attribution.logged.signs import Reading
from dsup.attribution.wording import listed, one_line, others, subject
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.logs.said import Collective, Progress

_CITED: Final = 6
_EXTRA_OPS: Final = frozenset({"_ALLGATHER_BASE", "ALLGATHER", "GATHER"})
_MIN_COMPARED: Final = 2
_GAP_MAX: Final = 64


def accused(log: Reading) -> Verdict | None:
    """Name the ranks that a barrier or a flight-recorder report calls missing.

    Symptom: ``Please check rank 0 logs for faulty rank``, ``failed to pass
    monitoredBarrier``, ``Culprit rank``. Source: a victim that knows who is missing.
    """
    found = [c for c in log.attempt.collectives if c.accused]
    if not found:
        return None
    # The rank that waited longest for others is not the one the others waited for.
    ranks = tuple(sorted({rank for one in found for rank in one.accused}))
    what = "collective"
    if any(one.kind == "barrier" for one in found):
        what = "barrier"
    text = f"{who(ranks, log.attempt)} did not come to the {what} the others waited in"
    return verdict(log.attempt, finding("accused", ranks, "likely", found, text))


def behind(log: Reading) -> Verdict | None:
    """Name the ranks that had enqueued or reached less than most when time was up.

    Symptom: time-outs of one process group with different ``SeqNum`` or ``last
    enqueued``; at least two ranks agree on the higher one. Window: 64 collectives, what
    a rank may enqueue ahead; numbers further apart are those of two groups.
    """
    for group in groups(log.timeouts):
        reached = {
            c.place.rank: c.seq if c.enqueued is None else c.enqueued
            for c in reversed(group)
        }
        known = {r: n for r, n in reached.items() if r is not None and n is not None}
        most = Counter(known.values()).most_common(1)
        if not most or most[0][1] < _MIN_COMPARED:
            continue
        least = most[0][0] - _GAP_MAX
        ranks = tuple(sorted(r for r, n in known.items() if n < most[0][0]))
        if any(known[rank] < least for rank in ranks):
            continue
        if ranks and len(ranks) < most[0][1]:
            text = (
                f"{who(ranks, log.attempt)} stayed behind: collective "
                f"#{min(known[r] for r in ranks)}, where {others(most[0][1])} "
                f"had come to #{most[0][0]}"
            )
            return verdict(log.attempt, finding("behind", ranks, "likely", group, text))
    return None


def lone_caller(log: Reading) -> Verdict | None:
    """Name the one rank that waits in a collective which nobody else calls.

    Symptom: a single rank times out in an operation of one element or a gather, and
    the others had finished: they said so, or the training's last output is that of its
    end. Then the speaker is to blame, not the silent ones: a branch only it takes.
    """
    ranks = {c.place.rank for c in log.timeouts}
    if len(ranks) != 1 or None in ranks or not log.timeouts:
        return None
    first = log.timeouts[0]
    small = first.size == 1 or first.op in _EXTRA_OPS
    if not (small and had_ended(log.attempt)):
        return None
    name = _name(first)
    text = (
        f"{subject(known_ranks(ranks))} likely called {name} alone: the others had done"
    )
    found = Finding(
        "lone_caller",
        "collective_mismatch",
        known_ranks(ranks),
        "guess",
        first,
        text,
        signature=first.op,
    )
    return verdict(log.attempt, found)


def came_late(log: Reading) -> Verdict | None:
    """Name the straggler that came after the others had given up.

    Symptom: ranks time out, and exactly one rank that did not then loses its peers, by
    the order of the lines: it speaks like a victim, but the others had waited for it.
    """
    waited = {c.place.rank for c in log.timeouts}
    if len(waited) < _MIN_COMPARED or None in waited or _is_first(log.timeouts):
        return None
    rest = [fact for fact in log.lost if fact.place.rank not in waited]
    late = {fact.place.rank for fact in rest}
    if len(late) != 1 or None in late or rest[0].order < log.timeouts[0].order:
        return None
    ranks = known_ranks(late)
    text = (
        f"{subject(ranks)} came late: {_subject(log, known_ranks(waited))} had given "
        f"up in {_name(log.timeouts[0])}"
    )
    found = finding("came_late", ranks, "likely", [*log.timeouts[:3]], text)
    return verdict(log.attempt, found._replace(rest=(*found.rest, rest[0])))


def silent(log: Reading) -> Verdict | None:
    """Name the rank that printed no time-out while the others did.

    Symptom: all ranks of the world but one, or but fewer than spoke, time out in one
    collective. Where the world's size is not told, all ranks below the highest one are
    counted, and output must have gone on after it: the log may not hold all ranks. Not
    in the first collective, where the way between the ranks is what fails.
    """
    spoke = {c.place.rank for c in log.timeouts}
    named = any(c.op or c.seq is not None for c in log.timeouts)
    if not named or None in spoke or _is_first(log.timeouts):
        return None
    known = known_ranks(spoke)
    world = log.attempt.world_size
    missing = set(range(world or max(known) + 1)) - set(known)
    if not missing or len(missing) >= len(known):
        return None
    if world is None and not _went_on(log, missing):
        return None
    ranks = tuple(sorted(missing))
    text = (
        f"{who(ranks, log.attempt)} did not come: {_subject(log, known)} timed out in "
        f"{_name(log.timeouts[0])}"
    )
    certainty: Certainty = "likely" if len(ranks) == 1 else "guess"
    return verdict(log.attempt, finding("silent", ranks, certainty, log.timeouts, text))


def stopped_moving(log: Reading) -> Verdict | None:
    """Name the rank that stopped printing steps before the others did.

    Symptom: time-outs, and one rank's last step lies below that of all others, which
    agree. Source: the training's own output.
    """
    steps = {
        rank: one.step
        for rank, one in log.attempt.progress.items()
        if rank >= 0 and one.step is not None
    }
    most = Counter(steps.values()).most_common(1)
    if not log.timeouts or not most or most[0][1] < _MIN_COMPARED:
        return None
    ranks = tuple(sorted(r for r, step in steps.items() if step < most[0][0]))
    if len(ranks) != 1:
        return None
    text = (
        f"{subject(ranks)} stopped at step {steps[ranks[0]]}, where "
        f"{others(most[0][1])} came to {most[0][0]}"
    )
    return verdict(
        log.attempt, finding("stopped_moving", ranks, "likely", log.timeouts, text)
    )


def one_left(log: Reading) -> Verdict | None:
    """Guess that the one rank that the launcher had to end is the one waited for.

    Symptom: all ranks that the log tells of time out but one, which the launcher ended
    and which says nothing. Source: time-outs that name neither number nor operation, as
    gloo's do. Not where a time-out does: there ``silent`` has looked.
    """
    spoke = {c.place.rank for c in log.timeouts}
    if not spoke or None in spoke or any(c.op or c.seq for c in log.timeouts):
        return None
    known = known_ranks(spoke)
    world = set(range(log.attempt.world_size or 0)) or log.attempt.ranks
    left = world - set(known)
    ended = {end.place.rank for end in log.attempt.ends}
    lost = {fact.place.rank for fact in log.lost}
    if len(left) != 1 or not left <= ended or lost != spoke:
        return None
    ranks = known_ranks(left)
    text = f"{subject(ranks)} likely did not come: {_subject(log, known)} timed out"
    return verdict(log.attempt, finding("one_left", ranks, "guess", log.timeouts, text))


def nobody_came(log: Reading) -> Verdict | None:
    """Name no rank where ranks timed out and nothing tells them apart.

    Symptom: watchdog time-outs only. In the first collective of all ranks no rank is
    guilty: peer-to-peer, network or ACS set-up fails. The wait began so long before the
    line as it says that it ran.
    """
    if not log.timeouts:
        return None
    spoke = known_ranks({c.place.rank for c in log.timeouts})
    world, first = log.attempt.world_size, log.timeouts[0]
    everyone = world is not None and len(spoke) == world
    name = _name(first)
    subj = _subject(log, spoke) if spoke else "Ranks"
    if everyone and _is_first(log.timeouts):
        text = f"{subj} timed out in the first collective ({name}): no way between them"
        found = finding("first_collective", (), "guess", log.timeouts, text)
        return verdict(log.attempt, found._replace(cause="nccl_network"))
    text = f"{subj} timed out in {name}; the log does not tell who did not come"
    return verdict(
        log.attempt, finding("nobody_came", (), "likely", log.timeouts, text)
    )


def groups(facts: Iterable[Collective]) -> list[list[Collective]]:
    """Return the statements about each process group; numbers count within one only."""
    known: dict[str, list[Collective]] = {}
    for fact in facts:
        known.setdefault(fact.group, []).append(fact)
    return list(known.values())


def _is_first(timeouts: Iterable[Collective]) -> bool:
    """Return whether all of them wait in the first collective of all."""
    return all(c.seq == 1 or (c.seq is None and c.op == "BROADCAST") for c in timeouts)


def _went_on(log: Reading, missing: set[int]) -> bool:
    """Return whether these, or nobody in particular, went on after the first time-out.

    Steps that rise count; other output is anybody's.
    """
    first = log.timeouts[0].order
    return any(
        (rank in missing and one.order > first) or (rank < 0 and _rose(one, first))
        for rank, one in log.attempt.progress.items()
    )


def _rose(one: Progress, order: int) -> bool:
    """Return whether steps that were printed before a line rose behind it."""
    began = one.began is not None and one.began < order
    return began and any(rise > order for rise in one.rises)


def known_ranks(ranks: Iterable[int | None]) -> tuple[int, ...]:
    """Return the ranks that are known, each once, in order."""
    return tuple(sorted({rank for rank in ranks if rank is not None}))


def _subject(log: Reading, ranks: tuple[int, ...]) -> str:
    if log.attempt.world_size == len(ranks):
        return f"all {len(ranks)} ranks"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed(ranks)}"


def _name(call: Collective) -> str:
    number = f" #{call.seq}" if call.seq is not None else ""
    return one_line(f"{call.op or 'a collective'}{number}", 60)


def finding(
    rule: str,
    ranks: tuple[int, ...],
    certainty: Certainty,
    facts: Iterable[Collective],
    text: str,
) -> Finding:
    """Return that ranks hang: the wait began before the first of these statements."""
    told = tuple(facts)
    first = told[0]
    return Finding(
        rule,
        "hang",
        ranks,
        certainty,
        first,
        text[:1].upper() + text[1:],
        told[1:_CITED],
        signature=first.op or first.kind,
        before_s=(first.ran_ms or 0) / 1000,
    )
