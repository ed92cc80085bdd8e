"""A job: everything that ``dsup launch`` was asked for, as one value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.core.environment import Choices
from dsup.core.limits import Limits
from dsup.core.output import Output
from dsup.core.parentage import Parentage
from dsup.core.state import Spec

Level: TypeAlias = Literal["quiet", "normal", "verbose"]
Heartbeat: TypeAlias = Literal["page", "file", "tcp"]
RankCgroups: TypeAlias = Literal["auto", "on", "off"]

# torchrun's own macro in both its spellings. A dollar before it makes it plain text,
# and no other dollar means anything.
_LOCAL_RANK: Final = re.compile(
    r"(?<!\$)\$(?:\{local_rank\}|local_rank(?![A-Za-z0-9_]))"
)


class Option(NamedTuple):
    """An option's value and where it came from.

    Attributes:
        origin: ``command line``, the name of a variable or a file, or ``default``.
    """

    name: str
    value: str
    origin: str


class Voice(NamedTuple):
    """How dsup's own lines on the console read.

    Attributes:
        level: ``quiet`` says only what went wrong, ``verbose`` more than is needed.
        json: each line is a JSON object.
    """

    level: Level = "normal"
    json: bool = False


class Job(NamedTuple):
    """What the agent carries out.

    Attributes:
        spec: the rules of the run.
        argv: the command of every rank, before ``command`` makes it a rank's own.
        program: what the user calls it: the script's or module's name.
        environment: what dsup was started with.
        run_id: TORCHELASTIC_RUN_ID.
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
        output: what becomes of the ranks' output.
        choices: what the user chose of torchrun's variables.
        voice: how dsup's own lines read.
        faulthandler: a crash of Python prints where it was.
        bindings: what is put before the command of each local rank; empty for nothing.
        heartbeat: how the ranks' heartbeats reach the agent.
        hang_limits: when a rank counts as hanging; None to look for no hang.
        metrics: HOST:PORT where metrics are served; empty for nowhere.
        metrics_file: absolute path of a file of metrics; empty for none.
        on_event: a command line, run for each event that is told; empty for none.
        rank_cgroups: each rank gets a cgroup of its own: where dsup was given one to
            divide, where the user says that it was, or nowhere.
        preflight: check, state, text and fix of what was found of the node before.
        parentage: where the launch comes from.
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
    output: Output
    choices: Choices = Choices()
    voice: Voice = Voice()
    faulthandler: bool = True
    bindings: tuple[tuple[str, ...], ...] = ()
    heartbeat: Heartbeat = "page"
    hang_limits: Limits | None = Limits()
    metrics: str = ""
    metrics_file: str = ""
    on_event: str = ""
    rank_cgroups: RankCgroups = "auto"
    preflight: tuple[tuple[str, str, str, str], ...] = ()
    parentage: Parentage = Parentage()


def command(job: Job, local_rank: int, resume_from: str) -> tuple[str, ...]:
    """Return a rank's command, told where to resume from if it asked to be."""
    binding = job.bindings[local_rank] if job.bindings else ()
    program, *words = job.argv
    filled = (_LOCAL_RANK.sub(str(local_rank), word) for word in words)
    resumed = job.resume_arg and resume_from
    more = (job.resume_arg.replace("{path}", resume_from),) if resumed else ()
    return (*binding, program, *filled, *more)
