"""What a restarted attempt finds, when it begins, and when there is none."""

import json
import re
import signal

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

PAUSE = "emit=ready,hang"


@pytest.mark.torch
@pytest.mark.parametrize(
    "nth", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2))]
)
def test_a_process_group_survives_a_restart(run, proc, nth):
    """B35: a job that called init_process_group works again in the next attempt."""
    gloo = proc.workers / "gloo.py"
    run.start("--nproc 2 --max-restarts 2", "1", script=gloo)

    assert run.ended() == 0, run.console()
    assert {event.attempt for event in run.events("done")} == {1}
    assert [event.total for event in run.events("reduced")] == [1.0] * 4
    run.nothing_left()


@pytest.mark.torch
def test_what_torch_records_of_a_failure_is_kept(run, proc):
    """B23: error.json as torch writes it, the traceback shown, the rank named."""
    run.start("--nproc 1 --max-restarts 0", script=proc.workers / "recorded.py")

    assert run.ended() == 1, run.console()
    (error,) = run.logs.glob("*/attempt_0/0/error.json")
    assert "bad batch 17" in json.loads(error.read_text())["message"]["message"]
    assert "ValueError: bad batch 17" in run.console()
    assert "\nRank 0 raised ValueError: bad batch 17" in run.console()


def test_what_the_next_attempt_is_told(run):
    """The count goes up by one, the port is another, the run stays the same."""
    run.start(
        "--nproc 2 --max-restarts 2", "1@0:env,exit=3", "1@1:env,die=KILL", "*:env"
    )

    assert run.ended() == 0, run.console()
    envs = [event.env for event in run.events("env") if event.rank == 1]
    counts = [env["TORCHELASTIC_RESTART_COUNT"] for env in envs]
    assert counts == [env["DSUP_ATTEMPT"] for env in envs] == ["0", "1", "2"]
    assert len({env["MASTER_PORT"] for env in envs}) == 3
    assert len({env["TORCHELASTIC_ERROR_FILE"] for env in envs}) == 3
    assert len({env["DSUP_RUN_DIR"] for env in envs}) == 1
    assert {env["TORCHELASTIC_MAX_RESTARTS"] for env in envs} == {"2"}
    names = sorted(path.name for path in run.run_dir().glob("attempt_*"))
    assert names == ["attempt_0", "attempt_1", "attempt_2"]


def test_a_fixed_port_is_kept(run, free_port):
    """--master-port P stays P in every attempt."""
    port = free_port()
    options = f"--nproc 2 --max-restarts 1 --master-port {port}"
    run.start(options, "1@0:exit=3", "*:env")

    assert run.ended() == 0, run.console()
    ports = {event.env["MASTER_PORT"] for event in run.events("env")}
    assert ports == {str(port)}


def test_the_pause_counts_from_the_first_death(run):
    """Time spent on ending the other ranks is part of the pause, not added to it."""
    run.start(
        "--nproc 2 --max-restarts 1 --backoff 1.5 --shutdown-timeout 1",
        "1@0:emit=ready,wait=ready*2,emit=failed,die=KILL",
        f"*@0:ignore=TERM,{PAUSE}",
        "*:emit=again",
    )

    assert run.ended() == 0, run.console()
    assert planned(run) == [1.5]
    assert all(pause_s >= 1.5 for pause_s in pauses(run))


def planned(run):
    """Return the pause after each attempt as the agent planned it, seconds."""
    firsts = {one.attempt: one.at_s for one in reversed(run.journal("rank_exited"))}
    plans = run.journal("propose")
    return [round(one.restart_at_s - firsts[one.attempt], 3) for one in plans]


def pauses(run):
    """Return how long each pause was: from a first death to a first start, seconds."""
    ends = {one.attempt: one.at_s for one in reversed(run.journal("rank_exited"))}
    starts = {one.attempt: one.at_s for one in reversed(run.journal("rank_started"))}
    return [starts[number + 1] - ends[number] for number in range(len(starts) - 1)]


def test_pauses_grow_and_the_last_one_repeats(run):
    """--backoff 0.1,0.3: the first pause is short, all later ones are the last."""
    run.start(
        "--nproc 1 --max-restarts 3 --backoff 0.1,0.3",
        *(f"0@{attempt}:exit=3" for attempt in range(3)),
        "*:emit=done",
    )

    assert run.ended() == 0, run.console()
    assert planned(run) == [0.1, 0.3, 0.3]
    kept = zip(pauses(run), planned(run), strict=True)
    assert all(pause_s >= planned_s for pause_s, planned_s in kept)


