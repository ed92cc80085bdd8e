"""Exceptions: whose was first, and whose are all alike."""

import pytest

MISSING = "[Errno 2] No such file or directory: 'conf/7b.yaml'"


def test_the_sentence_names_type_text_and_place(incident):
    """A reader learns what was raised and where without opening a log."""
    story = incident().lost(0, 1, 3)
    place = {"file": "/srv/train.py", "line": 203, "function": "step"}
    story.raised(2, "ValueError", "batch 812 has no labels", **place)

    assert story.answer == ("raised", "python_exception", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 raised ValueError: batch 812 has no labels (train.py:203)."
    )


def test_the_time_it_was_caught_counts_not_the_exit(incident):
    """A rank that raises first and exits last was first."""
    story = incident().noted(1, "ValueError", "first", 10.0).ended(1, 1, 12.0)
    story.raised(3, "KeyError", "'later'", 10.5).lost(0, 2)

    assert story.verdict.first_ranks == (1,)
    assert any("500 ms later" in line.text for line in story.verdict.evidence)


def test_a_communication_error_is_never_first(incident):
    """Victims may be seen, and may even raise, before their culprit is."""
    story = incident().lost(0, 1, 2, at=9.0).raised(3, "ValueError", "no", 10.0)

    assert story.verdict.first_ranks == (3,)
    assert [v.rank for v in story.verdict.victims] == [0, 1, 2]


def test_an_exception_raised_because_of_a_lost_peer_is_a_victim_s(incident):
    """What a script makes of a communication error is still of the peer's end."""
    closed = ("RuntimeError", "Connection closed by peer [10.0.0.1]:1")
    story = incident().raised(0, "train.Failed", "giving up", 9.9, causes=(closed,))
    story.ended(2, -9, 10.0).lost(1, 3)

    assert story.verdict.first_ranks == (2,)


def test_what_a_rank_raises_after_dsup_s_signal_is_no_evidence(incident):
    """A handler of SIGTERM may raise anything."""
    story = incident().ended(2, 7).stood(0, 1, 3, at=12.0)
    story.noted(0, "RuntimeError", "stopped", 12.01)

    assert story.verdict.first_ranks == (2,)


@pytest.mark.parametrize(
    ("source", "certainty"),
    [
        pytest.param("note", "proven", id="a note"),
        pytest.param("error_file", "proven", id="error.json"),
        pytest.param("stderr", "likely", id="stderr alone"),
    ],
)
def test_certainty_depends_on_the_source(incident, source, certainty):
    """What stands on stderr may have been handled; a hook's word is proof."""
    story = incident().lost(0, 1, 3).ended(2, 1)
    if source == "stderr":
        story.showed(2, "ValueError", "no")
    else:
        story.noted(2, "ValueError", "no", at=None, source=source)

    assert story.answer == ("raised", "python_exception", (2,), certainty)


def test_an_exception_on_stderr_with_another_exit_code(incident):
    """A rank that logs an exception and chooses its code has both told."""
    story = incident().lost(0, 1, 3).ended(2, 5)
    story.showed(2, "ValueError", "no", frame="/s/t.py:3 in f")

    assert story.verdict.summary == (
        "Rank 2 ended with exit code 5, its stderr shows ValueError: no (t.py:3)."
    )


def test_a_printed_text_drains_no_node(incident):
    """What a rank handled and printed before it left with its own code drains none."""
    story = incident().lost(0, 1, 3).ended(2, 7)
    story.showed(2, "OSError", "CUDA error: uncorrectable ECC error encountered")

    assert story.verdict.cause == "python_exception"
    assert story.verdict.status == 7


def test_the_same_exception_everywhere_blames_no_rank(incident):
    """A failure of all ranks at one place is named as such."""
    story = incident()
    for rank in range(4):
        text = f"[rank{rank}] {MISSING}"
        story.raised(rank, "FileNotFoundError", text, 10.0 + rank / 1000, file="t.py")

    assert story.answer == ("all_alike", "config_error", (0, 1, 2, 3), "proven")
    assert story.verdict.summary.startswith("All 4 ranks raised FileNotFoundError")
    assert story.verdict.victims == ()


