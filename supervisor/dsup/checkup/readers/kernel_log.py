"""Whether the kernel log can be read, and by which of its two doors."""

from __future__ import annotations

from typing import Final

from dsup.checkup.readings import KernelLog
from dsup.edges import kernel_log

JOURNAL_S: Final = 4.0


def kernel_log_readable(
    path: str = kernel_log.PATH, journal: str = "journalctl"
) -> KernelLog:
    """Return why the kernel log cannot be read; the journal is asked only then.

    Args:
        path: where it is.
        journal: the program that prints journald's copy.
    """
    log = kernel_log.KernelLog(path)
    log.close()
    if not log.error:
        return KernelLog("", "")
    _, why_not = kernel_log.from_journal(0, JOURNAL_S, journal)
    return KernelLog(log.error, why_not)
