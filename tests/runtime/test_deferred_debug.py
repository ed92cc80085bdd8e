"""Debug mode: a collective in a deferred block is found before it hangs."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.torch]

DEBUG = {"DSUP_DEBUG": "1"}
BLOCK = """
from dsup_runtime.deferred import *
from dsup_runtime.side_group import reduce_max
from torch.nn.parallel import DistributedDataParallel

def talk(call, swallow=False):
    try:
        with defer("log"):
            try:
                call()
            except Exception:
                if not swallow:
                    raise
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None
"""
CALLS = {
    "all_reduce": "lambda: dist.all_reduce(torch.ones(2))",
    "barrier": "dist.barrier",
    "broadcast": "lambda: dist.broadcast(torch.ones(1), 0)",
    "all_gather_object": "lambda: dist.all_gather_object([None] * size, rank)",
    "a send": "lambda: dist.send(torch.ones(1), 1)",
    "in another group": "lambda: dist.all_reduce(torch.ones(1), group=other)",
    "in our own group": "lambda: reduce_max([1], timeout_s=600)",
    "in backward": "lambda: ddp(torch.ones(1, 2)).sum().backward()",
}


def test_a_collective_is_refused_before_it_waits_for_anyone(world):
    """Rank 0 alone talks in a block: it learns it at once, and all go on together."""
    code = (
        BLOCK
        + f"""
other = dist.new_group()
ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
reduce_max([1], timeout_s=60)
told = []
if rank == 0:
    told = [talk(call) for call in ({", ".join(CALLS.values())})]
total = torch.tensor(1.0)
dist.all_reduce(total)
told = [told, has_deferred_error(), total.item()]
"""
    )
    first, *others = world.run(code, size=3, env=DEBUG)

    refusals, kept, total = first["told"]
    for call, (kind, text) in zip(CALLS, refusals, strict=True):
        assert kind == "CollectiveInDefer", call
        assert "in the deferred block 'log', because" in text
    assert (kept, total) == (False, 3.0)
    assert others == [{"told": [[], False, 3.0]}] * 2


def test_a_refusal_that_the_block_swallows_is_raised_at_its_end(world):
    """Code that catches everything, as loggers do, does not hide the mistake."""
    code = (
        BLOCK + "told = talk(lambda: dist.all_reduce(torch.ones(2)), swallow=True)[0]"
    )

    answers = world.run(code, size=2, env=DEBUG)

    assert answers == [{"told": "CollectiveInDefer"}] * 2


def test_a_collective_that_goes_another_way_is_found_at_the_end(world):
    """What torch's dispatcher does not see, the group's sequence number shows."""
    code = (
        BLOCK
        + """
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
def reduce():
    backend.allreduce([torch.ones(2)], dist.AllreduceOptions()).wait()
    raise OSError
told = [talk(reduce)[0], has_deferred_error()]
"""
    )
    answers = world.run(code, size=2, env=DEBUG)

    assert answers == [{"told": ["CollectiveInDefer", False]}] * 2


def test_debug_mode_changes_nothing_else(world):
    """Local work on tensors is done, its error kept, and an interrupt passes."""
    code = (
        BLOCK
        + """
value = try_or_defer(lambda: (torch.ones(3) * 2).sum().item())
raised = talk(lambda: torch.ones(4) @ torch.ones(5))
try:
    with defer("log"):
        raise KeyboardInterrupt
except KeyboardInterrupt:
    told = [value, raised, [type(kept.error).__name__ for kept in all_kept()]]
"""
    )
    answers = world.run(code, size=2, env=DEBUG)

    assert answers == [{"told": [6.0, None, ["RuntimeError"]]}] * 2


def test_an_error_that_torch_knows_for_a_lost_peer_is_not_kept(world):
    """It is raised at once in any mode: the group is broken."""
    code = BLOCK + "told = talk(lambda: (_ for _ in ()).throw(dist.DistNetworkError()))"

    answers = world.run(code, size=2)

    assert [answer["told"][0] for answer in answers] == ["DistNetworkError"] * 2


def test_without_debug_mode_no_block_looks_at_the_group(world):
    """The costs of the search are not those of a run."""
    code = (
        BLOCK
        + """
from dsup_runtime.collective_watch import watch
told = watch("log") is None
"""
    )
    assert world.run(code, size=2) == [{"told": True}] * 2
