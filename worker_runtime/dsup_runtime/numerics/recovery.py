"""When a healthy state is kept, and how often it may be gone back to.

A state is healthy if its step was applied and no buffer of any rank holds a NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dsup_runtime import side_group
from dsup_runtime.errors import NumericsError
from dsup_runtime.numerics.buffers import names_of, spoiled
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from torch import nn

    from dsup_runtime.numerics.ledger import Ledger
    from dsup_runtime.numerics.snapshot import Snapshot

_AGREE_TIMEOUT_S: Final = 60.0


class Recovery:
    """Snapshots of a guarded loop, and the rollbacks to them.

    Args:
        model: whose buffers are minded, besides those of modules in the snapshot.
        snapshot: what is kept; None: nothing, so that nothing can be gone back to.
        max_rollbacks: how many rollbacks within the window, >= 0.
        window: steps.

    Raises:
        ValueError: if ``max_rollbacks`` is no such number.
    """

    __slots__ = (
        "_begun",
        "_max_rollbacks",
        "_modules",
        "_rollbacks",
        "_snapshot",
        "_told",
        "_window",
    )

    def __init__(
        self,
        model: nn.Module,
        snapshot: Snapshot | None,
        max_rollbacks: int,
        window: int,
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
        self._modules = {"": model} | (snapshot.modules if snapshot else {})
        self._begun = False
        self._told: set[str] = set()

    def due(self, ledger: Ledger, *, one_open: bool) -> bool:
        """Return whether the step that was just done is to be kept if it was applied.

        Args:
            ledger: tells of the steps so far.
            one_open: whether it does not know yet what became of that step.
        """
        if self._snapshot is None:
            return False
        first = not self._begun and not self._snapshot.steps
        enough = 1 if first else self._snapshot.every
        return ledger.healthy + one_open >= enough

    def keep(self, step: int, ledger: Ledger) -> None:
        """Keep the state, unless a rank has a NaN in a buffer; all ranks together.

        Args:
            step: the step that was just done, and is known to have been applied.
            ledger: begins anew: the next one is due ``every`` steps from here.
        """
        if self._snapshot is not None and self.whole(step):
            self._snapshot.take(step)
        self._begun = True
        ledger.begin_anew()

    def whole(self, step: int) -> bool:
        """Return whether no rank has a NaN in a buffer that it cannot take back.

        Args:
            step: the last step, for people.

        Raises:
            PeerError: if another rank does not ask.
        """
        left = int(not self.heal(step))
        return side_group.reduce_max([left], timeout_s=_AGREE_TIMEOUT_S) == [0]

    def heal(self, step: int) -> bool:
        """Take back what a bad forward pass left in buffers.

        Buffers are a matter of each rank: nothing here is agreed.

        Args:
            step: the last step, for people.

        Returns:
            Whether none of this rank's holds a NaN now.
        """
        found = spoiled(self._modules)
        left = found
        if found and self._snapshot is not None:
            self._snapshot.restore_tensors(found.values())
            left = spoiled(self._modules)
        if healed := found.keys() - left.keys():
            names = names_of(sorted(healed))
            log.warning("step %d: the buffers %s are as they were kept", step, names)
        if left.keys() - self._told:
            log.warning(
                "cannot undo what step %d left in the buffers %s, because there is no"
                " snapshot of them; until they are finite again no state is healthy,"
                " none is kept, and none saved (give StepGuard a snapshot with the"
                " model in it, or see to them: reset_running_stats() of batch norm)",
                step,
                names_of(left),
            )
        self._told = set(left)
        return not left

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
