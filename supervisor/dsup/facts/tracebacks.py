"""Tracebacks in a stream: the last exception that nobody caught, and where it was.

A traceback that a program logged looks like one of an uncaught exception; only a note
tells them apart. Of several the last one counts: a process dies once. Left out are
those that Python announces as of no consequence (``Exception ignored in …``), those of
tasks that nobody waited for, and those of a child process.

Source: CPython's Lib/traceback.py and Python/pythonrun.c; torch's
distributed_c10d.py for the prefix; rich's traceback.py for boxes.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.facts.lines import Line, without_rank

TEXT_MAX_CHARS: Final = 1000
MORE_MAX_CHARS: Final = 300
CAUSES_MAX: Final = 4

_HEADER: Final = "Traceback (most recent call last)"
_GROUP: Final = "+ Exception Group " + _HEADER
_FRAME: Final = re.compile(
    r' {0,8}File "(.{1,4096}?)", line (\d{1,9})(?:,? in (.{1,512}))?$'
)
_RICH_FRAME: Final = re.compile(r"(\S.{0,1023}):(\d{1,9}) in (\S.{0,511})$")
_TYPE: Final = re.compile(r"((?:[\w<>]{1,200}\.){0,20}\w{1,200})(?::$|: (.*)|$)")
_NO_TYPES: Final = frozenset(
    {"CRITICAL", "DEBUG", "ERROR", "FATAL", "INFO", "NOTE", "WARN", "WARNING"}
)
_SYNTAX: Final = frozenset({"IndentationError", "SyntaxError", "TabError"})
_LIBRARIES: Final = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/bin/[^/.]{1,64}$"
)
"""Installed packages, the standard library, and packages' console scripts."""

CHAINED: Final = (
    "The above exception was the direct cause of the following exception",
    "During handling of the above exception, another exception occurred",
)
_THREAD: Final = "Exception in thread "
_IGNORED: Final = (
    "Exception ignored ",
    "Error in atexit.",
    "Error in sys.excepthook",
    "--- Logging error ---",
)
_TASKS: Final = ("future: <", "handle: <")
"""How the line before a traceback begins that did not end the process."""

OTHER: Final = re.compile(
    r"\[?[IWEF]\d{3,4} |\[[A-Z]\w{0,8} |\[?\d{4}-\d\d-\d\d"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|[a-z]{1,32}: "
    r"|frame #|Exception raised from |\S{1,512}:\d{1,9}: \w{0,64}Warning: "
)
"""How a line begins that belongs to no exception's text: a log's, another library's."""

_FOREIGN_MAX: Final = 100
_BOX: Final = "│╭╰"

_Style: TypeAlias = Literal["plain", "group", "rich", "syntax"]


class Frame(NamedTuple):
    """A place in the code.

    Attributes:
        text: ``file:line in function``.
        user: it is neither Python's own nor an installed package's.
    """

    text: str
    user: bool


class Uncaught(NamedTuple):
    """An exception.

    Attributes:
        type: qualified name, as printed.
        text: its text; it may have several lines.
        at: number of the line that names it.
        frame: where it was raised, of the user's code if possible; empty if unknown.
        causes: ``(type, text)`` of those it was raised from or during, nearest first.
    """

    type: str
    text: str
    at: int
    frame: str = ""
    causes: tuple[tuple[str, str], ...] = ()


class _Block(NamedTuple):
    """A traceback that is being read: how it is drawn, its innermost frame so far."""

    style: _Style = "plain"
    frame: Frame | None = None
    foreign: int = 0


