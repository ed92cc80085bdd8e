"""Aides: work that may block for ever, done in a child with a deadline.

An aide is forked, not executed: it needs no interpreter of its own to be opened, which
on a dead file system would block whoever waits for it. What it found out comes back
through a pipe; silence until its deadline, or its death, is an empty answer.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from dsup.core.state import NEVER
from dsup.linux.child import drop_descriptors

ANSWER_MAX_BYTES: Final = 65_536


class Watcher(Protocol):
    """What aides need of the agent's loop."""

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call the handler whenever the descriptor is ready."""

    def unwatch(self, fd: int) -> None:
        """Forget the descriptor."""


class _Aide(NamedTuple):
    pid: int
    deadline_s: float
    done: Callable[[bytes], None]
    answer: bytearray
    lasting: bool


class Aides:
    """The aides at work.

    Args:
        watcher: calls back when an aide has answered or ended.

    Attributes:
        watcher: the same.
        refusal: why the kernel had no aide to give, while that is told by an empty
            answer; None at all other times.
    """

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.refusal: OSError | None = None
        self._working: dict[int, _Aide] = {}
        self._ending: set[int] = set()

    @property
    def pids(self) -> set[int]:
        """Pids of all aides that are still there, those that were given up included."""
        return {aide.pid for aide in self._working.values()} | self._ending

    def start(
        self,
        work: Callable[[], bytes],
        deadline_s: float,
        done: Callable[[bytes], None],
        *,
        lasting: bool = False,
        kept: Collection[int] = (),
    ) -> None:
        """Fork an aide.

        Args:
            work: runs in the child; what it returns is the answer.
            deadline_s: when to give it up, agent clock, seconds.
            done: called once with the answer; empty when there is none.
            lasting: ``hurry`` does not concern it.
            kept: descriptors that the work needs.
        """
        try:
            pid, fd = _fork(work, kept)
        except OSError as error:
            self.refusal = error
            done(b"")
            self.refusal = None
            return
        self._working[fd] = _Aide(pid, deadline_s, done, bytearray(), lasting)
        self.watcher.watch(fd, lambda: self._hear(fd))

    def deadline(self) -> float:
        """Return when ``expire`` is due, agent clock, seconds."""
        return min((a.deadline_s for a in self._working.values()), default=NEVER)

    def hurry(self, deadline_s: float) -> None:
        """Give all but lasting aides at most until then, agent clock, seconds."""
        for fd, aide in self._working.items():
            if not aide.lasting:
                soon = min(aide.deadline_s, deadline_s)
                self._working[fd] = aide._replace(deadline_s=soon)

    def expire(self, now_s: float) -> None:
        """Make an end of aides whose time is up, and collect those that have ended."""
        for fd, aide in tuple(self._working.items()):
            if aide.deadline_s <= now_s:
                self._finish(fd)
        for pid in tuple(self._ending):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._ending.discard(pid)

    def bury(self, pid: int) -> None:
        """Kill a child, not reaped yet, and collect it when it has ended.

        One in state D stays behind, and must not be taken for something that the ranks
        have left.
        """
        os.kill(pid, signal.SIGKILL)
        self._ending.add(pid)

    def _hear(self, fd: int) -> None:
        """Take in what an aide says, up to its end: a pipe may hold less than all."""
        answer = self._working[fd].answer
        part = os.read(fd, ANSWER_MAX_BYTES - len(answer))
        answer += part
        if not part or len(answer) == ANSWER_MAX_BYTES:
            self._finish(fd)

    def _finish(self, fd: int) -> None:
        aide = self._working.pop(fd)
        self.watcher.unwatch(fd)
        os.close(fd)
        self.bury(aide.pid)
        aide.done(bytes(aide.answer))


def _fork(work: Callable[[], bytes], kept: Collection[int]) -> tuple[int, int]:
    """Return the pid of a child at work and the descriptor of its answer."""
    answer, to_answer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(answer)
        os.close(to_answer)
        raise
    if pid == 0:
        code = 1
        try:
            drop_descriptors((to_answer, *kept))
            os.write(to_answer, work()[:ANSWER_MAX_BYTES])
            # A thread of it that cannot be ended would keep the answer open.
            os.close(to_answer)
            code = 0
        finally:
            # Whatever went wrong, the silence says so; nothing of the agent's may run.
            os._exit(code)
    os.close(to_answer)
    return pid, answer