def test_the_same_exception_before_any_step(incident):
    """Where the heartbeat page shows no step, the sentence says so."""
    story = incident(world_size=2).beat(0, None).beat(1, None)
    story.raised(0, "KeyError", "'lr'").raised(1, "KeyError", "'lr'")

    assert (
        story.verdict.summary == "All 2 ranks raised KeyError: 'lr', before any step."
    )


def test_what_several_ranks_raised_is_cited_once(incident):
    """With how many ranks it was; another wording has a line of its own."""
    story = incident(world_size=3).raised(0, "TypeError", "batch 4 is none")
    story.raised(1, "TypeError", "batch 4 is none").raised(
        2, "TypeError", "batch 5 is none"
    )

    told = [e.text for e in story.verdict.evidence if e.source == "note"]
    assert len(told) == 2
    assert "batch 4 is none" in told[0]
    assert told[0].endswith(" (2 ranks)")
    assert "batch 5 is none" in told[1]
    assert "ranks)" not in told[1]


def test_the_same_exception_of_those_that_dsup_let_speak(incident):
    """Ranks that dsup ended first are counted, not claimed."""
    story = (
        incident().raised(1, "KeyError", "'lr'").raised(3, "KeyError", "'lr'", 10.01)
    )
    story.stood(0, 2, at=10.1)

    assert story.answer == ("all_alike", "python_exception", (1, 3), "proven")
    assert story.verdict.summary == (
        "Ranks 1 and 3 both raised KeyError: 'lr'; the other 2 showed nothing before "
        "dsup ended them."
    )


def test_the_same_exception_with_victims_has_a_first(incident):
    """Where other ranks died of it, the earlier of two equal exceptions is first."""
    story = (
        incident().raised(1, "KeyError", "'lr'").raised(3, "KeyError", "'lr'", 10.01)
    )
    story.lost(0, 2)

    assert story.answer == ("raised", "python_exception", (1,), "proven")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"type_name": "ValueError", "text": "'lr'"}, id="type"),
        pytest.param({"type_name": "KeyError", "text": "'wd'"}, id="text"),
        pytest.param({"type_name": "KeyError", "text": "'lr'", "line": 9}, id="place"),
    ],
)
def test_exceptions_that_differ_are_not_alike(incident, other):
    """Type, text and place must be the same; then the earliest is first."""
    story = (
        incident(world_size=2)
        .raised(1, "KeyError", "'lr'")
        .raised(0, at=10.01, **other)
    )

    assert story.answer == ("raised", "python_exception", (1,), "proven")


def test_the_same_code_everywhere(incident):
    """Argparse ends all ranks with 2; no rank is to blame."""
    story = incident()
    for rank in range(4):
        story.ended(rank, 2, 10.0 + rank)
        story.said(rank, "usage: t.py", "t.py: error: no --lr")

    assert story.answer == ("all_same_code", "config_error", (0, 1, 2, 3), "likely")
    assert story.verdict.summary == (
        "All 4 ranks ended with exit code 2; last line: t.py: error: no --lr."
    )


@pytest.mark.parametrize(
    ("type_name", "text", "cause"),
    [
        pytest.param(
            "torch.OutOfMemoryError", "CUDA out of memory.", "cuda_oom", id="GPU memory"
        ),
        pytest.param(
            "OSError", "[Errno 28] No space left on device", "disk_full", id="disk"
        ),
        pytest.param(
            "RuntimeError",
            "Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight",
            "checkpoint_error",
            id="checkpoint",
        ),
        pytest.param(
            "RuntimeError", "can't start new thread", "pids_limit", id="threads"
        ),
    ],
)
def test_the_exception_tells_the_cause(incident, type_name, text, cause):
    """The cause of a rank's exception is that of its type and text."""
    verdict = incident().raised(0, type_name, text).lost(1, 2, 3).verdict

    assert (verdict.cause, verdict.first_ranks) == (cause, (0,))


