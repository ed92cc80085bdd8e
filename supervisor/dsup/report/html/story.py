"""A story: what the page tells, made of a run directory or of logs. Pure."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from dsup.core.exits import CAUSES
from dsup.core.ledger import balance
from dsup.core.verdict import Verdict
from dsup.facts.samples import Sample
from dsup.report.account import Account
from dsup.report.html import command
from dsup.report.html.lives import RANKS_MAX, Attempt, Doubt, RankLife, Signal
from dsup.report.html.moments import Moments, moments
from dsup.report.html.values import (
    Finding,
    Frame,
    Run,
    Stack,
    Story,
    Todo,
    Told,
    shifted,
)
from dsup.report.html.words import count
from dsup.report.ledger import of_journal
from dsup_runtime import contract

__all__ = [
    "Frame",
    "Run",
    "Stack",
    "Story",
    "Todo",
    "Told",
    "of_log",
    "of_run",
    "shifted",
]

_ATTEMPTS_MAX: Final = 1000
_SAMPLES_MAX: Final = 20_000
_TIME_MAX_S: Final = 1e11
_LAUNCHERS: Final = {"": "an unknown launcher", "dsup": "dsup, by its log"}
"""A log of dsup's own knows less than its run directory, and is no run of its."""

_WORDS: Final = ("stderr", "stdout", "error_file", "note")
"""Sources that are a rank's own words: its log has more of them."""

_TRAINING: Final = ("train", "eval", "checkpoint", "finish")


def of_run(told: Account, run: Run) -> Story:
    """Return the story of a dsup run.

    Args:
        told: what its journal tells.
        run: the rest of its directory.
    """
    when = moments(run.lines)
    verdicts = {one.verdict.attempt: one.verdict for one in run.told}
    numbers = sorted(when.keys() | verdicts.keys())[-_ATTEMPTS_MAX:]
    built = (_attempt(when, n, verdicts.get(n), run) for n in numbers)
    attempts = [one for one in built if one is not None]
    host = run.known.get("host")
    launched = command.launched(run.known)
    now_s = run.made_s - run.offset_s if run.running else None
    story = Story(
        name=os.path.basename(os.path.normpath(run.path)),
        program=command.program(run.known),
        nodes=(host,) if isinstance(host, str) else (),
        world_size=told.world_size or max((len(a.ranks) for a in attempts), default=0),
        attempts=tuple(attempts),
        told=tuple(_placed(one, when) for one in run.told),
        outcome=run.outcome,
        panel=tuple(run.panel),
        output_place=run.output_place,
        output=tuple(run.output),
        stacks=tuple(run.stacks),
        kernel=tuple(run.kernel),
        command=launched,
        versions=command.versions(run.known, run.dsup),
        options=command.options(run.known),
        environment=command.environment(run.known),
        remarks=tuple(run.remarks),
        directory=f"run in {run.bundle}" if run.bundle else run.path,
        bundle=run.bundle,
        running=run.running,
        made_s=run.made_s,
        resume=_newest(when),
        spent=balance(of_journal(run.lines), now_s),
    )
    return story._replace(todo=_todo(story))


def of_log(
    found: Sequence[Finding],
    frame: Frame,
) -> Story:
    """Return the story that another launcher's logs tell.

    Args:
        found: attempts, in the order of the log.
        frame: what is said around it.
    """
    clock = all(_is_time(one.verdict.at_s) for one in found)
    last = found[-1]
    attempts = (_logged(number, one) for number, one in enumerate(found))
    sizes = [one.world_size or 0 for one in found]
    nodes = dict.fromkeys(node for one in found for node in one.nodes)
    advice = last.verdict.advice
    return Story(
        name=os.path.basename(os.path.normpath(frame.name)) or frame.name,
        nodes=tuple(nodes),
        world_size=max(sizes, default=0),
        attempts=tuple(a for a in attempts if a.ranks),
        told=tuple(
            Told(one.verdict._replace(attempt=number), ", ".join(one.nodes))
            for number, one in enumerate(found)
        ),
        clock=clock,
        launcher=_LAUNCHERS.get(last.launcher, last.launcher),
        panel=tuple(frame.panel),
        todo=(Todo(advice.text),) if advice else (),
        output_place=frame.output_place,
        output=tuple(frame.output),
        remarks=tuple(frame.remarks),
        directory=f"{frame.name} in {frame.bundle}" if frame.bundle else frame.name,
        bundle=frame.bundle,
        zone=frame.zone,
        made_s=frame.made_s,
    )


def _placed(told: Told, when: Mapping[int, Moments]) -> Told:
    """Return a verdict whose evidence of ranks' ends names the journal's lines."""
    verdict = told.verdict
    known = when.get(verdict.attempt)
    places = known.places if known else {}
    evidence = tuple(
        one._replace(file=contract.JOURNAL_FILE, line=places[one.rank])
        if one.source == "status" and not one.file and one.rank in places
        else one
        for one in verdict.evidence
    )
    return told._replace(verdict=verdict._replace(evidence=evidence))


def _is_time(at_s: float) -> bool:
    """Return whether this is CLOCK_REALTIME at all, or a line's number."""
    return 0 <= at_s < _TIME_MAX_S


def _logged(number: int, found: Finding) -> Attempt:
    spans = [s for s in found.spans[:RANKS_MAX] if _is_time(s[1]) and _is_time(s[2])]
    lives = tuple(RankLife(rank, first, last) for rank, first, last in sorted(spans))
    verdict = found.verdict._replace(attempt=number)
    times = [t for _, first, last in spans for t in (first, last)]
    if times and _is_time(verdict.at_s):
        times.append(verdict.at_s)
    start_s, end_s = min(times, default=0.0), max(times, default=0.0)
    return Attempt(number, start_s, end_s, lives, verdict)


