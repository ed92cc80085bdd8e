"""What somebody else's log says, as typed facts: what log rules judge by.

Ranks are GLOBAL; a fact whose rank the log does not tell has None there. ``order`` is
the order of the lines (``LogLine.order``), ``at_s`` their own time stamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from dsup.facts.logs.line import Place


class Error(NamedTuple):
    """An uncaught Python exception of a worker (never the launcher's own traceback).

    Attributes:
        type: qualified name as printed; empty where the log was cut before that line
            and only frames are left.
        text: its text, capped.
        frame: ``file:line in function`` of the innermost user frame; empty if unknown.
        frames: functions and files of its frames, outermost first, capped.
        causes: ``(type, text)`` of the exceptions it was raised from, nearest first.
        thread: name of the thread; empty for the main one.
        logged: a logger's line of Python, with its level, stood right before it.
    """

    type: str
    text: str
    place: Place
    file: str
    number: int
    order: int
    at_s: float | None = None
    frame: str = ""
    frames: tuple[str, ...] = ()
    causes: tuple[tuple[str, str], ...] = ()
    thread: str = ""
    logged: bool = False


EndSource: TypeAlias = Literal[
    "agent", "report", "root_cause", "spawn", "mpirun", "srun", "deepspeed", "other"
]
"""Who tells of an end: torchrun's agent while it watches, a line of its failure
summary, that summary's "root cause", torch's mp.spawn, …; deepspeed names no rank."""


class End(NamedTuple):
    """A worker's end, as its launcher tells it.

    Attributes:
        status: exit code, or minus the signal number; None if not told.
        at_s: the time that the launcher gives for it.
        text: the telling line, printable.
        by_launcher: the launcher itself had signalled it (``forcefully exiting``,
            ``closing signal``): no evidence against it.
    """

    place: Place
    status: int | None
    source: EndSource
    text: str
    file: str
    number: int
    order: int
    at_s: float | None = None
    by_launcher: bool = False


CollectiveKind: TypeAlias = Literal[
    "timeout", "device_error", "mismatch", "desync", "barrier", "trace"
]
"""A watchdog's time-out; a watchdog that met a CUDA error; two ranks with different
collectives (fingerprints); a desync or flight-recorder report; a monitored barrier that
names who did not come; NCCL's own trace of calls (``COLL``)."""


class Collective(NamedTuple):
    """What a communication library says of one collective.

    Attributes:
        seq: its sequence number (``SeqNum``, ``opCount``, ``work``); None if unknown.
        op: such as ``ALLREDUCE``; upper case; empty if unknown.
        size: elements that go in; None if unknown.
        group: name or number of the process group; empty for the default group.
        ran_ms: how long it had waited; None if unknown.
        enqueued: last work that this rank had enqueued; None if unknown.
        completed: last work that it had completed; None if unknown.
        accused: global ranks that the message itself calls missing or faulty.
        text: the telling line, printable.
    """

    kind: CollectiveKind
    place: Place
    text: str
    file: str
    number: int
    order: int
    at_s: float | None = None
    seq: int | None = None
    op: str = ""
    size: int | None = None
    group: str = ""
    ran_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    accused: tuple[int, ...] = ()


ComplaintKind: TypeAlias = Literal[
    "device",  # CUDA, HIP, XPU error text outside an exception
    "ecc",  # uncorrectable ECC, GPU lost, Xid: hardware
    "oom_device",  # out of device memory, however dressed
    "oom_host",  # oom-kill text of a kernel, Slurm, Kubernetes
    "memlock",  # ibv_* … Cannot allocate memory
    "shm",  # shared memory segment, /dev/shm
    "disk",  # no space, quota, file write failed
    "nic",  # IB async event, port error: the speaker's own NIC or node
    "completion",  # IB completion error: names the peer
    "remote",  # ncclRemoteError, gloo connection closed: a peer went
    "store",  # TCPStore or rendezvous lost
    "port",  # address already in use
    "loader",  # DataLoader worker died
    "glibc",  # double free, corrupted …, terminate called, assertion failed
    "crash",  # faulthandler, Open MPI or c10 signal block
    "nan",  # non-finite loss or gradient, minimum loss scale
    "refusal",  # argparse: error: …
    "launch",  # Slurm or its container plugin could not start the program
    "killed",  # a shell's or scheduler's "Killed"
    "node",  # a node or pod lost, keep-alive failed
    "other",
]


class Complaint(NamedTuple):
    """A telling line that is no traceback.

    Attributes:
        signum: the signal it tells of; None for none.
        peer: the rank, node or address that it names as gone; empty for none.
        text: the line, printable.
    """

    kind: ComplaintKind
    place: Place
    text: str
    file: str
    number: int
    order: int
    at_s: float | None = None
    signum: int | None = None
    peer: str = ""


class Stop(NamedTuple):
    """A stop of the whole job from outside.

    Attributes:
        cause: ``user_interrupt``, ``preempted`` or ``time_limit``.
        signum: the signal that the launcher got; None if not told.
    """

    cause: str
    text: str
    file: str
    number: int
    order: int
    at_s: float | None = None
    signum: int | None = None


class Panel(NamedTuple):
    """A panel of dsup's own that stands in the log: quoted, not proven.

    Attributes:
        text: its sentence.
        attempt: the number it bears.
        cause: as printed; may be no cause at all.
        ranks: the first ones, as printed.
    """

    text: str
    attempt: int
    cause: str
    ranks: tuple[int, ...]
    file: str
    number: int
    order: int
    at_s: float | None = None


class Progress(NamedTuple):
    """The last sign of progress of one rank.

    Attributes:
        step: a step, iteration or batch number; None where only some output is known.
        done: the rank said that it had finished.
        rises: orders of the last lines whose step was higher than all before.
        file: of the last of these lines; empty for none.
        began: order of the first line with a step; None for none.
    """

    order: int
    at_s: float | None = None
    step: int | None = None
    done: bool = False
    rises: tuple[int, ...] = ()
    file: str = ""
    began: int | None = None


class LoggedAttempt(NamedTuple):
    """Everything that a log says of one attempt or run, each kind in log order.

    Attributes:
        number: of the attempt as far as the log tells it, else from 0 in log order.
        launcher: ``torchrun``, ``accelerate``, ``deepspeed``, ``lightning``,
            ``mpirun``, ``srun``, ``spawn``, …; empty if unknown.
        world_size: None if unknown.
        local_world_size: None if unknown.
        ranks: global ranks that spoke or that are told of.
        progress: by global rank; key -1 for output of nobody in particular.
        restarted: another attempt follows in the log.
        panels: what dsup itself has printed.
        directory: the run directory that dsup has printed; empty for none.
        troubled: a line has a word that failures are told with.
        clock: ``(order, at_s)`` of stamped lines, each a second or some lines behind
            the one before, where all lines are of one file; else empty.
        first_line, last_line: orders.
    """

    number: int
    launcher: str = ""
    world_size: int | None = None
    local_world_size: int | None = None
    errors: tuple[Error, ...] = ()
    ends: tuple[End, ...] = ()
    collectives: tuple[Collective, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    stops: tuple[Stop, ...] = ()
    progress: Mapping[int, Progress] = {}
    ranks: frozenset[int] = frozenset()
    last_lines: tuple[str, ...] = ()
    restarted: bool = False
    panels: tuple[Panel, ...] = ()
    directory: str = ""
    troubled: bool = False
    clock: tuple[tuple[int, float], ...] = ()
    first_line: int = 0
    last_line: int = 0
