"""``StepGuard`` on several ranks: a step is skipped on all of them or on none."""

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.torch]

LOOP = """
import hashlib, math
from torch import nn
from dsup_runtime.numerics.snapshot import Snapshot
from dsup_runtime.numerics.step_guard import StepGuard

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.ones(1))  # FSDP2 leaves none of it to rank 1
        self.spoil = False

    def forward(self, x):
        hidden = self.first(x).tanh()
        if self.spoil:
            hidden.register_hook(lambda grad: grad.index_fill(0, first_row, math.nan))
        return self.last(hidden) * self.scale

first_row = torch.zeros(1, dtype=torch.long)

def wrapped(net, kind):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        fully_shard(net.first)
        return fully_shard(net)
    return net

def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor

def digest(model, optimizer):
    moments = [value for each in optimizer.state.values() for value in each.values()]
    parts = [*model.parameters(), *moments]
    data = b"".join(whole(part.detach()).numpy().tobytes() for part in parts)
    return hashlib.sha256(data).hexdigest()

def data(step, micro):
    seed = torch.Generator().manual_seed(1000 * step + 10 * micro + rank)
    return torch.randn(5, 8, generator=seed)

def backward(job, step, micro):
    model, bad = job["model"], args["bad"].get(str(step))
    here = bad is not None and rank == 1 and micro == args["micros"] - 2
    job["net"].spoil = here and bad == "element"
    loss = model(data(step, micro)).square().mean() / args["micros"]
    if here and bad == "loss":
        loss = loss * math.inf
    loss = job["guard"].arm(loss)
    (job["scaler"].scale(loss) if job["scaler"] else loss).backward()
    if here and bad == "shard":
        job["net"].last.weight.grad.to_local()[0, 0] = math.nan

def build():
    net = Net()
    model = wrapped(net, args["kind"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=args["fused"])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if args["scaled"] else None
    state = {"model": model, "optimizer": optimizer}
    if scaler:
        state["scaler"] = scaler
    guard = StepGuard(
        model, optimizer, scaler=scaler, snapshot=Snapshot(state, every=4),
        patience=args.get("patience", 5), dead_letters=args.get("letters"),
    )
    names = ("net", "model", "optimizer", "scaler", "guard")
    return dict(zip(names, (net, model, optimizer, scaler, guard)))

def go(steps, job):
    results = []
    for step in steps:
        for micro in range(args["micros"]):
            backward(job, step, micro)
        results.append(job["guard"].step(batch_id=[rank, step]))
    job["guard"].healthy
    return results
"""
TRAIN = """
job = build()
results = go(range(10), job)
told = {
    "reasons": [each.reason for each in results],
    "bad ranks": [each.verdict.bad_rank for each in results],
    "param": results[6].param,
    "digest": digest(job["model"], job["optimizer"]),
    "scale": job["scaler"].get_scale() if job["scaler"] else None,
}
bad = args["bad"]
args["bad"] = {}
job = build()
go([step for step in range(10) if str(step) not in bad], job)
told["without"] = digest(job["model"], job["optimizer"])
"""
KINDS = pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
FUSED = pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])


def trial(**more):
    return {"micros": 2, "scaled": False, "fused": False, "kind": "ddp", **more}


@KINDS
@FUSED
def test_all_ranks_skip_the_same_steps(world, kind, fused):
    """What is not finite on one rank costs all the same steps, and nothing else.

    Be it a loss, one element of a gradient, or one that only that rank holds: weights
    and moments end as if the batches had never come.
    """
    bad = {"3": "loss", "6": "element"} | ({"8": "shard"} if kind == "fsdp2" else {})
    args = trial(kind=kind, fused=fused, bad=bad)
    answers = world.run(LOOP + TRAIN, size=2, args=args, limit_s=500)

    first = answers[0]["told"]
    assert answers == [{"told": first}] * 2
    reasons = {int(step): "gradient" for step in bad} | {3: "loss"}
    assert first["reasons"] == [reasons.get(step) for step in range(10)]
    assert first["bad ranks"] == [1 if step == 3 else None for step in range(10)]
    assert first["param"].removeprefix("module.") == "first.weight"
    assert first["digest"] == first["without"]


@KINDS
@FUSED
@pytest.mark.parametrize("scaled", [False, True], ids=["no scaler", "scaler"])
def test_one_bad_micro_batch_costs_one_whole_step(world, kind, fused, scaled):
    """With accumulation the unit is the optimizer step, with a GradScaler or without.

    The scale, halved by every skipped step, stays the same on all ranks.
    """
    bad = {"0": "loss", "4": "loss"}
    args = trial(kind=kind, fused=fused, scaled=scaled, micros=4, bad=bad)
    answers = world.run(LOOP + TRAIN, size=2, args=args, limit_s=500)

    first = answers[0]["told"]
    assert answers == [{"told": first}] * 2
    reasons = ["loss" if str(step) in bad else None for step in range(10)]
    assert first["reasons"] == reasons
    assert first["scale"] == (256.0 if scaled else None)
    assert first["digest"] == first["without"]


ROLLBACK = """
job = build()
go(range(5), job)
kept = digest(job["model"], job["optimizer"])
args["bad"] = {"5": "loss", "6": "element"}
results = go(range(5, args["until"]), job)
told = [
    [each.outcome for each in results],
    kept == digest(job["model"], job["optimizer"]),
    kept,
]
"""


