"""Stacks of processes that still live, as typed facts: who is where.

faulthandler writes them from C, without the interpreter's lock; py-spy reads them from
outside, where a process runs no code of ours. Paths and names in them are a program's
own choice. Pure; linear in what is looked at.

Source: CPython's Python/traceback.c, 3.8 to 3.14; py-spy 0.3 and 0.4, ``dump --json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from dsup.core.printable import printable
from dsup.facts.fields import loads, loads_list, number, word

DUMP_MAX_BYTES: Final = 1 << 20
SPIED_MAX_BYTES: Final = 16 << 20
"""What py-spy may print of a process; more is no answer."""

PARTS_MAX: Final = 200_000
"""So many lists and objects of JSON are read, which take far more memory than they are
long."""

FRAMES_MAX: Final = 128
THREADS_MAX: Final = 256
PROCESSES_MAX: Final = 4096
_PATH_MAX_CHARS: Final = 500
_NAME_MAX_CHARS: Final = 200
_LINE_MAX: Final = 1 << 31
_PID_MAX: Final = 1 << 31
_HEADER_MAX_BYTES: Final = 4096

Form: TypeAlias = Literal["faulthandler", "py-spy", ""]
"""Who wrote a dump; empty where there is none."""

_HEAD: Final = re.compile(
    r"(?:(?P<alone>Stack)|(?P<current>Current thread|Thread) 0x[0-9a-f]{1,16}"
    r"(?: \[(?P<name>[^\]]{0,64})\])?) \(most recent call first\):$"
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


class Taken(NamedTuple):
    """What was taken of a process, before anybody has looked into it.

    Attributes:
        at_s: when, agent clock, seconds; the same for all of one capture.
        about: the process, without threads.
        form: who wrote ``dump``.
    """

    at_s: float
    about: Process
    form: Form
    dump: bytes = b""


class Capture(NamedTuple):
    """The processes of one moment, agent clock, seconds."""

    at_s: float
    processes: tuple[Process, ...]


def encode_process(taken: Taken) -> bytes:
    """Return what was taken of a process as a header line and the raw dump.

    Such records may follow each other, of several captures, too. What is in a dump
    cannot be mistaken for a header: its length goes before.
    """
    about, dump = taken.about, taken.dump[:DUMP_MAX_BYTES]
    header = {
        "at_us": max(round(taken.at_s * 1e6), 0),
        "rank": about.rank,
        "pid": about.pid,
        "helper": about.helper,
        "state": about.state[:1],
        "wchan": about.wchan[:_NAME_MAX_CHARS],
        "missing": about.missing[:_NAME_MAX_CHARS],
        "form": taken.form,
        "bytes": len(dump),
    }
    return b"%s\n%s\n" % (json.dumps(header).encode(), dump)


def decode_processes(records: bytes) -> tuple[Capture, ...]:
    """Return the captures in records of ``encode_process``, the oldest first.

    It ends where a record is cut or is none.
    """
    found: dict[float, list[Process]] = {}
    for at_s, process in _records(records):
        found.setdefault(at_s, []).append(process)
    return tuple(Capture(at_s, tuple(found[at_s])) for at_s in sorted(found))


def of_faulthandler(dump: bytes) -> tuple[Thread, ...]:
    """Return the threads in a dump that a registered signal has made.

    The signal finds the main thread, so the current one is the main one, and so is one
    that was dumped alone.
    """
    found: list[Thread] = []
    frames: list[Frame] = []
    for line in dump[:DUMP_MAX_BYTES].decode(errors="backslashreplace").split("\n"):
        head = _HEAD.match(line)
        if head and len(found) < THREADS_MAX:
            frames = []
            main = bool(head["alone"]) or head["current"] == "Current thread"
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
    return _of_rows(_plain_rows(dump, DUMP_MAX_BYTES), pid)[:THREADS_MAX]


def _of_rows(rows: list[Any], pid: int) -> tuple[Thread, ...]:
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


def shortened(dump: bytes, pid: int, most: int = DUMP_MAX_BYTES) -> bytes:
    """Return what py-spy has printed without what is not looked at anyhow.

    Of a program with many deep threads it prints megabytes; cut anywhere, they would be
    no JSON at all. The main thread comes first, and the last ones are left out.

    Args:
        dump: a list of threads.
        pid: the process.
        most: so many bytes may be left.
    """
    if len(dump) <= most:
        return dump
    parts: list[bytes] = []
    left = most - 2
    for thread in _of_rows(_plain_rows(dump, SPIED_MAX_BYTES), pid):
        part = json.dumps(_row(thread, pid)).encode()
        left -= len(part) + 1
        if left < 0:
            break
        parts.append(part)
    return b"[" + b",".join(parts) + b"]" if parts else b""


def fitting(taken: Taken, most: int) -> Taken:
    """Return what was taken with a dump of at most so many bytes, that can be read."""
    if len(taken.dump) <= most or taken.form != "py-spy":
        return taken._replace(dump=taken.dump[:most])
    dump = shortened(taken.dump, taken.about.pid, most)
    return taken._replace(dump=dump, form="py-spy" if dump else "")


def main_first(dump: bytes) -> bytes:
    """Return a dump of faulthandler, which names the main thread last, turned round.

    What is cut of it later is then of other threads.
    """
    start = dump.rfind(b"\nCurrent thread 0x") + 1
    if not start:
        return dump
    end = dump.find(b"\n\n", start)
    end = len(dump) if end < 0 else end + 2
    main = dump[start:end].rstrip(b"\n")
    return b"%s\n\n%s%s" % (main, dump[:start], dump[end:])


def _row(thread: Thread, pid: int) -> dict[str, object]:
    """Return a thread as py-spy prints it."""
    frames = [
        {"filename": one.file, "line": one.line, "name": one.function}
        for one in thread.frames
    ]
    own = pid if thread.main else 0
    return {"thread_name": thread.name, "os_thread_id": own, "frames": frames}


def _plain_rows(dump: bytes, most: int) -> list[Any]:
    """Return the items of a list, if it is not too long, nor of too many parts."""
    parts = dump.count(b"{") + dump.count(b"[")
    fits = len(dump) <= most and parts <= PARTS_MAX
    return loads_list(dump) if fits else []


def _records(records: bytes) -> Iterator[tuple[float, Process]]:
    start = 0
    for _ in range(PROCESSES_MAX):
        end = records.find(b"\n", start, start + _HEADER_MAX_BYTES)
        about = loads(records[start:end]) if end >= 0 else {}
        length = number(about.get("bytes"), DUMP_MAX_BYTES + 1)
        at_us = number(about.get("at_us"), 1 << 62)
        if length is None or at_us is None or end + 1 + length >= len(records):
            return
        start = end + 1 + length + 1
        dump = records[end + 1 : start - 1]
        yield at_us / 1e6, _process(about, dump)


def _process(about: dict[str, object], dump: bytes) -> Process:
    pid = number(about.get("pid"), _PID_MAX) or 0
    threads: tuple[Thread, ...] = ()
    if about.get("form") == "faulthandler":
        threads = of_faulthandler(dump)
    elif about.get("form") == "py-spy":
        threads = of_py_spy(dump, pid)
    return Process(
        rank=number(about.get("rank"), _PID_MAX) or 0,
        pid=pid,
        helper=about.get("helper") is True,
        state=word(about.get("state"), 1),
        wchan=word(about.get("wchan"), _NAME_MAX_CHARS),
        threads=threads,
        missing=word(about.get("missing"), _NAME_MAX_CHARS),
    )


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
            file = word(row.get("filename"), _PATH_MAX_CHARS)
            name = word(row.get("name"), _NAME_MAX_CHARS)
            line = number(row.get("line"), _LINE_MAX) or 0
            yield Frame(file, line, _plain_name(file, name))


def _plain_name(file: str, name: str) -> str:
    """Return a function's name as faulthandler writes it: py-spy names its class, too.

    Else the same place would look like another one when the other has taken it.
    """
    return name.rpartition(".")[2] if file.endswith(".py") else name
