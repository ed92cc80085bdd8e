"""``StepGuard`` in words: which step, and which batch, people are told of."""

import json
import math
import re

import pytest
import torch
from torch import nn

from dsup_runtime.numerics.ledger import BATCH_MAX_CHARS
from dsup_runtime.numerics.step_guard import StepGuard

pytestmark = pytest.mark.torch

FUSED = pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])


class Unspeakable:
    """An object of a user's that cannot be shown."""

    def __repr__(self):
        """Fail."""
        raise RuntimeError


class array:  # noqa: N801 (of the standard library's name, and nothing like it)
    """What reprlib takes for something else."""


class Escape:
    """An object whose repr is no single line of text."""

    def __repr__(self):
        """Return what a terminal would obey."""
        return "one\n\x1b[31mtwo\udce9"


def skip_a_step(batch_id):
    model = nn.Linear(1, 1)
    guard = StepGuard(model, torch.optim.SGD(model.parameters()))
    guard.arm(model(torch.ones(1, 1)).sum() * math.nan).backward()
    assert guard.step(batch_id).skipped


@pytest.mark.parametrize(
    ("batch_id", "told"),
    [
        pytest.param(7, ", its batch 7, 1 in a row", id="number"),
        pytest.param([0, 3], ", its batch [0, 3], 1 in a row", id="list"),
        pytest.param("s3://a/b", ", its batch 's3://a/b', 1 in a row", id="path"),
        pytest.param(torch.arange(2), ", its batch tensor([0, 1]), 1", id="tensor"),
        pytest.param(0, ", its batch 0, 1 in a row", id="zero"),
        pytest.param(Escape(), ", its batch one [31mtwo, 1 in a row", id="escape"),
        pytest.param(Unspeakable(), ", its batch <Unspeakable ", id="no repr"),
        pytest.param(array(), ", its batch <array>, 1", id="another's name"),
        pytest.param(None, "nan, 1 in a row", id="none given"),
    ],
)
def test_the_line_of_a_skipped_step_names_the_batch(caplog, batch_id, told):
    """If the loop gave a name; whatever it is."""
    skip_a_step(batch_id)

    line = caplog.messages[0]
    assert "is skipped on all ranks" in line
    assert told in line
    assert line.isprintable()


@pytest.mark.parametrize(
    "batch_id",
    ["x" * 10**6, list(range(10**6)), [["y" * 1000] * 9] * 9, torch.arange(10.0**4)],
    ids=["string", "list", "nested", "tensor"],
)
def test_the_name_of_a_batch_is_cut(caplog, batch_id):
    """A line stays a line; the dead letter has more."""
    skip_a_step(batch_id)

    name = re.search("its batch (.*), 1 in a row", caplog.messages[0])
    assert name is not None
    assert 10 < len(name[1]) <= BATCH_MAX_CHARS


STEPS = """
import json, math, os
import torch
from dsup_runtime import beat
from dsup_runtime.numerics.snapshot import Snapshot
from dsup_runtime.numerics.step_guard import StepGuard

args = json.loads(os.environ["ARGS"])
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=args["fused"])
snapshot = Snapshot({"model": model, "optimizer": optimizer}, every=3)
guard = StepGuard(
    model, optimizer, snapshot=snapshot, patience=2, dead_letters=args["dead"]
)
results = []
for number, verdict in enumerate("ggbgggbbb"[: 8 + args["fused"]]):
    if args["beats"]:
        beat(500 + number)
    x = torch.randn(3, 4) * (math.nan if verdict == "b" else 1.0)
    guard.arm(model(x).square().mean()).backward()
    results.append(guard.step(batch_id=number))
print(json.dumps({
    "results": [each.step for each in results],
    "outcomes": "".join(each.outcome[0] for each in results),
    "snapshots": snapshot.steps,
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fused", "beats"),
    [
        pytest.param(False, False, id="foreach, no beat"),
        pytest.param(True, True, id="fused, beats"),
        pytest.param(True, False, id="fused, no beat", marks=pytest.mark.soak),
        pytest.param(False, True, id="foreach, beats", marks=pytest.mark.soak),
    ],
)
def test_a_step_has_one_number_wherever_it_is_told(run, tmp_path, fused, beats):
    """That of the last beat, else the guard's own count from 1; a late verdict too."""
    args = {"fused": fused, "beats": beats, "dead": str(tmp_path)}
    status, out, lines = run(STEPS, env={"ARGS": json.dumps(args)})
    assert status == 0, lines
    told = json.loads(out)

    first = 500 if beats else 1
    last = first + 7 + fused
    text = (tmp_path / "rank-00000.jsonl").read_text()
    letters = [json.loads(line) for line in text.splitlines()]
    assert told["results"] == list(range(first, last + 1))
    assert told["outcomes"] == "aasaaas" + "s" * fused + "r"
    assert told["snapshots"] == [first, first + 4]
    dropped = [2, 6, 7, 8][: 3 + fused]
    assert [each["batch_id"] for each in letters] == dropped
    assert [each["step"] for each in letters] == [first + each for each in dropped]
    skipped = re.findall("step (.*) is skipped.*, its batch (.*), ", lines)
    assert skipped == [(str(first + each), str(each)) for each in (2, 6, 7)]
    healed = re.findall("step (.*): the buffers", lines)
    assert healed == [str(first + each) for each in (2, 6, 7)]
    way = f"step {last}: rolled back to the state after step {first + 4},"
    assert lines.count(way) == 1
