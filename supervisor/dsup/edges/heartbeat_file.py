"""The heartbeat page in a file, for ranks that share a directory with the agent only.

The agent reads and writes it and never maps it: a rank that cut it short would end the
agent with SIGBUS. It is read and written where the run directory is; that must be a
file system that answers, as it is for the ranks' own sake.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from dsup_runtime import contract

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FIXED: Final = (
    contract.HEADER_MAGIC,
    contract.HEADER_ATTEMPT,
    contract.HEADER_SLOTS,
)
_TOLD: Final = (
    *(w for w in range(contract.HEADER_WORDS) if w != contract.HEADER_STOP_STEP),
    contract.HEADER_STOP_STEP,  # last: who sees it sees the others
)


class FileCarrier:
    """A page's file.

    Args:
        path: where to make it; nothing may be there yet.
        mode: its permissions.
        image: the page as it is at first.

    Attributes:
        where: what ``DSUP_HEARTBEAT`` says of it, but for the slot.
        token: empty: who may open the file is a rank.

    Raises:
        OSError: if it cannot be made, or has no room on the disk.
    """

    def __init__(self, path: str, mode: int, image: bytes) -> None:
        self.where = f"file:{path}"
        self.token = ""
        self._size = len(image)
        self._told = {word: _word(image, word) for word in self._own()}
        self._fd = os.open(path, _FLAGS, mode)
        try:
            # Written later it takes no room any more, on a disk that has become full.
            os.posix_fallocate(self._fd, 0, self._size)
            os.pwrite(self._fd, image, 0)
        except OSError:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise

    def pull(self, words: memoryview[int]) -> None:
        """Store what the file's slots say; what is no page any more says nothing.

        What ranks make of the file is their affair: it is read up to the page's size.
        """
        try:
            raw = os.pread(self._fd, self._size, 0)
        except OSError:
            return
        if len(raw) != self._size:
            return
        found = memoryview(raw).cast("q")
        if any(found[word] != words[word] for word in _FIXED):
            return
        first = contract.slot_offset(0)
        dead = first + contract.SLOT_DEAD
        marks = words[dead :: contract.SLOT_WORDS].tolist()
        words[first:] = found[first:]
        for slot, mark in enumerate(marks):
            words[dead + slot * contract.SLOT_WORDS] = mark

    def push(self, words: memoryview[int]) -> None:
        """Write the agent's words that have changed, each by itself."""
        image = bytes(words)
        for word in self._own():
            value = _word(image, word)
            if value != self._told[word]:
                with contextlib.suppress(OSError):
                    os.pwrite(self._fd, value, word * contract.WORD_BYTES)
                    self._told[word] = value

    def close(self) -> None:
        """Let the file go; it stays where it is."""
        os.close(self._fd)

    def _own(self) -> tuple[int, ...]:
        """Return the agent's words in the order in which they are told."""
        first = contract.slot_offset(0) + contract.SLOT_DEAD
        dead = range(first, self._size // contract.WORD_BYTES, contract.SLOT_WORDS)
        return (*dead, *_TOLD)


def _word(image: bytes, word: int) -> bytes:
    start = word * contract.WORD_BYTES
    return image[start : start + contract.WORD_BYTES]
