"""``StepGuard`` when steps keep failing: patience, rollbacks, GradScaler, buffers."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim import swa_utils

from dsup_runtime.errors import NumericsError
from dsup_runtime.numerics.snapshot import Snapshot
from dsup_runtime.numerics.step_guard import StepGuard
from dsup_runtime.progress import Progress

pytestmark = pytest.mark.torch

EMA = swa_utils.get_ema_multi_avg_fn(0.9)
FUSED = pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])


NAN_BATCH = torch.full((6, 4), math.nan)


class Job:
    """A guarded training loop with a schedule, an average and Progress."""

    def __init__(self, *, fused=False, scaler=None, every=4, snapshot=True, **settings):
        torch.manual_seed(0)
        self.norm = nn.BatchNorm1d(8)
        self.model = nn.Sequential(nn.Linear(4, 8), self.norm, nn.Linear(8, 2))
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=0.1, fused=fused)
        self.scaler = scaler
        self.parts: dict = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9),
            "average": swa_utils.AveragedModel(self.model, multi_avg_fn=EMA),
            "progress": Progress(),
        }
        if scaler:
            self.parts["scaler"] = scaler
        self.snapshot = Snapshot(self.parts, every=every) if snapshot else None
        settings["snapshot"] = self.snapshot
        self.guard = StepGuard(self.model, self.optimizer, scaler=scaler, **settings)

    def step(self, *, good=True, x=None):
        """Do one whole pass through the loop's body."""
        x = torch.randn(6, 4) if x is None else x
        loss = self.model(x).square().mean()
        loss = self.guard.arm(loss if good else loss * math.nan)
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        result = self.guard.step()
        self.parts["progress"].advance(samples=6, applied=result)
        if result:
            self.parts["schedule"].step()
            self.parts["average"].update_parameters(self.model)
        return result

    def steps(self, verdicts):
        """Do a step for each letter: g is good, b is bad; return the outcomes."""
        return "".join(self.step(good=each == "g").outcome[0] for each in verdicts)

    def state(self):
        """Return a copy of everything but the place in the data."""
        state = {name: part.state_dict() for name, part in self.parts.items()}
        progress = self.parts["progress"]
        state["progress"] = {"step": progress.step, "applied": progress.applied}
        return copy.deepcopy(state)


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


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_the_last_step_of_patience_rolls_back(patience):
    """Of n bad steps in a row the n-th rolls back, n - 1 of them never do."""
    job = Job(patience=patience)
    almost = "g" + "b" * (patience - 1)

    assert job.steps(almost + almost) == ("a" + "s" * (patience - 1)) * 2
    assert job.steps("g" + "b" * patience) == "a" + "s" * (patience - 1) + "r"


@FUSED
@pytest.mark.parametrize("scaled", [False, True], ids=["no scaler", "scaler"])
def test_a_rollback_leaves_the_state_of_the_snapshot_step(fused, scaled):
    """Everything is as at the end of the loop's body in the step of the snapshot.

    Weights, moments, buffers, schedule, average, scale and the numbers of Progress; its
    place in the data is not: the bad batches do not come again.
    """
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0) if scaled else None
    job = Job(fused=fused, scaler=scaler, patience=3)
    job.steps("ggbgggggg")
    kept, states = job.snapshot.steps, []
    while job.snapshot.steps == kept:
        job.step()
        states.append(job.state())
    tail = job.steps("ggbbb" + "b" * fused)

    assert tail == "aass" + "s" * fused + "r"
    assert same(job.state(), states[-1])
    assert job.parts["progress"].samples == 6 * (9 + len(states) + 5 + fused)
    assert job.steps("ggg") == "aaa"


def test_a_snapshot_is_taken_after_the_first_applied_step_and_then_at_intervals():
    """Only applied steps count, and none is taken while steps fail."""
    job = Job(every=3)
    taken = []
    for verdict in "bbggbgbggg":
        job.steps(verdict)
        taken.append(job.snapshot.steps)

    assert taken == [(), (), (3,), (3,), (3,), (3,), (3,), (3, 8), (3, 8), (3, 8)]


@FUSED
@pytest.mark.parametrize("bad", ["b", "nan"], ids=["loss", "batch"])
def test_a_snapshot_is_of_an_applied_step_only(fused, bad):
    """A bad step at which one is due is not kept, though a fused one is still open."""
    job = Job(fused=fused, every=2)
    job.steps("gg")
    result = job.step(good=False) if bad == "b" else job.step(x=NAN_BATCH)

    assert result.skipped
    assert job.snapshot.steps == (1,)
    assert job.steps("g") == "a"
    assert job.snapshot.steps == (1, 4)


def test_a_fused_step_that_is_read_at_once_is_not_kept_either():
    """The step before was good and made one due, but was known only in this one."""
    job = Job(fused=True, every=2)
    job.model[2].bias.requires_grad_(False)
    job.steps("gg")
    job.model[2].bias.requires_grad_(True)  # it has no moments yet: read on the host

    assert job.steps("b") == "s"
    assert job.snapshot.steps == (1,)


