"""The command line in this process, with an environment of its own."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from dsup.cli.build import Call, build
from dsup.cli.launch import launch, origins
from dsup.cli.main import run
from dsup.cli.terminal import Terminal

OTHERS = (
    "CI",
    "CUDA_VISIBLE",
    "DSUP_",
    "FORCE_COLOR",
    "HIP_VISIBLE",
    "LOGLEVEL",
    "NO_COLOR",
    "OMP_",
    "PET_",
    "PYTHON_EXEC",
    "STATE_DIRECTORY",
    "TORCH_ELASTIC",
    "TORCHELASTIC",
)


class Said(NamedTuple):
    """What a call came to."""

    code: int
    out: str
    err: str

    def options(self):
        """Return (value, origin) of each option that a dry run lists."""
        section = self.out.partition("options\n")[2].partition("\n\n")[0]
        rows = (line.split(maxsplit=2) for line in section.splitlines())
        return {name: (value, origin) for name, value, origin in rows}

    def command(self):
        """Return the command of every rank that a dry run shows."""
        return self.out.partition("command of every rank\n  ")[2].splitlines()[0]

    def variables(self):
        """Return (value, origin) of each variable that a dry run lists."""
        section = self.out.partition("environment that dsup sets\n")[2]
        lines = (line.strip().rpartition("  (") for line in section.splitlines())
        named = ((*text.split("=", 1), origin[:-1]) for text, _, origin in lines)
        return {name: (value, origin) for name, value, origin in named}


COUNTED = """
import os, runpy, sys
calls = 0
def count(_frame, event, _argument):
    global calls
    calls += event in {"call", "c_call"}
def end(code, leave=os._exit):
    sys.setprofile(None)
    print(calls, len(sys.modules), file=sys.stderr, flush=True)
    leave(code)
os._exit = end
sys.argv[0] = "dsup"
sys.setprofile(count)
try:
    runpy.run_module("dsup", run_name="__main__", alter_sys=True)
except SystemExit as done:
    end(done.code or 0)
"""


@pytest.fixture
def cost():
    """Give ``cost(*words)``: how many calls dsup makes then, and modules it has.

    Its time is a matter of the machine, and of what else runs there.
    """

    def of(*words):
        argv = [sys.executable, "-c", COUNTED, *words]
        done = subprocess.run(argv, capture_output=True, check=True, text=True)
        told = [[int(n) for n in line.split()] for line in done.stderr.splitlines()]
        return sum(calls for calls, _ in told), max(modules for _, modules in told)

    return of


@pytest.fixture
def home(monkeypatch, tmp_path):
    """Give the home of a user who set nothing, with a script in it to run."""
    for name in [name for name in os.environ if name.startswith(OTHERS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    return tmp_path


@pytest.fixture
def dsup(home, capsys):
    """Give ``dsup(*words)``: a call without a guard, so that nothing is started."""

    def call(*words):
        capsys.readouterr()
        code = run([*words], None)
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def dry(dsup):
    """Give ``dry(*words)``: a dry run of launch."""

    def call(*words):
        said = dsup("launch", "--dry-run", *words)
        assert said.code == 0, said.err
        return said

    return call


@pytest.fixture
def job(home):
    """Give ``job(*words, talks, shows)``: the job of a call, nothing of it made."""

    def make(*words, talks=False, shows=False):
        with launch.make_context("launch", [*words, "train.py"]) as context:
            terminal = Terminal(talks=talks, shows=shows)
            call = Call(context.params, origins(context), os.environ, terminal)
            return build(call, dry=True)

    return make


FAILED = "20991130T022748Z-train-a0b408_gpu-a17"


def _exited(rank, status, at_s):
    return {
        "event": "rank_exited",
        "at_s": at_s,
        "late_s": 0.0,
        "attempt": 0,
        "rank": rank,
        "status": status,
        "dying": [],
    }


def _journal():
    """Return the journal of a run of two ranks that was given up, rank 1 killed."""
    spec = {
        "world_size": 2,
        "settle_s": 2.0,
        "grace_s": 25.0,
        "keep_helpers": False,
        "policy": {
            "max_restarts": 0,
            "backoff_s": [10.0],
            "healthy_after_s": 1800.0,
            "restart_on_user": False,
            "checkpoints_known": False,
        },
    }
    started = {"event": "rank_started", "at_s": 1.0, "attempt": 0}
    items = [
        {"event": "launched", "at_s": 1.0},
        {"command": "prepare", "attempt": 0},
        {**started, "rank": 0, "pid": 100},
        {**started, "rank": 1, "pid": 101},
        _exited(1, -9, 3.0),
        {"command": "signal_ranks", "attempt": 0, "ranks": [0], "signum": 15},
        _exited(0, -15, 3.5),
        {"command": "exit", "code": 137, "origin": "rank"},
    ]
    head = {"n": 0, "journal": 1, "spec": spec}
    lines = [head, *({"n": n, **item} for n, item in enumerate(items, 1))]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.fixture
def failed_run(home):
    """Give ``failed_run(name, **files)``: a run directory, and more files in it.

    Of a file's name ``__`` is a slash and ``_`` before its ending a dot.
    """

    def make(name=FAILED, known=(), **files):
        path = home / ".local/state/dsup/runs" / name
        (path / "attempt_0" / "1").mkdir(parents=True)
        (path / "events.jsonl").write_text(_journal())
        clocks = {"realtime_ns": 10**18 + 10**9, "monotonic_ns": 10**9}
        fields = {"schema": "dsup.run/1", "host": "gpu-a17", "clocks": clocks}
        (path / "run.json").write_text(json.dumps({**fields, **dict(known)}))
        for below, raw in files.items():
            file = path / ".".join(below.replace("__", "/").rsplit("_", 1))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(raw)
        return path

    return make
