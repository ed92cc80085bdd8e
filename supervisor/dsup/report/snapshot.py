"""How a run stands at one moment, as programs read it: ``dsup.status/1``. Pure.

The agent makes it for whoever asks; of a run that is over, ``report.past`` makes the
same from its directory. What is unknown, or was not measured, is null.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dsup.attribution.growth import curves
from dsup.core import stragglers
from dsup.core.job import Job
from dsup.core.plan import CHOSEN_RESTARTS, Policy
from dsup.core.printable import printable
from dsup.core.state import NEVER, Stage, State
from dsup.core.verdict import Verdict
from dsup.facts.samples import Sample
from dsup.report import growing, stops
from dsup.report.rank_rows import Facts, Gpu, Process, row
from dsup.report.slots import Slots
from dsup.report.verdict_file import capped, stamp

SCHEMA: Final = "dsup.status/1"
ATTEMPTS_MAX: Final = 10
TEXT_MAX_CHARS: Final = 300
WINDOW_S: Final = 300.0
"""Growth of memory is that of the last so many seconds."""

_STOPPING: Final = frozenset({Stage.PARKING, Stage.TERMINATING})


class Name(NamedTuple):
    """Which run it is; constant for all of it."""

    run: str
    run_id: str
    run_dir: str
    node: str
    program: str


def name_of(job: Job, node: str) -> Name:
    """Return what a job's run is called.

    Args:
        job: what is done.
        node: where.
    """
    run = os.path.basename(job.run_dir)
    return Name(run, job.run_id, job.run_dir, node, job.program)


class Scene(NamedTuple):
    """All that a snapshot is made of; times are the agent's clock, seconds.

    Attributes:
        state: how the run stands.
        now_s: the moment.
        offset_s: CLOCK_REALTIME minus the agent's clock.
        launched_s: when the run began.
        pids: of each rank of this attempt.
        page: the heartbeat page, in a pause the last one; empty for none.
        processes: what was measured of each rank.
        samples: of this attempt, oldest first; the last minutes will do.
        gpus: of each rank, where it is known.
        rate: steps a second; None while that is not known.
        verdicts: of failed attempts, oldest first.
        ledger: where the time went; None while nobody counts it.
        failures: how many attempts failed, by cause.
        ended: exit code of the run and whose it is; None while it goes on.
        asked: ranks that dsup has told to end in this attempt.
        limits_s: how long a rank may make no progress, seconds, where there is a limit.
        steps_s: the usual step time of each rank that has one, seconds.
        looked_for: step of the newest checkpoint that was looked for in this attempt,
            and when it was made; None for none.
    """

    state: State
    now_s: float
    offset_s: float
    launched_s: float
    pids: Mapping[int, int] = {}
    page: bytes = b""
    processes: Mapping[int, Process] = {}
    samples: Sequence[Sample] = ()
    gpus: Mapping[int, Gpu] = {}
    rate: float | None = None
    verdicts: Sequence[Verdict] = ()
    ledger: Mapping[str, Any] | None = None
    failures: Mapping[str, int] = {}
    ended: tuple[int, str] | None = None
    asked: Collection[int] = ()
    limits_s: Mapping[int, float] = {}
    steps_s: Mapping[int, float] = {}
    looked_for: tuple[int, float] | None = None


def document(name: Name, scene: Scene) -> dict[str, Any]:
    """Return the status document of a run that goes on."""
    state, now_s = scene.state, scene.now_s
    slots, world = Slots(scene.page), state.spec.world_size
    running = bool(state.alive) or bool(state.ended)
    recent = [one for one in scene.samples if one.at_s >= now_s - WINDOW_S]
    memory = growing.of_cgroup(recent)
    ranks = state.alive or range(world)  # in a pause, and at the end, the last it was
    steps = [step for rank in ranks if (step := slots.step(rank)) is not None]
    reports = bool(steps) or state.best_step is not None
    return {
        **head(name, now_s + scene.offset_s),
        "live": True,
        "outcome": _outcome(state),
        "lost": None,
        "stage": state.stage.value,
        "attempt": state.attempt,
        "run_s": rounded(now_s - scene.launched_s),
        "attempt_s": rounded(now_s - state.started_s) if running else None,
        "world_size": world,
        "alive": len(state.alive),
        "restarts": {
            "used": _used(state),
            "limit": limit_of(state.spec.policy, reports=reports),
        },
        "step": min(steps, default=None),
        "steps_per_s": None if scene.rate is None else round(scene.rate, 4),
        "checkpoint": checkpoint(
            state.checkpoint_step, slots, world, now_s, scene.looked_for
        ),
        "pause_left_s": _pause_left(state, now_s),
        "stop": _stop(state, now_s),
        "memory": memory,
        "ledger": scene.ledger,
        "ranks": [
            row(facts, state, slots, now_s) for facts in _facts(scene, recent, memory)
        ],
        "attempts": attempts(scene.verdicts, scene.offset_s),
        "failures": dict(scene.failures),
        "exit": exit_of(scene.ended),
    }


def head(name: Name, wall_s: float) -> dict[str, Any]:
    """Return what each status document begins with.

    Args:
        name: which run it is.
        wall_s: the moment it tells of, CLOCK_REALTIME, seconds.
    """
    named = {key: text(value) for key, value in name._asdict().items()}
    return {"schema": SCHEMA, **named, "at": stamp(wall_s, 0.0)}


def attempts(verdicts: Sequence[Verdict], offset_s: float) -> list[dict[str, Any]]:
    """Return the failed attempts of a run, the last ten.

    Args:
        verdicts: theirs, oldest first.
        offset_s: CLOCK_REALTIME minus the verdicts' clock, seconds.
    """
    return [
        {
            "attempt": one.attempt,
            "cause": one.cause,
            "certainty": one.certainty,
            "first_ranks": list(one.first_ranks),
            "summary": text(one.summary),
            "at": stamp(one.at_s, offset_s),
        }
        for one in map(capped, verdicts[-ATTEMPTS_MAX:])
    ]


def exit_of(ended: tuple[int, str] | None) -> dict[str, Any] | None:
    """Return the exit of a run; None while it goes on."""
    return {"code": ended[0], "origin": ended[1]} if ended else None


def checkpoint(
    found: int | None,
    slots: Slots,
    world_size: int,
    now_s: float,
    looked_for: tuple[int, float] | None = None,
) -> dict[str, Any] | None:
    """Return the newest checkpoint known; of the one resumed from, no age is known.

    Args:
        found: step of the newest that there was before the attempt; None for none.
        slots: the heartbeat page, in which ranks tell what they have saved.
        world_size: how many ranks there are.
        now_s: the moment, agent clock, seconds.
        looked_for: step and time of the newest that there has been since.
    """
    known = filter(None, (slots.saved(range(world_size)), looked_for))
    saved = max(known, default=None)
    if saved is not None and (found is None or saved[0] >= found):
        return {"step": saved[0], "age_s": rounded(now_s - saved[1])}
    return None if found is None else {"step": found, "age_s": None}


def rounded(value_s: float) -> float:
    """Return a length of time, seconds, as it is told."""
    return round(max(0.0, value_s), 3)


def text(told: str) -> str:
    """Return a text as one printable line that is not too long."""
    return printable(" ".join(told[: 2 * TEXT_MAX_CHARS].split()))[:TEXT_MAX_CHARS]


def _outcome(state: State) -> str:
    if state.stage is not Stage.OVER:
        return "running"
    if state.succeeded:
        return "succeeded"
    return "stopped" if state.stop and not state.abandoned else "failed"


def _used(state: State) -> int:
    """Return how many restarts in a row there were; a new plan counts its failure."""
    return max(0, state.failed_attempts - (state.plan is not None))


def limit_of(policy: Policy, *, reports: bool) -> int:
    """Return how many restarts in a row there may be.

    As in ``core.plan``: unless a number was asked for, dsup starts nothing over that
    has neither a checkpoint location nor a step.

    Args:
        policy: what was asked for.
        reports: a rank has told of a step.
    """
    if policy.max_restarts is not None:
        return policy.max_restarts
    return CHOSEN_RESTARTS if policy.checkpoints_known or reports else 0


def _pause_left(state: State, now_s: float) -> float | None:
    plan = state.plan
    if state.stage is not Stage.DECIDING or plan is None or plan.restart_at_s is None:
        return None
    return rounded(plan.restart_at_s - now_s)


def _stop(state: State, now_s: float) -> dict[str, Any] | None:
    if state.parking is None and state.stop is None:
        return None
    left = NEVER if state.stage not in _STOPPING else state.kill_s
    return {
        "kind": stops.kind(state),
        "step": None,
        "reason": text(stops.reason(state)),
        "kill_in_s": None if left == NEVER else rounded(left - now_s),
    }


def _facts(
    scene: Scene, samples: Sequence[Sample], cgroup: Mapping[str, Any] | None
) -> Iterator[Facts]:
    """Yield what is known of each rank; a sample's memory has its helpers in it."""
    known = curves(samples)
    noted = growing.noteworthy(samples, known, cgroup)
    resident = samples[-1].rss_kb if samples else {}
    times = {
        rank: stragglers.times_of(rank, step_s, scene.steps_s)
        for rank, step_s in scene.steps_s.items()
        if rank in scene.state.slow
    }
    asked = ended_by_dsup(scene.verdicts, scene.state.attempt, scene.asked)
    for rank in range(scene.state.spec.world_size):
        process = scene.processes.get(rank, Process())
        if rank in resident:
            process = process._replace(rss_kb=resident[rank])
        yield Facts(
            rank,
            scene.pids.get(rank),
            process,
            scene.gpus.get(rank),
            known.get(rank),
            grows=rank in noted,
            asked=rank in asked,
            limit_s=scene.limits_s.get(rank),
            times=times.get(rank),
        )


def ended_by_dsup(
    verdicts: Sequence[Verdict], attempt: int, asked: Collection[int]
) -> Collection[int]:
    """Return whom dsup ended; the verdict knows who was dying before the signal.

    Args:
        verdicts: of failed attempts, the last one last.
        attempt: the last one.
        asked: whom dsup told to end in it; that counts where there is no verdict.
    """
    last = verdicts[-1] if verdicts else None
    if last is not None and last.attempt == attempt:
        return last.ended_by_dsup
    return asked
