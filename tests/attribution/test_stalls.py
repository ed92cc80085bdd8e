"""Ranks that hang while the others wait for them."""

import pytest

BARRIER = (
    "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms\n Original "
    "exception: Timed out waiting 2000ms for recv operation to complete"
)
JOINING = "Timed out after 5 seconds waiting for clients. 3/4 clients joined."


@pytest.mark.parametrize(
    ("state", "words"),
    [
        pytest.param("T", "it was stopped by SIGSTOP (state T)", id="SIGSTOP"),
        pytest.param("t", "it was stopped by a debugger (state t)", id="a debugger"),
    ],
)
def test_a_stopped_rank(incident, state, words):
    """State T before dsup's signal proves who held the others up."""
    story = incident().timed_out(0, 1, 3).stood(2, state=state, at=17.0, status=-9)

    assert story.answer == ("frozen", "hang", (2,), "proven")
    assert words in story.verdict.summary
    assert story.verdict.ended_by_dsup == (2,)
    assert story.verdict.status == 1


def test_a_stopped_rank_and_silent_exits(incident):
    """A stopped rank explains others that caught the time-out and left with 1."""
    story = incident().ended(0, 1).ended(1, 1).stood(2, state="T").ended(3, 1)

    assert story.answer == ("frozen", "hang", (2,), "proven")


def test_a_rank_asleep_in_the_kernel(incident):
    """State D, and where it sleeps, make a hang likely."""
    story = incident().timed_out(0, 1, 3)
    story.stood(2, state="D", wchan="nfs_wait_bit_killable", at=17.0)

    assert story.answer == ("asleep_in_kernel", "hang", (2,), "likely")
    assert "(state D, nfs_wait_bit_killable)" in story.verdict.summary


def test_one_rank_did_not_come(incident):
    """The one that stands where all others timed out is likely the one."""
    story = incident().timed_out(0, 1, 3).stood(2, at=17.0)

    assert story.answer == ("did_not_come", "hang", (2,), "likely")
    assert story.verdict.summary == (
        "Rank 2 likely hung: it did not enter the collective the others waited in."
    )


def test_one_rank_did_not_join(incident):
    """A store that waits for clients tells that the group was never complete."""
    story = incident().raised(0, "torch.distributed.DistStoreError", JOINING, 15.0)
    for rank in (1, 3):
        text = "wait timeout after 4000ms, keys: /default_pg/0//cpu//0/0"
        story.raised(rank, "torch.distributed.DistStoreError", text, 15.0)
    story.stood(2, at=17.0)

    assert story.answer == ("did_not_come", "hang", (2,), "likely")
    assert "did not join the process group" in story.verdict.summary


def test_several_that_did_not_come_are_listed(incident):
    """With more than one, all are named, as a guess."""
    story = incident().timed_out(0, 1).stood(2, 3, at=17.0)

    assert story.answer == ("did_not_come", "hang", (2, 3), "guess")


def test_a_rank_that_waited_alone_names_nobody(incident):
    """One that times out while most stand may be the guilty one itself."""
    story = incident().timed_out(0).stood(1, 2, 3, at=17.0)

    assert story.answer == ("did_not_come", "hang", (), "guess")
    assert "which of ranks 1 to 3" in story.verdict.summary


def test_a_monitored_barrier_names_who_did_not_come(incident):
    """A victim's statement that names ranks narrows those that stand down."""
    story = incident().raised(0, "RuntimeError", BARRIER, 15.0)
    story.stood(1, 2, 3, at=17.0)

    assert story.verdict.cause == "hang"
    assert "1 and 2" in story.verdict.summary


def test_steps_narrow_down_who_hangs(incident):
    """A rank with fewer steps than the others is the one that did not come."""
    story = incident().timed_out(0, 1).stood(2, 3, at=17.0)
    for rank in range(4):
        story.beat(rank, 519 if rank == 3 else 520)

    assert story.answer == ("did_not_come", "hang", (3,), "likely")


