"""What the console says: exact lines for a person at two in the morning."""

import pytest

from dsup.report import console, sentences

KILL, INT, TERM = 9, 2, 15


@pytest.fixture
def running(new_story, events):
    """Give ``running(job)``: a story in which every rank has started."""

    def story(job):
        told = new_story(job).tell(events.launched).tell(events.prepared())
        for rank in range(job.spec.world_size):
            told.tell(events.started(rank))
        return told

    return story


@pytest.fixture
def failed(running, events, job):
    """Give a story in which rank 1 was killed at 5 s and the others went with it."""
    told = running(job).tell(events.exited(5.0, 1, -KILL))
    for rank in (0, 2, 3):
        told.tell(events.exited(5.1, rank, -TERM))
    told.tell(events.group_empty(5.2)).tell(events.group_empty(5.2))
    return told.tell(events.judged(5.3)).tell(events.scanned(5.5))


# The start


def test_the_start_says_what_runs_and_where_logs_are(new_story, events, job):
    """The first line names the script, the ranks and the run directory."""
    story = new_story(job).tell(events.launched).tell(events.prepared())

    assert story.said == "4 ranks of train; logs in /runs/r1"


def test_the_start_says_that_there_will_be_no_logs(new_story, events, job):
    """Ranks that have the terminal itself leave nothing to read afterwards."""
    inherited = job._replace(output=job.output._replace(inherit=True))
    story = new_story(inherited).tell(events.launched).tell(events.prepared())

    assert story.said == (
        "4 ranks of train; on these streams themselves, so without logs; journal in "
        "/runs/r1"
    )


def test_the_start_names_the_checkpoint(new_story, events, job):
    """A run that resumes says from where."""
    story = new_story(job).tell(events.launched)
    story.resume_from = "/ckpt/step_7"
    story.tell(events.prepared())

    assert story.said == (
        "4 ranks of train, resuming from /ckpt/step_7; logs in /runs/r1"
    )


def test_the_start_says_that_threads_are_limited(new_story, events, job):
    """A user who did not set OMP_NUM_THREADS is told that dsup did."""
    story = new_story(job._replace(environment={})).tell(events.launched)
    story.tell(events.prepared())

    assert story.said.endswith("; OMP_NUM_THREADS=1 as torchrun sets it")


def test_one_rank_keeps_its_threads_and_its_singular(new_story, events, job):
    """One rank is one rank, and nothing is set for it."""
    alone = job._replace(environment={}, spec=job.spec._replace(world_size=1))
    story = new_story(alone).tell(events.launched).tell(events.prepared())

    assert story.said == "1 rank of train; logs in /runs/r1"


def test_what_cannot_start_says_why(new_story, events, job):
    """The reason is said as it was found."""
    reason = "cannot start nosuch, because no such file or directory"
    story = new_story(job).tell(events.launched)
    story.tell(events.cannot("spawn_error", 127, reason))

    assert story.said == reason


# The first death


def test_a_decisive_death_names_rank_pid_and_signal(running, events, job):
    """The first line after a death says who, how, and what is done about it."""
    story = running(job).tell(events.exited(5.0, 1, -KILL))

    assert story.said == (
        "rank 1 (pid 4001) was killed by SIGKILL, the first to fail; "
        "ending ranks 0, 2-3"
    )


def test_a_doubtful_death_says_that_others_are_listened_to(running, events, job):
    """While settling, the line says for how long nothing will be done."""
    story = running(job).tell(events.exited(5.0, 1, 3))

    assert story.said == (
        "rank 1 (pid 4001) ended with exit code 3, the first to fail; "
        "listening to ranks 0, 2-3 for up to 2 s before ending the run"
    )

    assert story.tell(events.tick(7.0)).said == "ending ranks 0, 2-3"


def test_without_settling_nobody_is_said_to_be_listened_to(running, events, job):
    """With ``--settle 0`` the ranks are ended by the tick that follows."""
    story = running(job._replace(spec=job.spec._replace(settle_s=0.0)))
    story.tell(events.exited(5.0, 1, 3))

    assert story.said == "rank 1 (pid 4001) ended with exit code 3, the first to fail"
    assert story.tell(events.tick(5.0)).said == "ending ranks 0, 2-3"


def test_a_death_of_the_last_rank_ends_nobody(running, events, job):
    """Where nobody else is alive nobody is ended."""
    story = running(job)
    for rank in (0, 2, 3):
        story.tell(events.exited(4.0, rank, 0))
    story.tell(events.exited(5.0, 1, 3))

    assert story.said == (
        "rank 1 (pid 4001) ended with exit code 3, the first to fail "
        "(ranks 0, 2-3 had ended with 0 before)"
    )


def test_a_decisive_death_among_the_listened_to_is_told(running, events, job):
    """It ends the listening, and the attempt began with it."""
    story = running(job).tell(events.exited(5.0, 1, 1))

    assert story.tell(events.exited(5.1, 2, -KILL)).said == (
        "rank 2 (pid 4002) was killed by SIGKILL; ending ranks 0, 3"
    )


