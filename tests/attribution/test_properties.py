"""What holds for any timeline, however odd."""

import json
import typing

from hypothesis import given
from hypothesis import strategies as st

from dsup.attribution.accounts import accounts
from dsup.attribution.judge import judge
from dsup.attribution.timeline import (
    Beat,
    Counter,
    End,
    Hang,
    Space,
    Standing,
    Timeline,
)
from dsup.core.exits import CAUSES
from dsup.core.verdict import SUMMARY_MAX_CHARS, Certainty
from dsup.facts import kernel
from dsup.facts.output import LastWords
from dsup.facts.raised import Raised
from dsup.facts.stacks import Frame, Process, Thread

RANKS = st.integers(0, 3)
PIDS = st.sampled_from([1000, 1001, 1002, 1003, 7, 4711])
TIMES_S = st.sampled_from([99.0, 109.9, 110.0, 110.1, 112.0])
STATUSES = st.sampled_from([0, 1, 2, 7, 137, -1, -6, -7, -9, -11, -15, -40])
MISMATCH = (
    "Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=A), "
    "but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=B"
)
TEXTS = st.sampled_from(
    [
        "",
        "no labels",
        "Connection closed by peer [10.0.0.1]:1",
        "Timed out waiting 5000ms for recv operation to complete",
        "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 2000 ms",
        "DataLoader worker (pid(s) 4711) exited unexpectedly",
        MISMATCH,
        "\x1b[2J\n:",
    ]
) | st.text(max_size=40)
TYPES = st.sampled_from(
    ["ValueError", "RuntimeError", "KeyboardInterrupt", "BrokenPipeError", ""]
)


def maybe(strategy):
    """Return the strategy, or None."""
    return st.none() | strategy


def many(strategy, at_most=4):
    """Return tuples of what the strategy gives."""
    return st.lists(strategy, max_size=at_most).map(tuple)


