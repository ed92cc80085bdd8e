"""StepGuard: a step whose numbers are not finite is skipped, by all ranks or by none.

No rank decides alone. ``arm`` makes the loss NaN where it is not finite and lets
backward run all the same, so the reduction of the gradients tells every rank; ``step``
measures one norm of the reduced gradients, the same on every rank, and applies the step
if that is finite. Everything else follows from what all ranks have counted alike: after
``patience`` skipped steps in a row the state goes back to a snapshot, while the data
goes on. What is dropped is written down, and counted against a budget.

A fused optimizer reads the verdict on the device (``found_inf``, the contract that it
has with GradScaler), so the host waits for nothing; it hears of a skipped step one step
later, when nothing has changed in between. Any other optimizer costs one read.

What a loop must keep to:

- Every rank calls ``step`` after the same backward passes, and gradients are reduced
  over all ranks (DDP, FSDP2), or their norm is (``groups``).
- With accumulation ``arm`` every micro-batch, and call ``step`` once for all of them:
  one bad micro-batch costs the whole step.
- ``step`` unscales, clips, steps, updates the scaler and drops the gradients: do none
  of it yourself.
- A schedule and an EMA count applied steps: step them ``if result``, and hand it on to
  ``progress.advance(samples, applied=result)``. After a rollback it is true: the state
  is that right after an applied step, for which the rest of the loop is still due.

Not covered: sparse gradients (``clip_grad_norm_`` knows none either), closures, and
several optimizers on one GradScaler.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsup_runtime import heartbeat
from dsup_runtime.numerics.dead_letters import DeadLetters
from dsup_runtime.numerics.drop_budget import DropLimits
from dsup_runtime.numerics.gradients import Gradients, total_of
from dsup_runtime.numerics.ledger import Ledger
from dsup_runtime.numerics.recovery import Recovery
from dsup_runtime.numerics.result import APPLIED, Reading, StepResult, Verdict, agree
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import torch.distributed as dist
    from torch import Tensor, nn
    from torch.amp import GradScaler
    from torch.optim import Optimizer

    from dsup_runtime.numerics.snapshot import Snapshot

_CLIP_EPSILON: Final = 1e-6  # clip_grads_with_norm_ adds it to the norm


class StepGuard:
    """Applies optimizer steps whose numbers are finite, and sees to the others.

    Args:
        model: whose parameters they are; asked for names and for buffers.
        optimizer: applies the steps; it also owns the gradients.
        scaler: the GradScaler that scaled the loss; None or a disabled one: none did.
        max_norm: the norm that gradients are clipped to; inf to clip nothing.
        patience: after so many skipped steps in a row the state is rolled back.
        snapshot: what to roll back to; None: NumericsError instead. The guard takes
            one after the first applied step and after every ``snapshot.every``.
        max_rollbacks: how many of them within ``window`` steps; one more is a
            NumericsError.
        drop_warn: share of dropped batches above which a warning is logged.
        drop_stop: share above which a DropBudgetExceeded is deferred.
        window: how many of the last steps these limits and ``max_rollbacks`` are about.
        min_attempts: before so many steps ``drop_stop`` stops nothing.
        dead_letters: directory that gets a line for every batch that was dropped.
        groups: process groups whose ranks hold other parameters each (pipeline
            stages): the norm is that of all of them. Parameters that a group has more
            than once count as often: the verdict is right, clipping stricter.

    Raises:
        ValueError: if a limit cannot be one, the optimizer has no parameters, or
            ``groups`` are to share a GradScaler (each stage would have a scale of its
            own).
    """

    def __init__(  # noqa: PLR0913 (each is a setting of its own, given by name)
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        scaler: GradScaler | None = None,
        max_norm: float = 1.0,
        patience: int = 5,
        snapshot: Snapshot | None = None,
        max_rollbacks: int = 2,
        drop_warn: float = 1e-4,
        drop_stop: float = 1e-3,
        window: int = 10_000,
        min_attempts: int = 1_000,
        dead_letters: str | os.PathLike[str] | None = None,
        groups: Sequence[dist.ProcessGroup] = (),
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        if groups and self._scaler is not None:
            raise _wrong("groups", len(groups), "left out where a GradScaler scales")
        if not max_norm > 0:  # here and below nan is refused too
            raise _wrong("max_norm", max_norm, "above 0 (inf to clip nothing)")
        if not patience >= 1:
            raise _wrong("patience", patience, "a number of steps from 1")
        self._max_norm = max_norm
        self._patience = patience
        self._groups = tuple(groups)
        self._recovery = Recovery(model, snapshot, max_rollbacks, window)
        limits = DropLimits(
            warn=drop_warn, stop=drop_stop, window=window, min_attempts=min_attempts
        )
        letters = None if dead_letters is None else DeadLetters(dead_letters)
        self._ledger = Ledger(limits, letters)
        self._loss = _zero_beside(optimizer)
        self._late: _Open | None = None
        self._proven: set[int] = set()
        self._count = self._step = 0
        self._idle = False

    def arm(self, loss: Tensor) -> Tensor:
        """Return the loss to call ``backward`` on: NaN if it is not finite.

        Costs a few operations on one number, waits for nothing, and may be called
        inside of ``torch.compile``. With a GradScaler, scale what this returns.

        Args:
            loss: of this rank; every micro-batch's is to be armed.
        """
        import torch

        seen = loss.detach()
        self._loss.add_(seen.to(self._loss).sum())
        factor = torch.where(torch.isfinite(seen).all(), 1.0, math.nan)
        return loss * factor.to(loss.dtype)

    def step(self, batch_id: object = None) -> StepResult:
        """Apply the step, or skip it, or roll back; every rank does the same.

        Call it on all ranks, once all gradients of the step are there. They are gone
        afterwards.

        Args:
            batch_id: what names the batch in a dead letter: anything JSON can hold,
                tensors too; of anything else the beginning of its ``repr``. A warning
                has it in short.

        Raises:
            NumericsError: if steps fail in a row and there is nothing to go back to, or
                that was done too often; on all ranks.
            PeerError: if another rank does not skip the step that this one skips.
        """
        self._count += 1
        told = heartbeat.last_step()
        self._step = self._count if told is None else told
        self._settle()
        gradients = Gradients(self._optimizer)
        if self._ledger.failures >= self._patience:  # a fused step: known only now
            result = self._give_up_unseen(batch_id)
        elif gradients.parameters:
            result = self._attempt(gradients, batch_id)
        else:
            result = self._nothing_to_apply()
        due = self._recovery.due(self._ledger, one_open=self._late is not None)
        if due:  # once in a while a fused step is waited for, as the copy of it is
            self._settle()
        if self._ledger.failures >= self._patience:
            self._recovery.roll_back(self._count, self._step, self._ledger)
            result.rolled_back = True
        self._optimizer.zero_grad(set_to_none=True)
        self._loss.zero_()
        if due and result.verdict == APPLIED:
            self._recovery.keep(self._step, self._ledger)
        return result

    @property
    def healthy(self) -> bool:
        """Whether the state is worth a save.

        That is if the last step was no failure, and no buffer of any rank holds a NaN
        that a bad batch left there. What a snapshot has of them is put back first.

        The same on all ranks, who must ask together; waits for the device.
        """
        self._settle()
        return self._ledger.failures == 0 and self._recovery.whole(self._step)

    def _attempt(self, gradients: Gradients, batch_id: object) -> StepResult:
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        norms = gradients.norms()
        total = total_of(norms, self._groups)
        reading = Reading(gradients.parameters, norms, total, self._loss)
        result = StepResult(self._step, self._model, reading)
        identities = set(map(id, gradients.parameters))
        if identities <= self._proven and _skips_itself(self._optimizer):
            self._apply_on_device(gradients, reading)
            self._late = _Open(result, reading, norms, batch_id)
            return result
        if reading.finite():
            self._apply_on_host(gradients, reading)
            # A fused step that skips itself leaves moments unset that it has just made.
            self._proven |= identities
        else:
            norms = gradients.norms(math.inf)
        self._update_scaler()
        self._late = _Open(result, reading, norms, batch_id)
        self._settle()
        return result

    def _apply_on_device(self, gradients: Gradients, reading: Reading) -> None:
        import torch

        gradients.clip(self._max_norm, reading.total)
        finite = torch.isfinite(reading.device_pair[0])
        optimizer: Any = self._optimizer
        optimizer.grad_scale = None
        optimizer.found_inf = 1.0 - finite.float()
        try:
            optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf
        self._update_scaler()
        reading.send()

    def _apply_on_host(self, gradients: Gradients, reading: Reading) -> None:
        if reading.norm_and_loss()[0] + _CLIP_EPSILON > self._max_norm:
            gradients.clip(self._max_norm, reading.total)
        self._optimizer.step()

    def _update_scaler(self) -> None:
        if self._scaler is not None:
            self._scaler.update()

    def _settle(self) -> None:
        """Find out what became of the last step, if that is still open."""
        late, self._late = self._late, None
        if late is None:
            return
        norm, loss = numbers = late.reading.norm_and_loss()
        if math.isfinite(norm):
            late.result.verdict = APPLIED
            self._ledger.applied()
            if not math.isfinite(loss):
                log.warning(
                    "step %d was applied, though the loss of this rank was %g: its"
                    " gradients were finite (is what arm() returned what backward()"
                    " was called on?)",
                    late.result.step,
                    loss,
                )
            return
        verdict = agree(loss, late.norms, self._scaler)
        late.result.verdict = verdict
        if verdict.reason == "scale":
            self._ledger.scaled_down()
        else:
            self._ledger.dropped(late.result.step, verdict, numbers, late.batch_id)
        self._recovery.heal(late.result.step)

    def _nothing_to_apply(self) -> StepResult:
        if not self._idle:
            self._idle = True
            log.warning(
                "step %d is skipped, because no parameter has a gradient (call step()"
                " after backward(), and let it drop the gradients)",
                self._step,
            )
        return StepResult(self._step, self._model, verdict=Verdict("no gradients"))

    def _give_up_unseen(self, batch_id: object) -> StepResult:
        verdict = Verdict("rollback")
        numbers = (math.nan, self._loss.item())
        self._ledger.dropped(self._step, verdict, numbers, batch_id)
        return StepResult(self._step, self._model, verdict=verdict)


class _Open(NamedTuple):
    """A step whose verdict is still open; norms of each gradient that blame it."""

    result: StepResult
    reading: Reading
    norms: Tensor
    batch_id: object


def _zero_beside(optimizer: Optimizer) -> Tensor:
    """Return a zero, where the first parameter is, for the sum of losses."""
    import torch

    params = (each for group in optimizer.param_groups for each in group["params"])
    first = next(params, None)
    if first is None:
        raise ValueError(
            "cannot guard this optimizer, because it has no parameters (give it those"
            " of the model, frozen ones too if a rank trains nothing)"
        )
    return torch.zeros((), dtype=torch.float32, device=first.device)


def _skips_itself(optimizer: Optimizer) -> bool:
    """Return whether all of an optimizer heeds ``found_inf``."""
    heeds = getattr(optimizer, "_step_supports_amp_scaling", False)
    return heeds and all(group.get("fused") for group in optimizer.param_groups)


def _wrong(name: str, value: object, must: str) -> ValueError:
    return ValueError(f"cannot set {name} to {value!r}, because it must be {must}")
