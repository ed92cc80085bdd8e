"""The scribe's own process: one loop that reads pipes and writes files and console.

It blocks nowhere but in file writes, which is what it is for: a hung disk hangs the
scribe, and the agent, which noticed, goes on. It ends when it is told to; when the
agent dies, it reads on until every writer has gone, so last words are kept.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
from math import inf
from typing import TYPE_CHECKING, NoReturn

from dsup.edges.scribe import protocol
from dsup.edges.scribe.desk import Desk
from dsup.edges.scribe.files import Disk, reason
from dsup.edges.scribe.pages import Pages
from dsup.edges.scribe.retention import prune
from dsup.edges.scribe.screen import Screen
from dsup.edges.scribe.sink import Sink
from dsup.edges.scribe.stream import Outlets, Stream
from dsup.edges.scribe.tails import Tails

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.edges.scribe.held import Held
    from dsup.edges.scribe.protocol import Settings

ORPHAN_S = 10.0
TICK_S = 1.0
EVENTS_A_TURN = 8
"""So few that the agent is heard between any 2 MiB of output."""
ALIVE_S = 1.0
CRASHED = 70
STDERR = 2
BLOCKED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
    signal.SIGUSR2, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN,
    signal.SIGPIPE,
)  # fmt: skip


def run(
    settings: Settings,
    control: socket.socket,
    held: Held,
    now: Callable[[], float],
) -> NoReturn:
    """Be the scribe; never return into the agent's code this process was forked from.

    Args:
        settings: what the scribe is told once.
        control: its end of the pair, the only way to the agent.
        held: the streams and pages that the agent has open.
        now: monotonic clock, seconds.
    """
    status = CRASHED
    try:
        close_all_but({0, 1, 2, control.fileno()} | held.all())
        fill_stdio()
        # A terminal's Ctrl-C reaches this process too, and is not meant for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
        # The agent's garbage holds descriptors whose numbers mean others here.
        gc.freeze()
        loop = Loop(settings, control, now)
        for (attempt, local_rank), fds in held.streams.items():
            loop.open_streams(attempt, local_rank, fds)
        for attempt, fd in held.pages.items():
            loop.pages.add(attempt, fd)
        loop.run()
        status = 0
    except Exception as error:  # noqa: BLE001 - the agent must not go on as two processes
        _last_line(f"dsup: scribe: {type(error).__name__}: {error}\n")
    finally:
        os._exit(status)


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor this process has, except for these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:  # that of the listing itself
                continue


def fill_stdio() -> None:
    """Open /dev/null where 0, 1 or 2 is closed: a log must not take that number."""
    fd = os.open("/dev/null", os.O_RDWR)
    while fd <= STDERR:
        fd = os.dup(fd)
    os.close(fd)


def _last_line(text: str) -> None:
    try:
        Sink(STDERR).write(text.encode())
    except OSError:
        return


class Loop:
    """What the scribe does, turn by turn.

    Attributes:
        pages: the heartbeat pages that it copies.
    """

    def __init__(
        self, settings: Settings, control: socket.socket, now: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._now = now
        self._control = control
        self._epoll = select.epoll()
        self._epoll.register(control, select.EPOLLIN)
        self._screen = Screen(settings, self._epoll, now)
        self._streams: dict[int, Stream] = {}
        self._disk = Disk(settings.run_dir, self._say, now)
        self._desk = Desk(settings, self._disk)
        self.pages = Pages(settings.run_dir, settings.file_mode, now)
        self._tails = Tails()
        self._pruning = prune(settings.run_dir, settings.output.keep_runs)
        self._prunes = True
        self._handled = 0
        self._answered = 0
        self._answered_at = 0.0
        self._prepared: list[tuple[int, str | None]] = []
        self._orphaned_at: float | None = None
        self._ended = False

    def run(self) -> None:
        """Work until the agent says end, or has gone and all writers too."""
        while not self._ended:
            events = self._epoll.poll(self._timeout_s(), EVENTS_A_TURN)
            if self._orphaned_at is None:
                self._listen()
            elif not self._streams or self._now() >= self._orphaned_at + ORPHAN_S:
                self._end()
            for fd, _ in events:
                stream = self._streams.get(fd)
                if stream and stream.turn():
                    self._close(stream)
            self._tick()

    def open_streams(self, attempt: int, local_rank: int, fds: tuple[int, ...]) -> None:
        """Read a rank's two pipes from now on."""
        for which, fd in enumerate(fds):
            outlets = self._outlets(attempt, local_rank, which)
            self._streams[fd] = Stream(fd, attempt, outlets)
            self._epoll.register(fd, select.EPOLLIN)

    def _outlets(self, attempt: int, local_rank: int, which: int) -> Outlets:
        route = self._settings.route(local_rank, which)
        return Outlets(
            self._tails.open(attempt, local_rank, which),
            self._desk.open_log(attempt, local_rank, which),
            self._screen.view(attempt, local_rank, which),
            self._desk.open_filter(attempt, which, route),
        )

    def _tick(self) -> None:
        now_s = self._now()
        for stream in self._streams.values():
            if now_s >= stream.due_s:
                stream.tick()
        if now_s >= self.pages.due_s:
            self.pages.copy()
        self._screen.turn()
        self._disk.tick()
        self._desk.claim.hold()
        # One step a turn: no rank waits while a large directory is removed.
        self._prunes = self._prunes and next(self._pruning, False)

    def _timeout_s(self) -> float | None:
        if self._prunes or (self._orphaned_at is not None and not self._streams):
            return 0.0
        dues = [stream.due_s for stream in self._streams.values()]
        left_s = min(self._screen.due_s, self.pages.due_s, *dues) - self._now()
        waits = self._orphaned_at is not None or not self._desk.claim.settled
        if self._screen.stuck or self._disk.troubled or waits:
            left_s = min(left_s, TICK_S)
        return max(0.0, left_s) if left_s < inf else None

    def _listen(self) -> None:
        while not self._ended:
            try:
                data, fds, flags, _ = socket.recv_fds(
                    self._control, protocol.MESSAGE_MAX_BYTES, protocol.FDS_MAX
                )
            except BlockingIOError:
                break
            except ConnectionError:
                data, fds, flags = b"", [], 0
            if not data:
                self._orphan()
                return
            if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                # A replacement inherits the descriptors that did not fit in here.
                raise OSError(f"cannot take a message of the agent, flags {flags:#x}")
            number, message = protocol.decode(data, tuple(fds))
            self._handle(message)
            self._handled = number
        self._answer()

    def _handle(self, message: protocol.Message) -> None:
        match message.kind:
            case "open":
                self.open_streams(message.attempt, message.local_rank, message.fds)
            case "close":
                self._drain(message.attempt, close=True)
                self.pages.close(message.attempt)
            case "say":
                self._drain()
                self._screen.say(message.text, protocol.tone(message))
            case "entry":
                self._drain()
                self._screen.enter(message.text, protocol.tone(message))
            case "status":
                self._screen.status(message.text.decode(errors="replace"))
            case "end":
                self._end()
            case "ping":
                pass
            case _:
                self._handle_file(message)

    def _handle_file(self, message: protocol.Message) -> None:
        match message.kind:
            case "journal":
                self._desk.journal(message.text)
            case "append":
                self._desk.append(message.name, message.text)
            case "page":
                self.pages.add(message.attempt, *message.fds)
            case "prepare":
                error = self._desk.prepare(message.attempt)
                self._prepared.append((message.attempt, error))
            case "save":
                self._save(message)
            case "tails":
                self._write_tails(message)
            case _:
                raise ValueError(f"unknown message {message.kind}")

    def _save(self, message: protocol.Message) -> None:
        (fd,) = message.fds
        keep = message.text == protocol.KEEP
        error = self._desk.save(message.name, fd, keep=keep)
        os.close(fd)
        if error:
            self._say(f"dsup: cannot write {message.name}, because {error}")

    def _write_tails(self, message: protocol.Message) -> None:
        self._drain(message.attempt)
        (fd,) = message.fds
        try:
            self._tails.write(message.attempt, fd)
        except OSError as error:
            self._say(f"dsup: cannot pass last words on, because {reason(error)}")
        os.close(fd)

    def _drain(self, attempt: int | None = None, *, close: bool = False) -> None:
        """Read what the pipes hold, so that last words come before what follows."""
        for stream in list(self._streams.values()):
            if attempt not in (None, stream.attempt):
                continue
            if stream.drain() or close:
                self._close(stream)
            if self._now() - self._answered_at > ALIVE_S:
                self._send_answer()

    def _close(self, stream: Stream) -> None:
        self._epoll.unregister(stream.fd)
        del self._streams[stream.fd]
        stream.close()

    def _orphan(self) -> None:
        self._epoll.unregister(self._control)
        self._control.close()
        self._orphaned_at = self._now()
        self._desk.orphaned(self._orphaned_at)
        # Once: whatever comes now, nobody has listened to any more.
        self.pages.copy()
        self.pages.close_all()

    def _end(self) -> None:
        self._drain()
        for stream in list(self._streams.values()):
            self._close(stream)
        self._disk.close()
        self._screen.finish()
        if self._settings.socket:
            with contextlib.suppress(OSError):
                os.unlink(self._settings.socket)
        self._ended = True

    def _say(self, text: str) -> None:
        self._screen.say(text.encode(errors="surrogateescape"), "warning")

    def _answer(self) -> None:
        if self._handled > self._answered:
            self._send_answer()
        waits = self._handled > self._answered
        events = select.EPOLLIN | (select.EPOLLOUT if waits else 0)
        self._epoll.modify(self._control, events)

    def _send_answer(self) -> None:
        answer = protocol.Answer(self._handled, tuple(self._prepared))
        self._answered_at = self._now()
        try:
            self._control.send(protocol.encode_answer(answer), socket.MSG_NOSIGNAL)
        except OSError:  # full: once more when it is writable; gone: _listen hears it
            return
        self._answered = self._handled
        self._prepared.clear()
