"""Debug mode: whether a block whose errors are deferred talks to other ranks.

With ``DSUP_DEBUG=1`` a collective that is started inside such a block is refused before
it waits for anyone. One that does not go through torch's dispatcher is found at the end
of the block, by the default group's sequence number.

Not covered: what other threads do meanwhile; they are not in the block.
"""

from __future__ import annotations

import sys
from functools import cache
from operator import methodcaller
from typing import TYPE_CHECKING, Final, Protocol

from dsup_runtime import contract
from dsup_runtime.errors import CollectiveInDefer

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    class _Refusing(AbstractContextManager[object, None], Protocol):
        refused: CollectiveInDefer | None


_ON: Final = "1"
_sequence_number_of: Final = methodcaller("_get_sequence_number_for_group")
_COLLECTIVES: Final = ("c10d", "_c10d_functional", "_c10d_functional_autograd")


def refusal(what: str, where: str) -> CollectiveInDefer:
    """Return the error for something that needs all ranks, in a deferred block."""
    return CollectiveInDefer(
        f"cannot run {what} in the deferred block {where!r}, because ranks that are not"
        " in it would wait for ever or take it for another (move it out of the block)"
    )


def watch(where: str) -> Watch | None:
    """Return a watch over the block that begins now; None out of debug mode.

    Args:
        where: the block's name.
    """
    if not _debugging():
        return None
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return Watch(where)


@cache
def _debugging() -> bool:
    return contract.variable(contract.DEBUG) == _ON


class Watch:
    """One block in one thread."""

    __slots__ = ("_mode", "_sequence", "_where")

    def __init__(self, where: str) -> None:
        self._where = where
        self._sequence = _sequence()
        self._mode = _refusing()(where)
        self._mode.__enter__()

    def end(self) -> CollectiveInDefer | None:
        """End the watch; return what to raise if there was a collective."""
        self._mode.__exit__(None, None, None)
        if self._mode.refused is None and _sequence() != self._sequence:
            return refusal("a collective", self._where)
        return self._mode.refused


def _sequence() -> int | None:
    """Return the default group's sequence number; None where it has none."""
    import torch.distributed as dist

    world = dist.group.WORLD
    if world is None:
        return None
    try:
        return int(_sequence_number_of(world))
    except RuntimeError:  # its backend does not count
        return None


@cache
def _refusing() -> Callable[[str], _Refusing]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refusing(TorchDispatchMode):
        """Refuses torch's own collectives, and lets everything else happen."""

        def __init__(self, where: str) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.where = where
            self.refused: CollectiveInDefer | None = None

        def __torch_dispatch__(
            self,
            func: torch._ops.OpOverload,
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            if func.namespace in _COLLECTIVES:
                self.refused = refusal(str(func), self.where)
                raise self.refused
            return func(*args, **(kwargs or {}))

    return Refusing
