"""Verdicts as bytes: what programs read, and what comes back of hostile ones."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.core.exits import CAUSES
from dsup.core.verdict import Advice, Evidence, Looked, Verdict, Victim
from dsup.report.verdict_file import (
    EVIDENCE_MAX,
    FILE_MAX_BYTES,
    TEXT_MAX_CHARS,
    WIRE_MAX_BYTES,
    capped,
    decode,
    encode,
    from_wire,
    to_wire,
)

VERDICT = Verdict(
    attempt=1,
    cause="killed",
    first_ranks=(2,),
    certainty="likely",
    at_s=100.25,
    summary="Rank 2 was killed by SIGKILL from outside: not by dsup.",
    rule="killed",
    evidence=(
        Evidence("status", "rank 2: SIGKILL", 2, 100.25),
        Evidence("stderr", "bye", 2, None, "attempt_1/2/stderr.log", 9),
    ),
    victims=(Victim(3, 2, "exit 1"),),
    ended_by_dsup=(0, 1),
    left_with_0=(1,),
    advice=Advice("find_killer", "look for who sent it"),
    status=-9,
    signature="killed|SIGKILL",
    looked=(Looked("obstacle"), Looked("killed", "killed", (2,))),
    would_change=("the kernel log was not read",),
)
KNOWN = {
    "attempt": 1,
    "cause": "killed",
    "first_ranks": [2],
    "first_nodes": ["gpu-a17"],
    "certainty": "likely",
    "at": "1970-01-01T00:01:50.250000Z",
    "summary": "Rank 2 was killed by SIGKILL from outside: not by dsup.",
    "rule": "killed",
    "evidence": [
        {
            "source": "status",
            "rank": 2,
            "node": "gpu-a17",
            "at": "1970-01-01T00:01:50.250000Z",
            "text": "rank 2: SIGKILL",
            "file": "",
            "line": None,
            "dismissed": False,
        },
        {
            "source": "stderr",
            "rank": 2,
            "node": "gpu-a17",
            "at": None,
            "text": "bye",
            "file": "attempt_1/2/stderr.log",
            "line": 9,
            "dismissed": False,
        },
    ],
    "victims": [{"rank": 3, "of": 2, "how": "exit 1"}],
    "ended_by_dsup": [0, 1],
    "left_with_0": [1],
    "advice": {"action": "find_killer", "text": "look for who sent it"},
    "exit": {"code": 137, "origin": "rank"},
    "status": -9,
    "signature": "killed|SIGKILL",
    "looked": [
        {"rule": "obstacle", "cause": "", "first_ranks": []},
        {"rule": "killed", "cause": "killed", "first_ranks": [2]},
    ],
    "would_change": ["the kernel log was not read"],
}


def encoded(verdict=VERDICT, ended=(137, "rank")):
    """Return a verdict.json of a run whose clocks are ten seconds apart."""
    return encode(verdict, node="gpu-a17", offset_s=10.0, ended=ended)


def test_a_verdict_file_holds_what_programs_read():
    """Times are UTC with microseconds, ranks are global, the exit is the run's."""
    assert json.loads(encoded()) == KNOWN


def test_an_attempt_that_was_restarted_has_no_exit():
    """Only the last attempt decides the exit code."""
    assert json.loads(encoded(ended=None))["exit"] is None


def test_where_no_rank_is_known_no_node_is():
    """An empty list says so; the evidence still tells its node."""
    known = json.loads(encoded(VERDICT._replace(first_ranks=())))

    assert (known["first_ranks"], known["first_nodes"]) == ([], [])


def test_a_verdict_file_is_read_back():
    """The verdict with its times as wall time, its nodes, and how the run ended."""
    kept = decode(encoded())

    assert kept.verdict._replace(at_s=0.0, evidence=()) == VERDICT._replace(
        at_s=0.0, evidence=()
    )
    assert kept.verdict.at_s == pytest.approx(110.25)
    assert kept.verdict.evidence[1] == VERDICT.evidence[1]
    assert (kept.nodes, kept.ended) == (("gpu-a17",), (137, "rank"))


