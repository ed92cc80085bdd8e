"""The flight recorder of a rank, asked for its trace from outside.

A thread of torch's reads a FIFO; whoever writes into it has the rank dump its trace
into a file. Both lie where the rank's environment says, and the rank may have put
anything there: so a FIFO is written to only if somebody reads it, and a file is read
only if it is a regular one, is new, and is whole. Where they lie may be a file system
that does not answer: so a thread looks there, and is left behind if need be.

Source: torch's csrc/distributed/c10d/ProcessGroupNCCL.hpp (DumpPipe).
"""

from __future__ import annotations

import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

PIPE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
DUMP: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")

_PIPE_FLAGS: Final = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK_S: Final = 0.02
_ENDS: Final = (b".", b"}", b"}\n")


class Recorder(NamedTuple):
    """Where a rank's recorder is asked, and where it answers.

    Attributes:
        pipe: the FIFO; empty for none.
        dump: the file.
    """

    rank: int
    pipe: str
    dump: str


class _Seen(NamedTuple):
    """What tells one state of a file from another."""

    inode: int
    size: int
    changed_ns: int


def recorders(
    environments: Mapping[int, Mapping[str, str]], alive: Collection[int]
) -> Iterator[Recorder]:
    """Yield the recorders of living ranks that were started in such environments."""
    for rank in sorted(environments.keys() & set(alive)):
        environment = environments[rank]
        number = environment.get("RANK", str(rank))
        pipe = environment.get(PIPE, "")
        dump = next((environment[name] for name in DUMP if environment.get(name)), "")
        if pipe and dump:
            yield Recorder(rank, f"{pipe}{number}.pipe", f"{dump}{number}")


class Asked:
    """Recorders that have been asked for their traces.

    Args:
        recorders: those to ask; one that nobody serves is left out.
    """

    def __init__(self, recorders: Collection[Recorder]) -> None:
        before = {one: _seen(one.dump) for one in recorders}
        self._before = {one: was for one, was in before.items() if _ask(one.pipe)}

    def dumps(
        self,
        deaf: Collection[int],
        until_s: float,
        most: int,
        whole: Callable[[int, bytes], bool],
    ) -> None:
        """Hand on each new dump as soon as it does not grow any more.

        Args:
            deaf: ranks that are not waited for; more may be added meanwhile.
            until_s: when to give up, agent clock, seconds.
            most: so many bytes of a file are read.
            whole: takes a rank and its dump; returns whether it could be read, or the
                file is to be looked at again.
        """
        left = dict(self._before)
        last = dict(left)
        while left and time.monotonic() < until_s:
            for one, was in tuple(left.items()):
                if one.rank in deaf:
                    del left[one]
                    continue
                now = _seen(one.dump)
                ready = now is not None and now != was and now == last[one]
                last[one] = now
                in_time = time.monotonic() < until_s
                if ready and in_time and whole(one.rank, _read(one.dump, most)):
                    del left[one]
            if left:
                time.sleep(_LOOK_S)


class Answers:
    """What recorders answer, while their caller does something else.

    Args:
        recorders: those to ask, at once.
        until_s: when to give up at the latest, agent clock, seconds.
        most: so many bytes of a dump are read.

    Attributes:
        deaf: ranks that are not waited for any more.
    """

    def __init__(
        self, recorders: Collection[Recorder], until_s: float, most: int
    ) -> None:
        self.deaf: set[int] = set()
        self._dumps: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._whole: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._rest = (tuple(recorders), until_s, most)
        if recorders:
            threading.Thread(target=self._ask, daemon=True).start()
        else:
            self._dumps.put(None)

    def take(self, until_s: float, whole: Callable[[int, bytes], bool]) -> None:
        """Hand on each dump as it comes, until the last one or the end of the time.

        Args:
            until_s: when to give up, agent clock, seconds.
            whole: as of ``Asked.dumps``.
        """
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                found = self._dumps.get(timeout=left_s)
            except queue.Empty:
                return
            if found is None:
                return
            self._whole.put(whole(*found))

    def _ask(self) -> None:
        recorders, until_s, most = self._rest
        Asked(recorders).dumps(self.deaf, until_s, most, self._hand_over)
        self._dumps.put(None)

    def _hand_over(self, rank: int, dump: bytes) -> bool:
        if not dump:
            return False
        self._dumps.put((rank, dump))
        return self._whole.get()


def _ask(pipe: str) -> bool:
    """Write into a FIFO that has a reader; return whether that was so."""
    try:
        fd = os.open(pipe, _PIPE_FLAGS)
    except OSError:  # ENXIO: nobody reads
        return False
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode) and os.write(fd, b"1") == 1
    except OSError:
        return False
    finally:
        os.close(fd)


def _seen(path: str) -> _Seen | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return _Seen(found.st_ino, found.st_size, found.st_mtime_ns)


def _read(path: str, most: int) -> bytes:
    try:
        fd = os.open(path, _FILE_FLAGS)
    except OSError:
        return b""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return b""
        with open(fd, "rb", closefd=False) as file:
            raw = file.read(most)
    except OSError:
        return b""
    finally:
        os.close(fd)
    return raw if raw.endswith(_ENDS) else b""
