"""dsup itself is killed, frozen or starved: no rank outlives it, nothing is lost."""

import contextlib
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from functools import partial

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

PATIENCE_S = 600.0
CLOCKS_S = 1.0
"""So far the wall clock may be set while a run goes on."""

PAUSE = "emit=ready,hang"
HELPERS = "helper=plain,helper=setsid,helper=double,helper=clear"


def agent_of(run, proc):
    """Return the agent's pid: the only child of the guard when it starts."""
    return proc.until(lambda: proc.children_of(run.process.pid), 600, run.console)[0]


def victim(run, proc, who):
    """Return the pid of the guard or of the agent."""
    return run.process.pid if who == "guard" else agent_of(run, proc)


@pytest.mark.parametrize("who", ["agent", "guard"])
@pytest.mark.parametrize("ignores", ["", "ignore=TERM,"], ids=["", "TERM ignored"])
def test_kill_9_of_dsup_leaves_no_rank(run, proc, who, ignores):
    """Either half of dsup killed: ranks and all their children are gone within 2 s."""
    run.start("--nproc 4 --max-restarts 3", f"*:{ignores}{HELPERS},{PAUSE}")
    agent_of(run, proc)
    run.wait_event("ready", 4)
    os.kill(victim(run, proc, who), signal.SIGKILL)

    assert run.ended() == 137, run.console()
    proc.until(lambda: not run.processes(), 600, run.processes)
    assert len(run.events("ready")) == 4
    if who == "agent":
        assert any("agent" in line for line in run.said()), run.console()


@pytest.mark.parametrize("who", ["agent", "guard"])
def test_kill_9_of_dsup_leaves_no_files(run, proc, who):
    """The ranks' temporary directory goes with them, whichever half was killed."""
    run.start("--nproc 2", f"*:{PAUSE}")
    pid = victim(run, proc, who)
    run.wait_event("ready", 2)
    assert list(run.tmp.glob("dsup*"))
    os.kill(pid, signal.SIGKILL)

    assert run.ended() == 137, run.console()
    run.nothing_left()


def test_kill_9_of_the_agent_takes_nothing_along(run, proc):
    """How far each rank was, and its memory, is on disk up to that moment."""
    lively = proc.workers / "lively.py"
    run.start("--nproc 2", "eval", "1000", "0.1", script=lively)
    agent = agent_of(run, proc)
    proc.until(lambda: sampled(run), PATIENCE_S, run.console)
    known = sampled(run)
    killed_s = time.time()
    os.kill(agent, signal.SIGKILL)
    assert run.ended() == 137, run.console()
    run.nothing_left()

    (verdict,) = asked(run, "diagnose")["verdicts"]
    assert verdict["cause"] == "agent_killed"
    # Stamped by whoever saw the agent go, so not before that.
    assert datetime.fromisoformat(verdict["at"]).timestamp() > killed_s - CLOCKS_S
    (told,) = [one for one in verdict["evidence"] if one["source"] == "heartbeat"]
    assert re.search("ranks 0-1: steps? .*, phase (train|eval), ", told["text"])
    status = asked(run, "status")
    assert status["outcome"] == "lost"
    assert status["step"] >= min(known["steps"].values())
    for row in status["ranks"]:
        assert row["step"] >= known["steps"][str(row["rank"])]
        assert row["beat_age_s"] is not None
        assert row["rss_kb"] > 0


def sampled(run):
    """Return the last sample on disk in which both ranks tell a step; None for none."""
    found = [*run.logs.glob("*/attempt_0/samples.jsonl")]
    lines = found[0].read_text().split("\n")[:-1] if found else []
    samples = [json.loads(line) for line in lines]
    known = [one for one in samples if len(one.get("steps", ())) == 2]
    return known[-1] if known else None


def asked(run, command):
    """Return what a command says of the run, as programs read it."""
    words = [sys.executable, "-m", "dsup", command, "--json", str(run.run_dir())]
    said = subprocess.run(words, env=run.environ({}), capture_output=True, check=True)
    return json.loads(said.stdout)


def test_kill_9_of_the_whole_process_group(run, proc):
    """What a scheduler or ``kill -9 -PGID`` does ends the guard, not agent and all."""
    run.start("--nproc 4 --max-restarts 3", f"*:{HELPERS},{PAUSE}")
    agent = agent_of(run, proc)
    run.wait_event("ready", 4)
    os.killpg(run.process.pid, signal.SIGKILL)

    assert run.ended() == 137, run.console()
    run.nothing_left()
    proc.until(lambda: proc.state_of(agent) in ("", "Z"), 600, "the agent lives on")


