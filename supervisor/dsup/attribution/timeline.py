"""All that is known of one failed attempt, as typed facts: what rules judge by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsup.facts.audit import Abend
from dsup.facts.flight_recorder import Trace
from dsup.facts.gpu_load import Load
from dsup.facts.hardware import Gpu, GpuHealth, PortChange
from dsup.facts.kernel import KernelFault
from dsup.facts.output import LastWords
from dsup.facts.raised import Raised
from dsup.facts.samples import Sample
from dsup.facts.stacks import Process


class End(NamedTuple):
    """A rank's end.

    Attributes:
        status: exit code, or minus the signal number.
        at_s: when the agent saw it, agent clock (CLOCK_MONOTONIC), seconds.
        late_s: it may have happened up to this much before, seconds.
        dying: the kernel was already taking it down when the first death was seen.
    """

    rank: int
    pid: int
    status: int
    at_s: float
    late_s: float = 0.0
    dying: bool = False


class Standing(NamedTuple):
    """A rank that still ran when the settling ended, just before dsup's signal.

    Attributes:
        state: of /proc/PID/stat: R, S, D, T, t, Z; empty if unknown.
        wchan: where in the kernel it slept; empty if unknown.
    """

    rank: int
    pid: int
    state: str = ""
    wchan: str = ""


class Beat(NamedTuple):
    """What a rank's slot of the heartbeat page said.

    Attributes:
        step: last step it finished; None for none.
        phase: a word of ``contract.PHASES``; empty if it never said.
        heartbeat_s: last heartbeat, agent clock, seconds; None for never.
        progress_s: end of its last step, agent clock, seconds; None for never.
    """

    step: int | None = None
    phase: str = ""
    heartbeat_s: float | None = None
    progress_s: float | None = None


class Counter(NamedTuple):
    """A counter of the kernel's that rose during the attempt.

    Attributes:
        name: ``oom_kill``, ``oom``, ``pids_max`` or ``vmstat_oom_kill``.
        where: the file it was read from.
        ranks: ranks that live in that cgroup; empty for all, or for the whole node.
    """

    name: str
    where: str
    before: int
    after: int
    ranks: tuple[int, ...] = ()


class Space(NamedTuple):
    """How full a file system is that the run depends on.

    Attributes:
        name: ``run directory``, ``checkpoints``, ``working directory``, ``TMPDIR``
            or ``/dev/shm``.
        path: where it was looked at.
        free_bytes: left for an ordinary user.
        total_bytes: its size.
        free_inodes: left; None where the file system has no such limit.
    """

    name: str
    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None


class Hang(NamedTuple):
    """A hang that dsup confirmed, and therefore ended the attempt.

    Attributes:
        ranks: as confirmed; empty where nobody could be named.
        why: ``frozen``, ``asleep``, ``absent`` or ``limit``.
        since_s: the last sign of progress, agent clock, seconds.
        usual_s: the learned step time, seconds; None while there was none.
    """

    ranks: tuple[int, ...]
    why: str
    at_s: float
    since_s: float
    usual_s: float | None = None


class Timeline(NamedTuple):
    """What is known of an attempt, each kind in the order in which it happened.

    Attributes:
        node: name of the node.
        started_s: when its ranks were ordered, agent clock, seconds.
        obstacle: ``(cause, reason)`` where the attempt could not go on though no rank
            failed; None otherwise.
        ends: ends of ranks, in the kernel's exit order.
        standing: ranks that ran when dsup first signalled.
        signalled: when dsup first signalled a rank, agent clock, seconds.
        raised: exceptions told by notes and error files, by time.
        kernel: faults in the kernel log since the attempt began.
        kernel_log: empty if the log was read; else why not, or what is missing of it.
        kin: rank of each process (and thread) id that was seen below it, the rank's own
            included.
        host_pids: pids here are those that the kernel prints (initial pid namespace).
        counters: those that rose.
        counters_read: whether counters could be read at all.
        words: last words of each rank whose output dsup sees.
        beats: heartbeat slots of ranks that use the runtime.
        spaces: file systems.
        pressure: memory pressure (PSI some avg10 of the cgroup), percent; None if
            unknown.
        cgroups: memory cgroup of each rank, as /proc/PID/cgroup names it.
        deafened: ranks that sent so many notes that later ones were not read.
        abends: deaths that audit records tell of.
        gpus: the GPU of each rank, as far as it is known which one that is.
        gpu_health: what NVML said of GPUs after the first death.
        nvml: empty if NVML was asked and answered; else why not.
        ports: network ports that changed.
        hang: why dsup ended the attempt while no rank had failed; None if it did not.
        stacks: processes of ranks and helpers when stacks were last taken.
        stacks_s: when that was, agent clock, seconds; None for never.
        stacks_before: the same of the time before that, taken without progress
            meanwhile.
        traces: what the ranks' flight recorders held then, by rank.
        traces_before: the same as ``stacks_before``.
        loads: what the ranks' GPUs did then, by rank.
        samples: the last of the attempt, oldest first.
    """

    attempt: int
    world_size: int
    node: str
    started_s: float
    obstacle: tuple[str, str] | None = None
    ends: tuple[End, ...] = ()
    standing: tuple[Standing, ...] = ()
    signalled: Mapping[int, float] = {}
    raised: tuple[Raised, ...] = ()
    kernel: tuple[KernelFault, ...] = ()
    kernel_log: str = ""
    kin: Mapping[int, int] = {}
    host_pids: bool = True
    counters: tuple[Counter, ...] = ()
    counters_read: bool = True
    words: Mapping[int, LastWords] = {}
    beats: Mapping[int, Beat] = {}
    spaces: tuple[Space, ...] = ()
    pressure: float | None = None
    cgroups: Mapping[int, str] = {}
    deafened: tuple[int, ...] = ()
    abends: tuple[Abend, ...] = ()
    gpus: Mapping[int, Gpu] = {}
    gpu_health: tuple[GpuHealth, ...] = ()
    nvml: str = ""
    ports: tuple[PortChange, ...] = ()
    hang: Hang | None = None
    stacks: tuple[Process, ...] = ()
    stacks_s: float | None = None
    stacks_before: tuple[Process, ...] = ()
    traces: Mapping[int, Trace] = {}
    traces_before: Mapping[int, Trace] = {}
    loads: Mapping[int, Load] = {}
    samples: tuple[Sample, ...] = ()