@KINDS
@FUSED
def test_all_ranks_roll_back_together(world, kind, fused):
    """The second bad step in a row puts weights and moments of all ranks back.

    A fused optimizer's failures are known one step late; the step that learns of the
    last one is dropped.
    """
    until = 8 if fused else 7
    args = trial(kind=kind, fused=fused, patience=2, bad={}, until=until)
    answers = world.run(LOOP + ROLLBACK, size=2, args=args, limit_s=500)

    outcomes, restored, digest = answers[0]["told"]
    assert answers == [{"told": [outcomes, restored, digest]}] * 2
    assert outcomes == ["skipped"] * (until - 6) + ["rolled_back"]
    assert restored


PLAIN = """
import math
from datetime import timedelta
from dsup_runtime.numerics.step_guard import StepGuard

weight = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(weight.weight)
dist.barrier()
group = dist.new_group(timeout=timedelta(seconds=args or 600))
model = torch.nn.parallel.DistributedDataParallel(weight, process_group=group)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

def loss_of(step):
    bad = rank == 1 and step == 2
    return model(torch.full((1, 1), math.nan if bad else float(step))).sum()
"""


def test_skipping_before_backward_pairs_different_steps(world):
    """What goes wrong: a rank that skips alone is one step ahead, then missing."""
    code = """
told = []
try:
    for step in range(5):
        loss = loss_of(step)
        if loss.isfinite():
            loss.backward()
            told.append(weight.weight.grad.item())
        optimizer.zero_grad()
except RuntimeError:
    told.append("hangs until its timeout")
"""
    answers = world.run(PLAIN + code, size=2, args=4, limit_s=500)

    # The gradient is the step's number: 2.5 is the mean of a step 2 and a step 3.
    assert answers[0]["told"] == [0.0, 1.0, 2.5, 3.5, "hangs until its timeout"]
    assert answers[1]["told"] == [0.0, 1.0, 2.5, 3.5]


def test_skipping_after_backward_leaves_different_weights(world):
    """What goes wrong: the rank with the bad loss is the only one that escapes it."""
    code = """
for step in range(3):
    loss = loss_of(step)
    loss.backward()
    if loss.isfinite():
        optimizer.step()
    optimizer.zero_grad()
told = bool(weight.weight.isfinite())
"""
    assert world.run(PLAIN + code, size=2, limit_s=500) == [
        {"told": False},
        {"told": True},
    ]


def test_with_a_guard_the_same_loop_stays_together(world):
    """Every rank skips step 2 and goes on with step 3, on equal weights."""
    code = """
told = []
guard = StepGuard(model, optimizer, max_norm=math.inf)
for step in range(5):
    guard.arm(loss_of(step)).backward()
    result = guard.step()
    told.append(result.grad_norm.item() if result.applied else result.outcome)
told.append(weight.weight.item())
"""
    answers = world.run(PLAIN + code, size=2, limit_s=500)

    assert answers[0] == answers[1]
    assert answers[0]["told"][:5] == [0.0, 1.0, "skipped", 3.0, 4.0]
    assert answers[0]["told"][5] == pytest.approx(1 - 8e-3)


def test_stages_of_a_pipeline_have_one_norm(world):
    """With groups the norm is that of all ranks' parameters, and so is the verdict."""
    code = """
stage = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
guard = StepGuard(stage, optimizer, max_norm=math.inf, groups=[dist.group.WORLD])
told = []
for step in range(3):
    x = math.nan if rank == 1 and step == 1 else 3.0 + rank
    guard.arm(stage(torch.full((1, 1), x)).sum()).backward()
    result = guard.step()
    told.append([result.reason, result.verdict.bad_rank, result.grad_norm.item()])
told = [told[0], told[1][:2], told[2]]
"""
    answers = world.run(PLAIN + code, size=2, limit_s=500)

    good = [None, None, 5.0]  # the root of 3 * 3 and 4 * 4
    assert answers == [{"told": [good, ["loss", 1], good]}] * 2


def test_ranks_that_do_not_reduce_their_gradients_learn_it(world):
    """Without DDP or groups one rank skips alone: an error, not a silent divergence."""
    code = """
from dsup_runtime.agreement import agree
alone = torch.nn.Linear(1, 1)
guard = StepGuard(alone, torch.optim.SGD(alone.parameters(), lr=1e-3))
x = torch.full((1, 1), math.nan if rank == 1 else 1.0)
guard.arm(alone(x).sum()).backward()
guard.step()
agree(True)
"""
    for answer in world.run(PLAIN + code, size=2, limit_s=500):
        assert answer["error"] == "PeerError"


def test_every_rank_writes_the_letters_of_its_own_batches(world, tmp_path):
    """A dropped step is a letter from each rank, and both name the rank to blame."""
    args = trial(bad={"1": "loss"}, letters=str(tmp_path / "dead"))
    code = LOOP + "go(range(3), build())"
    assert world.run(code, size=2, args=args, limit_s=500) == [{"told": None}] * 2

    for rank in range(2):
        path = tmp_path / "dead" / f"rank-{rank:05d}.jsonl"
        [letter] = map(json.loads, path.read_text().splitlines())
        assert letter["batch_id"] == [rank, 1]
        assert (letter["step"], letter["rank"]) == (2, rank)
        assert (letter["reason"], letter["bad_rank"]) == ("loss", 1)
        assert letter["norm"] == "nan"
        assert (letter["loss"] == "inf") == (rank == 1)