def test_fields_of_a_later_version_are_passed_over():
    """A file with more in it than this version knows is still of use."""
    later = {**KNOWN, "new": {"x": [1]}}

    assert decode(json.dumps(later).encode()).verdict.cause == "killed"


def test_a_file_of_an_earlier_version_says_nothing_of_rules():
    """What it does not have is empty."""
    new = {"looked", "would_change"}
    earlier = {name: value for name, value in KNOWN.items() if name not in new}
    verdict = decode(json.dumps(earlier).encode()).verdict

    assert (verdict.looked, verdict.would_change) == ((), ())


def test_a_time_that_nothing_tells_is_null():
    """A log may have none; the verdict's is then no number."""
    timeless = VERDICT._replace(at_s=math.nan, evidence=())
    known = json.loads(encode(timeless, node="", offset_s=0.0, ended=None))

    assert (known["at"], known["first_nodes"]) == (None, [])
    assert math.isnan(decode(json.dumps(known).encode()).verdict.at_s)


def changed(**fields):
    """Return a verdict file with other fields."""
    return json.dumps({**KNOWN, **fields}).encode()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b"{}", id="nothing in it"),
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param(b'{"attempt": ' + b"9" * 5000 + b"}", id="a huge number"),
        pytest.param(b" " * (FILE_MAX_BYTES + 1), id="a huge file"),
        pytest.param(changed(attempt="1"), id="a number as text"),
        pytest.param(changed(attempt=True), id="a number as truth"),
        pytest.param(changed(status=1 << 60), id="no plain number"),
        pytest.param(changed(cause="bad luck"), id="no known cause"),
        pytest.param(changed(certainty="sure"), id="no known certainty"),
        pytest.param(changed(first_ranks={"2": 1}), id="ranks no list"),
        pytest.param(changed(first_ranks=[None]), id="no rank"),
        pytest.param(changed(first_nodes=[1]), id="no node"),
        pytest.param(changed(at="yesterday"), id="no time"),
        pytest.param(
            json.dumps({k: v for k, v in KNOWN.items() if k != "at"}).encode(),
            id="time missing",
        ),
        pytest.param(changed(looked=7), id="looked no list"),
        pytest.param(changed(looked=[{"rule": 1}]), id="no rule"),
        pytest.param(changed(would_change=[1]), id="no sentence"),
        pytest.param(changed(at="2026-11-30T02:27:48"), id="time of nowhere"),
        pytest.param(changed(evidence=["x"]), id="evidence no object"),
        pytest.param(changed(evidence=[{"source": "oracle"}]), id="no known source"),
        pytest.param(changed(victims="x"), id="victims no list"),
        pytest.param(changed(advice="x"), id="advice no object"),
        pytest.param(changed(exit=1), id="exit no object"),
        pytest.param(changed(exit={"code": "x", "origin": "dsup"}), id="no code"),
    ],
)
def test_what_is_no_verdict_file_is_refused(raw):
    """With one kind of error, whatever is wrong."""
    with pytest.raises(ValueError, match=r"."):
        decode(raw)


def test_texts_read_back_are_printable_and_short():
    """A file is no way to a terminal."""
    kept = decode(changed(summary="\x1b[2J" * 500, first_nodes=["\x1b]0;x\x07"]))

    assert kept.verdict.summary.isprintable()
    assert len(kept.verdict.summary) <= 300
    assert kept.nodes == ("\\x1b]0;x\\x07",)


letters = st.characters(codec="utf-8", exclude_categories=["C", "Z"])
ranks = st.integers(0, 4095)
times = st.floats(0, 1e9)


def texts(most):
    """Return texts that are already as they would be kept."""
    return st.text(letters, max_size=most)


