"""Collectives: who called another one, who was behind, who did not come."""

from dsup.facts.logs.line import Place


def test_a_fingerprint_that_one_rank_alone_has(log):
    """Most ranks call all_reduce; the one that does not is first."""
    story = log(world_size=4)
    for rank in (0, 1, 3):
        story.called(rank, "ALLREDUCE")
    story.called(2, "BROADCAST")

    assert story.answer == ("mismatched", "collective_mismatch", (2,))
    assert story.verdict.summary == (
        "Rank 2 called BROADCAST as #41 where the other 3 called ALLREDUCE."
    )


def test_two_fingerprints_accuse_nobody(log):
    """Of a pair, neither is known to be wrong."""
    story = log(world_size=2).called(0, "ALLREDUCE").called(1, "BROADCAST")

    assert story.answer == ("mismatched", "collective_mismatch", ())


def test_a_trace_of_calls(log):
    """Under one opCount three ranks reduce and one gathers, without any error line."""
    story = log()
    for rank in (0, 1, 3):
        story.called(rank, "ALLREDUCE", 17, kind="trace", size=4096)
    story.called(2, "ALLGATHER", 17, kind="trace", size=512)

    assert story.answer == ("mismatched", "collective_mismatch", (2,))


def test_time_outs_with_another_operation_under_one_number(log):
    """Three ranks wait in one operation, the fourth in another of the same number."""
    story = log(world_size=4).timed_out(0, 1, 3).timed_out(2, op="BROADCAST")

    assert story.answer == ("mismatched", "collective_mismatch", (2,))
    assert story.verdict.certainty == "likely"


def test_uneven_shards_are_no_mismatch(log):
    """A gather's ranks may give different sizes."""
    story = log(world_size=3).timed_out(0, 1, op="ALLGATHER", size=8)
    story.timed_out(2, op="ALLGATHER", size=7)

    assert story.answer == ("nobody_came", "hang", ())


def test_a_rank_that_enqueued_less(log):
    """The one whose last enqueued work is the lowest did not come to the next."""
    story = log(world_size=3).timed_out(0, 1, enqueued=815).timed_out(2, enqueued=812)

    assert story.answer == ("behind", "hang", (2,))


def test_numbers_far_apart_are_of_two_groups(log):
    """Old lines name no group: a gap of thousands is none of one group's."""
    story = log(world_size=3).timed_out(0, 1, seq=50100).timed_out(2, seq=301)

    assert story.answer == ("nobody_came", "hang", ())


def test_the_barrier_knows_who_did_not_come(log):
    """A monitored barrier names the ranks it waited for."""
    story = log(world_size=4)
    story.missed(0, 3)

    assert story.answer == ("accused", "hang", (3,))


def test_the_silent_rank(log):
    """Seven ranks of eight time out: the eighth did not come."""
    story = log(world_size=8).timed_out(0, 1, 2, 3, 4, 5, 7)

    assert story.answer == ("silent", "hang", (6,))
    assert [v.rank for v in story.verdict.victims] == [0, 1, 2, 3, 4, 5, 7]


def test_silence_tells_nothing_where_the_world_is_not_known(log):
    """The log may hold some ranks only."""
    assert log().timed_out(0, 2, 3).answer == ("nobody_came", "hang", ())


def test_a_silent_rank_that_goes_on(log):
    """Rank 0's bar moves on below the time-outs: it is busy, and all wait for it."""
    story = log().timed_out(1, 2).moved(-1, 31, began=0, rises=(0, 3))

    assert story.answer == ("silent", "hang", (0,))


def test_a_bar_that_is_only_drawn_again(log):
    """A process that ends draws its bar once more: that is no step."""
    story = log().timed_out(1, 2).moved(-1, 31, began=0, rises=(0,))

    assert story.answer == ("nobody_came", "hang", ())


def test_most_are_silent(log):
    """Where fewer time out than are silent, nobody is named."""
    assert log(world_size=8).timed_out(3, 4).answer == ("nobody_came", "hang", ())


def test_the_rank_that_stopped_moving(log):
    """All time out, but one rank's steps ended before the others'."""
    story = log(world_size=3).moved(0, 90).moved(1, 90).moved(2, 71)
    story.timed_out(0, 1, 2)

    assert story.answer == ("stopped_moving", "hang", (2,))
    assert "step 71" in story.verdict.summary


def test_ranks_of_other_nodes(log):
    """A local rank is no global one where several nodes speak."""
    story = log()
    story.timed_out(Place(local_rank=1, node="a"), Place(local_rank=1, node="b"))

    assert story.answer == ("nobody_came", "hang", ())


def test_the_one_rank_that_is_left_of_a_time_out_without_a_number(log):
    """Gloo names no collective: whom the launcher had to end is who did not come."""
    story = log().timed_out(0, seq=None, op="").ended(0, 1, "agent")
    story.ended(1, None, "agent", by_launcher=True)
    story.facts = story.facts._replace(ranks=frozenset({0, 1}))

    assert story.answer == ("one_left", "hang", (1,))
    assert story.verdict.certainty == "guess"


def test_two_ranks_that_are_left_accuse_nobody(log):
    """Either of them may be the one."""
    story = log(world_size=3).timed_out(0, seq=None, op="")
    story.ended(1, None, "agent", by_launcher=True)
    story.ended(2, None, "agent", by_launcher=True)

    assert story.answer == ("nobody_came", "hang", ())