def test_a_full_file_system_is_cited(incident):
    """An exception about space comes with the file system that has none."""
    story = incident().raised(0, "OSError", "[Errno 28] No space left on device")
    story.lost(1, 2, 3).space("checkpoints", 0, 1 << 40).space(
        "TMPDIR", 1 << 39, 1 << 40
    )
    lines = [line.text for line in story.verdict.evidence if line.source == "counters"]

    assert lines == ["checkpoints is full: 0 MiB left (checkpoints)"]


def test_eagain_is_the_limit_of_pids_only_if_that_was_reached(incident):
    """A bare "temporarily unavailable" has many reasons; the counter tells."""
    text = "Resource temporarily unavailable"
    story = incident().raised(0, "RuntimeError", text).lost(1, 2, 3)

    assert story.verdict.cause == "python_exception"
    assert story.rose("pids_max", 0).verdict.cause == "pids_limit"


def test_two_dataloader_workers(incident):
    """The pids that the text lists are in the sentence."""
    text = "DataLoader worker (pid(s) 41, 42) exited unexpectedly"
    verdict = incident().raised(1, "RuntimeError", text).lost(0, 2, 3).verdict

    assert verdict.summary == (
        "Rank 1 lost DataLoader workers (pid 41, 42): exited unexpectedly."
    )


def test_a_dataloader_worker_lost_over_a_broken_pipe(incident):
    """A worker's broken connection inside is no peer's end."""
    text = "DataLoader worker (pid(s) 41) exited unexpectedly"
    inner = ("ConnectionResetError", "[Errno 104] Connection reset by peer")
    story = incident().raised(1, "RuntimeError", text, causes=(inner,)).lost(0, 2, 3)

    assert story.answer == ("raised", "dataloader_worker", (1,), "proven")


def test_an_exception_of_a_dataloader_worker(incident):
    """What a worker raised and the rank raised again is told by its last line."""
    text = (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback:\n"
        "  File x\nValueError: sample 7 is empty"
    )
    verdict = incident().raised(1, "ValueError", text).lost(0, 2, 3).verdict

    assert verdict.summary == (
        "Rank 1 raised ValueError: sample 7 is empty (in a DataLoader worker)."
    )


def test_alone_in_the_world_there_is_no_peer(incident):
    """With one rank, a communication error is that rank's own."""
    story = incident(world_size=1).raised(0, "ConnectionResetError", "[Errno 104]")

    assert story.answer == ("raised", "python_exception", (0,), "proven")


def fingerprint(rank, op, shape="2"):
    """Return a fingerprint as the process group's wrapper words it."""
    return (
        f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=41, "
        f"OpType={op}, TensorShape=[{shape}], TensorDtypes=Float)"
    )


def mismatch(one, two):
    """Return the text that a rank raises when two fingerprints differ."""
    return f"Detected mismatch between collectives on ranks. {one}, but {two}."


def test_the_odd_one_out_called_another_collective(incident):
    """The minority is named, with both collectives and the number."""
    odd = fingerprint(2, "BROADCAST")
    story = incident()
    for rank in (0, 1, 3):
        text = mismatch(fingerprint(rank, "ALLREDUCE"), odd)
        story.raised(rank, "RuntimeError", text, 10 + rank / 100)

    assert story.answer == ("mismatched", "collective_mismatch", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 called broadcast as #41 where the other 3 called all_reduce."
    )


def test_the_odd_one_out_had_another_shape(incident):
    """Equal collectives are told apart by their shape."""
    text = mismatch(fingerprint(0, "ALLREDUCE"), fingerprint(1, "ALLREDUCE", "3"))
    more = mismatch(fingerprint(2, "ALLREDUCE"), fingerprint(1, "ALLREDUCE", "3"))
    story = incident(world_size=3).raised(0, "RuntimeError", text)
    story.raised(2, "RuntimeError", more, 10.01)

    assert story.verdict.summary == (
        "Rank 1 called all_reduce of shape [3] as #41 where the other 2 called "
        "all_reduce of shape [2]."
    )


