"""The last healthy states of a rank, in its own memory, to go back to without a disk.

A snapshot copies every tensor of every ``state_dict`` into buffers of the host that are
made once and used again (pinned where the tensors are on a GPU), and deep-copies the
rest. Nothing in it is shared with the live state: neither taking nor restoring lets
them alias. Restoring copies in place, so that parameters, moments and whatever else
holds on to their tensors (DDP's buckets, a captured graph) keep them.

What it costs. Memory: each snapshot as much as the state of this rank's shard, for Adam
in mixed precision about 16 bytes a parameter, times ``keep``, plus nothing on the GPU.
Time: one copy of that, on this thread, every ``every`` steps; a GPU is waited for.

Not covered: objects whose ``state_dict`` is a collective that gathers all (FSDP1's
full one, ZeRO's consolidated one). Those of DDP and FSDP2 are local.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from dsup_runtime.errors import NumericsError
from dsup_runtime.numerics import random_state, state_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor, nn

    from dsup_runtime.numerics.state_copy import Tree

_RANDOM: Final = "random state"


class Stateful(Protocol):
    """What can be put into a snapshot, as in ``torch.distributed.checkpoint``.

    An object that also has ``rewind(state_dict)`` is restored by that instead of by
    ``load_state_dict``: ``Progress`` goes back to its step but not in the data.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the state; tensors in it may be the live ones."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Take over a state."""


class Snapshot:
    """Healthy states of a rank in host memory, newest last.

    The state of the random generators (torch on CPU and CUDA, ``random``, numpy) is
    always part of it. Leave the data loader out: a rollback goes forward in the data,
    or the same bad batches come again.

    Args:
        state: what to keep, by name; objects with ``state_dict`` and
            ``load_state_dict``. The optimizer, the scaler, the scheduler and the EMA
            belong in it as much as the model: one that is left out stays poisoned.
        every: applied steps between two snapshots, >= 1.
        keep: how many snapshots, >= 1; the second is for the case that the first
            already holds what goes wrong later.

    Raises:
        ValueError: if a number is too small, or there is nothing to keep.
        TypeError: if an object has no state.
    """

    __slots__ = ("_keep", "_state", "_taken", "_tried", "every")

    def __init__(
        self, state: Mapping[str, Stateful], *, every: int = 100, keep: int = 2
    ) -> None:
        for name, count in (("every", every), ("keep", keep)):
            if not count >= 1:  # also refuses nan
                raise ValueError(
                    f"cannot set {name} to {count!r}, because it counts from 1"
                )
        if not state:
            raise ValueError("cannot take snapshots, because there is no state to keep")
        for name, item in state.items():
            if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict")):
                raise TypeError(
                    f"cannot take snapshots of {name!r}, because"
                    f" {type(item).__name__} has no state_dict and load_state_dict"
                )
        self.every: Final = every
        self._keep = keep
        self._state = dict(state)
        self._taken: list[tuple[int, Tree]] = []
        self._tried = 0

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that there are snapshots of, oldest first."""
        return tuple(step for step, _ in self._taken)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """What is kept of it that has buffers, by name: the model, an average of it."""
        from torch import nn

        kept = self._state.items()
        return {name: each for name, each in kept if isinstance(each, nn.Module)}

    def take(self, step: int) -> None:
        """Copy the state as it is now; call it only while the state is healthy.

        Args:
            step: the number of the step that made it; ``restore`` returns it.
        """
        spare: Tree = {}
        if len(self._taken) >= self._keep:
            # Out of the list before it is written to: half a copy is never restored.
            spare = self._taken.pop(0)[1]
        now = {name: item.state_dict() for name, item in self._state.items()}
        now[_RANDOM] = random_state.read()
        self._taken.append((step, state_copy.copy_into(spare, now)))
        self._tried = 0

    def restore(self) -> int:
        """Go back to the newest snapshot, or to one older each further time.

        Without a ``take`` in between, a second call goes to the snapshot before: the
        newest has been tried. The oldest one is restored as often as it is asked for.
        Gradients are not part of it: the caller drops them.

        Returns:
            The step that it was taken at.

        Raises:
            NumericsError: if none was taken.
        """
        if not self._taken:
            raise NumericsError(
                "cannot roll back, because no snapshot was taken yet (StepGuard takes"
                " the first one after the first step that is applied)"
            )
        if self._tried and len(self._taken) > 1:
            self._taken.pop()
        self._tried += 1
        step, kept = self._taken[-1]
        for name, item in self._state.items():
            _restore(item, kept[name])
        random_state.write(state_copy.put_back(kept[_RANDOM], {}))
        return step

    def restore_tensors(self, tensors: Iterable[Tensor]) -> int:
        """Copy back single tensors from the newest snapshot, a module's buffers say.

        Args:
            tensors: live ones. Left alone are those that are not part of the state, and
                those whose copy has a NaN in it.

        Returns:
            How many were copied, 0 if no snapshot was taken.
        """
        wanted = {each.data_ptr() for each in tensors}
        if not self._taken:
            return 0
        done = 0
        for name, kept in self._taken[-1][1].items():
            live = self._state[name].state_dict() if name in self._state else None
            for old, now in state_copy.tensors_of(kept, live):
                if now.data_ptr() in wanted and not bool(old.isnan().any()):
                    now.copy_(old)
                    done += 1
        return done


def _restore(item: Stateful, kept: Tree) -> None:
    rewind = getattr(item, "rewind", None)
    if rewind is not None:
        rewind(state_copy.put_back(kept, {}))
    else:
        item.load_state_dict(state_copy.put_back(kept, item.state_dict()))
