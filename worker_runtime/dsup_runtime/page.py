"""This worker's heartbeat page: found, proven to be ours, and reached.

Where the page is inherited memory, that memory is the page. Where it is a file or the
other end of a connection, this process has a copy, and a carrier brings its own slot to
the agent and the agent's words here; see ``page_carriers``. Whoever uses a ``Page``
stores and reads the same words in all three cases.
"""

from __future__ import annotations

import _thread
import errno
import mmap
import os
import select
import stat
import struct

from dsup_runtime import contract
from dsup_runtime.contract import FLAG_FAILED, FLAG_LOST, SLOT_PID

TYPE_CHECKING = False  # typing would be a large part of this import
if TYPE_CHECKING:
    from typing import Protocol

    class Carrier(Protocol):
        """Brings a slot to the agent, and the agent's words to this process."""

        every_ns: int
        """How often it is worth the while, nanoseconds."""

        lost: bool
        """The agent cannot be reached any more, for good."""

        def exchange(self, mine: memoryview) -> bytes | None:
            """Send a slot; return the newest page that has come, None without one."""

        def close(self) -> None:
            """Let go, without an effect on other processes that have it too."""


_NEVER_NS = 1 << 62
_PID_MAX = 1 << 22  # the kernel's own PID_MAX_LIMIT


class Page:
    """The page as this process sees it.

    Attributes:
        words: header and slots; only the header, the words ``DEAD`` and one's own slot
            are kept up to date.
        slot: the words of this process, within ``words``.
        every_ns: how often ``exchange`` is worth the while, nanoseconds.
    """

    __slots__ = ("_busy", "_carrier", "_mine", "every_ns", "slot", "words")

    def __init__(
        self, words: memoryview[int], index: int, carrier: Carrier | None = None
    ) -> None:
        first = contract.slot_offset(index)
        self.words = words
        self.slot = words[first : first + contract.SLOT_WORDS]
        self.every_ns = carrier.every_ns if carrier else _NEVER_NS
        self._mine = self.slot.cast("B")
        self._carrier = carrier
        self._busy = _thread.allocate_lock()

    @property
    def is_memory(self) -> bool:
        """Whether agent and worker each see at once what the other one stores."""
        return self._carrier is None

    def header(self, word: int) -> int:
        """Return a word of the header, as old as the last ``exchange``."""
        return self.words[word]

    def dead(self) -> list[int]:
        """Return the local ranks that the agent knows to have ended, ascending."""
        first = contract.slot_offset(0) + contract.SLOT_DEAD
        marks = self.words[first :: contract.SLOT_WORDS].tolist()
        return [slot for slot, mark in enumerate(marks) if mark]

    def fallen(self) -> list[int]:
        """Return the local ranks that say they failed, else those that just ended."""
        first = contract.slot_offset(0) + contract.SLOT_FLAGS
        flags = self.words[first :: contract.SLOT_WORDS].tolist()
        failed = [slot for slot, flag in enumerate(flags) if flag & FLAG_FAILED]
        return failed or [slot for slot in self.dead() if not flags[slot] & FLAG_LOST]

    def exchange(self) -> bool:
        """Have the agent see the slot, and see what the agent has told; never wait.

        Safe in a signal handler and from any thread: within another exchange, which
        it would tear apart, it does nothing.

        Returns:
            Whether the agent can still be reached.
        """
        carrier = self._carrier
        if carrier is None:
            return True
        if self._busy.acquire(blocking=False):
            try:
                told = carrier.exchange(self._mine)
                if told is not None:
                    self._take(told)
            finally:
                self._busy.release()
        return not carrier.lost

    def leave(self) -> None:
        """Give the page up in this process alone, as a forked child does."""
        if self._carrier is not None:
            self._carrier.close()
            self._carrier = None

    def _take(self, told: bytes) -> None:
        """Take the agent's words over, if they are still those of this page."""
        words = memoryview(told).cast("q")
        fixed = (contract.HEADER_MAGIC, contract.HEADER_ATTEMPT, contract.HEADER_SLOTS)
        if any(words[word] != self.words[word] for word in fixed):
            return
        dead = contract.slot_offset(0) + contract.SLOT_DEAD
        self.words[: contract.HEADER_WORDS] = words[: contract.HEADER_WORDS]
        self.words[dead :: contract.SLOT_WORDS] = words[dead :: contract.SLOT_WORDS]


