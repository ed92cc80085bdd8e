"""Tracebacks in the logs of many ranks: the exceptions of each stream.

Lines of one place are one stream. Ranks whose lines have no prefix share a stream, and
their tracebacks are woven: a head does not end the traceback before it, and an
exception's line ends the one that was opened last. A traceback may have lost its head,
or its end: its frames still tell where the rank was.

Source: CPython's Lib/traceback.py; torch.multiprocessing.spawn, Ray's exceptions.py,
multiprocessing.pool and torch.utils.data's ExceptionWrapper for tracebacks in a text;
loguru and rich for drawn ones.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.exception_lines import (
    FRAMES_MAX,
    MORE_MAX,
    TEXT_MAX,
    Head,
    fragment,
    frame_in,
    garbled,
    head_of,
    known,
    told_by_ray,
)
from dsup.facts.logs.kept import Kept
from dsup.facts.logs.launchers import of_launcher, retells
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import Error
from dsup.facts.tracebacks import CAUSES_MAX, CHAINED, OTHER, Frame, owner_of

_OTHERS: Final = (
    "Killed",
    "terminate called",
    "Aborted",
    "Segmentation fault",
    "Child process with PID",
)
_REPORTS: Final = ("Thread 0x", "Current thread 0x", "Stack (most recent call")
"""How stacks begin that no exception follows: faulthandler's, a logger's."""

_CAUGHT: Final = frozenset({"E", "W"})
_LOGGED: Final = re.compile(r"(?:ERROR|WARNING|WARN)[: ]")
_STEP: Final = re.compile(
    r"(?i).{0,40}?\b(?:step|iter(?:ation)?|epoch|batch)\b[ :=\[#]{1,3}\d"
)
_BAR: Final = "%|"
"""In a progress bar, which any thread draws between two lines of another."""

_STREAMS_MAX: Final = 4096
_OPEN_MAX: Final = 16
_FOREIGN_MAX: Final = 100


class Raised:
    """An exception that is being read, or one whose text may go on.

    Attributes:
        line: the line that names it; that of its head until then.
        owner: its thread; None for one that ended nothing.
        nested: it stands in the text of another one.
    """

    def __init__(self, line: LogLine, head: Head, owner: str | None) -> None:
        self.line = line
        self.head = head
        self.place = line.place
        self.owner = owner
        self.type = self.text = self.code = ""
        self.frames: list[str] = []
        self.user = ""
        self.causes: tuple[tuple[str, str], ...] = ()
        self.launcher = self.follows_launcher = self.logged = False
        self.more = self.foreign = self.indent = 0

    def add(self, frame: Frame) -> None:
        """Take in a frame; the outermost ones come first."""
        self.launcher = self.launcher or of_launcher(frame.text)
        if len(self.frames) >= FRAMES_MAX:
            del self.frames[FRAMES_MAX // 2]
        self.frames.append(frame.text)
        self.user = frame.text if frame.user else self.user

    def name(self, line: LogLine, named: tuple[str, str]) -> None:
        """Take in what it is called."""
        self.line, self.more = line, MORE_MAX
        self.type, self.text = named[0], named[1][:TEXT_MAX]

    def append(self, text: str) -> None:
        """Take in a further line of its text."""
        self.text = f"{self.text}\n{text[: self.more]}".strip()
        self.more -= len(text) + 1

    def error(self) -> Error:
        """Return what is known of it."""
        line = self.line
        return Error(
            self.type,
            self.text,
            self.place,
            line.file,
            line.number,
            line.order,
            line.at_s,
            self.user or (self.frames[-1] if self.frames else ""),
            tuple(self.frames),
            self.causes[:CAUSES_MAX],
            self.owner or "",
            self.logged,
        )


def _others(text: str) -> bool:
    """Return whether a line belongs to no exception's text."""
    return text.startswith(_OTHERS) or OTHER.match(text) is not None


class _Stream:
    """The tracebacks of one place."""

    def __init__(self) -> None:
        self.report = False
        self.open: list[Raised] = []
        self.last: Raised | None = None
        self.told: set[str] = set()
        self.before = ""
        self.logged = False
        self.chained = False
        self.place: Place | None = None


