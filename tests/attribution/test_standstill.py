"""What the stacks of all ranks at one moment show, before anybody is judged."""

import pytest

from dsup.attribution.standstill import COLLECTIVES, standstill, to_blame, where
from dsup.facts.stacks import Frame, Process, Thread

C10D = "/v/site-packages/torch/distributed/distributed_c10d.py"
WAIT = (Frame(C10D, 3, "all_reduce"), Frame("/srv/train.py", 9, "step"))
OTHER_LINE = (Frame(C10D, 3, "all_reduce"), Frame("/srv/train.py", 61, "step"))
PICKLED = (
    Frame("/srv/data.py", 6, "__getstate__"),
    Frame(C10D, 2, "_object_to_tensor"),
    Frame(C10D, 3, "all_gather_object"),
    Frame("/srv/train.py", 9, "step"),
)
SYNCHRONIZES = (
    Frame("/v/site-packages/torch/cuda/__init__.py", 1, "synchronize"),
    Frame("/srv/train.py", 7, "step"),
)
ELSE = (Frame("/srv/dataset.py", 88, "read"), Frame("/srv/train.py", 8, "step"))


def process(rank, frames=(), state="S", wchan=""):
    """Return a rank's process with that stack."""
    threads = (Thread("", True, tuple(frames)),) if frames else ()
    return Process(rank, 1000 + rank, state=state, wchan=wchan, threads=threads)


def shown(*stacks, size=None):
    """Return what these stacks show, of ranks from 0."""
    found = {
        rank: one if isinstance(one, Process) else process(rank, one)
        for rank, one in enumerate(stacks)
    }
    return standstill(found, len(stacks) if size is None else size)


@pytest.mark.parametrize("function", sorted(COLLECTIVES))
def test_each_collective_is_a_place_to_wait(function):
    """Whatever wraps it, the function of torch.distributed's is named."""
    inner = Frame("/v/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper")
    at = where(process(0, (inner, Frame(C10D, 3, function), *WAIT[1:])))

    assert (at.waits_in, at.place) == (function, "train.py:9 in step")


def test_what_the_user_called_is_named_not_what_that_calls():
    """``barrier`` ends in an all_reduce of its own on some backends."""
    at = where(process(0, (Frame(C10D, 3, "all_reduce"), Frame(C10D, 9, "barrier"))))

    assert at.waits_in == "barrier"


@pytest.mark.parametrize(
    ("stacks", "kind", "ranks"),
    [
        pytest.param([WAIT, WAIT, ELSE], "absent", (2,), id="one is elsewhere"),
        pytest.param([WAIT, ELSE, ELSE], "alone", (0,), id="one waits alone"),
        pytest.param([WAIT, ELSE], "absent", (1,), id="two ranks"),
        pytest.param([WAIT, WAIT, WAIT], "everyone", (), id="all wait"),
        pytest.param([WAIT, WAIT, OTHER_LINE], "everyone", (), id="several lines"),
        pytest.param([WAIT, PICKLED], "absent", (1,), id="own code in a collective"),
        pytest.param([ELSE, ELSE, ELSE], "everyone", (), id="all at one line"),
        pytest.param([ELSE, ELSE, SYNCHRONIZES], "apart", (), id="a device elsewhere"),
        pytest.param([ELSE[1:], ELSE[1:], WAIT[1:], WAIT[1:]], "apart", (), id="2+2"),
        pytest.param([ELSE], "apart", (), id="one rank"),
        pytest.param([(), (), ()], "unknown", (), id="no stacks"),
        pytest.param([WAIT, (), ()], "unknown", (), id="too few stacks"),
        pytest.param([WAIT, WAIT, ()], "absent", (2,), id="one stack is missing"),
        pytest.param([WAIT, process(1, WAIT, "T")], "absent", (1,), id="frozen in it"),
        pytest.param([WAIT, process(1, (), "T"), WAIT], "absent", (1,), id="frozen"),
        pytest.param([WAIT, WAIT, process(2, (), "D")], "absent", (2,), id="state D"),
        pytest.param(
            [process(0, ELSE, "D", "nfs"), process(1, ELSE, "D", "nfs")],
            "asleep",
            (),
            id="all in state D at one place",
        ),
    ],
)
def test_who_did_not_come(stacks, kind, ranks):
    """The waiting ones show who is missing, whatever is known of that one."""
    found = shown(*stacks)

    assert (found.kind, found.ranks) == (kind, ranks)


def test_a_rank_nobody_looked_at_may_be_anywhere():
    """With ranks of other nodes unseen, one that is elsewhere here is a fact still."""
    assert shown(WAIT, WAIT, size=8).kind == "unknown"
    assert shown(WAIT, WAIT, WAIT, ELSE, size=5).ranks == (3,)


def test_the_order_in_which_ranks_are_looked_at_says_nothing():
    """Ranks come sorted, however they were handed in."""
    stacks = {r: process(r, WAIT if r % 2 else ELSE) for r in (3, 0, 5, 2, 1, 7, 9)}

    assert standstill(stacks, 7).ranks == (0, 2)


@pytest.mark.parametrize(
    ("stacks", "ranks"),
    [
        pytest.param([WAIT, WAIT, ELSE], (2,), id="before a collective"),
        pytest.param([WAIT, ELSE, ELSE], (0,), id="alone in one"),
        pytest.param([ELSE, ELSE, WAIT[1:]], (), id="most at a line of a script"),
        pytest.param([WAIT, WAIT, SYNCHRONIZES], (), id="it may wait for its device"),
        pytest.param([ELSE, ELSE, process(2, ELSE, "T")], (2,), id="frozen"),
        pytest.param([WAIT, WAIT, WAIT], (), id="none is missing"),
    ],
)
def test_nobody_is_ended_for_a_guess(stacks, ranks):
    """Where no collective is known, the many may hang and the one may wait."""
    assert to_blame(shown(*stacks)) == ranks


@pytest.mark.parametrize(
    ("file", "function", "waits_in"),
    [
        pytest.param("/src/pytorch/torch/distributed/c.py", "barrier", "barrier"),
        pytest.param("/v/site-packages/horovod/torch/mpi_ops.py", "synchronize", None),
        pytest.param("/v/site-packages/deepspeed/comm/comm.py", "all_reduce", None),
        pytest.param("/srv/drill/job/group.py", "meet", "meet"),
        pytest.param("/srv/comm/tools.py", "all_reduce", ""),
    ],
)
def test_whose_collectives_are_known(file, function, waits_in):
    """Those of torch, wherever it lies, and of libraries; a script's own are not."""
    frames = Frame("/usr/lib/python3.11/socket.py", 1, "recv"), Frame(file, 3, function)
    at = where(process(0, (*frames, *WAIT[1:])))

    assert at.waits_in == (function if waits_in is None else waits_in)
