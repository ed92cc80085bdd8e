"""What the kernel log says of a crash: a fault of the rank's own, none, or nothing.

Sources: Linux arch/x86/mm/fault.c and arch/x86/kernel/traps.c (the line of a fault
bears a thread id, is rate-limited, and is not printed where a handler is installed);
CPython's Modules/faulthandler.c (it raises the signal again instead of faulting again).
"""

from __future__ import annotations

from typing import Final

from dsup.attribution.accounts import Account, counts
from dsup.attribution.timeline import Timeline
from dsup.core.exits import SIGILL, SIGSEGV
from dsup.facts.kernel import KernelFault

CRASH_KINDS: Final = frozenset({"segfault", "gpf", "trap"})
"""Lines that name a thread, which may have lived too briefly to be seen."""

_LOGGED: Final = frozenset({SIGSEGV, SIGILL})
"""Of a fault that raises one of these an x86 kernel writes a line, of a signal that is
sent none. Of a bus error, or of an arithmetic error in a vector unit, it writes none
either way."""


def fault_of(timeline: Timeline, account: Account) -> KernelFault | None:
    """Return the kernel's line about a thread of this rank's own process tree."""
    if not timeline.host_pids:
        return None
    for fault in timeline.kernel:
        ours = fault.pid is not None and timeline.kin.get(fault.pid) == account.rank
        ours = ours or (fault.pid is not None and fault.pid == account.pid)
        fits = fault.signum is None or fault.signum == -account.status
        timely = counts(timeline, fault, account.rank)
        if fault.kind in CRASH_KINDS and ours and fits and timely:
            return fault
    return None


def denies(timeline: Timeline, account: Account) -> bool:
    """Return whether the kernel would have told of a fault of this rank's, and did not.

    It would not of one that a handler takes, such as faulthandler's, so the rank's
    output must have been seen. A line about a process that nobody knows may be the
    one: a thread may have lived too briefly to be seen.
    """
    known = timeline.host_pids and not timeline.kernel_log
    seen = account.rank in timeline.words
    if not known or not seen or -account.status not in _LOGGED:
        return False
    return not any(
        fault.kind in CRASH_KINDS
        and fault.pid not in timeline.kin
        and counts(timeline, fault, account.rank)
        for fault in timeline.kernel
    )
