"""When a healthy state is kept, and how often it may be gone back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsup_runtime.errors import NumericsError
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from torch import nn

    from dsup_runtime.numerics.ledger import Ledger
    from dsup_runtime.numerics.snapshot import Snapshot

_NAMES_MAX: Final = 200


class Recovery:
    """Snapshots of a guarded loop, and the rollbacks to them.

    Args:
        snapshot: what is kept; None: nothing, so that nothing can be gone back to.
        max_rollbacks: how many rollbacks within the window, >= 0.
        window: steps.

    Raises:
        ValueError: if ``max_rollbacks`` is no such number.
    """

    __slots__ = ("_max_rollbacks", "_rollbacks", "_snapshot", "_window")

    def __init__(
        self, snapshot: Snapshot | None, max_rollbacks: int, window: int
    ) -> None:
        if not max_rollbacks >= 0:  # also refuses nan
            raise ValueError(
                f"cannot set max_rollbacks to {max_rollbacks!r}, because it must be a"
                " number from 0"
            )
        self._snapshot = snapshot
        self._max_rollbacks = max_rollbacks
        self._window = window
        self._rollbacks: list[int] = []

    def keep(self, step: int, ledger: Ledger) -> None:
        """Keep the state if it is time, and if the last step that is known was good.

        Args:
            step: the step that was just done.
            ledger: tells of the steps so far; begins anew with a snapshot.
        """
        kept = self._snapshot
        if kept is None or ledger.failures or not ledger.healthy:
            return
        if not kept.steps or ledger.healthy >= kept.every:
            kept.take(step)
            ledger.begin_anew()

    def heal(self, step: int, model: nn.Module) -> None:
        """Take back what a skipped step's forward pass left in the model's buffers.

        Skipping an update does not undo that batch norm has averaged a NaN. Buffers are
        a matter of each rank: nothing here is agreed.

        Args:
            step: the step that was skipped.
            model: whose buffers.
        """
        spoiled = {
            name: buffer
            for name, buffer in model.named_buffers()
            if bool(buffer.isnan().any())  # an inf may be meant: masks hold them
        }
        if not spoiled:
            return
        restored = 0
        if self._snapshot is not None:
            restored = self._snapshot.restore_tensors(spoiled.values())
        names = ", ".join(spoiled)[:_NAMES_MAX]
        if restored < len(spoiled):
            log.warning(
                "cannot undo what step %d left in the buffers %s, because there is no"
                " snapshot of them (give StepGuard one with the model in it)",
                step,
                names,
            )
        else:
            log.warning("step %d: the buffers %s are as they were kept", step, names)

    def roll_back(self, count: int, step: int, ledger: Ledger) -> None:
        """Put the state back to a snapshot.

        Args:
            count: how many steps were tried, by which rollbacks are limited.
            step: the step at which patience was over, for people.
            ledger: tells of the steps that failed; begins anew.

        Raises:
            NumericsError: if there is no snapshot, or no rollback left.
        """
        why = f"{ledger.failures} steps in a row failed, at last because {ledger.last}"
        if self._snapshot is None or not self._snapshot.steps:
            raise NumericsError(
                f"cannot go on, because {why}, and there is no snapshot to go back to"
                " (give StepGuard one, or look at the data and the learning rate)"
            )
        first = count - self._window
        self._rollbacks = [each for each in self._rollbacks if each > first]
        if len(self._rollbacks) >= self._max_rollbacks:
            raise NumericsError(
                f"cannot go on, because {why}, and {len(self._rollbacks)} rollbacks in"
                f" {self._window} steps did not help (look at the data and the learning"
                " rate)"
            )
        self._rollbacks.append(count)
        to = self._snapshot.restore()
        ledger.begin_anew()
        log.warning(
            "step %d: rolled back to the state after step %d, because %s", step, to, why
        )
