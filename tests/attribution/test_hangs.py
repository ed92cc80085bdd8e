"""Hangs that dsup confirmed: who is named, and where, by states and by stacks."""

import pytest

WAITS = ("all_reduce", "train.py:52")


def waiting(story, *ranks, calls=WAITS, before=True):
    """Let ranks wait, both when it was suspected and at the end."""
    for rank in ranks:
        story.at(rank, *calls)
        if before:
            story.at(rank, *calls, before=True)
    return story


def absent(incident, *calls, twice=True, **how):
    """Return the incident of rank 2, elsewhere while three wait in all_reduce."""
    story = waiting(incident().hung(2, why="absent"), 0, 1, 3)
    if twice:
        story.at(2, *calls, before=True, **how)
    return story.at(2, *calls, **how)


def evidence(story):
    """Return the lines of evidence as one text."""
    return "\n".join(e.text for e in story.verdict.evidence)


def test_one_rank_did_not_come(incident):
    """It is named, with its place, and with what the others wait in."""
    story = absent(incident, "dataset.py:88 in read", "train.py:50")

    assert story.answer == ("never_came", "hang", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 hung at dataset.py:88, before all_reduce; "
        "the other 3 wait for it there."
    )
    assert story.verdict.at_s == 110.0
    said = evidence(story)
    assert "ranks 0, 1 and 3 wait in all_reduce, at train.py:52 in main both" in said
    assert "read (dataset.py:88) < main (train.py:50); the same when" in said
    assert "no progress for 90 s (usual step 0.1 s)" in said


def test_stacks_seen_once_are_likely(incident):
    """One look may have met a rank on its way."""
    story = absent(incident, "dataset.py:88 in read", twice=False)

    assert story.answer == ("never_came", "hang", (2,), "likely")
    assert story.verdict.summary.startswith("Rank 2 likely hung at dataset.py:88")


def test_a_rank_that_moves_is_likely(incident):
    """It did not come, but it is somewhere else each time: slow, perhaps."""
    story = absent(incident, "dataset.py:91 in read", twice=False)
    story.at(2, "dataset.py:88 in read", before=True)

    assert story.answer == ("never_came", "hang", (2,), "likely")
    assert "dataset.py:88 when it was first suspected" in evidence(story)


def test_the_same_place_has_the_same_signature(incident):
    """Another rank at the same line is the same failure; another line is not."""
    here = absent(incident, "dataset.py:88 in read").verdict.signature
    again = waiting(incident().hung(1), 0, 2, 3).at(1, "dataset.py:88 in read")
    there = absent(incident, "dataset.py:12 in read").verdict.signature

    assert here == again.verdict.signature == "hang never_came all_reduce dataset.py:88"
    assert there != here


def test_no_line_of_a_library_is_in_a_signature(incident):
    """A newer version of a library is the same failure."""
    story = waiting(incident().hung(2), 0, 1, 3).at(2, "poll")

    assert story.verdict.signature == "hang never_came all_reduce connection.py wait"


def test_waiting_below_a_line_of_the_script(incident):
    """Nearly all ranks at one line may wait there in C++, or hang there themselves."""
    story = waiting(incident().hung(), 0, 1, 3, calls=("train.py:60",))
    story.at(2, "dataset.py:88 in read")

    story.at(2, "dataset.py:88 in read", before=True)

    assert story.answer == ("never_came", "hang", (2,), "guess")
    assert "the other 3 are at train.py:60" in story.verdict.summary


@pytest.mark.parametrize(
    ("calls", "named"),
    [
        pytest.param(("ddp", "t.py:1"), "DistributedDataParallel's", id="DDP"),
        pytest.param(
            ("join", "dsup_barrier", "t.py:1"), "barrier", id="the runtime's barrier"
        ),
    ],
)
def test_other_ways_to_wait(incident, calls, named):
    """DDP waits by itself; the runtime's barrier waits in a thread of its own."""
    story = waiting(incident().hung(), 0, 1, 3, calls=calls).at(2, "d.py:8")

    assert story.answer[:3] == ("never_came", "hang", (2,))
    assert f"before {named}" in story.verdict.summary


def test_the_worker_of_a_data_loader_tells_the_place(incident):
    """The rank waits for its DataLoader; what it waits for is the worker's place."""
    story = absent(incident, "poll", "loader", "train.py:50")
    story.at(2, "poll", "worker", "train.py:50", pid=2001)
    story.at(2, "dataset.py:88 in read", "worker", "train.py:50", pid=2002)

    assert story.answer == ("never_came", "hang", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 hung in its DataLoader (a worker is at dataset.py:88), before "
        "all_reduce; the other 3 wait for it there."
    )
    assert "helper 2002: read (dataset.py:88)" in evidence(story)
    assert "helper 2001: idle" in evidence(story)


