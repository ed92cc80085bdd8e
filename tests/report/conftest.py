"""A job of four ranks, and the machine that supervises it."""

from types import SimpleNamespace

import pytest

from dsup.core import machine
from dsup.core.job import Job, Option
from dsup.core.output import Output
from dsup.core.plan import Policy
from dsup.core.state import Spec
from dsup.report import console

POLICY = Policy(
    max_restarts=2,
    backoff_s=(10.0,),
    healthy_after_s=1800.0,
    restart_on_user=False,
    checkpoints_known=True,
)
JOB = Job(
    spec=Spec(
        world_size=4, settle_s=2.0, grace_s=25.0, keep_helpers=False, policy=POLICY
    ),
    argv=("python", "-u", "train.py"),
    program="train",
    environment={"OMP_NUM_THREADS": "8"},
    run_id="r1",
    run_dir="/runs/r1",
    rank_logs=True,
    private=True,
    agent_store=False,
    store_python="python",
    master_port=0,
    comm_timeout_s=300.0,
    checkpoint_dir="",
    checkpoint_glob="",
    resume_arg="",
    tmp_parent="/scratch",
    inductor_cache="/scratch/inductor",
    options=(Option("nproc", "4", "command line"),),
    output=Output(()),
)


class Story:
    """Tells the machine what happens and keeps what the console says to it."""

    def __init__(self, job):
        self.job = job
        self.state = machine.initial(job.spec)
        self.resume_from = ""
        self.pids = {rank: 4000 + rank for rank in range(job.spec.world_size)}
        self.said = ""

    def tell(self, event):
        """Tell one event; ``said`` is the line it makes, empty for none."""
        before = self.state
        self.state, _ = machine.decide(before, event)
        view = console.View(self.job, self.pids, self.resume_from)
        self.said = "\n".join(console.lines(before, event, self.state, view))
        return self


@pytest.fixture
def job():
    """Give a job of four ranks."""
    return JOB


@pytest.fixture
def new_story():
    """Give ``new_story(job)``: a run before its first event."""
    return Story


@pytest.fixture
def events():
    """Give a maker for each kind of event that the console speaks about."""
    from dsup.core import events as ev

    def exited(at_s, rank, status, attempt=0):
        return ev.RankExited("rank_exited", at_s, 0.0, attempt, rank, status, dying=())

    return SimpleNamespace(
        launched=ev.Launched("launched", 0.0),
        prepared=lambda attempt=0: ev.Prepared("prepared", 1.0, attempt, 29500, ""),
        cannot=lambda *what: ev.Cannot("cannot", 1.0, 0, *what),
        started=lambda rank: ev.RankStarted("rank_started", 1.0, 0, rank, 4000 + rank),
        exited=exited,
        helpers_left=lambda *left: ev.HelpersLeft("helpers_left", 9.0, 0, *left),
        group_empty=lambda at_s: ev.GroupEmpty("group_empty", at_s, 0),
        progressed=lambda step: ev.Progressed("progressed", 4.0, 0, step),
        scanned=lambda at_s, step=None: ev.Scanned("scanned", at_s, 0, step, "", ""),
        judged=lambda at_s: ev.Judged("judged", at_s, 0, "", (), 1, "", final=True),
        agreed=lambda at_s, *plan: ev.PlanAgreed("plan_agreed", at_s, 0, *plan),
        suspected=lambda ranks, why="stalled", usual_s=0.1: ev.HangSuspected(
            "hang_suspected", 7.4, 0, ranks, why, 5.0, usual_s
        ),
        cleared=lambda *ranks: ev.HangCleared("hang_cleared", 8.0, 0, ranks),
        confirmed=lambda ranks, why="absent": ev.HangConfirmed(
            "hang_confirmed", 67.0, 0, ranks, why
        ),
        captured=lambda *found, final=False: ev.Captured(
            "captured", 7.6, 0, final, *(found or ((), "", ""))
        ),
        straggles=lambda *how: ev.Straggles("straggles", 9.0, 0, *how),
        signalled=lambda at_s, signum: ev.Signalled("signalled", at_s, signum, 1),
        guard_lost=ev.GuardLost("guard_lost", 9.0),
        stalled=lambda gap_s: ev.LoopStalled("loop_stalled", 9.0, gap_s),
        tick=lambda at_s: ev.Tick("tick", at_s),
    )
