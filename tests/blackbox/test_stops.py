"""A stop ends the run in order, in time, and with a code that says who asked."""

import os
import re
import signal

import pytest

PAUSE = "emit=ready,hang"


@pytest.mark.dsup_only
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, 143, id="B36 TERM"),
        pytest.param(signal.SIGINT, 130, id="B37 INT"),
        pytest.param(signal.SIGHUP, 129, id="B37 HUP"),
        pytest.param(signal.SIGQUIT, 131, id="B37 QUIT"),
    ],
)
@pytest.mark.parametrize("handled", [False, True], ids=["by default", "handled"])
def test_a_stop_reaches_the_ranks_as_the_signal_it_was(run, number, code, handled):
    """Ranks get the signal that dsup got; the code is 128+n, also if all end with 0."""
    name = signal.Signals(number).name[3:]
    acts = f"*:trap={name}/0,{PAUSE}" if handled else f"*:default={name},{PAUSE}"
    run.start("--nproc 2", acts)
    run.wait_event("ready", 2)
    run.signal(number)

    assert run.ended() == code, run.console()
    assert len(run.events(f"got-{name}")) == (2 if handled else 0)
    assert len(run.events("saved")) == (2 if handled else 0)
    run.nothing_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_ranks_that_handle_nothing(run, number):
    """B36: ranks that do nothing of their own end at once: no grace is waited for."""
    run.start("--nproc-per-node 2 --shutdown-timeout 600", f"*:{PAUSE}")
    run.wait_event("ready", 2)
    run.signal(number)

    run.ended()
    run.nothing_left()


@pytest.mark.dsup_only
def test_no_restart_after_a_stop(run):
    """A stop is a wish, not a failure: restarts that are left are not used."""
    run.start("--nproc 2 --max-restarts 3", f"*:trap=TERM/5,{PAUSE}")
    run.wait_event("ready", 2)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    assert len(run.events("ready")) == 2


@pytest.mark.dsup_only
def test_usr1_goes_to_ranks_that_catch_it(run):
    """B38: USR1 and USR2 reach ranks with a handler, no others, and the run goes on."""
    run.start(
        "--nproc 2",
        "0:note=USR1,note=USR2,emit=ready,wait=got-USR2,emit=seen,wait=go",
        "1:emit=ready,wait=seen,work=0.2,emit=go",
    )
    run.wait_event("ready", 2)
    run.signal(signal.SIGUSR1)
    run.wait_event("got-USR1")
    run.signal(signal.SIGUSR2)

    assert run.ended() == 0, run.console()
    assert any("USR1" in line and "rank 1" in line for line in run.said())


@pytest.mark.dsup_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV])
def test_no_rank_outlives_dsup(run, proc, number):
    """B40: dsup ends by a signal that it can't handle; all goes with it."""
    run.start("--nproc 2", f"*:helper=setsid,helper=clear,ignore=TERM,{PAUSE}")
    run.wait_event("ready", 2)
    run.signal(number)

    assert run.ended() == 128 + number
    proc.until(lambda: not run.processes(), 600, run.processes)


@pytest.mark.dsup_only
def test_the_grace_is_the_one_given(run):
    """B41: ranks that ignore TERM are killed at the end of --shutdown-timeout."""
    run.start("--nproc 2 --shutdown-timeout 1", f"*:ignore=TERM,{PAUSE}")
    run.wait_event("ready", 2)
    begun_s = run.elapsed_s()
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    assert run.elapsed_s() - begun_s > 0.9
    assert any("SIGKILL after 1 s" in line for line in run.said())
    run.nothing_left()


@pytest.mark.dsup_only
def test_the_grace_is_25_s_by_default(run):
    """B41: schedulers kill after 30 s; dsup's own end comes before that."""
    run.start("--nproc 1", f"*:{PAUSE}", fast=False)
    run.wait_event("ready")
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    assert any("SIGKILL after 25 s" in line for line in run.said()), run.console()


@pytest.mark.dsup_only
def test_half_the_grace_for_the_signal_then_term(run):
    """A rank that ignores INT gets TERM at half the grace, not KILL."""
    run.start("--nproc 1 --shutdown-timeout 6", f"*:ignore=INT,trap=TERM/0,{PAUSE}")
    run.wait_event("ready")
    run.signal(signal.SIGINT)

    assert run.ended() == 130, run.console()
    assert len(run.events("saved")) == 1
    asked, half = run.journal("signalled", "tick")
    assert half.at_s - asked.at_s > 2.9


@pytest.mark.dsup_only
def test_ctrl_c_of_a_terminal_counts_once(run):
    """A terminal signals guard and agent alike; ranks still have their grace."""
    run.start("--nproc 2", f"*:trap=INT/0/0.5,{PAUSE}")
    run.wait_event("ready", 2)
    os.killpg(run.process.pid, signal.SIGINT)

    assert run.ended() == 130, run.console()
    assert len(run.events("got-INT")) == 2
    assert len(run.events("saved")) == 2


def later(run, proc, number, nth=2):
    """Send a signal that counts as another one: they must be a second apart."""
    proc.until(lambda: len(run.journal("signalled")) == nth - 1, 600, run.console)
    end_s = run.elapsed_s() + 1.1
    proc.until(lambda: run.elapsed_s() > end_s, 600, "the clock stands")
    run.signal(number)


