"""Buffers with a NaN in them: a forward pass writes them, whatever becomes of its step.

Skipping an update does not undo that batch norm has averaged a NaN. It shows in no loss
and in no gradient, for training goes by the batch's own mean: only evaluation, and
whoever loads a checkpoint, find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch
    from torch import Tensor, nn


def spoiled(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return the buffers that hold a NaN, this rank's part of each, by full name.

    An inf is none: it may be meant, masks hold them. Reads each device once.

    Args:
        modules: by name; of a buffer that several have the first name counts.
    """
    import torch

    found: dict[torch.device, dict[str, Tensor]] = {}
    for name, part in _parts(modules):
        found.setdefault(part.device, {})[name] = part
    return {
        name: part
        for parts in found.values()
        for (name, part), odd in zip(
            parts.items(),
            torch.stack([_odd(part) for part in parts.values()]).tolist(),
            strict=True,
        )
        if odd
    }


def names_of(buffers: Iterable[str], limit: int = 200) -> str:
    """Return names for a message, cut at ``limit`` characters."""
    names = ", ".join(buffers)
    return names if len(names) <= limit else names[:limit] + "..."


def _parts(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
    seen: set[int] = set()
    for prefix, module in modules.items():
        for name, buffer in module.named_buffers(prefix):
            part: Any = buffer.detach()
            part = part.to_local() if hasattr(part, "to_local") else part
            if id(buffer) not in seen and _may_be_odd(part):
                seen.add(id(buffer))
                yield name, part


def _may_be_odd(part: Tensor) -> bool:
    import torch

    if part.is_meta or part.layout is not torch.strided:
        return False
    return part.is_floating_point() or part.is_complex()


def _odd(part: Tensor) -> Tensor:
    # Numbers of 8 bits cannot be compared.
    return (part.float() if part.element_size() == 1 else part).isnan().any()
