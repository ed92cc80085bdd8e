"""The gradients that an optimizer is about to apply: their norms, and clipping.

``clip_grad_norm_`` measures and clips in one call and tells neither which parameter is
to blame nor whether there was anything to measure. Here the norm of each parameter is
kept: they come with the total anyway, and stay where they were computed, so nothing
waits for a GPU.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch.distributed as dist
    from torch import Tensor
    from torch.optim import Optimizer


class Gradients:
    """The parameters of an optimizer that have a gradient now.

    Attributes:
        parameters: in the order of ``norms``; the same on all ranks.

    Args:
        optimizer: whose.
    """

    __slots__ = ("_bunches", "parameters")

    def __init__(self, optimizer: Optimizer) -> None:
        # A bunch a device mesh, and one of plain tensors: torch mixes them in no call.
        bunches: dict[object, list[Tensor]] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mesh = getattr(parameter.grad, "device_mesh", None)
                    bunches.setdefault(mesh, []).append(parameter)
        self._bunches = list(bunches.values())
        self.parameters = [each for bunch in self._bunches for each in bunch]

    def norms(self, order: float = 2.0) -> Tensor:
        """Return the norm of each gradient, the same on every rank: ``(parameters,)``.

        A collective if the gradients are DTensors.

        Args:
            order: of the norm; inf is exact where 2 overflows, but says inf for NaN
                where the gradients are DTensors.
        """
        import torch

        return torch.cat([_norms(bunch, order) for bunch in self._bunches])

    def clip(self, max_norm: float, total: Tensor) -> None:
        """Scale all gradients so that their common norm is at most ``max_norm``.

        Args:
            max_norm: the limit.
            total: the norm that they have.
        """
        from torch.nn.utils import clip_grads_with_norm_

        for bunch in self._bunches:
            clip_grads_with_norm_(bunch, max_norm, total.to(bunch[0].device))


def total_of(norms: Tensor, groups: Sequence[dist.ProcessGroup]) -> Tensor:
    """Return the norm of all gradients together, a tensor without dimensions.

    Args:
        norms: of each, ``(parameters,)``.
        groups: whose ranks hold gradients of other parameters each; a collective in
            each of them.
    """
    import torch

    total: Tensor = torch.linalg.vector_norm(norms)
    if not groups:
        return total
    import torch.distributed as dist

    # A square of what float32 can hold may be more than that.
    square = total.double().square()
    for group in groups:
        dist.all_reduce(square, group=group)
    return square.sqrt().to(total)


def _norms(bunch: list[Tensor], order: float) -> Tensor:
    import torch

    grads: list[Any] = [each.grad for each in bunch if each.grad is not None]
    if order == math.inf:
        grads = [_with_a_maximum(grad) for grad in grads]
    # What get_total_norm is made of; it does not hand out the norms of each.
    each = torch._foreach_norm(grads, order)  # noqa: SLF001 (pinned by the tests)
    norms: Any = torch.stack([norm.to(each[0].device) for norm in each])
    if not hasattr(norms, "full_tensor"):
        return norms  # type: ignore[no-any-return]
    if order == math.inf:
        # The greater of a number and NaN is either, as the backend likes.
        mine = norms.to_local().nan_to_num(nan=math.inf, posinf=math.inf)
        norms = type(norms).from_local(mine, norms.device_mesh, norms.placements)
    return norms.full_tensor()  # type: ignore[no-any-return]


def _with_a_maximum(grad: Any) -> Any:  # noqa: ANN401 (a DTensor is more than a Tensor)
    """Return a gradient, or a zero where this rank holds nothing of it.

    FSDP2 leaves some ranks an empty shard of a short parameter, and torch knows no
    greatest element of that. The others are not told: the collective stays the same.
    """
    sharded = hasattr(grad, "to_local")
    local = grad.to_local() if sharded else grad
    if local.numel():
        return grad
    zero = local.new_zeros((1,) * local.ndim)
    if not sharded:
        return zero
    return type(grad).from_local(zero, grad.device_mesh, grad.placements)