def test_gloo_that_was_sent_another_size_names_nobody(incident):
    """Whoever sends the wrong size is somewhere else than who notices it."""
    thrown = "terminate called after throwing an instance of 'gloo::EnforceNotMet'"
    what = "[enforce fail at tcp/pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4."
    story = incident(world_size=2).ended(0, -6).said(0, thrown, what, crash=thrown)
    story.lost(1)

    assert story.answer == ("sizes_differ", "collective_mismatch", (), "proven")
    assert story.verdict.summary == (
        "The ranks called different collectives: rank 0 was sent 8 bytes where it "
        "waited for 4."
    )


def test_two_that_differ_are_both_named(incident):
    """With no majority nobody is odd."""
    text = mismatch(fingerprint(0, "ALLREDUCE"), fingerprint(1, "BROADCAST"))
    story = incident(world_size=2).raised(0, "RuntimeError", text).stood(1)

    assert story.verdict.first_ranks == (0, 1)
    assert "rank 0 called all_reduce, rank 1 called broadcast" in story.verdict.summary


@pytest.mark.parametrize(
    ("status", "at", "rule", "certainty"),
    [
        pytest.param(1, 10.5, "raised", "likely", id="exit 1 soon after"),
        pytest.param(1, 40.0, "ended_without_words", "likely", id="exit 1 much later"),
        pytest.param(5, 10.5, "ended_without_words", "likely", id="another code"),
        pytest.param(-9, 10.5, "killed_from_outside", "proven", id="SIGKILL"),
    ],
)
def test_what_a_program_showed_and_survived_is_no_proof(
    incident, status, at, rule, certainty
):
    """An exception handed to the hook counts only where exit code 1 follows soon."""
    story = incident().noted(2, "ValueError", "shown", 10.0, handed=True)
    story.ended(2, status, at).lost(0, 1, 3, at=at + 0.1)
    verdict = story.verdict
    texts = [line.text for line in verdict.evidence if line.source == "note"]

    assert (verdict.rule, verdict.first_ranks, verdict.certainty) == (
        rule,
        (2,),
        certainty,
    )
    assert texts[0].endswith("ValueError: shown")
    assert texts[0].startswith("looked at") == (rule != "raised")


def test_a_rank_that_lives_on_after_what_it_showed_is_not_first(incident):
    """Nor is one that dsup ends later."""
    story = incident().noted(0, "ValueError", "shown", 1.0, handed=True)
    story.raised(3, "KeyError", "'lr'").lost(1, 2).stood(0)

    assert story.answer == ("raised", "python_exception", (3,), "proven")


def test_what_ended_a_program_goes_before_what_it_showed(incident):
    """The interpreter's own word is the proof."""
    story = incident().noted(2, "ValueError", "shown", 9.0, handed=True)
    story.raised(2, "KeyError", "'lr'").lost(0, 1, 3)

    assert story.verdict.summary == "Rank 2 raised KeyError: 'lr'."


