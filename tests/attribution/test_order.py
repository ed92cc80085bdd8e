"""Hangs that flight recorders tell: who has called what by which number."""

import pytest

from dsup.attribution.collectives import stuck
from dsup.facts.flight_recorder import WORLD, Call, Group, Trace
from dsup.facts.gpu_load import Load
from dsup.facts.stacks import Frame

OWN = (Frame("/srv/train.py", 52, "step"),)


def group(number, op="all_reduce", *, name="0", inside="", ranks=()):
    """Return what a rank has called in a group; ``inside`` is the last one's state."""
    state, started = inside or "completed", inside == "started"
    text = WORLD if name == "0" else ""
    begun = number if started or not inside else number - 1
    calls = tuple(
        Call(name, n, "all_reduce", "completed", "[1] Float", 0, OWN)
        for n in range(max(number - 3, 1), number)
    )
    last = Call(name, number, op, state, "[1] Float", 0, OWN)
    done = number - 1 if inside else number
    return name, Group(text, number, begun, done, ranks), (*calls, last)


def trace(rank, *groups):
    """Return the trace of a rank."""
    return Trace(
        rank,
        {name: at for name, at, _ in groups},
        tuple(call for *_, calls in groups for call in calls),
    )


def traces(**by_rank):
    """Return traces of ``r0=group(…)``, or of several groups."""
    told = {int(name[1:]): groups for name, groups in by_rank.items()}
    return {
        rank: trace(rank, *([groups] if isinstance(groups[0], str) else groups))
        for rank, groups in told.items()
    }


WAITS = group(9, inside="scheduled")
MISSING = traces(r0=WAITS, r1=WAITS, r2=group(8), r3=WAITS)


def told(story):
    """Return the evidence of recorders as one text."""
    return "\n".join(e.text for e in story.verdict.evidence if e.source == "order")


def test_a_rank_that_did_not_call_what_the_others_wait_in(incident):
    """Where stacks say the same of one moment, that is proof."""
    story = incident().hung(2).but(traces=MISSING).at(2, "dataset.py:88 in read")
    for rank in (0, 1, 3):
        story.at(rank, "all_reduce", "train.py:52")

    assert story.answer == ("called_out_of_order", "hang", (2,), "proven")
    assert story.verdict.summary == (
        "Rank 2 hung at dataset.py:88, before all_reduce #9; "
        "the other 3 wait for it there."
    )
    assert told(story) == (
        "rank 2 finished #8; ranks 0, 1 and 3 are inside all_reduce #9\n"
        "rank 2 called last: all_reduce #8 [1] Float at train.py:52 in step"
    )


def test_behind_a_device_the_numbers_tell_what_stacks_do_not(incident):
    """With NCCL a rank may be anywhere while its device waits; twice is proof."""
    story = incident().hung(2).but(traces=MISSING)
    for rank in range(4):
        story.at(rank, f"train.py:{60 + rank}")

    assert story.answer == ("called_out_of_order", "hang", (2,), "likely")
    assert story.but(traces_before=MISSING).answer[3] == "proven"


def test_the_number_is_not_in_the_signature(incident):
    """The next attempt hangs at another one."""
    here = incident().hung(2).but(traces=MISSING).at(2, "dataset.py:88")
    later = {
        r: trace(r, group(40, inside="scheduled") if r != 2 else group(39))
        for r in range(4)
    }
    there = incident().hung(2).but(traces=later).at(2, "dataset.py:88")

    assert "#40" in there.verdict.summary
    assert here.verdict.signature == there.verdict.signature


def test_another_function_by_the_same_number(incident):
    """The odd one took a branch."""
    odd = group(9, "broadcast", inside="scheduled")
    story = incident().hung().but(traces=traces(r0=WAITS, r1=odd, r2=WAITS, r3=WAITS))

    rule, cause, ranks, _ = story.answer
    assert (rule, cause, ranks) == ("called_out_of_order", "collective_mismatch", (1,))
    assert story.verdict.summary == (
        "Rank 1 likely called broadcast as #9 where the other 3 called all_reduce."
    )
    assert told(story).startswith("as #9, rank 1 called broadcast, the other 3 all_")


