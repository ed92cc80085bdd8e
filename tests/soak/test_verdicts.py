"""A hundred drawn faults in real gloo groups: right rank and cause, each of them."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.root]

RING = Path(__file__).parent.parent / "blackbox" / "workers" / "ring.py"
GLOO_ABORTED = "terminate called without an active exception"
"""Gloo's threads outlived their group: another death than was drawn, a real one."""

CAUSES = {
    "raise": "python_exception",
    "memory": "python_exception",
    "import": "import_error",
    "disk": "disk_full",
    "thread": "python_exception",
    "slow_exit": "python_exception",
    "slow_finally": "python_exception",
    "exit": "python_exception",
    "os_exit": "python_exception",
    "early": "early_exit",
    "kill": "killed",
    "abort": "abort",
    "segv": "segfault",
    "segv_silent": "segfault",
    "bus": "sigbus",
    "oom": "host_oom",
    "helper_oom": "host_oom",
    "stop": "hang",
    "sleep": "hang",
    "term": "killed",
}


def draw(seed):
    """Return kind, rank, steps and world size of a seed; the same on every machine."""
    numbers = hashlib.sha256(f"dsup verdict {seed}".encode()).digest()
    kinds = sorted(CAUSES)
    size = 2 + numbers[0] % 7
    return kinds[seed % len(kinds)], numbers[1] % size, numbers[2] % 40, size


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(100))
def test_the_first_rank_and_the_cause_are_right(run, seed):
    """Whatever fails, wherever, whenever, and among however many ranks."""
    kind, rank, steps, size = draw(seed)
    words = kind, str(rank), str(steps), "gloo"
    run.start(f"--nproc {size} --settle 2", *words, script=RING)
    if kind == "term":
        [asked] = run.wait_event("term", within_s=60)
        os.kill(asked.pid, signal.SIGTERM)
    run.ended(90)

    if GLOO_ABORTED in run.console():
        pytest.skip("gloo's threads aborted a rank that was on its way out")
    told = json.loads((run.run_dir() / "attempt_0/verdict.json").read_text())
    assert (told["first_ranks"], told["cause"]) == ([rank], CAUSES[kind]), told
