"""Writing a distributed checkpoint in the background, for ``CheckpointDir.save``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsup_runtime import side_group

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    import torch.distributed as dist


class AsyncDcp:
    """A ``write`` for ``save(..., wait=False)``: copies now, writes while training.

    By the time it returns the state is copied to the host, tensors on the CPU as well,
    so the optimizer may change it. The rest happens in a thread, over a gloo group that
    nothing else uses. Read it with ``torch.distributed.checkpoint.load``.

    Args:
        state: what to save, as for ``torch.distributed.checkpoint.save``.
    """

    __slots__ = ("_group", "_state", "_world")

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self._world: dist.ProcessGroup | None = None
        self._group: dist.ProcessGroup | None = None

    def __call__(self, folder: str) -> Future[Any]:
        """Begin to write the state to a directory; all ranks call it."""
        from torch.distributed.checkpoint.state_dict_saver import async_save

        alone = side_group.size() == 1
        pending: Any = async_save(
            dict(self._state),
            checkpoint_id=folder,
            process_group=None if alone else self._group_of_now(),
            no_dist=alone,
        )
        return getattr(pending, "upload_completion", pending)  # type: ignore[no-any-return]

    def _group_of_now(self) -> dist.ProcessGroup:
        import torch.distributed as dist

        if self._group is None or self._world is not dist.group.WORLD:
            self._group = dist.new_group(backend="gloo")
            self._world = dist.group.WORLD
        return self._group
