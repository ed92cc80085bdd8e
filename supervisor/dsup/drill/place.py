"""Where one scenario is played: a directory, the jobs launched in it, their ranks.

The ranks' side of the files is ``job/exchange.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from dsup.core.printable import printable
from dsup.linux import proc, tree

T = TypeVar("T")

_LOOK_S: Final = 0.01
_LOOKS: Final = 16
_WORDS: Final = ("environ", "cmdline")
_CLEAR_S: Final = 30.0
_NOT_OURS: Final = ("DSUP_", "PET_", "TORCHELASTIC_", "MASTER_", "PYTHON_EXEC")
_NOT_FOR_A_JOB: Final = frozenset(
    ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID", "RANK")
)
_JOB: Final = os.path.join(os.path.dirname(__file__), "job")
_SCRIPT: Final = "train.py"
_CONSOLE: Final = "console.log"
_RUN_MAX_S: Final = 300
"""A job that nobody looks after any more ends itself after so long."""

_FORGET_GROUPS: Final = "from dsup_runtime import oom; oom.remove_dead_groups()"


class AbandonedError(Exception):
    """The drill was interrupted."""


class MissedError(Exception):
    """Something did not happen in time, or ended before it could."""


class Place:
    """A scenario's directory.

    Args:
        home: the directory; made here.
        environment: of the jobs, but for what would change how they are launched.
        abandoned: set once the drill is to end.
    """

    def __init__(
        self, home: str, environment: Mapping[str, str], abandoned: threading.Event
    ) -> None:
        self.home = home
        self.runs = os.path.join(home, "runs")
        self.checkpoints = os.path.join(home, "checkpoints")
        self._temporary = os.path.join(home, "tmp")
        self._job = os.path.join(home, "job")
        self._environment = environment
        self._abandoned = abandoned
        self._jobs: list[subprocess.Popen[bytes]] = []
        for name in ("orders", "tmp", "runs"):
            os.makedirs(os.path.join(home, name))
        # What is installed is a library to dsup; a user's script is not.
        shutil.copytree(_JOB, self._job, ignore=shutil.ignore_patterns("__pycache__"))

    def launch(
        self, *options: str, job: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """Launch the job as a user does.

        Args:
            *options: of ``dsup launch``.
            job: more arguments of the job's own.
        """
        argv = [
            *(sys.executable, "-m", "dsup", "launch"),
            *("--log-dir", self.runs, "--checkpoint-dir", self.checkpoints),
            *options,
            *(os.path.join(self._job, _SCRIPT), self.home, *job),
        ]
        with open(os.path.join(self.home, _CONSOLE), "ab") as console:
            launched = subprocess.Popen(  # noqa: S603 (this interpreter, and our own job)
                argv,
                env=self._cleaned(),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        self._jobs.append(launched)
        return launched

    def order(self, who: str, what: str = "") -> None:
        """Have a rank do something at its next step, or all ``finish``."""
        path = os.path.join(self.home, "orders", who)
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(what)
        os.rename(f"{path}.new", path)

    def told(self, what: str, since: int = 0) -> list[Mapping[str, Any]]:
        """Return what the ranks have told of a kind, but for so many first lines."""
        return [line for line in self.lines()[since:] if line["what"] == what]

    def lines(self) -> list[Mapping[str, Any]]:
        """Return all that the ranks have told, each with what, rank and when."""
        try:
            with open(os.path.join(self.home, "told.jsonl"), encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def last_line(self) -> str:
        """Return the last line on the consoles of the jobs that is dsup's own."""
        own = self._own_lines()
        return printable(own[-1].strip()) if own else ""

    def says(self, words: str) -> bool:
        """Return whether dsup has said a line with these words."""
        return any(words in line for line in self._own_lines())

    def _own_lines(self) -> list[str]:
        try:
            with open(os.path.join(self.home, _CONSOLE), errors="replace") as console:
                return [line for line in console if line.startswith("dsup: ")]
        except FileNotFoundError:
            return []

    def run_dirs(self) -> list[str]:
        """Return the directories of the runs; those of one second in any order."""
        return [os.path.join(self.runs, name) for name in sorted(os.listdir(self.runs))]

    def until(
        self,
        condition: Callable[[], T],
        what: str,
        job: subprocess.Popen[bytes] | None = None,
        limit_s: float = _RUN_MAX_S,
    ) -> T:
        """Return the first true value of a condition.

        Args:
            condition: looked at again and again.
            what: must happen, as a sentence.
            job: without which it never will.
            limit_s: how long it may take, seconds.

        Raises:
            MissedError: it does not, or the job has ended.
            AbandonedError: the drill is to end.
        """
        end_s = time.monotonic() + limit_s
        while True:
            over = job is not None and job.poll() is not None
            if value := condition():
                return value
            if over and job is not None:
                code = exit_code(job)
                raise MissedError(f"it never came about that {what} (exit code {code})")
            if time.monotonic() > end_s:
                raise MissedError(
                    f"it did not come about within {limit_s:.0f} s that {what}"
                )
            if self._abandoned.wait(_LOOK_S):
                raise AbandonedError

    def left(self) -> tuple[str, ...]:
        """Return in words what the jobs have left behind."""
        processes = [f"process {pid} is left: {_line(pid)}" for pid in self.processes()]
        files = os.listdir(self._temporary)
        return (*processes, *(f"the temporary {name} is left" for name in files))

    def processes(self) -> list[int]:
        """Return the living processes of this place: descendants that name it."""
        mark = os.fsencode(os.path.join(self.home, ""))
        return tree.alive(which=lambda pid: mark in _words(pid))

    def clear(self) -> None:
        """End whatever is left of the jobs; what does not end is left as it is."""
        end_s = time.monotonic() + _CLEAR_S
        while (found := self.processes()) and time.monotonic() < end_s:
            for pid in found:
                tree.send(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        for job in self._jobs:
            with suppress(subprocess.TimeoutExpired):
                job.wait(max(_LOOK_S, end_s - time.monotonic()))

    def verdicts(self, run_dir: str) -> list[Mapping[str, Any]]:
        """Return what ``dsup diagnose`` says of a run.

        Raises:
            MissedError: it says nothing.
        """
        done = subprocess.run(  # noqa: S603 (this interpreter)
            [sys.executable, "-m", "dsup", "diagnose", run_dir, "--json"],
            env=self._cleaned(),
            capture_output=True,
            check=False,
        )
        try:
            return list(json.loads(done.stdout)["verdicts"])
        except (ValueError, LookupError, TypeError):
            said = printable(done.stderr.decode(errors="replace").strip())
            raise MissedError(f"dsup diagnose said no verdict: {said}") from None

    def forget_groups(self) -> None:
        """Remove the cgroups of ranks that died in one of their own."""
        forget = [sys.executable, "-c", _FORGET_GROUPS]
        subprocess.run(forget, env=self._cleaned(), check=False)  # noqa: S603 (ours)

    def _cleaned(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self._environment.items()
            if not name.startswith(_NOT_OURS) and name not in _NOT_FOR_A_JOB
        }
        return {**kept, "TMPDIR": self._temporary}


def agent_of(job: subprocess.Popen[bytes]) -> int | None:
    """Return the pid of a job's agent: the first child of its guard."""
    found = proc.main_children(job.pid)
    return found[0] if found else None


def exit_code(job: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a job that has ended, as a shell shows it."""
    code = job.returncode
    return code if code >= 0 else 128 - code


def _words(pid: int) -> bytes:
    """Return a process's environment and arguments.

    While it changes from one program to the next there are none, for a moment.
    """
    words = b""
    for _ in range(_LOOKS):
        words = b"".join(proc.read_bytes(f"/proc/{pid}/{name}") for name in _WORDS)
        if words or not proc.is_alive(pid):
            break
        time.sleep(_LOOK_S)
    return words


def _line(pid: int) -> str:
    words = proc.read_text(f"/proc/{pid}/cmdline").split("\0")
    return printable(" ".join(words)).strip()
