"""Ends of workers, as every launcher tells them in one line.

Source: torch.distributed.elastic, torch.multiprocessing.spawn, Open MPI and PRRTE,
MPICH's Hydra, Intel MPI, Slurm's srun, deepspeed, composer, Lightning, Ray,
Kubernetes, bash; old and new forms of each.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dsup.facts.logs.kept import Kept
from dsup.facts.logs.launchers import retells
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.mpi_endings import MpiEndings, of_shell
from dsup.facts.logs.said import End, EndSource
from dsup.facts.logs.shown import shown
from dsup.facts.logs.summaries import Summaries

TASKS_MAX: Final = 256
_SIGKILL: Final = 9
_SIGTERM: Final = 15

_BASH: Final = {
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Aborted": signal.SIGABRT,
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
    "Trace/breakpoint trap": signal.SIGTRAP,
    "Hangup": signal.SIGHUP,
    "Interrupt": signal.SIGINT,
    "Out Of Memory": signal.SIGKILL,
}
"""What srun and bash call a signal."""

_WORDS: Final = tuple(_BASH)
_CALLED: Final = "CalledProcessError"
"""A launcher's, of a Python; a rank that ran another program raises it too."""


class Told(NamedTuple):
    """What a line tells of one end; see ``End``."""

    place: Place
    status: int | None
    source: EndSource
    by_launcher: bool = False


_Match = re.Match[str]
_Reader = Callable[[_Match, Place], Iterable[Told]]


def status_of(signal_name: str) -> int | None:
    """Return minus the number of a signal: ``SIGSEGV``, ``9``; None if unknown."""
    name = signal_name.strip()
    if name.isdigit():
        return -int(name[:3])
    found = getattr(signal, name, None)
    return -int(found) if isinstance(found, signal.Signals) else None


def _agent(found: _Match, place: Place) -> Iterable[Told]:
    local, pid = int(found[2]), int(found[3]) if found[3] else None
    rank = place.rank
    yield Told(Place(rank, local, place.node, pid, place.label), int(found[1]), "agent")


def _closing(found: _Match, place: Place) -> Iterable[Told]:
    yield Told(Place(pid=int(found[1]), node=place.node), None, "agent", True)


def _forced(found: _Match, place: Place) -> Iterable[Told]:
    yield Told(Place(pid=int(found[1]), node=place.node), -_SIGKILL, "agent", True)


def _spawned(found: _Match, place: Place) -> Iterable[Told]:
    status = int(found[3]) if found[3] else status_of(found[2] or "")
    yield Told(Place(local_rank=int(found[1]), node=place.node), status, "spawn")


def _tasks(found: _Match, place: Place) -> Iterable[Told]:
    del place
    said = found[3]
    code = re.search(r"Exited with exit code (\d{1,3})", said)
    number = next((n for word, n in _BASH.items() if word in said), None)
    if code is None and number is None:
        return
    status = of_shell(int(code[1])) if code else -int(number or 0)
    for task in numbers(found[2]):
        node = Place(node=found[1], label=f"task {task}")
        yield Told(node, status, "srun", status == -_SIGTERM)


def _deepspeed(found: _Match, place: Place) -> Iterable[Told]:
    yield Told(Place(node=place.node), int(found[1]), "deepspeed")


def _killing(found: _Match, place: Place) -> Iterable[Told]:
    yield Told(Place(pid=int(found[1]), node=place.node), None, "deepspeed", True)


def _ranked(found: _Match, place: Place) -> Iterable[Told]:
    del place
    yield Told(Place(rank=int(found[1])), int(found[2]), "other")


def _ranked_pid(found: _Match, place: Place) -> Iterable[Told]:
    del place
    whose = Place(rank=int(found[1]), pid=int(found[2]))
    yield Told(whose, int(found[3]), "other")


def _child(found: _Match, place: Place) -> Iterable[Told]:
    yield Told(place._replace(pid=int(found[1])), int(found[2]), "other")


def _called_signal(found: _Match, place: Place) -> Iterable[Told]:
    if place.rank is None and retells(_CALLED, found.string, launcher=False):
        yield Told(Place(node=place.node), status_of(found[1]), "other")


def _called_code(found: _Match, place: Place) -> Iterable[Told]:
    if place.rank is None and retells(_CALLED, found.string, launcher=False):
        yield Told(Place(node=place.node), int(found[1]), "other")


def _shell(found: _Match, place: Place) -> Iterable[Told]:
    whose = place._replace(pid=int(found[1]))
    yield Told(whose, -int(_BASH[found[2]]), "other", found[2] == "Terminated")


def _container(found: _Match, place: Place) -> Iterable[Told]:
    yield Told(place, of_shell(int(found[1])), "other")


def _gloo(found: _Match, place: Place) -> Iterable[Told]:
    del place
    yield Told(Place(rank=int(found[1])), of_shell(int(found[2])), "mpirun")


def _ray(found: _Match, place: Place) -> Iterable[Told]:
    yield Told(Place(rank=int(found[1]), node=place.node), None, "other")


def _box(found: _Match, place: Place) -> Iterable[Told]:
    whose = Place(local_rank=int(found[2]), pid=int(found[1]), node=place.node)
    yield Told(whose, int(found[3]), "agent")


