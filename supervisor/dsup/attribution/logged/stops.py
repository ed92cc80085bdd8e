"""Rules about whole jobs that somebody stopped: no rank is guilty then."""

from __future__ import annotations

from typing import Final

from dsup.attribution.logged.causes import is_interrupt
from dsup.attribution.logged.places import Fact
from dsup.attribution.logged.saying import Finding, exception, verdict
from dsup.attribution.logged.signs import Reading
from dsup.core.exits import SIGHUP, SIGNALLED, SIGTERM, signal_name
from dsup.core.verdict import Verdict
from dsup.facts.logs.said import End, Progress, Stop

IDLE_S: Final = 600.0
"""A run that shows no progress for so long before a time limit had stopped working."""

_TEXTS: Final = {
    "user_interrupt": "The run was stopped by hand",
    "preempted": "The run was ended from outside",
    "time_limit": "The run reached its time limit",
}


def stopped(log: Reading) -> Verdict | None:
    """Name no rank where the whole job was stopped before any rank had failed.

    Symptom: ``DUE TO TIME LIMIT``, ``DUE TO PREEMPTION``, a death signal to the
    launcher, a pod that is ended. Source: scheduler and launcher. What ranks say after
    it comes of it. Victims' words before it make it the end of something else.
    """
    stop = next(iter(log.attempt.stops), None)
    if stop is None or _failed_before(log, stop):
        return None
    named = f" ({signal_name(stop.signum)})" if stop.signum else ""
    if stop.signum == SIGHUP:
        named = " (SIGHUP: its terminal or session was closed)"
    text = f"{_TEXTS.get(stop.cause, 'The run was stopped')}{named}: {stop.text}"
    return verdict(
        log.attempt,
        Finding(
            "stopped",
            stop.cause,
            (),
            "proven",
            stop,
            text,
            status=-stop.signum if stop.signum else 1,
            signature=f"signal {stop.signum}" if stop.signum else "",
        ),
    )


def hung_until_stopped(log: Reading) -> Verdict | None:
    """Say that nothing moved any more when a time limit ended the run.

    Symptom: a time limit, no own failure, and the last progress lies at least 10 min
    before by the log's own clock.
    """
    stop = next(iter(log.attempt.stops), None)
    if stop is None or stop.cause != "time_limit" or _failed_before(log, stop):
        return None
    last = _last_progress(log)
    if last is None or last.at_s is None or stop.at_s is None:
        return None
    idle_s = stop.at_s - last.at_s
    if idle_s < IDLE_S:
        return None
    text = f"The run hung: no progress for {idle_s / 60:.0f} min, then its time limit"
    found = Finding("hung_until_stopped", "hang", (), "likely", stop, text)
    return verdict(log.attempt, found._replace(before_s=idle_s))


def interrupted(log: Reading) -> Verdict | None:
    """Name no rank where the only exceptions are those of a Ctrl-C.

    Symptom: ``KeyboardInterrupt`` in a worker, and no line of the launcher about it.
    """
    hit = [error for error in log.attempt.errors if is_interrupt(error)]
    if not hit or log.signs or log.lost:
        return None
    text = f"The run was stopped by hand: {exception(hit[0])}"
    found = Finding("interrupted", "user_interrupt", (), "likely", hit[0], text)
    return verdict(log.attempt, found)


def _failed_before(log: Reading, stop: Stop) -> bool:
    told = (*(sign.fact for sign in log.signs), *log.lost)
    if stop.signum == SIGTERM and any(_by_itself(end) for end in log.ends):
        return True
    return any(_before(fact, stop) for fact in told)


def _by_itself(end: End) -> bool:
    """Return whether a worker ended of no signal of its launcher's.

    An agent that is told to stop ends its workers by SIGTERM and tells of no failure:
    where one does, the SIGTERM is an outer launcher's that had seen that failure.
    """
    return end.source != "other" and end.status not in {
        None,
        -SIGTERM,
        SIGNALLED + SIGTERM,
    }


def _before(fact: Fact, stop: Stop) -> bool:
    if fact.at_s is not None and stop.at_s is not None and fact.file != stop.file:
        return fact.at_s < stop.at_s
    return fact.order < stop.order


def _last_progress(log: Reading) -> Progress | None:
    known = sorted(log.attempt.progress.values(), key=lambda one: one.order)
    return known[-1] if known else None
