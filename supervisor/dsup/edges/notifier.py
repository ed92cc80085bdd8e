"""The notifier: a companion that runs the user's command for each event, one at a time.

The command gets the event on its standard input, from a memory file, so that nobody has
to wait for it to read. One that takes too long is killed with all that it has started.
What it prints goes nowhere, but for the last words of one that fails.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup.linux import libc, tree

LIMIT_S: Final = 30.0
LAST_S: Final = 5.0

QUEUE_MAX: Final = 64
FAILURES_MAX: Final = 3
"""So many failures are told of; a command that fails always is not news."""

PLAIN: Final = b"."
FINAL: Final = b"!"
"""First byte of a message: whether its event is the last one of the run."""

_MESSAGE_MAX_BYTES: Final = 65_536
_WORDS_MAX_BYTES: Final = 300
_NOT_FOR_IT: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"})


class Order(NamedTuple):
    """What is to be run.

    Attributes:
        words: the command and its arguments.
        environment: its environment.
        limit_s: what it may take, seconds.
        last_s: what is left for all events once the run is over, seconds.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    limit_s: float = LIMIT_S
    last_s: float = LAST_S


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    pidfd: int
    errors: int
    until_s: float


def run(order: Order, pair: socket.socket) -> None:
    """Be the notifier until the agent hangs up and all is done that there is time for.

    Args:
        order: what is to be run.
        pair: events come from here, and trouble is told there.
    """
    libc.become_subreaper()
    _Notifier(order, pair).run()


class _Notifier:
    def __init__(self, order: Order, pair: socket.socket) -> None:
        self._order = order
        self._pair = pair
        self._waiting: deque[bytes] = deque()
        self._running: _Running | None = None
        self._last_words = b""
        self._speaks = False
        self._failures = 0
        self._dropped = 0
        self._hung_up_s: float | None = None

    def run(self) -> None:
        """Turn until there is nothing to do, and nothing more will come."""
        while True:
            self._expire(time.monotonic())
            if self._running is None and self._waiting:
                self._start(self._waiting.popleft()[1:])
            if self._hung_up_s is not None and not (self._running or self._waiting):
                break
            self._turn()
        if self._dropped:
            self._tell(f"was not run for {self._dropped} of the events")

    def _turn(self) -> None:
        """Wait for whatever comes first, and take it in."""
        fds = [self._pair.fileno()] if self._hung_up_s is None else []
        running = self._running
        if running:
            fds += [running.pidfd, *([running.errors] if self._speaks else [])]
        ready, _, _ = select.select(fds, [], [], self._wait_s())
        if self._pair.fileno() in ready:
            self._hear()
        if running and running.errors in ready:
            self._listen(running)
        if running and running.pidfd in ready:
            self._ended(running)

    def _wait_s(self) -> float | None:
        now_s = time.monotonic()
        dues = [self._running.until_s] if self._running else []
        if self._hung_up_s is not None:
            half = self._hung_up_s + self._order.last_s / 2
            dues.append(half if now_s < half else self._hung_up_s + self._order.last_s)
        return max(0.0, min(dues) - now_s) if dues else None

    def _hear(self) -> None:
        message = self._pair.recv(_MESSAGE_MAX_BYTES)
        if not message:
            self._hung_up_s = time.monotonic()
            return
        self._waiting.append(message)
        if len(self._waiting) > QUEUE_MAX:
            self._waiting.popleft()
            self._dropped += 1
            if self._dropped == 1:
                self._tell(f"takes too long: of {QUEUE_MAX} events the oldest go")

    def _start(self, event: bytes) -> None:
        self._last_words = b""
        fd = os.memfd_create("dsup-event", os.MFD_CLOEXEC)
        errors, to_errors = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(errors, False)  # the other end is the command's, and blocks
        try:
            os.write(fd, event)
            os.lseek(fd, 0, os.SEEK_SET)
            process = subprocess.Popen(  # noqa: S603 (the user's own command)
                self._order.words,
                stdin=fd,
                stdout=subprocess.DEVNULL,
                stderr=to_errors,
                env=_environment(self._order.environment),
                start_new_session=True,
            )
        except OSError as error:
            os.close(errors)
            self._fail(f"cannot be run, because {str(error.strerror).lower()}")
        else:
            until_s = time.monotonic() + self._order.limit_s
            pidfd = os.pidfd_open(process.pid)
            self._running = _Running(process, pidfd, errors, until_s)
            self._speaks = True
        finally:
            os.close(fd)
            os.close(to_errors)

    def _expire(self, now_s: float) -> None:
        """Make an end of a command whose time is up, and of events at the very end."""
        running, hung_up_s = self._running, self._hung_up_s
        until_s = running.until_s if running else now_s + 1
        if hung_up_s is not None:
            final = self._waiting and self._waiting[-1][:1] == FINAL
            if now_s >= hung_up_s + self._order.last_s / 2 and final:
                self._keep(1)
                until_s = now_s
            elif now_s >= hung_up_s + self._order.last_s:
                self._keep(0)
                until_s = now_s
        if running and now_s >= until_s:
            self._end(running)
            self._fail("did not end in time and was killed")

    def _keep(self, newest: int) -> None:
        """Drop all events but the newest."""
        while len(self._waiting) > newest:
            self._waiting.popleft()
            self._dropped += 1

    def _ended(self, running: _Running) -> None:
        status = self._end(running)
        words = self._last_words.decode(errors="replace").strip().splitlines()
        if status:
            how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
            self._fail(f"ended {how}{f': {words[-1]}' if words else ''}")

    def _end(self, running: _Running) -> int:
        """Kill what is left of a command, and return how it ended."""
        self._running = None
        tree.kill()
        status = running.process.wait()
        tree.reap_adopted(())
        while self._speaks:  # nobody is left who could write more
            self._listen(running)
        os.close(running.pidfd)
        os.close(running.errors)
        return status

    def _listen(self, running: _Running) -> None:
        try:
            said = os.read(running.errors, _MESSAGE_MAX_BYTES)
        except BlockingIOError:
            said = b""  # one in state D may still hold it
        self._last_words = (self._last_words + said)[-_WORDS_MAX_BYTES:]
        self._speaks = bool(said)  # a pipe that nobody writes into stays ready

    def _fail(self, how: str) -> None:
        self._failures += 1
        if self._failures <= FAILURES_MAX:
            more = "; more of this is not told" * (self._failures == FAILURES_MAX)
            self._tell(f"{how}{more}")

    def _tell(self, what: str) -> None:
        text = f"the command of --on-event ({self._order.words[0]}) {what}"
        try:
            self._pair.send(text.encode(errors="replace"), socket.MSG_DONTWAIT)
        except OSError:
            return


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in _NOT_FOR_IT}
