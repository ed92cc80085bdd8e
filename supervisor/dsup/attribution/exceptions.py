"""Rules about exceptions: one rank's, and everybody's.

Source: public failure logs. The exception of a type that has nothing to do with
communication is the culprit's; the others' come from its end.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import (
    Account,
    accounts,
    counts,
    leaders,
)
from dsup.attribution.crashes import code_verdict
from dsup.attribution.helpers import workers
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import (
    alike,
    common,
    exception,
    message,
    one_line,
    others,
    place,
    sentence,
    status_text,
    subject,
)
from dsup.core.verdict import Certainty, Evidence, Verdict
from dsup.facts.error_words import NO_SPACE
from dsup.facts.errors import cause_of, worker_pids
from dsup.facts.raised import Raised

TOLD: Final = frozenset({"note", "error_file"})


def all_alike(timeline: Timeline) -> Verdict | None:
    """Name all ranks, and blame none, where all that failed raised the same.

    Symptom: equal type, text (but for numbers, which are not quoted where they differ)
    and place; a missing configuration file, say. At least two ranks, and every rank
    that ended by itself; the others may be ranks that dsup ended before they could show
    anything.
    """
    failed = [a for a in accounts(timeline) if a.failed]
    told = [a.told for a in failed if a.sort == "exception" and a.told is not None]
    keys = {_key(raised) for raised in told}
    if len(failed) < 2 or len(told) < len(failed) or len(keys) > 1:  # noqa: PLR2004
        return None
    first = min(failed, key=lambda a: (a.from_s, a.rank))
    ranks = tuple(a.rank for a in failed)
    raised = first.told or told[0]
    evidence = (
        *proof.of_all_raised(timeline, told),
        *proof.of_end(first),
        *proof.of_silence(timeline, ranks),
    )
    shown = exception(common([raised, *told]))
    text = f"{_who_alike(timeline, ranks)} raised {shown}"
    rest = timeline.world_size - len(ranks)
    if rest:
        them = "it" if rest == 1 else "them"
        text = f"{text}; {others(rest)} showed nothing before dsup ended {them}"
    elif _before_any_step(timeline):
        text = f"{text}, before any step"
    return Verdict(
        timeline.attempt,
        cause_told(timeline, raised),
        ranks,
        _certainty(timeline, told),
        first.from_s,
        sentence(text),
        "all_alike",
        evidence,
        status=first.status,
        signature=mark(raised),
    )


def all_same_code(timeline: Timeline) -> Verdict | None:
    """Name all ranks where all that failed ended with the same code and no exception.

    Symptom: argparse's code 2 on every rank within a second.
    """
    failed = [a for a in accounts(timeline) if a.failed]
    codes = {a.status for a in failed if a.sort == "exit"}
    exits = all(a.sort == "exit" for a in failed)
    if len(failed) < 2 or not exits or len(codes) > 1:  # noqa: PLR2004
        return None
    return code_verdict(timeline, failed, "all_same_code")


def raised(timeline: Timeline) -> Verdict | None:
    """Name the rank that raised an exception of its own before any other.

    Symptom: a note, error.json or traceback of a type that is not communication. The
    time is the note's, not the end's: a rank that raises and then takes long to exit
    was first, even if dsup had to end it.
    """
    chosen = [a for a in leaders(timeline) if a.sort == "exception" and a.told]
    told = [a.told for a in chosen if a.told is not None]
    if not told:
        return None
    first, one = chosen[0], told[0]
    ranks = tuple(a.rank for a in chosen)
    evidence = (
        *proof.of_all_raised(timeline, told, most=len(told)),
        *(line for a in chosen for line in proof.of_end(a)),
        *_later(timeline, first),
        *_resources(timeline, one),
        *proof.of_beat(timeline, first.rank),
    )
    return Verdict(
        timeline.attempt,
        "python_exception" if _handled(first) else cause_told(timeline, one),
        ranks,
        _certainty(timeline, told),
        first.from_s if first.told and first.told.caught_s else first.until_s,
        sentence("; ".join(_sentence(timeline, a) for a in chosen)),
        "raised",
        evidence,
        status=first.status,
        signature=mark(one),
    )


def _handled(account: Account) -> bool:
    """Return whether what was printed cannot have ended the rank: its code differs.

    Somebody caught it, printed it, and ended with a code of his own: that code is what
    counts, and no node is drained for a printed text.
    """
    one = account.told
    return one is not None and one.source not in TOLD and account.status not in {1, -6}


def _sentence(timeline: Timeline, account: Account) -> str:
    """Return what one rank did, in the words of its cause."""
    one = account.told
    if one is None:
        return ""
    who, cause = f"Rank {account.rank}", cause_told(timeline, one)
    if _handled(account):
        code = status_text(account.status)
        return f"{who} ended with {code}, its {one.source} shows {exception(one)}"
    if cause == "dataloader_worker":
        return f"{who} lost {_loader_worker(one)}"
    if cause == "cuda_oom":
        return f"{who} ran out of GPU memory: {message(one)}{_in(one)}"
    return f"{who} {_verb(one)} {exception(one)}{_full(timeline, one)}"


def _verb(one: Raised) -> str:
    return "raised" if _is_proof(one) else "likely raised"


def _loader_worker(one: Raised) -> str:
    """Return ``a DataLoader worker (pid 41): killed by signal: Killed``."""
    pids = worker_pids(one.text)
    chain = " ".join((one.text, *(text for _, text in one.causes)))
    _, found, how = chain.partition("is killed by signal: ")
    reason = f"it was killed by signal: {how.partition('.')[0]}" if found else ""
    many = len(pids) > 1
    who = "DataLoader workers" if many else "a DataLoader worker"
    named = f" (pid {', '.join(map(str, pids))})" if pids else ""
    return f"{who}{named}: {reason or 'exited unexpectedly'}{_in(one)}"


def _in(one: Raised) -> str:
    where = place(one)
    return f" ({one_line(where, 60)})" if where else ""


def cause_told(timeline: Timeline, one: Raised) -> str:
    """Return the cause; an EAGAIN is the limit of pids only if that was reached."""
    cause = cause_of(one.type, one.text, one.causes)
    reached = any(c.name == "pids_max" for c in timeline.counters)
    if cause == "python_exception" and reached:
        temporary = "resource temporarily unavailable" in one.text[:2048].lower()
        return "pids_limit" if temporary else cause
    return cause


def _certainty(timeline: Timeline, told: list[Raised]) -> Certainty:
    sure = all(map(_is_proof, told))
    if any(_is_failed_write(timeline, one) for one in told):
        sure = sure and bool(proof.of_full_spaces(timeline))
    return "proven" if sure else "likely"


def _full(timeline: Timeline, one: Raised) -> str:
    """Return what is full where a write failed whose error does not say why."""
    if not _is_failed_write(timeline, one):
        return ""
    full = [space.name for space in timeline.spaces if proof.is_full(space)]
    return f"; full: {', '.join(full)}" if full else "; likely a full disk"


def _is_failed_write(timeline: Timeline, one: Raised) -> bool:
    """Return whether ``disk_full`` was concluded from a write that failed."""
    texts = [text.lower() for text in (one.text, *(text for _, text in one.causes))]
    said = any(word in text for word in NO_SPACE for text in texts)
    return cause_told(timeline, one) == "disk_full" and not said


def _is_proof(one: Raised) -> bool:
    """Return whether this is the interpreter's own word on what ended the process."""
    return one.source in TOLD and not one.handed


