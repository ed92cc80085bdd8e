"""What watchdogs, checks and traces of communication libraries tell."""

from __future__ import annotations

from dsup.facts.logs.extract import attempt
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import LoggedAttempt


def read(*texts: str | tuple[int, str]) -> LoggedAttempt:
    """Return what lines tell; a pair is a line that torch marked with its rank."""
    lines = []
    for order, text in enumerate(texts):
        rank, said = text if isinstance(text, tuple) else (None, text)
        ranked = rank is not None
        lines.append(
            LogLine(said, Place(rank), "job.log", order + 1, order, ranked=ranked)
        )
    return attempt(lines, 0)


OLD = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=335, "
    "OpType=ALLREDUCE, NumelIn=12, NumelOut=12, Timeout(ms)=600000) ran for 600041 "
    "milliseconds before timing out."
)


def test_reads_a_time_out_with_all_its_numbers() -> None:
    """Sequence number, operation, size and waiting time are compared across ranks."""
    [told] = read((1, OLD)).collectives
    assert (told.kind, told.place.rank, told.seq) == ("timeout", 1, 335)
    assert (told.op, told.size, told.ran_ms) == ("ALLREDUCE", 12, 600041)


def test_reads_a_time_out_of_a_torch_that_counts_nothing() -> None:
    """Before 1.13 the line had neither sequence number nor size."""
    text = (
        "  what():  [Rank 2] Watchdog caught collective operation timeout: WorkNCCL("
        "OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800488 milliseconds"
    )
    [told] = read(text).collectives
    assert (told.place.rank, told.seq, told.op) == (2, None, "BROADCAST")


def test_reads_how_much_a_rank_had_enqueued() -> None:
    """Newer lines tell the work that hangs, the last enqueued and the last done."""
    for text in (
        (
            "[PG 0 Rank 3] Timeout at NCCL work: 19, last enqueued NCCL work: 21, "
            "last completed NCCL work: 18."
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 3] failure detected by "
            "watchdog at work sequence id: 19 PG status: last enqueued work: 21, "
            "last completed work: 18"
        ),
    ):
        [told] = read(text).collectives
        assert (told.seq, told.enqueued, told.completed) == (19, 21, 18)
        assert (told.place.rank, told.group) == (3, "")


def test_a_rank_inside_a_group_is_not_global() -> None:
    """Only in the default group are ranks those of the world."""
    text = "[PG ID 5 PG GUID 17(tensor) Rank 0] Heartbeat monitor timed out!"
    [told] = read(text).collectives
    assert (told.place.rank, told.group) == (None, "tensor")


def test_one_number_with_many_works_is_no_rank() -> None:
    """Without names of groups "Rank 0" of three works is rank 0 of three groups."""
    texts = [OLD.replace("335", str(seq)) for seq in (335, 401, 777)]
    assert {told.place.rank for told in read(*texts).collectives} == {None}


def test_looks_behind_the_words_of_a_watchdog() -> None:
    """A CUDA error wears a time-out's opening words; what follows them counts."""
    opening = "[Rank 1] Process group watchdog thread terminated with exception: "
    device = read(opening + "CUDA error: unspecified launch failure")
    timeout = read(opening + OLD)
    assert [told.kind for told in device.collectives] == ["device_error"]
    assert [told.kind for told in timeout.collectives] == ["timeout"]


def test_a_peers_end_that_a_watchdog_quotes_is_a_complaint() -> None:
    """``ncclRemoteError`` around a work tells that a peer went, not of a time-out."""
    text = (
        "[Rank 1] Collective WorkNCCL(SeqNum=3, OpType=ALLREDUCE) raised the following "
        "async exception: NCCL error: remote process exited or there was a network "
        "error"
    )
    found = read(text)
    assert found.collectives == ()
    assert found.complaints[0].kind == "remote"


def test_keeps_both_sides_of_a_mismatch() -> None:
    """Two fingerprints stand in one line: what each rank called."""
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is "
        "running "
        "collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE, "
        "TensorShape=[4, 2]), but Rank 3 is running collective: CollectiveFingerPrint("
        "SequenceNumber=7, OpType=BROADCAST, TensorShape=[8])."
    )
    told = read(text).collectives
    assert [(t.place.rank, t.op, t.size) for t in told] == [
        (0, "ALLREDUCE", 8),
        (3, "BROADCAST", 8),
    ]


def test_keeps_whom_a_message_accuses() -> None:
    """A monitored barrier, a desync report and the analyzer name ranks."""
    for text, accused in (
        ("[Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 9 ms", (4, 5)),
        ("while waiting for rank 0. Please check rank 0 logs for faulty rank.", (0,)),
        ("[2, 3] finished collective #4, but didn't join collective #5", (2, 3)),
        ("Culprit rank 6; its collective differs", (6,)),
    ):
        [told] = read(text).collectives
        assert told.accused == accused


def test_maps_a_traced_call_to_its_rank_by_the_device() -> None:
    """NCCL prints host, pid and device: on one node the device is the rank."""
    lines = [
        LogLine(
            f"[{gpu}] NCCL INFO {op}: opCount 2a count 16 comm 0x5 [nranks=2]",
            Place(node="a", pid=pid),
            "job.log",
            gpu + 1,
            gpu,
        )
        for gpu, pid, op in ((0, 71, "AllReduce"), (1, 72, "AllGather"))
    ]
    told = attempt(lines, 0).collectives
    assert [(t.kind, t.place.rank, t.op, t.seq) for t in told] == [
        ("trace", 0, "ALLREDUCE", 42),
        ("trace", 1, "ALLGATHER", 42),
    ]
