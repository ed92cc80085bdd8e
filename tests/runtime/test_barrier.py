"""``barrier``: all ranks pass, or each learns within bounds who did not come."""

import threading
import time

import pytest

from dsup_runtime import contract

LIMIT_S = 2.0

MEET = """
from datetime import timedelta
from dsup_runtime.barriers import barrier

def meet(path):
    # The store listens on a port that the kernel chose: fixed ones collide.
    a_minute = timedelta(seconds=60)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, a_minute, False)
        with open(path + ".new", "w") as file:
            file.write(str(store.port))
        os.rename(path + ".new", path)
    else:
        while not os.path.exists(path):
            time.sleep(0.01)
        port = int(open(path).read())
        store = dist.TCPStore("127.0.0.1", port, size, False, a_minute)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

def come(name, **options):
    begin = time.monotonic()
    try:
        barrier(name, **options)
        return ["passed"]
    except BaseException as error:
        took = time.monotonic() - begin
        ranks = getattr(error, "missing", getattr(error, "ranks", None))
        return [type(error).__name__, list(ranks), took, str(error)]
"""
LEAVES = {
    "SIGKILL": "os.kill(os.getpid(), 9)",
    "SIGSTOP": "os.kill(os.getpid(), 19)",
    "exit 0": "os._exit(0)",
    "raise": "raise ValueError('its own')",
    "destroy": "dist.destroy_process_group()",
}


@pytest.fixture
def place(tmp_path):
    """Where rank 0 says at which port its store listens."""
    return str(tmp_path / "port")


def test_alone_a_barrier_is_passed_at_once(run):
    """Without a process group it is local, and imports no torch."""
    script = """
import sys
from dsup_runtime.barriers import barrier
barrier("start")
barrier("start", timeout_s=0.001)
assert "torch" not in sys.modules
"""
    assert run(script) == (0, "", "")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param("barrier('')", "cannot name a barrier ''", id="no name"),
        pytest.param("barrier('x' * 201)", "cannot name a barrier", id="long name"),
        pytest.param(
            r"barrier('\udcff')", r"barrier '\udcff', because", id="surrogate"
        ),
        pytest.param("barrier('x', timeout_s=0)", "cannot wait 0 s", id="no time"),
        pytest.param("barrier('x', timeout_s=float('nan'))", "nan s", id="nan"),
        pytest.param("barrier('x', timeout_s=float('inf'))", "inf s", id="endless"),
    ],
)
def test_wrong_arguments_are_refused_everywhere(run, call, why):
    """A mistake shows on a single process too, before a large run meets it."""
    status, _, error = run("from dsup_runtime.barriers import barrier\n" + call)

    assert status == 1
    assert "ValueError: cannot " in error
    assert why in error


def test_a_barrier_in_a_deferred_block_is_refused(run):
    """It needs all ranks, and the others are not in this rank's block."""
    script = """
from dsup_runtime.barriers import barrier
from dsup_runtime.deferred import defer
with defer("log"):
    barrier("x")
"""
    status, _, error = run(script)

    assert status == 1
    assert "CollectiveInDefer: cannot run barrier 'x' in the deferred block" in error


@pytest.mark.slow
@pytest.mark.torch
def test_all_ranks_pass_together(world, place):
    """Nobody leaves before the last has come, and the group itself does nothing."""
    code = (
        MEET
        + """
meet(args)
before = dist.group.WORLD._get_sequence_number_for_group()
crossed = []
for number in range(4):
    if number == rank:
        time.sleep(0.2)
    came = time.monotonic()
    barrier("step", timeout_s=60)
    crossed.append([came, time.monotonic()])
told = [crossed, dist.group.WORLD._get_sequence_number_for_group() - before]
"""
    )
    answers = [answer["told"] for answer in world.run(code, meet=None, args=place)]

    assert [started for _, started in answers] == [0] * 4
    for crossing in zip(*(crossed for crossed, _ in answers), strict=True):
        assert max(came for came, _ in crossing) <= min(left for _, left in crossing)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
