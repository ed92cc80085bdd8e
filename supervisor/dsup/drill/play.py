"""Plays one scenario: launches a job, breaks it, and looks what comes of that."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dsup.core import events as ev
from dsup.core import journal
from dsup.core.errors import JournalError
from dsup.drill import judging
from dsup.drill.judging import Seen, Times, Word
from dsup.drill.place import MissedError, Place, agent_of, exit_code
from dsup.drill.scenarios import Scenario
from dsup.linux import tree
from dsup_runtime import contract

_STEP_S: Final = 60.0
"""So long anything may take that takes a moment on an idle node."""

_KMSG: Final = "/dev/kmsg"
_FOREVER_S: Final = 300


class SkippedError(Exception):
    """A scenario cannot be had here."""


class _Break(NamedTuple):
    """How a job was broken.

    Attributes:
        at_s: when, monotonic, seconds.
        newest: step of the newest whole checkpoint then.
        lines: how many lines the ranks had told.
    """

    at_s: float
    newest: int
    lines: int


def play(scenario: Scenario, place: Place, ranks: int) -> Seen:
    """Play a scenario to its end.

    Args:
        scenario: which.
        place: where, empty.
        ranks: of the job.

    Raises:
        SkippedError: this machine does not let it happen.
        MissedError: it stopped short.
        AbandonedError: the drill is to end.
    """
    _refuse_blind(scenario)
    options = _options(scenario, ranks)
    job = place.launch(*options)
    place.until(
        lambda: place.told("ready"), "the job took its first steps", job, _STEP_S
    )
    if scenario.harmed == "rank":
        return _after_restart(scenario, place, job)
    return _after_relaunch(scenario, place, job, options)


def _options(scenario: Scenario, ranks: int) -> tuple[str, ...]:
    limit_s = scenario.hang_after_s
    return (
        *("--nproc", str(ranks), "--max-restarts", "1", "--backoff", "0"),
        *("--hang-after", f"init={_FOREVER_S},train={limit_s}"),
        *("--stop-after", str(_FOREVER_S), "--shutdown-timeout", "5"),
    )


def _after_restart(
    scenario: Scenario, place: Place, job: subprocess.Popen[bytes]
) -> Seen:
    """Harm a rank; return what dsup makes of it."""
    fault = _harm_rank(scenario, place, job)
    first = _finished(place, job, fault.lines)
    [run_dir] = place.run_dirs()
    happened = events(run_dir)
    times = judging.times(happened, 0, fault.at_s, first["at_s"])
    return _seen(place, run_dir, job, fault, first)._replace(times=times)


def _after_relaunch(
    scenario: Scenario,
    place: Place,
    job: subprocess.Popen[bytes],
    options: tuple[str, ...],
) -> Seen:
    """Kill one half of dsup, see that all is gone, and launch again."""
    from dsup_runtime import checkpoints

    [run_dir] = place.run_dirs()
    victim = job.pid if scenario.harmed == "guard" else agent_of(job)
    newest = checkpoints.newest_valid(place.checkpoints).newest
    fault = _Break(time.monotonic(), newest.step if newest else 0, len(place.lines()))
    if victim is None or not tree.send(victim, signal.SIGKILL):
        raise MissedError(f"there was no {scenario.harmed} to kill")
    place.until(
        lambda: job.poll() is not None and not place.left(),
        "the job was gone, and all it had made",
        limit_s=_STEP_S,
    )
    gone_s = time.monotonic()
    again = place.launch(*options)
    name = os.path.basename(run_dir)
    place.until(
        lambda: place.says(f"the run before, {name}, ended"),
        "the second launch told of the first",
        again,
        _STEP_S,
    )
    first = _finished(place, again, fault.lines)
    times = Times(None, gone_s - fault.at_s, first["at_s"] - gone_s)
    seen = _seen(place, run_dir, again, fault, first)
    return seen._replace(times=times)


def _harm_rank(
    scenario: Scenario, place: Place, job: subprocess.Popen[bytes]
) -> _Break:
    """Have a rank do what the scenario is about.

    Raises:
        SkippedError: it may not.
    """
    lines = len(place.lines())
    place.order(str(scenario.victim), scenario.name)
    [told, *_] = place.until(
        lambda: place.told("fault") or place.told("refused"),
        "the rank did it",
        job,
        _STEP_S,
    )
    if told["what"] == "refused":
        place.order("finish")
        place.until(lambda: job.poll() is not None, "the job ended", limit_s=_STEP_S)
        raise SkippedError(str(told["why"]))
    return _Break(told["at_s"], told["newest"], lines)


def _finished(
    place: Place, job: subprocess.Popen[bytes], since: int
) -> Mapping[str, Any]:
    """Let a job that has come back end well; return its first step."""
    place.until(lambda: place.told("ready", since), "training went on", job, _STEP_S)
    place.order("finish")
    place.until(lambda: job.poll() is not None, "the job ended", limit_s=_STEP_S)
    return place.told("first", since)[-1]


def _seen(
    place: Place,
    run_dir: str,
    job: subprocess.Popen[bytes],
    fault: _Break,
    first: Mapping[str, Any],
) -> Seen:
    with suppress(MissedError):
        place.until(lambda: not place.left(), "nothing was left", limit_s=_STEP_S)
    verdicts = place.verdicts(run_dir)
    more = f"dsup diagnose tells of {len(verdicts)} failures, not of one"
    return Seen(
        word=_word(verdicts[-1]) if verdicts else None,
        code=exit_code(job),
        newest=fault.newest,
        resumed=first["step"] - 1,
        left=(*place.left(), *([more] if verdicts[1:] else [])),
    )


def _word(verdict: Mapping[str, Any]) -> Word:
    return Word(
        verdict["cause"],
        tuple(verdict["first_ranks"]),
        verdict["certainty"],
        verdict["summary"],
    )


def events(run_dir: str) -> Iterator[ev.Event]:
    """Yield the events of a run's journal that do not fill it."""
    path = os.path.join(run_dir, contract.JOURNAL_FILE)
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if journal.often(line.rstrip("\n")) is None:
                with suppress(JournalError):  # the header
                    event = journal.decode(line).event
                    if event is not None:
                        yield event


def _refuse_blind(scenario: Scenario) -> None:
    """Refuse what nobody could prove here.

    Raises:
        SkippedError: the kernel log would have to be read, and cannot be.
    """
    if scenario.name != "oom":
        return
    try:
        os.close(os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SkippedError(f"needs the kernel log ({reason})") from None
