"""``agree``: one answer on every rank, within a bound, or an error that says why."""

import itertools

import pytest

AGREE = """
from dsup_runtime.agreement import agree
"""
FREEZE = """
import signal
if rank == args["rank"]:
    os.kill(os.getpid(), signal.SIGSTOP)
begin = time.monotonic()
try:
    agree(True, timeout_s=1)
except Exception as error:
    told = [type(error).__name__, time.monotonic() - begin]
"""


def test_alone_the_flag_is_the_answer(run):
    """Without a process group agree is local, and imports no torch."""
    script = """
import sys
from dsup_runtime.agreement import agree
for op in ("any", "all"):
    assert agree(True, op=op) is True
    assert agree(False, op=op) is False
assert "torch" not in sys.modules
"""
    assert run(script) == (0, "", "")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param("agree(True, op='some')", "neither any nor all", id="no such op"),
        pytest.param("agree(True, timeout_s=0)", "cannot wait 0 s", id="no time"),
        pytest.param(
            "agree(True, timeout_s=float('nan'))", "cannot wait nan s", id="nan"
        ),
        pytest.param(
            "agree(True, timeout_s=float('inf'))", "cannot wait inf s", id="endless"
        ),
        pytest.param("agree(True, timeout_s=1e10)", "at most 1000000000 s", id="1e10"),
    ],
)
def test_wrong_arguments_are_refused_everywhere(run, call, why):
    """A mistake shows on a single process too, before a large run meets it."""
    status, _, error = run(AGREE + call)

    assert status == 1
    assert "ValueError: cannot " in error
    assert why in error


@pytest.mark.slow
@pytest.mark.torch
def test_every_rank_gets_the_exact_answer(world):
    """For all votes of three ranks, any and all are what they are in Python."""
    votes = list(itertools.product([False, True], repeat=3))
    code = """
told = [
    [agree(vote[rank], op=op) for op in ("any", "all")]
    for vote in args
]
"""
    answers = world.run(AGREE + code, size=3, args=votes)

    expected = [[any(vote), all(vote)] for vote in votes]
    assert answers == [{"told": expected}] * 3


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("met", [True, False], ids=["met before", "first exchange"])
def test_a_frozen_rank_costs_no_more_than_the_limit(world, met):
    """With one rank stopped the others raise once the limit is over."""
    code = AGREE + ("agree(True)\n" if met else "") + FREEZE
    answers = world.run(code, size=3, args={"rank": 1}, frozen=[1])

    assert answers.pop(1) is None
    for answer in answers:
        error, waited_s = answer["told"]
        assert error == "PeerError"
        assert waited_s > 0.9


@pytest.mark.slow
@pytest.mark.torch
def test_a_frozen_host_of_the_store_costs_no_more_than_the_limit(world):
    """The first exchange is bounded even where the store itself no longer answers."""
    code = """
from datetime import timedelta
store = dist.TCPStore(
    "127.0.0.1", 0, is_master=True, wait_for_workers=False
) if rank == 0 else None
place = args["file"]
if rank == 0:
    with open(place + ".new", "w") as told_port:
        told_port.write(str(store.port))
    os.rename(place + ".new", place)
while not os.path.exists(place):
    time.sleep(0.01)
if rank != 0:
    store = dist.TCPStore("127.0.0.1", int(open(place).read()), is_master=False)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
dist.barrier()
"""
    args = {"rank": 0, "file": str(world.directory / "port")}
    answers = world.run(code + AGREE + FREEZE, size=2, args=args, frozen=[0], meet=None)

    error, waited_s = answers[1]["told"]
    assert error == "PeerError"
    assert waited_s > 0.9


@pytest.mark.slow
@pytest.mark.torch
def test_ranks_that_meet_in_different_calls_all_learn_it(world):
    """A call under `if is_main` never takes another call's answer for its own."""
    code = """
if rank == 0:
    agree(True, timeout_s=30)
agree(False, op="all", timeout_s=30)
"""
    answers = world.run(AGREE + code, size=2)

    for answer in answers:
        assert answer["error"] == "PeerError"
        assert "in agree any and in agree all" in answer["text"]
        assert "if is_main" in answer["text"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("debug", ["1", ""], ids=["debug", "else"])
def test_debug_mode_finds_checks_that_not_all_ranks_made(world, debug):
    """With DSUP_DEBUG=1 unequal counts of should_stop are an error that shows where."""
    code = """
from dsup_runtime.stop import should_stop
should_stop()
if rank == 1:
    should_stop()
told = agree(True)
"""
    answers = world.run(AGREE + code, env={"DSUP_DEBUG": debug}, supervised=True)

    for answer in answers:
        if debug:
            assert answer["error"] == "PeerError"
            assert "rank 0: 1, now at <string>:" in answer["text"]
            assert "rank 1: 2, now at <string>:" in answer["text"]
        else:
            assert answer == {"told": True}


@pytest.mark.slow
@pytest.mark.torch
def test_a_deferred_block_may_not_agree(world):
    """What needs all ranks is refused where one rank alone may fail."""
    code = """
from dsup_runtime.deferred import defer
with defer("a log line"):
    agree(True)
"""
    answers = world.run(AGREE + code, size=2)

    assert [answer["error"] for answer in answers] == ["CollectiveInDefer"] * 2
