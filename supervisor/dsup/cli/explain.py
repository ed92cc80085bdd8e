"""What ``--explain-policy`` and ``--dry-run`` print."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Final

from dsup.core import environment
from dsup.core.exits import CAUSES, Cause
from dsup.core.job import Job, Option, command
from dsup.core.limits import Limits
from dsup.core.plan import PLANS, restarts_in_force
from dsup.core.printable import printable
from dsup.edges.preparation import Found, Location, decode, search
from dsup.report.secret_names import is_secret
from dsup_runtime import contract
from dsup_runtime.contract import PHASES

# What stands in for a value that only a real start knows.
_LATER: Final = {contract.BOOTSTRAP: "0", "MASTER_PORT": "0"}


def policy_text() -> str:
    """Return causes with their exit codes, what a hang is, and the restart rules."""
    return "\n".join([*_cause_lines(), "", *_hang_lines(), "", *_plan_lines()])


def dry_run_text(job: Job) -> str:
    """Look for a checkpoint as a start would, and return ``job_text``."""
    location = Location(job.checkpoint_dir, job.checkpoint_glob)
    return job_text(job, decode(search(location)) if any(location) else Found())


def job_text(job: Job, found: Found) -> str:
    """Return everything that would be started, each value with its origin.

    Args:
        job: what would be done.
        found: the checkpoint that it would be resumed from.
    """
    lines = ["options", *(_option(option, job) for option in job.options)]
    if job.checkpoint_dir or job.checkpoint_glob:
        lines += ["", f"newest checkpoint: {found.path or found.error or 'none'}"]
    lines += _commands(job, found.path)
    lines += ["", "environment that dsup sets", *_variables(job, found.path)]
    return "\n".join(lines)


def _option(option: Option, job: Job) -> str:
    in_force = {
        "log-dir": os.path.dirname(job.run_dir),
        "max-restarts": "by the cause (--explain-policy)",
        "master-port": "a fresh one each time",
    }
    unset = option.origin == "default" and option.value in {"", "0"}
    value = in_force.get(option.name, option.value) if unset else option.value
    return printable(f"  {option.name:18} {value or '-':32} {option.origin}")


def _commands(job: Job, resume_from: str) -> list[str]:
    size = job.spec.world_size
    of_ranks = [shlex.join(command(job, rank, resume_from)) for rank in range(size)]
    if len(set(of_ranks)) == 1:
        return ["", "command of every rank", f"  {of_ranks[0]}"]
    return ["", "command of each rank", *(f"  {line}" for line in of_ranks)]


def _cause_lines() -> Iterator[str]:
    yield f"{'cause':20} {'family':15} {'exit code':24} meaning"
    for name, cause in CAUSES.items():
        yield f"{name:20} {cause.family:15} {_code(cause):24} {cause.meaning}"


def _code(cause: Cause) -> str:
    if cause.family == "user":
        return "the rank's own, else 1"
    if cause.by_signal:
        return f"128+n, else {cause.code}"
    return str(cause.code)


def _hang_lines() -> Iterator[str]:
    from dsup.core import confirming, patience

    usual = Limits()
    learned = f"{patience.TRAIN_STEPS:g} learned step times, at least "
    learned += f"{patience.TRAIN_FLOOR_S:g} s, at most {patience.TRAIN_CEILING_S:g} s"
    yield "a hang is confirmed, and acted upon (--on-hang), when this has lasted:"
    yield _hang("a rank is frozen (state T)", f"{confirming.FROZEN_S:g} s")
    yield _hang("a rank sleeps in the kernel (state D)", f"{confirming.FROZEN_S:g} s")
    longest = f"{patience.LONGEST_TIMES:g} times the longest step"
    yield _hang("a rank did not come", f"{confirming.ABSENT_S:g} s, or {longest}")
    yield _hang("  the same, of one at work", f"{confirming.AT_WORK_S:g} s")
    for phase in PHASES:
        limit_s = getattr(usual, f"{phase}_s")
        limit = learned if limit_s is None else f"{limit_s:g} s"
        yield _hang(f"phase {phase} without a step", limit)
        if limit_s is None:
            at_work = "  the same, of ranks at work"
            yield _hang(at_work, f"{usual.init_s:g} s; as learned, once that ends")
    yield _hang("a script that tells no steps", "no limit (--hang-after SECONDS)")


def _hang(what: str, limit: str) -> str:
    return f"  {what:38} {limit}"


def _plan_lines() -> Iterator[str]:
    yield "after a failed attempt, the first row that applies:"
    for row in PLANS:
        yield f"  {'restart' if row.restart else 'give up':8} {row.reason}"


def _variables(job: Job, resume_from: str) -> Iterator[str]:
    shared, size = _shared(job, resume_from), job.spec.world_size
    of_ranks = [environment.for_rank(job.environment, shared, r) for r in range(size)]
    for name, value in sorted(of_ranks[0].items()):
        ours = job.environment.get(name) != value
        if not ours and name not in environment.defaults(shared):
            continue
        origin = "dsup" if ours else "your environment"
        values = list(dict.fromkeys(rank[name] for rank in of_ranks))
        shown = values[0] if len(values) == 1 else f"{values[0]} ... {values[-1]}"
        if is_secret(name):
            shown = "***"
        elif shown == _LATER.get(name):
            shown = "(chosen at the start)"
        yield printable(f"  {name}={shown}  ({origin})")


def _shared(job: Job, resume_from: str) -> environment.Shared:
    return environment.Shared(
        run_id=job.run_id,
        run_dir=job.run_dir,
        attempt=0,
        world_size=job.spec.world_size,
        max_restarts=restarts_in_force(job.spec.policy),
        port=job.master_port,
        agent_store=job.agent_store,
        tmp_dir=os.path.join(job.tmp_parent, "dsup-XXXXXX"),
        inductor_cache=job.inductor_cache,
        heartbeat="fd:3",
        notes_fd=4,
        agent_pid=0,
        resume_from=resume_from,
        grace_s=job.spec.grace_s,
        comm_timeout_s=job.comm_timeout_s,
        error_files=job.rank_logs,
        faulthandler=job.faulthandler,
        choices=job.choices,
    )