def claim() -> Page | None:
    """Return the page that the environment names; None unless it is proven ours.

    May wait for the agent's answer, some seconds at most, where it is reached by TCP.
    """
    try:
        place = contract.parse_heartbeat(contract.variable(contract.HEARTBEAT))
        if place is None:
            return None
        kind, where, index = place
        page = _FINDERS[kind](where, index, contract.variable(contract.ATTEMPT))
    except (OSError, ValueError, OverflowError, struct.error):
        # A closed or read-only descriptor, a number too long for int(), C or a frame:
        # whatever the variable names, it is no page for us.
        return None
    if page is not None:
        page.slot[SLOT_PID] = os.getpid()
        page.exchange()
    return page


def _page_size(fd: int) -> int:
    """Return the size of a descriptor's file, bytes; 0 if no page has such a size."""
    found = os.fstat(fd)
    slots = (found.st_size - contract.page_bytes(0)) // contract.SLOT_BYTES
    sound = stat.S_ISREG(found.st_mode) and 0 < slots <= contract.SLOTS_MAX
    return found.st_size if sound and found.st_size == contract.page_bytes(slots) else 0


def _map(where: str, index: int, attempt: str) -> Page | None:
    if not (where.isascii() and where.isdigit()):
        return None
    fd = int(where)
    size = _page_size(fd)
    if not size:
        return None
    words = memoryview(mmap.mmap(fd, size)).cast("q")
    if not _fits(words, index, attempt):
        return None
    page = Page(words, index)
    return None if _held_by_another(page.slot[SLOT_PID]) else page


def _open(where: str, index: int, attempt: str) -> Page | None:
    from dsup_runtime.page_carriers import FileCarrier, open_page

    fd = open_page(where)
    size = _page_size(fd)
    carrier = FileCarrier(fd, index, size)
    words = memoryview(bytearray(carrier.read() or b"")).cast("q")
    if size and words.nbytes == size and _fits(words, index, attempt):
        page = Page(words, index, carrier)
        if carrier.hold(unsure=lambda: _held_by_another(page.slot[SLOT_PID])):
            return page
    carrier.close()
    return None


def _connect(where: str, index: int, attempt: str) -> Page | None:
    from dsup_runtime.page_carriers import SocketCarrier, connect

    token = contract.variable(contract.HEARTBEAT_TOKEN)
    hello = contract.HELLO.pack(
        contract.HELLO_MAGIC, int(attempt), index, token.encode()
    )
    connection, image = connect(where, hello)
    words = memoryview(bytearray(image)).cast("q")
    if _fits(words, index, attempt):
        return Page(words, index, SocketCarrier(connection, len(image)))
    connection.close()
    return None


_FINDERS = {"fd": _map, "file": _open, "tcp": _connect}


def _fits(words: memoryview[int], index: int, attempt: str) -> bool:
    """Return whether these are the words of this attempt's page, with such a slot."""
    slots = words[contract.HEADER_SLOTS]
    return (
        words[contract.HEADER_MAGIC] == contract.MAGIC
        and str(words[contract.HEADER_ATTEMPT]) == attempt
        and index < slots <= contract.SLOTS_MAX
        and words.nbytes == contract.page_bytes(slots)
    )


def _held_by_another(pid: int) -> bool:
    """Return whether a pid is that of another process that still runs."""
    if pid == os.getpid() or not 0 < pid <= _PID_MAX:
        return False
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        # Anything but "no such process" (or a mere thread) is no proof that it is gone.
        return error.errno not in {errno.ESRCH, errno.EINVAL, errno.ENOENT}
    try:
        ended = select.poll()
        ended.register(fd, select.POLLIN)  # a zombie is readable: it holds nothing
        return not ended.poll(0)
    finally:
        os.close(fd)
