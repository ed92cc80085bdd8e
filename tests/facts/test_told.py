"""What ranks tell beside exceptions: wishes and outcomes, or nothing at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.told import (
    REASON_MAX_CHARS,
    Outcome,
    Wanted,
    decode_outcome,
    decode_wanted,
)

WISH = {"v": 1, "kind": "stop", "stop": "error", "reason": "loss is nan", "step": 17}
END = {"v": 1, "kind": "outcome", "status": "FAILED", "exit_code": 1, "resumable": True}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def note(fields, **changes):
    """Return a note, changed as told, as it arrives; Ellipsis takes a field away."""
    kept = {k: v for k, v in (fields | changes).items() if v is not ...}
    return json.dumps(kept).encode()


@pytest.mark.parametrize("stop", ["user", "limit", "preempt", "peer", "error"])
def test_a_wish_says_what_why_and_where(stop):
    """Every kind that a rank can want is read with its reason and its step."""
    assert decode_wanted(note(WISH, stop=stop)) == Wanted(stop, "loss is nan", 17)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({"reason": ...}, Wanted("error", "", 17), id="no reason"),
        pytest.param({"reason": 7}, Wanted("error", "", 17), id="reason is no text"),
        pytest.param({"step": ...}, Wanted("error", "loss is nan"), id="no step"),
        pytest.param({"step": -1}, Wanted("error", "loss is nan"), id="step below 0"),
        pytest.param({"step": True}, Wanted("error", "loss is nan"), id="no number"),
        pytest.param({"step": 2**60}, Wanted("error", "loss is nan"), id="too great"),
        pytest.param({"more": 1}, Wanted("error", "loss is nan", 17), id="more fields"),
    ],
)
def test_a_wish_counts_whatever_else_its_note_says(changes, wanted):
    """The kind is what matters; other fields are what they should be, or nothing."""
    assert decode_wanted(note(WISH, **changes)) == wanted


def test_a_reason_is_one_short_line():
    """It is printed: no control characters, no novel."""
    told = decode_wanted(note(WISH, reason="a\x1b[2J\nb" + "x" * 5000))

    assert told is not None
    assert len(told.reason) <= REASON_MAX_CHARS
    assert told.reason.isprintable()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\x00", id="noise"),
        pytest.param(b"[" * 60_000, id="nested"),
        pytest.param(note(WISH, stop="none"), id="none is no wish"),
        pytest.param(note(WISH, stop="party"), id="unknown kind"),
        pytest.param(note(WISH, stop=["user"]), id="kind is a list"),
        pytest.param(note(WISH, stop=5), id="kind is a number"),
        pytest.param(note(WISH, v=2), id="another version"),
        pytest.param(note(WISH, kind="raised"), id="another note"),
    ],
)
def test_a_note_that_is_no_wish_wants_nothing(raw):
    """What is not known to be a wish is none."""
    assert decode_wanted(raw) is None


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_an_outcome_says_how_a_rank_ends(status):
    """Status, exit code, and whether it may be resumed."""
    assert decode_outcome(note(END, status=status)) == Outcome(status, 1, True)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(note(END, status="fine"), id="unknown status"),
        pytest.param(note(END, status=None), id="no status"),
        pytest.param(note(END, kind="stop"), id="another note"),
        pytest.param(note(END, v="1"), id="another version"),
    ],
)
def test_a_note_that_is_no_outcome_says_nothing(raw):
    """Whoever says nothing that is known has not told how it ends."""
    assert decode_outcome(raw) is None


@given(
    fields=st.dictionaries(
        st.sampled_from("v kind stop reason step status exit_code resumable".split()),
        ANY_JSON | st.sampled_from([1, "stop", "outcome", "user", "FAILED"]),
    )
)
def test_no_json_breaks_the_reader(fields):
    """Whatever stands in a note, it is read or it is none."""
    raw = json.dumps(fields).encode()
    told = decode_wanted(raw)

    assert told is None or told.step is None or told.step >= 0
    assert decode_outcome(raw) is None or fields["v"] == 1