def test_another_size_by_the_same_number(incident):
    """The function is the same, and its tensors are not."""
    name, at, calls = group(9, inside="scheduled")
    large = name, at, (*calls[:-1], calls[-1]._replace(sizes="[8] Float"))
    held = traces(r0=WAITS, r1=large, r2=WAITS, r3=WAITS)
    story = incident().hung().but(traces=held)

    assert "Rank 1 likely called all_reduce of [8] Float as #9 where the other 3" in (
        story.verdict.summary
    )


def test_two_of_two_that_differ_name_nobody(incident):
    """Which of them is wrong nobody can tell."""
    odd = group(9, "barrier", inside="scheduled")
    story = incident(2).hung().but(traces=traces(r0=WAITS, r1=odd))

    assert story.answer[1:3] == ("collective_mismatch", ())


def test_all_inside_and_none_missing(incident):
    """The network, likely so if it is the first of all."""
    story = incident(2).hung().but(traces=traces(r0=WAITS, r1=WAITS))
    first = group(1, inside="scheduled")
    fresh = incident(2).hung().but(traces=traces(r0=first, r1=first))

    assert story.answer == ("called_out_of_order", "hang", (), "likely")
    assert "None" not in story.verdict.summary
    assert "none is missing: the network between" in story.verdict.summary
    assert "likely the network between" in fresh.verdict.summary


def test_a_rank_without_a_trace_may_be_the_one(incident):
    """Nothing is said of it but that it gave none; the stacks decide."""
    known = {rank: MISSING[rank] for rank in (0, 1, 3)}
    story = incident().hung(2).but(traces=known).at(2, state="T")

    assert story.answer[0] == "froze"
    assert "all_reduce #9; none has finished it; rank 2 gave no trace" in told(story)


def test_a_rank_that_waits_elsewhere_is_followed():
    """Rank 1 is missing in the world because rank 2 is missing in their group."""
    pair = group(4, name="tp", inside="scheduled", ranks=(1, 2))
    found = stuck(
        traces(
            r0=WAITS,
            r1=(group(8), pair),
            r2=(group(8), group(3, name="tp", ranks=(1, 2))),
        ),
        3,
    )

    assert (found.kind, found.ranks) == ("absent", (2,))


def test_ranks_that_wait_for_each_other_in_two_groups():
    """Each has called first what the other calls second."""
    found = stuck(
        traces(
            r0=(group(5, name="a", inside="scheduled"), group(2, name="b")),
            r1=(group(4, name="a"), group(3, name="b", inside="scheduled")),
        ),
        2,
    )

    assert (found.kind, found.ranks) == ("circle", ())


def test_a_device_that_has_not_begun():
    """Only where starts are recorded; else all would look so."""
    begun = group(9, inside="started")

    assert stuck(traces(r0=begun, r1=begun, r2=WAITS), 3)[:2] == ("not_started", (2,))
    assert stuck(traces(r0=WAITS, r1=WAITS, r2=WAITS), 3).kind == "everyone"


def test_a_message_that_nobody_sends():
    """The one at the other end, as its group counts ranks."""
    waits = Call("pp", 0, "recv 1<-0", "scheduled", message=True)
    ranks = Group("", ranks=(2, 3))
    held = {3: Trace(3, {"pp": ranks}, (waits,)), 2: Trace(2, {"pp": ranks})}

    found = stuck(held, 4)
    assert (found.kind, found.ranks, found.waiting) == ("absent", (2,), (3,))


@pytest.mark.parametrize("size", [0, 1, 4])
def test_nobody_waits(size):
    """Nothing, one rank alone, or all at the same place with all done."""
    held = {rank: trace(rank, group(8)) for rank in range(size)}

    assert stuck(held, size).kind == "none"


def test_what_gpus_did_stands_beside_it(incident):
    """The first rank's, and that of one that waits."""
    loads = {2: Load(2, 0, 0), 0: Load(0, 100, 0, 118.0, 0)}
    story = incident().hung(2).but(traces=MISSING, loads=loads)
    said = [e.text for e in story.verdict.evidence if e.source == "nvml"]

    assert said == [
        "rank 2: GPU 2 idle: nothing runs on it",
        "rank 0: GPU 0 busy 100 % with memory idle: a kernel spins; 118 W, P0",
    ]