def test_a_rank_that_does_not_come_is_named_on_every_other(world, place, leave):
    """Once the limit is over, by an error of ours, however it was lost."""
    code = MEET + f"meet(args)\nbarrier('start')\nif rank == 1:\n    {leave}\n"
    code += f"else:\n    told = come('step', timeout_s={LIMIT_S})"
    frozen = [1] if "19" in leave else []
    answers = world.run(code, size=3, meet=None, args=place, frozen=frozen)

    for answer in answers[0], answers[2]:
        kind, ranks, took_s, text = answer["told"]
        assert (kind, ranks) == ("BarrierTimeout", [1])
        assert "because rank 1 did not come within 2." in text
        assert took_s >= LIMIT_S


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
def test_a_lost_host_of_the_store_is_named_too(world, place, leave):
    """Who holds the keys may be the one that is missing: nobody can read them then."""
    code = MEET + f"meet(args)\nbarrier('start')\nif rank == 0:\n    {leave}\n"
    code += f"else:\n    told = come('step', timeout_s={LIMIT_S})"
    frozen = [0] if "19" in leave else []
    answers = world.run(code, size=3, meet=None, args=place, frozen=frozen)

    for answer in answers[1:]:
        kind, ranks, *_ = answer["told"]
        assert kind in {"BarrierTimeout", "PeerError"}
        assert ranks == [0]


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_that_skips_ahead_is_found_at_once(world):
    """All learn which barriers the ranks are at; the ten minutes are not waited out."""
    code = MEET + "told = come('save' if rank == 2 else 'step', timeout_s=600)"
    answers = world.run(code, size=3)

    for answer in answers:
        kind, _, _, text = answer["told"]
        assert kind == "PeerError"
        assert "'save'" in text
        assert "'step'" in text


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_that_skips_ahead_into_a_collective_is_named(world):
    """What waits in the group's own all_reduce has not come either."""
    code = "def freeze():\n    dist.all_reduce(torch.ones(1))\n" + MEET
    code += "barrier('start')\n"  # so that nobody still imports when time runs
    code += f"told = come('step', timeout_s={LIMIT_S}) if rank != 2 else freeze()"
    answers = world.run(code, size=3, frozen=[2])

    told = [answer["told"][:2] for answer in answers[:2]]
    assert told == [["BarrierTimeout", [2]]] * 2


@pytest.mark.slow
@pytest.mark.torch
def test_one_decision_holds_for_all(world, place):
    """The first whose time is over ends it for those that would wait, and the late."""
    code = (
        MEET
        + """
barrier("begin", timeout_s=60)
while rank == 2 and not os.path.exists(args):
    time.sleep(0.01)
told = [come("step", timeout_s=2 if rank == 0 else 600)]
if rank == 0:
    open(args, "w").close()
told.append(come("next", timeout_s=60))
"""
    )
    trial = world.run(code, size=3, args=place)
    answers = [answer["told"] for answer in trial]

    assert [first[:2] for first, _ in answers] == [["BarrierTimeout", [2]]] * 3
    assert [second for _, second in answers] == [["passed"]] * 3


@pytest.mark.slow
@pytest.mark.torch
def test_the_host_may_leave_as_soon_as_it_has_passed(world, place):
    """A store that goes with its rank takes nobody's success with it."""
    code = (
        MEET
        + """
meet(args)
if rank == 0:
    time.sleep(0.6)  # until then the others look ever more seldom
told = come("end")
if rank == 0:
    os._exit(0)
"""
    )
    answers = world.run(code, meet=None, args=place)

    assert [answer["told"] for answer in answers[1:]] == [["passed"]] * 3


