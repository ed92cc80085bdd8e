"""What every test has: a reason to skip what the machine cannot do, and shared means.

A test asks for what it needs by a marker; here is the one place that knows how to look
for it. A missing thing skips the test and says so; it never passes it.
"""

import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Under nohup, or behind a shell's "&", these would be ignored here, and in every child
# that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test starts is compiled once, not each time, also where a container forbids it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile(
    "dsup",
    # A run from time to time with thousands finds what is rare.
    max_examples=int(os.environ.get("DSUP_TEST_EXAMPLES", "25")),
    # On a busy machine one example may take long without anything being wrong.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("dsup"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dsup")

FAKE_NVML = Path(__file__).parent / "edges/fake_nvml.c"
MISSING = {
    "browser": lambda: not shutil.which("chromium") and "no chromium on PATH",
    "gpu": lambda: not Path("/dev/nvidiactl").exists() and "no NVIDIA GPU here",
    "root": lambda: os.geteuid() != 0 and "not root",
    "slurm": lambda: not shutil.which("slurmd") and "no slurmd on PATH",
    "systemd": lambda: (
        not Path("/lib/systemd/systemd").exists() and "systemd is not installed"
    ),
    "torch": lambda: not importlib.util.find_spec("torch") and "torch is not installed",
}
"""For each marker that names a need: why it cannot be met, or False."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run those together that share what is made once: it costs seconds."""
    for item in items:
        shared = item._fixtureinfo.name2fixturedefs.values()  # noqa: SLF001
        scopes = {one.scope for defs in shared for one in defs}
        if "package" in scopes:
            item.add_marker(pytest.mark.xdist_group(str(item.path.parent)))
        elif "module" in scopes:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


def calls_of(work):
    """Return how many calls a piece of work makes: no machine's speed changes it."""
    made = 0

    def count(_frame, event, _argument):
        nonlocal made
        made += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


@pytest.fixture(name="calls_of")
def _calls_of():
    return calls_of


def pytest_runtest_setup(item):
    """Skip a test that is marked with a need this machine cannot meet."""
    for marker, missing in MISSING.items():
        reason = item.get_closest_marker(marker) and missing()
        if reason:
            pytest.skip(f"needs {marker}: {reason}")


@pytest.fixture(scope="session")
def nvml(tmp_path_factory):
    """Give a maker of the directory of a libnvidia-ml.so.1, with compiler's options."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    made = {}

    def build(*options):
        if options not in made:
            directory = tmp_path_factory.mktemp("nvml")
            output = directory / "libnvidia-ml.so.1"
            command = [compiler, "-shared", "-fPIC", *options, "-o", output, FAKE_NVML]
            subprocess.run(command, check=True)
            made[options] = str(directory)
        return made[options]

    return build


@pytest.fixture
def descriptors():
    """Give which are open, without those that a test before has left to chance."""

    def listed():
        gc.collect()
        return sorted(os.listdir("/proc/self/fd"))

    return listed


@pytest.fixture(scope="session")
def small_job():
    """Give a job of two ranks, for parts of the agent that start none."""
    from dsup.core.job import Job
    from dsup.core.output import Output
    from dsup.core.plan import Policy
    from dsup.core.state import Spec

    policy = Policy(
        None, (10.0,), 1800.0, restart_on_user=False, checkpoints_known=False
    )
    return Job(
        spec=Spec(2, 2.0, 25.0, keep_helpers=False, policy=policy),
        argv=("python", "train.py"),
        program="train",
        environment={},
        run_id="r1",
        run_dir="/runs/r1",
        rank_logs=False,
        private=True,
        agent_store=False,
        store_python="python",
        master_port=0,
        comm_timeout_s=None,
        checkpoint_dir="",
        checkpoint_glob="",
        resume_arg="",
        tmp_parent="/scratch",
        inductor_cache="/scratch/inductor",
        options=(),
        output=Output(()),
    )
