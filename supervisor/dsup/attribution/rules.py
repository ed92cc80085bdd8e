"""The rules by which an attempt is judged, in order; the first that speaks wins.

Theory
------
Nearly every rank of a failed attempt reports an error, and nearly every report is of
another rank's end. So each rank gets an account first (``accounts``): how it ended by
itself, before any signal of dsup's. Accounts are *strong* where no other rank's end
leads to such an end: an exception of a type of its own, a signal that nobody else's
death sends, an abort that says why. The *leaders* are the strong accounts that no
other is known to go before: by the time an exception was caught, by the kernel's line,
else by the end that was seen; ends within the agent's blind time are equal, and all
are named.

Rules about strong accounts look at leaders only, so they never quarrel about time;
their order says which evidence goes first among equals: a device that failed, the
kernel's word, the wait status, what the rank itself told. Rules below them speak only
where no account is strong. They go from what was seen (state T, exit 0, state D) to
what is missing (who did not time out) and end with victims alone, then with "unknown",
which is an honest answer.

Where dsup itself ended the attempt because of a hang, no rank had failed: what the
kernel and the stacks say goes before all accounts then.

The death of a rank that dsup signalled is no evidence against it. Each rule is one pure
function with its symptom, its source and its window in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dsup.attribution import (
    crashes,
    exceptions,
    gpu_state,
    halts,
    hangs,
    hardware,
    hidden,
    host,
    memory,
    network,
    order,
    own_cgroup,
    signals,
    stalls,
    victims,
)
from dsup.attribution.accounts import Account, accounts
from dsup.attribution.mismatch import mismatched, sizes_differ
from dsup.attribution.proof import of_end, of_last_lines
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import one_line, sentence, status_text
from dsup.core.exits import CAUSES
from dsup.core.verdict import Evidence, Verdict

Rule: TypeAlias = Callable[[Timeline], Verdict | None]

_NAMED_ENDS: Final = 4


def obstacle(timeline: Timeline) -> Verdict | None:
    """Name no rank where the attempt could not go on though none had failed.

    Symptom: dsup itself met it: a program that cannot be started, a lost store.
    """
    if timeline.obstacle is None:
        return None
    cause, reason = timeline.obstacle
    known = cause if cause in CAUSES else "unknown"
    at_s = min(timeline.signalled.values(), default=timeline.started_s)
    return Verdict(
        timeline.attempt,
        known,
        (),
        "proven" if known == cause else "unknown",
        at_s,
        sentence(f"The attempt could not go on: {reason or known}"),
        "obstacle",
        (Evidence("dsup", one_line(reason or known), None, at_s),),
        signature=known,
    )


def unknown(timeline: Timeline) -> Verdict:
    """Name no rank, say how those ended that did, and what could not be looked at."""
    ended = [a for a in accounts(timeline) if a.end is not None and a.own]
    failed = [a for a in ended if a.failed]
    by_time = sorted(failed or ended, key=lambda a: (a.until_s, a.rank))
    named = ", ".join(_named(a) for a in by_time[:_NAMED_ENDS])
    text = named or "no rank ended by itself"
    missing = "; the kernel log could not be read" if timeline.kernel_log else ""
    evidence = (
        *(line for a in by_time for line in of_end(a)),
        *(line for a in by_time[:1] for line in of_last_lines(timeline, a.rank)),
    )
    return Verdict(
        timeline.attempt,
        "unknown",
        (),
        "unknown",
        min((a.until_s for a in by_time), default=timeline.started_s),
        sentence(f"No cause could be found: {text}{missing}"),
        "unknown",
        evidence,
        status=by_time[0].status if by_time else 1,
        signature=text if not named else status_text(by_time[0].status),
    )


def _named(account: Account) -> str:
    how = f" ({account.how})" if account.how else ""
    return f"rank {account.rank} ended with {status_text(account.status)}{how}"


RULES: Final[tuple[Rule, ...]] = (
    obstacle,
    # A device that failed goes before what ranks say when they lose it.
    hardware.gpu_failed,
    hardware.fabric_failed,
    host.memory_broke,
    # dsup confirmed a hang and ended the attempt: what states say, then stacks.
    halts.froze,
    halts.storage_is_silent,
    halts.slept,
    halts.left_others_waiting,
    order.called_out_of_order,
    hangs.called_another,
    hangs.never_came,
    hangs.came_alone,
    hangs.nobody_is_missing,
    hangs.made_no_step,
    # Strong accounts: the kernel's word, the wait status, the rank's own word.
    memory.kernel_killed_rank,
    memory.kernel_killed_helper,
    own_cgroup.own_cgroup_says_oom,
    memory.kernel_killed_unseen_pid,
    memory.counters_say_oom,
    memory.killed_from_outside,
    crashes.crashed,
    signals.limit_reached,
    signals.terminated,
    # NVML tells no time: it goes behind deaths by a signal.
    gpu_state.gpu_reported_bad,
    mismatched,
    sizes_differ,
    # The kernel's word on what an exception tells of only by its number.
    host.storage_failed,
    network.adapter_failed,
    exceptions.all_alike,
    exceptions.raised,
    crashes.aborted,
    # None is strong: what a communication error hides, and who is missing.
    hidden.raised_before_teardown,
    stalls.frozen,
    hardware.program_faulted,
    hidden.raised_in_thread,
    victims.early_exit,
    exceptions.all_same_code,
    crashes.ended_without_words,
    hidden.shown_and_alive,
    stalls.asleep_in_kernel,
    host.stuck_in_kernel,
    stalls.did_not_come,
    victims.own_connection,
    stalls.lived_on,
    stalls.came_late,
    victims.store_host_first,
    victims.only_victims,
)
"""Tried from first to last; ``unknown`` speaks where none of them does."""
