"""What became of one optimizer step, and how much of that is known already."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from dsup_runtime import side_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor, nn
    from torch.amp import GradScaler

Reason: TypeAlias = Literal[
    "loss", "gradient", "overflow", "scale", "no gradients", "rollback"
]
"""Why a step was not applied.

    loss          the loss of a rank was not finite
    gradient      every loss was finite, a gradient was not
    overflow      every gradient was finite, their norm was not
    scale         GradScaler's scale was too high; it halves it, the data is not blamed
    no gradients  there was nothing to apply
    rollback      the steps before it failed, which was known only now; a fused
                  optimizer's gradients are then dropped without a look
"""


class Verdict(NamedTuple):
    """What all ranks say of a step.

    Attributes:
        reason: why it was not applied; None if it was.
        bad_rank: the lowest rank whose loss was not finite; None if there is none.
    """

    reason: Reason | None = None
    bad_rank: int | None = None


APPLIED: Final = Verdict()

_AGREE_TIMEOUT_S: Final = 60.0


class Reading:
    """The numbers of one step, measured on the device and read when somebody asks.

    Attributes:
        norms: norm of each gradient, ``(parameters,)``.
        total: norm of all gradients together, no dimensions.
        parameters: whose gradients.
        device_pair: total and loss, float32, ``(2,)``.

    Args:
        parameters: whose gradients.
        norms: of each gradient.
        total: of all.
        loss: sum of this rank's losses since the last step, no dimensions.
    """

    __slots__ = (
        "_event",
        "_numbers",
        "_pair",
        "device_pair",
        "norms",
        "parameters",
        "total",
    )

    def __init__(
        self, parameters: Sequence[Tensor], norms: Tensor, total: Tensor, loss: Tensor
    ) -> None:
        import torch

        self.parameters = parameters
        self.norms = norms
        self.total = total
        self.device_pair = torch.stack([total.to(loss), loss])
        self._pair = self.device_pair
        self._event: torch.cuda.Event | None = None
        self._numbers: tuple[float, float] | None = None

    def send(self) -> None:
        """Start the copy to the host, which nobody waits for before it is read."""
        import torch

        if self.device_pair.is_cuda:
            self._pair = torch.empty_like(
                self.device_pair, device="cpu", pin_memory=True
            )
            self._pair.copy_(self.device_pair, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def norm_and_loss(self) -> tuple[float, float]:
        """Return both; the first time waits for the device if need be."""
        if self._numbers is None:
            if self._event is not None:
                self._event.synchronize()
            norm, loss = self._pair.tolist()
            self._numbers = norm, loss
        return self._numbers

    def finite(self) -> bool:
        """Return whether the step could be applied, waiting as above."""
        return math.isfinite(self.norm_and_loss()[0])

    def culprit(self, model: nn.Module) -> str | None:
        """Return the name of the first parameter whose gradient has no finite norm."""
        for parameter, norm in zip(self.parameters, self.norms.tolist(), strict=True):
            if not math.isfinite(norm):
                named = model.named_parameters()
                names = (name for name, each in named if each is parameter)
                return next(names, "a parameter that the model does not have")
        return None


class StepResult:
    """What became of one optimizer step.

    With a fused optimizer a step decides for itself on the device. What happened is
    known on the host one step later; what is asked before waits for the device.

    Attributes:
        step: its number: that of the last ``beat``; without one how many steps were
            tried, this one included.
        grad_norm: norm of all gradients before clipping, on their device, no
            dimensions; None if nothing was measured.
        rolled_back: whether the state is now that of a snapshot.
    """

    __slots__ = ("_model", "_reading", "grad_norm", "rolled_back", "step", "verdict")

    def __init__(
        self,
        step: int,
        model: nn.Module,
        reading: Reading | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        self.step = step
        self.grad_norm = reading.total if reading else None
        self.rolled_back = False
        self.verdict = verdict
        self._model = model
        self._reading = reading

    def __bool__(self) -> bool:
        """Whether the state is that right after an applied step.

        This step's, or after a rollback the snapshot's: in both cases the rest of the
        loop's body is due for it. Progress, a schedule and an EMA go by this.
        """
        return not self.skipped

    @property
    def applied(self) -> bool:
        """Whether the optimizer changed the parameters, and no rollback undid it."""
        return self.reason is None and not self.rolled_back

    @property
    def skipped(self) -> bool:
        """Whether nothing changed at all."""
        return self.reason is not None and not self.rolled_back

    @property
    def outcome(self) -> Literal["applied", "skipped", "rolled_back"]:
        """The same in one word."""
        if self.rolled_back:
            return "rolled_back"
        return "applied" if self.applied else "skipped"

    @property
    def reason(self) -> Reason | None:
        """Why it was not applied; read early, as far as this rank can tell."""
        if self.verdict is not None:
            return self.verdict.reason
        if self._reading is None or self._reading.finite():
            return None
        loss = self._reading.norm_and_loss()[1]
        return "gradient" if math.isfinite(loss) else "loss"

    @property
    def param(self) -> str | None:
        """Name of the first parameter whose gradient's norm is not finite.

        None if there is none, and if a loss was not finite: then all of them are.
        """
        if self._reading is None or self.reason == "loss":
            return None
        return self._reading.culprit(self._model)


def agree(loss: float, norms: Tensor, scaler: GradScaler | None) -> Verdict:
    """Return why a step was not applied; all ranks know that it was not.

    Args:
        loss: this rank's.
        norms: of each gradient; where they come from a rank alone, its own.
        scaler: what scaled the loss, updated since; None if nothing did.

    Raises:
        PeerError: if another rank does not come here.
    """
    import torch

    ranks = side_group.size()
    told = [
        0 if math.isfinite(loss) else ranks - side_group.rank(),
        0 if bool(torch.isfinite(norms).all()) else 1,
    ]
    bad_loss, bad_gradient = side_group.reduce_max(told, timeout_s=_AGREE_TIMEOUT_S)
    if bad_loss:
        return Verdict("loss", ranks - bad_loss)
    if not bad_gradient:
        return Verdict("overflow")
    # The scale was halved just now: one above 1 may well have been too high.
    high = scaler and scaler.get_scale() >= scaler.get_backoff_factor()
    return Verdict("scale" if high else "gradient")
