"""``Snapshot``: what is taken is what comes back, and shares nothing with it."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from dsup_runtime.errors import NumericsError
from dsup_runtime.numerics import state_copy
from dsup_runtime.numerics.snapshot import Snapshot
from dsup_runtime.progress import Progress

pytestmark = pytest.mark.torch


class Counter:
    """The smallest thing with a state."""

    def __init__(self):
        self.value: dict = {"count": 0, "seen": [0]}

    def state_dict(self):
        """Return the live state itself, as modules and optimizers do."""
        return self.value

    def load_state_dict(self, state):
        """Keep what is given, as schedulers do."""
        self.value = state


@pytest.fixture
def job():
    """Everything that a training loop may have a state in."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
    average = torch.optim.swa_utils.AveragedModel(model)
    return {
        "model": model,
        "optimizer": optimizer,
        "schedule": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        "average": average,
        "scaler": torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2),
    }


def train(job, steps):
    model, scaler = job["model"], job["scaler"]
    for _ in range(steps):
        loss = model(torch.randn(6, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(job["optimizer"])
        scaler.update()
        job["optimizer"].zero_grad()
        job["schedule"].step()
        job["average"].update_parameters(model)
    return random.random(), np.random.random(), torch.rand(1).item()  # noqa: S311, NPY002


def states(job):
    return copy.deepcopy({name: each.state_dict() for name, each in job.items()})


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            same(one[key], other[key]) for key in one
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_all_states_come_back_bit_by_bit(job):
    """Weights, moments, scale, schedule, average, buffers and three random generators.

    So the steps after a rollback are those that came after the snapshot.
    """
    train(job, 3)
    snapshot = Snapshot(job)
    snapshot.take(3)
    taken = states(job)
    drawn = train(job, 4)
    later = states(job)

    assert not same(taken, later)
    assert snapshot.restore() == 3
    assert same(taken, states(job))
    assert train(job, 4) == drawn
    assert same(later, states(job))


def test_the_live_tensors_stay_the_same_objects(job):
    """Buckets, graphs and averages that hold on to a tensor see it restored."""
    train(job, 2)
    first = job["model"][0].weight
    moment = job["optimizer"].state[first]["exp_avg"]
    snapshot = Snapshot(job)
    snapshot.take(2)
    weights, moments = first.detach().clone(), moment.clone()
    train(job, 2)
    snapshot.restore()

    assert job["model"][0].weight is first
    assert job["optimizer"].state[first]["exp_avg"] is moment
    assert torch.equal(first, weights)
    assert torch.equal(moment, moments)


def test_going_on_does_not_change_a_snapshot(job):
    """After one restore the steps that follow write into no snapshot's memory."""
    train(job, 2)
    snapshot = Snapshot(job, keep=1)
    snapshot.take(2)
    taken = states(job)

    for _ in range(3):
        train(job, 3)
        snapshot.restore()
        assert same(taken, states(job))


def test_a_state_that_hands_out_its_own_dictionary_is_copied():
    """What is neither a tensor nor copied by its owner is not shared either."""
    counter = Counter()
    snapshot = Snapshot({"counter": counter})
    snapshot.take(0)
    for _ in range(2):
        counter.value["count"] += 1
        counter.value["seen"].append(1)
        snapshot.restore()

        assert counter.value == {"count": 0, "seen": [0]}


def test_buffers_are_made_once(job):
    """From the second round on a snapshot is copied into memory that is there."""
    train(job, 1)
    state = job["model"].state_dict()
    kept = state_copy.copy_into(None, state)
    places = {name: tensor.data_ptr() for name, tensor in kept.items()}
    train(job, 1)
    again = state_copy.copy_into(kept, state)

    assert {name: tensor.data_ptr() for name, tensor in again.items()} == places
    assert same(again, dict(job["model"].state_dict()))
    live = {tensor.data_ptr() for tensor in state.values()}
    assert live.isdisjoint(places.values())


def test_a_second_restore_goes_one_further_back(job):
    """The newest snapshot may hold the cause already; the one before is for that."""
    snapshot = Snapshot(job, keep=2)
    for step in range(1, 4):
        train(job, 1)
        snapshot.take(step)

    assert snapshot.steps == (2, 3)
    assert [snapshot.restore() for _ in range(3)] == [3, 2, 2]
    train(job, 1)
    snapshot.take(7)
    assert snapshot.steps == (2, 7)
    assert snapshot.restore() == 7


def test_progress_keeps_its_place_in_the_data():
    """A rollback takes steps back, but the bad window is not read again."""
    progress = Progress()
    snapshot = Snapshot({"progress": progress})
    for _ in range(3):
        progress.advance(samples=8)
    snapshot.take(3)
    for _ in range(2):
        progress.advance(samples=8)
    snapshot.restore()

    assert progress.step == 3
    assert (progress.samples, progress.batch) == (40, 5)


def test_single_tensors_come_back(job):
    """A buffer that a skipped step has spoiled is copied back without a rollback."""
    train(job, 1)
    snapshot = Snapshot(job)
    norm = job["model"][1]
    assert snapshot.restore_tensors([norm.running_mean]) == 0
    snapshot.take(1)
    mean, weight = norm.running_mean.clone(), norm.weight.detach().clone()
    norm.running_mean.fill_(math.nan)
    with torch.no_grad():
        norm.weight.add_(1)

    assert snapshot.restore_tensors([norm.running_mean, torch.ones(3)]) == 1
    assert torch.equal(norm.running_mean, mean)
    assert torch.equal(norm.weight, weight + 1)


def test_an_optimizer_forgets_what_it_did_not_know():
    """A parameter that had no moments at the snapshot has none after a rollback."""
    one, two = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([one, two])
    one.grad = torch.ones(2)
    optimizer.step()
    snapshot = Snapshot({"optimizer": optimizer})
    snapshot.take(1)
    two.grad = torch.ones(2)
    optimizer.step()
    snapshot.restore()

    assert set(optimizer.state) == {one}


def test_nothing_taken_is_an_error():
    """There is no state to make up."""
    with pytest.raises(NumericsError, match="cannot roll back, because no snapshot"):
        Snapshot({"counter": Counter()}).restore()


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        pytest.param({"every": 0}, ValueError, "cannot set every to 0", id="never"),
        pytest.param({"every": math.nan}, ValueError, "set every to nan", id="nan"),
        pytest.param({"keep": -1}, ValueError, "cannot set keep to -1", id="keep none"),
        pytest.param({"state": {}}, ValueError, "there is no state", id="no state"),
        pytest.param(
            {"state": {"loss": 1.0}}, TypeError, "'loss', because float", id="a number"
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, why):
    """A snapshot that could never help is found when it is set up."""
    with pytest.raises(error, match=why):
        Snapshot(**{"state": {"counter": Counter()}, **arguments})
