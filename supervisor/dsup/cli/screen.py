"""A terminal's other screen, overwritten cell by cell and given back whatever happens.

Signals come through a pipe, so nothing is drawn or given back in the midst of a draw.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import tty
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final, Self

from dsup.report.columns import width

_ENTER: Final = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = b"\x1b[?7h\x1b[?25h\x1b[?1049l"
_SIGNALS: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
)
ENDING: Final = frozenset(
    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
)
"""What ends it, in the way of a program that gives back its terminal first."""

_STUCK_S: Final = 0.2
_USUAL: Final = (80, 24)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_WAKE: Final = b"\0"


class Screen:
    """The other screen, for the length of a ``with``.

    Args:
        keys: descriptor that keys are read from, if it is a terminal.
        out: the terminal.

    Attributes:
        reads: keys are read.
    """

    def __init__(self, keys: int, out: int) -> None:
        self.reads = os.isatty(keys)
        self._keys = keys
        self._out = _unblocked(out)
        self._pending: list[int] = []
        self._leaving = False
        self._shown: list[str] = []
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._told, self._tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        """Take the terminal."""
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        for one in _SIGNALS:
            self._handlers[one] = signal.signal(one, _nothing)
        if self.reads:
            self._before = termios.tcgetattr(self._keys)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""
        with contextlib.suppress(OSError, termios.error):  # it has gone
            self._give_back()
        signal.set_wakeup_fd(-1)
        for one, before in self._handlers.items():
            signal.signal(one, before)
        # The other end may be written to by a thread that goes on.

    @property
    def size(self) -> tuple[int, int]:
        """Its width and height; the usual where it does not tell."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return _USUAL
        return found.columns or _USUAL[0], found.lines or _USUAL[1]

    def wake(self) -> None:
        """End a wait, from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._tell, _WAKE)

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines from the top; those that stay as they were are left alone."""
        cells, _ = self.size
        out = []
        for number, line in enumerate(lines):
            if self._shown[number : number + 1] != [line]:
                # At the end of a full line the cursor stands on its last cell.
                full = width(_COLOUR.sub("", line)) >= cells
                rest = "" if full else "\x1b[K"
                out.append(f"\x1b[{number + 1};1H{line}{rest}")
        if len(lines) < len(self._shown):
            out.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._shown = list(lines)
        if out:
            self._write("".join(out).encode(errors="replace"))

    def wait(self, limit_s: float) -> tuple[bytes, list[int]]:
        """Return keys and signals that came; nothing where it was only time to draw.

        Args:
            limit_s: how long to wait, seconds.
        """
        wanted = [self._told, *([self._keys] if self.reads else [])]
        ready, _, _ = select.select(wanted, [], [], 0 if self._pending else limit_s)
        keys = self._pressed() if self._keys in ready else b""
        self._hear()
        signals, self._pending = self._pending, []
        if not ENDING.isdisjoint(signals):
            return keys, signals
        if signal.SIGTSTP in signals:
            self._stop()
        if signal.SIGCONT in signals or signal.SIGTSTP in signals:
            self._take()
        if signal.SIGWINCH in signals:
            self._shown = []
            self._write(b"\x1b[2J")
        return keys, signals

    def _pressed(self) -> bytes:
        try:
            keys = os.read(self._keys, 256)
        except OSError:
            keys = b""
        if not keys:  # nobody types there any more
            self.reads = False
        return keys

    def _take(self) -> None:
        self._leaving = False
        if self.reads:
            tty.setcbreak(self._keys, termios.TCSANOW)
        self._shown = []
        self._write(_ENTER)

    def _give_back(self) -> None:
        self._leaving = True
        if self._before:
            termios.tcsetattr(self._keys, termios.TCSANOW, self._before)
        self._write(_LEAVE)

    def _stop(self) -> None:
        """Be stopped, as a program is that Ctrl-Z is pressed for, and go on later."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _nothing)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._pending += os.read(self._told, 4096)

    def _write(self, data: bytes) -> None:
        """Write while the terminal takes it, or until there is no more use in it."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._out, left) :]
            except BlockingIOError:  # Ctrl-S was pressed
                select.select([self._told], [self._out], [], _STUCK_S)
                self._hear()
                if not ENDING.isdisjoint(self._pending) or self._leaving:
                    return


def _unblocked(out: int) -> int:
    """Return a descriptor of the terminal, its own, on which no write waits."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{out}", flags)
    except OSError:
        return out


def _nothing(_: int, __: FrameType | None) -> None:
    """Have a signal come through the pipe alone."""
