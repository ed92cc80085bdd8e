"""What holds for any order of events, and whatever answer gets lost."""

import heapq
import itertools
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import machine
from dsup.core.state import NEVER, Stage

KILL, TERM = 9, 15
STATUSES = (0, 1, 3, 255, -6, -KILL, -11, -TERM)
BACKOFFS = (10.0, 30.0, 90.0)
MOST_TICKS = 12

FIELDS = {
    "port": st.just(29500),
    "resume_from": st.just(""),
    "cause": st.sampled_from(["port_in_use", "spawn_error", "host_oom", "hang"]),
    "code": st.sampled_from([1, 126, 127]),
    "reason": st.just(""),
    "rank": st.integers(0, 3),
    "pid": st.integers(2, 99),
    "late_s": st.just(0.0),
    "status": st.sampled_from(STATUSES),
    "dying": st.sampled_from([(), (0,), (1, 2)]),
    "names": st.just(()),
    "total": st.just(1),
    "step": st.integers(0, 5),
    "path": st.just(""),
    "error": st.just(""),
    "restart_at_s": st.none() | st.sampled_from([0.0, 50.0, 500.0]),
    "ranks": st.sampled_from([(), (0,), (0, 1, 2)]),
    "stop": st.sampled_from(["user", "limit", "preempt", "peer", "error"]),
    "last": st.integers(0, 9),
    "signum": st.sampled_from([1, 2, 3, 10, 12, 15]),
    "sender_pid": st.just(1),
    "sender_uid": st.sampled_from([None, None, 1000]),
    "now": st.booleans(),
    "made_s": st.sampled_from([0.0, 5.0]),
    "run": st.just("20261130T022700Z-train-0a1b2c_n"),
    "ended_in": st.just(2),
    "failed_attempts": st.integers(1, 3),
    "best_step": st.none() | st.integers(0, 5),
    "gap_s": st.floats(1, 100),
    "decisive": st.booleans(),
    "first_ranks": st.sampled_from([(), (1,), (0, 1, 2)]),
    "signature": st.just(""),
    "final": st.booleans(),
    "taken": st.booleans(),
    "why": st.sampled_from(["frozen", "asleep", "silent", "stalled", "absent"]),
    "since_s": st.just(0.0),
    "usual_s": st.none() | st.just(0.1),
    "op": st.just("all_reduce"),
    "place": st.sampled_from(["", "dataset.py:88 in read"]),
    "times": st.sampled_from([0.0, 1.7]),
}
PASSING_S = st.sampled_from([0.0, 0.1, 0.9, 1.0, 5.0, 31.0])
ATTEMPTS_AWAY = st.sampled_from([0, 0, 0, 0, -1, 1])


def anything_of(cls):
    """Return a strategy for an event of a class; time and attempt are set later."""
    kind = typing.get_args(typing.get_type_hints(cls)["kind"])[0]
    later = {"kind": st.just(kind), "at_s": st.just(0.0), "attempt": ATTEMPTS_AWAY}
    return st.builds(cls, **{f: (later | FIELDS)[f] for f in cls._fields})


ANYTHING = st.one_of([anything_of(cls) for cls in typing.get_args(ev.Event)])
# Mostly what is awaited, with the status of a rank that ends; else anything.
HAPPENINGS = st.integers(0, 5).flatmap(
    lambda n: st.just((0, 0, 1, -KILL, -TERM)[n]) if n < 5 else ANYTHING
)
STORIES = st.lists(st.tuples(PASSING_S, HAPPENINGS), min_size=10, max_size=40)
OPTIONS = st.fixed_dictionaries(
    {
        "world_size": st.integers(1, 3),
        "keep_helpers": st.booleans(),
        "max_restarts": st.sampled_from([None, 0, 2]),
        "checkpoints_known": st.booleans(),
        "stop_after_s": st.sampled_from([None, 40.0]),
        "on_hang": st.sampled_from(["restart", "report", "stop"]),
    }
)


def await_next(node, status):  # noqa: C901 (one case a stage)
    """Tell a node what its stage waits for, so that stories get far."""
    alive = node.state.alive
    match node.stage:
        case Stage.PREPARING:
            node.prepared()
        case Stage.CAPTURING:
            node.captured(final=True)
        case Stage.RUNNING if not alive:
            node.started(*range(node.state.spec.world_size))
        case Stage.PARKING if node.state.parking.check is None:
            node.self_stopping().counted(3)
        case _ if alive and node.stage is not Stage.KILLING:
            node.exited(min(alive), status)
        case Stage.DECIDING if node.state.plan is None:
            node.scanned()
        case Stage.DECIDING if not node.state.agreed:
            node.echoed()
        case Stage.DECIDING:
            node.ticked()
        case _:
            node.group_empty()


def told(node, story):
    """Tell a node a story and yield the state before each of its events."""
    node.launched()
    for passing_s, happening in story:
        node.after(passing_s)
        before = node.state
        if isinstance(happening, int):
            await_next(node, happening)
        else:
            now = happening._replace(at_s=node.now_s)
            if "attempt" in now._fields:
                now = now._replace(attempt=node.attempt + happening.attempt)
            node.tell(now)
        yield before


