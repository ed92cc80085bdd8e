"""Logs in which ranks only lost each other, and bare summaries."""

from dsup.facts.logs.line import Place

GONE = "failed to recv, got 0 bytes. Connection was likely closed."


def test_a_rank_that_had_done(log):
    """Rank 2 said that it was done before the others lost it."""
    story = log(world_size=4).moved(2, 300, done=True).lost(0, 1, 3)

    assert story.answer == ("early_exit", "early_exit", (2,))


def test_a_peer_that_the_network_does_not_reach(log):
    """A completion error names a peer, and neither its rank nor its guilt."""
    story = (
        log().lost(None).said(None, "completion", "Got completion from peer 10.0.0.9")
    )

    assert story.answer == ("port_failed", "nccl_network", ())


def test_the_store_s_host(log):
    """All other ranks of a known world miss the store: rank 0 went."""
    story = log(world_size=3)
    for rank in (1, 2):
        story.raised(rank, "torch.distributed.DistNetworkError", GONE)

    assert story.answer == ("store_gone", "store_lost", (0,))
    assert story.verdict.certainty == "guess"


def test_a_store_that_went_away(log):
    """Without the world's size the speaker alone accuses nobody."""
    story = log().raised(1, "torch.distributed.DistNetworkError", GONE)

    assert story.answer == ("store_gone", "store_lost", ())


def test_a_keep_alive_that_fails(log):
    """The agent that hosted the rendezvous is gone."""
    text = "failed to send a keep-alive heartbeat to the rendezvous: connection error"

    assert log().said(None, "node", text).answer == ("store_gone", "store_lost", ())


def test_a_node_that_failed(log):
    """The scheduler tells that it lost a node."""
    text = "srun: error: Node failure on gpu-b07"

    assert log().said(None, "node", text).answer == ("node_gone", "node_lost", ())


def test_the_one_rank_that_all_others_lost(log):
    """Its end is the one that is not explained; why, the log does not tell."""
    story = log(world_size=4).lost(0, 1, 2)

    assert story.answer == ("peer_gone", "unknown", (3,))
    assert story.verdict.would_change[0] == "the log of rank 3: no word of an end"
    assert story.verdict.victims[0] == (0, 3, "NCCL remote error")


def test_a_rank_whose_end_is_told_of_twice(log):
    """The agent's line comes before the summary's whole second, or after it."""
    for agent_s in (37.2, 38.2):
        story = log()
        story.ended(2, 1, "agent", at=agent_s).ended(2, 1, "root_cause", at=37.0)

        assert story.answer == ("summary", "python_exception", (2,))


def test_a_summary_without_a_word_of_the_rank(log):
    """A code alone names the rank and no exception."""
    story = log(world_size=4).ended(2, 1, "root_cause", at=100.0)

    assert story.answer == ("summary", "python_exception", (2,))
    assert story.verdict.summary == (
        "Rank 2 ended with exit code 1; its output is not in this log."
    )


def test_a_launcher_that_names_no_rank(log):
    """A return code is all that is known."""
    story = log().ended(None, 1, "deepspeed")

    assert story.answer == ("summary", "python_exception", ())


def test_the_end_of_a_victim_is_no_cause(log):
    """The only rank that the launcher tells of had lost its peer."""
    story = log(world_size=4).lost(1).ended(1, 1, "root_cause")

    assert story.answer == ("only_victims", "unknown", ())


def test_nodes_keep_local_ranks_apart(log):
    """Local rank 1 of two nodes is nobody's global rank."""
    story = log().ended(Place(local_rank=1, node="a"), -11, "agent")
    story.ended(Place(local_rank=0, node="b"), 1, "agent")

    assert story.answer == ("crashed", "segfault", ())


def test_nothing_is_told(log):
    """An honest answer, with the last lines as what there is."""
    story = log().printed("epoch 1", "epoch 2")

    assert story.answer == ("unknown", "unknown", ())
    assert [e.text for e in story.verdict.evidence] == ["epoch 1", "epoch 2"]


def test_a_launcher_that_only_ends_its_processes(log):
    """It ends the others once one has died: who, and how, stands nowhere."""
    story = log(launcher="deepspeed")
    story.ended(None, None, "deepspeed", by_launcher=True)

    assert story.answer == ("ended_by_launcher", "unknown", ())
    assert "dmesg" in story.verdict.advice.text


def test_output_that_was_redirected_is_asked_for(log):
    """Nobody can read a traceback that is not there: the ranks' logs are named."""
    verdict = log().ended(1, 1, "agent").verdict

    assert "--log-dir" in verdict.advice.text
    assert any("--log-dir" in text for text in verdict.would_change)


def test_lines_that_bear_their_ranks_are_not_asked_for_again(log):
    """A tree of a file for each rank has all that such a log could tell."""
    story = log(world_size=3).timed_out(0, 1, 2)

    assert story.verdict.first_ranks == ()
    assert not any("bears its rank" in text for text in story.verdict.would_change)
