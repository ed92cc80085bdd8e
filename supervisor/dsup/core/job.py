"""A job: everything that ``dsup launch`` was asked for, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsup.core.state import Spec


class Option(NamedTuple):
    """An option's value and where it came from.

    Attributes:
        origin: ``command line``, the name of a variable, or ``default``.
    """

    name: str
    value: str
    origin: str


class Job(NamedTuple):
    """What the agent carries out.

    Attributes:
        spec: the rules of the run.
        argv: the command of every rank.
        program: what the user calls it: the script's or module's name.
        environment: what dsup was started with.
        run_id: TORCHELASTIC_RUN_ID, and the run directory's name.
        run_dir: the run directory, absolute; it exists.
        rank_logs: ranks' output is kept in files, and they may write error.json.
        private: new files are for their owner alone; else the umask decides.
        agent_store: dsup hosts the ranks' key-value store.
        store_python: the interpreter that can import torch.
        master_port: MASTER_PORT of every attempt; 0 for a fresh one each time.
        comm_timeout_s: time-out of collectives, seconds; None leaves torch's.
        checkpoint_dir: where checkpoints of dsup's layout are; empty for none.
        checkpoint_glob: pattern of foreign checkpoints; empty for none.
        resume_arg: added to ``argv`` with ``{path}`` filled in; empty for none.
        tmp_parent: where an attempt's TMPDIR is made.
        inductor_cache: torch's compile cache of a rank without that TMPDIR.
        options: every option with its origin.
    """

    spec: Spec
    argv: tuple[str, ...]
    program: str
    environment: Mapping[str, str]
    run_id: str
    run_dir: str
    rank_logs: bool
    private: bool
    agent_store: bool
    store_python: str
    master_port: int
    comm_timeout_s: float | None
    checkpoint_dir: str
    checkpoint_glob: str
    resume_arg: str
    tmp_parent: str
    inductor_cache: str
    options: tuple[Option, ...]


def command(job: Job, resume_from: str) -> tuple[str, ...]:
    """Return a rank's command, told where to resume from if it asked to be."""
    if not job.resume_arg or not resume_from:
        return job.argv
    return (*job.argv, job.resume_arg.replace("{path}", resume_from))
