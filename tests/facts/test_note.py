"""Notes and error files: untrusted JSON as typed facts, or nothing at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.note import TEXT_MAX_CHARS, decode_error_file, decode_note
from dsup.facts.raised import Raised

NOTE = {
    "v": 1,
    "kind": "raised",
    "type": "ValueError",
    "text": "bad batch 17",
    "at_ns": 5_000_000_000,
    "pid": 4001,
    "thread": "",
    "file": "/job/train.py",
    "line": 203,
    "function": "train",
    "causes": [["KeyError", "'label'"]],
}
STACK = """Traceback (most recent call last):
  File "/x/site-packages/torch/distributed/elastic/errors/__init__.py", line 359, in w
    return f(*args, **kwargs)
  File "/job/train.py", line 203, in train
    raise ValueError("bad batch 17")
  File "/x/lib/python3.11/json/__init__.py", line 1, in loads
ValueError: bad batch 17
"""


def note(**changes):
    """Return a note, changed as told, as it arrives."""
    return json.dumps(NOTE | changes).encode()


def test_a_note_says_what_was_raised_where_and_when():
    """Every field of the note is in the fact; the rank is the socket's."""
    assert decode_note(3, note()) == Raised(
        rank=3,
        type="ValueError",
        text="bad batch 17",
        caught_s=5.0,
        source="note",
        pid=4001,
        file="/job/train.py",
        line=203,
        function="train",
        causes=(("KeyError", "'label'"),),
    )


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[1]", id="no object"),
        pytest.param(b"[" * 5000, id="nested without end"),
        pytest.param(note(kind="other"), id="of another kind"),
        pytest.param(note(type=7), id="a type that is no word"),
    ],
)
def test_what_is_no_note_of_ours_is_nothing(raw):
    """A worker may send anything."""
    assert decode_note(0, raw) is None


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"at_ns": "soon"}, "caught_s", None),
        ({"at_ns": 10**30}, "caught_s", None),
        ({"at_ns": True}, "caught_s", None),
        ({"pid": -1}, "pid", None),
        ({"line": 1.5}, "line", None),
        ({"text": None}, "text", ""),
        ({"text": "x" * 9999}, "text", "x" * TEXT_MAX_CHARS),
        ({"causes": "none"}, "causes", ()),
        ({"causes": [["a"], ["b", "c"], 3]}, "causes", (("b", "c"),)),
    ],
)
def test_a_field_that_makes_no_sense_is_left_out(changes, field, value):
    """The rest of the note still counts."""
    assert getattr(decode_note(0, note(**changes)), field) == value


def test_an_error_file_of_torchs_record():
    """Type, text and the user's frame are found; its time stamp is not believed."""
    message = {
        "message": "ValueError: bad batch 17",
        "extraInfo": {"py_callstack": STACK, "timestamp": "1"},
    }
    raised = decode_error_file(2, json.dumps({"message": message}).encode())

    assert raised == Raised(
        rank=2,
        type="ValueError",
        text="bad batch 17",
        caught_s=None,
        source="error_file",
        file="/job/train.py",
        line=203,
        function="train",
    )


def test_an_error_file_with_a_plain_message():
    """The second form has no type; the text is kept whole."""
    raw = json.dumps({"message": "the disk: is full", "timestamp": 4}).encode()

    found = decode_error_file(0, raw)

    assert (found.type, found.text) == ("Exception", "the disk: is full")


@pytest.mark.parametrize("raw", [b"", b"{}", b"null", b'{"message": 3}', b"{" * 9000])
def test_garbage_is_no_error_file(raw):
    """A file that a worker wrote may hold anything."""
    assert decode_error_file(0, raw) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | st.fixed_dictionaries({}, optional=dict.fromkeys(NOTE, JSON)))
def test_nothing_that_arrives_raises(found):
    """Whatever a worker sends, there is a fact or there is none."""
    raw = found if isinstance(found, bytes) else json.dumps(found).encode()

    decode_note(0, raw)
    decode_error_file(0, raw)
