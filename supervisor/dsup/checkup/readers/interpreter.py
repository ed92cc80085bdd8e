"""The job's Python, asked by a process of its own; torch is looked at, not imported."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Final

from dsup.checkup.readings import Interpreter
from dsup.core.printable import printable
from dsup.linux import libc

_PR_SET_PDEATHSIG: Final = 1
LIMIT_S: Final = 9.0
"""A cold file system, or a container that is started for it, takes seconds."""

_ASK: Final = """
import sys
sys.path[:] = [place for place in sys.path if place]
torch = cuda = ""
try:
    import importlib.metadata, importlib.util, os, re
    torch = importlib.metadata.version("torch")
    found = importlib.util.find_spec("torch")
    folder = os.path.dirname(found.origin)
    text = open(os.path.join(folder, "version.py"), encoding="utf-8").read(65536)
    told = re.search(r"^cuda\\b[^=\\n]*=\\s*['\\"]([0-9.]+)", text, re.M)
    cuda = told[1] if told else ""
except BaseException:
    pass
version = ".".join(map(str, sys.version_info[:3]))
print(sys.argv[1] + "\\t".join([version, str(torch or ""), cuda]) + sys.argv[1])
"""
"""What lies in the working directory is left out: a ``re.py`` there would be taken."""

_MARK_BYTES: Final = 8
_SAID_MAX_BYTES: Final = 1 << 20
_SAID_MAX_CHARS: Final = 200
_WORDS_MAX_CHARS: Final = 64
_WORDS: Final = 3
_END_S: Final = 0.5
_NO_PROGRAM: Final = frozenset(
    {
        errno.ENOENT,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.ENOTDIR,
        errno.ELOOP,
        errno.EISDIR,
    }
)
"""What starting says of the program; all else is said of the moment."""


def interpreter(
    python: str, environment: Mapping[str, str], limit_s: float = LIMIT_S
) -> Interpreter:
    """Return what a Python says of itself.

    Args:
        python: the program.
        environment: it gets this one.
        limit_s: what that may take.
    """
    mark = os.urandom(_MARK_BYTES).hex()
    until_s = time.monotonic() + limit_s
    try:
        asked = subprocess.Popen(  # noqa: S603 (the program that the ranks will run)
            [python, "-c", _ASK, mark],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 (a reader has no threads)
        )
    except (OSError, ValueError) as error:
        return _not_started(error)
    try:
        said = _said(asked, mark.encode(), until_s)
        words = _between(said, mark.encode())
        return Interpreter(*words) if words else _no_answer(asked, said, until_s)
    finally:
        _end(asked)


def _said(asked: subprocess.Popen[bytes], mark: bytes, until_s: float) -> bytes:
    """Return what it prints, until it has answered, has ended, or its time is over."""
    said = b""
    fd = asked.stdout.fileno() if asked.stdout else -1
    while len(said) < _SAID_MAX_BYTES and said.count(mark) < 2:  # noqa: PLR2004
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
            break
        part = os.read(fd, 1 << 16)
        if not part:
            break
        said += part
    return said


def _between(said: bytes, mark: bytes) -> list[str]:
    """Return the words of an answer, whatever a wrapper printed around it."""
    text, end, _ = said.partition(mark)[2].partition(mark)
    words = text.decode(errors="replace").split("\t")
    if not end or len(words) != _WORDS:
        return []
    return [printable(word)[:_WORDS_MAX_CHARS] for word in words]


def _no_answer(
    asked: subprocess.Popen[bytes], said: bytes, until_s: float
) -> Interpreter:
    """Return why there is none: bad is only what ends by itself, and says so."""
    try:
        code = asked.wait(max(0.0, until_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return Interpreter(unclear="it did not answer in time")
    if code < 0:
        return Interpreter(unclear=f"it was ended by signal {-code}")
    if not code:
        return Interpreter(unclear="it ended without an answer")
    last = said.decode(errors="replace").strip().rpartition("\n")[2]
    return Interpreter(
        error=printable(last)[:_SAID_MAX_CHARS] or f"it ended with {code}"
    )


def _not_started(error: OSError | ValueError) -> Interpreter:
    reason = str(getattr(error, "strerror", None) or error).lower()
    if getattr(error, "errno", errno.ENOENT) in _NO_PROGRAM:
        return Interpreter(error=reason)
    return Interpreter(unclear=reason)


def _end(asked: subprocess.Popen[bytes]) -> None:
    """Kill it; one that hangs in the kernel is not waited for."""
    asked.kill()
    if asked.stdout:
        asked.stdout.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        asked.wait(_END_S)


def _die_with_parent() -> None:
    """Have the kernel end it with a reader that is given up."""
    libc.call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
