"""What the console says of hangs: nothing that may be nothing, then who and where."""

import pytest

from dsup.core import commands as cmd
from dsup.core import journal
from dsup.report import hangs
from dsup.report.account import account
from dsup.report.hindsight import agent_gone, from_journal

KILL, TERM = 9, 15
FOUND = ((1,), "all_reduce", "dataset.py:88 in read")


@pytest.fixture
def running(new_story, events):
    """Give ``running(job)``: a story in which every rank has started."""

    def story(job):
        told = new_story(job).tell(events.launched).tell(events.prepared())
        for rank in range(job.spec.world_size):
            told.tell(events.started(rank))
        return told

    return story


def on_hang(job, what):
    """Return the job with another answer to hangs."""
    return job._replace(spec=job.spec._replace(on_hang=what))


@pytest.mark.parametrize("why", ["stalled", "silent"])
def test_ranks_that_may_just_be_slow_are_not_spoken_of(running, events, job, why):
    """A long step is no news: only the verbose hear of it."""
    story = running(job)

    assert story.tell(events.suspected((0, 1), why)).said == ""
    assert story.tell(events.captured()).said == ""
    assert story.tell(events.cleared(0, 1)).said == ""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(
            ((2,), "frozen"),
            "rank 2 is frozen (state T, as by SIGSTOP): stacks are taken",
            id="frozen",
        ),
        pytest.param(
            ((0, 1), "asleep"),
            "ranks 0-1 are asleep in the kernel (state D) for 2 s: stacks are taken",
            id="asleep",
        ),
    ],
)
def test_what_no_training_does_by_itself_is_said_at_once(
    running, events, job, found, said
):
    """Whom it is about and how the kernel calls it."""
    assert running(job).tell(events.suspected(*found)).said == said


def test_who_did_not_come_is_named_with_place(running, events, job):
    """The line says what the others wait in and what the missing rank does instead."""
    story = running(job).tell(events.suspected((0, 2, 3)))

    assert story.tell(events.captured(*FOUND)).said == (
        "rank 1 did not come to all_reduce, where the others wait; "
        "it is at dataset.py:88 in read"
    )


def test_nobody_is_said_to_wait_where_no_collective_is_known(running, events, job):
    """The place of the first is told, and whose it is, no more."""
    story = running(job).tell(events.suspected((0, 3)))

    assert story.tell(events.captured((1, 2), "", "a.py:1 in f")).said == (
        "ranks 1-2; rank 1 is at a.py:1 in f"
    )


def test_who_goes_on_after_a_warning_is_told(running, events, job):
    """Who was warned of is spoken free, those who died since are left out."""
    story = running(job).tell(events.suspected((1, 2), "frozen"))
    story.tell(events.exited(7.9, 2, 0))

    assert story.tell(events.cleared(1, 2)).said == "no hang any more: rank 1 went on"


def test_who_died_has_not_gone_on(running, events, job):
    """Of a frozen rank that was killed its death is said, and nothing else."""
    story = running(job).tell(events.suspected((1,), "frozen"))
    story.tell(events.exited(7.9, 1, -KILL))

    assert story.tell(events.cleared(1)).said == ""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(
            ((2,), "frozen"),
            "hang: rank 2 stayed frozen (state T)",
            id="frozen",
        ),
        pytest.param(
            ((0, 1), "asleep"),
            "hang: ranks 0-1 stayed asleep in the kernel (state D)",
            id="asleep",
        ),
        pytest.param(
            ((1,), "absent"),
            "hang: rank 1 did not come to all_reduce, where the others wait; it is at "
            "dataset.py:88 in read",
            id="absent",
        ),
        pytest.param(
            ((0, 2), "limit"),
            "hang: rank 1 did not come to all_reduce, where the others wait; it is at "
            "dataset.py:88 in read",
            id="limit",
        ),
    ],
)
def test_a_confirmed_hang_says_who_and_what_follows(running, events, job, found, said):
    """Each way to hang has its words, then comes what dsup does."""
    story = running(job).tell(events.suspected((0, 2, 3))).tell(events.captured(*FOUND))

    story.tell(events.confirmed(*found))

    assert story.said == f"{said}; taking stacks, then ending the attempt"


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((0, 1, 2, 3), "4 ranks made no progress within the limit of their phase"),
        ((1,), "a rank made no progress within the limit of its phase"),
        ((), "a rank made no progress within the limit of its phase"),
    ],
)
def test_a_limit_alone_names_nobody(running, events, job, ranks, said):
    """Whoever waits for the cause outlasts it as well; the stacks will tell."""
    story = running(job).tell(events.suspected((0, 1, 2, 3)))

    story.tell(events.confirmed(ranks, "limit"))

    assert story.said == f"hang: {said}; taking stacks, then ending the attempt"


