"""What the agent knows of the guard it was forked from, and tells it beforehand."""

from __future__ import annotations

import mmap
import os
from typing import Final

_SPARED: Final = slice(0, 8)
_TMP_DIR: Final = slice(8, mmap.PAGESIZE)
_CGROUP: Final = slice(mmap.PAGESIZE, 2 * mmap.PAGESIZE)


class Will:
    """What the guard does if the agent is killed: pages that both share."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 2 * mmap.PAGESIZE)

    @property
    def spared(self) -> int:
        """Pid of the scribe, which writes the ranks' last words down; 0 for none."""
        return int.from_bytes(self._page[_SPARED], "little")

    @spared.setter
    def spared(self, pid: int) -> None:
        self._page[_SPARED] = pid.to_bytes(8, "little")

    @property
    def tmp_dir(self) -> str:
        """TMPDIR of the attempt, to be removed; empty for none."""
        return self._path(_TMP_DIR)

    @tmp_dir.setter
    def tmp_dir(self, path: str) -> None:
        self._set_path(_TMP_DIR, path)

    @property
    def cgroup(self) -> str:
        """The cgroup that is divided, to be cleaned and left; empty for none."""
        return self._path(_CGROUP)

    @cgroup.setter
    def cgroup(self, path: str) -> None:
        self._set_path(_CGROUP, path)

    def _path(self, at: slice) -> str:
        return os.fsdecode(self._page[at].rstrip(b"\0"))

    def _set_path(self, at: slice, path: str) -> None:
        room = at.stop - at.start
        # A path that does not fit is left behind rather than cut to another one.
        data = os.fsencode(path)
        self._page[at] = (data if len(data) <= room else b"").ljust(room, b"\0")


class Guardian:
    """The guard, seen from its child.

    Attributes:
        pidfd: readable once the guard has gone.
        will: what the guard does if the agent is killed.
        relay: what is written here it passes on to the service manager, see
            ``notify.Relay``; None where there is no manager.
    """

    def __init__(self, pidfd: int, will: Will, relay: int | None = None) -> None:
        self.pidfd = pidfd
        self.will = will
        self.relay = relay

    @property
    def fds(self) -> set[int]:
        """The descriptors that this is made of."""
        return {self.pidfd} if self.relay is None else {self.pidfd, self.relay}
