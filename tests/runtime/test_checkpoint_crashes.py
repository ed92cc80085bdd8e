"""A writer that dies, or a disk that is full, costs the checkpoint and no other."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsup_runtime.checkpoints import newest_valid, prune


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


IN_A_MOUNT = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
SAVE = """
import sys
from dsup_runtime.checkpoints import begin, commit, newest_valid
root = sys.argv[1]
for step, size in (1, 1000), (2, 10**9), (2, 1000):
    try:
        tmp = begin(root, step)
        with open(f"{tmp}/state.pt", "wb", buffering=0) as file:
            while size and (written := file.write(bytes(min(size, 4096)))):
                size -= written
    except OSError as error:
        print(error)
    except Exception as error:
        print(error)
        continue
    try:
        commit(tmp, step)
    except Exception as error:
        print(error)
    print(newest_valid(root).newest.step)
"""


def save_in_mount(root, options):
    """Save three times on a file system that only this child sees."""
    root.mkdir()
    command = ["unshare", "-m", "sh", "-c", IN_A_MOUNT, "sh", options, str(root)]
    return subprocess.run(
        [*command, sys.executable, "-c", SAVE, str(root)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


@pytest.mark.root
def test_a_full_disk_costs_the_checkpoint_and_no_other(root):
    """The manifest does not fit: the one before is kept, and the next save has room."""
    refusal = (
        f"cannot commit {root}/step-00000002, because no space left on device"
        " (free some space or keep fewer checkpoints)"
    )
    words = "[Errno 28] No space left on device"
    assert save_in_mount(root, "size=600k") == ["1", words, refusal, "1", "2"]


@pytest.mark.root
def test_a_read_only_root_is_said_so(root):
    """Nothing can be saved, and each call says why."""
    refusal = (
        f"cannot begin a checkpoint in {root}, because read-only file system"
        " (choose a directory that the job can write)"
    )
    assert save_in_mount(root, "ro") == [refusal] * 3


LIFE = """
import os, sys
from dsup_runtime import checkpoints
root, attempt, last_line = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lines = 0

def count(frame, event, argument):
    global lines
    if "dsup_runtime" not in frame.f_code.co_filename:
        return None
    lines += event == "line"
    if lines == last_line:
        os.kill(os.getpid(), 9)
    return count

sys.settrace(count)
newest = checkpoints.newest_valid(root).newest
first = newest.step + 1 if newest else 1
for step in range(first, first + 3):
    tmp = checkpoints.begin(root, step, attempt=attempt)
    os.mkdir(f"{tmp}/dcp")
    for name in ("state.pt", "dcp/shard"):
        with open(f"{tmp}/{name}", "wb") as file:
            file.write(bytes(100_000))
    checkpoints.commit(tmp, step)
    os.write(1, b"%d\\n" % step)
    checkpoints.prune(root, keep=2)
os.write(2, b"%d" % lines)
"""
LINES_OF_A_LIFE = 1000
"""About as many lines of dsup_runtime run while three checkpoints are saved."""


def live(root, attempt, last_line):
    """Save three checkpoints, or die at a line; return the last one reported."""
    life = subprocess.run(
        [sys.executable, "-c", LIFE, str(root), str(attempt), str(last_line)],
        capture_output=True,
        check=False,
    )
    reported = life.stdout.split()
    return life, int(reported[-1]) if reported else 0


@pytest.mark.slow
def test_a_kill_at_any_line_loses_nothing_that_was_committed(tmp_path_factory):
    """SIGKILL at 24 drawn lines: the newest valid is at least the last one reported."""
    killed = 0

    @settings(max_examples=12)
    @given(st.lists(st.integers(1, LINES_OF_A_LIFE), min_size=2, max_size=2))
    def lives(last_lines):
        nonlocal killed
        root = tmp_path_factory.mktemp("root")
        found = 0
        for attempt, last_line in enumerate(last_lines):
            life, reported = live(root, attempt, last_line)
            killed += life.returncode == -signal.SIGKILL
            # What an earlier life left behind counts, though it died before saying so.
            committed = max(found, reported)
            newest = newest_valid(root, checksums=True).newest
            found = newest.step if newest else 0
            assert found in (committed, committed + 1)
        assert live(root, attempt=2, last_line=-1)[1] == found + 3
        prune(root, keep=1)
        assert sorted(os.listdir(root)) == ["latest", f"step-{found + 3:08d}"]
        shutil.rmtree(root)

    lives()
    assert killed >= 15
