"""``StepGuard`` and the host: what a step reads from the device, counted."""

import math

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dsup_runtime.numerics.result import APPLIED
from dsup_runtime.numerics.snapshot import Snapshot
from dsup_runtime.numerics.step_guard import StepGuard

pytestmark = pytest.mark.torch

WAITS = {
    "item", "tolist", "numpy", "cpu", "nonzero", "equal", "allclose",
    "__bool__", "__float__", "__int__", "__index__", "__len__",
}  # fmt: skip


class Reads(TorchFunctionMode):
    """Notes what would make the host wait for a device."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Note it, then do it."""
        if func.__name__ in WAITS:
            self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def deep(layers):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))


def guarded(model, **settings):
    # Unlike Adam, SGD itself reads nothing, not even on the CPU.
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, fused=settings.pop("fused", False)
    )
    return StepGuard(model, optimizer, **settings)


def reads_of_a_step(model, guard, factor=1.0):
    """Train a step, and return what it read and what became of it."""
    loss = model(torch.ones(1, 4)).square().mean() * factor
    with Reads() as reads:
        guard.arm(loss).backward()
        result = guard.step()
    return reads.seen, result


@pytest.mark.parametrize("waits", [torch.Tensor.item, torch.Tensor.tolist, bool, float])
def test_a_read_is_noted(waits):
    """Whichever way a tensor becomes a number, the count sees it."""
    with Reads() as reads:
        waits(torch.ones(()))

    assert len(reads.seen) == 1


@pytest.mark.parametrize("max_norm", [1e-6, 1.0, math.inf])
@pytest.mark.parametrize("layers", [1, 30])
def test_an_optimizer_that_is_not_fused_costs_one_read(layers, max_norm):
    """However many parameters there are, clipped or not; after that it is known."""
    model = deep(layers)
    guard = guarded(model, max_norm=max_norm)
    for _ in range(3):
        seen, result = reads_of_a_step(model, guard)
        assert seen == ["tolist"]
        assert result.verdict == APPLIED
        with Reads() as reads:
            assert result
        assert reads.seen == []


@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
def test_a_skipped_step_costs_as_many_reads_for_any_number_of_parameters(fused):
    """Finding out why is not done parameter by parameter, nor buffer by buffer."""
    counts = []
    for layers in (1, 30):
        model = deep(layers)
        for number in range(layers):
            model.register_buffer(f"extra{number}", torch.zeros(3))
        guard = guarded(model, fused=fused)
        reads_of_a_step(model, guard)
        seen = [reads_of_a_step(model, guard, x)[0] for x in (math.nan, 1.0)]
        counts.append([len(each) for each in seen])

    assert counts[0] == counts[1]
    assert sum(counts[0]) <= 4


def test_a_fused_step_reads_nothing_from_the_device():
    """No tensor of the step becomes a number before the next step."""
    model = deep(2)
    guard = guarded(model, fused=True)
    assert reads_of_a_step(model, guard)[0] == ["tolist"]  # its first is no fused one
    seen, result = reads_of_a_step(model, guard)

    assert seen == []
    assert result.verdict is None  # known on the host at the next step
    assert result.applied
    assert reads_of_a_step(model, guard)[0] == []
    assert result.verdict == APPLIED


def test_a_fused_step_is_waited_for_where_a_snapshot_is_due():
    """Only there: the copy waits for the device as well."""
    model = deep(2)
    guard = guarded(model, fused=True, snapshot=Snapshot({"model": model}, every=3))
    verdicts = [reads_of_a_step(model, guard)[1].verdict for _ in range(7)]

    assert verdicts == [APPLIED, None, None, APPLIED, None, None, APPLIED]
