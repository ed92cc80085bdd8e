"""Exceptions that did not end their rank, or that another one hides."""

import pytest

CLOSED = "Connection closed by peer [10.0.0.1]:1"


def test_a_barrier_in_finally_hides_the_exception(incident):
    """What a communication error was raised during is the likely cause."""
    own = ("ValueError", "loss is NaN")
    story = incident().raised(1, "RuntimeError", CLOSED, 10.2, causes=(own,))
    story.lost(0, 2, 3)

    assert story.answer == (
        "raised_before_teardown",
        "python_exception",
        (1,),
        "likely",
    )
    assert "ValueError: loss is NaN" in story.verdict.summary


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(("KeyError", "'cache'"), id="a look-up that fell back"),
        pytest.param(("ConnectionResetError", "[Errno 104]"), id="a peer's end"),
    ],
)
def test_a_chain_that_means_nothing(incident, own):
    """What code catches to try another way is not promoted to a cause."""
    story = incident().raised(1, "RuntimeError", CLOSED, 10.2, causes=(own,))
    story.lost(0, 2, 3)

    assert story.verdict.first_ranks == ()


def test_a_chain_that_every_rank_has(incident):
    """What stands in everybody's chain tells nothing about anybody."""
    own = ("ValueError", "tuned on the fly")
    story = incident()
    for rank in range(4):
        story.raised(rank, "RuntimeError", CLOSED, causes=(own,))

    assert story.verdict.first_ranks == ()


def test_a_thread_ended_and_its_rank_lived_on(incident):
    """A rank whose thread raised, and which never ended, is likely the first."""
    story = incident().noted(1, "ValueError", "no batch", thread="loader")
    story.timed_out(0, 2, 3).stood(1, at=17.0)

    assert story.answer == ("raised_in_thread", "python_exception", (1,), "likely")
    assert story.verdict.at_s == 110.0
    assert story.verdict.summary == (
        "Rank 1 raised ValueError: no batch in thread loader and did not end."
    )


def test_a_thread_s_traceback_without_notes(incident):
    """Without notes the traceback that a thread left on stderr tells the same."""
    story = incident().timed_out(0, 2, 3).stood(1, at=17.0)
    story.showed(1, "ValueError", "no batch", thread="loader")

    assert story.answer == ("raised_in_thread", "python_exception", (1,), "likely")


def test_a_helper_ended_and_its_rank_lived_on(incident):
    """The same holds for a process that the rank forked."""
    story = incident().noted(1, "ValueError", "no batch", pid=4711)
    story.timed_out(0, 2, 3).stood(1, at=17.0)

    assert story.answer[:3] == ("raised_in_thread", "python_exception", (1,))
    assert "in process 4711" in story.verdict.summary


def test_a_thread_s_end_explains_a_silent_exit_code(incident):
    """A rank that noticed its thread's end and left is told by the thread."""
    story = incident().noted(1, "ValueError", "no batch", thread="loader")
    story.ended(1, 1, 11.0).lost(0, 2, 3, at=11.1)

    assert story.answer[:3] == ("raised_in_thread", "python_exception", (1,))


@pytest.mark.parametrize(
    ("rank", "status"),
    [
        pytest.param(2, -9, id="another rank was killed"),
        pytest.param(1, -9, id="the rank itself was killed"),
    ],
)
def test_a_thread_s_end_is_weaker_than_a_death(incident, rank, status):
    """Threads end of harmless exceptions too."""
    story = incident().noted(1, "ValueError", "no", 9.0, thread="bar")
    story.ended(rank, status).stood(*{0, 1, 2, 3} - {rank})

    assert story.answer == ("killed_from_outside", "killed", (rank,), "proven")


def test_a_traceback_of_a_rank_that_did_not_end(incident):
    """Without notes a traceback on stderr is a guess, if all others are victims."""
    story = incident().lost(0, 2, 3).stood(1)
    story.showed(1, "ValueError", "no")

    assert story.answer == ("shown_and_alive", "python_exception", (1,), "guess")