def _key(one: Raised) -> tuple[str, str, str, int | None]:
    return one.type, alike(one.text), one.file, one.line


def mark(one: Raised) -> str:
    """Return what is the same wherever this exception is raised again."""
    return f"{one_line(one.type, 80)}: {alike(message(one))} {place(one)}".strip()


def _who_alike(timeline: Timeline, ranks: tuple[int, ...]) -> str:
    if len(ranks) == timeline.world_size:
        return subject(ranks, timeline.world_size)
    return f"{subject(ranks)} {'both' if len(ranks) == 2 else 'all'}"  # noqa: PLR2004


def _before_any_step(timeline: Timeline) -> bool:
    beats = timeline.beats.values()
    return bool(beats) and all(beat.step is None for beat in beats)


def _later(timeline: Timeline, first: Account) -> tuple[Evidence, ...]:
    """Return exceptions that other ranks raised of their own, but later."""
    lines = []
    for account in accounts(timeline):
        one = account.told
        later = account.sort == "exception" and account.from_s > first.until_s
        if later and one is not None:
            after_ms = (account.from_s - first.from_s) * 1000
            text = f"rank {one.rank} {after_ms:.0f} ms later: {exception(one)}"
            source = proof.of_raised(timeline, one)[0]
            lines.append(source._replace(text=one_line(text)))
    return tuple(lines[:4])


def _resources(timeline: Timeline, one: Raised) -> tuple[Evidence, ...]:
    """Return what was used up, where the exception is about that."""
    cause = cause_told(timeline, one)
    if cause == "pids_limit":
        hit = [c for c in timeline.counters if c.name == "pids_max"]
        return tuple(line for counter in hit for line in proof.of_counter(counter))
    if cause == "dataloader_worker":
        return (*_of_workers(timeline, one), *proof.of_full_spaces(timeline))
    return proof.of_full_spaces(timeline) if cause == "disk_full" else ()


def _of_workers(timeline: Timeline, one: Raised) -> tuple[Evidence, ...]:
    """Return the kernel's lines about the workers whose end an exception tells of."""
    ended = set(workers(one)) if timeline.host_pids else set()
    return tuple(
        line
        for fault in timeline.kernel
        if fault.pid in ended and counts(timeline, fault, one.rank)
        for line in proof.of_fault(fault, one.rank)
    )
