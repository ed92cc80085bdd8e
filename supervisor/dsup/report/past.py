"""``dsup.status/1`` of a run that cannot be asked: made from what its directory holds.

Pure. It tells of the run's last moment; what nobody wrote down is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dsup.attribution.growth import curves
from dsup.core import events as ev
from dsup.core import journal
from dsup.core.errors import JournalError
from dsup.core.exits import SIGINT, stop_code
from dsup.core.state import Spec
from dsup.core.verdict import Verdict
from dsup.facts.samples import Sample
from dsup.report import account, growing, snapshot
from dsup.report.account import Account
from dsup.report.life import first_failure, new_life
from dsup.report.rank_rows import how_it_ended
from dsup.report.slots import Slots

_OUTCOMES: Final[Mapping[account.State, str]] = {
    "running": "running",
    "finished": "succeeded",
    "failed": "failed",
    "stopped": "stopped",
    "gone": "lost",
}
_WORTH_IT: Final = ('"launched"', '"rank_started"', '"step"', '"took_over"')
_RANKS_MAX: Final = 4096
_UNMEASURED: Final = ("beat_age_s", "step_age_s", "cpu_percent", "ecc")


class Past(NamedTuple):
    """What a run directory tells.

    Attributes:
        name: which run it is.
        told: what its journal tells.
        lines: the journal.
        alive: a scribe holds the journal; None where nobody can tell.
        began_s: a moment shortly after the run began, on its agent's clock, seconds;
            None if unknown.
        offset_s: CLOCK_REALTIME minus that clock, seconds; None if unknown.
        written_s: when the journal was last written, CLOCK_REALTIME, seconds.
        verdicts: of failed attempts, oldest first; their times are CLOCK_REALTIME.
        page: the heartbeat page of the last attempt, as it was kept; empty for none.
        samples: of the last attempt, oldest first.
    """

    name: snapshot.Name
    told: Account
    lines: Sequence[str]
    alive: bool | None
    began_s: float | None
    offset_s: float | None
    written_s: float
    verdicts: Sequence[Verdict] = ()
    page: bytes = b""
    samples: Sequence[Sample] = ()


class _Course(NamedTuple):
    """What the lines tell beside the account.

    Attributes:
        began_s: when the run began.
        starts_s: when the ranks of each attempt were started.
        progressed: attempts that have a step which no earlier one had.
        step: the last that was told.
        checkpoint: step of the newest checkpoint found.
        best: the highest that was told, by this run or one that it took over.
        taken: failures in a row of the run that it took over.
    """

    began_s: float | None = None
    starts_s: Mapping[int, float] = {}
    progressed: frozenset[int] = frozenset()
    step: int | None = None
    checkpoint: int | None = None
    best: int | None = None
    taken: int = 0


def document(past: Past, ledger: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the status document of a run that cannot be asked.

    Args:
        past: what its directory tells.
        ledger: where the time went; None if nobody counted.
    """
    told, last = past.told, past.told.last
    over_s = last.at_s if last else None
    spec, course = _spec(past.lines), _course(past.lines, past.began_s)
    used = _failures(told, spec, course, told.attempt)
    since_s = past.samples[-1].at_s - snapshot.WINDOW_S if past.samples else 0.0
    recent = [one for one in past.samples if one.at_s >= since_s]
    rows = _ranks(past, recent)
    outcome = _OUTCOMES[account.state(told, past.alive)]
    ended = (told.end.code, told.end.origin) if told.end and not told.gone else None
    wall_s = past.written_s
    if over_s is not None and past.offset_s is not None:
        wall_s = over_s + past.offset_s
    return {
        **snapshot.head(past.name, wall_s),
        "live": False,
        "outcome": outcome,
        "lost": _lost(told) if outcome == "lost" else None,
        "stage": "over" if ended else None,
        "attempt": told.attempt,
        "run_s": _between(course.began_s, over_s),
        "attempt_s": _between(course.starts_s.get(told.attempt), over_s),
        "world_size": told.world_size,
        "alive": sum(row["state"] == "alive" for row in rows),
        "restarts": {"used": used, "limit": _limit(spec, course)},
        "step": course.step,
        "steps_per_s": None,
        "checkpoint": snapshot.checkpoint(
            course.checkpoint,
            Slots(past.page),
            min(told.world_size, _RANKS_MAX),
            over_s or 0.0,
        ),
        "pause_left_s": None,
        "stop": _stop(told),
        "memory": growing.of_cgroup(recent),
        "ledger": ledger,
        "ranks": rows,
        "attempts": snapshot.attempts(past.verdicts, 0.0),
        "exit": snapshot.exit_of(ended),
    }


def _lost(told: Account) -> str:
    """Return which of dsup's processes has gone: the journal tells of the guard."""
    return "guard" if told.guard_lost else "agent"


def _course(lines: Iterable[str], began_s: float | None) -> _Course:
    """Return what the lines tell; those that cannot be read are passed over."""
    course, starts_s = _Course(began_s), dict[int, float]()
    for event in map(_event, lines):
        match event:
            case ev.Launched():
                course = course._replace(began_s=event.at_s)
            case ev.RankStarted():
                starts_s.setdefault(event.attempt, event.at_s)
            case ev.Progressed():
                course = _reached(course, event)
            case ev.Stepped():
                course = _reached(course, event)
            case ev.TookOver():
                course = _taken_over(course, event)
            case ev.Scanned() if event.step is not None:
                course = course._replace(checkpoint=event.step)
            case _:
                continue
    return course._replace(starts_s=starts_s)