def _attempt(
    when: Mapping[int, Moments], number: int, verdict: Verdict | None, run: Run
) -> Attempt | None:
    """Return an attempt as the journal and its samples tell; None for nothing."""
    known = when.get(number)
    if known is None or not known.started:
        return None
    off_s = run.offset_s
    samples = tuple(
        sample._replace(at_s=sample.at_s + off_s)
        for sample in run.samples.get(number, ())[-_SAMPLES_MAX:]
        if math.isfinite(sample.at_s)
    )
    first, last = known.first, known.last
    started_s = min(known.started.values())
    ends = [at_s for at_s, _ in known.ended.values()]
    heard = [known.over_s, known.heard_s, *ends, started_s]
    at_s = [verdict.at_s] if verdict and math.isfinite(verdict.at_s) else []
    end_s = max(x for x in heard if x is not None) + off_s
    if known.over_s is not None:
        end_s = max([known.over_s, *ends]) + off_s
    elif run.running and number == max(when):
        end_s = max(end_s, run.made_s)
    return Attempt(
        number=number,
        start_s=min(started_s if known.began_s is None else known.began_s, started_s)
        + off_s,
        end_s=max([end_s, *at_s]),
        ranks=tuple(_lives(known, samples, off_s)),
        verdict=verdict,
        signals=tuple(Signal(s.at_s + off_s, s.signum, s.ranks) for s in known.sent),
        from_step=_resumed(when, number),
        stepped=((first.at_s + off_s, first.step), (last.at_s + off_s, last.step))
        if first and last
        else None,
        checkpoints=_checkpoints(samples),
        samples=samples,
        doubts=_doubts(known, off_s),
        slow=tuple((rank, *lag) for rank, lag in sorted(known.slow.items())),
    )


def _doubts(known: Moments, off_s: float) -> tuple[Doubt, ...]:
    return tuple(
        Doubt(
            one.at_s + off_s,
            one.ranks,
            None if one.until_s is None else one.until_s + off_s,
        )
        for one in known.seemed
    )


def _lives(known: Moments, samples: Sequence[Sample], off_s: float) -> list[RankLife]:
    ready, steps = _ready(samples), samples[-1].steps if samples else {}
    first = known.first.at_s + off_s if known.first else None
    lives = []
    for rank, started_s in sorted(known.started.items())[:RANKS_MAX]:
        end = known.ended.get(rank)
        lives.append(
            RankLife(
                rank=rank,
                start_s=started_s + off_s,
                end_s=end[0] + off_s if end else None,
                status=end[1] if end else None,
                pid=known.pids.get(rank),
                ready_s=ready.get(rank, first),
                step=steps.get(rank),
            )
        )
    return lives


def _ready(samples: Sequence[Sample]) -> dict[int, float]:
    """Return when each rank was first seen at work."""
    found: dict[int, float] = {}
    for sample in samples:
        seen = {r for r, phase in sample.phases.items() if phase in _TRAINING}
        for rank in (seen | sample.steps.keys()) - found.keys():
            found[rank] = sample.at_s
    return found


def _checkpoints(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Return when a rank was first seen in a checkpoint, each time."""
    saving = [(s.at_s, "checkpoint" in s.phases.values()) for s in samples]
    before = [False, *(busy for _, busy in saving)]
    pairs = zip(saving, before, strict=False)
    return tuple(at_s for (at_s, busy), was in pairs if busy and not was)


def _resumed(when: Mapping[int, Moments], number: int) -> int | None:
    """Return the step that an attempt resumed from: what was found before it."""
    before = when.get(number - 1)
    known = when[number]
    if before is None or before.found is None or not known.resume_from:
        return None
    return before.found if known.resume_from == before.found_path else None


def _newest(when: Mapping[int, Moments]) -> tuple[int, str] | None:
    last = when.get(max(when, default=0))
    return (last.found, last.found_path) if last and last.found is not None else None


def _todo(story: Story) -> tuple[Todo, ...]:
    """Return what to do: dsup's advice, how to go on."""
    main = story.main
    if main is None:
        return ()
    verdict = main.verdict
    found = []
    if verdict.advice:
        found.append(Todo(verdict.advice.text, _look(story, verdict)))
    if story.resume and story.command and main.ended:
        step, path = story.resume
        again = _again(story, step)
        text = f"Then launch again: checkpoint {step} is complete ({path}){again}."
        found.append(Todo(text, story.command))
    return tuple(found[:3])


def _again(story: Story, step: int) -> str:
    """Return how many steps are lost with a checkpoint; empty if unknown or none."""
    last = [a.stepped[1][1] for a in story.attempts if a.stepped]
    lost = max(last, default=step) - step
    if lost <= 0:
        return ""
    return f"; {count(lost, 'step')} {'is' if lost == 1 else 'are'} lost"


def _look(story: Story, verdict: Verdict) -> str:
    """Return the command that shows the first rank's last words, if they tell why."""
    place = story.output_place
    telling = CAUSES[verdict.cause].family == "user" or any(
        one.source in _WORDS for one in verdict.evidence
    )
    if not verdict.first_ranks or not place or not telling:
        return ""
    if story.bundle:
        member = shlex.quote(f"run/{place}")
        return f"tar -xzOf {shlex.quote(story.bundle)} {member} | tail -n 50"
    return f"tail -n 50 {shlex.quote(os.path.join(story.directory, place))}"
