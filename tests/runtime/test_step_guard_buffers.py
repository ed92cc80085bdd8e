"""``StepGuard`` and the buffers of a model: no NaN stays in them unnoticed."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import swa_utils

from dsup_runtime.numerics.snapshot import Snapshot
from dsup_runtime.numerics.step_guard import StepGuard

pytestmark = pytest.mark.torch

FUSED = pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
NAN_BATCH = torch.full((6, 4), math.nan)


class Job:
    """A guarded model with batch norm and an average of it."""

    def __init__(self, *, fused=False, every=4, snapshot=True, **settings):
        torch.manual_seed(0)
        self.norm = nn.BatchNorm1d(8)
        self.model = nn.Sequential(nn.Linear(4, 8), self.norm, nn.Linear(8, 2))
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=0.1, fused=fused)
        self.average = swa_utils.AveragedModel(self.model)
        self.parts: dict[str, Any] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "average": self.average,
        }
        self.snapshot = Snapshot(self.parts, every=every) if snapshot else None
        settings["snapshot"] = self.snapshot
        self.guard = StepGuard(self.model, self.optimizer, **settings)

    @property
    def norm_of_average(self):
        """The averaged copy of the layer with buffers."""
        return self.average.get_submodule("module.1")

    def step(self, *, good=True, x=None):
        """Do one whole pass through the loop's body."""
        x = torch.randn(6, 4) if x is None else x
        loss = self.model(x).square().mean()
        self.guard.arm(loss if good else loss * math.nan).backward()
        result = self.guard.step()
        if result:
            self.average.update_parameters(self.model)
        return result

    def steps(self, verdicts):
        """Do a step for each letter: g is good, b is bad; return the outcomes."""
        return "".join(self.step(good=each == "g").outcome[0] for each in verdicts)


@FUSED
def test_what_a_bad_batch_leaves_in_buffers_is_taken_back(fused, caplog):
    """Batch norm has averaged a NaN although the step was skipped: it is undone."""
    job = Job(fused=fused)
    job.steps("ggg")
    job.step(x=NAN_BATCH)
    assert not job.guard.healthy

    assert job.norm.running_mean.isfinite().all()
    assert job.norm.running_var.isfinite().all()
    assert "the buffers 1.running_mean, 1.running_var are as they were" in caplog.text


def test_buffers_that_cannot_be_taken_back_are_told(caplog):
    """Without a snapshot a warning names them."""
    job = Job(snapshot=False)
    job.step(x=NAN_BATCH)

    assert "left in the buffers 1.running_mean, 1.running_var" in caplog.text


@FUSED
def test_what_is_left_in_buffers_makes_no_state_healthy(fused, caplog):
    """Good steps do not make up for it: a save would publish the NaN. Told once."""
    job = Job(fused=fused, snapshot=False)
    job.steps("g")
    job.step(x=NAN_BATCH)
    for _ in range(3):
        assert job.steps("g") == "a"
        assert not job.guard.healthy

    assert caplog.text.count("until they are finite again no state is healthy") == 1
    job.norm.reset_running_stats()
    assert job.guard.healthy


@FUSED
@pytest.mark.parametrize("at", range(4))
def test_no_snapshot_holds_a_nan_in_a_buffer(fused, at):
    """Whenever the bad batch comes, a rollback leaves buffers that are finite."""
    job = Job(fused=fused, every=2, patience=2)
    for step in range(6):
        job.step(x=NAN_BATCH if step == at + 1 else None)
    assert job.guard.healthy
    assert job.steps("bb" + "b" * fused)[-1] == "r"

    assert not any(buffer.isnan().any() for buffer in job.model.buffers())
    assert job.guard.healthy


def test_no_snapshot_is_taken_of_buffers_that_cannot_be_taken_back():
    """With a NaN before the first one there is none, until the buffers are mended."""
    job = Job(every=2)
    job.step(x=NAN_BATCH)
    job.steps("ggg")
    assert job.snapshot.steps == ()
    job.norm.reset_running_stats()
    job.steps("gg")

    assert job.snapshot.steps == (6,)


def test_a_nan_in_the_buffers_of_an_average_counts():
    """What is kept and saved beside the model is minded like the model."""
    job = Job(every=2)
    job.steps("gg")
    job.norm_of_average.running_mean.fill_(math.nan)
    assert job.guard.healthy  # put back from the snapshot

    kept = Job(snapshot=False)
    kept.norm_of_average.running_mean.fill_(math.nan)
    assert kept.guard.healthy  # nobody has told the guard of it


def test_a_buffer_that_is_kept_twice_does_not_stand_for_another():
    """One of two spoiled buffers put back twice is not both of them put back."""
    job = Job(snapshot=False)
    alone = nn.ModuleDict({"norm": job.norm})
    job.model.register_buffer("late", torch.zeros(2), persistent=False)
    snapshot = Snapshot({"one": job.norm, "two": alone}, every=1)
    guard = StepGuard(job.model, job.optimizer, snapshot=snapshot)
    guard.arm(job.model(torch.randn(6, 4)).mean()).backward()
    guard.step()
    assert snapshot.steps == (1,)
    job.norm.running_mean.fill_(math.nan)
    job.model.get_buffer("late").fill_(math.nan)

    assert not guard.healthy
    assert job.norm.running_mean.isfinite().all()


BUFFERS = """
import math
from dsup_runtime.numerics.snapshot import Snapshot
from dsup_runtime.numerics.step_guard import StepGuard

torch.manual_seed(0)
norm = torch.nn.BatchNorm1d(4)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), norm)
model = torch.nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=args["fused"])
snapshot = Snapshot({"model": model}, every=2) if args["kept"] else None
guard = StepGuard(model, optimizer, snapshot=snapshot)
for step in range(7):
    x = torch.randn(6, 4) * (math.nan if rank == 1 and step == args["bad"] else 1.0)
    guard.arm(model(x).square().mean()).backward()
    guard.step()
told = [guard.healthy, bool(norm.running_mean.isfinite().all())]
told.append(list(snapshot.steps) if snapshot else None)
"""


@FUSED
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "bad", "told"),
    [
        pytest.param(False, 2, [[False, True, None], [False, False, None]], id="none"),
        pytest.param(True, 2, [[True, True, [4, 6]]] * 2, id="kept"),
        pytest.param(
            True, 0, [[False, True, []], [False, False, []]], id="before the first"
        ),
    ],
)
def test_a_nan_in_the_buffers_of_one_rank_is_every_ranks(world, fused, kept, bad, told):
    """Unless it can be taken back no rank is healthy, and none takes a snapshot.

    Snapshots of different steps would be rolled back to on different ranks.
    """
    args = {"fused": fused, "kept": kept, "bad": bad}
    answers = world.run(BUFFERS, size=2, args=args)

    assert [each["told"] for each in answers] == told