_FORMS: Final[tuple[tuple[str, re.Pattern[str], _Reader], ...]] = (
    (
        "exitcode:",
        re.compile(
            r"\(exitcode: (-?\d{1,5})\) local_rank: (\d{1,6})\b"
            r"(?: \(pid: (\d{1,9})\))?"
        ),
        _agent,
    ),
    (
        "closing signal SIG",
        re.compile(r"Sending process (\d{1,9}) closing signal SIG"),
        _closing,
    ),
    (
        "forcefully exit",
        re.compile(r"Unable to shutdown process (\d{1,9}) via .{1,40}forcefully exit"),
        _forced,
    ),
    (
        "terminated with",
        re.compile(
            r"(?i:process) (\d{1,6}) terminated with "
            r"(?:signal (\w{1,20})|exit code (\d{1,5}))"
        ),
        _spawned,
    ),
    (
        "srun: error: ",
        re.compile(
            r"srun: error: ([\w.-]{1,255}): tasks? ([\d,-]{1,2000}): (.{1,200})"
        ),
        _tasks,
    ),
    (
        "exits with return code",
        re.compile(r"exits with return code = (-?\d{1,5})"),
        _deepspeed,
    ),
    ("Killing subprocess", re.compile(r"Killing subprocess (\d{1,9})"), _killing),
    (
        "crashed with exit code",
        re.compile(r"Rank (\d{1,6}) crashed with exit code (-?\d{1,5})"),
        _ranked,
    ),
    (
        "exited with code",
        re.compile(
            r"Global rank (\d{1,6}) \(PID (\d{1,9})\) exited with code (-?\d{1,5})"
        ),
        _ranked_pid,
    ),
    (
        "Child process with PID",
        re.compile(
            r"Child process with PID (\d{1,9}) terminated with code (-?\d{1,5})"
        ),
        _child,
    ),
    (
        "died with <Signals.",
        re.compile(r"died with <Signals\.(SIG\w{1,10}): \d{1,3}>"),
        _called_signal,
    ),
    (
        "returned non-zero exit status",
        re.compile(r"returned non-zero exit status (\d{1,5})"),
        _called_code,
    ),
    (
        ": line ",
        re.compile(r": line \d{1,9}: +(\d{1,9}) (" + "|".join(_WORDS) + r")\b"),
        _shell,
    ),
    (
        "exit with status code",
        re.compile(r"Process (\d{1,6}) exit with status code (\d{1,3})"),
        _gloo,
    ),
    ("has failed", re.compile(r"\bWorker (\d{1,6}) has failed\b"), _ray),
    (
        "(local_rank ",
        re.compile(
            r"(?i)process (\d{1,9}) \(local_rank (\d{1,6})\)"
            r" FAILED \(exitcode (-?\d{1,5})\)"
        ),
        _box,
    ),
    ("xit Code", re.compile(r"\bExit Code:? {0,16}(1[2-9]\d)\b"), _container),
    ("xit code", re.compile(r"(?i)\bexit code:? {0,16}(1[2-9]\d)\b"), _container),
    ("exitCode", re.compile(r"\bexitCode\"?: {0,4}(1[2-9]\d)\b"), _container),
)
"""Words that a line must have, the form that tells, and what it tells."""


def numbers(listed: str) -> list[int]:
    """Return the numbers of a list such as ``0-2,5``; at most 256."""
    found: list[int] = []
    for part in listed.split(","):
        low, _, high = part.partition("-")
        if low.isdigit():
            last = int(high) if high.isdigit() else int(low)
            found.extend(range(int(low), min(last, int(low) + TASKS_MAX) + 1))
        if len(found) >= TASKS_MAX:
            break
    return found[:TASKS_MAX]


class Endings:
    """The ends that lines tell of.

    Attributes:
        ends: all of them, in the order of their lines.
    """

    def __init__(self) -> None:
        self.ends: Kept[End] = Kept()
        self._summaries = Summaries(self.ends)
        self._mpi = MpiEndings(self.ends)
        self._stopping = False

    def goes_on(self, line: LogLine) -> bool:
        """Take in a line; return whether it goes on with what was begun before."""
        told = self._summaries.feed(line)
        return self._mpi.feed(line) or told

    def feed(self, line: LogLine) -> bool:
        """Take in a line; return whether a launcher says it."""
        text = line.text
        told = self._summaries.feed(line)
        if self._mpi.feed(line):
            return True
        if "srun: " in text or "CANCELLED AT" in text:
            self._stopping = self._stopping or _stops(text)
        for word, form, reader in _FORMS:
            if word in text:
                found = form.search(text)
                if found:
                    self._add(line, reader(found, line.place))
                    return True
        return told

    def _add(self, line: LogLine, told: Iterable[Told]) -> None:
        for place, status, source, by_launcher in told:
            # srun ends the other tasks once one has ended badly.
            stopped = source == "srun" and self._stopping and status == -_SIGKILL
            self.ends.add(
                End(
                    place,
                    status,
                    source,
                    shown(line.text),
                    line.file,
                    line.number,
                    line.order,
                    line.at_s,
                    by_launcher or stopped,
                )
            )

    def finish(self) -> None:
        """Note that no line follows."""
        self._summaries.finish()
        self._mpi.finish()


def _stops(text: str) -> bool:
    return any(
        word in text
        for word in ("Job step aborted", "CANCELLED AT", "Terminating", "orce")
    )