@pytest.mark.parametrize("who", ["agent", "guard"])
@pytest.mark.parametrize("when", ["the pause", "the next start"])
def test_kill_9_while_restarting(run, proc, who, when):
    """Killed between two attempts: no further attempt begins, and nothing is left."""
    pause_s = {"the pause": 600, "the next start": 0.3}[when]
    run.start(
        f"--nproc 2 --max-restarts 3 --backoff {pause_s}",
        f"1@0:{HELPERS},emit=ready,wait=ready*2,emit=failed,die=KILL",
        f"*@0:{HELPERS},{PAUSE}",
        f"*:emit=again,{PAUSE}",
    )
    pid = victim(run, proc, who)
    first = {event.pid for event in run.wait_event("ready", 2)}
    run.wait_event("failed")
    proc.until(
        lambda: not any(proc.state_of(rank) not in ("", "Z") for rank in first),
        600,
        "the first attempt has ended",
    )
    if when == "the next start":
        run.wait_event("again")
    os.kill(pid, signal.SIGKILL)

    assert run.ended() == 137, run.console()
    proc.until(lambda: not run.processes(), 600, run.processes)
    if when == "the pause":
        assert not run.events("again")


@pytest.mark.parametrize(
    "frozen_s",
    [
        pytest.param(3.0, id="3 s"),
        pytest.param(20.0, id="20 s", marks=pytest.mark.soak),
    ],
)
def test_an_agent_that_was_stopped_carries_on(run, proc, frozen_s):
    """SIGSTOP of the agent harms no rank; what happened meanwhile is seen after it."""
    run.start("--nproc 2 --max-restarts 1", f"*@0:{PAUSE}", "*:emit=again")
    agent = agent_of(run, proc)
    ranks = run.wait_event("ready", 2)
    os.kill(agent, signal.SIGSTOP)
    try:
        assert not threading.Event().wait(frozen_s)
        for rank in ranks:
            proc.until(lambda r=rank: proc.state_of(r.pid) == "S", 600, "it sleeps")
        os.kill(ranks[1].pid, signal.SIGKILL)
    finally:
        os.kill(agent, signal.SIGCONT)

    assert run.ended() == 0, run.console()
    assert any("SIGKILL" in line for line in run.said()), run.console()
    journal = (run.run_dir() / "events.jsonl").read_text()
    assert re.search("(?i)stalled", journal)
    run.nothing_left()


def test_an_agent_that_was_stopped_kills_nobody(run, proc):
    """After a stopped agent goes on, healthy ranks go on, too."""
    run.start("--nproc 2", "*:emit=ready,wait=go,emit=done")
    agent = agent_of(run, proc)
    run.wait_event("ready", 2)
    os.kill(agent, signal.SIGSTOP)
    assert not threading.Event().wait(2.5)
    os.kill(agent, signal.SIGCONT)
    assert not threading.Event().wait(1.0)
    run.emit("go")

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 2


def read(files):
    """Return what is in those files that are there."""
    return [file.read_text() for file in files if file.exists()]


def test_a_dead_scribe_is_replaced(run, proc):
    """Whoever dies beside the agent is replaced: no print fails, no line is lost."""
    run.start(
        "--nproc 2",
        "*:say=before,emit=ready,wait=go,lines=2000,say=after,emit=done",
    )
    agent = agent_of(run, proc)
    ranks = {event.pid for event in run.wait_event("ready", 2)}
    logs = [run.run_dir() / f"attempt_0/{rank}/stdout.log" for rank in "01"]
    # What a scribe has taken and not written yet goes with it.
    written = ["before\n"] * 2
    proc.until(lambda: read(logs) == written, PATIENCE_S, run.console)
    aides = set(proc.children_of(agent)) - ranks
    assert aides
    for aide in aides:
        with contextlib.suppress(ProcessLookupError):
            os.kill(aide, signal.SIGKILL)
    run.emit("go")

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 2
    for log in read(logs):
        assert log.startswith("before\n")
        assert log.endswith("after\n")
        assert log.count("whole\n") == 2000


def test_eight_ranks_with_helpers_of_every_kind(run):
    """One of eight ranks is killed: 32 helpers of all ranks end with them."""
    run.start(
        "--nproc 8 --shutdown-timeout 3",
        f"5:{HELPERS},emit=ready,wait=ready*8,die=KILL",
        f"*:{HELPERS},{PAUSE}",
    )

    assert run.ended() == 137, run.console()
    assert any(re.search("rank 5.*SIGKILL", line) for line in run.said())
    run.nothing_left()


