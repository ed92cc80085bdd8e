"""Stacks as people read them: a header line a process, then its threads. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dsup.core.printable import printable
from dsup.facts.stacks import Process, Thread

_US: int = 1_000_000


def header(about: Process, wall_s: float) -> str:
    """Return the line above a process's stacks: when, who, in what state.

    Args:
        about: the process.
        wall_s: when they were taken, CLOCK_REALTIME, seconds.
    """
    whole, us = divmod(round(wall_s * _US), _US)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    who = f"helper of rank {about.rank}" if about.helper else f"rank {about.rank}"
    told = [f"{stamp}.{us:06d}Z {who}", f"pid {about.pid}"]
    told += [f"state {about.state}"] if about.state else []
    told += [f"wchan {about.wchan}"] if about.wchan else []
    told += [f"no stack: {about.missing}"] if about.missing else []
    return printable(", ".join(told))


def thread_lines(about: Process) -> Iterator[str]:
    """Yield the threads of a process, the main one first, innermost frames first."""
    for thread in about.threads:
        yield f"  {_name(thread)}:"
        for frame in thread.frames:
            place = f"{frame.file}:{frame.line}" if frame.line else frame.file
            yield printable(f"    {place} in {frame.function}")


def _name(thread: Thread) -> str:
    if thread.main:
        return "main thread"
    return printable(f"thread {thread.name}" if thread.name else "thread")
