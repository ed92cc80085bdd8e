"""The probe as the agent knows it: a descriptor, a deadline, and a process to bury.

Nothing here waits. A probe that gives no answer in time is killed and not waited for;
its silence is a fact. One replacement is started, when it is needed, and no other: a
driver that has hung twice hangs.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn, Protocol

from dsup.core.state import NEVER
from dsup.edges.probe import protocol
from dsup.edges.probe.protocol import Frame

OPEN_S: Final = 10.0
"""What NVML may take to start: without persistence each GPU takes seconds."""

ANSWER_S: Final = 2.0
"""What an answer may take, all GPUs together."""

DIED: Final = "the process that asks NVML has died (see its driver)"
NOT_STARTED: Final = "cannot start the NVML probe"

_STARTS_MAX: Final = 2
_BODIES_MAX: Final = 256


class Watcher(Protocol):
    """What the probe needs of the agent's loop."""

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call the handler whenever the descriptor is ready."""

    def unwatch(self, fd: int) -> None:
        """Forget the descriptor."""


class Answer(NamedTuple):
    """What a request has brought.

    Attributes:
        bodies: readings, one of each GPU that has answered.
        why_not: why that is not all; empty if it is.
    """

    bodies: tuple[bytes, ...] = ()
    why_not: str = ""


class _Request(NamedTuple):
    ident: int
    what: bytes
    done: Callable[[Answer], None]
    deadline_s: float
    bodies: list[bytes]


class Probe:
    """The probe of a run; it is forked when it is first asked.

    Args:
        watcher: calls back when the probe has said something.
        bury: kills a child, and collects it when it has ended.
        clock: agent clock, seconds.
        on_event: takes the body of each event.
        answer_s: what an answer may take, all GPUs together.

    Attributes:
        pid: the process; 0 while there is none.
        cards: body of the frame that lists the GPUs; empty before it came.
        failed: why NVML cannot be asked at all, a code for ``nvml.why_not``; empty if
            it can, as far as is known.
    """

    def __init__(
        self,
        watcher: Watcher,
        bury: Callable[[int], None],
        clock: Callable[[], float],
        on_event: Callable[[bytes], None],
        answer_s: float = ANSWER_S,
    ) -> None:
        self._answer_s = answer_s
        self.pid = 0
        self.cards = b""
        self.failed = b""
        self._watcher = watcher
        self._bury = bury
        self._clock = clock
        self._on_event = on_event
        self._control: socket.socket | None = None
        self._waiting: deque[_Request] = deque()
        self._starts = 0
        self._began_s = 0.0
        self._opening = False
        self._idents = 0
        self._gone = ""

    def ask(
        self, what: bytes, done: Callable[[Answer], None], *, patient: bool = False
    ) -> None:
        """Ask for readings, after what was asked before.

        Args:
            what: ``HEALTH``, ``REST`` or ``LOAD``.
            done: called once, with what has come.
            patient: its time begins when NVML has started and its turn has come; else
                it begins now.
        """
        if self._control is None and not self._start():
            done(Answer((), self._gone))
            return
        self._idents += 1
        now_s = self._clock()
        until_s = now_s + self._answer_s
        if patient:
            until_s = self._began_s + OPEN_S if self._opening else NEVER
        self._waiting.append(_Request(self._idents, what, done, until_s, []))
        if len(self._waiting) == 1:
            self._send_next()

    def deadline(self) -> float:
        """Return when ``expire`` is due, agent clock, seconds."""
        return min((r.deadline_s for r in self._waiting), default=NEVER)

    def expire(self) -> None:
        """Give the probe up if its time is over."""
        if self._clock() >= self.deadline():
            self._give_up(self._silence())

    def stop(self) -> None:
        """End the probe; nobody is told."""
        self._waiting.clear()
        self._leave()

    def _start(self) -> bool:
        if self.failed or self._starts == _STARTS_MAX:
            return False
        self._starts += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            self._gone = f"{NOT_STARTED}, because {error.strerror}"
            return False
        else:
            if pid == 0:
                _be_the_probe(theirs)
        finally:
            theirs.close()
        ours.setblocking(False)
        self._control, self.pid = ours, pid
        self._opening, self._began_s = True, self._clock()
        self._watcher.watch(ours.fileno(), self._hear)
        return True

    def _send_next(self) -> None:
        """Send the request whose turn it is."""
        if not self._waiting or self._opening or self._control is None:
            return
        head = self._waiting[0]
        until_s = min(head.deadline_s, self._clock() + self._answer_s)
        self._waiting[0] = head._replace(deadline_s=until_s)
        try:
            self._control.send(protocol.encode(Frame(head.what, head.ident)))
        except OSError:
            return  # it has died, which is about to be heard

    def _hear(self) -> None:
        """Take in all that the probe has said."""
        while self._control is not None:
            try:
                raw = self._control.recv(protocol.FRAME_MAX_BYTES)
            except BlockingIOError:
                return
            except OSError:
                raw = b""
            if not raw:
                self._give_up(DIED)
                return
            frame = protocol.decode(raw)
            if frame is not None:
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        head = self._waiting[0] if self._waiting else None
        mine = head is not None and frame.ident == head.ident
        if frame.kind == protocol.EVENT:
            self._on_event(frame.body)
        elif frame.kind == protocol.BOARDS:
            self.cards = self.cards or frame.body
        elif frame.kind == protocol.CARDS:
            self.cards = frame.body
            self._opening = False
            self._send_next()
        elif frame.kind == protocol.FAILED:
            self.failed = frame.body
            self._give_up("")
        elif head and mine and frame.kind == protocol.READING:
            if len(head.bodies) < _BODIES_MAX:
                head.bodies.append(frame.body)
        elif head and mine and frame.kind == protocol.DONE:
            self._waiting.popleft()
            self._send_next()
            head.done(Answer(tuple(head.bodies)))

    def _silence(self) -> str:
        hangs = "the driver may hang (see the kernel log)"
        waited_s = self._clock() - self._began_s
        if self._opening and waited_s < OPEN_S:
            slow = "its start takes long without persistence mode, or hangs"
            return f"NVML had not started after {waited_s:.0f} s: {slow}"
        if self._opening:
            return f"NVML did not start within {waited_s:.0f} s: {hangs}"
        heard = len(self._waiting[0].bodies)
        waited_s = self._answer_s
        return f"NVML gave no answer on GPU {heard} for {waited_s:.0f} s: {hangs}"

    def _give_up(self, why_not: str) -> None:
        """Let the probe go, and tell whoever waits what has come until now."""
        self._gone = why_not
        waiting = tuple(self._waiting)
        self._waiting.clear()
        self._leave()
        for request in waiting:
            request.done(Answer(tuple(request.bodies), why_not))

    def _leave(self) -> None:
        if self._control is not None:
            self._watcher.unwatch(self._control.fileno())
            self._control.close()
            self._control = None
            self._bury(self.pid)
            self.pid = 0


def _be_the_probe(control: socket.socket) -> NoReturn:
    """Be the probe, in the child: an error of an import must not leave it, either."""
    try:
        from dsup.edges.probe import process

        process.run(control)
    finally:
        os._exit(1)