def _reached(course: _Course, event: ev.Progressed | ev.Stepped) -> _Course:
    """Return the course of a run that has come to a step."""
    new = course.best is None or event.step > course.best or event.kind == "progressed"
    progressed = course.progressed | ({event.attempt} if new else set())
    best = _best(course, event.step)
    return course._replace(step=event.step, progressed=progressed, best=best)


def _taken_over(course: _Course, event: ev.TookOver) -> _Course:
    """Return the course of a run that goes on where another was cut off."""
    best = _best(course, event.best_step)
    progressed = course.progressed if best == course.best else frozenset[int]()
    return course._replace(
        best=best, progressed=progressed, taken=event.failed_attempts
    )


def _best(course: _Course, step: int | None) -> int | None:
    known = (one for one in (course.best, step) if one is not None)
    return max(known, default=None)


def _event(line: str) -> ev.Event | None:
    """Return the event in a line, if it may be one that is worth it."""
    if not any(word in line for word in _WORTH_IT):
        return None
    event: ev.Event | None = journal.often(line)
    if event is None:
        with suppress(JournalError):
            event = journal.decode(line).event
    return event


def _spec(lines: Sequence[str]) -> Spec | None:
    """Return what was asked for; None of a journal whose beginning was not read."""
    try:
        return journal.decode_header(lines[0]) if lines else None
    except JournalError:
        return None


def failed_in_a_row(told: Account, lines: Sequence[str]) -> tuple[int, int | None]:
    """Return the failures in a row of a run that was cut off, and its best step.

    Its last attempt, which nobody has counted, is one of them.
    """
    course = _course(lines, None)
    return _failures(told, _spec(lines), course, told.attempt + 1), course.best


def _failures(told: Account, spec: Spec | None, course: _Course, attempts: int) -> int:
    """Return how many of the first attempts failed in a row, to the last of them.

    As the machine counts: an attempt that made progress for long enough is forgiven
    the failures before it.
    """
    failed, last_s = course.taken, told.last.at_s if told.last else None
    for number in range(attempts):
        failure = first_failure(told.lives.get(number))
        cut_s = last_s if number == told.attempt else None
        ended_s = failure.at_s if failure else cut_s
        lived_s = _between(course.starts_s.get(number), ended_s)
        forgiven = (
            spec is not None
            and number in course.progressed
            and lived_s is not None
            and lived_s >= spec.policy.healthy_after_s
        )
        failed = 1 if forgiven else failed + 1
    return failed


def _limit(spec: Spec | None, course: _Course) -> int | None:
    if spec is None:
        return None
    return snapshot.limit_of(spec.policy, reports=course.step is not None)


def _between(since_s: float | None, until_s: float | None) -> float | None:
    if since_s is None or until_s is None:
        return None
    return snapshot.rounded(until_s - since_s)


def _stop(told: Account) -> dict[str, Any] | None:
    by = account.stopped_by(told)
    if by is None:
        return None
    person = told.end is not None and told.end.code == stop_code(SIGINT)
    kind = "limit" if by == "its time limit" else "user" if person else "preempt"
    return {"kind": kind, "step": None, "reason": snapshot.text(by)}


def _ranks(past: Past, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Return the ranks; of memory the last that was measured is told."""
    told, slots = past.told, Slots(past.page)
    life = told.lives.get(told.attempt, new_life())
    by_dsup = life.asked - {end.rank for end in life.own}
    asked = snapshot.ended_by_dsup(past.verdicts, told.attempt, by_dsup)
    resident = samples[-1].rss_kb if samples else {}
    known = curves(samples)
    ends = {end.rank: end.status for end in life.ends}
    going = told.end is None and bool(past.alive)
    size = min(told.world_size or len(life.pids), _RANKS_MAX)
    unknown = dict.fromkeys(_UNMEASURED)
    return [
        {
            "rank": rank,
            "local_rank": rank,
            "pid": life.pids.get(rank),
            "gpu": None,
            "state": _state(rank in ends, rank in life.pids, going=going),
            "status": ends.get(rank),
            "phase": slots.phase(rank),
            "step": slots.step(rank),
            **unknown,
            **({} if rank in ends or told.end else _ages(past, slots, rank)),
            "rss_kb": resident.get(rank),
            "kb_per_min": round(known[rank].kb_per_minute) if rank in known else None,
            "note": _note(ends.get(rank), asked=rank in asked),
        }
        for rank in range(size)
    ]


def _note(status: int | None, *, asked: bool) -> str:
    return "" if status is None else how_it_ended(status, asked=asked)


def _ages(past: Past, slots: Slots, rank: int) -> dict[str, float | None]:
    """Return how long a rank had told nothing when the run was seen last."""
    last = past.told.last
    told = {"beat_age_s": slots.beat_s(rank), "step_age_s": slots.progress_s(rank)}
    return {
        name: _between(at_s, last.at_s if last else None) for name, at_s in told.items()
    }


def _state(ended: bool, started: bool, *, going: bool) -> str | None:
    """Return what is known of a rank; of one whose agent was killed, nothing."""
    if ended:
        return "ended"
    return "alive" if started and going else None
