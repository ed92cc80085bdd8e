"""outcome.json of an attempt whose main rank could not write it: it was killed. Pure.

A rank that uses the runtime writes its own, and that one is never replaced by this.
"""

from __future__ import annotations

import json
from typing import Final

from dsup.core.exits import SIGNALLED, signal_name
from dsup.core.state import State

MAIN_RANK: Final = 0


def of_killed(state: State, step: int | None, error: str) -> bytes | None:
    """Return what the file says; None where the main rank was not killed by a signal.

    Args:
        state: that of an attempt whose ranks have ended.
        step: the last step that the main rank told of; None if it told of none.
        error: what is known about the failure; empty for nothing.
    """
    status = next((d.status for d in state.ended if d.rank == MAIN_RANK), 0)
    if status >= 0:
        return None
    stop = state.stop
    why = f" ({stop.cause})" if stop else ""
    fields = {
        "v": 1,
        "status": "KILLED" if stop else "FAILED",
        "exit_code": SIGNALLED - status,
        "resumable": state.spec.policy.checkpoints_known or state.best_step is not None,
        "reason": f"killed by {signal_name(-status)}{why}",
        "error": error or None,
        "rank": MAIN_RANK,
        "step": step,
        "written_by": "dsup",
    }
    return (json.dumps(fields, indent=2) + "\n").encode()