def tick_to_the_end(node):
    """Let nothing come any more but deadlines; a run that has none is stopped."""
    for _ in range(MOST_TICKS):
        if node.stage is Stage.RUNNING:
            node.after(1).signalled()
        elif node.stage is not Stage.OVER:
            node.ticked()


@given(options=OPTIONS, story=STORIES)
def test_any_order_of_events_is_over_has_a_deadline_or_runs(new_node, options, story):
    """Only ranks that run are without a limit; everything else ends by itself.

    While they run there may be a look to take: at who goes on after an early exit.
    """
    node = new_node(**options)
    for _ in told(node, story):
        limited = machine.deadline(node.state) < NEVER
        timed = options["stop_after_s"] is not None and node.state.stop is None
        early = node.stage is Stage.RUNNING and node.state.ended != ()
        endless = node.stage is Stage.OVER or (
            node.stage is Stage.RUNNING and not timed
        )

        assert limited is not endless or early


@given(options=OPTIONS, story=STORIES)
def test_every_run_can_be_ended_and_exits_once(new_node, options, story):
    """Deadlines, and a stop for ranks that run, end any run with exactly one Exit."""
    node = new_node(**options)
    list(told(node, story))

    tick_to_the_end(node)

    exits = [c for c in node.ordered if isinstance(c, cmd.Exit)]
    assert node.stage is Stage.OVER
    assert exits == node.ordered[-1:]


@given(options=OPTIONS, story=STORIES, more=STORIES)
def test_nothing_changes_a_run_that_is_over(new_node, options, story, more):
    """Every event is ignored in OVER."""
    node = new_node(**options)
    list(told(node, story))
    tick_to_the_end(node)

    for before in told(node, more):
        assert (node.state, node.commands) == (before, ())


@given(options=OPTIONS, story=STORIES)
def test_a_group_is_proven_empty_before_every_spawn_but_the_first(
    new_node, options, story
):
    """Whatever is spawned, KILLING of the attempt before ended with GroupEmpty."""
    node = new_node(**options)
    spawned, emptied = [], []
    for before in told(node, story):
        if before.stage is Stage.KILLING and node.stage is Stage.DECIDING:
            emptied.append(before.attempt)
        spawned += [c.attempt for c in node.commands if isinstance(c, cmd.Spawn)]
        earlier = {attempt for attempt in spawned if attempt < node.attempt}

        assert spawned == sorted(set(spawned))
        assert earlier <= set(emptied)


@given(options=OPTIONS, story=STORIES)
def test_pauses_come_from_the_schedule_alone(new_node, options, story):
    """A proposed restart is a pause of --backoff after what made the attempt fail."""
    node = new_node(**options)
    for before in told(node, story):
        for command in node.commands:
            if isinstance(command, cmd.Propose) and command.restart_at_s is not None:
                began = before.failed or before.cannot or before.hang
                pause_s = BACKOFFS[min(node.state.failed_attempts, 3) - 1]

                assert command.restart_at_s == began.at_s + pause_s