def test_the_first_pause_is_ten_seconds_by_default(run, proc):
    """B32: without --backoff, the second attempt begins 10 s after the death."""
    run.start("--nproc 1 --max-restarts 1", "0@0:exit=3", f"*:{PAUSE}", fast=False)
    proc.until(lambda: any("restart 1 in " in s for s in run.said()), 600, run.said)

    assert planned(run) == [10.0]
    run.signal(signal.SIGTERM)
    assert run.ended() == 143, run.console()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130)],
    ids=["TERM", "INT"],
)
def test_a_stop_during_the_pause(run, proc, number, code):
    """A stop ends the pause at once; no further attempt begins."""
    run.start(
        "--nproc 2 --max-restarts 3 --backoff 600",
        *("1@0:exit=3", "*@0:", "*:emit=again"),
    )
    proc.until(lambda: any("restart 1 in" in s for s in run.said()), 600, run.console)
    run.signal(number)

    assert run.ended() == code, run.console()
    assert not run.events("again")
    run.nothing_left()


def test_no_restart_without_anything_to_resume_from(run):
    """No --max-restarts, no checkpoints: one attempt, and one line says why."""
    run.start("--nproc 2", "1:emit=tried,die=KILL", "*:")

    assert run.ended() == 137, run.console()
    assert len(run.events("tried")) == 1
    told = [line for line in run.said() if "checkpoint" in line]
    assert len(told) == 1, run.console()


def test_unlimited_by_cause_if_restarts_are_given(run):
    """With a given N every failed attempt is restarted, the same failure, too."""
    run.start("--nproc 1 --max-restarts 2", "0:emit=tried,exit=3")

    assert run.ended() == 3, run.console()
    assert len(run.events("tried")) == 3


def test_zero_restarts_are_zero(run):
    """--max-restarts 0 is obeyed although a checkpoint location is known."""
    run.start(
        f"--nproc 1 --max-restarts 0 --checkpoint-dir {run.files}",
        "0:emit=tried,die=KILL",
    )

    assert run.ended() == 137, run.console()
    assert len(run.events("tried")) == 1


@pytest.mark.parametrize(
    ("options", "failure", "attempts", "code"),
    [
        pytest.param("", "die=KILL", 4, 1, id="a signal: three more, then it repeats"),
        pytest.param("", "exit=3", 1, 3, id="the script's own failure: none"),
        pytest.param("--restart-on user", "exit=3", 4, 3, id="unless asked for"),
    ],
)
def test_dsup_chooses_by_cause(run, options, failure, attempts, code):
    """With a checkpoint location, restarts are for what another try may cure."""
    run.start(
        f"--nproc 1 --checkpoint-dir {run.files}/ckpt {options}",
        f"0:emit=tried,{failure}",
    )

    assert run.ended() == code, run.console()
    assert len(run.events("tried")) == attempts


def test_a_user_failure_after_progress(run, proc):
    """A failure of the script is retried after a new checkpoint, if it's a new one."""
    root = run.files / "ckpt"
    run.start(
        f"--nproc 1 --checkpoint-dir {root}",
        *(str(root), "3", "quit=3"),
        script=proc.workers / "steps.py",
    )

    assert run.ended() == 3, run.console()
    assert len(run.events("resumed")) == 2


def test_the_newest_checkpoint_is_handed_on(run, proc):
    """DSUP_RESUME_FROM is empty at first, then what the last attempt published."""
    root = run.files / "ckpt"
    run.start(
        f"--nproc 2 --max-restarts 5 --checkpoint-dir {root}",
        *(str(root), "2", "die=KILL"),
        script=proc.workers / "steps.py",
    )

    assert run.ended() == 0, run.console()
    paths = [event.path for event in run.events("resumed") if event.rank == 0]
    assert paths[0] == ""
    assert [re.search(r"\d+$", path) is not None for path in paths[1:]] == [True, True]
    assert paths[1] < paths[2]


def test_an_unmodified_script_resumes_by_argument(run, proc):
    """--resume-arg adds the newest checkpoint to the arguments, once there is one."""
    root = run.files / "out"
    make = f"mkdir -p {root}/step-$1; echo x > {root}/step-$1/model.bin"
    fail = '[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && exit 3; exit 0'
    run.start(
        "--nproc 1 --no-python --max-restarts 1 --resume-arg --resume={path} "
        f"--checkpoint-glob '{root}/step-*' --backoff 1",
        *("-c", f'echo "args: $@"; {make}; {fail}', "sh", "7"),
        script="sh",
    )

    assert run.ended() == 0, run.console()
    told = re.findall("^args: (.*)", run.console(), re.MULTILINE)
    assert told == ["7", f"7 --resume={root}/step-7"]
