"""Copies of nested state, as ``state_dict`` returns it, into memory of the host.

A tree is made of mappings, lists and tuples; its leaves are tensors and whatever else
can be deep-copied. Of a DTensor this rank's own part is copied, so nothing here talks
to other ranks.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

Tree: TypeAlias = Any


def copy_into(spare: Tree, tree: Tree) -> Tree:
    """Return a copy that shares no memory with a tree and is complete at return.

    Args:
        spare: an earlier copy that nobody needs any more; its buffers are used again
            where they fit. Anything else will do as well.
        tree: what to copy.
    """
    gpus: set[torch.device] = set()
    kept = _copy(tree, spare, gpus)
    for gpu in gpus:
        _wait_for(gpu)
    return kept


def put_back(kept: Tree, live: Tree) -> Tree:
    """Copy what was kept into the live tensors, in place.

    Args:
        kept: what ``copy_into`` returned; it stays as it is, and shared with nothing.
        live: the same state as it is now.

    Returns:
        A tree of the live tensors and copies of the rest, for ``load_state_dict``. New
        tensors stand where there is no live one of that shape.
    """
    import torch

    if isinstance(kept, torch.Tensor):
        if not isinstance(live, torch.Tensor) or _local(live).shape != kept.shape:
            return kept.clone()
        _local(live).copy_(kept)
        return live
    if isinstance(kept, dict):
        now = live if isinstance(live, Mapping) else {}
        pairs = {key: put_back(each, now.get(key)) for key, each in kept.items()}
        return _with_versions(pairs, live)
    if type(kept) in {list, tuple}:
        olds = live[: len(kept)] if type(live) is type(kept) else ()
        return type(kept)(put_back(each, old) for each, old in zip_longest(kept, olds))
    return copy.deepcopy(kept)


def tensors_of(kept: Tree, live: Tree) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield each tensor that was kept with the live one, this rank's part of it."""
    import torch

    if isinstance(kept, dict) and isinstance(live, Mapping):
        for key in kept.keys() & live.keys():
            yield from tensors_of(kept[key], live[key])
    elif isinstance(kept, torch.Tensor) and isinstance(live, torch.Tensor):
        yield kept, _local(live)


def _with_versions(state: dict[str, Any], live: Tree) -> dict[str, Any]:
    """Keep what modules remember beside their state: the versions of its parts."""
    if not hasattr(live, "_metadata"):
        return state
    ordered = OrderedDict(state)
    versions = live._metadata  # noqa: SLF001 (torch's own way to hand it on)
    ordered._metadata = versions  # type: ignore[attr-defined]  # noqa: SLF001
    return ordered


def _copy(value: Tree, spare: Tree, gpus: set[torch.device]) -> Tree:
    import torch

    if isinstance(value, torch.Tensor):
        return _copy_tensor(_local(value), spare, gpus)
    if isinstance(value, Mapping):
        old = spare if isinstance(spare, dict) else {}
        return {key: _copy(each, old.get(key), gpus) for key, each in value.items()}
    if type(value) in {list, tuple}:
        olds = spare[: len(value)] if type(spare) is type(value) else ()
        pairs = zip_longest(value, olds)
        return type(value)(_copy(each, old, gpus) for each, old in pairs)
    return copy.deepcopy(value)


def _copy_tensor(
    live: torch.Tensor, spare: Tree, gpus: set[torch.device]
) -> torch.Tensor:
    import torch

    fits = isinstance(spare, torch.Tensor) and spare.dtype == live.dtype
    if not fits or spare.shape != live.shape:
        spare = torch.empty_like(live, device="cpu", pin_memory=live.is_cuda)
    buffer: torch.Tensor = spare
    buffer.copy_(live, non_blocking=live.is_cuda)
    if live.is_cuda:
        gpus.add(live.device)
    return buffer


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, sharing its memory."""
    part = tensor.detach()
    return part.to_local() if hasattr(part, "to_local") else part


def _wait_for(gpu: torch.device) -> None:
    import torch

    torch.cuda.synchronize(gpu)