class World:
    """Edges that answer every order, except for one answer that gets lost.

    Args:
        node: whose orders they are.
        fates: for each attempt, (seconds, rank, status) of ranks that fail.
        lost: the kind of answer that gets lost, and how many come through before.
        stop_s: when SIGTERM comes; None for never.
        runtime: which stop rank 0 wants after two seconds; empty without the runtime.
            ``hang`` where rank 1 hangs instead.
    """

    def __init__(self, node, fates, lost, stop_s, runtime=""):
        self.runtime = runtime
        self.node, self.fates, self.lost_kind = node, fates, lost[0]
        self.due, self.numbers = [], itertools.count()
        self.seen, self.lose = 0, lost[1]
        self.alive = {}
        self.helpers = True
        self.post(0, ev.Launched, "launched")
        if stop_s is not None:
            self.post(stop_s, ev.Signalled, "signalled", TERM, 1)

    def post(self, delay_s, cls, kind, *fields):
        """Have an event happen later, unless it is the one that gets lost."""
        if kind == self.lost_kind:
            self.seen += 1
            if self.seen == self.lose + 1:
                return
        at_s = self.node.now_s + delay_s
        entry = (at_s, next(self.numbers), cls(kind, at_s, *fields))
        heapq.heappush(self.due, entry)

    def run(self):
        """Let events and deadlines happen in order until the run is over."""
        node = self.node
        for _ in range(500):
            tick_s = machine.deadline(node.state)
            if node.stage is Stage.OVER:
                return
            if self.due and self.due[0][0] < tick_s:
                at_s, _, event = heapq.heappop(self.due)
                node.now_s = max(node.now_s, at_s)
                if not self.still_happens(event):
                    continue
                node.tell(event)
            else:
                assert tick_s < NEVER, "nothing is due any more"
                node.now_s = max(node.now_s, tick_s)
                node.ticked()
            for command in node.commands:
                self.carry_out(command)
            self.look_for_helpers()

    def still_happens(self, event):
        """Return False for the end of a rank that has ended of something else."""
        if not isinstance(event, ev.RankExited):
            return True
        return self.alive.pop((event.attempt, event.rank), False)

    def carry_out(self, command):
        """Do what an edge does; there is a method for each kind that is answered."""
        do = getattr(self, f"on_{command.kind}", None)
        if do:
            do(command)

    def on_prepare(self, command):
        """Prepare at once."""
        self.helpers = True
        self.post(0.1, ev.Prepared, "prepared", command.attempt, 29500, "")

    def on_spawn(self, command):
        """Start the ranks; those without a fate end with 0 after a minute."""
        n, size = command.attempt, self.node.state.spec.world_size
        for rank in range(size):
            self.alive[n, rank] = True
            self.post(0, ev.RankStarted, "rank_started", n, rank, 4000 + rank)
        if self.runtime == "hang":
            found = (n, (1,), "stalled")
            self.post(3, ev.HangSuspected, "hang_suspected", *found, 0.0, 0.1)
            self.post(9, ev.HangConfirmed, "hang_confirmed", *found[:2], "absent")
        elif self.runtime:
            everyone = tuple(range(size))
            self.post(1, ev.SelfStopping, "self_stopping", n, everyone)
            self.post(2, ev.StopWanted, "stop_wanted", n, 0, self.runtime, "", None)
        for delay_s, rank, status in self.fates[n] if n < len(self.fates) else ():
            self.exit(delay_s, n, rank % size, status)
        for rank in range(size):
            self.exit(60, n, rank, 0)

    def on_capture(self, command):
        """Find where rank 1 is."""
        where = ((1,), "all_reduce", "dataset.py:88 in read")
        n, final = command.attempt, command.final
        self.post(0.4, ev.Captured, "captured", n, final, *where)

    def on_signal_ranks(self, command):
        """End the ranks as SIGTERM does."""
        for rank in command.ranks:
            self.exit(0.2, command.attempt, rank, -TERM)

    def on_count_checks(self, command):
        """Count."""
        self.post(0, ev.ChecksCounted, "checks_counted", command.attempt, 3)

    def on_publish_stop(self, command):
        """End the ranks as the runtime does: with 0, with 143, or failing."""
        status = {"user": 0, "error": 1, "peer": 1}.get(command.stop, 143)
        for _, rank in list(self.alive):
            self.exit(0.3, command.attempt, rank, status)

    def on_terminate_helpers(self, command):
        """End the helpers."""
        self.post(0.2, ev.GroupEmpty, "group_empty", command.attempt)

    def on_kill_all(self, command):
        """End the ranks as SIGKILL does."""
        for _, rank in list(self.alive):
            self.exit(0.1, command.attempt, rank, -KILL)
        self.post(0.2, ev.GroupEmpty, "group_empty", command.attempt)

    def on_scan(self, command):
        """Find a newer checkpoint after each attempt."""
        n = command.attempt
        self.post(0.3, ev.Scanned, "scanned", n, n, "", "")

    def on_judge(self, command):
        """Say what it was."""
        n, final = command.attempt, command.final
        self.post(0.2, ev.Judged, "judged", n, "killed", (0,), -KILL, "", final)

    def on_propose(self, command):
        """Agree."""
        self.post(0, ev.PlanAgreed, "plan_agreed", *command[1:])

    def exit(self, delay_s, n, rank, status):
        """Have a rank end; only its first end counts."""
        self.post(delay_s, ev.RankExited, "rank_exited", 0.0, n, rank, status, ())

    def look_for_helpers(self):
        """After success, tell once of what is left."""
        node = self.node
        if self.helpers and node.stage is Stage.TERMINATING and node.state.succeeded:
            self.helpers = False
            left = (node.attempt, ("sh (4100)",), 1)
            self.post(0.1, ev.HelpersLeft, "helpers_left", *left)


FATES = st.lists(
    st.lists(
        st.tuples(st.floats(0.1, 30), st.integers(0, 2), st.sampled_from(STATUSES[1:])),
        max_size=3,
    ),
    max_size=4,
)
ANSWERS = """
    prepared scanned judged plan_agreed group_empty helpers_left self_stopping
    stop_wanted checks_counted hang_suspected hang_confirmed captured
""".split()


STOPS_S = st.none() | st.floats(0, 200)
RUNTIMES = st.sampled_from(["", "user", "preempt", "error", "hang"])


@pytest.mark.parametrize("answer", [*ANSWERS, "nothing"])
@given(options=OPTIONS, trouble=st.tuples(FATES, st.integers(0, 3), STOPS_S, RUNTIMES))
def test_losing_any_one_answer_still_ends(new_node, answer, options, trouble):
    """Whatever edges do not answer, deadlines bring every run to its one Exit."""
    node = new_node(**options)
    fates, come_through, *rest = trouble

    World(node, fates, (answer, come_through), *rest).run()

    assert node.stage is Stage.OVER
    assert node.exit_code is not None


@given(options=OPTIONS)
def test_a_world_without_trouble_ends_with_0(new_node, options):
    """The world of these tests is sound: where nothing fails the run succeeds."""
    node = new_node(**options | {"stop_after_s": None})

    World(node, [], ("nothing", 0), None).run()

    assert node.exit_code == 0
