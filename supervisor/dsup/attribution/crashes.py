"""Rules about deaths by a signal other than SIGKILL, and about exit codes.

Source: signal(7).
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import proof
from dsup.attribution.accounts import (
    SIGABRT,
    Account,
    accounts,
    earliest,
    leaders,
    words,
)
from dsup.attribution.faults import denies, fault_of
from dsup.attribution.timeline import Space, Timeline
from dsup.attribution.wording import (
    CAST_OFF,
    SHELL_SIGNALS,
    WAS_SENT,
    gib,
    one_line,
    sentence,
    status_text,
    subject,
)
from dsup.core.exits import (
    SIGBUS,
    SIGFPE,
    SIGILL,
    SIGNALLED,
    SIGSEGV,
    signal_name,
)
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.errors import cause_of
from dsup.facts.kernel import KernelFault
from dsup.facts.output import LastWords

_SIGTRAP: Final = 5
_SIGSYS: Final = 31
CRASHES: Final = {
    SIGSEGV: ("segfault", "crashed with a segmentation fault"),
    SIGBUS: ("sigbus", "got a bus error"),
    SIGILL: ("abort", "crashed with an illegal instruction"),
    SIGFPE: ("abort", "crashed with an arithmetic error"),
    _SIGTRAP: ("abort", "crashed with a trap"),
    _SIGSYS: ("abort", "made a forbidden system call"),
}
"""Cause and words of signals that a process brings upon itself."""

_NULL_PAGE: Final = 0x1000
_TELLING: Final = (
    "what():",
    "terminate called",
    "corruption",
    "double free",
    "free():",
    "malloc",
    "ssert",
    "heck failed",
    "CUDA",
    "cuda",
)
"""Words of the line in which a library says why it gave up."""

_BARE: Final = "Aborted"
_USAGE_CODE: Final = 2


def crashed(timeline: Timeline) -> Verdict | None:
    """Name ranks that died of SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP or SIGSYS.

    Symptom: the wait status. Proof that the rank did it to itself: the kernel's line,
    joined by thread id, or faulthandler's report on stderr (with its handler there is
    no kernel line). A bus error with a full /dev/shm is the full /dev/shm's.
    """
    dead = [a for a in leaders(timeline) if a.sort == "signal" and -a.status in CRASHES]
    if not dead:
        return None
    first = dead[0]
    alike = [a for a in dead if a.status == first.status]
    ranks = tuple(a.rank for a in alike)
    fault = fault_of(timeline, first)
    full = _full_shm(timeline) if first.status == -SIGBUS else None
    report = words(timeline, first.rank).crash
    sure: Certainty = "proven" if fault or full or report else "likely"
    silent = not (fault or full or report) and denies(timeline, first)
    cause, what = CRASHES[-first.status]
    name = signal_name(-first.status)
    named = f"{what} ({name}){_where(timeline, first, fault, full)}"
    if silent:
        named = f"{what}, {WAS_SENT} {name}: the kernel logged no fault"
    evidence = (
        *(proof.of_fault(fault, first.rank) if fault else ()),
        *(proof.of_full_spaces(timeline) if full else ()),
        *(line for a in alike for line in proof.of_crash(timeline, a.rank)),
        *(line for a in alike for line in proof.of_end(a)),
        *proof.of_silence(timeline, ranks),
        *(proof.of_unlogged_fault() if silent else ()),
        *(() if report else proof.of_last_lines(timeline, first.rank)),
    )
    return Verdict(
        timeline.attempt,
        cause,
        ranks,
        sure,
        min(a.until_s for a in alike),
        sentence(f"{subject(ranks, timeline.world_size)} {named}"),
        "crashed",
        evidence,
        status=first.status,
        signature=f"{name} {fault.lib if fault else ''}".strip(),
    )


def aborted(timeline: Timeline) -> Verdict | None:
    """Name ranks that died of SIGABRT and say why.

    Symptom: ``terminate called after throwing``, glibc's ``double free or corruption``,
    a failed assertion, faulthandler's ``Aborted``. An abort that follows a time-out of
    a collective is a victim's, and one ``without an active exception`` comes from a
    rank that was done; neither is a leader.
    """
    dead = [a for a in leaders(timeline) if a.sort == "abort"]
    if not dead:
        return None
    ranks = tuple(a.rank for a in dead)
    reason = _reason(timeline, dead[0].rank)
    last = words(timeline, dead[0].rank)
    told = cause_of("", " ".join((last.crash, *last.lines)))
    cause = told if told != "python_exception" else "abort"
    evidence = (
        *(line for a in dead for line in proof.of_crash(timeline, a.rank)),
        *proof.of_last_lines(timeline, dead[0].rank),
        *(line for a in dead for line in proof.of_end(a)),
        *proof.of_silence(timeline, ranks),
    )
    return Verdict(
        timeline.attempt,
        cause,
        ranks,
        "proven",
        min(a.until_s for a in dead),
        sentence(f"{subject(ranks, timeline.world_size)} aborted (SIGABRT){reason}"),
        "aborted",
        evidence,
        status=-SIGABRT,
        signature=f"SIGABRT {cause}",
    )


def ended_without_words(timeline: Timeline) -> Verdict | None:
    """Name the rank that ended with a code of its own and no exception.

    Symptom: ``sys.exit(3)``, ``os._exit(7)``, argparse's code 2 with its usage, a
    shell's 128+n for a command that died of signal n. Weak: a rank that catches a
    communication error and exits 1 looks the same; so the earliest counts, codes other
    than 1 first where time does not tell.
    """
    candidates = earliest(a for a in accounts(timeline) if a.sort == "exit")
    if not candidates:
        return None
    least = min(a.status == 1 for a in candidates)
    chosen = [a for a in candidates if (a.status == 1) == least]
    alike = [a for a in chosen if a.status == chosen[0].status]
    return code_verdict(timeline, alike, "ended_without_words")


def code_verdict(timeline: Timeline, alike: list[Account], rule: str) -> Verdict:
    """Return the verdict that these ranks ended with the same code and few words."""
    first = alike[0]
    ranks = tuple(a.rank for a in alike)
    cause, meaning = _meaning(timeline, first)
    said = _last_word(words(timeline, first.rank))
    rest = f"its last line: {said}" if len(ranks) == 1 else f"last line: {said}"
    silent = " and said nothing"
    if first.rank not in timeline.words:
        silent = "; its output was not seen"
    end = f"; {rest}" if said else silent
    who = subject(ranks, timeline.world_size)
    evidence = (
        *(line for a in alike for line in proof.of_end(a)),
        *proof.of_silence(timeline, ranks),
        *proof.of_last_lines(timeline, first.rank),
    )
    text = f"{who} ended with {status_text(first.status)}{meaning}{end}"
    return Verdict(
        timeline.attempt,
        cause,
        ranks,
        _certainty(timeline, first, cause),
        min(a.until_s for a in alike),
        sentence(text),
        rule,
        evidence,
        status=first.status,
        signature=status_text(first.status),
    )


def _last_word(last: LastWords) -> str:
    """Return its last line; faulthandler speaks after the C++ run time."""
    cast_off = (line for line in (last.crash, *last.lines) if CAST_OFF in line)
    return next(cast_off, last.line)


def _certainty(timeline: Timeline, first: Account, cause: str) -> Certainty:
    """A code other than 1, and others that died of it, make it likely."""
    victims = any(a.sort == "communication" for a in accounts(timeline))
    said = words(timeline, first.rank).line
    lone = timeline.world_size == 1
    telling = first.status != 1 or cause != "python_exception"
    return "likely" if telling or victims or said or lone else "guess"


def _meaning(timeline: Timeline, account: Account) -> tuple[str, str]:
    """Return the cause that a code stands for, and what to add to it."""
    status, last = account.status, words(timeline, account.rank)
    if status == -SIGABRT:
        return "abort", ""
    signum = status - SIGNALLED
    if signum in SHELL_SIGNALS:
        cause = CRASHES[signum][0] if signum in CRASHES else "killed"
        cause = "abort" if signum == SIGABRT else cause
        return cause, f", a shell's code for {signal_name(signum)}"
    said = " ".join((*last.lines, last.line))
    if status == _USAGE_CODE and ("error:" in said or "sage:" in said):
        return "config_error", ""
    return cause_of("", last.line), ""


def _where(
    timeline: Timeline, account: Account, fault: KernelFault | None, full: Space | None
) -> str:
    """Return the rest of a crash's sentence: what was full, a library, or a line."""
    if full is not None:
        used = (full.total_bytes - full.free_bytes) // 1024
        return f": /dev/shm was full ({gib(used)} of {gib(full.total_bytes // 1024)})"
    if fault is not None and (fault.lib or fault.address is not None):
        lib = f" in {one_line(fault.lib, 60)}" if fault.lib else ""
        null = fault.address is not None and fault.address < _NULL_PAGE
        zero = " (a null pointer)" if null and not fault.lib else ""
        address = f" at address {fault.address:#x}" if fault.address is not None else ""
        return f"{lib}{address}{zero}"
    frame = words(timeline, account.rank).frame
    return f" at {one_line(_short(frame), 100)}" if frame else ""


def _short(frame: str) -> str:
    """Return ``train.py:12 in step`` for ``/home/me/train.py:12 in step``."""
    path, blank, rest = frame.partition(" in ")
    return f"{path.rpartition('/')[2]}{blank}{rest}"


def _full_shm(timeline: Timeline) -> Space | None:
    for space in timeline.spaces:
        if space.name == "/dev/shm" and proof.is_full(space):  # noqa: S108 (a name)
            return space
    return None


def _reason(timeline: Timeline, rank: int) -> str:
    """Return why a library gave up: by its own line, else by the report."""
    last = words(timeline, rank)
    for word in _TELLING:
        for line in last.lines:
            if word in line:
                return f": {one_line(line, 200)}"
    where = f" at {one_line(_short(last.frame), 100)}" if last.frame else ""
    said = last.crash or last.line
    return where if said == _BARE else f": {one_line(said, 120)}{where}"