ENDS = st.lists(
    st.builds(
        End,
        rank=RANKS,
        pid=st.sampled_from([1000, 1001]),
        status=STATUSES,
        at_s=TIMES_S,
        late_s=st.sampled_from([0.0, 0.001, 0.2]),
        dying=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda end: end.rank,
).map(lambda ends: tuple(end._replace(pid=1000 + end.rank) for end in ends))

STANDING = st.lists(
    st.builds(
        Standing,
        rank=RANKS,
        pid=st.just(0),
        state=st.sampled_from(["", "R", "S", "D", "T", "t", "Z"]),
        wchan=st.sampled_from(["", "0", "nfs_wait"]),
    ),
    max_size=4,
    unique_by=lambda stood: stood.rank,
).map(lambda all_: tuple(stood._replace(pid=1000 + stood.rank) for stood in all_))

RAISED = st.builds(
    Raised,
    rank=RANKS,
    type=TYPES,
    text=TEXTS,
    caught_s=maybe(TIMES_S | st.just(float("nan"))),
    source=st.sampled_from(["note", "error_file"]),
    pid=maybe(PIDS),
    thread=st.sampled_from(["", "", "loader"]),
    file=st.sampled_from(["", "/srv/t.py"]),
    line=maybe(st.integers(1, 9)),
    causes=many(st.tuples(TYPES, TEXTS), 2),
)

FAULTS = st.builds(
    kernel.KernelFault,
    kind=st.sampled_from(typing.get_args(kernel.Kind)),
    pid=maybe(PIDS),
    comm=maybe(TEXTS),
    cgroup=maybe(st.sampled_from(["/a/b", ""])),
    seq=maybe(st.integers(0, 3)),
    at_us=maybe(TIMES_S.map(lambda s: int(s * 1e6))),
    text=TEXTS,
    limit_kb=maybe(st.integers(0, 1 << 30)),
    address=maybe(st.integers(0, 1 << 47)),
    signum=maybe(st.sampled_from([7, 11])),
)

WORDS = st.builds(
    LastWords,
    type=TYPES,
    text=TEXTS,
    thread=st.sampled_from(["", "loader"]),
    causes=many(st.tuples(TYPES, TEXTS), 2),
    stream=st.sampled_from(["stderr", "stdout"]),
    crash=TEXTS,
    frame=st.sampled_from(["", "/t.py:3 in f", "odd", ":²"]),
    line=TEXTS,
    lines=many(TEXTS, 3),
    number=maybe(st.integers(1, 9)),
)

FRAMES = st.sampled_from(
    [
        Frame("/srv/t.py", 3, "f"),
        Frame("/srv/d.py", 8, "read"),
        Frame("", 0, ""),
        Frame("/v/site-packages/torch/distributed/x.py", 1, "all_reduce"),
        Frame("/v/site-packages/torch/distributed/x.py", 2, "recv"),
        Frame("/v/site-packages/torch/utils/data/dataloader.py", 9, "_try_get_data"),
        Frame("/usr/lib/python3.11/threading.py", 5, "acquire"),
    ]
)
STACKS = many(
    st.builds(
        Process,
        rank=RANKS,
        pid=PIDS,
        helper=st.booleans(),
        state=st.sampled_from(["", "R", "S", "D", "T", "t", "Z"]),
        wchan=st.sampled_from(["", "0", "nfs_wait", "futex_wait_queue"]),
        threads=many(st.builds(Thread, TEXTS, st.booleans(), many(FRAMES, 3)), 2),
        missing=TEXTS,
    ),
    6,
)
HANGS = st.builds(
    Hang,
    ranks=many(RANKS),
    why=st.sampled_from(["frozen", "asleep", "absent", "limit", ""]),
    at_s=TIMES_S,
    since_s=TIMES_S,
    usual_s=maybe(st.just(0.1)),
)

TIMELINES = st.builds(
    Timeline,
    attempt=st.just(0),
    world_size=st.sampled_from([1, 2, 4]),
    node=st.just("n"),
    started_s=st.just(100.0),
    hang=st.none() | HANGS,
    stacks=STACKS,
    stacks_before=STACKS,
    stacks_s=maybe(TIMES_S),
    obstacle=st.none() | st.none() | st.tuples(st.sampled_from(["hang", "x"]), TEXTS),
    ends=ENDS,
    standing=STANDING,
    signalled=st.dictionaries(RANKS, TIMES_S),
    raised=many(RAISED),
    kernel=many(FAULTS, 3),
    kernel_log=st.sampled_from(["", "permission denied"]),
    kin=st.dictionaries(PIDS, RANKS),
    host_pids=st.booleans(),
    counters=many(
        st.builds(
            Counter,
            name=st.sampled_from(["oom_kill", "vmstat_oom_kill", "pids_max", "oom"]),
            where=st.just("/sys"),
            before=st.just(0),
            after=st.integers(0, 2),
            ranks=many(RANKS, 2),
        ),
        2,
    ),
    counters_read=st.booleans(),
    words=st.dictionaries(RANKS, WORDS),
    beats=st.dictionaries(RANKS, st.builds(Beat, step=maybe(st.integers(0, 2)))),
    spaces=many(
        st.builds(
            Space,
            name=st.just("/dev/shm"),  # noqa: S108 (a name)
            path=st.just(""),
            free_bytes=st.integers(0, 9),
            total_bytes=st.integers(0, 9),
            free_inodes=maybe(st.integers(0, 1)),
        ),
        1,
    ),
    cgroups=st.dictionaries(RANKS, st.sampled_from(["", "/b"])),
)


@given(TIMELINES)
def test_there_is_always_a_verdict_that_can_be_told(timeline):
    """Whatever a timeline holds, it has one bounded, printable verdict."""
    verdict = judge(timeline)

    assert verdict.cause in CAUSES
    assert verdict.certainty in typing.get_args(Certainty)
    assert verdict.summary.isprintable()
    assert 0 < len(verdict.summary) <= SUMMARY_MAX_CHARS
    assert len(set(verdict.first_ranks)) == len(verdict.first_ranks)
    assert list(verdict.first_ranks) == sorted(verdict.first_ranks)
    assert all(line.text.isprintable() for line in verdict.evidence)
    assert json.dumps(verdict.at_s, allow_nan=False)


@given(TIMELINES, st.randoms(use_true_random=False))
def test_the_order_of_equal_times_does_not_matter(timeline, chance):
    """Ends of one moment may be told in any order."""
    ends = sorted(timeline.ends, key=lambda end: (end.at_s, chance.random()))
    timeline = timeline._replace(ends=tuple(sorted(ends, key=lambda end: end.at_s)))
    chance.shuffle(ends)
    shuffled = tuple(sorted(ends, key=lambda end: end.at_s))

    assert judge(timeline._replace(ends=shuffled)) == judge(timeline)


@given(TIMELINES)
def test_dsup_s_signal_is_no_evidence(timeline):
    """A rank that dsup ended is first only by what was seen before the signal."""
    verdict = judge(timeline)
    known = {account.rank: account for account in accounts(timeline)}
    by_others = {
        "kernel_killed_helper",
        "mismatched",
        "raised_in_thread",
        "shown_and_alive",
    }
    for rank in set(verdict.first_ranks) & set(verdict.ended_by_dsup):
        account = known.get(rank)
        own = account is not None and (account.strong or account.told is not None)

        assert own or verdict.cause == "hang" or verdict.rule in by_others


@given(TIMELINES, STATUSES)
def test_how_a_rank_ends_after_the_signal_changes_nothing(timeline, status):
    """The verdict is the same whatever dsup's own victims die of."""
    verdict = judge(timeline)
    late = {a.rank for a in accounts(timeline) if a.end and not a.own}
    ends = tuple(
        end._replace(status=status) if end.rank in late else end
        for end in timeline.ends
    )
    clean = timeline._replace(ends=ends, kernel=())

    assert judge(clean) == judge(timeline._replace(kernel=()))
    assert set(verdict.ended_by_dsup) <= set(timeline.signalled)


@given(TIMELINES)
def test_a_victim_is_never_first(timeline):
    """No rank is both first and a victim, and victims ended by themselves."""
    verdict = judge(timeline)
    victims = {victim.rank for victim in verdict.victims}

    assert not victims & set(verdict.first_ranks)
    assert not victims & set(verdict.ended_by_dsup)
