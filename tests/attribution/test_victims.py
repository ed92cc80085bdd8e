"""Attempts in which nothing is left but ranks that lost each other."""

import pytest

STORE = (
    "failed to recv, got 0 bytes. Connection was likely closed. Did the server stop?"
)


def test_an_early_exit(incident):
    """A rank that ends with 0 while others need it is the cause of their loss."""
    story = incident().ended(2, 0).lost(0, 1, 3).beat(2, 300)

    assert story.answer == ("early_exit", "early_exit", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 ended with exit 0 at step 300 while the other 3 still trained."
    )
    assert story.verdict.status == 0


def test_an_early_exit_before_any_step(incident):
    """Where no rank had finished a step, nobody trained yet."""
    story = incident().ended(2, 0).timed_out(0, 1, 3).beat(0, None)

    assert story.verdict.summary == (
        "Rank 2 ended with exit 0 while the other 3 still ran."
    )


def test_an_early_exit_and_silent_victims(incident):
    """Victims that caught the error and left with 1 do not hide an early exit."""
    story = incident().ended(2, 0, 9.0).ended(0, 1, 9.5).ended(1, 1, 9.5).stood(3)

    assert story.answer == ("early_exit", "early_exit", (2,), "likely")


def test_a_rank_that_ends_with_0_after_the_others_failed_is_no_early_exit(incident):
    """Only who left before, or seconds after, can have brought it about."""
    story = incident().lost(0, 1, 3, at=2.0).ended(2, 0, 10.0)

    assert story.verdict.cause != "early_exit"


def test_connections_close_before_the_rank_is_seen_to_end(incident):
    """An interpreter closes them while it tears down; seconds are granted for that."""
    story = incident().lost(0, 1, 3, at=9.9).ended(2, 0, 10.0)

    assert story.answer == ("early_exit", "early_exit", (2,), "proven")


def test_an_exit_code_of_its_own_is_no_want_of_a_peer(incident):
    """A rank that ends with 7 says more than one that had ended with 0."""
    story = incident().ended(2, 0, 9.0).ended(1, 7, 10.0).lost(0, 3)

    assert story.verdict.first_ranks == (1,)


def test_rank_0_takes_the_store_along(incident):
    """Where the store is what the others miss, its loss is the cause."""
    story = incident().ended(0, 0)
    for rank in (1, 2, 3):
        story.raised(rank, "torch.distributed.DistNetworkError", STORE, 10.1)

    assert story.answer == ("early_exit", "store_lost", (0,), "proven")
    assert story.verdict.advice.action == "keep_store"


def test_rank_0_went_first_and_nobody_knows_why(incident):
    """A store that is lost after rank 0 ended of a communication error is a guess."""
    story = incident().lost(0, at=9.0)
    for rank in (1, 2, 3):
        story.raised(rank, "torch.distributed.DistNetworkError", STORE, 10.1)

    assert story.answer == ("store_host_first", "store_lost", (0,), "guess")


def test_all_are_victims(incident):
    """Where every rank only lost the others, no rank is named."""
    story = incident().lost(0, 1, 2, 3)

    assert story.answer == ("only_victims", "nccl_network", (), "guess")
    assert "may have failed" in story.verdict.summary


def test_not_all_ranks_are_accounted_for(incident):
    """With ranks that nobody knows of, a network is not blamed."""
    story = incident(world_size=8).lost(0, 1, 2, 3)

    assert story.answer == ("unknown", "unknown", (), "unknown")
    assert "connection closed by peer" in story.verdict.summary


@pytest.mark.parametrize(
    ("others", "answer"),
    [
        pytest.param("stand", ("own_connection", "python_exception", (1,)), id="stand"),
        pytest.param(
            "follow", ("own_connection", "python_exception", (1,)), id="follow"
        ),
    ],
)
def test_a_socket_of_the_script_s_own(incident, others, answer):
    """Python's own connection errors, before any other, are likely the script's."""
    story = incident().raised(1, "BrokenPipeError", "[Errno 32] Broken pipe")
    if others == "stand":
        story.stood(0, 2, 3)
    else:
        story.lost(0, 2, 3)

    assert story.answer[:3] == answer


def test_nothing_is_known(incident):
    """Where nothing speaks, the verdict is unknown and says what is missing."""
    story = incident(kernel_log="permission denied").stood(0, 1, 2, 3)

    assert story.answer == ("unknown", "unknown", (), "unknown")
    assert story.verdict.summary == (
        "No cause could be found: no rank ended by itself; the kernel log could not be "
        "read."
    )
