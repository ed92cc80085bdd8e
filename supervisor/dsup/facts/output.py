"""What the last words of a rank say: its traceback, its crash report, its last line.

The words are a program's own: whatever they hold costs time linear in the 64 KiB that
are looked at, and can make a rank look guilty of what it prints about itself only.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.facts.crash_words import Crashes
from dsup.facts.lines import Line, is_cut, lines_of
from dsup.facts.tracebacks import Tracebacks, Uncaught

LINES_MAX: Final = 8
LINE_MAX_CHARS: Final = 300

Stream: TypeAlias = Literal["stderr", "stdout"]


class LastWords(NamedTuple):
    """What the tails of a rank's streams show; empty where they do not show it.

    Attributes:
        exception: ``Type: text`` of the last uncaught Python exception, in one line.
        crash: the signal of a faulthandler report, such as ``Segmentation fault`` or
            ``Aborted``, or a C++ or C library's reason to abort, such as ``terminate
            called …`` or ``double free or corruption``.
        frame: where the later one of these happened, ``file:line in function``; without
            function for a syntax error.
        line: last line that says something, colours, bars and prefixes removed.
        lines: the last such lines, at most eight.
        number: number of ``line`` in the stderr log; None if unknown.
        type: the exception's type, as printed: qualified.
        text: its text; it may have several lines.
        causes: ``(type, text)`` of the exceptions it was raised from or during, the
            nearest first; at most four.
        thread: name of the thread that raised it; empty for the main thread.
        stream: where all this was found: on stdout only if stderr says nothing.
    """

    exception: str = ""
    crash: str = ""
    frame: str = ""
    line: str = ""
    lines: tuple[str, ...] = ()
    number: int | None = None
    type: str = ""
    text: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    thread: str = ""
    stream: Stream = "stderr"


_NOISE: Final = (
    "] *****",
    "Bypassing SIGTERM",
    "CUDA kernel errors might be asynchronously reported",
    "Compile with `TORCH_USE_CUDA_DSA`",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING",
    "Exception ignored ",
    "OMP_NUM_THREADS",
    "Received SIGTERM: 15",
    "The current process just got forked",
    "To disable this warning, you can either:",
    "Unable to shutdown process ",
    "client socket cannot be initialized (errno: 97",
    "closing signal SIG",
    "process group has NOT been destroyed",
    "resource_tracker: ",
)
"""What says nothing of a failure, wherever in a line it stands. Source: public logs."""

_FRAMES: Final = ("frame #", "Exception raised from ")
"""How lines of a C++ backtrace begin, as c10 prints it."""

_WARNING: Final = re.compile(r"\S.{0,1023}:\d{1,9}: \w{0,64}Warning: ")
_BAR: Final = re.compile(r"[^|]{0,200}\d%\|[^|]{0,400}\|[^\]]{0,400}\]?$")
_REFUSAL: Final = re.compile(r"[\w./ -]{1,200}: error: ")


def last_words(
    err: bytes,
    out: bytes = b"",
    *,
    first_line: int | None = None,
    rank: int | None = None,
) -> LastWords:
    """Return what a rank's last words say.

    An exception counts with its traceback only, since anybody may print a line that
    looks like one; without it if torch's ``[rank3]: `` stands before it. Where that
    names another rank, the rank only passes on what that one said. An interruption from
    the keyboard is no exception.

    Args:
        err: the end of its stderr; 64 KiB of it are looked at.
        out: the end of its stdout, which counts if stderr says nothing.
        first_line: number of the first line of ``err`` in the log; None if unknown.
        rank: whose words they are; None if unknown: then any rank's count.
    """
    words = _words(err, rank, first_line, "stderr")
    if words == LastWords() and out:
        words = _words(out, rank, None, "stdout")
    return words


def _words(
    data: bytes, rank: int | None, first_line: int | None, stream: Stream
) -> LastWords:
    tracebacks, crashes = Tracebacks(cut=is_cut(data)), Crashes()
    telling: deque[Line] = deque(maxlen=LINES_MAX)
    reader = _Reader(tracebacks, crashes)
    telling.extend(line for line in lines_of(data, rank) if reader.says_something(line))
    if not telling:
        return _of_unfinished(tracebacks.unfinished, stream)
    raised, thread = _uncaught(tracebacks)
    last = _last(telling)
    found = LastWords(
        crash=crashes.said,
        frame=_frame(raised, crashes),
        line=_shown(last.text),
        lines=tuple(_shown(line.text) for line in telling),
        number=None if first_line is None else first_line + last.number - 1,
        stream=stream,
    )
    return _with_exception(found, raised, thread) if raised else found


def _of_unfinished(frame: str, stream: Stream) -> LastWords:
    """Return what there is to say of a traceback that is all there is, and no end."""
    if not frame:
        return LastWords()
    return LastWords(frame=frame, line=frame, lines=(frame,), stream=stream)


class _Reader:
    """Sorts lines: those that say something, and those that belong to a report."""

    def __init__(self, tracebacks: Tracebacks, crashes: Crashes) -> None:
        self._tracebacks = tracebacks
        self._crashes = crashes
        self._warned = False

    def says_something(self, line: Line) -> bool:
        """Take in a line; return whether it says something to a reader."""
        warned, self._warned = self._warned, False
        if line.foreign:
            return False
        said = self._crashes.feed(line)
        if said is not None:
            self._tracebacks.interrupt()
            return said
        said = self._tracebacks.feed(line)
        if said is not None:
            return said and _says_something(line.text)
        if _WARNING.match(line.text):
            self._warned = True
            return False
        # After a warning stands the source line it was given for.
        quoted = warned and line.text.startswith("  ")
        return not quoted and _says_something(line.text)


def _says_something(text: str) -> bool:
    if not any(map(str.isalnum, text)) or text.lstrip().startswith(_FRAMES):
        return False
    return not any(noise in text for noise in _NOISE) and not _BAR.match(text)


def _uncaught(tracebacks: Tracebacks) -> tuple[Uncaught | None, str]:
    """Return the exception that ended the process, or else the last of a thread's."""
    found = tracebacks.last
    if "" in found or not found:
        return found.get(""), ""
    thread = max(found, key=lambda name: found[name].at)
    return found[thread], thread


def _frame(raised: Uncaught | None, crashes: Crashes) -> str:
    if raised and raised.at > crashes.at:
        return raised.frame
    return crashes.frame.text if crashes.frame else ""


def _last(telling: deque[Line]) -> Line:
    """Return the last telling line, or what a parser refuses the command line for."""
    usage = any(line.text.startswith("usage: ") for line in telling)
    refusals = [line for line in telling if usage and _REFUSAL.match(line.text)]
    return refusals[-1] if refusals else telling[-1]


def _with_exception(found: LastWords, raised: Uncaught, thread: str) -> LastWords:
    text = " ".join(raised.text.split())
    return found._replace(
        exception=f"{raised.type}: {text}" if text else raised.type,
        type=raised.type,
        text=raised.text,
        causes=raised.causes,
        thread=thread,
    )


def _shown(text: str) -> str:
    return text.strip(" │|")[:LINE_MAX_CHARS]
