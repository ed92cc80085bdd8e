"""Ranks that never made one group: too many joined, or too few."""

BARRIER = "store based barrier for rank: 0 (world_size=2, worker_count="


def test_more_processes_than_the_group_has_room_for(log):
    """Two launchers share one store: a wrong set-up, and no rank's fault."""
    story = log().raised(0, "RuntimeError", f"Timed out in {BARRIER}4, timeout=0:30:00")

    assert story.answer == ("overfull", "config_error", ())
    assert story.verdict.summary == "4 processes joined a group that has room for 2."


def test_a_log_that_ends_in_the_barrier(log):
    """No error was printed: the waiting ranks were ended, or wait still."""
    full, empty = log().printed(f"{BARRIER}4)"), log().printed(f"{BARRIER}1)")

    assert full.answer == ("overfull", "config_error", ())
    assert empty.answer == ("not_joined", "hang", ())


def test_ranks_that_did_not_come(log):
    """The store counts who joined; it does not know who is missing."""
    text = "Timed out after 301 seconds waiting for clients. 2/4 clients joined."
    story = log().raised(0, "torch.distributed.DistStoreError", text)

    assert story.answer == ("not_joined", "hang", ())
    assert story.verdict.summary == "Only 2 of 4 ranks joined the group."


ID = "[3] is retrieving ncclUniqueId from [0] via c10d key-value store, but got error: "


def test_the_rank_that_publishes_nccl_s_id_is_late(log):
    """A rank waits for the id; the rank in brackets is not there yet."""
    text = f"{ID}Socket Timeout"
    story = log().raised(3, "torch.distributed.DistBackendError", text)

    assert story.answer == ("id_missing", "hang", (0,))


def test_the_rank_that_publishes_nccl_s_id_is_gone(log):
    """Its store closed the connection: it went, and why is not told."""
    text = f"{ID}Connection reset by peer"
    story = log().raised(3, "torch.distributed.DistBackendError", text)

    assert story.answer == ("id_missing", "store_lost", (0,))
