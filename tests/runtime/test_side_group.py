"""The runtime's own group: what ranks give each other, and what they may not."""

import pytest

SIDE = """
from dsup_runtime import side_group
from dsup_runtime.side_group import exchange, reduce_max, size
"""


def test_alone_every_exchange_is_local(run):
    """Without a process group a rank gets its own, and torch is not imported."""
    script = """
import sys
assert (side_group.rank(), size()) == (0, 1)
assert reduce_max([3, 4], timeout_s=1) == [3, 4]
assert exchange({"a": [1, None]}, timeout_s=1) == [{"a": [1, None]}]
assert "torch" not in sys.modules
"""
    assert run(SIDE + script) == (0, "", "")


@pytest.mark.slow
@pytest.mark.torch
def test_ranks_get_maxima_and_all_values_by_rank(world):
    """Numbers up to the limit and values of any length arrive on every rank."""
    code = """
greatest = side_group.NUMBER_LIMIT - 1
told = [
    size(),
    reduce_max([rank, greatest if rank == 1 else 0], timeout_s=90),
    reduce_max([7 - rank], timeout_s=90),
    [len(text) for text in exchange("é" * 10 ** (2 * rank), timeout_s=90)],
]
"""
    answers = world.run(SIDE + code, size=3)

    told = [3, [2, (1 << 47) - 1], [7], [1, 100, 10_000]]
    assert answers == [{"told": told}] * 3


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param("reduce_max([-1], timeout_s=1)", "cannot reduce [-1]", id="-1"),
        pytest.param("reduce_max([1 << 47], timeout_s=1)", "from 0 below", id="2**47"),
        pytest.param("reduce_max([], timeout_s=1)", "one or two numbers", id="none"),
        pytest.param("reduce_max([1, 2, 3], timeout_s=1)", "one or two", id="three"),
        pytest.param(
            "reduce_max([1], timeout_s=1e15)", "cannot wait 1000000000000000", id="long"
        ),
        pytest.param("exchange(1, timeout_s=1e10)", "cannot wait 1000", id="longer"),
        pytest.param("exchange(1, timeout_s=0)", "cannot wait 0 s", id="no time"),
        pytest.param("exchange('x' * (1 << 20), timeout_s=1)", "1 MiB", id="too long"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anyone_waits(world, call, why):
    """The caller's mistake is a ValueError on each rank that makes it."""
    answers = world.run(SIDE + call, size=2)

    for answer in answers:
        assert answer["error"] == "ValueError"
        assert why in answer["text"]


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_that_has_gone_is_an_error_of_ours(world):
    """When a peer destroys its groups, the others get a PeerError, in time."""
    code = """
exchange(rank, timeout_s=90)
if rank == 1:
    dist.destroy_process_group()
else:
    exchange(rank, timeout_s=2)
"""
    answers = world.run(SIDE + code, size=2)

    assert answers[1] == {"told": None}
    assert answers[0]["error"] == "PeerError"
    assert "cannot agree with the other ranks" in answers[0]["text"]


@pytest.mark.slow
@pytest.mark.torch
def test_the_longest_limit_is_waited_for(world):
    """A limit of 30 years is one, and none that is over at once."""
    code = "told = [reduce_max([rank], timeout_s=1e9), exchange(rank, timeout_s=1e9)]"
    answers = world.run(SIDE + code, size=2)

    assert answers == [{"told": [[1], [0, 1]]}] * 2