def test_ranks_that_go_on_at_the_last_moment_are_left_alone(running, events, job):
    """What was announced does not happen, and that is said."""
    story = running(job).tell(events.suspected((0, 1), "silent"))
    story.tell(events.confirmed((0, 1), "limit"))

    assert story.tell(events.cleared(0, 1)).said == (
        "no hang any more: ranks 0-3 went on, and nobody is ended"
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(
            ((2,), "idle"),
            "rank 2 did nothing for 2 s (no processor time, no output) while all "
            "others are busy and write nothing: stacks are taken",
            id="one",
        ),
        pytest.param(
            ((0, 1, 2, 3), "still"),
            "no rank did anything for 2 s (no processor time, no output): stacks are "
            "taken",
            id="all",
        ),
    ],
)
def test_ranks_that_do_nothing_any_more_are_told(running, events, job, found, said):
    """Of a script that tells nothing that is all there is to see."""
    assert running(job).tell(events.suspected(*found)).said == said


def test_that_ranks_wait_for_long_is_told_to_the_verbose(running, events, job):
    """Another may evaluate; the stacks show what it does."""
    assert running(job).tell(events.suspected((1, 2), "waiting")).said == ""
    assert hangs.detail(events.suspected((1, 2), "waiting")) == (
        "ranks 1-2 made no step for 2 s, while another evaluates, saves or "
        "finishes: stacks are taken"
    )


def test_a_hang_that_ends_the_run_says_so(running, events, job):
    """The option that decided is named."""
    story = running(on_hang(job, "stop")).tell(events.confirmed((1,), "frozen"))

    assert story.said.endswith("; taking stacks, then ending the run (--on-hang stop)")


def test_a_hang_that_is_reported_is_reported(running, events, job):
    """The option that decided is named."""
    story = running(on_hang(job, "report")).tell(events.confirmed((1,), "frozen"))

    assert story.said == (
        "hang: rank 1 stayed frozen (state T); nothing is done (--on-hang report)"
    )


def test_the_last_stacks_are_told_with_whom_they_end(running, events, job):
    """What the stacks show stands in the line that announces the end."""
    story = running(job).tell(events.confirmed((1,)))

    assert story.tell(events.captured(*FOUND, final=True)).said == (
        "the stacks are taken: rank 1 did not come to all_reduce, where the others "
        "wait; it is at dataset.py:88 in read; ending ranks 0-3"
    )


def test_last_stacks_that_name_nobody(running, events, job):
    """Nobody is accused where everybody waits."""
    story = running(job).tell(events.confirmed(()))

    said = story.tell(events.captured(final=True)).said
    assert said == "the stacks are taken; ending ranks 0-3"


def test_stacks_that_do_not_come_are_not_waited_for(running, events, job):
    """The line says how long they were."""
    story = running(job).tell(events.confirmed((1,)))

    assert story.tell(events.tick(77.0)).said == (
        "no stacks within 10 s; ending ranks 0-3"
    )