@pytest.mark.slow
@pytest.mark.torch
def test_barriers_leave_nothing_in_the_store(world, place):
    """A run with a barrier in every epoch does not grow."""
    code = (
        MEET
        + """
meet(args)
store = dist.distributed_c10d._get_default_store()
keys = []
for number in range(20):
    barrier("epoch")
    if number in (2, 19):
        barrier("count")
        keys.append(store.num_keys())
        barrier("counted")
told = keys
"""
    )
    first, *_ = world.run(code, size=3, meet=None, args=place)

    early, late = first["told"]
    assert abs(late - early) <= 5  # a barrier's keys may be half gone


def wait_until(condition):
    """Wait until something holds, for a minute at most."""
    until_s = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < until_s
        threading.Event().wait(0.01)


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_known_to_have_ended_is_not_waited_for(world):
    """What dsup has seen end ends the barrier at once, for all."""
    code = MEET + "told = come('step', timeout_s=600) if rank != 1 else os._exit(0)"
    world.begin(code, size=3, supervised=True)
    world.page.slot(1)[contract.SLOT_DEAD] = 1
    answers = world.hear()

    for answer in answers[0], answers[2]:
        kind, ranks, _, text = answer["told"]
        assert (kind, ranks) == ("BarrierTimeout", [1])
        assert "because rank 1 has ended" in text


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_that_ended_after_it_came_does_not_count_as_missing(world):
    """A barrier proves that all came, not that any still lives."""
    code = (
        MEET
        + """
import threading
from dsup_runtime import barriers, beat, heartbeat
page = heartbeat.own_page()
if rank == 1:
    threading.Thread(target=barrier, args=["step"]).start()
    while barriers._meeting(0).missing([1]):
        time.sleep(0.01)
    time.sleep(0.5)
    beat(7)
    os._exit(0)
while rank == 2 and page.dead() != [1]:
    time.sleep(0.01)
if rank == 2:
    time.sleep(0.5)
told = come("step", timeout_s=60)
"""
    )
    world.begin(code, size=3, supervised=True)
    wait_until(lambda: world.page.slot(1)[contract.SLOT_STEP] == 7)
    world.page.slot(1)[contract.SLOT_DEAD] = 1
    answers = world.hear()

    assert [answers[rank]["told"] for rank in (0, 2)] == [["passed"]] * 2


@pytest.mark.slow
@pytest.mark.torch
def test_a_barrier_that_one_rank_may_not_enter_counts_as_its_own(world):
    """The next one is passed by all: no rank is a barrier behind the others."""
    code = (
        MEET
        + """
from contextlib import ExitStack
from dsup_runtime.deferred import defer
with ExitStack() as stack:
    if rank == 0:
        stack.enter_context(defer("log"))
    try:
        barrier("step", timeout_s=1)
    except Exception as error:
        first = type(error).__name__
told = [first, come("next", timeout_s=60)]
"""
    )
    answers = world.run(code, size=2)

    assert [answer.get("told") for answer in answers] == [
        ["CollectiveInDefer", ["passed"]],
        ["BarrierTimeout", ["passed"]],
    ]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("late", [0, 1], ids=["host", "other"])
def test_a_rank_that_gives_up_is_not_waited_for(world, late):
    """Without dsup too: who waits at a barrier learns at once that it is in vain."""
    code = (
        MEET
        + """
from dsup_runtime.barriers import give_up
barrier("start")
if rank == args:
    give_up()
else:
    told = come("step", timeout_s=600)
"""
    )
    answers = world.run(code, size=3, args=late)

    for rank in {0, 1, 2} - {late}:
        kind, ranks, _, text = answers[rank]["told"]
        assert (kind, ranks) == ("BarrierTimeout", [late])
        assert f"because rank {late} has ended" in text


def test_alone_nobody_is_told_of_giving_up(run):
    """Without a process group there is nobody, and torch is not imported."""
    script = """
import sys
from dsup_runtime.barriers import give_up
give_up()
assert "torch" not in sys.modules
"""
    assert run(script) == (0, "", "")
