"""What the kernel refuses dsup itself: the cause it counts as, and what helps.

Whoever has run out of descriptors can import nothing, so this is there from the start.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_HELPS: Final = {
    errno.EAGAIN: "raise the limit of processes: ulimit -u, pids.max",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
    errno.ENFILE: "raise the limit of open files: fs.file-max",
}
_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)


def told(what: str, error: OSError) -> tuple[str, str]:
    """Return the cause that stands for a refusal, and what is said of it.

    Args:
        what: dsup wanted to do, as in ``start rank 0``.
        error: the kernel's answer.
    """
    # A later attempt of the same agent would meet the same full table.
    cause = "spawn_error" if error.errno in _OF_FILES else "pids_limit"
    return cause, f"cannot {what}, because {reason(error)}"


def reason(error: OSError) -> str:
    """Return a refusal in words, with what helps against it."""
    number = error.errno or errno.EIO
    advice = f" ({_HELPS[number]})" if number in _HELPS else ""
    return f"{os.strerror(number).lower()}{advice}"