def test_a_data_loaders_worker_asleep_in_the_kernel(incident):
    """It is where the storage is that does not answer."""
    story = absent(incident, "poll", "loader", "train.py:50")
    story.at(2, state="D", wchan="nfs_wait_bit_killable", pid=2002)

    assert (
        "a worker is asleep in the kernel (nfs_wait_bit_killable)"
        in story.verdict.summary
    )


def test_a_data_loader_whose_workers_are_idle(incident):
    """Nobody works for it: the place is where the rank asks for its batch."""
    story = absent(incident, "poll", "loader", "train.py:50")
    story.at(2, "poll", "worker", "train.py:50", pid=2001)

    assert "Rank 2 hung at train.py:50, in its DataLoader," in story.verdict.summary


@pytest.mark.parametrize(
    ("calls", "wchan"),
    [
        pytest.param(("bank.py:12 in pay",), "futex_wait_queue", id="with lock"),
        pytest.param(("bank.py:12 in pay",), "", id="with lock, wchan unreadable"),
        pytest.param(("join", "bank.py:12 in pay"), "futex_do_wait", id="join"),
    ],
)
def test_two_threads_that_wait_for_each_other(incident, calls, wchan):
    """Both places are told; what it looks like is likely, as no stack shows a lock."""
    pump = ("pump", "bank.py:30 in take", "bank.py:40 in run")
    story = absent(incident, *calls, wchan=wchan, threads=[pump])

    assert story.answer == ("never_came", "hang", (2,), "likely")
    assert (
        "Rank 2 likely hung at bank.py:12 (it looks like a deadlock with its thread at "
        "bank.py:30)" in story.verdict.summary
    )
    assert "thread pump: take (bank.py:30) < run (bank.py:40)" in evidence(story)
    assert story.verdict.signature.endswith("deadlock bank.py:12 bank.py:30")


def test_a_thread_beside_a_rank_that_sleeps_is_no_deadlock(incident):
    """Where the kernel says that the main thread waits for no lock."""
    beside = ("watch", "watch.py:9")
    story = absent(
        incident, "t.py:1", wchan="hrtimer_nanosleep", threads=[beside], twice=False
    )

    assert "deadlock" not in story.verdict.summary


def test_several_ranks_did_not_come(incident):
    """The few are named, not the many that wait for them."""
    story = waiting(incident(8).hung(), *range(6))
    for rank in (6, 7):
        story.at(rank, "dataset.py:88").at(rank, "dataset.py:88", before=True)

    assert story.answer == ("never_came", "hang", (6, 7), "proven")
    assert "the other 6 wait for them there" in story.verdict.summary


def test_several_ranks_that_did_not_come_and_are_at_different_places(incident):
    """One of them may wait for a lock of another's: each place is told, none proven."""
    story = waiting(incident(5).hung(), 2, 3, 4)
    for before in (True, False):
        story.at(0, "files.py:7", before=before).at(1, "files.py:9", before=before)

    assert story.answer == ("never_came", "hang", (0, 1), "likely")
    assert story.verdict.summary == (
        "Ranks 0 and 1 likely hung (rank 0 at files.py:7, rank 1 at files.py:9), "
        "before all_reduce; the other 3 wait for them there."
    )


def test_a_collective_that_runs_the_users_own_code(incident):
    """An object that is pickled on its way in: that rank has not entered it."""
    story = waiting(incident(2).hung(), 0, calls=("all_reduce", "train.py:10"))
    story.at(1, "data.py:6 in __getstate__", "all_reduce", "train.py:10")

    assert story.answer == ("never_came", "hang", (1,), "likely")
    assert story.verdict.summary.startswith("Rank 1 likely hung at data.py:6, before")


def test_the_one_whose_stack_could_not_be_taken(incident):
    """All others wait: it is the one that did not come, whatever it does."""
    story = waiting(incident().hung(), 0, 1, 3).at(2)

    assert story.answer == ("never_came", "hang", (2,), "likely")
    assert story.verdict.summary.startswith("Rank 2 likely hung before all_reduce;")


def test_another_collective(incident):
    """One rank has branched off: it is named with both calls."""
    story = waiting(incident().hung(), 0, 1, 3)
    waiting(story, 2, calls=("broadcast", "train.py:61"))

    assert story.answer == ("called_another", "collective_mismatch", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 called broadcast where the other 3 called all_reduce."
    )


def test_two_ranks_in_two_collectives(incident):
    """Neither is more usual than the other."""
    story = waiting(incident(2).hung(), 0)
    waiting(story, 1, calls=("barrier", "train.py:70"))

    assert story.answer[:3] == ("called_another", "collective_mismatch", ())
    assert "rank 0 all_reduce, rank 1 barrier" in story.verdict.summary


