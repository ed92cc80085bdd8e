"""The course of an attempt: one row for each thing that happened, in order."""

import math

from dsup.core.verdict import LOOKED_AT, Evidence, Verdict, Victim
from dsup.report.columns import Columns
from dsup.report.course import ROWS_MAX, WIDTH, course
from dsup.report.html.lives import Attempt, RankLife, Signal

ZERO_S = 1_780_000_000.0
KILLED = Evidence("kernel", "Killed process 5 (python) [kmsg seq 7]", 5, ZERO_S)
ENDED = Evidence("status", "rank 5 ended with SIGKILL", 5, ZERO_S + 1.58)


def verdict(**fields):
    known = {
        "attempt": 0,
        "cause": "host_oom",
        "first_ranks": (5,),
        "certainty": "proven",
        "at_s": ZERO_S,
        "summary": "Rank 5 was killed by the kernel.",
        "rule": "kernel_killed_rank",
        "evidence": (KILLED, ENDED),
        "victims": (
            Victim(4, 5, "connection closed by peer, exit 1, +1.6 s"),
            Victim(6, 5, "connection closed by peer, exit 1, +1.7 s"),
        ),
        "ended_by_dsup": (0, 1, 2, 3, 7),
        **fields,
    }
    return Verdict(**known)


def attempt(told, lives=None):
    """Return an attempt of eight ranks in which rank 5 was killed."""
    ends = {5: (1.58, -9), 4: (1.64, 1), 6: (1.65, 1)}
    ends |= {rank: (1.9 + rank / 10, -15) for rank in (0, 1, 2, 3, 7)}
    ranks = lives or tuple(
        RankLife(rank, ZERO_S - 60, ZERO_S + at, status)
        for rank, (at, status) in sorted(ends.items())
    )
    signals = (Signal(ZERO_S + 1.583, 15, (0, 1, 2, 3, 7)),)
    return Attempt(0, ZERO_S - 60, ZERO_S + 3, ranks, told, signals)


def test_what_happened_stands_in_order_with_its_distance_to_the_first_death():
    """Ranks that ended alike are one row, and a kernel's kill comes before its end."""
    assert course(attempt(verdict()), Columns()) == (
        " course   seconds from 20:26:40.0 UTC",
        "   +0.00  rank 5          kernel: Killed process 5 (python) [kmsg seq 7]",
        "   +1.58  rank 5          ended first: SIGKILL",
        "   +1.58  dsup            SIGTERM to ranks 0-3, 7",
        "   +1.64  ranks 4, 6      victim of rank 5: connection closed by peer, exit 1",
        "   +1.90  ranks 0-3, 7    ended by dsup: SIGTERM … +2.60",
    )


def test_a_first_rank_that_dsup_ended_did_not_end_first():
    """A rank that hung is where it began, and dsup's signal is what ended it."""
    told = verdict(cause="hang", ended_by_dsup=(0, 1, 2, 3, 5, 7))

    line = course(attempt(told), Columns())[2]

    assert line.endswith("where it began; ended by dsup: SIGKILL")


def test_a_rank_that_was_told_to_end_and_succeeded_was_ended_by_nobody():
    """It may have finished its work, whatever dsup's signal found it at."""
    lives = (RankLife(0, ZERO_S - 60, ZERO_S + 8, 0),)

    lines = course(attempt(verdict(victims=(), evidence=(KILLED,)), lives), Columns())

    assert lines[-1].endswith("told to end by dsup: exit 0")


def test_a_victim_has_one_time():
    """The row tells when it ended; the word of another clock would contradict it."""
    told = verdict(victims=(Victim(4, 5, "connection closed by peer, exit 1, -0.6 s"),))

    lines = course(attempt(told), Columns())

    assert any(line.endswith("connection closed by peer, exit 1") for line in lines)


def test_no_row_is_wider_than_the_smallest_terminal():
    """Whatever a rank wrote is cut, and moves no cursor."""
    hostile = Evidence("stderr", "\x1b[2J" + "x" * 500, 1, ZERO_S + 0.1)
    told = verdict(evidence=(KILLED, hostile))

    lines = course(attempt(told), Columns(unicode=False))

    assert max(map(len, lines)) <= WIDTH
    assert "".join(lines).isprintable()
    assert "".join(lines).isascii()


def test_of_many_things_the_first_are_shown_and_the_others_counted():
    """A thousand ranks that end in a thousand ways do not flood a terminal."""
    lives = tuple(
        RankLife(rank, ZERO_S - 60, ZERO_S + rank / 100, 1 + rank % 200)
        for rank in range(1000)
    )
    told = verdict(victims=(), ended_by_dsup=(), evidence=())

    lines = course(attempt(told, lives), Columns())

    assert len(lines) == ROWS_MAX + 2
    assert lines[-1].strip().startswith("and ")


def test_without_a_clock_there_is_no_course():
    """A log without times has an order, and the evidence shows it."""
    assert not course(attempt(verdict(at_s=math.nan)), Columns())


def test_one_moment_is_no_course():
    """Where all that is known is one rank's end, the panel has said it."""
    alone = (RankLife(5, ZERO_S - 60, ZERO_S, 1),)
    told = verdict(evidence=(), victims=(), ended_by_dsup=())
    lonely = attempt(told, alone)._replace(signals=())

    assert not course(lonely, Columns())


def test_what_proves_nothing_is_no_part_of_the_course():
    """A crash of another job's process would read as the beginning of it all."""
    other = Evidence("kernel", f"{LOOKED_AT}, no process of this run: x", None, ZERO_S)
    told = verdict(evidence=(KILLED, ENDED, other._replace(at_s=ZERO_S - 0.8)))

    assert course(attempt(told), Columns()) == course(attempt(verdict()), Columns())
