"""``StepGuard`` in one process: what is applied, what is skipped, and why."""

import json
import math
from typing import Any

import pytest
import torch
import torch._dynamo as dynamo
from torch import nn

from dsup_runtime import deferred
from dsup_runtime.errors import DropBudgetExceeded
from dsup_runtime.numerics.step_guard import StepGuard

pytestmark = pytest.mark.torch

FUSED = pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
OPTIMIZERS = pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda p: torch.optim.AdamW(p, lr=0.1, fused=True), id="AdamW"),
        pytest.param(
            lambda p: torch.optim.Adam(p, amsgrad=True, fused=True), id="amsgrad"
        ),
        pytest.param(
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
            id="SGD with momentum",
        ),
        pytest.param(lambda p: torch.optim.SGD(p, lr=0.1, fused=True), id="SGD"),
        pytest.param(lambda p: torch.optim.Adagrad(p, fused=True), id="Adagrad"),
    ],
)


class Job:
    """A small guarded training."""

    def __init__(self, make=None, *, fused=False, scaler=None, **settings):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        parameters = list(self.model.parameters())
        make = make or (lambda p: torch.optim.AdamW(p, lr=0.1, fused=fused))
        self.optimizer = make(parameters)
        self.scaler = scaler
        self.guard = StepGuard(self.model, self.optimizer, scaler=scaler, **settings)

    def step(self, seed, spoil=None):
        """Train a step; ``spoil`` is done to the gradients before."""
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
        loss = self.model(x).square().mean()
        if spoil == "loss":
            loss = loss * math.nan
        loss = self.guard.arm(loss)
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        if callable(spoil):
            spoil(self.model)
        return self.guard.step(batch_id=seed)

    def state(self):
        """Return copies of all weights and moments."""
        moments = [v for each in self.optimizer.state.values() for v in each.values()]
        return [t.detach().clone() for t in [*self.model.parameters(), *moments]]


def equal(one, other):
    return len(one) == len(other) and all(map(torch.equal, one, other))


def one_nan(model):
    """Spoil one element of one gradient."""
    model[2].weight.grad[1, 3] = math.nan


@FUSED
@pytest.mark.parametrize("max_norm", [0.05, 10.0, math.inf])
def test_good_steps_are_those_of_clip_grad_norm(fused, max_norm):
    """Where all is well the weights are bit by bit those of the loop without it."""
    job, plain = Job(fused=fused, max_norm=max_norm), Job(fused=fused)
    for step in range(5):
        result = job.step(step)
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        plain.model(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(plain.model.parameters(), max_norm)
        plain.optimizer.step()
        plain.optimizer.zero_grad()

        assert result.outcome == "applied"
        assert result.reason is result.param is None
        assert torch.allclose(result.grad_norm, norm, rtol=1e-6)
        assert all(each.grad is None for each in job.model.parameters())
    assert equal(job.state(), plain.state())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.5, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_arm_poisons_what_is_not_finite_and_nothing_else(value, dtype):
    """The armed loss is the loss, or NaN, and so is every gradient made from it."""
    job = Job()
    weight = torch.ones(3, dtype=dtype, requires_grad=True)
    loss = (weight * value).sum() if math.isfinite(value) else weight.sum() * value
    armed = job.guard.arm(loss)
    armed.backward()

    assert armed.dtype == dtype
    if math.isfinite(value):
        assert armed.item() == loss.item()
        assert weight.grad.tolist() == [value] * 3
    else:
        assert armed.isnan()
        assert weight.grad.isnan().all()


@FUSED
@pytest.mark.parametrize(
    ("spoil", "reason", "param"),
    [
        pytest.param("loss", "loss", None, id="loss"),
        pytest.param(one_nan, "gradient", "2.weight", id="one element"),
    ],
)
def test_a_skipped_step_changes_nothing(fused, spoil, reason, param):
    """Weights and moments stay bit by bit; the parameter to blame is named."""
    job = Job(fused=fused)
    job.step(0)
    before = job.state()
    result = job.step(1, spoil)

    assert equal(before, job.state())
    assert (result.outcome, result.applied, result.skipped) == ("skipped", False, True)
    assert not result
    assert not result.grad_norm.isfinite()
    assert not job.guard.healthy
    assert (result.reason, result.param) == (reason, param)
    assert job.step(2).applied
    assert job.guard.healthy


@OPTIMIZERS
@pytest.mark.parametrize("bad", [0, 3], ids=["first step", "a later step"])
def test_every_fused_optimizer_skips_on_the_device(make, bad):
    """A fused optimizer that heeds found_inf ends as if the step had never been.

    Not on its first step: SGD would keep a momentum that was never set. The guard
    therefore reads that one on the host.
    """
    job, other = Job(make), Job(make)
    for step in range(6):
        job.step(step, "loss" if step == bad else None)
        if step != bad:
            other.step(step)

    assert equal(job.state(), other.state())
    assert not hasattr(job.optimizer, "found_inf")
    assert not hasattr(job.optimizer, "grad_scale")


def test_torch_leaves_momentum_unset_when_it_skips_its_first_step():
    """What goes wrong without the rule above; if it fails, the rule can go."""
    weight = nn.Parameter(torch.ones(4))
    optimizer: Any = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=True)
    weight.grad = torch.full((4,), math.nan)
    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(1.0)
    torch.use_deterministic_algorithms(True)  # memory that is not set reads as nan
    try:
        optimizer.step()
    finally:
        torch.use_deterministic_algorithms(False)

    assert torch.equal(weight, torch.ones(4))
    assert optimizer.state[weight]["momentum_buffer"].isnan().all()