def test_the_same_collective_at_another_line_is_no_mismatch(incident):
    """A script may call the same one in either branch."""
    story = waiting(incident().hung(), 0, 1, 3)
    waiting(story, 2, calls=("all_reduce", "train.py:61"))

    assert story.answer == ("nobody_is_missing", "hang", (), "guess")
    assert "rank 2 waits in all_reduce, at train.py:61" in evidence(story)


def test_sending_and_receiving_are_no_mismatch(incident):
    """The stages of a pipeline wait in different calls by nature."""
    story = waiting(incident().hung(), 0, 1, calls=("send", "pipe.py:1"))
    waiting(story, 2, 3, calls=("recv", "pipe.py:2"))

    assert story.answer == ("nobody_is_missing", "hang", (), "guess")


@pytest.mark.parametrize(
    ("gone", "certainty"),
    [
        pytest.param((), "likely", id="the others do something else"),
        pytest.param((1, 2, 3), "likely", id="the others have ended with 0"),
    ],
)
def test_one_rank_in_a_collective_of_its_own(incident, gone, certainty):
    """The only one that waits is the guilty one then: nobody else will ever come."""
    story = waiting(incident().hung(), 0, calls=("barrier", "save.py:9"))
    for rank in (1, 2, 3):
        if rank in gone:
            story.ended(rank, 0)
        else:
            story.at(rank, f"t.py:{rank}").at(rank, f"t.py:{rank}", before=True)

    assert story.answer == ("came_alone", "hang", (0,), certainty)
    assert "alone in barrier at save.py:9" in story.verdict.summary
    assert "only this rank takes" in story.verdict.advice.text


@pytest.mark.parametrize(
    ("calls", "step", "certainty"),
    [
        pytest.param(("init", "t.py:1"), None, "likely", id="making the group"),
        pytest.param(WAITS, 0, "likely", id="before any step"),
        pytest.param(WAITS, 412, "guess", id="later"),
        pytest.param(("train.py:60",), 412, "guess", id="at one line"),
    ],
)
def test_all_wait_and_none_is_missing(incident, calls, step, certainty):
    """Nobody is guilty; in the first collective the network is not set up."""
    story = waiting(incident().hung(0, 1, 2, 3), 0, 1, 2, 3, calls=calls)
    for rank in range(4):
        if step is not None:
            story.beat(rank, step)

    assert story.answer == ("nobody_is_missing", "hang", (), certainty)
    assert "none is missing" in story.verdict.summary
    assert story.verdict.advice.action == "check_network"


@pytest.mark.parametrize(
    ("calls", "at"),
    [
        pytest.param(("train.py:50",), " at train.py:50", id="read from outside"),
        pytest.param((), "", id="not read"),
    ],
)
def test_a_frozen_rank(incident, calls, at):
    """State T is proof; where it stood is told if that could be read."""
    story = waiting(incident().hung(2, why="frozen"), 0, 1, 3)
    story.at(2, *calls, state="T")

    assert story.answer == ("froze", "hang", (2,), "proven")
    assert story.verdict.summary == (
        f"Rank 2 hung{at}: it was stopped by SIGSTOP (state T), and the other 3 waited."
    )
    assert story.verdict.evidence[0].source == "state"


def test_a_frozen_rank_without_any_stacks(incident):
    """The look just before dsup's signal says as much."""
    story = incident().hung(1, why="frozen").stood(0, 2, 3).stood(1, state="T")

    assert story.answer == ("froze", "hang", (1,), "proven")


