"""Who is who in a log: which global rank a pid, a local rank or a node's rank is.

A rank is taken from what stands nearest to the line. Numbers that may mean something
else are used only where nothing contradicts: a local rank is the global one on a single
node, a GPU's number is a local rank unless every process sees one GPU only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dsup.facts.logs.file_names import is_torchruns
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import End

_PIDS_MAX: Final = 100_000
_COMM: Final = re.compile(r"\brank (\d{1,6}) nranks (\d{1,6})\b")
_GLOBALS: Final = re.compile(r"global_ranks=\[([\d, ]{1,4000})\]")
_LOCALS: Final = re.compile(r"local_ranks=\[([\d, ]{1,4000})\]")
_NODES: Final = re.compile(
    r"(?i)--nnodes[= ]\"?(?:\d{1,5}:)?(\d{1,5})\b|\bnnodes[=:] ?(\d{1,5})\b"
    r"|--num_machines[= ](\d{1,5})\b"
)
_WORLD: Final = re.compile(
    r"(?i)(?:\b|dist_|global_)world[_ ]?size['\"]?[=: ]{1,3}(\d{1,6})\b"
    r"|\bMEMBER: \d{1,6}/(\d{1,6})\b|Starting with (\d{1,6}) processes"
    r"|\bnum_processes[=: ]{1,3}(\d{1,6})\b"
    r"|global_world_sizes=\[(\d{1,6})"
    r"|\b(?:mpirun|mpiexec|horovodrun)\b[^|]{0,200} -(?:np|n) (\d{1,6})\b"
)
_LOCAL_WORLD: Final = re.compile(
    r"(?i)--?nproc[_-]per[_-](?:node|gpu)[= ]\"?(\d{1,5})\b"
    r"|\blocal_world_size[=: ]{1,3}(\d{1,5})\b|\bnproc_per_node[=: ]{1,3}(\d{1,5})\b"
    r"|\bnprocs[=: ]{1,3}(\d{1,5})\b"
)
_WORLD_WORDS: Final = ("world", "member: ", "processes", "mpi", "horovodrun")
_LOCAL_WORDS: Final = ("nproc", "local_world")
_NODE_WORDS: Final = ("nodes", "machines")
_SIZE_WORDS: Final = ("rank", "world", "proc", "nodes", "mpi", "machines", "horovodrun")
_GPU: Final = re.compile(r"\[(\d{1,2})\] (?:NCCL |[\w/.-]{1,200}:\d{1,6} NCCL )")
_CHANNEL: Final = re.compile(
    r"Channel \d{1,3}(?:/\d{1,3})? : (\d{1,6})\[\w{1,12}\] -> "
)
_TRACE: Final = re.compile(r"\[?nranks[= ](\d{1,6})\]?")
_LAUNCHERS: Final = (
    ("dsup", ("dsup ━ attempt ", "dsup = attempt ", "as torchrun sets it")),
    ("composer", ("composer.cli", "/composer/cli/")),
    ("accelerate", ("accelerate/commands", "accelerate launch", "/bin/accelerate")),
    ("deepspeed", ("deepspeed/launcher", "sigkill_handler", "exits with return code")),
    ("horovod", ("horovodrun", "horovod.run", "Horovod has been shut down")),
    (
        "torchrun",
        (
            "torch/distributed/run.py",
            "torch/distributed/launch",
            "torch.distributed.elastic",
            "torch/distributed/elastic",
            "torchrun",
            "ChildFailedError",
            "(exitcode: ",
            "closing signal SIG",
        ),
    ),
    ("spawn", ("multiprocessing/spawn.py", "mp.spawn", "-- Process ")),
    ("mpirun", ("mpirun", "mpiexec", "prterun", "orterun", "ORTE ", "MPI_ABORT")),
    ("lightning", ("GLOBAL_RANK: ", "lightning/fabric", "pytorch_lightning")),
    ("ray", ("ray::", "(raylet", "ray.exceptions")),
    ("srun", ("srun: ", "slurmstepd: ")),
)
"""Words by which a launcher is known; the one that starts the ranks comes first."""

_NESTED: Final = frozenset({"accelerate", "composer", "deepspeed", "torchrun", "spawn"})
"""Launchers whose ranks are not the tasks of an outer one."""


class Mapping:
    """Collects who is who."""

    def __init__(self) -> None:
        self.world: int | None = None
        self.local_world: int | None = None
        self.ranks: set[int] = set()
        self._nodes = 1
        self._words: set[str] = set()
        self._loggers: set[str] = set()
        self._pids: dict[tuple[str, int], int] = {}
        self._by_pid: dict[int, int] = {}
        self._locals: dict[tuple[str, int], int] = {}
        self._local_pids: dict[int, int] = {}
        self._shifted = False
        self._hosts: set[str] = set()
        self._gpus: dict[str, dict[int, int]] = {}
        self._senders: dict[int, set[int]] = {}
        self._comms: dict[int, list[tuple[str, int, int]]] = {}

    @property
    def launcher(self) -> str:
        """The launcher that started the ranks; empty if unknown."""
        names = (name for name, _ in _LAUNCHERS if name in self._words)
        return next(names, "")

    def feed(self, line: LogLine, *, fresh: bool = True) -> None:
        """Take in a line.

        Args:
            line: the next one.
            fresh: no line of the same words came before; digits are no launcher's name.
        """
        text, place = line.text, line.place
        self.hear(place)
        if place.pid is not None and " NCCL " in text:
            self._gpu(place, text)
        if fresh:
            self._name(text)
        if line.logger and line.logger not in self._loggers:
            self._name(line.logger)
            if len(self._loggers) < _PIDS_MAX:
                self._loggers.add(line.logger)
        lowered = text.lower()
        if "member: " in lowered or any(word in lowered for word in _SIZE_WORDS):
            self._sizes(line, lowered)

    def _name(self, text: str) -> None:
        """Look for words by which launchers are known."""
        for name, words in _LAUNCHERS:
            if name not in self._words and any(word in text for word in words):
                self._words.add(name)

    def _gpu(self, place: Place, text: str) -> None:
        """Take in the device that a process names, as NCCL prints it."""
        found = _GPU.match(text)
        gpus = self._gpus.setdefault(place.node, {})
        if found and place.pid is not None and len(gpus) < _PIDS_MAX:
            gpus.setdefault(place.pid, int(found[1]))
        sent = _CHANNEL.search(text) if "[receive]" not in text else None
        if sent and place.pid is not None and len(self._senders) < _PIDS_MAX:
            self._senders.setdefault(place.pid, set()).add(int(sent[1]))
        self._hosts.add(place.node.partition(".")[0])

    def hear(self, place: Place) -> None:
        """Take in that somebody spoke."""
        if place.rank is not None:
            self._know(place)

    def see(self, file: str) -> None:
        """Take in the name of a file that lines stand in."""
        if is_torchruns(file):
            self._words.add("torchrun")

    def note(self, ends: Iterable[End]) -> None:
        """Take in what launchers tell of ranks, local ranks and pids."""
        for end in ends:
            self._know(end.place)

    def _know(self, place: Place) -> None:
        rank, local, node, pid = place[:4]
        if rank is not None and len(self.ranks) < _PIDS_MAX:
            self.ranks.add(rank)
        if pid is not None and len(self._by_pid) < _PIDS_MAX:
            if rank is not None:
                self._pids[node, pid] = rank
                self._by_pid[pid] = rank
            if local is not None:
                self._local_pids[pid] = local
        if rank is not None and local is not None:
            self._locals.setdefault((node, local), rank)
            self._shifted = self._shifted or rank != local

    def _sizes(self, line: LogLine, lowered: str) -> None:
        text = line.text[:4000]
        if any(word in lowered for word in _WORLD_WORDS):
            self.world = _number(_WORLD, text) or self.world
        if any(word in lowered for word in _LOCAL_WORDS):
            self.local_world = _number(_LOCAL_WORLD, text) or self.local_world
        if any(word in lowered for word in _NODE_WORDS):
            self._nodes = max(self._nodes, _number(_NODES, text) or 1)
        comm = _COMM.search(text)
        if comm and line.place.pid is not None:
            known = self._comms.setdefault(int(comm[2]), [])
            if len(known) < _PIDS_MAX:
                known.append((line.place.node, line.place.pid, int(comm[1])))
        trace = _TRACE.search(text) if "nranks" in text else None
        if trace:
            self._comms.setdefault(int(trace[1]), [])
        listed = _GLOBALS.search(text)
        if listed:
            self._listed(text, listed[1])

    def _listed(self, text: str, globals_: str) -> None:
        """Take in the ranks that an elastic agent was given."""
        ranks = [int(part) for part in globals_.split(",") if part.strip().isdigit()]
        locals_ = _LOCALS.search(text)
        own = (
            [int(p) for p in locals_[1].split(",") if p.strip().isdigit()]
            if locals_
            else []
        )
        self._shifted = self._shifted or any(r != i for i, r in enumerate(own or ranks))

    def finish(self) -> None:
        """Note that no line follows: pids of the largest communicator are ranks'."""
        largest = max(self._comms, default=0)
        for node, pid, rank in self._comms.get(largest, []):
            self._pids.setdefault((node, pid), rank)
            self._by_pid.setdefault(pid, rank)
        for gpus in self._gpus.values():
            # A device is a rank only where all ranks are seen, each with its own: the
            # network's threads may call every process's device 0.
            ranks = self.local_world or self.world or largest
            whole = len(set(gpus.values())) == len(gpus) == ranks
            if whole or self._are_ranks(gpus):
                for pid, gpu in gpus.items():
                    self._local_pids.setdefault(pid, gpu)
        for pid, local in self._local_pids.items():
            known = self._by_pid.get(pid)
            self._shifted = self._shifted or (known is not None and known != local)
        if self.world is None and largest > 1:
            self.world = largest
        if self.world is None and self.local_world and self.single_node:
            self.world = self.local_world

    def _are_ranks(self, gpus: dict[int, int]) -> bool:
        """Return whether channels show that these devices bear their ranks' numbers.

        ``Channel 00 : 2[1040] -> 0[1020]`` is of rank 2 of a communicator; at least two
        processes, and each in one communicator only.
        """
        both = [pid for pid in self._senders if pid in gpus]
        return len(both) > 1 and all(self._senders[pid] == {gpus[pid]} for pid in both)

    @property
    def single_node(self) -> bool:
        """Nothing tells of more nodes than one."""
        more = self._nodes > 1 or self._shifted or len(self._hosts) > 1
        if self.world and self.local_world and self.world > self.local_world:
            more = True
        return not more

    def locate(self, place: Place) -> Place:
        """Return a place with its global rank, if that can be known."""
        if place.rank is not None:
            return place
        rank = self._of_pid(place)
        if rank is None and place.local_rank is not None:
            rank = self._locals.get((place.node, place.local_rank))
            if rank is None and self.single_node:
                rank = place.local_rank
        if rank is None:
            rank = self._of_task(place)
        return place._replace(rank=rank)

    @staticmethod
    def place_of(node: str, local: int) -> Place:
        """Return the place of a local rank."""
        return Place(node=node, local_rank=local)

    def _of_pid(self, place: Place) -> int | None:
        if place.pid is None:
            return None
        found = self._pids.get((place.node, place.pid))
        if found is not None:
            return found
        found = self._by_pid.get(place.pid)
        if found is None and self.single_node:
            found = self._local_pids.get(place.pid)
        return found

    def _of_task(self, place: Place) -> int | None:
        """Return the rank of a Slurm task, where one task is one rank."""
        task = place.label.removeprefix("task ").removesuffix(":")
        if not task.isdigit() or not place.label or self._words & _NESTED:
            return None
        if task in {place.label, place.label[:-1]} and "srun" not in self._words:
            return None
        return int(task)


def _number(form: re.Pattern[str], text: str) -> int | None:
    found = form.search(text)
    return next((int(g) for g in found.groups() if g), None) if found else None