def test_a_rank_that_dies_while_stacks_are_taken_is_told(running, events, job):
    """It is not called the first to fail: the hang was before."""
    story = running(job).tell(events.confirmed((1,)))

    assert story.tell(events.exited(68.0, 2, -KILL)).said == (
        "rank 2 (pid 4002) was killed by SIGKILL while stacks were taken"
    )


def test_a_stop_while_stacks_are_taken_is_told(running, events, job):
    """It reads as at any other time."""
    story = running(job).tell(events.confirmed((1,)))

    said = story.tell(events.signalled(68.0, TERM)).said
    assert said == "SIGTERM: passed on to ranks 0-3, SIGKILL after 25 s"


def test_a_straggler_is_named_with_the_reason(running, events, job):
    """Where nothing explains it, nothing is said of it."""
    story = running(job)

    assert story.tell(events.straggles(3, 1.84, "its GPU is throttled")).said == (
        "rank 3 takes 1.8 times as long as its peers (its GPU is throttled)"
    )
    assert story.tell(events.straggles(3, 1.84, "")).said == (
        "rank 3 takes 1.8 times as long as its peers"
    )
    assert story.tell(events.straggles(3, 0.0, "")).said == ""


def test_an_early_exit_is_told_once_the_others_have_gone_on(running, events, job):
    """Ranks that end together within a second make no line."""
    story = running(job)

    assert story.tell(events.exited(5.0, 1, 0)).said == ""
    assert story.tell(events.tick(6.0)).said == (
        "rank 1 ended with 0, ranks 0, 2-3 still running"
    )
    assert story.tell(events.exited(9.0, 2, 0)).said == ""


# A journal that ends there


@pytest.fixture
def told(job, events):
    """Give ``told(*events)``: the account of a run that hung, as its journal has it."""

    def make(*more):
        items = [
            *(events.launched, cmd.Prepare("prepare", 0), events.prepared()),
            *(events.started(0), events.started(1), events.confirmed((0,))),
            cmd.Capture("capture", 0, final=True),
            *more,
        ]
        lines = [journal.encode(n, item) for n, item in enumerate(items, 1)]
        return account([journal.header(job.spec), *lines])

    return make


def test_a_hang_without_a_verdict_is_told_from_the_journal(told, events):
    """The last stacks say more than what confirmed it."""
    ended = (
        events.captured(*FOUND, final=True),
        cmd.SignalRanks("signal_ranks", 0, (0, 1), TERM),
        events.exited(70.0, 1, -TERM),
    )

    verdict = from_journal(told(*ended), 0)

    assert (verdict.cause, verdict.first_ranks) == ("hang", (1,))
    assert verdict.summary == (
        "Hang: rank 1 did not come to all_reduce, where the others wait; it is at "
        "dataset.py:88 in read."
    )
    assert verdict.ended_by_dsup == (1,)


def test_a_hang_that_nobody_could_look_at_is_a_guess(told, events):
    """What was confirmed stands; a capture for a suspicion changes nothing."""
    verdict = from_journal(told(events.captured(*FOUND)), 0)

    assert (verdict.first_ranks, verdict.certainty) == ((0,), "likely")


def test_an_agent_that_was_killed_in_a_hang(told):
    """The summary says what had been before."""
    verdict = agent_gone(told(), node="n1", rebooted=False)

    assert verdict.summary == (
        "The agent was killed in attempt 0, in a hang (rank 0): its journal just ends."
    )


def test_several_that_outlasted_a_limit_are_not_all_the_cause(told, events):
    """Without stacks nobody can be named."""
    limit = events.confirmed((0, 1), "limit")
    verdict = from_journal(told(limit, cmd.Capture("capture", 0, final=True)), 0)

    assert (verdict.first_ranks, verdict.certainty) == ((), "guess")


def test_a_hang_that_was_called_off_is_no_cause(told, events):
    """The ranks went on before anybody was signalled."""
    verdict = agent_gone(told(events.cleared(0)), node="n1", rebooted=False)

    assert "hang" not in verdict.summary
