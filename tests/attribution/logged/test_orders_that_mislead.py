"""Orders that mislead: what stands first, last or alone in a log is often a victim."""

from dsup.facts.logs.line import Place

OOM = "CUDA out of memory. Tried to allocate 2.50 GiB."


def test_root_cause_is_the_lowest_index_of_one_look(log):
    """The summary names rank 0, but the traceback of rank 2 stands in the log."""
    story = log(world_size=4).raised(2, "ValueError", "bad record").lost(0, 1, 3)
    for rank in (1, 2, 3):
        story.ended(rank, 1, at=100.0)
    story.ended(0, 1, "root_cause", at=100.0)

    assert story.answer == ("raised", "python_exception", (2,))
    assert story.verdict.victims[0] == (0, 2, "NCCL remote error, exit code 1")


def test_equal_seconds_name_all(log):
    """Without any stream, ranks that ended in one second are several at once."""
    story = log(world_size=4).ended(1, 1, at=100.0).ended(2, 1, at=107.0)
    story.ended(0, 1, "root_cause", at=100.0)

    assert story.answer == ("summary", "python_exception", (0, 1))


def test_of_several_summaries_the_earliest_time_wins(log):
    """Each agent prints its own; the last printed need not be the first in time."""
    story = log(world_size=8).raised(
        Place(local_rank=0, node="a1"), "torch.cuda.OutOfMemoryError", OOM
    )
    story.ended(Place(0, 0, "a1"), 1, "root_cause", at=152.0)
    story.ended(Place(3, 3, "a1"), 1, at=152.0)
    story.ended(Place(4, 0, "a1"), 1, "root_cause", at=101.0)

    assert story.answer == ("raised", "cuda_oom", (4,))


def test_a_victim_may_be_printed_first(log):
    """A lost connection of rank 0 above the OOM of rank 3 is no cause of it."""
    story = log().lost(0).raised(3, "torch.OutOfMemoryError", OOM)

    assert story.answer == ("raised", "cuda_oom", (3,))
    assert [v.rank for v in story.verdict.victims] == [0]


def test_time_stamps_go_before_the_order_of_lines(log):
    """Streams are joined out of order; where all signs have a stamp, stamps count."""
    story = log().raised(5, "KeyError", "'labels'", at=131.2)
    story.raised(1, "IndexError", "list index out of range", at=104.7)

    assert story.answer == ("raised", "python_exception", (1,))
    assert story.began_s == 104.7


def test_one_stamp_alone_compares_with_nothing(log):
    """Where only one sign has a stamp, the order of the lines decides."""
    story = log().raised(5, "KeyError", "'labels'")
    story.raised(1, "IndexError", "list index out of range", at=104.7)

    assert story.answer == ("raised", "python_exception", (5,))


def test_the_only_speaker_may_be_the_guilty_one(log):
    """Rank 0 gathers alone after everybody else had said that they were done."""
    story = log(world_size=4).moved(1, 900, done=True).moved(2, 900, done=True)
    story.timed_out(0, op="_ALLGATHER_BASE")

    assert story.answer == ("lone_caller", "collective_mismatch", (0,))


def test_the_first_collective_accuses_nobody(log):
    """All ranks that time out in the first one had no way to each other."""
    story = log(world_size=4).timed_out(0, 1, 2, 3, seq=1, op="BROADCAST")

    assert story.answer == ("first_collective", "nccl_network", ())


def test_a_single_speaker_of_a_first_broadcast_accuses_nobody(log):
    """A time-out without number in a broadcast is set-up: rank 0 is not to blame."""
    story = log(world_size=2).timed_out(1, seq=None, op="BROADCAST")

    assert story.answer == ("nobody_came", "hang", ())


def test_nccl_hides_memory(log):
    """``unhandled cuda error`` is what NCCL calls a full GPU."""
    text = "NCCL error: unhandled cuda error. Last error: Cuda failure 'out of memory'"
    story = log().raised(None, "torch.distributed.DistBackendError", text)

    assert story.answer == ("raised", "cuda_oom", ())