def test_a_rank_that_lived_on(incident):
    """One that stands where all others lost their connections is a guess."""
    story = incident().lost(0, 1, 3).stood(2)

    assert story.answer == ("lived_on", "hang", (2,), "guess")


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("rank 2 did not come within 3.0 s (look at its output)", (2,)),
        ("rank 3 has ended and rank 1, 2 did not come within 3.0 s (look)", (1, 2)),
    ],
)
def test_the_runtimes_barrier_names_who_did_not_come(incident, reason, named):
    """What it says is what stacks would say: those are named, and no others."""
    story = incident().stood(1, 2, 3)
    text = f"cannot pass barrier 'epoch', because {reason}"
    story.raised(0, "dsup_runtime.errors.BarrierTimeout", text, 15.0)

    assert story.answer[:3] == ("did_not_come", "hang", named)


def test_stacks_of_a_suspicion_tell_where_it_was(incident):
    """They were taken before the others gave up, and it made no step since."""
    story = incident().timed_out(0, 1, 3).stood(2, at=17.0).beat(2, 7)
    story.at(2, "dataset.py:88 in read").but(stacks_s=112.0)

    assert "likely hung at dataset.py:88: it did not enter" in story.verdict.summary


def test_a_straggler_speaks_like_a_victim(incident):
    """It comes when the others have timed out, and meets their closed connections."""
    story = incident().timed_out(0, 1, 3, at=15.0).lost(2, at=17.0)
    verdict = story.verdict

    assert story.answer == ("came_late", "hang", (2,), "likely")
    assert verdict.summary == (
        "Rank 2 likely hung: it came when 3 others had timed out."
    )
    assert verdict.evidence[0].text.startswith(
        "rank 2, 2.0 s after the last time-out: RuntimeError: "
    )
    assert [victim.rank for victim in verdict.victims] == [0, 1, 3]


def test_who_waited_and_lost_its_connections_is_no_straggler(incident):
    """Closed connections before the last time-out come from the first that gave up."""
    story = incident(world_size=5).timed_out(0, at=15.0).lost(1, at=15.1)
    story.timed_out(3, 4, at=15.2).lost(2, at=17.0)

    assert story.answer == ("came_late", "hang", (2,), "likely")


@pytest.mark.parametrize(
    ("world_size", "waited", "late"),
    [
        pytest.param(6, (0, 1, 3, 5), (2, 4), id="two that were late"),
        pytest.param(2, (0,), (1,), id="one that waited"),
    ],
)
def test_stragglers_that_are_a_guess(incident, world_size, waited, late):
    """Several may have waited for the last of them; one that waited proves little."""
    story = incident(world_size=world_size)
    story.timed_out(*waited, at=15.0).lost(*late, at=17.0)

    assert story.answer == ("came_late", "hang", late, "guess")


def test_steps_narrow_down_who_came_late(incident):
    """Of two that met closed connections, the one with fewer steps was late."""
    story = incident(world_size=5).timed_out(0, 1, 3).lost(2, 4, at=17.0)
    for rank in range(5):
        story.beat(rank, 519 if rank == 4 else 520)

    assert story.answer == ("came_late", "hang", (4,), "likely")


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            lambda i: i().timed_out(0, 1, 3, at=15.0).lost(2, at=14.0),
            id="closed before anybody gave up",
        ),
        pytest.param(
            lambda i: i().timed_out(0, at=15.0).lost(1, 2, 3, at=16.0),
            id="more than timed out",
        ),
        pytest.param(
            lambda i: i(world_size=8).timed_out(0, 1, 3, at=15.0).lost(2, at=17.0),
            id="ranks that nobody knows of",
        ),
    ],
)
def test_no_straggler_can_be_told(incident, story):
    """A closed connection alone is every victim's."""
    assert story(incident).verdict.cause != "hang"
