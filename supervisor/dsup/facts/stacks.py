"""Stacks of processes that still live, as typed facts: who is where.

faulthandler writes them from C, without the interpreter's lock; py-spy reads them from
outside, where a process runs no code of ours. Paths and names in them are a program's
own choice. Pure; linear in what is looked at.

Source: CPython's Python/traceback.c, 3.8 to 3.14; py-spy 0.3 and 0.4, ``dump --json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from dsup.core.printable import printable
from dsup.facts.fields import loads_list, number, word

DUMP_MAX_BYTES: Final = 1 << 20
FRAMES_MAX: Final = 128
THREADS_MAX: Final = 256
_PATH_MAX_CHARS: Final = 500
_NAME_MAX_CHARS: Final = 200
_LINE_MAX: Final = 1 << 31

_HEAD: Final = re.compile(
    r"(?P<current>Current thread|Thread) 0x[0-9a-f]{1,16}"
    r"(?: \[(?P<name>[^\]]{0,64})\])? \(most recent call first\):$"
)
_FRAME: Final = re.compile(
    r'  File "(?P<file>.*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<name>.*)$'
)


class Frame(NamedTuple):
    """One call.

    Attributes:
        line: from 1; 0 if unknown.
        function: empty if unknown.
    """

    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        """Return ``dataset.py:88 in read``."""
        return f"{self.file.rpartition('/')[2]}:{self.line} in {self.function}"


class Thread(NamedTuple):
    """The stack of one thread.

    Attributes:
        name: empty if unknown.
        main: the program's main thread.
        frames: the innermost first.
    """

    name: str
    main: bool
    frames: tuple[Frame, ...]


class Process(NamedTuple):
    """A process at one moment.

    Attributes:
        rank: whose process it is.
        pid: of the rank, or of a helper of it.
        helper: it is a helper.
        state: of /proc/PID/stat; empty if unknown.
        wchan: the kernel function its main thread sleeps in; empty if unknown.
        threads: the main thread first; empty where no stack could be taken.
        missing: why there is none.
    """

    rank: int
    pid: int
    helper: bool = False
    state: str = ""
    wchan: str = ""
    threads: tuple[Thread, ...] = ()
    missing: str = ""

    @property
    def main(self) -> tuple[Frame, ...]:
        """Return the frames of its main thread, the innermost first."""
        return next((t.frames for t in self.threads if t.main), ())


def of_faulthandler(dump: bytes) -> tuple[Thread, ...]:
    """Return the threads in a dump that a registered signal has made.

    The signal finds the main thread, so the current one is the main one.
    """
    found: list[Thread] = []
    frames: list[Frame] = []
    for line in dump[:DUMP_MAX_BYTES].decode(errors="backslashreplace").split("\n"):
        head = _HEAD.match(line)
        if head and len(found) < THREADS_MAX:
            frames = []
            main = head["current"] == "Current thread"
            found.append(Thread(printable(head["name"] or ""), main, ()))
        elif found and (frame := _FRAME.match(line)) and len(frames) < FRAMES_MAX:
            frames.append(_frame(frame))
            found[-1] = found[-1]._replace(frames=tuple(frames))
    return tuple(sorted(found, key=lambda thread: not thread.main))


def of_py_spy(dump: bytes, pid: int) -> tuple[Thread, ...]:
    """Return the threads in what ``py-spy dump --json`` has printed.

    Args:
        dump: a list of threads.
        pid: the process; its main thread's id is the same.
    """
    rows = loads_list(dump[:DUMP_MAX_BYTES])[:THREADS_MAX]
    found = [
        Thread(
            word(row.get("thread_name"), _NAME_MAX_CHARS),
            row.get("os_thread_id") == pid or row.get("thread_name") == "MainThread",
            tuple(_frames(row.get("frames"))),
        )
        for row in rows
        if isinstance(row, dict)
    ]
    return tuple(sorted(found, key=lambda thread: not thread.main))


def _frame(found: re.Match[str]) -> Frame:
    line = int(found["line"]) if found["line"].isdigit() else 0
    return Frame(
        printable(found["file"][:_PATH_MAX_CHARS]),
        line,
        printable(found["name"][:_NAME_MAX_CHARS]),
    )


def _frames(rows: object) -> Iterator[Frame]:
    for row in rows[:FRAMES_MAX] if isinstance(rows, list) else []:
        if isinstance(row, dict):
            yield Frame(
                word(row.get("filename"), _PATH_MAX_CHARS),
                number(row.get("line"), _LINE_MAX) or 0,
                word(row.get("name"), _NAME_MAX_CHARS),
            )
