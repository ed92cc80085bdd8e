"""What every test has: a reason to skip what the machine cannot do.

A test asks for what it needs by a marker; here is the one place that knows how to look
for it. A missing thing skips the test and says so; it never passes it.
"""

import importlib.util
import os
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Under nohup, or behind a shell's "&", these would be ignored here, and in every child
# that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "dsup",
    # On a busy machine one example may take long without anything being wrong.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("dsup"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dsup")

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


def pytest_runtest_setup(item):
    """Skip a test that is marked with a need this machine cannot meet."""
    for marker, missing in MISSING.items():
        reason = item.get_closest_marker(marker) and missing()
        if reason:
            pytest.skip(f"needs {marker}: {reason}")
