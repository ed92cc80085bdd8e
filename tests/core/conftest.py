"""One node's machine, told what happens in words, so that a test reads as a story."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import machine
from dsup.core.plan import Policy
from dsup.core.state import Spec, Stage

SIGKILL, SIGTERM = 9, 15


POLICY = Policy(
    max_restarts=None,
    backoff_s=(10.0, 30.0, 90.0),
    healthy_after_s=1800.0,
    restart_on_user=False,
    checkpoints_known=True,
)
SPEC = Spec(world_size=3, settle_s=2.0, grace_s=20.0, keep_helpers=False, policy=POLICY)


def new_spec(**options):
    """Return what ``dsup launch --nproc 3`` asks for, changed as told."""
    policy = {k: v for k, v in options.items() if k in Policy._fields}
    rest = {k: v for k, v in options.items() if k not in policy}
    return SPEC._replace(**rest, policy=POLICY._replace(**policy))


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
        self.commands: tuple = ()
        self.ordered: list = []

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

    def _now(self, cls, kind, *fields):
        return self.tell(cls(kind, self.now_s, *fields))

    def _of_attempt(self, cls, kind, *fields):
        return self._now(cls, kind, self.attempt, *fields)

    def launched(self):
        """Begin."""
        return self._now(ev.Launched, "launched")

    def prepared(self):
        """Have what the attempt needs."""
        return self._of_attempt(ev.Prepared, "prepared", 29500, "")

    def cannot(self, cause="port_in_use", code=1):
        """Meet what is in the way."""
        return self._of_attempt(ev.Cannot, "cannot", cause, code, "")

    def started(self, *ranks):
        """Start ranks."""
        for rank in ranks:
            self._of_attempt(ev.RankStarted, "rank_started", rank, 4000 + rank)
        return self

    def exited(self, rank, status, dying=()):
        """Let a rank end."""
        late_s = 0.0
        fields = (late_s, self.attempt, rank, status, dying)
        return self._now(ev.RankExited, "rank_exited", *fields)

    def helpers_left(self):
        """Find a process that the ranks left behind."""
        return self._of_attempt(ev.HelpersLeft, "helpers_left", ("sh (4100)",), 1)

    def group_empty(self):
        """Prove that nothing is left."""
        return self._of_attempt(ev.GroupEmpty, "group_empty")

    def emptied(self):
        """Have nothing left: as there was no need to kill, the agent looks again."""
        if self.stage is Stage.TERMINATING:
            self.group_empty()
        return self.group_empty()

    def progressed(self, step):
        """Finish a step."""
        return self._of_attempt(ev.Progressed, "progressed", step)

    def suspected(self, *ranks, why="stalled"):
        """Find ranks that make no progress."""
        fields = (ranks, why, self.now_s - 2.4, 0.1)
        return self._of_attempt(ev.HangSuspected, "hang_suspected", *fields)

    def cleared(self, *ranks):
        """Find that they have gone on."""
        return self._of_attempt(ev.HangCleared, "hang_cleared", ranks)

    def confirmed(self, *ranks, why="absent"):
        """Find that they hang."""
        return self._of_attempt(ev.HangConfirmed, "hang_confirmed", ranks, why)

    def captured(self, *ranks, op="", place="", final=False):
        """Have stacks, and what they show."""
        return self._of_attempt(ev.Captured, "captured", final, ranks, op, place)

    def straggles(self, rank, times):
        """Find a rank slower than its peers."""
        return self._of_attempt(ev.Straggles, "straggles", rank, times, "")

    def noted(self, rank, *, decisive=True):
        """Have a rank tell of an exception."""
        return self._of_attempt(ev.Noted, "noted", rank, decisive)

    def self_stopping(self, *ranks):
        """Find that ranks ask at every step whether to stop; all if none is named."""
        everyone = range(self.state.spec.world_size)
        found = ranks or tuple(everyone)
        return self._of_attempt(ev.SelfStopping, "self_stopping", found)

    def wanted(self, rank, stop, reason="", step=None):
        """Have a rank want a stop."""
        return self._of_attempt(ev.StopWanted, "stop_wanted", rank, stop, reason, step)

    def counted(self, last):
        """Learn how many checks the ranks have come to."""
        return self._of_attempt(ev.ChecksCounted, "checks_counted", last)

    def judged(self, cause="", ranks=(), status=1, mark="", *, final=True):
        """Have the judge answer."""
        return self._of_attempt(ev.Judged, "judged", cause, ranks, status, mark, final)

    def scanned(self, step=None):
        """End the search for a checkpoint; a judge that is awaited says nothing."""
        if "judged" in self.state.awaited:
            self.judged()
        return self.searched(step)

    def searched(self, step=None):
        """End the search for a checkpoint."""
        path = "" if step is None else f"ckpt/step_{step}"
        return self._of_attempt(ev.Scanned, "scanned", step, path, "")

    def agreed(self, restart_at_s=None, code=1):
        """Agree to a plan."""
        fields = (restart_at_s, code, "agreed")
        return self._of_attempt(ev.PlanAgreed, "plan_agreed", *fields)

    def echoed(self):
        """Agree to what was proposed, as a single node does at once."""
        plan = self.proposed
        return self.agreed(plan.restart_at_s, plan.code)

    def signalled(self, signum=SIGTERM):
        """Get a signal."""
        return self._now(ev.Signalled, "signalled", signum, 1)

    def guard_lost(self):
        """Lose the guard."""
        return self._now(ev.GuardLost, "guard_lost")

    def stalled(self, gap_s):
        """Wake up late."""
        return self._now(ev.LoopStalled, "loop_stalled", gap_s)

    def ticked(self):
        """Let the machine's deadline come."""
        self.now_s = machine.deadline(self.state)
        return self._now(ev.Tick, "tick")

    @property
    def attempt(self):
        """The number of the attempt."""
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

    def parking(self):
        """Rank 1 wants a stop, and every rank comes to it by itself."""
        return self.running().self_stopping().wanted(1, "user", "enough")

    def capturing(self):
        """Rank 1 hangs, so the stacks of all are taken."""
        return self.running().confirmed(1)

    def settling(self):
        """Rank 1 ends in a way that may be another's fault."""
        return self.running().exited(1, 1)

    def terminating(self):
        """Rank 1 is killed, so the others are asked to end."""
        return self.running().exited(1, -SIGKILL)

    def lingering(self):
        """Rank 1 was killed and the others heeded; their helpers may still end."""
        return self.terminating().exited(0, -SIGTERM).exited(2, -SIGTERM)

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
