"""The signal at which a rank writes its Python stacks itself, from C.

It is sent only to a process that is proven to have a handler for it and the very memory
file that it is to write into: any other would die of it, or write into its own files.

faulthandler stops at a hundred threads, and the main one is the last: where it is left
out, a second signal has it written alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from dsup.linux import proc
from dsup.linux.signals import send_pinned
from dsup_runtime import contract

DEAF: Final = frozenset("TtDZX")
"""States in which a process takes no signal."""

_LOOK_S: Final = 0.005
_MAIN: Final = (b"Current thread", b"Stack (most recent call first)")
_FULL_BYTES: Final = contract.STACKS_MAX_BYTES - 4096
"""A file that is so full takes no further line."""

_CUT: Final = b"\n...\n"
"""How a dump ends that faulthandler has cut."""


class Target(NamedTuple):
    """A rank that runs.

    Attributes:
        pid: of the process that was started for it.
        stacks: the memory file it writes into; -1 for none.
    """

    rank: int
    pid: int
    stacks: int


def told(
    targets: Collection[Target],
    kin: Mapping[int, list[int]],
    number: int,
    until_s: float,
) -> dict[int, tuple[int, bytes]]:
    """Have ranks write their stacks; return the pid and the dump of each that did.

    Args:
        targets: the ranks.
        kin: of each, its process and those below it, parents first.
        number: where they have their memory file.
        until_s: when to give up, agent clock, seconds.
    """
    listeners = {one: _listener(one, kin[one.rank], number) for one in targets}
    asked = {
        one: pid
        for one, pid in listeners.items()
        if pid and _ask(one, pid, number, contract.STACKS_SIGNAL)
    }
    dumps = _answers(asked, until_s)
    headless = {
        one: asked[one]
        for one, dump in dumps.items()
        if not has_main(dump)
        and proc.takes(asked[one], contract.MAIN_STACK_SIGNAL)
        and _ask(one, asked[one], number, contract.MAIN_STACK_SIGNAL)
    }
    mains = _answers(headless, until_s)
    return {
        one.rank: (asked[one], mains.get(one, b"") + dump)
        for one, dump in dumps.items()
    }


def has_main(dump: bytes) -> bool:
    """Return whether the main thread is in a dump."""
    return any(head in dump for head in _MAIN)


def is_whole(dump: bytes, most: int) -> bool:
    """Return whether nothing more will come of a dump.

    Args:
        dump: what has been written until now.
        most: so many bytes it could be long.
    """
    return has_main(dump) or dump.endswith(_CUT) or len(dump) >= most


def _answers(asked: Mapping[Target, int], until_s: float) -> dict[Target, bytes]:
    """Return the dump of each rank that has written one in time."""
    dumps: dict[Target, bytes] = {}
    positions: dict[int, int] = {}
    while len(dumps) < len(asked) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        for one in asked.keys() - dumps.keys():
            if dump := _written(one.stacks, positions):
                dumps[one] = dump
    return dumps


def _listener(one: Target, family: list[int], number: int) -> int:
    """Return the process that can write a rank's stacks now; 0 for none.

    Whoever started a script through a shell, or another program, has it as the first
    process below that one that has the handler. A forked helper has it as well: so the
    first one is asked, or nobody.
    """
    if one.stacks < 0:
        return 0
    file = os.fstat(one.stacks)
    for pid in family:
        if proc.catches(pid, contract.STACKS_SIGNAL) and proc.holds(pid, number, file):
            found = proc.stat(pid)
            ready = found is not None and found.state not in DEAF
            return pid if ready and proc.takes(pid, contract.STACKS_SIGNAL) else 0
    return 0


def _ask(one: Target, pid: int, number: int, signum: int) -> bool:
    """Send the signal; return whether it was sent to whom it was meant for."""

    def is_meant() -> bool:
        # Once more, now that the number cannot become another process's.
        if not proc.holds(pid, number, os.fstat(one.stacks)):
            return False
        os.lseek(one.stacks, 0, os.SEEK_SET)
        return True

    return send_pinned(pid, signum, is_meant)


def _written(fd: int, positions: dict[int, int]) -> bytes:
    """Return a dump that has not grown since the last look; nothing before that.

    Args:
        fd: the memory file; its position is where the rank writes on.
        positions: as it was at the last look.
    """
    size = min(os.lseek(fd, 0, os.SEEK_CUR), contract.STACKS_MAX_BYTES)
    before, positions[fd] = positions.get(fd), size
    if size <= 0 or size != before:
        return b""
    dump = os.pread(fd, size, 0)
    return dump if is_whole(dump, _FULL_BYTES) else b""