def test_a_rank_asleep_in_the_kernel(incident):
    """State D for a minute is proof; where in the kernel it sleeps is told."""
    story = waiting(incident().hung(2, why="asleep"), 0, 1, 3)
    story.at(2, "spawn.py:7 in start", state="D", wchan="kernel_clone")

    assert story.answer == ("slept", "hang", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 hung at spawn.py:7: it was asleep in the kernel (state D, "
        "kernel_clone), and the other 3 waited."
    )


def test_a_waiting_rank_that_was_seen_in_state_d_for_a_moment(incident):
    """The one that did not come is the cause, not one that waits for it."""
    story = waiting(incident().hung(2, why="absent"), 0, 1)
    story.at(3, *WAITS, state="D").at(2, "dataset.py:88")

    assert story.answer[:3] == ("never_came", "hang", (2,))


@pytest.mark.parametrize(
    ("wchan", "cause", "certainty"),
    [
        pytest.param("rpc_wait_bit_killable", "storage_io", "proven", id="NFS"),
        pytest.param("request_wait_answer", "storage_io", "proven", id="FUSE"),
        pytest.param("uvm_lock", "hang", "likely", id="a driver"),
    ],
)
def test_all_sleep_at_the_same_place(incident, wchan, cause, certainty):
    """What does not answer is common to all: no rank is named."""
    story = incident().hung(0, 1, 2, 3, why="asleep")
    for rank in range(4):
        story.at(rank, "ckpt.py:1", state="D", wchan=wchan)

    assert story.answer == ("storage_is_silent", cause, (), certainty)
    assert f"sleep in the kernel ({wchan})" in story.verdict.summary


def test_an_early_exit_that_the_others_wait_for(incident):
    """Exit 0 before the others: it is the cause of their standing still."""
    story = waiting(incident().hung(0, 1, 3).ended(2, 0), 0, 1, 3)

    assert story.answer == ("left_others_waiting", "early_exit", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 ended with exit 0, while the other 3 wait in all_reduce."
    )


@pytest.mark.parametrize(
    ("left", "answer"),
    [
        pytest.param(
            {0: "save.py:6"}, ("made_no_step", "hang", (0,), "guess"), id="one is left"
        ),
        pytest.param(
            {0: "eval.py:3", 1: "eval.py:3"},
            ("made_no_step", "hang", (0, 1), "guess"),
            id="several at one line",
        ),
    ],
)
def test_whoever_was_ready_is_not_blamed_by_who_works_on(incident, left, answer):
    """Nobody is inside of a collective, so nobody waits for a rank that ended well."""
    size = len(left) + 1
    story = incident(size).hung(*left).ended(size - 1, 0)
    for rank, line in left.items():
        story.at(rank, line).at(rank, line, before=True)

    assert story.answer == answer
    assert f"may have hung at {left[0]}" in story.verdict.summary


def test_an_early_exit_that_the_others_do_not_wait_for(incident):
    """Whoever is absent among those that are there goes before one that has left."""
    story = waiting(incident().hung(), 0, 1).ended(3, 0).at(2, "dataset.py:88")

    assert story.answer[:3] == ("never_came", "hang", (2,))


def test_no_stacks_at_all(incident):
    """What the heartbeats told is left: who was behind."""
    story = incident().hung(3)
    for rank in range(4):
        story.beat(rank, 10 + (rank != 3))

    assert story.answer == ("made_no_step", "hang", (3,), "likely")
    assert story.verdict.summary == "Rank 3 likely hung: it made no step for 90 s."


def test_ranks_that_die_together_of_dsups_signal(incident):
    """They were dying when the first of them was seen to end: of that very signal."""
    story = absent(incident, "dataset.py:88 in read")
    for rank in range(4):
        story.stood(rank, at=100.0, status=None).ended(
            rank, -15, 100.1, dying=bool(rank)
        )

    assert story.answer == ("never_came", "hang", (2,), "proven")
    assert story.verdict.ended_by_dsup == (0, 1, 2, 3)


def test_a_single_rank(incident):
    """It waits for nobody: its own place is all there is to say."""
    story = incident(1).hung(0).at(0, "train.py:7").at(0, "train.py:7", before=True)

    assert story.answer == ("made_no_step", "hang", (0,), "proven")
    assert "Rank 0 hung at train.py:7: it showed no progress" in story.verdict.summary


def test_all_ranks_elsewhere(incident):
    """Nobody waits for anybody, and nobody is named."""
    story = incident().hung(0, 1, 2, 3)
    for rank in range(4):
        story.at(rank, f"train.py:{rank + 1}")

    assert story.answer == ("made_no_step", "hang", (), "guess")


@pytest.mark.parametrize(
    "met",
    [
        pytest.param(["group.py:70"] * 4, id="all at the same line"),
        pytest.param(["group.py:70"] * 3 + ["train.py:9"], id="another one elsewhere"),
    ],
)
@pytest.mark.parametrize("state", ["S", "D"])
def test_a_rank_alone_makes_no_step_while_the_others_do(incident, met, state):
    """Nobody waits for it: it is named, whatever moment the stacks have met."""
    story = incident().hung(1).beat(1, 16, at=10.0)
    for rank, line in enumerate(met):
        story.at(rank, line, state=state if rank == 2 else "S")
    for rank in (0, 2, 3):
        story.beat(rank, 120, at=99.0)

    assert story.answer == ("made_no_step", "hang", (1,), "likely")


def test_a_lost_gpu_goes_before_what_hangs_because_of_it(incident):
    """No rule about hangs hides what the kernel says of a device."""
    story = waiting(incident().hung(2), 0, 1, 3).at(2, "train.py:9")

    names = [one.rule for one in story.verdict.looked]

    assert names.index("gpu_failed") < names.index("froze")
    assert names.index("made_no_step") < names.index("killed_from_outside")