@pytest.mark.parametrize("status", [1, -KILL])
def test_a_last_death_among_the_listened_to_ends_nobody(running, events, job, status):
    """Where nobody is left to be ended, nobody is said to be."""
    story = running(job).tell(events.exited(5.0, 1, 1))
    for rank in (0, 2):
        story.tell(events.exited(5.1, rank, 1))

    assert story.tell(events.exited(5.2, 3, status)).said == ""


def test_helpers_of_a_failure_that_are_killed_are_told(running, events, job):
    """Whoever started a server in a rank finds out what ended it."""
    story = running(job).tell(events.exited(5.0, 1, -KILL))
    for rank in (0, 2, 3):
        story.tell(events.exited(5.1, rank, -TERM))

    assert story.tell(events.tick(6.1)).said == (
        "what the ranks left behind did not end: SIGKILL"
    )


def test_deaths_after_the_first_are_not_told(running, events, job):
    """Victims do not scroll the first death away."""
    story = running(job).tell(events.exited(5.0, 1, -KILL))

    assert story.tell(events.exited(5.1, 0, -TERM)).said == ""


# The plan


def test_a_restart_says_who_when_and_why(failed, events):
    """The pause is told as what is left of it."""
    failed.tell(events.agreed(5.6, 15.0, 0, "--max-restarts is not used up"))

    assert failed.said == "restart 1 in 9 s: --max-restarts is not used up"


def test_a_restart_says_where_it_resumes_and_what_is_lost(running, events, job):
    """Steps after the newest checkpoint are done again."""
    told = running(job).tell(events.progressed(7)).tell(events.exited(5.0, 1, -KILL))
    for rank in (0, 2, 3):
        told.tell(events.exited(5.1, rank, -TERM))
    told.tell(events.group_empty(5.2)).tell(events.group_empty(5.2))
    told.tell(events.judged(5.3)).tell(events.scanned(5.5, step=5))
    told.tell(events.agreed(5.6, 15.0, 0, "why"))

    assert told.said == "restart 1 in 9 s, from step 5 (2 steps are done again): why"


def test_a_restart_without_a_pause_is_now(failed, events):
    """A pause that is over is not counted in negative seconds."""
    failed.tell(events.agreed(5.6, 5.0, 0, "why"))

    assert failed.said.endswith("restart 1 now: why")


def test_giving_up_names_code_reason_and_run(failed, events):
    """The last line says where everything of the run is."""
    failed.tell(events.agreed(5.6, None, 137, "--max-restarts is used up"))

    assert failed.said == (
        "given up with exit code 137: --max-restarts is used up; see /runs/r1"
    )


def test_nodes_that_do_not_agree_are_told(failed, events):
    """A run that ends for want of an agreement says so."""
    failed.tell(events.tick(65.5))

    expected = "given up with exit code 195: the nodes did not agree"
    assert failed.said.startswith(expected)


def test_an_attempt_without_ranks_could_not_start(new_story, events, job):
    """Where no rank ran, none is named."""
    story = new_story(job).tell(events.launched)
    story.tell(events.cannot("spawn_error", 127, "cannot start it"))
    story.tell(events.group_empty(2.0)).tell(events.judged(2.1))
    story.tell(events.scanned(2.1))
    story.tell(events.agreed(2.2, None, 127, "the program can not be started"))

    assert story.said == (
        "given up with exit code 127: the program can not be started; see /runs/r1"
    )


# The end


def test_a_stopped_run_ends_with_its_code_and_its_logs(running, events, job):
    """The last line of a stop says what the shell will see, and where to look."""
    story = running(job).tell(events.signalled(5.0, TERM))
    for rank in range(4):
        story.tell(events.exited(5.5, rank, 0))
    story.tell(events.group_empty(5.6)).tell(events.group_empty(5.6))

    assert story.said == "stopped by SIGTERM, exit code 143; logs in /runs/r1"


def test_a_start_from_the_beginning_is_told(new_story, events, job):
    """Where checkpoints were expected and none was found, nobody is left to guess."""
    story = new_story(job._replace(checkpoint_dir="/ckpt")).tell(events.launched)

    assert ", from the beginning: no checkpoint in /ckpt; " in (
        story.tell(events.prepared()).said
    )


def test_a_stop_says_who_got_it_and_how_long_they_have(running, events, job):
    """The line names the signal, the ranks and the grace."""
    story = running(job).tell(events.signalled(5.0, TERM))

    assert story.said == "SIGTERM: passed on to ranks 0-3, SIGKILL after 25 s"


def test_a_second_stop_says_what_is_left(running, events, job):
    """An impatient user sees that it was noticed."""
    story = running(job).tell(events.signalled(5.0, TERM))
    story.tell(events.signalled(7.0, TERM))
    assert story.said == "SIGTERM again: SIGKILL in 5 s"

    story.tell(events.tick(12.0))

    assert story.said == "ranks 0-3 did not end in time: SIGKILL"


