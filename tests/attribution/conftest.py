"""Incidents told in words: each builder adds what one rank did, or what was seen."""

from typing import Any

import pytest

from dsup.attribution.judge import judge
from dsup.attribution.timeline import (
    Beat,
    Counter,
    End,
    Hang,
    Space,
    Standing,
    Timeline,
)
from dsup.facts.kernel import KernelFault
from dsup.facts.output import LastWords
from dsup.facts.raised import Raised
from dsup.facts.stacks import Frame, Process, Thread

START_S = 100.0
DSUP_S = 12.0
"""When dsup sends its SIGTERM, unless told otherwise, seconds into the attempt."""

CLOSED = (
    "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:27032. "
    "This is typically caused by a remote worker crashing."
)
LATE = (
    "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv "
    "operation to complete"
)


TORCH = "/venv/lib/python3.11/site-packages/torch"
CALLS = {
    "all_reduce": f"{TORCH}/distributed/distributed_c10d.py:3000 in all_reduce",
    "barrier": f"{TORCH}/distributed/distributed_c10d.py:4800 in barrier",
    "broadcast": f"{TORCH}/distributed/distributed_c10d.py:2800 in broadcast",
    "init": f"{TORCH}/distributed/distributed_c10d.py:1700 in init_process_group",
    "recv": f"{TORCH}/distributed/distributed_c10d.py:2500 in recv",
    "send": f"{TORCH}/distributed/distributed_c10d.py:2400 in send",
    "ddp": f"{TORCH}/nn/parallel/distributed.py:1600 in _pre_forward",
    "loader": f"{TORCH}/utils/data/dataloader.py:1285 in _try_get_data",
    "worker": f"{TORCH}/utils/data/_utils/worker.py:349 in _worker_loop",
    "poll": "/usr/lib/python3.11/multiprocessing/connection.py:948 in wait",
    "join": "/usr/lib/python3.11/threading.py:1100 in join",
    "dsup_barrier": "/venv/lib/dsup_runtime/barriers.py:60 in barrier",
}
"""Calls of libraries, as stacks show them."""


def frames(*calls):
    """Return the frames of calls, the innermost first: ``train.py:9``, or of CALLS."""
    made = []
    for call in calls:
        at, _, function = CALLS.get(call, f"/srv/{call}").partition(" in ")
        file, _, line = at.rpartition(":")
        made.append(Frame(file, int(line), function or "main"))
    return tuple(made)


class Incident:
    """A failed attempt; times are seconds into it, the pid of rank n is 1000 + n."""

    def __init__(self, world_size=4, **fields):
        self.facts = Timeline(
            attempt=0,
            world_size=world_size,
            node="gpu-a17",
            started_s=START_S,
            kin={1000 + rank: rank for rank in range(world_size)},
            **fields,
        )

    def _add(self, **more):
        for name, value in more.items():
            old = getattr(self.facts, name)
            new: Any = {**old, **value} if isinstance(old, dict) else (*old, value)
            self.facts = self.facts._replace(**{name: new})
        return self

    def ended(self, rank, status, at=10.0, *, late_s=0.001, dying=False):
        """Let a rank end; of its own accord unless dsup had signalled it before."""
        fields = rank, 1000 + rank, status, START_S + at, late_s, dying
        return self._add(ends=End(*fields))

    def noted(self, rank, type_name, text="", at=10.0, **fields):
        """Let a rank tell of an exception by a note."""
        known = {"source": "note", "pid": 1000 + rank, **fields}
        caught_s = None if at is None else START_S + at
        return self._add(raised=Raised(rank, type_name, text, caught_s, **known))

    def raised(self, rank, type_name, text="", at=10.0, **fields):
        """Let a rank tell of an exception and end with exit code 1, 20 ms later."""
        return self.noted(rank, type_name, text, at, **fields).ended(rank, 1, at + 0.02)

    def lost(self, *ranks, at=10.1):
        """Let ranks end because their peers closed their connections."""
        for rank in ranks:
            self.raised(rank, "RuntimeError", CLOSED, at)
        return self

    def timed_out(self, *ranks, at=15.0):
        """Let ranks end because a collective timed out."""
        for rank in ranks:
            self.raised(rank, "RuntimeError", LATE, at)
        return self

    def said(self, rank, *lines, **fields):
        """Let a rank's stderr end with these lines."""
        last = lines[-1] if lines else ""
        words = LastWords(lines=lines, line=last, **fields)
        return self._add(words={rank: words})

    def showed(self, rank, type_name, text="", **fields):
        """Let a rank's stderr end with an uncaught exception and its traceback."""
        line = f"{type_name}: {text}"
        known = {"exception": line, "type": type_name, "text": text, **fields}
        return self.said(rank, line, **known)

    def stood(self, *ranks, state="S", wchan="", at=DSUP_S, status=-15):
        """Let ranks run until dsup signals them, and then end of it."""
        for rank in ranks:
            self._add(standing=Standing(rank, 1000 + rank, state, wchan))
            self._add(signalled={rank: START_S + at})
            if status is not None:
                self.ended(rank, status, at + 0.03)
        return self

    def kernel(self, kind, pid, at=10.0, **fields):
        """Let the kernel log tell of a fault."""
        known = {"text": f"{kind} {pid}", "seq": len(self.facts.kernel) + 1, **fields}
        at_us = None if at is None else int((START_S + at) * 1e6)
        return self._add(kernel=KernelFault(kind, pid, at_us=at_us, **known))

    def child(self, rank, pid):
        """Let a process be seen below a rank."""
        return self._add(kin={pid: rank})

    def rose(self, name, *ranks, by=1):
        """Let a counter of the kernel's rise."""
        return self._add(counters=Counter(name, f"/sys/{name}", 0, by, ranks))

    def beat(self, rank, step, at=None):
        """Let the heartbeat page say how far a rank came, and when."""
        progress_s = None if at is None else START_S + at
        beat = Beat(step=step, phase="train", progress_s=progress_s)
        return self._add(beats={rank: beat})

    def hung(self, *ranks, why="limit", at=100.0, since=10.0, usual_s=0.1):
        """Let dsup confirm a hang, and end all ranks that run."""
        return self.but(
            hang=Hang(ranks, why, START_S + at, START_S + since, usual_s),
            stacks_s=START_S + at,
        )

    def at(self, rank, *calls, threads=(), pid=0, before=False, **how):
        """Let the stack of a rank, or of a helper with that pid, be such.

        Each of ``threads`` is a name and the calls of another thread; ``how`` is the
        process's state and where in the kernel it sleeps.
        """
        others = [Thread(name, False, frames(*those)) for name, *those in threads]
        process = Process(
            rank,
            pid or 1000 + rank,
            helper=bool(pid),
            threads=(Thread("", True, frames(*calls)), *others) if calls else (),
            **{"state": "S", **how},
        )
        return self._add(**{"stacks_before" if before else "stacks": process})

    def space(self, name, free_bytes, total_bytes):
        """Let a file system have this much left."""
        return self._add(spaces=Space(name, name, free_bytes, total_bytes))

    def but(self, **fields):
        """Set fields of the timeline that no builder sets."""
        self.facts = self.facts._replace(**fields)
        return self

    @property
    def verdict(self):
        """The judge's answer."""
        return judge(self.facts)

    @property
    def answer(self):
        """The rule that spoke, the cause, the first ranks and the certainty."""
        verdict = self.verdict
        return verdict.rule, verdict.cause, verdict.first_ranks, verdict.certainty


@pytest.fixture
def incident():
    """Return the class of incidents, to be told by a test."""
    return Incident