class Tracebacks:
    """The last uncaught exceptions that a stream tells of.

    Attributes:
        last: by the name of the thread; empty for the main thread.

    Args:
        cut: the stream may begin inside a traceback.
    """

    def __init__(self, *, cut: bool) -> None:
        self.last: dict[str, Uncaught] = {}
        self._block = _Block() if cut else None
        self._before = ""
        self._owner: str | None = ""
        self._ended: Uncaught | None = None
        self._chained = False
        self._more = 0
        self._ranked = self._grouped = self._ignored = False

    @property
    def unfinished(self) -> str:
        """Frame of a traceback that broke off before it named the exception."""
        return self._block.frame.text if self._block and self._block.frame else ""

    def feed(self, line: Line) -> bool | None:
        """Take in a line.

        Returns:
            Whether it says something to a reader; None if it is of no traceback.
        """
        said = self._feed(line)
        if line.text.strip():
            self._before = line.text
        return said

    def interrupt(self) -> None:
        """Note that something else was said: an exception's text goes no further."""
        self._more = 0

    def _feed(self, line: Line) -> bool | None:
        style = style_of(line.text)
        if style:
            self._open(style)
            return False
        if self._block is not None:
            return self._in_block(self._block, line)
        if line.text.startswith(CHAINED):
            self._more, self._chained = 0, True
            return False
        said = self._continue(line) if self._more > 0 else None
        return self._without_header(line) if said is None else said

    def _open(self, style: _Style) -> None:
        self._more, self._block = 0, _Block(style)
        if not self._before.startswith(CHAINED):
            self._owner, self._chained = owner_of(self._before), False
            self._ignored = self._before.startswith(_IGNORED)

    def _without_header(self, line: Line) -> bool | None:
        """Look for a file that could not be compiled, and for torch's prefix."""
        found = _FRAME.match(line.text)
        if found and found[3] is None:
            self._open("syntax")
            self._block = _Block("syntax", frame_of(line.text))
            return False
        named = named_in(line.text) if line.ranked else None
        if named and named[0].endswith(("Error", "Exception")):
            self._owner, self._chained, self._grouped = "", False, False
            self._end(line, named, "")
            return True
        return None

    def _in_block(self, block: _Block, line: Line) -> bool | None:
        body, inner = _undrawn(block.style, line.text)
        frame = frame_of(body) or (rich_frame(body) if block.style == "rich" else None)
        if frame is not None:
            # Outermost first: the last of the user's counts.
            if frame.user or not (block.frame and block.frame.user):
                self._block = block._replace(frame=frame)
            return False
        if inner or not body.strip() or body.startswith(" "):
            return False
        named = named_in(body)
        if named and block.frame and _fits(block.style, named[0]):
            self._block, self._grouped = None, block.style == "group"
            self._end(line, named, block.frame.text)
            return not self._ignored
        foreign = block.foreign + 1
        self._block = (
            block._replace(foreign=foreign) if _bears(block, foreign) else None
        )
        return None

    def _end(self, line: Line, named: tuple[str, str], frame: str) -> None:
        causes: tuple[tuple[str, str], ...] = ()
        if self._chained and self._ended:
            causes = ((self._ended.type, self._ended.text), *self._ended.causes)
        kind, text = named
        ended = Uncaught(
            kind, text[:TEXT_MAX_CHARS], line.number, frame, causes[:CAUSES_MAX]
        )
        self._chained, self._ranked, self._more = False, line.ranked, MORE_MAX_CHARS
        self._keep(ended)

    def _keep(self, ended: Uncaught) -> None:
        self._ended = ended
        if self._owner is None:
            return
        if ended.type == "KeyboardInterrupt":
            self.last.pop(self._owner, None)
        else:
            self.last[self._owner] = ended

    def _continue(self, line: Line) -> bool | None:
        """Take in what follows an exception's line; None where its text has ended."""
        text = line.text.strip()
        if self._grouped:
            return self._continue_group(text)
        if self._ranked and not text:  # torch leaves blank lines without a prefix
            return False
        own = line.ranked if self._ranked else bool(text) and not OTHER.match(text)
        if not own or line.ranked != self._ranked:
            self._more = 0
            return None
        self._append(text)
        return True

    def _continue_group(self, text: str) -> bool | None:
        """Take in the exceptions of a group, and leave out their tracebacks."""
        if not text.startswith(("|", "+-")):
            self._more = 0
            return None
        body = text.removeprefix("|").removeprefix(" ")
        if named_in(body) is None:
            return False
        self._append(body)
        return True

    def _append(self, text: str) -> None:
        if self._ended is not None:
            more = f"{self._ended.text}\n{text[: self._more]}".strip()
            self._more -= len(text) + 1
            self._keep(self._ended._replace(text=more))


def frame_of(text: str) -> Frame | None:
    """Return the place that a line of a traceback names; None if it is no such line."""
    found = _FRAME.match(text)
    return _frame(found[1], found[2], found[3]) if found else None


def rich_frame(text: str) -> Frame | None:
    """Return the place that a line of rich's box names; None if it is no such line."""
    found = _RICH_FRAME.match(text)
    return _frame(found[1], found[2], found[3]) if found else None


def _frame(file: str, number: str, function: str | None) -> Frame:
    user = not file.startswith("<") and not _LIBRARIES.search(file)
    return Frame(f"{file}:{number}" + (f" in {function}" if function else ""), user)


def style_of(text: str) -> _Style | None:
    """Return how the traceback is drawn that a line is the head of; None for none."""
    if _HEADER not in text:
        return None
    if text.strip().startswith("╭"):
        return "rich"
    if text.strip() == f"{_GROUP}:":
        return "group"
    before, _, after = text.strip().rpartition(_HEADER)
    # A bar may stand before it; after a word, or a group's margin, it is another's.
    whole = after == ":" and not without_rank(before).endswith(" ")
    return "plain" if whole else None


def owner_of(before: str) -> str | None:
    """Return whose traceback follows a line: a thread's name; None for nobody's."""
    if before.startswith(_THREAD) and before.endswith(":"):
        return before.removeprefix(_THREAD).removesuffix(":")
    child = before.startswith("Process ") and before.endswith(":")
    return None if child or before.startswith((*_IGNORED, *_TASKS)) else ""


def _undrawn(style: _Style, text: str) -> tuple[str, bool]:
    """Return a line without what is drawn around it, and whether it was inside that."""
    stripped = text.strip()
    match style:
        case "group":
            return stripped.removeprefix("|").removeprefix(" "), False
        case "rich" if stripped[:1] in _BOX:
            return stripped.strip(" │"), True
        case _:
            return text, False


def named_in(text: str) -> tuple[str, str] | None:
    """Return type and text of an exception that a line names; None if it names none."""
    found = _TYPE.match(text)
    if not found or found[1] in _NO_TYPES:
        return None
    # Types without a module are Python's own or the script's: they begin in upper case.
    named = "." in found[1] or not found[1][0].islower()
    return (found[1], found[2] or "") if named and not found[1][0].isdigit() else None


def _fits(style: _Style, type_name: str) -> bool:
    return style != "syntax" or type_name in _SYNTAX


def _bears(block: _Block, foreign: int) -> bool:
    """Return whether a traceback may go on after so many lines of somebody else."""
    return block.style != "syntax" and foreign < _FOREIGN_MAX