def test_other_optimizers_do_not_know_found_inf():
    """Why there is a second way: an optimizer that is not fused refuses the flag."""
    job = Job()
    job.step(0)
    job.model(torch.ones(1, 4)).sum().backward()
    job.optimizer.grad_scale, job.optimizer.found_inf = None, torch.tensor(1.0)
    with pytest.raises(AssertionError):
        job.optimizer.step()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.float32, 1e20), (torch.float16, 6e4)],
    ids=["float32", "float16"],
)
def test_an_overflowing_norm_of_finite_gradients_is_no_nan(dtype, value):
    """A norm of inf is told from a gradient that is not finite."""
    weight = nn.Parameter(torch.ones(1000, dtype=dtype))
    guard = StepGuard(nn.Module(), torch.optim.SGD([weight], lr=0.1))
    weight.grad = torch.full((1000,), value, dtype=dtype)
    assert torch.nn.utils.get_total_norm([weight.grad]).isinf()
    result = guard.step()

    assert (result.outcome, result.reason) == ("skipped", "overflow")
    assert weight.eq(1).all()


def test_clipping_alone_protects_nothing():
    """What goes wrong: with clip_grad_norm_ one NaN becomes every weight's."""
    job = Job()
    job.model(torch.ones(1, 4)).square().mean().backward()
    one_nan(job.model)
    nn.utils.clip_grad_norm_(job.model.parameters(), 1.0)
    job.optimizer.step()

    assert all(each.isnan().all() for each in job.model.parameters())


def test_no_gradients_are_a_state_of_their_own(caplog):
    """A step without a backward pass is neither good nor bad, and told once."""
    scaler = torch.amp.GradScaler("cpu")
    job = Job(scaler=scaler, patience=1)
    results = [job.guard.step() for _ in range(3)]

    assert [each.reason for each in results] == ["no gradients"] * 3
    assert not any(results)
    assert results[0].grad_norm is None
    assert len(caplog.records) == 1
    assert job.guard.healthy
    assert job.step(0).applied


def test_a_gradient_that_arm_did_not_reach_is_told(caplog):
    """A loss that is not finite, but whose backward ran unarmed, leaves a warning."""
    job = Job()
    job.guard.arm(job.model(torch.ones(1, 4)).sum() * math.nan)
    job.model(torch.ones(1, 4)).sum().backward()

    assert job.guard.step().applied
    assert "was applied, though the loss of this rank was nan" in caplog.text


@pytest.mark.slow
def test_arm_breaks_no_graph(monkeypatch, tmp_path):
    """Inside of torch.compile arming is part of the one graph, and counted there."""
    # torch would set it for good, for this process and what other tests start.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    job = Job()

    def loss_of(x):
        return job.guard.arm(job.model(x).square().mean())

    assert dynamo.explain(loss_of)(torch.ones(1, 4)).graph_break_count == 0
    compiled = torch.compile(loss_of, fullgraph=True, backend="aot_eager")
    job.guard.step()
    for value, reason in ((1.0, None), (math.inf, "loss"), (2.0, None)):
        compiled(torch.full((1, 4), value) * torch.ones(4)).backward()
        assert job.guard.step().reason == reason
    assert dynamo.utils.counters["graph_break"] == {}


@FUSED
def test_a_dropped_batch_becomes_a_letter(tmp_path, fused):
    """One line for each dropped batch: which, when, why, and how bad."""
    job = Job(fused=fused, dead_letters=tmp_path)
    for step, spoil in enumerate([None, "loss", None, one_nan, None]):
        job.step(step, spoil)

    text = (tmp_path / "rank-00000.jsonl").read_text()
    first, second = map(json.loads, text.splitlines())
    assert (first["batch_id"], first["step"], first["reason"]) == (1, 2, "loss")
    assert (first["loss"], first["norm"], first["bad_rank"]) == ("nan", "nan", 0)
    assert (second["batch_id"], second["step"]) == (3, 4)
    assert (second["reason"], second["bad_rank"]) == ("gradient", None)
    assert 0 < second["loss"] < 10
    assert second["versions"]["torch"] == torch.__version__


@FUSED
def test_too_many_dropped_batches_are_a_deferred_error(fused):
    """Above the share a run may lose, the next agreed stop ends it; told once."""
    deferred.clear()
    job = Job(fused=fused, drop_stop=0.1, min_attempts=10)
    for step in range(20):
        job.step(step, "loss" if step in {3, 7, 15} else None)
        assert deferred.has_deferred_error() == (step >= 9 + fused)

    [kept] = deferred.all_kept()
    deferred.clear()
    assert isinstance(kept.error, DropBudgetExceeded)
    assert kept.where == "StepGuard"
    assert "2 of the last 10 batches were dropped" in str(kept.error)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_norm", 0.0),
        ("max_norm", -1.0),
        ("max_norm", math.nan),
        ("patience", 0),
        ("patience", math.nan),
        ("max_rollbacks", -1),
        ("max_rollbacks", math.nan),
        ("drop_warn", math.nan),
        ("drop_stop", -1e-3),
        ("min_attempts", 0),
    ],
)
def test_what_cannot_be_a_setting_is_refused(setting, value):
    """A setting that switches the guard off by accident is found at once."""
    with pytest.raises(ValueError, match=f"cannot set {setting} to {value!r}"):
        Job(**{setting: value})


def test_stages_cannot_share_a_scaler():
    """Each stage would come to a scale of its own."""
    with pytest.raises(ValueError, match="cannot set groups"):
        Job(scaler=torch.amp.GradScaler("cpu"), groups=[object()])


def test_an_optimizer_without_parameters_is_refused():
    """The error says what is missing."""
    with pytest.raises(ValueError, match="because it has no parameters"):
        StepGuard(nn.Linear(1, 1), torch.optim.SGD([{"params": []}]))
