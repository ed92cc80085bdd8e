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
FOUR = (("E", "0"), ("E", "1"), ("E", "2"), ("E", "3"))
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
        pytest.param(note(type=""), id="no type"),
        pytest.param(note(v=2), id="of another version"),
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
        ({"at_ns": float("nan")}, "caught_s", None),
        ({"text": "a\x1b[2Jb\u202e\nc\td"}, "text", "a\\x1b[2Jb\\u202e\nc   d"),
        ({"type": "E\nforged"}, "type", "E\\nforged"),
        ({"file": "a\rb", "line": 2}, "file", "a\\rb"),
        ({"function": "f" * 999}, "function", "f" * 200),
        ({"thread": "\x07"}, "thread", "\\x07"),
        ({"causes": [["E", "\x07"]]}, "causes", (("E", "\\x07"),)),
        ({"causes": [["E", str(n)] for n in range(9)]}, "causes", FOUR),
        ({"causes": "none"}, "causes", ()),
        ({"causes": [["a"], ["b", "c"], 3]}, "causes", (("b", "c"),)),
    ],
)
def test_a_field_that_makes_no_sense_is_left_out(changes, field, value):
    """The rest of the note still counts."""
    assert getattr(decode_note(0, note(**changes)), field) == value


def test_a_long_text_keeps_its_end():
    """What a DataLoader hands on has its own message in the last of many lines."""
    text = "Caught E in DataLoader worker process 0.\n" + "at\n" * 9999 + "E: the cause"
    raised = decode_note(0, note(text=text))

    assert len(raised.text) <= TEXT_MAX_CHARS
    assert raised.text.startswith("Caught E in DataLoader worker process 0.\n")
    assert raised.text.endswith("\nE: the cause")


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


def error_file(message):
    """Return an error.json of the plain form, as it is read."""
    return json.dumps({"message": message, "timestamp": 4}).encode()


@pytest.mark.parametrize(
    ("message", "type_", "text"),
    [
        ("the disk: is full", "Exception", "the disk: is full"),
        ("Loss: nan", "Exception", "Loss: nan"),
        ("OSError: [Errno 28] full", "OSError", "[Errno 28] full"),
        ("torch.cuda.OutOfMemoryError: no", "torch.cuda.OutOfMemoryError", "no"),
        ("socket.timeout:", "socket.timeout", ""),
        ("a..Error: b", "Exception", "a..Error: b"),
        ("x" * 300 + "Error: b", "Exception", "x" * 300 + "Error: b"),
        ("a\x1b[2J", "Exception", "a\\x1b[2J"),
    ],
)
def test_an_error_file_with_a_plain_message(message, type_, text):
    """Only what reads like an exception's name is taken for one."""
    found = decode_error_file(0, error_file(message))

    assert (found.type, found.text, found.caught_s) == (type_, text, None)


def test_a_type_of_any_name_is_known_from_torchs_record():
    """There the message always begins with the type."""
    raw = json.dumps({"message": {"message": "Diverged: at step 7"}}).encode()
    found = decode_error_file(0, raw)

    assert (found.type, found.text, found.file) == ("Diverged", "at step 7", "")


def test_an_exception_within_libraries_has_its_innermost_place():
    """A script without a frame of its own is told as far as it is known."""
    stack = '  File "/x/site-packages/a.py", line 3, in f\n    raise'
    message = {"message": "E: x", "extraInfo": {"py_callstack": stack}}
    found = decode_error_file(0, json.dumps({"message": message}).encode())

    assert (found.file, found.line, found.function) == ("/x/site-packages/a.py", 3, "f")


@pytest.mark.parametrize("raw", [b"", b"{}", b"null", b'{"message": 3}', b"{" * 9000])
def test_garbage_is_no_error_file(raw):
    """A file that a worker wrote may hold anything."""
    assert decode_error_file(0, raw) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FIELDS = st.fixed_dictionaries(
    {"v": st.just(1), "kind": st.just("raised"), "type": st.text()},
    optional=dict.fromkeys(NOTE.keys() - {"v", "kind", "type"}, JSON),
)
MESSAGES = st.text() | st.fixed_dictionaries(
    {"message": st.text()},
    optional={
        "extraInfo": JSON | st.fixed_dictionaries({"py_callstack": st.text()}),
    },
)
FILES = st.fixed_dictionaries({"message": MESSAGES | JSON})


@given(st.binary() | FIELDS | FILES | JSON)
def test_whatever_arrives_is_a_sound_fact_or_nothing(found):
    """It never raises; texts are printable and capped, numbers are sane."""
    raw = found if isinstance(found, bytes) else json.dumps(found).encode()

    for raised in (decode_note(0, raw), decode_error_file(0, raw)):
        if raised is None:
            continue
        words = raised.type, raised.thread, raised.file, raised.function
        texts = raised.text, *(text for cause in raised.causes for text in cause)
        assert raised.type
        assert all(word.isprintable() and len(word) <= 1024 for word in words)
        assert all(text.replace("\n", "").isprintable() for text in texts)
        assert all(len(text) <= TEXT_MAX_CHARS for text in texts)
        assert raised.caught_s is None or 0 < raised.caught_s < 1e10
        assert len(raised.causes) <= 4
