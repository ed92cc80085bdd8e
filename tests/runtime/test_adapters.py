"""The reporters for JSON lines, MLflow and Weights & Biases, with the real packages."""

import json
import math
from importlib.util import find_spec

import pytest

from dsup_runtime import worker_info
from dsup_runtime.adapters import JsonLinesReporter
from dsup_runtime.lifecycle import outcome

ENDS = {
    "finished": "outcome.finished('all steps')",
    "failed": "outcome.of_error(ValueError('lost'), rank=0, step=3)",
    "preempted": "outcome.stopped('SIGTERM', rank=0, step=3)",
    "interrupted": "outcome.of_error(KeyboardInterrupt(), rank=0, step=3)",
}
BY_HAND = """(
    reporter.event("stop", {"kind": "user", "rank": None, "reason": "dsup stop"}),
    outcome.stopped("dsup stop", step=3),
)[1]"""


WANDB_READ = """
import json, struct
from wandb.proto.wandb_internal_pb2 import Record
data = open({!r}, "rb").read()[7:]  # after the file's own header
found = {{}}
while data:
    _, length, _ = struct.unpack("<IHB", data[:7])  # checksum, length, kind
    record = Record.FromString(data[7 : 7 + length])
    data = data[7 + length :]
    match record.WhichOneof("record_type"):
        case "run":
            found["id"] = record.run.run_id
        case "exit":
            found["code"] = record.exit.exit_code
        case "preempting":
            found["preempting"] = True
        case "history":
            for item in record.history.item:
                found[item.key or item.nested_key[0]] = json.loads(item.value_json)
print(json.dumps(found))
"""
"""Reads what W&B keeps offline, as long as it is below one block of 32 KiB."""


def life(make, end, attempt):
    """Return the script of a reporter's life in an attempt of run r:1."""
    return f"""
from dsup_runtime import worker_info
from dsup_runtime.lifecycle import outcome
from dsup_runtime.adapters import MlflowReporter, WandbReporter
reporter = {make}
info = worker_info.info()._replace(run_id="r:1", attempt={attempt})
reporter.start(info)
reporter.event("loss", {{"step": 3, "value": 0.5, "note": "low"}})
reporter.finish({end})
"""


def read(path):
    """Return the events of a file of JSON lines; each is JSON by the standard."""

    def refuse(word):
        raise AssertionError(word)

    lines = path.read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_json_lines_of_all_attempts_follow_each_other(tmp_path):
    """Each event is one line with its time; a resumed attempt goes on below."""
    path = tmp_path / "run.jsonl"
    for attempt in range(2):
        reporter = JsonLinesReporter(path)
        reporter.start(worker_info.info()._replace(run_id="r1", attempt=attempt))
        reporter.event("loss", {"step": 3, "value": math.nan, "where": tmp_path})
        reporter.finish(outcome.stopped("SIGTERM", step=3))
    events = read(path)

    assert [event["event"] for event in events] == ["start", "loss", "finish"] * 2
    assert [event.get("attempt") for event in events[::3]] == [0, 1]
    assert events[1]["value"] == "nan"
    assert events[1]["where"] == str(tmp_path)
    assert events[2].items() >= {"status": "KILLED", "resumable": True}.items()
    assert all(event["at"].endswith("+00:00") for event in events)


def test_a_file_that_cannot_be_written_fails_the_start(tmp_path):
    """What is wrong with it is known before the training, not after it."""
    with pytest.raises(IsADirectoryError):
        JsonLinesReporter(tmp_path).start(worker_info.info())


def test_the_adapters_need_none_of_the_packages(run):
    """They import a tracker when it is started, not before."""
    script = """
import sys
from dsup_runtime.adapters import *
MlflowReporter("x"), WandbReporter(project="x")
print([name for name in ("mlflow", "wandb") if name in sys.modules])
"""
    assert run(script.replace("import *", "import MlflowReporter, WandbReporter")) == (
        0,
        "[]\n",
        "",
    )


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("mlflow"), reason="mlflow is not installed")
@pytest.mark.parametrize(
    ("end", "status", "resumable"),
    [
        pytest.param("finished", "FINISHED", "false", marks=pytest.mark.soak),
        pytest.param("failed", "FAILED", "false", marks=pytest.mark.soak),
        ("preempted", "KILLED", "true"),
        pytest.param("interrupted", "KILLED", "false", marks=pytest.mark.soak),
    ],
)
def test_mlflow_has_one_run_with_the_last_attempts_end(
    run, tmp_path, end, status, resumable
):
    """A resumed attempt opens the same run again, and its end is the run's."""
    store = (tmp_path / "mlruns").as_uri()
    make = f"MlflowReporter('trial', tracking_uri={store!r})"
    env = {"HOME": str(tmp_path), "MLFLOW_ALLOW_FILE_STORE": "true"}
    for attempt, its_end in enumerate((ENDS["preempted"], ENDS[end])):
        code, _, err = run(life(make, its_end, attempt), env=env)
        assert code == 0, err
    look = f"""
import json
from mlflow import MlflowClient
client = MlflowClient({store!r})
home = client.get_experiment_by_name("trial").experiment_id
print(json.dumps([run.to_dictionary() for run in client.search_runs([home])]))
"""
    [found] = json.loads(run(look, env=env)[1])

    assert found["info"]["status"] == status
    assert found["data"]["metrics"] == {"loss/value": 0.5}
    assert (
        found["data"]["tags"].items()
        >= {
            "dsup.run_id": "r:1",
            "dsup.attempt": "1",
            "dsup.resumable": resumable,
            "loss.note": "low",
        }.items()
    )


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("wandb"), reason="wandb is not installed")
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("finished", 0),
        pytest.param("failed", 1, marks=pytest.mark.soak),
        ("preempted", 143),
        pytest.param("interrupted", 255, marks=pytest.mark.soak),
        pytest.param("stopped by hand", 255, marks=pytest.mark.soak),
    ],
)
def test_wandb_ends_with_the_code_that_means_it(run, tmp_path, end, code):
    """Its record, made offline, holds the run's own name, the numbers and the code."""
    make = f"WandbReporter(project='trial', mode='offline', dir={str(tmp_path)!r})"
    script = life(make, ENDS.get(end, BY_HAND), 1)
    env = {"HOME": str(tmp_path), "WANDB_SILENT": "true"}
    status, _, err = run(script, env=env)
    assert status == 0, err
    [record] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    status, out, err = run(WANDB_READ.format(str(record)), env=env)
    assert status == 0, err
    found = json.loads(out)

    assert (found["id"], found["code"]) == ("r-1", code)
    assert found.get("preempting", False) is (end == "preempted")
    assert found["loss/value"] == 0.5
    assert found["_step"] == 3