@pytest.mark.dsup_only
@pytest.mark.slow
def test_a_second_ctrl_c_kills_now(run, proc):
    """B43: whoever presses Ctrl-C again does not want to wait."""
    run.start("--nproc 2 --shutdown-timeout 600", f"*:ignore=INT,ignore=TERM,{PAUSE}")
    run.wait_event("ready", 2)
    run.signal(signal.SIGINT)
    later(run, proc, signal.SIGINT)

    assert run.ended() == 130, run.console()
    run.nothing_left()


@pytest.mark.dsup_only
@pytest.mark.slow
def test_a_second_term_leaves_five_seconds(run, proc):
    """B43: a second TERM shortens the grace to 5 s, whatever it was."""
    run.start("--nproc 2 --shutdown-timeout 600", f"*:ignore=TERM,{PAUSE}")
    run.wait_event("ready", 2)
    run.signal(signal.SIGTERM)
    later(run, proc, signal.SIGTERM)

    assert run.ended() == 143, run.console()
    _, second = run.journal("signalled")
    (ended, *_) = run.journal("rank_exited")
    assert ended.at_s - second.at_s > 4.9


@pytest.mark.dsup_only
@pytest.mark.slow
def test_a_third_term_kills(run, proc):
    """B43: a third TERM ends everything at once, and leaves no orphans."""
    run.start(
        "--nproc 2 --shutdown-timeout 600", f"*:helper=setsid,ignore=TERM,{PAUSE}"
    )
    run.wait_event("ready", 2)
    run.signal(signal.SIGTERM)
    later(run, proc, signal.SIGTERM)
    later(run, proc, signal.SIGTERM, nth=3)

    assert run.ended() == 143, run.console()
    run.nothing_left()


@pytest.mark.dsup_only
def test_ranks_that_end_well_when_stopped(run):
    """B44: ranks trap TERM and exit 0; the run was still stopped: 143."""
    run.start("--nproc 2", f"*:trap=TERM/0/0.2,{PAUSE}")
    run.wait_event("ready", 2)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    assert len(run.events("saved")) == 2


@pytest.mark.dsup_only
def test_nohup_is_respected(run, proc):
    """B45: SIGHUP that was ignored at the start stays ignored."""
    run.start("--nproc 1", "*:emit=ready,wait=go", wrap=["nohup"])
    run.wait_event("ready")
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGUSR1)
    proc.until(lambda: any("USR1" in line for line in run.said()), 600, run.console)
    run.emit("go")

    assert run.ended() == 0, run.console()


@pytest.mark.dsup_only
def test_signals_are_for_ranks_not_for_their_helpers(run, proc):
    """A DataLoader's workers must live until the rank has saved."""
    loop = "while :; do sleep 0.05; done"
    helper = ["sh", "-c", f'trap "echo helper-got-TERM" TERM; {loop}']
    script = run.files / "parent.py"
    script.write_text(
        "import select, signal, subprocess, sys\n"
        f"child = subprocess.Popen({helper!r})\n"
        "def save(*_):\n"
        "    select.select([], [], [], 0.3)\n"
        "    print('saved', child.poll(), flush=True)\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('parent-ready', flush=True)\n"
        "while True: signal.sigtimedwait([], 5)\n"
    )
    run.start("--nproc 1", script=script)
    proc.until(lambda: "parent-ready" in run.console(), 600, run.console)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    assert "saved None" in run.console()
    assert "helper-got-TERM" not in run.console()
    run.nothing_left()


@pytest.mark.dsup_only
@pytest.mark.parametrize(
    ("helper", "then", "grace_s"),
    [
        pytest.param("setsid", "work=0.1", 600, id="B47 one that ends on TERM"),
        pytest.param("stubborn", "wait=deaf", 1, id="B47 one that doesn't is killed"),
    ],
)
def test_helpers_left_after_success(run, helper, then, grace_s):
    """B47: helpers alive after success get TERM and the grace, and are named."""
    run.start(
        f"--nproc 1 --shutdown-timeout {grace_s}",
        f"*:helper={helper},{then},emit=done",
    )

    assert run.ended() == 0, run.console()
    killed = any("did not end: SIGKILL" in line for line in run.said())
    assert killed is (helper == "stubborn"), run.console()
    assert any("sleep" in line or "sh" in line for line in run.said()), run.console()
    run.nothing_left()


@pytest.mark.dsup_only
def test_helpers_may_be_kept(run):
    """B47: --keep-helpers leaves what a rank started, and says nothing of it."""
    run.start("--nproc 1 --keep-helpers", "*:helper=setsid")

    assert run.ended() == 0, run.console()
    assert ["sleep" in line for _, line in run.processes()] == [True]


@pytest.mark.dsup_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_at_any_moment_of_the_start(run, proc, number):
    """Once there is an agent a stop ends the run with its code, without a trace."""
    run.start("--nproc 4", f"*:{PAUSE}")
    proc.until(lambda: proc.children_of(run.process.pid), 600, run.console)
    run.signal(number)

    assert run.ended() == 128 + number, run.console()
    assert not re.search(r'/dsup/(\w+/)?\w+\.py"', run.console()), run.console()
    run.nothing_left()
