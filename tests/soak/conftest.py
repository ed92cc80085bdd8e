"""The black-box harness, for the runs that take hours, and for whole scenarios."""

import importlib.util
import json
import secrets
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

_HARNESS = Path(__file__).parent.parent / "blackbox" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("blackbox_harness", _HARNESS)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

new_run = _MODULE.new_run
run = _MODULE.run
proc = _MODULE.proc

TEAM = Path(__file__).parent / "scenarios" / "team.py"
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


@pytest.fixture
def diagnose(run):
    """Give ``diagnose(*paths)``: what ``dsup diagnose --json`` says of them."""

    def ask(*paths):
        done = subprocess.run(
            [sys.executable, "-m", "dsup", "diagnose", *map(str, paths), "--json"],
            env=run.environ({}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["verdicts"]

    return ask


@pytest.fixture
def launch(run):
    """Give ``launch(act, ranks, …)``: a team of ranks of which some fail.

    ``stage`` is a shell's line that is run first, in mount and process as dsup's own;
    ``$SCENARIO_DIR`` in it, in options and in the ranks, is a directory of the run's.
    """

    def start(act, ranks, *more, **how):
        env = {"SCENARIO_DIR": str(run.files), "TEAM_WAIT_S": "5"}
        stage = how.get("stage", "")
        inside = ["sh", "-euc", f'{stage}\nexec "$@"', "sh"]
        size, options = how.get("nproc", 4), how.get("options", "")
        options = options.replace("$SCENARIO_DIR", str(run.files))
        run.start(
            f"--nproc {size} --max-restarts 0 --settle 2 {options}",
            *(act, ",".join(map(str, ranks)), *more),
            script=TEAM,
            env={**env, **how.get("env", {})},
            wrap=[*OWN_MOUNTS, *inside] if stage else (),
        )
        return run

    return start


@pytest.fixture
def verdict(run, diagnose):
    """Give ``verdict()``: that of the only attempt, once the run is over.

    The run directory alone, at another place, must give the same.
    """

    def judged():
        run.ended(90)
        directory = run.run_dir()
        path = directory / "attempt_0/verdict.json"
        assert path.exists(), run.console()
        found = json.loads(path.read_text())
        moved = directory.rename(directory.with_name("moved-elsewhere"))
        [again] = diagnose(moved)
        assert {name: again[name] for name in found} == found
        return found

    return judged


@pytest.fixture
def cgroup():
    """Give ``cgroup(controller, limit)``: the directory of a new one with that limit.

    The controller is ``memory`` (the limit in bytes) or ``pids`` (a number).
    """
    made = []

    def make(controller, limit):
        parent, file = _home_of(controller)
        group = parent / f"dsup-test-{secrets.token_hex(4)}"
        try:
            group.mkdir()
            made.append(group)
            (group / file).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"cannot make a cgroup: {error}")
        return group

    yield make
    rest = threading.Event().wait
    for group in made:
        for _ in range(100):
            try:
                group.rmdir()
            except OSError:
                rest(0.05)  # the last of its processes is still being taken down
            else:
                break


def _home_of(controller):
    """Return where a cgroup with a controller can be made, and its limit's file."""
    names = {"memory": "memory.limit_in_bytes", "pids": "pids.max"}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controller in controllers.split(","):
            top = Path("/sys/fs/cgroup", controller)
            return (top / own.lstrip("/"), names[controller])
    # In version 2 a group with processes of its own limits no children: beside it.
    own = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2]
    place = Path("/sys/fs/cgroup", own.lstrip("/")).parent
    return place, {"memory": "memory.max", "pids": "pids.max"}[controller]


@pytest.fixture
def built(run):
    """Give ``built(name, source, *options)``: the path of a shared library."""
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")

    def build(name, source, *options):
        output = run.files / name
        output.parent.mkdir(exist_ok=True, parents=True)
        command = [compiler, "-shared", "-fPIC", *options, "-o", str(output), "-"]
        subprocess.run(command, input=source.encode(), check=True)
        return output

    return build


@pytest.fixture
def holder():
    """Give a port of this machine that another process listens on."""
    code = (
        "import socket, sys\n"
        "s = socket.create_server(('0.0.0.0', 0))\n"
        "print(s.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield int(process.stdout.readline())
    process.stdin.close()
    process.wait(5)
    process.stdout.close()
