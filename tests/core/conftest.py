"""One node's machine, told what happens in words, so that a test reads as a story."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import machine
from dsup.core.plan import Policy
from dsup.core.state import Spec, Stage

SIGINT, SIGKILL, SIGSEGV, SIGTERM = 2, 9, 11, 15


def new_spec(**options):
    """Return what ``dsup launch --nproc 3`` asks for, changed as told."""
    policy = {
        "max_restarts": None,
        "backoff_s": (10.0, 30.0, 90.0),
        "healthy_after_s": 1800.0,
        "restart_on_user": False,
        "checkpoints_known": True,
    }
    spec = {"world_size": 3, "settle_s": 2.0, "grace_s": 20.0, "keep_helpers": False}
    for name, value in options.items():
        (policy if name in policy else spec)[name] = value
    return Spec(**spec, policy=Policy(**policy))


class Node:
    """A machine and its clock.

    Attributes:
        state: the machine's.
        now_s: the clock; a test moves it with ``after``.
        commands: what the last event led to.
        ordered: what all events led to.
    """

    def __init__(self, **options):
        self.state = machine.initial(new_spec(**options))
        self.now_s = 100.0
        self.commands = ()
        self.ordered = []

    @property
    def stage(self):
        """The machine's stage."""
        return self.state.stage

    @property
    def due_in_s(self):
        """How far away the machine's deadline is, seconds."""
        return machine.deadline(self.state) - self.now_s

    def tell(self, event):
        """Tell the machine what happened."""
        self.state, self.commands = machine.decide(self.state, event)
        self.ordered += self.commands
        return self

    def after(self, seconds):
        """Let time pass."""
        self.now_s += seconds
        return self

    def launched(self):
        return self.tell(ev.Launched("launched", self.now_s))

    def prepared(self):
        return self.tell(ev.Prepared("prepared", self.now_s, self.attempt, 29500, ""))

    def cannot(self, cause="port_in_use", code=1):
        return self.tell(ev.Cannot("cannot", self.now_s, self.attempt, cause, code, ""))

    def started(self, *ranks):
        for rank in ranks:
            event = ("rank_started", self.now_s, self.attempt, rank, 4000 + rank)
            self.tell(ev.RankStarted(*event))
        return self

    def exited(self, rank, status, dying=()):
        event = ("rank_exited", self.now_s, 0.0, self.attempt, rank, status, dying)
        return self.tell(ev.RankExited(*event))

    def helpers_left(self):
        event = ("helpers_left", self.now_s, self.attempt, ("sh (4100)",), 1)
        return self.tell(ev.HelpersLeft(*event))

    def group_empty(self):
        return self.tell(ev.GroupEmpty("group_empty", self.now_s, self.attempt))

    def progressed(self, step):
        return self.tell(ev.Progressed("progressed", self.now_s, self.attempt, step))

    def scanned(self, step=None):
        path = "" if step is None else f"ckpt/step_{step}"
        event = ("scanned", self.now_s, self.attempt, step, path, "")
        return self.tell(ev.Scanned(*event))

    def agreed(self, restart_at_s=None, code=1):
        event = ("plan_agreed", self.now_s, self.attempt, restart_at_s, code, "agreed")
        return self.tell(ev.PlanAgreed(*event))

    def echoed(self):
        """Agree to what was proposed, as a single node does at once."""
        plan = self.proposed
        return self.agreed(plan.restart_at_s, plan.code)

    def signalled(self, signum=SIGTERM):
        return self.tell(ev.Signalled("signalled", self.now_s, signum, 1))

    def guard_lost(self):
        return self.tell(ev.GuardLost("guard_lost", self.now_s))

    def stalled(self, gap_s):
        return self.tell(ev.LoopStalled("loop_stalled", self.now_s, gap_s))

    def ticked(self):
        """Let the machine's deadline come."""
        self.now_s = machine.deadline(self.state)
        return self.tell(ev.Tick("tick", self.now_s))

    @property
    def attempt(self):
        return self.state.attempt

    @property
    def proposed(self):
        """The last plan that was put to all nodes."""
        return [c for c in self.ordered if isinstance(c, cmd.Propose)][-1]

    @property
    def exit_code(self):
        """The code of the one Exit; None while the run goes on."""
        codes = [c.code for c in self.ordered if isinstance(c, cmd.Exit)]
        assert len(codes) <= 1
        return codes[0] if codes else None

    # Stories that lead somewhere.

    def running(self):
        """Prepare if need be, and start every rank."""
        if self.stage is Stage.PREPARING and self.due_in_s == float("inf"):
            self.launched()
        return self.prepared().started(*range(self.state.spec.world_size))

    def settling(self):
        """Rank 1 ends in a way that may be another's fault."""
        return self.running().exited(1, 1)

    def terminating(self):
        """Rank 1 is killed, so the others are asked to end."""
        return self.running().exited(1, -SIGKILL)

    def leaving(self):
        """Every rank has ended with 0; their helpers are looked for."""
        self.running()
        for rank in range(self.state.spec.world_size):
            self.exited(rank, 0)
        return self

    def killing(self):
        """The others did not end in the grace."""
        return self.terminating().ticked()

    def deciding(self):
        """Rank 1 was killed and the rest is proven gone."""
        return self.killing().exited(0, -SIGKILL).exited(2, -SIGKILL).group_empty()

    def pausing(self):
        """A restart is agreed."""
        return self.deciding().scanned(0).echoed()

    def over(self):
        """The run was stopped before its first rank."""
        return self.launched().signalled().group_empty()


@pytest.fixture(scope="session")
def new_node():
    """Give ``new_node(**options)``: a run before its first event."""
    return Node


@pytest.fixture
def node():
    """Give a run of three ranks before its first event."""
    return Node()


@pytest.fixture(scope="session")
def make_spec():
    """Give ``make_spec(**options)``: what a launch asks for."""
    return new_spec
