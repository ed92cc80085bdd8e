"""What a rank inherits of the agent, beside descriptors, and must not have.

The agent lowers itself before it spawns and comes back after: so no process, however
early a rank starts it, is ever born with what is the agent's alone.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Final

from dsup.linux import libc

OOM_SCORE_MAX: Final = 1000
_RAISED: Final = 10
_PATH: Final = "/proc/self/oom_score_adj"
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_LOWER: Final = 3
_CAP_SYSLOG: Final = 34
_VERSION_3: Final = 0x20080522
# Two halves of effective, permitted, inheritable: CAP_SYSLOG is in the second.
_HALVES: Final = struct.Struct("6I")
_INHERITABLE_AT: Final = 5
_SYSLOG_BIT: Final = 1 << (_CAP_SYSLOG - 32)


@contextlib.contextmanager
def of_ranks(oom_score: str) -> Iterator[None]:
    """Start ranks meanwhile.

    Args:
        oom_score: see ``oom_score_of_ranks``.
    """
    keep_syslog_to_oneself()
    with oom_score_of_ranks(oom_score):
        yield


def keep_syslog_to_oneself() -> None:
    """Have no program that is started from now on inherit CAP_SYSLOG.

    This process, and what it forks, keeps it. Other ambient capabilities are the
    user's wish for the ranks.
    """
    libc.call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, _CAP_SYSLOG, 0, 0)
    head, sets = struct.pack("Ii", _VERSION_3, 0), bytes(_HALVES.size)
    # The buffers are written to: they are this call's own, and nobody else's.
    if libc.call("capget", head, sets) == 0:
        values = list(_HALVES.unpack(sets))
        values[_INHERITABLE_AT] &= ~_SYSLOG_BIT
        libc.call("capset", head, _HALVES.pack(*values))


@contextlib.contextmanager
def oom_score_of_ranks(wanted: str) -> Iterator[None]:
    """Have what is started meanwhile be killed for memory before this process.

    Args:
        wanted: oom_score_adj of the ranks; empty for a little more than this process
            has, unless that is above 0 already: then somebody chose it for all.
    """
    own = _read()
    theirs = score(own, wanted)
    if theirs == own:
        yield
        return
    _write(theirs)
    try:
        yield
    finally:
        _write(own)


def score(own: int, wanted: str) -> int:
    """Return the ranks' score; lower than this process's it can not be made.

    Args:
        own: this process's.
        wanted: see ``oom_score_of_ranks``; anything but a score counts as empty.
    """
    digits = wanted.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len("1000")
    if is_number and int(digits) <= OOM_SCORE_MAX:
        return max(own, int(wanted))
    return own if own > 0 else own + _RAISED


def _read() -> int:
    try:
        fd = os.open(_PATH, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return OOM_SCORE_MAX
    try:
        return int(os.read(fd, 16))
    except (OSError, ValueError):
        return OOM_SCORE_MAX
    finally:
        os.close(fd)


def _write(score: int) -> None:
    """Set the score; coming back to one that was given needs no rights."""
    with contextlib.suppress(OSError):
        fd = os.open(_PATH, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % score)
        finally:
            os.close(fd)
