"""What is said of a stop that ranks come to by themselves: exact lines."""

import pytest

from dsup.core import events as ev
from dsup.report import console

INT, TERM = 2, 15
HALF = "SIGTERM after 12.5 s, SIGKILL after 25 s"


@pytest.fixture
def ready(new_story, events):
    """Give ``ready(job, *ranks)``: a run of which these ranks stop themselves."""

    def story(job, *ranks):
        told = new_story(job).tell(events.launched).tell(events.prepared())
        for rank in range(job.spec.world_size):
            told.tell(events.started(rank))
        found = ev.SelfStopping("self_stopping", 2.0, 0, ranks or (0, 1, 2, 3))
        return told.tell(found)

    return story


@pytest.fixture
def limited(job):
    """Give the job with a time limit of 30 s."""
    return job._replace(spec=job.spec._replace(stop_after_s=30.0))


def wanted(stop="error", reason="loss is nan", step=17, rank=2):
    return ev.StopWanted("stop_wanted", 5.0, 0, rank, stop, reason, step)


def ended(story, events, status):
    """Let every rank end, and have nothing left."""
    for rank in range(4):
        story.tell(events.exited(6.0, rank, status))
    return story.tell(events.group_empty(6.1)).tell(events.group_empty(6.2))


def test_a_stop_says_that_the_ranks_stop_by_themselves(ready, events, job):
    """Whoever stopped the run knows what is waited for, and how long at most."""
    story = ready(job).tell(events.signalled(5.0, TERM))

    assert story.said == f"SIGTERM: stopping at the next step; {HALF}"


@pytest.mark.parametrize(
    ("event", "said"),
    [
        pytest.param(
            wanted(),
            f"rank 2 wants to stop at step 17 (error: loss is nan): stopping at the "
            f"next step; {HALF}",
            id="all there is",
        ),
        pytest.param(
            wanted("user", "", None),
            f"rank 2 wants to stop (user): stopping at the next step; {HALF}",
            id="from the page",
        ),
    ],
)
def test_a_wish_says_who_where_and_why(ready, job, event, said):
    """What is not told is left out."""
    assert ready(job).tell(event).said == said


def test_a_wish_names_the_ranks_that_are_waited_for(ready, job):
    """A rank that is not at its loop yet is what holds the stop up."""
    story = ready(job, 2, 3).tell(wanted("user", "enough", None))

    assert story.said == (
        f"rank 2 wants to stop (user: enough): stopping as soon as ranks 0-1 can; "
        f"{HALF}"
    )


def test_a_preempted_rank_among_others_says_what_they_get(ready, job):
    """Where not all stop themselves the wish is a signal."""
    story = ready(job, 2, 3).tell(wanted("preempt", "SIGTERM", None))

    assert story.said == (
        "rank 2 wants to stop (preempt: SIGTERM): SIGTERM to ranks 0-3, "
        "SIGKILL after 25 s"
    )


def test_a_greater_wish_is_said_too(ready, job):
    """Both are worth knowing."""
    story = ready(job).tell(wanted("user", "enough", 17, 0)).tell(wanted())

    assert story.said == (
        "rank 2 wants to stop at step 17 (error: loss is nan), while the ranks are "
        "stopping already"
    )


def test_a_time_limit_says_its_option(ready, events, limited):
    """The reader finds out what to change."""
    story = ready(limited).tell(events.tick(30.0))

    assert story.said == (
        f"time limit of 30 s (--stop-after): stopping at the next step; {HALF}"
    )


def test_the_first_signal_after_it_hurries_nobody(ready, events, limited):
    """What is waited for is said, and that nothing is killed."""
    story = ready(limited).tell(events.tick(30.0)).tell(events.signalled(35.0, INT))
    assert story.said == "SIGINT: the ranks are stopping already, SIGKILL in 20 s"

    story.tell(events.signalled(37.0, INT))

    assert story.said == "SIGINT again: killing what is left"


def test_ranks_that_do_not_come_are_named(ready, events, job):
    """At half the grace it is said who gets SIGTERM."""
    story = ready(job).tell(events.signalled(5.0, TERM))
    story.tell(events.exited(6.0, 1, 143)).tell(events.tick(17.5))

    assert story.said == (
        "ranks 0, 2-3 did not stop by themselves within 12.5 s: SIGTERM"
    )


def test_a_wish_that_is_not_come_to_says_why_the_attempt_fails(ready, events, job):
    """No rank has failed, so the reason is what people have."""
    story = ready(job).tell(wanted("user", "enough", 17)).tell(events.tick(17.5))

    assert story.said == (
        "rank 2 wanted a stop (enough), and 4 of 4 ranks did not come to it within "
        "12.5 s; SIGTERM to ranks 0-3"
    )


@pytest.mark.parametrize(
    "case",
    [
        ("user", 0, "stopped by rank 2 (why): every rank ended with 0"),
        (
            "preempt",
            143,
            "stopped by rank 2 (why), exit code 143; logs in /runs/r1",
        ),
        (
            "limit",
            143,
            "stopped by its time limit, exit code 143; logs in /runs/r1",
        ),
    ],
    ids=["user", "preempt", "limit"],
)
def test_the_last_word_says_who_stopped_the_run(ready, events, job, case):
    """Its owner sees at once that it was no failure."""
    stop, status, said = case
    story = ready(job).tell(wanted(stop, "why"))

    assert ended(story, events, status).said == said


def test_a_limit_without_the_runtime_says_what_the_ranks_get(
    new_story, events, limited
):
    """SIGTERM at once, where no rank stops itself."""
    story = new_story(limited).tell(events.launched).tell(events.prepared())
    for rank in range(4):
        story.tell(events.started(rank))
    story.tell(events.tick(30.0))

    assert story.said == (
        "time limit of 30 s (--stop-after): SIGTERM to ranks 0-3, SIGKILL after 25 s"
    )
    assert ended(story, events, -TERM).said == (
        "stopped by its time limit, exit code 143; logs in /runs/r1"
    )


def test_a_wish_is_a_warning():
    """It is said to the quiet, too."""
    from dsup.core.machine import initial
    from dsup.core.plan import Policy
    from dsup.core.state import Spec

    policy = Policy(None, (1.0,), 1.0, restart_on_user=False, checkpoints_known=False)
    state = initial(Spec(1, 2.0, 25.0, keep_helpers=False, policy=policy))

    assert console.tone(wanted(), state) == "warning"