@pytest.mark.parametrize("stopped", [False, True], ids=["to the end", "stopped"])
def test_64_ranks(run, stopped):
    """64 ranks start, and end: by themselves with 0, or stopped with 143."""
    run.start("--nproc 64", "*:emit=ready,hang" if stopped else "*:emit=ready")
    run.wait_event("ready", 64 if stopped else 1)
    if stopped:
        run.signal(signal.SIGTERM)

    assert run.ended() == (143 if stopped else 0), run.console()
    assert sorted(event.rank for event in run.events("ready")) == list(range(64))
    run.nothing_left()


def test_two_runs_at_once(new_run):
    """Two runs side by side share nothing: one fails, the other goes on."""
    one, other = new_run(), new_run()
    one.start("--nproc 2", "*:env,emit=ready,hang")
    other.start(
        f"--nproc 2 --log-dir {one.logs}",
        "1:env,emit=ready,wait=go,die=KILL",
        "*:env,emit=ready,hang",
    )
    one.wait_event("ready", 2)
    other.wait_event("ready", 2)
    envs = [event.env for event in one.events("env") + other.events("env")]
    other.emit("go")

    assert len({env["MASTER_PORT"] for env in envs}) == 2
    assert other.ended() == 137, other.console()
    other.nothing_left()
    assert len([1 for _, line in one.processes() if "act.py" in line]) >= 2
    one.signal(signal.SIGTERM)
    assert one.ended() == 143, one.console()
    assert len([path for path in one.logs.iterdir() if path.is_dir()]) == 2


def test_a_frozen_rank_is_stopped_in_time(run):
    """SIGSTOP of a rank does not make a stop last longer than the grace."""
    run.start("--nproc 2 --shutdown-timeout 1", f"*:{PAUSE}")
    ranks = run.wait_event("ready", 2)
    os.kill(ranks[0].pid, signal.SIGSTOP)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    run.nothing_left()


def test_standard_output_closed_by_the_script(run):
    """A rank that closes its own stdout is not dead: it goes on, and ends with 0."""
    run.start(
        "--nproc 2",
        "*:say=last-words,close=1,emit=ready,work=0.3,warn=still-here,close=2,emit=done",
    )

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 2
    assert run.console().count("still-here") == 2


def test_an_agent_without_descriptors_judges_and_ends_its_attempt(run, proc):
    """A rank that dies when nothing more can be opened is named, with the reason."""
    dies = "1:emit=ready,wait=go,die=KILL"
    run.start("--nproc 2 --hang-after off", dies, f"*:{PAUSE}")
    agent = agent_of(run, proc)
    run.wait_event("ready", 2)
    os.kill(agent, signal.SIGUSR1)
    proc.until(lambda: "SIGUSR1" in run.console(), PATIENCE_S, "the start is not over")
    taken = {int(name) for name in os.listdir(f"/proc/{agent}/fd")}
    free = next(number for number in itertools.count() if number not in taken)
    _, hard = resource.prlimit(agent, resource.RLIMIT_NOFILE)
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (free, hard))
    run.emit("go")

    assert run.ended() == 137, run.console()
    (verdict,) = run.run_dir().glob("attempt_0/verdict.json")
    told = json.loads(verdict.read_text())
    assert (told["cause"], told["first_ranks"]) == ("killed", [1]), run.console()
    run.nothing_left()


def test_an_agent_without_descriptors_says_so_when_it_should_restart(run, proc):
    """The next attempt that cannot be prepared ends the run, and the reason is true."""
    fails = "1:emit=ready,wait=ready*2,die=KILL"
    run.start("--nproc 2 --max-restarts 3 --backoff 15", fails, f"*:{PAUSE}")
    agent = agent_of(run, proc)
    proc.until(lambda: "restart 1 in" in run.console(), PATIENCE_S, run.console)
    proc.until(lambda: len(proc.children_of(agent)) == 1, PATIENCE_S, run.processes)
    # It may hold one for a moment, as it looks around.
    looks = [filter(partial(spare, agent), itertools.count()) for _ in range(9)]
    first = min(map(next, looks))
    _, hard = resource.prlimit(agent, resource.RLIMIT_NOFILE)
    # One is left once the agent lets go what it holds: /proc can still be read.
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (first + 1, hard))

    assert run.ended() == 1, run.console()
    wanted = "cannot prepare the attempt, because too many open files .*ulimit -n"
    assert any(re.search(wanted, line) for line in run.said()), run.console()
    assert "a bug in dsup" not in run.console()


def spare(pid, number):
    """Return whether a descriptor of a process is free, or held for bad times."""
    try:
        return number > 2 and os.readlink(f"/proc/{pid}/fd/{number}") == os.devnull
    except FileNotFoundError:
        return True