@FUSED
def test_schedule_and_average_count_applied_steps(fused):
    """Over a loop with skipped steps they are those of the loop without them."""
    job, other = Job(fused=fused), Job(fused=fused)
    for step, verdict in enumerate("bggbgbbg"):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        job.step(good=verdict == "g", x=x)
        if verdict == "g":
            other.step(x=x)

    assert job.parts["schedule"].last_epoch == 4
    assert job.parts["average"].n_averaged == 4
    assert job.parts["progress"].applied == 4
    for part in ("optimizer", "schedule"):
        assert same(job.parts[part].state_dict(), other.parts[part].state_dict())
    for part in ("model", "average"):
        pairs = zip(
            job.parts[part].parameters(), other.parts[part].parameters(), strict=True
        )
        assert all(torch.equal(one, two) for one, two in pairs)


@FUSED
def test_an_average_goes_on_after_a_rollback_as_if_nothing_had_been(fused):
    """Neither the steps that were undone nor the rollback itself count twice in it."""
    job = Job(fused=fused, every=3, patience=2)
    assert job.steps("ggggg" + "bb" + "b" * fused)[-1] == "r"
    assert job.snapshot.steps == (1, 4)
    other = Job(fused=fused, every=3)  # seeds anew: the same four batches come
    other.steps("gggg")
    for step in range(3):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        job.step(x=x)
        other.step(x=x)

    assert same(job.state(), other.state())


@FUSED
def test_the_third_streak_is_an_error(fused):
    """Two rollbacks within the window are all; the counters begin anew with each."""
    job = Job(fused=fused, patience=2)
    late = "b" * fused

    assert job.steps("g" + ("bb" + late) * 2)[-1] == "r"
    assert job.steps("gbg") == "asa"
    with pytest.raises(NumericsError, match="2 rollbacks in 10000 steps did not help"):
        job.steps("bb" + late)


def test_the_second_rollback_goes_further_back():
    """If the newest snapshot did not help, the one before it is tried."""
    job = Job(patience=1, every=2)
    job.steps("ggg")
    assert job.snapshot.steps == (1, 3)
    job.steps("bb")

    assert job.snapshot.steps == (1,)


def test_rollbacks_before_the_window_are_forgotten():
    """A run that rolls back once in a while goes on."""
    job = Job(patience=1, max_rollbacks=1, window=10, min_attempts=10, drop_stop=1.0)

    assert job.steps("gb" + "g" * 9 + "b") == "ar" + "a" * 9 + "r"
    with pytest.raises(NumericsError, match="1 rollbacks in 10 steps"):
        job.steps("b")


@pytest.mark.parametrize(
    ("settings", "verdicts"),
    [
        pytest.param({"snapshot": False}, "ggbb", id="no Snapshot given"),
        pytest.param({}, "bb", id="none taken yet"),
        pytest.param({"max_rollbacks": 0}, "gbb", id="no rollback allowed"),
    ],
)
def test_without_a_way_back_patience_ends_in_an_error(settings, verdicts):
    """The error says how many steps failed, and why the last one did."""
    job = Job(patience=2, **settings)
    job.steps(verdicts[:-1])
    why = "cannot go on, because 2 steps in a row failed.*the loss of rank 0 is not"
    with pytest.raises(NumericsError, match=why):
        job.steps(verdicts[-1])


def test_what_a_scaler_minds():
    """What goes wrong: skipping after unscale_, and updating without a check."""
    job = Job(scaler=torch.amp.GradScaler("cpu"))
    job.scaler.scale(job.model(torch.randn(6, 4)).sum()).backward()
    job.scaler.unscale_(job.optimizer)
    with pytest.raises(RuntimeError, match="unscale_"):
        job.scaler.unscale_(job.optimizer)
    job.scaler.update()
    with pytest.raises(AssertionError, match="No inf checks"):
        job.scaler.update()


@FUSED
def test_a_guarded_scaler_never_minds(fused):
    """Good, bad and empty steps in any order keep unscaling and updating in step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=100)
    job = Job(fused=fused, scaler=scaler)
    outcomes = ""
    for verdict in "gbg-bb-ggb-g":
        outcomes += "s" if verdict == "-" else job.steps(verdict)
        if verdict == "-":
            assert job.guard.step().reason == "no gradients"

    assert outcomes == "asassssaassa"
    assert scaler.get_scale() == 64.0 / 2**4


@FUSED
def test_a_scale_that_is_too_high_is_no_fault_of_the_data(fused, tmp_path):
    """While GradScaler finds its scale nothing fails, is rolled back or written."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    job = Job(fused=fused, scaler=scaler, patience=2, dead_letters=tmp_path / "dead")
    results: list = []
    while not (results and results[-1].applied):
        results.append(job.step(x=100 * torch.randn(6, 4)))

    assert len(results) > 3
    assert {each.reason for each in results[:-1]} == {"scale"}
    assert job.guard.healthy
    assert not (tmp_path / "dead").exists()


def test_a_scale_that_does_not_help_is_one():
    """Below a scale of 1 a gradient that is not finite counts as such."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    job = Job(scaler=scaler, patience=3, snapshot=False)
    next(job.model.parameters()).register_hook(lambda grad: grad * math.inf)
    reasons = [job.step().reason for _ in range(6)]

    assert reasons == ["scale"] * 4 + ["gradient"] * 2
    with pytest.raises(NumericsError, match="a gradient is not finite"):
        job.step()