class Exceptions:
    """The exceptions that lines tell of.

    Attributes:
        workers: those of workers.
        launchers: those of launchers, except where they retell a worker's end.
    """

    def __init__(self) -> None:
        self.workers: Kept[Error] = Kept()
        self.launchers: Kept[Error] = Kept(50, 50)
        self._streams: dict[tuple[str, Place], _Stream] = {}
        self._over = False

    def feed(self, line: LogLine) -> bool:
        """Take in a line; return whether it is of a traceback."""
        stream = self._stream(line)
        taken = self._feed(stream, line)
        if line.text.strip() and _BAR not in line.text:
            stream.before = line.text
            stream.logged = line.level in _CAUGHT and ".cpp:" not in line.logger
            stream.logged = stream.logged or _LOGGED.match(line.text) is not None
        return taken

    def finish(self) -> None:
        """Note that no line follows."""
        for stream in self._streams.values():
            self._settle(stream)
            for raised in stream.open:
                self._leave(stream, raised)
            stream.open.clear()

    def _stream(self, line: LogLine) -> _Stream:
        key = (line.file, line.place)
        found = self._streams.get(key)
        if found is None:
            if len(self._streams) >= _STREAMS_MAX:
                key = ("", Place())
            found = self._streams.setdefault(key, _Stream())
        return found

    def _feed(self, stream: _Stream, line: LogLine) -> bool:
        text = line.text.rstrip()
        head = head_of(text, stream.before)
        if head:
            self._open(stream, line, head)
            return True
        frame = frame_in(text, self._style(stream))
        if text.startswith(_REPORTS) or (stream.report and (frame or not text)):
            stream.report = True
            return True
        stream.report = False
        if frame:
            self._frame(stream, line, frame)
            return True
        if text.startswith(CHAINED):
            stream.chained = True
            return True
        return self._told(stream, line, text)

    def _style(self, stream: _Stream) -> str:
        return stream.open[-1].head.style if stream.open else ""

    def _told(self, stream: _Stream, line: LogLine, text: str) -> bool:
        """Look for what stands between tracebacks, and for their ends."""
        ray = told_by_ray(text)
        if ray:
            self._settle(stream)
            stream.place = line.place._replace(rank=None, node=ray.node, pid=ray.pid)
            self._open(stream, line, Head("plain"))
            stream.open[-1].type = ray.type
            return True
        if stream.open:
            return self._in_block(stream, stream.open[-1], line, text)
        if stream.last and stream.last.more > 0 and self._goes_on(stream, line, text):
            return True
        named = (fragment(text) or known(text, "")) if not line.level else None
        if named is None:
            return False
        raised = Raised(line, Head("plain"), "")
        raised.place, stream.place = stream.place or line.place, None
        self._end(stream, raised, line, named)
        return True

    def _open(self, stream: _Stream, line: LogLine, head: Head) -> None:
        if head.child is not None:
            place = line.place
            stream.place = (
                place
                if place.rank is not None
                else place._replace(local_rank=head.child)
            )
            stream.last = None
        if not head.begins:
            return
        raised = Raised(line, head, owner_of(stream.before))
        raised.logged = stream.logged and not stream.chained
        if "Process " in stream.before and raised.owner is None:
            raised.owner = stream.before.strip(" :")
        raised.place = stream.place or line.place
        if head.rank is not None:
            raised.place = line.place._replace(rank=head.rank, local_rank=None)
        stream.place = None
        if stream.chained and stream.last:
            self._chain(raised, stream.last)
            stream.last = None
        stream.chained = False
        if len(stream.open) >= _OPEN_MAX:
            self._leave(stream, stream.open.pop(0))
        stream.open.append(raised)

    def _chain(self, raised: Raised, before: Raised) -> None:
        told = (before.type, before.text)
        raised.causes = (told, *before.causes)[:CAUSES_MAX]
        raised.place = before.place
        raised.follows_launcher = self._retells(before)

    def _frame(self, stream: _Stream, line: LogLine, frame: Frame) -> None:
        if not stream.open:
            self._open(stream, line, Head("plain"))
        raised = stream.open[-1]
        if not raised.frames and line.text.lstrip().startswith("File "):
            # Frames are indented by two; what is more was added by who pasted them.
            raised.indent = max(0, len(line.text) - len(line.text.lstrip()) - 2)
        raised.add(frame)

    def _in_block(
        self, stream: _Stream, raised: Raised, line: LogLine, text: str
    ) -> bool:
        indent = raised.indent
        pasted = indent > 0 and text[:indent].isspace()
        named = raised.head.inside(text[indent:] if pasted else text)
        if not named.strip() or named.startswith(" "):
            raised.code = named.strip() or raised.code
            return True
        found = None
        if (raised.frames or stream.last) and not line.level:
            found = known(named, raised.code) or garbled(named, raised.code)
        if found:
            stream.open.pop()
            self._end(stream, raised, line, found)
            return True
        raised.foreign += 1
        if raised.foreign > _FOREIGN_MAX:
            self._leave(stream, stream.open.pop())
        return False

    def _end(
        self, stream: _Stream, raised: Raised, line: LogLine, named: tuple[str, str]
    ) -> None:
        raised.name(line, named)
        last = stream.last
        if raised.head.nested and last:
            last.user = raised.user or last.user
            last.causes = ((raised.type, raised.text), *last.causes)[:CAUSES_MAX]
            return
        if stream.chained and last and not raised.frames:
            self._chain(raised, last)
            stream.last = None
        self._settle(stream)
        stream.chained = False
        stream.last = raised
        stream.told.update(raised.frames[:1])

    def _goes_on(self, stream: _Stream, line: LogLine, text: str) -> bool:
        last, stripped = stream.last, text.strip()
        if last is None:
            return False
        if line.ranked and not stripped:
            return True
        own = bool(stripped) and line.ranked == last.line.ranked and not line.level
        # A rank that goes on to the next step has caught it.
        other = _STEP.match(stripped) or (not line.ranked and _others(stripped))
        if not own or other:
            last.more = 0
            return False
        named = known(text, "")
        if named and named[0] == last.type:
            last.more = 0
            return False
        last.append(stripped)
        return True

    def _settle(self, stream: _Stream) -> None:
        """Hand on the last exception of a stream: nothing was raised from it."""
        raised, stream.last = stream.last, None
        if raised and raised.launcher:
            self._over = self._over or self._retells(raised)
        if raised and raised.owner is not None and not self._retells(raised):
            kept = self.launchers if raised.launcher else self.workers
            kept.add(raised.error())

    def _leave(self, stream: _Stream, raised: Raised) -> None:
        """Hand on a traceback that broke off before it named the exception."""
        woven = bool(raised.frames) and raised.frames[0] in stream.told
        # What wraps a launcher raises once more when that has told of its end.
        wrapper = self._over and raised.place.rank is None
        told = raised.launcher or raised.follows_launcher or woven or wrapper
        if raised.frames and raised.owner is not None and not told:
            self.workers.add(raised.error())

    def _retells(self, raised: Raised) -> bool:
        return raised.follows_launcher or retells(
            raised.type, raised.text, launcher=raised.launcher
        )
