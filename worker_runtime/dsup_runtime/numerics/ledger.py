"""What became of the steps of a run: counts that all ranks have alike, and letters."""

from __future__ import annotations

import logging
import math
import reprlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dsup_runtime import deferred, side_group, worker_info
from dsup_runtime.errors import DropBudgetExceeded
from dsup_runtime.numerics.drop_budget import DropBudget
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from dsup_runtime.numerics.dead_letters import DeadLetters
    from dsup_runtime.numerics.drop_budget import DropLimits
    from dsup_runtime.numerics.result import Verdict

BATCH_MAX_CHARS: Final = 80
"""What a log line says of a batch id; its dead letter has more."""

_WORDS = {
    "loss": "the loss of rank {bad_rank} is not finite",
    "gradient": "a gradient is not finite",
    "overflow": "the norm of its gradients is not finite, though each of them is",
}


class Ledger:
    """Counts steps, tells of those that were dropped, and holds the budget.

    Attributes:
        failures: steps dropped in a row.
        healthy: steps applied since ``begin_anew``.
        last: why the last one was dropped, in words; "" before that.

    Args:
        limits: how much may be dropped.
        letters: where dead letters go; None: nowhere.
    """

    __slots__ = ("_budget", "_letters", "failures", "healthy", "last")

    def __init__(self, limits: DropLimits, letters: DeadLetters | None) -> None:
        self._budget = DropBudget(limits)
        self._letters = letters
        self.failures = 0
        self.healthy = 0
        self.last = ""

    def begin_anew(self) -> None:
        """Count from here: the state was just kept, or put back."""
        self.failures = 0
        self.healthy = 0

    def applied(self) -> None:
        """Count a step that was applied."""
        self.failures = 0
        self.healthy += 1
        self._spend(dropped=False)

    def scaled_down(self) -> None:
        """Count a step that GradScaler gave up for its scale: no fault of the data."""
        self._spend(dropped=False)

    def dropped(
        self,
        step: int,
        verdict: Verdict,
        numbers: tuple[float, float],
        batch_id: object,
    ) -> None:
        """Count a step that was dropped, and tell of it.

        Args:
            step: its number.
            verdict: why.
            numbers: norm of the gradients, and this rank's loss.
            batch_id: what names the batch of this rank.
        """
        norm, loss = numbers
        if verdict.reason != "rollback":  # the failures were counted, then it came
            self.failures += 1
            self.last = _WORDS[verdict.reason or ""].format(**verdict._asdict())
            self._tell(step, norm, loss, _in_short(batch_id))
        if self._letters is not None:
            letter = {"step": step, **verdict._asdict(), "norm": norm, "loss": loss}
            self._letters.write(_rank(), {"batch_id": batch_id, **letter, **_origin()})
        self._spend(dropped=True)

    def _tell(self, step: int, norm: float, loss: float, batch: str) -> None:
        # One line a step is enough: from rank 0, and from those who brought it about.
        told = _rank() == 0 or not math.isfinite(loss)
        log.log(
            logging.WARNING if told else logging.INFO,
            "step %d is skipped on all ranks, because %s (norm %g, loss of this rank"
            " %g%s, %d in a row)",
            step,
            self.last,
            norm,
            loss,
            batch and f", its batch {batch}",
            self.failures,
        )

    def _spend(self, *, dropped: bool) -> None:
        # An applied step may be the one at which enough were tried to judge.
        overdrawn = self._budget.count(dropped=dropped)
        if overdrawn is None:
            return
        if overdrawn.limit == "warn":
            log.warning("%s (look at the data)", overdrawn)
            return
        error = DropBudgetExceeded(
            f"cannot go on dropping data, because {overdrawn} (look at the data: the"
            " dead letters name the batches; or raise drop_stop)"
        )
        deferred.keep(error, where="StepGuard")


def _in_short(batch_id: object) -> str:
    """Return what names a batch: both ends of a string, the beginning of a list."""
    if batch_id is None:
        return ""
    short = reprlib.Repr()
    short.maxstring = short.maxother = BATCH_MAX_CHARS
    try:
        text = short.repr(batch_id)
    except Exception:  # noqa: BLE001 (the caller's own object may raise anything)
        text = f"<{type(batch_id).__name__}>"
    printable = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(printable.split())[:BATCH_MAX_CHARS]


def _rank() -> int:
    """Return this process's rank in the process group, else as its launcher says."""
    if side_group.size() == 1:
        return worker_info.read_count("RANK", 0)
    return side_group.rank()


def _origin() -> dict[str, object]:
    """Return what every letter says of its writer."""
    import platform

    import torch

    return {
        "rank": _rank(),
        "attempt": worker_info.read_attempt(),
        "at": datetime.now(UTC).isoformat(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
