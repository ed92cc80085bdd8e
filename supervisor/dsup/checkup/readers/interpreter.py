"""The job's Python, asked by a process of its own; torch is looked at, not imported."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

from dsup.checkup.readings import Interpreter
from dsup.core.printable import printable
from dsup.linux import libc

_PR_SET_PDEATHSIG: Final = 1
LIMIT_S: Final = 4.5
_ASK: Final = """
import importlib.metadata, importlib.util, json, os, platform, re
torch = cuda = ""
try:
    torch = importlib.metadata.version("torch")
    found = importlib.util.find_spec("torch")
    folder = os.path.dirname(found.origin)
    text = open(os.path.join(folder, "version.py"), encoding="utf-8").read(65536)
    told = re.search(r"^cuda\\b[^=\\n]*=\\s*['\\"]([0-9.]+)", text, re.M)
    cuda = told[1] if told else ""
except Exception:
    pass
print(json.dumps([platform.python_version(), torch, cuda]))
"""
_SAID_MAX_CHARS: Final = 200
_WORDS_MAX_CHARS: Final = 64


def interpreter(python: str, environment: Mapping[str, str]) -> Interpreter:
    """Return what a Python says of itself.

    Args:
        python: the program.
        environment: it gets this one.
    """
    try:
        done = subprocess.run(  # noqa: S603 (the program that the ranks will run)
            [python, "-c", _ASK],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
            preexec_fn=_die_with_parent,
        )
    except subprocess.TimeoutExpired:
        return Interpreter(error=f"it did not answer within {LIMIT_S:g} s")
    except (OSError, ValueError) as error:
        return Interpreter(error=str(getattr(error, "strerror", error)).lower())
    try:
        words = json.loads(done.stdout.splitlines()[-1])
        return Interpreter(*(printable(str(w))[:_WORDS_MAX_CHARS] for w in words))
    except (IndexError, TypeError, ValueError):
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Interpreter(
            error=printable(said)[:_SAID_MAX_CHARS]
            or f"it ended with {done.returncode}"
        )


def _die_with_parent() -> None:
    """Have the kernel end it with a reader that is given up."""
    libc.call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