def test_the_output_may_show_what_came_after(incident):
    """A traceback of another type at the end of the output is the later one."""
    story = incident().noted(2, "ValueError", "shown", 9.9, handed=True)
    story.ended(2, 1).showed(2, "KeyError", "'lr'").lost(0, 1, 3)

    assert story.verdict.summary == "Rank 2 likely raised KeyError: 'lr'."


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        pytest.param(["no shard 7", "no shard 7"], "no shard 7", id="equal"),
        pytest.param(
            ["rank 0: no shard 7", "rank 1: no shard 7"],
            "rank #: no shard 7",
            id="a number differs",
        ),
        pytest.param(
            ["x" * 161 + " left", "x" * 161 + " right"],
            "for example " + "x" * 161 + " left",
            id="more differs, far behind",
        ),
    ],
)
def test_of_texts_that_differ_none_is_quoted_as_everybody_s(incident, texts, said):
    """What is common is shown, or the text is called an example."""
    story = incident(world_size=2)
    for rank, text in enumerate(texts):
        story.raised(rank, "ValueError", text, 10 + rank / 1000)

    assert story.verdict.summary == f"All 2 ranks raised ValueError: {said}."


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param(
            1, "ended with exit code 1; its last line: ValueError: shown", id="exit 1"
        ),
        pytest.param(
            5,
            "ended with exit code 5, its stderr shows ValueError: shown",
            id="another",
        ),
    ],
)
def test_a_traceback_that_is_known_as_survived_is_not_said_to_be_raised(
    incident, status, said
):
    """It is still the last thing the rank printed, an hour later."""
    story = incident().noted(2, "ValueError", "shown", 1.0, handed=True)
    story.ended(2, status, 3600.0).showed(2, "ValueError", "shown")
    story.lost(0, 1, 3, at=3600.1)

    assert story.verdict.summary == f"Rank 2 {said}."


def test_notes_that_were_not_read_are_said(incident):
    """Of a rank that told too much, what it told last is not known."""
    verdict = incident(deafened=(2,)).ended(2, 7).lost(0, 1, 3).verdict
    said = [(line.text, line.rank) for line in verdict.evidence]

    assert ("looked at its first notes only: it sent more than are read", 2) in said


MOVED = "[enforce fail at inline_container.cc:820] . unexpected pos 1408 vs 1302"


@pytest.mark.parametrize(
    ("free_bytes", "certainty", "words"),
    [
        pytest.param(1 << 30, "likely", "; likely a full disk.", id="room by now"),
        pytest.param(0, "proven", "; full: checkpoints.", id="full"),
    ],
)
def test_a_failed_write_without_an_errno(incident, free_bytes, certainty, words):
    """Why torch's zip writer lost a write is sure only where something is full."""
    story = incident().raised(0, "RuntimeError", MOVED).lost(1, 2, 3)
    story.space("checkpoints", free_bytes, 8 << 30)
    verdict = story.verdict

    assert story.answer == ("raised", "disk_full", (0,), certainty)
    assert verdict.summary.endswith(words)
    assert any("is full" in e.text for e in verdict.evidence) == (not free_bytes)


def test_an_errno_behind_a_failed_write_is_sure(incident):
    """Where the chain has the kernel's own word, nothing else needs to be full."""
    inner = (("OSError", "[Errno 28] No space left on device"),)
    story = incident().raised(0, "RuntimeError", MOVED, causes=inner).lost(1, 2, 3)

    assert story.answer == ("raised", "disk_full", (0,), "proven")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        pytest.param(
            "unable to write to file </torch_7_3>: No space left on device (28)",
            "check_shm",
            id="shared memory",
        ),
        pytest.param(
            "[Errno 28] No space left on device: '/ckpt/7'", "free_space", id="a disk"
        ),
    ],
)
def test_what_is_full_decides_what_to_do(incident, text, action):
    """Nobody frees shared memory by deleting checkpoints."""
    story = incident().raised(0, "RuntimeError", text).lost(1, 2, 3)

    assert story.verdict.cause == "disk_full"
    assert story.verdict.advice.action == action


def test_the_kernel_s_line_about_a_crashed_worker_is_cited(incident):
    """Its pid stands in the exception of the rank that lost it."""
    text = "DataLoader worker (pid 4711) is killed by signal: Segmentation fault."
    story = incident().raised(1, "RuntimeError", text).lost(0, 2, 3)
    story.kernel("segfault", 4711, 9.9)

    assert story.answer[:3] == ("raised", "dataloader_worker", (1,))
    assert "segfault 4711 [kmsg seq 1]" in [e.text for e in story.verdict.evidence]
