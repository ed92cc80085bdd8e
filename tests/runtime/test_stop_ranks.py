"""The global stop among real ranks: all leave at one step, or learn why they cannot."""

import threading
import time

import pytest

from dsup_runtime import contract

pytestmark = [pytest.mark.slow, pytest.mark.torch]

RANK = """
import random, signal
from dsup_runtime import deferred, heartbeat, side_group
from dsup_runtime.stop import agreed, drain, request_stop, should_stop
numbers = random.Random(f"{args} {rank}")
one = torch.ones(1)
done = 0
def reduce():
    global done
    dist.all_reduce(one)
    done += 1
"""
STEPS = """
for step in range(10**9):
    {here}
    time.sleep(numbers.random() * 0.004)
    reduce()
    time.sleep(numbers.random() * 0.004)
    if stop := should_stop(step): break
told = stop, done
"""
SEEDS = range(8)


def agreed_by(answers):
    """Return the one thing that all ranks told."""
    assert all("told" in (answer or {}) for answer in answers), answers
    told = [answer["told"] for answer in answers]
    assert told == [told[0]] * len(told)
    return told[0]


def stop_like_the_agent(page, slots=4):
    """Freeze, wait until each check that missed it has been counted, and publish."""
    words = page.words
    words[contract.HEADER_FREEZE] = 1
    threading.Event().wait(0.02)
    last = max(page.slot(slot)[contract.SLOT_SEQUENCE] for slot in range(slots))
    words[contract.HEADER_STOP_KIND] = contract.STOP_KINDS.index("preempt")
    words[contract.HEADER_STOP_RANK] = -1
    words[contract.HEADER_STOP_STEP] = last + 1


def wait_for_check(page, number, rank=0):
    """Wait until a rank has come to a check."""
    until_s = time.monotonic() + 600
    while page.slot(rank)[contract.SLOT_SEQUENCE] < number:
        assert time.monotonic() < until_s, f"rank {rank} never came to check {number}"
        threading.Event().wait(0.001)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deferred_error_of_one_rank_stops_all_at_one_step(world, seed):
    """Without dsup: rank 3 defers at step 17, and all leave one step later."""
    here = "if (rank, step) == (3, 17): deferred.try_or_defer(int, 'x', where='log')"
    answers = world.run(RANK + STEPS.format(here=here), args=seed)

    stop, done = agreed_by(answers)
    assert stop[0] == "error"
    assert stop[1].startswith("log: ValueError: invalid literal")
    assert stop[2:4] == [18, 3]
    assert done == 19


@pytest.mark.parametrize("number", range(6))
def test_a_frozen_page_stops_all_ranks_at_one_step(world, number):
    """Under dsup: whenever the page is frozen, all ranks do the same steps."""
    world.begin(RANK + STEPS.format(here="pass"), args=number, supervised=True)
    wait_for_check(world.page, 3 + 7 * number)
    stop_like_the_agent(world.page)

    stop, done = agreed_by(world.hear())
    assert stop[0] == "preempt"
    assert stop[2] >= 3 + 7 * number
    assert done == stop[2] + 1


def test_a_waiting_rank_is_let_go_into_the_collective_of_the_others(world):
    """Rank 0 stands at check 5 while the others sit in the step after it."""
    code = """
for step in range(10**9):
    reduce()
    if rank == 0 and step == 5:
        while not heartbeat.own_page().header(2): time.sleep(0.001)
    if stop := should_stop(step): break
told = stop, done
"""
    world.begin(RANK + code, supervised=True)
    wait_for_check(world.page, 5)
    for rank in (1, 2, 3):
        wait_for_check(world.page, 6, rank)
    stop_like_the_agent(world.page)

    stop, done = agreed_by(world.hear())
    assert stop[2] == 6
    assert done == 7


@pytest.mark.parametrize("supervised", [True, False])
def test_a_signal_to_one_rank_stops_all_in_both_loops(world, supervised):
    """SIGTERM at rank 1 only: every rank leaves the inner and the outer loop."""
    code = """
signal.signal(signal.SIGTERM, lambda *_: request_stop("SIGTERM", kind="preempt"))
left = []
for epoch in range(10**9):
    for step in range(10):
        if rank == 1 and (epoch, step) == (1, 4): os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.002)
        reduce()
        if stop := should_stop(10 * epoch + step):
            left.append(stop)
            break
    dist.barrier()  # what all ranks do after an epoch
    if stop := should_stop():
        left.append(stop)
        break
told = left[-1], len(left), done
"""
    world.begin(RANK + code, supervised=supervised)
    if supervised:
        until_s = time.monotonic() + 600
        while not world.page.slot(1)[contract.SLOT_WANTED]:
            assert time.monotonic() < until_s, "rank 1 never wanted a stop"
            threading.Event().wait(0.001)
        stop_like_the_agent(world.page)

    stop, left, done = agreed_by(world.hear())
    assert stop[0] == "preempt"
    if not supervised:
        assert (stop[1:4], left, done) == (["SIGTERM", 15, 1], 2, 16)
    else:
        assert stop[2] >= 14
        assert left in {1, 2}


@pytest.mark.parametrize(
    ("wishes", "winner"),
    [
        pytest.param({1: "limit", 3: "preempt"}, ["preempt", 3], id="greatest kind"),
        pytest.param({2: "user", 3: "user"}, ["user", 2], id="least rank"),
        pytest.param({0: "user", 1: "error"}, ["error", 1], id="error over success"),
    ],
)
def test_of_several_wishes_all_ranks_obey_the_same(world, wishes, winner):
    """The greatest kind wins, among equals the least rank; and its reason is told."""
    code = """
kind = args.get(str(rank))
if kind: request_stop(f"by {rank}", kind=kind)
told = should_stop(1), should_stop(2)
"""
    first, stop = agreed_by(world.run(RANK + code, args=wishes))

    assert first is None
    assert stop == [winner[0], f"by {winner[1]}", 2, winner[1], 25.0]


