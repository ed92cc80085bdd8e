"""What ``--explain-policy`` and ``--dry-run`` print."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Final

from dsup.core import environment
from dsup.core.exits import CAUSES, Cause
from dsup.core.job import Job, command
from dsup.core.plan import PLANS, restarts_in_force
from dsup.report.run_file import is_secret
from dsup_runtime import contract

# What stands in for a value that only a real start knows.
_LATER: Final = {contract.BOOTSTRAP: "0", "MASTER_PORT": "0"}


def policy_text() -> str:
    """Return the causes with their exit codes, and the restart rules, as text."""
    return "\n".join([*_cause_lines(), "", *_plan_lines()])


def job_text(job: Job) -> str:
    """Return everything that would be started, each value with its origin."""
    lines = ["options"]
    lines += [f"  {o.name:18} {o.value or '-':32} {o.origin}" for o in job.options]
    lines += _commands(job)
    if job.resume_arg:
        resumed = command(job, 0, "PATH")
        lines += ["when there is a checkpoint PATH", f"  {shlex.join(resumed)}"]
    lines += ["", "environment that dsup sets", *_variables(job)]
    return "\n".join(lines)


def _commands(job: Job) -> list[str]:
    of_ranks = [
        shlex.join(command(job, rank, "")) for rank in range(job.spec.world_size)
    ]
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


def _plan_lines() -> Iterator[str]:
    yield "after a failed attempt, the first row that applies:"
    for row in PLANS:
        yield f"  {'restart' if row.restart else 'give up':8} {row.reason}"


def _variables(job: Job) -> Iterator[str]:
    size = job.spec.world_size
    of_ranks = [
        environment.for_rank(job.environment, _shared(job), r) for r in range(size)
    ]
    for name, value in sorted(of_ranks[0].items()):
        ours = job.environment.get(name) != value
        if not ours and name not in environment.defaults(_shared(job)):
            continue
        origin = "dsup" if ours else "your environment"
        values = list(dict.fromkeys(rank[name] for rank in of_ranks))
        shown = values[0] if len(values) == 1 else f"{values[0]} ... {values[-1]}"
        if is_secret(name):
            shown = "***"
        elif shown == _LATER.get(name):
            shown = "(chosen at the start)"
        yield f"  {name}={shown}  ({origin})"


def _shared(job: Job) -> environment.Shared:
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
        page_fd=3,
        agent_pid=0,
        resume_from="",
        grace_s=job.spec.grace_s,
        comm_timeout_s=job.comm_timeout_s,
        error_files=job.rank_logs,
        choices=job.choices,
    )