evidence = st.builds(
    Evidence,
    source=st.sampled_from(["kernel", "note", "stderr", "dsup"]),
    text=texts(40),
    rank=st.none() | ranks,
    at_s=st.none() | times,
    file=texts(20),
    line=st.none() | st.integers(1, 10**9),
)
verdicts = st.builds(
    Verdict,
    attempt=st.integers(0, 10**6),
    cause=st.sampled_from(sorted(CAUSES)),
    first_ranks=st.lists(ranks, max_size=20).map(tuple),
    certainty=st.sampled_from(["proven", "likely", "guess", "unknown"]),
    at_s=times,
    summary=texts(60),
    rule=texts(20),
    evidence=st.lists(evidence, max_size=5).map(tuple),
    victims=st.lists(
        st.builds(Victim, rank=ranks, of=st.none() | ranks, how=texts(30)), max_size=9
    ).map(tuple),
    ended_by_dsup=st.lists(ranks, max_size=9).map(tuple),
    left_with_0=st.lists(ranks, max_size=9).map(tuple),
    advice=st.none() | st.builds(Advice, action=texts(20), text=texts(60)),
    status=st.integers(-64, 255),
    signature=texts(40),
    looked=st.lists(
        st.builds(
            Looked,
            rule=texts(20),
            cause=texts(20),
            first_ranks=st.lists(ranks, max_size=9).map(tuple),
        ),
        max_size=9,
    ).map(tuple),
    would_change=st.lists(texts(40), max_size=9).map(tuple),
)


@pytest.mark.slow
@given(verdicts)
def test_the_judges_answer_comes_back_as_it_was(verdict):
    """Nothing is lost on the way from the judge to the agent."""
    assert from_wire(to_wire(verdict)) == verdict


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(raw):
    """Garbage is refused, and never anything else."""
    with pytest.raises(ValueError, match=r"."):
        from_wire(raw)


@given(st.data())
def test_no_damage_breaks_the_reader(data):
    """An answer with a byte changed is a verdict or refused."""
    raw = bytearray(to_wire(VERDICT))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))

    try:
        verdict = from_wire(bytes(raw))
    except ValueError:
        return
    assert capped(verdict) == verdict


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"[]", id="no fields"),
        pytest.param(to_wire(VERDICT) + b"x", id="more than an answer"),
        pytest.param(to_wire(VERDICT)[:-1], id="cut"),
        pytest.param(to_wire(VERDICT).replace(b"100.25", b"NaN"), id="a time of NaN"),
        pytest.param(to_wire(VERDICT).replace(b"100.25", b"1e999"), id="endless time"),
        pytest.param(b" " * WIRE_MAX_BYTES + to_wire(VERDICT), id="too large"),
    ],
)
def test_what_is_no_answer_is_refused(raw):
    """The judge may have been broken by what it read."""
    with pytest.raises(ValueError, match=r"."):
        from_wire(raw)


@pytest.mark.parametrize("letter", ["x", "内", "\U0001f4a5", "\x00", "\udc80", '"'])
def test_an_answer_fits_whatever_is_in_it(letter):
    """1000 ranks, endless texts: the first pieces are kept, in less than 64 KiB."""
    text = letter * 5000
    huge = VERDICT._replace(
        first_ranks=tuple(range(1000)),
        summary=text,
        rule=text,
        evidence=(Evidence("stderr", text, 2, 1.0, text, 1),) * 100,
        victims=tuple(Victim(rank, 2, text) for rank in range(1000)),
        ended_by_dsup=tuple(range(1000)),
        advice=Advice(text, text),
        signature=text,
        looked=(Looked(text, text, tuple(range(1000))),) * 100,
        would_change=(text,) * 100,
    )
    raw = to_wire(huge)
    verdict = from_wire(raw)

    assert len(raw) <= WIRE_MAX_BYTES
    assert 1 <= len(verdict.evidence) <= EVIDENCE_MAX
    assert len(verdict.evidence[0].text) == TEXT_MAX_CHARS
    assert decode(encoded(huge)).verdict.cause == "killed"


def test_1000_ranks_of_an_ordinary_failure_are_all_kept():
    """Nothing is cut where only the number of ranks is large."""
    verdict = VERDICT._replace(
        victims=tuple(Victim(r, 2, "closed by peer, exit 1") for r in range(1000)),
        ended_by_dsup=tuple(range(1000, 2000)),
        looked=tuple(Looked(f"a_rule_of_that_name_{n}") for n in range(30)),
    )

    assert from_wire(to_wire(verdict)) == verdict
