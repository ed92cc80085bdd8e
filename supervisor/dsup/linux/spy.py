"""py-spy: reads the Python stacks of a process from outside, if it is installed.

It reads the process's memory and neither stops it nor runs code in it, unless native
frames are asked for. The kernel must allow that: the same user, and what a security
module says (Yama lets only parents, and root, look).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from dsup.linux import libc

NAME: Final = "py-spy"
INSTALL: Final = "pip install py-spy"

_PR_SET_PDEATHSIG: Final = 1
_WHY_MAX_CHARS: Final = 200


def find(path: str, interpreter: str = sys.executable) -> str:
    """Return where py-spy is; empty if it is not installed.

    Args:
        path: the user's PATH.
        interpreter: it is looked for beside this one first: a virtual environment's
            programs need not be in PATH.
    """
    own = os.path.dirname(interpreter)
    for directory in (own, *path.split(os.pathsep)):
        program = os.path.join(directory, NAME)
        if directory and os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    return ""


def dump(
    program: str, pid: int, timeout_s: float, *, native: bool = False
) -> tuple[bytes, str]:
    """Return what py-spy prints of a process, as JSON, and else why it does not.

    Args:
        program: from ``find``.
        pid: the process.
        timeout_s: it is killed after so long.
        native: frames of C code, too; the process is stopped for some milliseconds.
    """
    import subprocess

    how = "--native" if native else "--nonblocking"
    command = [program, "dump", "--json", how, "--pid", str(pid)]
    try:
        done = subprocess.run(  # noqa: S603 (a program that was looked for)
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(timeout_s, 0.0),
            check=False,
            preexec_fn=_die_with_parent,
        )
    except subprocess.TimeoutExpired:
        return b"", f"{NAME} did not answer in time"
    except OSError as error:
        return b"", f"{NAME} does not start: {(error.strerror or '?').lower()}"
    if done.returncode == 0:
        return done.stdout, ""
    return b"", f"{NAME}: {_reason(done.stderr)}"


def _reason(stderr: bytes) -> str:
    """Return the first thing that it says, without the frames of its own."""
    lines = stderr.decode(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip() and line != "Error:"]
    first = said[0].removeprefix("Error: ") if said else "it says nothing"
    return first[:_WHY_MAX_CHARS]


def _die_with_parent() -> None:
    """Have the kernel kill it with the one that waits for it."""
    libc.call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
