"""Rules about exceptions that did not end their rank, or that another one hides.

Source: public failure logs: a thread's traceback and a process that then waits for
ever; a barrier in a ``finally`` whose error is all that is left to see.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import Account, accounts, raised_before_signal, shown
from dsup.attribution.exceptions import TOLD, cause_told, mark
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import exception, one_line, sentence, status_text
from dsup.core.verdict import Verdict
from dsup.facts.error_words import PEER_TYPES
from dsup.facts.errors import communication
from dsup.facts.raised import Raised

_FALL_BACK: Final = frozenset(
    {
        "AttributeError",
        "ImportError",
        "KeyError",
        "ModuleNotFoundError",
        "StopIteration",
        "_queue.Empty",
        "queue.Empty",
    }
)
"""Types that code catches to try another way: inside another error they mean little."""


def raised_before_teardown(timeline: Timeline) -> Verdict | None:
    """Name the rank whose communication error hides an exception of its own.

    Symptom: ``finally: barrier()`` after an exception; the uncaught error is the
    barrier's, and the true one stands in its chain. Only where few show that: errors
    that everybody's chain begins with, or that code catches to fall back, mean nothing.
    """
    known = accounts(timeline)
    if any(a.strong for a in known):
        return None
    victims = [a for a in known if a.sort == "communication"]
    hidden = [(a, inner) for a in victims if (inner := _behind(a)) is not None]
    if not hidden or 2 * len(hidden) > len(victims):
        return None
    first, inner = min(hidden, key=lambda row: (row[0].from_s, row[0].rank))
    text = f"Rank {first.rank} likely raised {exception(inner)} and then lost its peers"
    return Verdict(
        timeline.attempt,
        cause_told(timeline, inner),
        (first.rank,),
        "likely",
        first.from_s,
        sentence(text),
        "raised_before_teardown",
        (
            *proof.of_raised(timeline, inner),
            *(proof.of_raised(timeline, first.told) if first.told else ()),
            *proof.of_end(first),
        ),
        status=first.status,
        signature=mark(inner),
    )


def raised_in_thread(timeline: Timeline) -> Verdict | None:
    """Name the rank that lives on, but for a thread or helper that an exception ended.

    Symptom: the main thread waits for ever for what the thread would have sent, and
    the other ranks time out. Likely, for a thread's end may also be harmless.
    """
    known = {a.rank: a for a in accounts(timeline)}
    if any(a.strong for a in known.values()):
        return None
    seen = (shown(timeline, rank) for rank in known)
    threads = [one for one in seen if one is not None and one.thread]
    beside = [
        one
        for one in (*timeline.raised, *threads)
        if known[one.rank].sort in {"none", "exit"}
        and (one.thread or one.pid not in {None, known[one.rank].pid})
        and not one.handed
        and not communication(one.type, one.text)
        and (one.source not in TOLD or raised_before_signal(timeline, one))
    ]
    if not beside or not any(a.failed for a in known.values()):
        return None
    one = min(beside, key=lambda r: (r.caught_s is None, r.caught_s or 0.0, r.rank))
    account = known[one.rank]
    name = f"thread {one_line(one.thread, 40)}" if one.thread else f"process {one.pid}"
    text = f"Rank {one.rank} raised {exception(one)} in {name} and did not end"
    if account.sort == "exit":
        ended = status_text(account.status)
        text = f"Rank {one.rank} raised {exception(one)} in {name}, then {ended}"
    stood = [s for s in timeline.standing if s.rank == one.rank]
    return Verdict(
        timeline.attempt,
        cause_told(timeline, one),
        (one.rank,),
        "likely",
        one.caught_s if one.caught_s is not None else account.until_s,
        sentence(text),
        "raised_in_thread",
        (
            *proof.of_raised(timeline, one),
            *(line for s in stood for line in proof.of_standing(s)),
            *proof.of_end(account),
        ),
        status=account.status,
        signature=mark(one),
    )


def shown_and_alive(timeline: Timeline) -> Verdict | None:
    """Name the rank whose stderr ends with an exception, but which did not end.

    Symptom: no notes (``python -I``, another interpreter), a traceback on stderr, then
    a process that does not end while all others died of communication errors. What
    stood there may have been handled, so it is a guess.
    """
    known = accounts(timeline)
    alive = [a for a in known if a.sort == "none"]
    if not any(a.failed for a in known) or any(a.strong for a in known):
        return None
    for account in alive:
        seen = shown(timeline, account.rank)
        if seen is not None and not communication(seen.type, seen.text):
            text = f"Rank {account.rank} may have raised {exception(seen)}"
            return Verdict(
                timeline.attempt,
                cause_told(timeline, seen),
                (account.rank,),
                "guess",
                min(a.until_s for a in known if a.failed),
                sentence(f"{text}; it did not end"),
                "shown_and_alive",
                proof.of_raised(timeline, seen),
                signature=mark(seen),
            )
    return None


def _behind(account: Account) -> Raised | None:
    """Return the exception of the rank's own behind a communication error."""
    told = account.told
    if told is None or not communication(told.type, told.text):
        return None
    for type_name, text in told.causes:
        peer = type_name in PEER_TYPES or communication(type_name, text)
        if not peer and type_name not in _FALL_BACK:
            return Raised(told.rank, type_name, text, told.caught_s, told.source)
    return None
