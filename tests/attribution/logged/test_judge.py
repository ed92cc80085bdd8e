"""What every verdict on a log has, and that there always is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.attribution.logged.judge import judge_log
from dsup.attribution.logged.rules import RULES
from dsup.core.exits import CAUSES
from dsup.core.verdict import SUMMARY_MAX_CHARS
from dsup.facts.logs.line import Place
from dsup.facts.logs.said import (
    Collective,
    Complaint,
    End,
    Error,
    LoggedAttempt,
    Panel,
    Progress,
    Stop,
)

RANKS = st.none() | st.integers(0, 5)
TIMES = st.none() | st.floats(0, 1e10)
TEXTS = st.sampled_from(
    ["", "Connection closed by peer", "CUDA error: x", "GPU 3 has a total", "Rank 2: x"]
) | st.text(max_size=30)
PLACES = st.builds(
    Place,
    RANKS,
    RANKS,
    st.sampled_from(["", "a", "b.example"]),
    st.none() | st.integers(10, 14),
)
WHERE = {
    "file": st.just("x.log"),
    "number": st.integers(0, 9),
    "order": st.integers(0, 99),
}
ATTEMPTS = st.builds(
    LoggedAttempt,
    number=st.integers(0, 3),
    world_size=st.none() | st.integers(1, 6),
    local_world_size=st.none() | st.integers(1, 6),
    errors=st.lists(
        st.builds(Error, type=TEXTS, text=TEXTS, place=PLACES, at_s=TIMES, **WHERE),
        max_size=4,
    ).map(tuple),
    ends=st.lists(
        st.builds(
            End,
            place=PLACES,
            status=st.none() | st.sampled_from([0, 1, 2, 137, -6, -9, -11, -15]),
            source=st.sampled_from(["agent", "report", "root_cause", "deepspeed"]),
            text=TEXTS,
            at_s=TIMES,
            by_launcher=st.booleans(),
            **WHERE,
        ),
        max_size=4,
    ).map(tuple),
    collectives=st.lists(
        st.builds(
            Collective,
            kind=st.sampled_from(
                ["timeout", "device_error", "mismatch", "barrier", "trace", "desync"]
            ),
            place=PLACES,
            text=TEXTS,
            at_s=TIMES,
            seq=RANKS,
            op=st.sampled_from(["", "ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE"]),
            size=RANKS,
            ran_ms=st.none() | st.integers(0, 10**7),
            enqueued=RANKS,
            accused=st.lists(st.integers(0, 5), max_size=2).map(tuple),
            **WHERE,
        ),
        max_size=5,
    ).map(tuple),
    complaints=st.lists(
        st.builds(
            Complaint,
            kind=st.sampled_from(
                [
                    "device",
                    "nic",
                    "oom_host",
                    "glibc",
                    "crash",
                    "node",
                    "store",
                    "killed",
                ]
            ),
            place=PLACES,
            text=TEXTS,
            at_s=TIMES,
            signum=st.none() | st.integers(1, 31),
            **WHERE,
        ),
        max_size=4,
    ).map(tuple),
    stops=st.lists(
        st.builds(
            Stop,
            cause=st.sampled_from(["user_interrupt", "preempted", "time_limit"]),
            text=TEXTS,
            at_s=TIMES,
            signum=st.none() | st.integers(1, 31),
            **WHERE,
        ),
        max_size=1,
    ).map(tuple),
    progress=st.dictionaries(
        st.integers(-1, 5),
        st.builds(Progress, st.integers(0, 99), TIMES, RANKS, done=st.booleans()),
        max_size=4,
    ),
    last_lines=st.lists(TEXTS, max_size=3).map(tuple),
    panels=st.lists(
        st.builds(
            Panel,
            text=TEXTS,
            attempt=st.just(0),
            cause=st.sampled_from(["hang", "magic"]),
            ranks=st.lists(st.integers(0, 5), max_size=2).map(tuple),
            at_s=TIMES,
            **WHERE,
        ),
        max_size=1,
    ).map(tuple),
    clock=st.lists(st.tuples(st.integers(0, 99), st.floats(0, 1e10)), max_size=4).map(
        lambda marks: tuple(sorted(marks))
    ),
)


@pytest.mark.slow
@given(ATTEMPTS)
def test_there_always_is_a_verdict(attempt):
    """Whatever a log holds: a known cause, known ranks, one short printable line."""
    verdict = judge_log(attempt)
    told = {
        rank
        for kind in ("errors", "ends", "collectives", "complaints")
        for fact in getattr(attempt, kind)
        for rank in (fact.place.rank, fact.place.local_rank)
    }

    assert verdict.cause in CAUSES
    assert verdict.summary.isprintable()
    assert len(verdict.summary) <= SUMMARY_MAX_CHARS
    assert set(verdict.first_ranks) <= told | set(range(6))
    assert not {v.rank for v in verdict.victims} & set(verdict.first_ranks)
    assert len(verdict.looked) == len(RULES)


def test_it_tells_which_rules_looked(log):
    """Every rule is listed with what it would say; the first that speaks wins."""
    verdict = log().raised(1, "ValueError", "bad record").ended(2, -9).verdict

    spoken = [one for one in verdict.looked if one.cause]
    assert spoken[0] == ("raised", "python_exception", (1,))
    assert verdict.rule == "raised"


def test_evidence_has_file_and_line(log):
    """The proof can be looked up in the log."""
    story = (
        log().moved(0, 5).raised(1, "ValueError", "bad record", frame="a/t.py:7 in f")
    )
    story.ended(1, 1, "agent")

    first, second = story.verdict.evidence
    assert first == (
        "log",
        "ValueError: bad record (t.py:7)",
        1,
        None,
        "job.log",
        2,
    )
    assert (second.source, second.line) == ("launcher", 3)


def test_the_same_failure_has_the_same_signature(log):
    """Ranks, pids and numbers are no part of it."""
    one = log().raised(1, "ValueError", "batch 812 has no labels").verdict
    other = log().raised(3, "ValueError", "batch 9 has no labels").verdict

    assert one.signature == other.signature
    assert one.advice.action == "fix_script"


@pytest.mark.slow
def test_a_log_of_many_statements_is_judged_soon(log):
    """Each kind is capped, and no rule compares all with all."""
    many = tuple(
        Error("ValueError", "x" * 5000, Place(), "x.log", n, n) for n in range(20_000)
    )
    ends = tuple(End(Place(pid=n), -6, "agent", "", "x.log", n, n) for n in range(9000))
    verdict = judge_log(LoggedAttempt(0, errors=many, ends=ends))

    assert verdict.cause == "python_exception"