def test_a_sigkill_by_the_launcher_is_no_kill_for_memory(log):
    """The agent kills what does not heed SIGTERM: that rank is a victim."""
    story = log(world_size=2).raised(1, "ValueError", "bad record")
    story.ended(0, -9, by_launcher=True).ended(1, 1)

    assert story.answer == ("raised", "python_exception", (1,))
    assert story.verdict.victims == ((0, 1, "ended by its launcher"),)


def test_a_summary_may_tell_of_the_launcher_s_own_sigkill(log):
    """The agent sent it SIGTERM, then SIGKILL; the summary knows the status alone."""
    story = log(world_size=2)
    story.ended(0, None, "agent", by_launcher=True).ended(0, -9, "root_cause")

    assert story.answer == ("ended_by_launcher", "unknown", ())


def test_a_sigkill_without_a_word_is_from_outside(log):
    """Without an OOM text or a memory-heavy phase, nobody is called out of memory."""
    story = log(world_size=2).moved(0, 500).ended(1, -9, "agent").printed("step 500")

    assert story.answer == ("killed", "killed", (1,))
    assert story.verdict.certainty == "likely"
    assert any("kernel log" in text for text in story.verdict.would_change)


def test_a_sigkill_while_a_model_is_loaded_is_likely_memory(log):
    """Reading a whole model fills the host's memory; still only a guess."""
    story = log().ended(3, -9, "agent").printed("Loading checkpoint shards:  43%")

    assert story.answer == ("killed", "host_oom", (3,))
    assert story.verdict.certainty == "guess"


def test_a_sigkill_and_the_scheduler_s_word(log):
    """Slurm's oom-kill event makes it proven."""
    story = log().ended(3, 137, "srun")
    story.said(None, "oom_host", "slurmstepd: error: Detected 1 oom_kill event")

    assert story.answer == ("killed", "host_oom", (3,))
    assert story.verdict.certainty == "proven"


def test_exit_2_of_all_is_argparse(log):
    """Refused arguments end every rank with 2; none of them is named."""
    story = log(world_size=2).ended(0, 2, at=10.0).ended(1, 2, at=10.0)

    assert story.answer == ("summary", "config_error", ())


def test_all_ranks_alike(log):
    """The same exception on every rank of the world blames no single one."""
    story = log(world_size=3)
    for rank in (1, 2, 0):
        story.raised(rank, "ModuleNotFoundError", "No module named 'apex'")

    assert story.answer == ("all_alike", "import_error", (0, 1, 2))
    assert story.verdict.summary == (
        "All 3 ranks raised ModuleNotFoundError: No module named 'apex'."
    )


def test_the_wait_began_before_its_time_out(log):
    """A watchdog speaks half an hour after the moment that is to be looked at."""
    story = log(world_size=3).timed_out(1, 2, seq=90, at=5000.0, ran_ms=1800000)

    assert story.answer == ("silent", "hang", (0,))
    assert story.began_s == 3200.0


def test_a_straggler_may_speak_like_a_victim(log):
    """Rank 2 comes after the others gave up, and prints a remote error itself."""
    story = log(world_size=4)
    for rank in (0, 1, 3):
        story.moved(rank, 700)
    story.moved(2, 650).timed_out(0, 1, 3).lost(2)

    assert story.answer == ("came_late", "hang", (2,))


def test_only_victims_say_who_is_missing(log):
    """A communication error is never the cause while a rank's end is unexplained."""
    story = log(world_size=8).lost(1, 2, 3).moved(0, 120)

    assert story.answer == ("only_victims", "unknown", ())
    assert story.verdict.certainty == "unknown"
    assert story.verdict.would_change[0].startswith("the log of ranks 0, 4")


def test_a_lost_network_only_if_everybody_is_accounted_for(log):
    """All ranks of the world lost each other and nobody ended otherwise."""
    story = log(world_size=2).lost(0, 1)

    assert story.answer == ("only_victims", "nccl_network", ())
