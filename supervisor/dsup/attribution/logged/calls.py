"""The rule about ranks that called different collectives, as a log shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from dsup.attribution.logged.places import Fact
from dsup.attribution.logged.saying import Finding, verdict, who
from dsup.attribution.logged.signs import Reading
from dsup.attribution.logged.waits import finding, groups, known_ranks
from dsup.attribution.wording import others
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.logs.said import Collective

_MIN_COMPARED: Final = 2


def mismatched(log: Reading) -> Verdict | None:
    """Name the ranks that called another collective than most.

    Symptom: ``Detected mismatch between collectives`` with the fingerprints of two
    ranks, NCCL's trace of calls with different operations under one ``opCount``, or
    time-outs with different operations or sizes under one ``SeqNum``. Not where
    another rank failed by itself before.
    """
    if log.leaders and log.leaders[0].cause != "collective_mismatch":
        return None
    for kind in ("mismatch", "trace", "timeout"):
        found = _mismatch(log, kind)
        if found is not None:
            return found
    return _without_prints(log)


def _mismatch(log: Reading, kind: str) -> Verdict | None:
    facts = [c for c in log.attempt.collectives if c.kind == kind and c.op]
    for group in groups(facts):
        called: dict[int, dict[int, Collective]] = {}
        for call in group:
            if call.place.rank is not None:
                number = -1 if call.seq is None else call.seq
                called.setdefault(number, {})[call.place.rank] = call
        for number in sorted(called):
            found = _odd(log, kind, called[number])
            if found is not None:
                return found
    return None


def _odd(log: Reading, kind: str, calls: Mapping[int, Collective]) -> Verdict | None:
    counted = Counter((c.op, _size(kind, c)) for c in calls.values()).most_common(2)
    if len(counted) < _MIN_COMPARED:
        return None
    (usual, many), (_, fewer) = counted
    clear = fewer < many
    if not clear and kind != "mismatch":
        return None
    odd = {r: c for r, c in calls.items() if (c.op, _size(kind, c)) != usual}
    ranks = known_ranks(odd) if clear else ()
    first = odd[min(odd)]
    other = next(c for c in calls.values() if (c.op, _size(kind, c)) == usual)
    number = f" as #{first.seq}" if first.seq is not None else ""
    text = (
        f"{who(odd, log.attempt)} called {_call(first)}"
        f"{number} where {others(many)} called {_call(other)}"
    )
    sure: Certainty = "likely" if kind == "timeout" else "proven"
    found = finding("mismatched", ranks, sure, [first, other], text)
    return verdict(
        log.attempt, found._replace(cause="collective_mismatch", before_s=0.0)
    )


def _without_prints(log: Reading) -> Verdict | None:
    """Return the verdict where nothing but the words tell of a mismatch."""
    told: list[Fact] = [s.fact for s in log.leaders if s.cause == "collective_mismatch"]
    told = told or [c for c in log.attempt.collectives if c.kind == "mismatch"]
    if not told:
        return None
    text = f"The ranks do not agree with each other: {told[0].text}"
    found = Finding("mismatched", "collective_mismatch", (), "likely", told[0], text)
    return verdict(log.attempt, found)


def _size(kind: str, call: Collective) -> int | None:
    """Return the size that counts: a time-out's may differ by uneven shards."""
    uneven = kind != "mismatch" and "GATHER" in call.op
    return None if uneven or "ALLTOALL" in call.op else call.size


def _call(call: Collective) -> str:
    size = f" of {call.size} elements" if call.size is not None else ""
    return f"{call.op}{size}"
