"""SIGTERM inside a run: it asks for a stop at the next agreed step, and does no more.

The handler sets a flag: the loop acts on it where all ranks can. A handler of the
script's own is called after it, and a second signal does what it would have done
without a run. SIGINT keeps raising KeyboardInterrupt.

Where dsup ends the ranks because one of them has failed, no step can be agreed any
more, and nothing of this attempt is left to save: the handler raises what a check would
tell, wherever the rank is. It does not in a script that has a handler of its own, nor
while a checkpoint is being written: they have the grace until the next check. Nor where
an exception is on its way already, which would be lost halfway.

A signal to the whole process group, as schedulers send it, must not take the workers of
a DataLoader away from a rank that still trains to the agreed step. Such a worker lets
SIGTERM wait in the kernel, and a thread takes it: from its own rank it is the end, as
torch has it, from anybody else it is nothing. Every other forked child gets back the
handling that was there before the run.

Not covered: a rank's signal that reaches its worker in the moment in which another's
waits there. The kernel keeps one of them.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dsup_runtime import contract, heartbeat, stop
from dsup_runtime.lifecycle.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import FrameType

    from dsup_runtime.errors import PeerError

    Previous: TypeAlias = Callable[[int, FrameType | None], Any] | int

_SAME_S: Final = 1.0
"""Signals so close are one: a scheduler and a launcher often send the same twice."""

_NEVER: Final = frozenset(
    (signal.SIGINT, signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD)
)
_LOADER: Final = "torch.utils.data.dataloader"


class Handlers:
    """The handlers of one run.

    Args:
        on_stop: called at the first signal, within its handler.
        on_stuck: called in a thread of its own where the handler cannot run, because
            the main thread waits in C code, and there is nothing to be saved: the loop
            has not begun yet, or another rank has failed.
        on_end: called within the handler where the signal ends the process now.
    """

    __slots__ = (
        "_alarm",
        "_asks",
        "_checks",
        "_first_s",
        "_mask",
        "_on_end",
        "_on_stop",
        "_on_stuck",
        "_pid",
        "_previous",
    )

    def __init__(
        self,
        on_stop: Callable[[], None],
        on_stuck: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._on_stop = on_stop
        self._on_stuck = on_stuck
        self._on_end = on_end
        self._asks = True
        self._checks = stop.checks()
        self._alarm = Alarm((), self._unanswered)
        self._first_s: float | None = None
        self._previous: dict[signal.Signals, Previous] = {}
        self._pid = os.getpid()
        self._mask: set[signal.Signals | int] = set()

    def install(self) -> None:
        """Handle the signals that ask for a stop; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in _stop_signals():
            previous = signal.getsignal(signum)
            # One that is ignored stays so, and one of a C library's cannot be restored.
            if previous is not None and previous != signal.SIG_IGN:
                self._previous[signum] = previous
        _forks.watch(self)
        for signum in self._previous:
            signal.signal(signum, self._handle)
        self._alarm = Alarm(self._previous, self._unanswered)
        self._alarm.set()

    def restore(self) -> None:
        """Give each signal back the handling it had, unless it has got another."""
        _forks.watch(None)
        self._alarm.lift()
        for signum, previous in self._previous.items():
            if signal.getsignal(signum) == self._handle:
                signal.signal(signum, previous)

    def ask_no_more(self) -> None:
        """Let a signal ask no rank to stop: the time until the kill runs, no more."""
        self._asks = False

    def hold(self) -> None:
        """Let the signals wait in the kernel: at a fork Python would lose them."""
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._previous)

    def let_go(self) -> None:
        """Take the signals again, in the process that has forked."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def leave_to_child(self) -> None:
        """Undo the handling in the process that was forked just now."""
        self._alarm.leave_to_child()
        self.restore()
        if _starts_loader_worker():
            outlive(self._previous)
        else:
            self.let_go()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        previous = self._previous[signal.Signals(signum)]
        if os.getpid() != self._pid:
            _as_before(signum, frame, previous)
            return
        self._alarm.answered()
        now_s = monotonic()
        if self._first_s is None:
            self._first_s = now_s
            self._stop(signum)
            if callable(previous):
                previous(signum, frame)
            if sys.exception() is None and (lost := self._lost(signum)):
                raise lost
        elif now_s - self._first_s >= _SAME_S:
            if not callable(previous):
                self._on_end()
            _as_before(signum, frame, previous)

    def _unanswered(self, signum: int) -> None:
        """Answer for the handler: end at once, or let the grace begin."""
        if (self._asks and not self._checked) or self._lost(signum):
            self._on_stuck()
        else:
            self._stop(signum)

    @property
    def _checked(self) -> bool:
        """Whether the loop of this run has asked for a stop."""
        return stop.checks() != self._checks

    def _lost(self, signum: int) -> PeerError | None:
        """Return why the signal is to end this rank now; None if it has the grace."""
        own = callable(self._previous[signal.Signals(signum)])
        if own or not self._asks or heartbeat.within("checkpoint"):
            return None
        return stop.ended()

    def _stop(self, signum: int) -> None:
        if self._asks:
            stop.request_stop(signal.Signals(signum).name, kind="preempt")
        self._on_stop()


class _Forks:
    """What is to be done where this process forks; the hooks are set once and stay."""

    __slots__ = ("forking", "handlers", "hooked")

    def __init__(self) -> None:
        self.handlers: Handlers | None = None
        self.forking: Handlers | None = None
        self.hooked = False

    def watch(self, handlers: Handlers | None) -> None:
        """Have these handlers undone in children from now on."""
        self.handlers = handlers
        if not self.hooked:
            self.hooked = True
            os.register_at_fork(
                before=self._before,
                after_in_parent=self._in_parent,
                after_in_child=self._in_child,
            )

    def _before(self) -> None:
        self.forking = self.handlers
        if self.forking is not None:
            self.forking.hold()

    def _in_parent(self) -> None:
        if self.forking is not None:
            self.forking.let_go()

    def _in_child(self) -> None:
        if self.forking is not None:
            self.forking.leave_to_child()


_forks = _Forks()


def outlive(signals: Collection[int]) -> None:
    """Let this process end by these signals only where its own parent sends them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    _thread.start_new_thread(_end_with_parent, (frozenset(signals), os.getppid()))


def _end_with_parent(signals: frozenset[int], parent: int) -> None:
    while signal.sigwaitinfo(signals).si_pid != parent:
        continue
    os._exit(0)


def _as_before(signum: int, frame: FrameType | None, previous: Previous) -> None:
    """Do what the signal would have done without a run."""
    if callable(previous):
        previous(signum, frame)
        return
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def _stop_signals() -> list[signal.Signals]:
    """Return SIGTERM, and what else the launcher would end its workers by."""
    listed = contract.variable("TORCHELASTIC_SIGNALS_TO_HANDLE").split(",")
    known = signal.Signals.__members__
    found = {known[name.strip()] for name in listed if name.strip() in known}
    return sorted({signal.SIGTERM, *found} - _NEVER)


def _starts_loader_worker() -> bool:
    """Return whether the code that forked just now is torch's DataLoader."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 (inspect.stack reads files)
    while frame is not None:
        if frame.f_globals.get("__name__") == _LOADER:
            return True
        frame = frame.f_back
    return False
