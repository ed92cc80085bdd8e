"""--store agent: the ranks' key-value store outlives rank 0."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, select
import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    store.set("pid of rank 0", str(os.getpid()))
    store.get("rank 1 has come")  # its connection to rank 0 stands
    print("rank 0 leaves", flush=True)
    os._exit(0)
store.set("rank 1 has come", "")
rank_0 = int(store.get("pid of rank 0"))
try:
    gone = os.pidfd_open(rank_0)
    select.select([gone], [], [])
except ProcessLookupError:
    pass
store.set("key", "still there")
print("rank 1 reads:", store.get("key").decode(), flush=True)
os._exit(0)
"""


def of_run(mark):
    """Return the processes that have a mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += [process] * (mark in (process / "environ").read_bytes())
        except OSError:
            continue
    return found


@pytest.fixture
def launch(tmp_path):
    """Run a script on two ranks with a store; return the finished launcher."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(*options):
        words = ["--nproc", "2", "--settle", "0.2", "--max-restarts", "0"]
        words += ["--log-dir", str(tmp_path / "runs")]
        return subprocess.run(
            [sys.executable, "-m", "dsup", "launch", *words, *options, "script.py"],
            capture_output=True,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
            text=True,
            timeout=600,
        )

    return run


@pytest.mark.slow
@pytest.mark.torch
def test_the_agents_store_outlives_rank_0(launch, tmp_path, eventually):
    """Rank 1 goes on after rank 0 has left early; then the store ends, too."""
    done = launch("--store", "agent")

    eventually(lambda: not of_run(f"TMPDIR={tmp_path}".encode()))
    assert done.returncode == 0, done.stderr
    assert "rank 0 leaves" in done.stdout
    assert "rank 1 reads: still there" in done.stdout


@pytest.mark.slow
@pytest.mark.torch
def test_rank_0_takes_its_own_store_along(launch):
    """Without it rank 1 fails, as it does under torchrun with a store of rank 0."""
    done = launch("--store", "rank0")

    assert done.returncode == 195
    assert "rank 0 leaves" in done.stdout
    assert "rank 1 reads" not in done.stdout
