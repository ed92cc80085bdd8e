"""A training job in small, a script as any: ``train.py HOME [STEP_S]``.

Every rank meets all others at each step, tells dsup the step, and rank 0 saves a
checkpoint every few steps; a restart resumes from the newest that is whole. At each
step a rank looks whether HOME has an order for it (see ``exchange``).
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

from exchange import Exchange
from group import FINISH, GO_ON, Group
from harm import RefusedError, harm

from dsup_runtime import checkpoints, heartbeat, oom
from dsup_runtime.checkpoints.files import Storage
from dsup_runtime.stop import should_stop
from dsup_runtime.worker_info import info

if TYPE_CHECKING:
    from dsup_runtime.worker_info import Info

_STEP_S: Final = 0.02
_SAVE_EVERY: Final = 5
_READY_AFTER: Final = 15
"""Steps of an attempt after which it is ready to be harmed: checkpoints are there."""

_STORAGE: Final = Storage(fsync=False)
_STATE_BYTES: Final = 4096


class Job:
    """One rank of the job.

    Args:
        home: the directory of the drill.
        step_s: how long a step takes, seconds.
    """

    def __init__(self, home: str, step_s: float = _STEP_S) -> None:
        self._step_s = step_s
        self._own: Info = info()
        self._root = os.path.join(home, "checkpoints")
        self._exchange = Exchange(home, self._own)
        self._silent = False

    def train(self) -> None:
        """Take steps until all are to finish, or dsup stops the run."""
        step = first = _resumed(self._own.resume_from)
        self._exchange.tell("up", step=step)
        oom.remove_dead_groups()  # of a rank that died in one, in the attempt before
        group = Group(self._own)
        while group.meet(self._word()) == GO_ON:
            step += 1
            self._tell(step, step - first)
            self._save(step)
            if should_stop(step):
                return
            self._obey()
            time.sleep(self._step_s)

    def _word(self) -> bytes:
        done = self._own.is_main and self._exchange.is_to_finish()
        word: bytes = FINISH if done else GO_ON
        return word

    def _tell(self, step: int, taken: int) -> None:
        if not self._silent:
            heartbeat.beat(step)
        if self._own.is_main and taken in (1, _READY_AFTER):
            self._exchange.tell("first" if taken == 1 else "ready", step=step)

    def _save(self, step: int) -> None:
        if not self._own.is_main or step % _SAVE_EVERY:
            return
        with heartbeat.phase("checkpoint"):
            attempt = self._own.attempt
            tmp = checkpoints.begin(self._root, step, attempt=attempt, storage=_STORAGE)
            with open(os.path.join(tmp, "state"), "wb") as file:
                file.write(bytes(_STATE_BYTES))
            checkpoints.commit(tmp, step, storage=_STORAGE)
            checkpoints.prune(self._root, keep=3)
        heartbeat.tell_saved(step)

    def _obey(self) -> None:
        order = self._exchange.order()
        if not order:
            return
        try:
            harm(order, self._exchange, self._root)
        except RefusedError as error:
            self._exchange.tell("refused", why=str(error))
        self._silent = self._silent or order == "silence"


def _resumed(path: str | None) -> int:
    """Return the step of the checkpoint to go on from; 0 to begin."""
    if path is None:
        return 0
    refusal = checkpoints.verify(path, checksums=True)
    if refusal is not None:
        raise RuntimeError(f"cannot resume from {path}, because {refusal}")
    return int(os.path.basename(path).rpartition("-")[2])


if __name__ == "__main__":
    Job(sys.argv[1], *map(float, sys.argv[2:])).train()