def test_later_wishes_do_not_spoil_the_reason(world):
    """A rank that wants more while its wish is under way still tells the older one."""
    code = """
if rank == 1: request_stop("time", kind="limit")
should_stop(1)
if rank == 1: request_stop("worse", kind="error")
told = should_stop(2)
"""
    stop = agreed_by(world.run(RANK + code, size=2))

    assert stop == ["limit", "time", 2, 1, 25.0]


def test_ranks_that_do_not_check_equally_often_get_an_error(world):
    """A rank whose loop is longer raises within the limit, and hangs nowhere."""
    code = """
side_group.exchange("here", timeout_s=60)
try:
    for step in range(5 if rank == 0 else 9): should_stop(step)
except Exception as error:
    told = type(error).__name__, str(error), step
"""
    env = {contract.COMM_TIMEOUT_S: "3"}
    answers = world.run(RANK + code, size=2, env=env)

    assert answers[0] == {"told": None}
    name, text, step = answers[1]["told"]
    assert name == "PeerError"
    assert "did not answer within" in text
    assert step == 6


@pytest.mark.parametrize("debug", ["1", ""], ids=["debug", "else"])
def test_debug_mode_finds_ranks_at_different_steps(world, debug):
    """A check under `if is_main` pairs with another step's: DSUP_DEBUG=1 says so."""
    code = """
for step in range(4):
    if rank == 0 and step == 1: should_stop(step)
    should_stop(step)
told = step
"""
    answers = world.run(RANK + code, size=2, env={"DSUP_DEBUG": debug})

    if not debug:
        assert [answer["told"] for answer in answers] == [3, 3]
        return
    for answer in answers:
        assert answer["error"] == "PeerError"
        assert "one rank was at step 1 and another at step 2" in answer["text"]


def test_a_drained_group_can_be_destroyed(world):
    """Nothing that a check has begun keeps the groups from being destroyed."""
    code = """
for step in range(3): should_stop(step)
time.sleep(0.2 * rank)
told = drain(), drain()
dist.destroy_process_group()
"""
    assert world.run(RANK + code, size=2) == [{"told": [True, True]}] * 2


def test_draining_is_bounded_where_a_rank_is_missing(world):
    """What a rank alone has begun is given up after the time, and it says so."""
    code = """
should_stop(0)
if rank == 0:
    should_stop(1)
    begin = time.monotonic()
    told = drain(timeout_s=0.5), time.monotonic() - begin
"""
    drained, took_s = world.run(RANK + code, size=2)[0]["told"]

    assert drained is False
    assert took_s > 0.4


def test_a_group_made_anew_is_asked_anew(world):
    """After drain and destroy, checks go on in the next process group."""
    code = """
should_stop(0)
drain()
dist.destroy_process_group()
dist.init_process_group("gloo", init_method=args, rank=rank, world_size=size)
if rank == 1: request_stop("enough")
should_stop(1)
told = should_stop(2)
"""
    again = f"file://{world.directory}/again"
    stop = agreed_by(world.run(RANK + code, size=2, args=again))

    assert stop[:3] == ["user", "enough", 2]


@pytest.mark.parametrize("asker", [0, 1])
def test_a_group_made_anew_needs_no_drain(world, asker):
    """What was in flight goes with its group; who wants something asks in the next."""
    code = """
should_stop(0)
should_stop(1)
dist.destroy_process_group()
dist.init_process_group("gloo", init_method=args[1], rank=rank, world_size=size)
if rank == args[0]: request_stop("enough")
told = should_stop(2), should_stop(3), drain()
"""
    again = f"file://{world.directory}/anew{asker}"
    first, stop, drained = agreed_by(
        world.run(RANK + code, size=2, args=[asker, again])
    )

    assert first is None
    assert stop[:4] == ["user", "enough", 3, asker]
    assert drained is True


def test_a_check_of_peers_may_not_stand_in_a_deferred_block(world):
    """What all ranks take part in is refused where one rank alone may fail."""
    code = """
with deferred.defer("a log line"):
    should_stop(0)
"""
    answers = world.run(RANK + code, size=2)

    assert [answer["error"] for answer in answers] == ["CollectiveInDefer"] * 2


def test_a_check_breaks_no_graph(world):
    """Outside of the compiled step should_stop is unknown to torch.compile."""
    code = """
import torch._dynamo
from torch._dynamo.testing import CompileCounter
counter = CompileCounter()
model = torch.nn.Linear(4, 4)
step_of = torch.compile(lambda batch: model(batch).sum() * 2, backend=counter)
for step in range(5):
    step_of(torch.ones(2, 4)).backward()
    heartbeat.beat(step)
    assert should_stop(step) is None
told = counter.frame_count, dict(torch._dynamo.utils.counters["graph_break"])
"""
    answers = world.run(RANK + code, size=1, meet=None)

    assert answers == [{"told": [1, {}]}]


def test_a_frozen_rank_ends_the_others_within_the_limit(world):
    """A rank that is stopped for good becomes an error of ours, not a hang."""
    code = """
side_group.exchange("here", timeout_s=60)
should_stop(0)
should_stop(1)
if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
try:
    for step in range(2, 9): should_stop(step)
except Exception as error:
    told = type(error).__name__
"""
    env = {contract.COMM_TIMEOUT_S: "3"}
    answers = world.run(RANK + code, size=2, env=env, frozen=[1])

    assert answers[0] == {"told": "PeerError"}
