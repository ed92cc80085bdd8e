"""Who died first and why: real ranks that need each other, and one that fails."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

WORKERS = Path(__file__).parent / "workers"
RING = WORKERS / "ring.py"
SPOIL = WORKERS / "spoil.py"
STAY = {"first_line", "sleep", "stop", "thread"}
"""Kinds of which not every rank ends by itself."""


def soak(*row):
    """Return a row that has a sibling in a plain run."""
    return pytest.param(*row, marks=pytest.mark.soak)


def verdict_of(run, attempt=0):
    """Return the verdict.json of an attempt."""
    return json.loads((run.run_dir() / f"attempt_{attempt}/verdict.json").read_text())


def judged(run, kind, culprit=2, *, ranks=4, act=None):
    """Launch the ring with one rank that fails; return its verdict and exit code."""
    settle_s = 2 if kind in STAY else 120
    run.start(f"--nproc {ranks} --settle {settle_s}", kind, str(culprit), script=RING)
    if act:
        act()
    code = run.ended()
    return verdict_of(run), code


@pytest.mark.parametrize(
    ("kind", "cause", "words", "code"),
    [
        ("raise", "python_exception", "ValueError: bad batch 17", 1),
        soak("memory", "python_exception", "MemoryError: cannot allocate 4 GiB", 1),
        ("import", "import_error", "module_that_is_not_there", 1),
        ("disk", "disk_full", "No space left on device", 1),
        ("thread", "python_exception", "RuntimeError: prefetch died", 1),
        ("slow_exit", "python_exception", "ValueError: loss is NaN", 1),
        soak("slow_finally", "python_exception", "ValueError: loss is NaN", 1),
        ("exit", "python_exception", "exit code 3", 3),
        ("os_exit", "python_exception", "exit code 7", 7),
        ("early", "early_exit", "exit 0", 1),
        ("kill", "killed", "SIGKILL", 137),
        soak("large", "killed", "SIGKILL", 137),
        ("abort", "abort", "SIGABRT", 134),
        ("segv", "segfault", "SIGSEGV", 139),
        ("segv_silent", "segfault", "SIGSEGV", 139),
        ("bus", "sigbus", "SIGBUS", 135),
        ("first_line", "segfault", "SIGSEGV", 139),
        ("stop", "hang", "SIGSTOP", 194),
        soak("sleep", "hang", "did not enter", 194),
        pytest.param(
            "oom", "host_oom", "killed by the kernel", 137, marks=pytest.mark.root
        ),
        pytest.param("helper_oom", "host_oom", "memory", 1, marks=pytest.mark.root),
    ],
)
def test_the_rank_that_failed_is_named_with_its_cause(run, kind, cause, words, code):
    """However it fails, and whoever is seen to end first."""
    verdict, exit_code = judged(run, kind)

    assert (verdict["first_ranks"], verdict["cause"]) == ([2], cause), verdict
    assert words in verdict["summary"]
    assert verdict["exit"]["code"] == exit_code
    if kind != "helper_oom":
        assert exit_code == code
    assert all(victim["of"] == 2 for victim in verdict["victims"])


def test_a_signal_from_outside_is_told_apart_from_dsups_own(run):
    """SIGTERM to one rank, by somebody else, while dsup had sent nothing."""

    def act():
        [asked] = run.wait_event("term")
        os.kill(asked.pid, signal.SIGTERM)

    verdict, code = judged(run, "term", act=act)

    assert (verdict["first_ranks"], verdict["cause"]) == ([2], "killed")
    assert "SIGTERM" in verdict["summary"]
    assert code == 143


@pytest.mark.parametrize("kind", ["alike", "usage"])
def test_what_all_ranks_do_alike_is_no_ranks_fault(run, kind):
    """The same exception, or refusal, on all ranks: they are named together."""
    culprit = 2 if kind == "alike" else 0
    verdict, _ = judged(run, kind, culprit, ranks=4 if kind == "alike" else 1)

    assert verdict["cause"] == "config_error", verdict
    if kind == "alike":
        assert verdict["first_ranks"] == [0, 1, 2, 3]
        assert verdict["summary"].startswith("All 4 ranks raised FileNotFoundError")


def test_the_panel_and_diagnose_say_the_same(run):
    """One verdict: on the console at once, and afterwards from the run directory."""
    judged(run, "raise")
    sentence = "Rank 2 raised ValueError: bad batch 17 (ring.py:"
    told = diagnose(run, str(run.run_dir()))

    assert sentence in run.console()
    assert sentence in told.stdout
    [verdict] = json.loads(diagnose(run, str(run.run_dir()), "--json").stdout)[
        "verdicts"
    ]
    kept = verdict_of(run)
    assert {name: verdict.get(name) for name in kept} == kept


def diagnose(run, *words):
    """Run dsup diagnose."""
    return subprocess.run(
        [sys.executable, "-m", "dsup", "diagnose", *words],
        env=run.environ({}),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )


def test_every_failed_attempt_has_a_verdict(run):
    """Also those that were restarted; only the last one tells an exit code."""
    run.start("--nproc 2 --max-restarts 1", "kill", "1", script=RING)

    assert run.ended() == 137
    first, last = verdict_of(run, 0), verdict_of(run, 1)
    assert first["exit"] is None
    assert last["exit"] == {"code": 137, "origin": "dsup"}
    assert first["signature"] == last["signature"]


def test_a_run_that_succeeds_has_none(run):
    """No failure, no verdict."""
    run.start("--nproc 2", "*:exit=0")

    assert run.ended() == 0
    assert list(run.run_dir().glob("attempt_*/verdict.json")) == []


@pytest.mark.parametrize("spoil", ["garbage", "fifo", "huge", "future", "link"])
def test_an_error_file_can_hold_anything(run, spoil):
    """Garbage, a FIFO, a gigabyte, a time to come, a link: the verdict stands."""
    run.start("--nproc 2", spoil, script=SPOIL)

    assert run.ended() == 3
    verdict = verdict_of(run)
    assert (verdict["first_ranks"], verdict["cause"]) == ([1], "python_exception")


def test_a_launcher_around_dsup_gets_the_error_file(run):
    """What torchrun writes for the one that started it, dsup writes, too."""
    outer = run.files / "outer.json"
    env = {"TORCHELASTIC_ERROR_FILE": str(outer)}
    run.start("--nproc 2 --settle 120", "raise", "1", script=RING, env=env)

    assert run.ended() == 1
    told = json.loads(outer.read_text())["message"]
    assert "ValueError: bad batch 17" in told["message"]
    assert told["errorCode"] == 1


def test_a_flood_of_notes_costs_the_agent_nothing(run):
    """A rank may send without end; its first notes count, and the run goes on."""
    code = (
        "import os, socket\n"
        "s = socket.socket(fileno=int(os.environ['DSUP_NOTES'][3:]))\n"
        "try:\n"
        "    while True: s.send(b'{}')\n"
        "except BrokenPipeError: pass\n"
        "raise ValueError('after the flood')\n"
    )
    script = run.files / "flood.py"
    script.write_text(code)
    run.start("--nproc 1 --settle 0", script=script)

    assert run.ended() == 1
    assert "ValueError: after the flood" in verdict_of(run)["summary"]