def test_a_second_ctrl_c_kills(running, events, job):
    """The second Ctrl-C says that it does not wait."""
    story = running(job).tell(events.signalled(5.0, INT))
    story.tell(events.signalled(7.0, INT))

    assert story.said == "SIGINT again: killing what is left"


def test_a_signal_that_did_not_count_is_not_told(running, events, job):
    """What counts once is said once."""
    story = running(job).tell(events.signalled(5.0, INT))

    assert story.tell(events.signalled(5.5, INT)).said == ""


def test_a_stop_in_the_pause_stops(failed, events):
    """The last line says by what, with which code, and where the logs are."""
    failed.tell(events.agreed(5.6, 15.0, 137, "up to 3 restarts in a row"))

    assert failed.tell(events.signalled(6.0, TERM)).said == (
        "stopped by SIGTERM, exit code 143; logs in /runs/r1"
    )


def test_a_stop_before_the_ranks_stops(new_story, events, job):
    """A stop while preparing is said too."""
    story = new_story(job).tell(events.launched)

    assert story.tell(events.signalled(0.5, INT)).said == "SIGINT: stopping"


@pytest.mark.parametrize(
    ("left", "said"),
    [
        pytest.param((("sh (7)",), 1), "sh (7)", id="one"),
        pytest.param((("sh (7)", "cat (8)"), 2), "sh (7), cat (8)", id="two"),
        pytest.param((("sh (7)",), 30), "sh (7) and others", id="more than are named"),
    ],
)
def test_helpers_are_named(running, events, job, left, said):
    """Who outlives a success is named, with the way to spare it."""
    story = running(job)
    for rank in range(4):
        story.tell(events.exited(5.0, rank, 0))
    story.tell(events.helpers_left(*left))

    assert story.said == (
        f"every rank ended with 0, but processes they started live on: {said}; "
        "SIGTERM now, SIGKILL after 25 s (--keep-helpers spares them)"
    )

    story.tell(events.tick(30.0))

    assert story.said == "what the ranks left behind did not end: SIGKILL"


def test_what_cannot_be_killed_is_named(running, events, job):
    """The line names the stuck rank and what an operator does next."""
    story = running(job).tell(events.exited(5.0, 1, -KILL))
    story.tell(events.exited(5.1, 0, -TERM)).tell(events.exited(5.1, 2, -TERM))
    assert story.tell(events.tick(30.0)).said == "rank 3 did not end in time: SIGKILL"

    story.tell(events.tick(35.0))

    assert story.said == (
        "cannot end rank 3 (pid 4003), because a process does not end even after "
        "SIGKILL: in state D the node is unfit (look at /proc/PID/stack and the "
        "kernel log, then reboot it); one that has become another user's must be ended "
        "by that user"
    )


def test_a_stuck_helper_has_no_rank(running, events, job):
    """What is no rank is called a process of the ranks."""
    story = running(job)
    for rank in range(4):
        story.tell(events.exited(5.0, rank, 0))
    story.tell(events.tick(30.0)).tell(events.tick(35.0))

    assert story.said.startswith("cannot end a process of the ranks, because")


def test_a_preparation_that_takes_too_long_is_told(new_story, events, job):
    """A preparation that hangs says which attempt it was."""
    story = new_story(job).tell(events.launched).tell(events.tick(60.0))

    assert story.said == "the preparation of attempt 0 did not end in time"


def test_a_lost_guard_is_told(running, events, job):
    """Whoever killed the guard finds out what followed."""
    story = running(job).tell(events.guard_lost)

    assert story.said == "the guard has gone: killing what is left"


def test_a_long_stall_is_told_and_a_short_one_is_not(running, events, job):
    """A stopped agent says that limits start again; a busy node is no news."""
    story = running(job)
    assert story.tell(events.stalled(1.5)).said == ""

    story.tell(events.stalled(20.0))

    assert story.said == (
        "the agent did not run for 20.0 s (stopped, starved or suspended): "
        "limits start again"
    )


# Words


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        pytest.param([1], "rank 1", id="one"),
        pytest.param([0, 1], "ranks 0-1", id="two neighbours"),
        pytest.param([0, 2], "ranks 0, 2", id="two apart"),
        pytest.param([5, 2, 1, 0], "ranks 0-2, 5", id="in any order"),
        pytest.param(range(64), "ranks 0-63", id="all"),
    ],
)
def test_ranks_are_told_as_spans(numbers, text):
    """Sixty-four ranks fit on the line."""
    assert sentences.ranks(numbers) == text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-9, "was killed by SIGKILL"),
        (-34, "was killed by signal 34"),
    ],
)
def test_how_a_rank_ended(status, text):
    """An exit code and a signal are not mixed up."""
    assert console.how(status) == text


def test_a_name_cannot_forge_a_line(running, events, job):
    """A helper that calls itself a report moves no cursor and begins no line."""
    story = running(job)
    for rank in range(4):
        story.tell(events.exited(5.0, rank, 0))
    story.tell(events.helpers_left(("a\ndsup: \x1b[2J\udcff (7)",), 1))

    assert story.said.isprintable()
    assert r": a\ndsup: \x1b[2J\udcff (7); SIGTERM now" in story.said
