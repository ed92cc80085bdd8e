"""What is said where a stop is asked for, or checked, and cannot be decided."""

from __future__ import annotations

from dsup_runtime.rank_log import log


def say_helper(reason: str) -> None:
    """Say that a helper process has asked for a stop, which it cannot have."""
    log.error(
        "cannot stop the run for %r, because it is asked for in this helper process"
        " only (raise an error instead: a DataLoader raises it in its rank)",
        reason,
    )


def say_threads() -> None:
    """Say that several threads check for a stop."""
    log.warning(
        "cannot stop at the same step on all ranks, because should_stop is called from"
        " several threads (call it from the training loop alone)"
    )
