"""A stop that ranks come to by themselves: all at the same check, and no signal."""

import json
import os
import signal

import pytest

QUICK = "--shutdown-timeout 6"
DRAWN = 5


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(
    ("number", "end"),
    [
        pytest.param(signal.SIGTERM, (143, "preempt"), id="TERM"),
        pytest.param(signal.SIGINT, (130, "user"), id="INT"),
    ],
)
def test_a_stop_is_the_same_check_for_every_rank(run, parked, ranks, number, end):
    """SIGTERM to dsup: all leave at one check, with its reason; none is signalled."""
    parked.start(run, f"--nproc {ranks} --shutdown-timeout 600", "*:")
    run.wait_event("ready", ranks)
    run.signal(number)

    code = run.ended()
    told = parked.left_together(run, ranks)
    assert (code, told.kind) == end
    assert (told.of, told.reason) == (-1, number.name)
    assert 0 < told.left_s <= 300
    assert run.events("got-TERM") == []
    assert parked.journal(run, "signal_ranks") == []
    assert any("stopping at the next step" in line for line in run.said())
    run.nothing_left()


def test_ctrl_c_of_a_terminal_parks_too(run, parked):
    """The ranks are in sessions of their own: Ctrl-C is dsup's to pass on, or not."""
    parked.start(run, "--nproc 2", "*:")
    run.wait_event("ready", 2)
    os.killpg(run.process.pid, signal.SIGINT)

    assert run.ended() == 130, run.console()
    parked.left_together(run, 2)
    assert run.events("got-TERM") == []


def test_a_rank_that_does_not_come_gets_sigterm_at_half_the_grace(run, parked):
    """The page's deadline comes out of the grace: half of it, then SIGTERM."""
    parked.start(run, f"--nproc 2 {QUICK}", "0:deaf=3", "1:deaf=3")
    run.wait_event("ready", 2)
    begun_s = run.elapsed_s()
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    assert run.elapsed_s() - begun_s > 2.9
    assert len(run.events("got-TERM")) == 2
    assert any("did not stop by themselves within 3 s" in line for line in run.said())
    run.nothing_left()


@pytest.mark.parametrize(
    "clauses",
    [
        pytest.param(("0:", "1:plain"), id="without the runtime"),
        pytest.param(("0:", "1:late=600"), id="not in its loop yet"),
    ],
)
def test_one_rank_that_does_not_stop_itself_means_signals(run, parked, clauses):
    """A stop while one rank is not at its loop goes to all as a signal, at once."""
    parked.start(run, "--nproc 2 --shutdown-timeout 600", *clauses)
    run.wait_event("here", 2)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    assert len(run.events("got-TERM")) == 2
    assert parked.journal(run, "freeze_page") == []


def later(run, proc, number):
    """Send a signal that counts as another one: they must be a second apart."""
    proc.until(lambda: run.journal("signalled"), 600, run.console)
    end_s = run.elapsed_s() + 1.1
    proc.until(lambda: run.elapsed_s() > end_s, 600, "the clock stands")
    run.signal(number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "signals"),
    [
        pytest.param(signal.SIGTERM, 2, id="a second TERM is passed on"),
        pytest.param(signal.SIGINT, 0, id="a second INT kills"),
    ],
)
def test_a_second_stop_ends_the_waiting(run, parked, proc, number, signals):
    """Whoever asks twice does not want to wait for a step."""
    parked.start(run, "--nproc 2 --shutdown-timeout 600", "*:deaf=3")
    run.wait_event("ready", 2)
    run.signal(signal.SIGTERM)
    later(run, proc, number)

    assert run.ended() == 143, run.console()
    assert len(run.events("got-TERM")) == signals
    run.nothing_left()


def test_a_death_on_the_way_to_the_stop_is_judged(run, parked, proc):
    """A rank that is killed while parked ends the waiting; the stop keeps its code."""
    options = "--nproc 2 --max-restarts 2 --shutdown-timeout 600"
    parked.start(run, options, "0:", "1:deaf=3")
    (deaf,) = (one for one in run.wait_event("ready", 2) if one.rank == 1)
    run.signal(signal.SIGTERM)
    proc.until(lambda: run.journal("freeze_page"), 600, run.console)
    os.kill(deaf.pid, signal.SIGKILL)

    assert run.ended() == 143, run.console()
    verdict = json.loads((run.run_dir() / "attempt_0/verdict.json").read_text())
    assert verdict["first_ranks"] == [1], run.console() + json.dumps(verdict)
    assert len(parked.journal(run, "spawn")) == 1


@pytest.mark.slow
def test_drawn_stops_end_at_one_check_each(new_run, parked, proc):
    """Whenever the stop comes, all ranks leave at the same check, unsignalled."""
    for seed in range(DRAWN):
        ranks, step_s, delay_s = parked.drawn(seed)
        run = new_run()
        parked.start(run, f"--nproc {ranks}", f"*:step={step_s}")
        run.wait_event("ready", ranks)
        end_s = run.elapsed_s() + delay_s
        proc.until(lambda r=run, e=end_s: r.elapsed_s() > e, 600, "the clock stands")
        run.signal(signal.SIGTERM)

        assert run.ended() == 143, f"seed {seed}: {run.console()}"
        parked.left_together(run, ranks)
        assert run.events("got-TERM") == [], seed


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("", id="no process group"),
        pytest.param("gloo", id="gloo", marks=[pytest.mark.torch, pytest.mark.slow]),
    ],
)
def test_ranks_of_the_runtime_stop_by_themselves(run, parked, how):
    """dsup_runtime's should_stop and the agent keep to the same protocol."""
    words = ["-", how] if how else ["-"]
    parked.start(run, "--nproc 2", *words, worker="should_stop.py")
    run.wait_event("ready", 2)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    told = parked.left_together(run, 2)
    assert (told.kind, told.of, told.reason) == ("preempt", -1, "SIGTERM")
    assert len({event.step for event in run.events("left")}) == 1
    assert parked.journal(run, "signal_ranks") == []


def test_a_rank_that_left_as_asked_is_no_suspect(run, parked):
    """Of two that end in a stop, the one with another code than 143 is named."""
    parked.start(run, "--nproc 2", "0:", "1:leave=3")
    run.wait_event("ready", 2)
    run.signal(signal.SIGTERM)

    assert run.ended() == 143, run.console()
    verdict = json.loads((run.run_dir() / "attempt_0/verdict.json").read_text())
    assert verdict["first_ranks"] == [1], run.console() + json.dumps(verdict)
    assert verdict["ended_by_dsup"] == [0]
