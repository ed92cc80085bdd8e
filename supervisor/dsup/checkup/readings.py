"""What is read of a node before it is judged: values only, None for no answer.

Each row is one reader's answer, and comes from a process of its own as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from dsup.facts.hardware import Card
from dsup.facts.nvml import Reading

READER_S: Final = 5.0
"""What a reader may take."""

PATIENT_S: Final = 10.0
"""What one may take that waits for file systems, which are slow without being ill."""


class Asked(NamedTuple):
    """What the node is to be judged against.

    Attributes:
        environment: of the job.
        ranks: how many; None for one a GPU, or one.
        python: the job's interpreter; empty to leave it alone.
        places: directory by name: ``runs``, ``TMPDIR``, ``checkpoints``.
        master_port: a port that is to be free; 0 for none.
        comm_timeout_s: time-out of collectives, seconds; None for torch's.
        root: stands for ``/`` wherever a file of the system is read.
        ancestor: process whose descendants are all of dsup's: the guard, where a launch
            looks; 0 for the one that asks.
    """

    environment: Mapping[str, str] = {}
    ranks: int | None = None
    python: str = ""
    places: Mapping[str, str] = {}
    master_port: int = 0
    comm_timeout_s: float | None = None
    root: str = ""
    ancestor: int = 0


class KernelLog(NamedTuple):
    """Who can read the kernel log; an error is empty where it can be read."""

    error: str
    journal_error: str


class System(NamedTuple):
    """What /proc and /sys tell of the node and of this process.

    Attributes:
        container: what shows that this is one; empty for none.
        first: name of process 1.
        initial_pids: pids are those of the kernel log.
        processors: this process may use.
        quota: processors that its cgroup may use; None for no limit.
        oom_score_adj: of this process, and so of the ranks; None if unknown.
        pressure: the kernel tells of pressure.
        ptrace_scope: of Yama; None where it is not there.
        capabilities: effective ones, a bit each.
        core_pattern: where core dumps go.
        py_spy: where it is; empty if it is not installed.
    """

    container: str = ""
    first: str = ""
    initial_pids: bool = True
    processors: int = 1
    quota: float | None = None
    memory_kb: int | None = None
    available_kb: int | None = None
    swap_kb: int | None = None
    swap_free_kb: int | None = None
    oom_score_adj: int | None = None
    pressure: bool = True
    ptrace_scope: int | None = None
    capabilities: int = 0
    core_pattern: str = ""
    py_spy: str = ""


class Limits(NamedTuple):
    """Soft limits of this process, which the ranks inherit; None for unlimited.

    Attributes:
        tasks: processes and threads of this user now; None if unknown.
        root: its user is root, whom nproc does not concern.
    """

    memlock: int | None = None
    nofile: int | None = None
    nofile_hard: int | None = None
    nproc: int | None = None
    core: int | None = 0
    tasks: int | None = None
    root: bool = False


class Cgroups(NamedTuple):
    """The cgroups of this process.

    Attributes:
        version: ``1``, ``2``, ``1 and 2``, or empty where none is to be seen.
        name: of its memory cgroup.
        counted: the memory cgroup tells of OOM kills.
        oom_group: a directory whose memory.oom.group is 1; empty for none.
        pids_left: processes and threads that may still be made; None for no limit.
        pids_max: the limit that leaves so many.
        pids_where: its file.
        memory_limit: bytes; None for no limit.
        divisible: dsup may make cgroups below its own.
        why_not: why it may not.
    """

    version: str = ""
    name: str = ""
    counted: bool = False
    oom_group: str = ""
    pids_left: int | None = None
    pids_max: int | None = None
    pids_where: str = ""
    memory_limit: int | None = None
    divisible: bool = False
    why_not: str = ""


class Clock(NamedTuple):
    """The system's clock; None where the kernel does not tell.

    Attributes:
        error_us: the most that it may be wrong, microseconds.
    """

    synchronised: bool | None = None
    error_us: int | None = None


class Space(NamedTuple):
    """A directory's file system.

    Attributes:
        path: as it was asked for.
        looked_at: it, or the nearest directory above it that there is.
        kind: of file system; empty if unknown.
        free: bytes; None where the file system has no such number.
        inodes: free; None where there is no such number.
        sync_ms: what a small file took to be safe on disk; None if it was not tried.
        error: why nothing can be written there; empty if it can.
        whose: the error is: ``node``, ``job``, ``full`` of whoever shares it, or
            ``nobody`` where only the look failed.
        silent: it gave no answer at all.
        syncing: it answered, and a small file was not safe before the look ended.
        inodes_total: None where there is no such number.
    """

    path: str
    looked_at: str = ""
    kind: str = ""
    free: int | None = 0
    total: int = 0
    inodes: int | None = None
    sync_ms: float | None = None
    error: str = ""
    whose: str = "node"
    silent: bool = False
    syncing: bool = False
    inodes_total: int | None = None


class Sync(NamedTuple):
    """How a small file was written and synchronised; see ``Space``."""

    ms: float | None = None
    error: str = ""
    whose: str = "node"


class Network(NamedTuple):
    """Ports and interfaces.

    Attributes:
        ports: values by name of each InfiniBand or RoCE port.
        interfaces: names of network interfaces.
        port_error: why the master port is not free; empty if it is.
    """

    ports: Mapping[str, Mapping[str, str]] = {}
    interfaces: Sequence[str] = ()
    port_error: str = ""


class Driver(NamedTuple):
    """What there is of NVIDIA's driver, without NVML.

    Attributes:
        present: the node looks as if it had a GPU that it may use.
        on_bus: NVIDIA's GPUs on the PCI bus, without those of another driver.
        version: of the kernel module; empty if unknown.
        switches: NVSwitches.
        fabric_manager: it runs.
        persistenced: it runs.
        all_seen: processes of every user are to be seen.
    """

    present: bool = False
    on_bus: int = 0
    version: str = ""
    switches: int = 0
    fabric_manager: bool = False
    persistenced: bool = False
    all_seen: bool = True


class Holders(NamedTuple):
    """Processes that have a GPU's device node open.

    Attributes:
        rows: pid, name, state, and N of each ``/dev/nvidiaN``.
        all_seen: no process hid its descriptors.
        stuck: pid, seconds, and whether it waits in NVIDIA's driver, of each that stays
            in state D and does not move.
    """

    rows: Sequence[tuple[int, str, str, Sequence[int]]] = ()
    all_seen: bool = True
    stuck: Sequence[tuple[int, float, bool]] = ()


class Interpreter(NamedTuple):
    """The job's Python; what is not installed is empty.

    Attributes:
        cuda: version that torch was built for.
        error: why it does not start; empty if it does, or that is not known.
        unclear: why it is not known; empty if it is.
    """

    python: str = ""
    torch: str = ""
    cuda: str = ""
    error: str = ""
    unclear: str = ""


class Gpus(NamedTuple):
    """What NVML says.

    Attributes:
        cards: which GPUs there are.
        readings: by NVML's number.
        failed: code of ``facts.nvml`` why it cannot be asked; None if it can.
        why_not: why it gave no answer, or not all; empty if it did.
        versions: ``driver``, ``library`` and ``cuda``, as far as they are told.
        hung: it gave no answer, and whoever asked it stood still.
    """

    cards: Sequence[Card] = ()
    readings: Mapping[int, Reading] = {}
    failed: int | None = None
    why_not: str = ""
    versions: Mapping[str, str] = {}
    hung: bool = False


class Readings(NamedTuple):
    """Everything that was read.

    Attributes:
        silent: readers that gave no answer in their time.
    """

    asked: Asked = Asked()
    kernel_log: KernelLog | None = None
    system: System | None = None
    limits: Limits | None = None
    cgroups: Cgroups | None = None
    clock: Clock | None = None
    spaces: Mapping[str, Space | None] = {}
    network: Network | None = None
    driver: Driver | None = None
    holders: Holders | None = None
    interpreter: Interpreter | None = None
    gpus: Gpus | None = None
    silent: frozenset[str] = frozenset()

    @property
    def ranks(self) -> int:
        """How many ranks the node is to carry."""
        found = len(self.gpus.cards) if self.gpus else 0
        return self.asked.ranks or found or 1


class Row(Protocol):
    """A NamedTuple of the above."""

    def _asdict(self) -> dict[str, Any]: ...


_R = TypeVar("_R", bound=Row)


def encode(row: Row) -> bytes:
    """Return a row as a reader's answer."""
    return json.dumps(row._asdict()).encode()


def decode(kind: type[_R], answer: bytes) -> _R | None:
    """Return the row of an answer; None if there was none."""
    if not answer:
        return None
    try:
        return kind(**json.loads(answer))
    except (TypeError, ValueError):
        return None
