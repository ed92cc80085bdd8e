"""The command, and a launch that has the node looked at first."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dsup.checkup.checks.catalogue import CHECKS
from dsup.checkup.finding import Finding
from dsup.checkup.shown import lines

RUNBOOK = Path(__file__).parents[2] / "docs/runbook.md"
FOUND = (
    Finding("ecc", "GPUs", "bad", "GPU 1 had 1 uncorrectable memory error", "reboot"),
    Finding("disk", "Storage", "ok", "the run directory has 9.0 GiB free", ""),
    Finding("sync", "Storage", "unknown", "nothing is known", ""),
)


def test_what_is_well_takes_a_line_a_group():
    """The others stand below their group, with their fix; the verdict comes last."""
    plain = [
        line for line, _ in lines(FOUND, None, everything=False, unicode=True) if line
    ]

    assert plain == [
        "GPUs: 1 bad",
        "  bad      ecc               GPU 1 had 1 uncorrectable memory error",
        "                             fix: reboot",
        "Storage: 1 unknown, 1 ok",
        "  unknown  sync              nothing is known",
        "this node is not fit: ecc (1 not known)",
    ]


def test_everything_is_shown_on_demand_and_wrapped_for_a_terminal():
    """Of a narrow terminal no line is wider than it."""
    shown = list(lines(FOUND, 70, everything=True, unicode=False))

    assert max(len(line) for line, _ in shown) <= 70
    assert any("disk" in line for line, _ in shown)
    assert ("this node is not fit: ecc (1 not known)", "failure") in shown


def dsup(*words, **environment):
    """Run dsup for real."""
    return subprocess.run(
        [sys.executable, "-m", "dsup", *words],
        env={**os.environ, "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
def test_the_doctor_answers_programs_and_judges_the_limits_it_has(nvml, tmp_path):
    """Real limits, one GPU with a fault, a checkpoint directory: one document."""
    doctor = [sys.executable, "-m", "dsup", "doctor", "--json", "--nproc", "1"]
    places = ["--checkpoint-dir", tmp_path / "ckpt", "--log-dir", tmp_path]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *doctor, *places],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": nvml(),
            "FAKE_NVML_MODE": "remap",
            "CUDA_LAUNCH_BLOCKING": "1",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    told = json.loads(done.stdout)
    assert (done.returncode, told["schema"], told["fit"]) == (
        193,
        "dsup.doctor/1",
        False,
    )
    state = {row["check"]: row["state"] for row in told["findings"]}
    assert state["row-remap"] == "bad"
    assert (state["nofile"], state["debugging-left-on"]) == ("warn", "warn")
    assert state["python"] == "ok"
    texts = " ".join(row["text"] for row in told["findings"])
    assert f"the checkpoint directory {tmp_path}/ckpt" in texts
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_wrong_call_is_refused():
    """The doctor takes no run."""
    assert dsup("doctor", "run").returncode == 2


@pytest.mark.slow
def test_a_launch_refuses_a_bad_node_and_leaves_nothing(nvml, tmp_path):
    """What is bad is said, no rank runs, and the exit code is 193."""
    runs, mark = tmp_path / "runs", tmp_path / "mark"
    launch = ("launch", "--preflight", "--nproc", "1", "--log-dir", str(runs))

    done = dsup(
        *launch,
        "--no-python",
        "touch",
        str(mark),
        LD_LIBRARY_PATH=nvml(),
        FAKE_NVML_MODE="remap",
    )

    assert done.returncode == 193
    assert (
        "cannot launch, because this node is not fit: row-remap: GPU 1" in done.stderr
    )
    assert "preflight: row-remap: GPU 1" in done.stderr
    assert os.listdir(runs) == []
    assert not mark.exists()


@pytest.mark.slow
def test_a_launch_on_a_fit_node_keeps_what_was_found(tmp_path):
    """Warnings are said once and kept in run.json; the ranks run."""
    launch = ("launch", "--preflight", "--nproc", "1", "--log-dir", str(tmp_path))

    done = dsup(*launch, "--no-python", "true", CUDA_LAUNCH_BLOCKING="1")

    assert done.returncode == 0, done.stderr
    assert "preflight: debugging-left-on: CUDA_LAUNCH_BLOCKING=1" in done.stderr
    (run,) = tmp_path.iterdir()
    kept = json.loads((run / "run.json").read_text())["preflight"]
    assert "debugging-left-on" in {row["check"] for row in kept}


@pytest.mark.slow
def test_a_stop_does_not_wait_for_a_driver_that_hangs(nvml, tmp_path):
    """SIGTERM while the node is looked at: no rank runs, nothing is left, 143."""
    words = ["launch", "--preflight", "--nproc", "1", "--log-dir", tmp_path / "runs"]
    fake = {"LD_LIBRARY_PATH": nvml(), "FAKE_NVML_MODE": "hang_start"}
    launched = subprocess.Popen(
        [sys.executable, "-m", "dsup", *words, "--no-python", "true"],
        env={**os.environ, **fake},
        stderr=subprocess.PIPE,
    )
    until_s = time.monotonic() + 600
    while not list(tmp_path.glob("runs/*")) and time.monotonic() < until_s:
        threading.Event().wait(0.01)

    launched.terminate()
    _, said = launched.communicate(timeout=600)

    assert launched.returncode == 143
    assert said == b"dsup: stopped by SIGTERM before any rank ran\n"
    assert os.listdir(tmp_path / "runs") == []


@pytest.mark.slow
def test_a_job_that_contradicts_itself_is_refused_as_a_wrong_call(tmp_path):
    """Another node would not cure it, so the code is not that of a bad node."""
    launch = ("launch", "--preflight", "--nproc", "1", "--log-dir", str(tmp_path))

    done = dsup(*launch, "--no-python", "true", GLOO_SOCKET_IFNAME="nowhere0")

    assert done.returncode == 2
    assert "because the job is not fit: socket-interface" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["doctor", "diagnose", "drill"])
def test_a_closed_output_is_no_fault_of_ours(command, tmp_path):
    """Whoever closes standard output wants the exit code."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "dsup", command],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        timeout=600,
        check=False,
    )

    assert b"bug" not in done.stderr


@pytest.mark.slow
def test_a_doctor_that_is_stopped_leaves_nobody(nvml, tmp_path):
    """SIGTERM ends the readers, and what a wrapper of the interpreter has started."""
    mark = tmp_path / "mark"
    wrapper = tmp_path / "python"
    wrapper.write_text(f"#!/bin/sh\nsleep 1000 & echo $! >{mark}.new\n")
    with wrapper.open("a") as script:
        script.write(f"mv {mark}.new {mark}\nwait\n")
    wrapper.chmod(0o700)
    doctor = subprocess.Popen(
        [sys.executable, "-m", "dsup", "doctor", "--log-dir", tmp_path],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": nvml(),
            "FAKE_NVML_MODE": "hang_start",
            "PYTHON_EXEC": str(wrapper),
        },
    )
    until_s = time.monotonic() + 600
    while not mark.exists() and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    sleeper = int(mark.read_text())

    doctor.terminate()

    assert doctor.wait(200) == 143
    while _runs(sleeper) and time.monotonic() < until_s:
        threading.Event().wait(0.01)
    assert not _runs(sleeper)


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_every_check_has_its_section_in_the_runbook():
    """Whatever is found, the runbook says what it means and what to do."""
    section = RUNBOOK.read_text().partition("\n## `dsup doctor`\n")[2]
    named = re.findall(r"^### `([^`]+)`$", section.partition("\n## ")[0], re.MULTILINE)

    assert sorted(named) == sorted(check.name for check in CHECKS)
