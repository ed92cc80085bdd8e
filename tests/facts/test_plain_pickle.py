"""Pickles of plain data are read as pickle reads them; of anything else nothing is."""

import pickle
import pickletools

import pytest

from dsup.facts import plain_pickle
from dsup.facts.plain_pickle import PlainPickleError

SHARED = ["one", "and", "the", "same"]
PLAIN = {
    "texts": ["", "é", "x" * 300, "\ud800"],
    "numbers": [0, 255, 256, 65_536, -1, 1 << 40, -(1 << 40), 0.5, True, False, None],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "bytes": [b"", b"y" * 300],
    "nested": {"a": {"b": [{}, []]}},
    "shared": [SHARED, SHARED],
}


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_plain_data_come_back(protocol):
    """Whatever the flight recorder may hold, and a little more."""
    assert plain_pickle.loads(pickle.dumps(PLAIN, protocol)) == PLAIN


def test_a_long_memo_comes_back():
    """Past 255 texts their places in the memo take four bytes."""
    many = [f"text {n}" for n in range(400)] * 2

    assert plain_pickle.loads(pickle.dumps(many, 2)) == many


class Evil:
    """Runs a program when it is unpickled."""

    def __reduce__(self):
        """Return what pickle is to call."""
        return print, ("called",)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(pickle.dumps(Evil(), 2), id="calls a function"),
        pytest.param(pickle.dumps(Evil(), 5), id="calls a function, protocol 5"),
        pytest.param(pickle.dumps(Evil), id="names a class"),
        pytest.param(pickle.dumps(PLAIN)[:-1], id="cut"),
        pytest.param(pickle.dumps(PLAIN)[:90], id="cut early"),
        pytest.param(b"", id="empty"),
        pytest.param(b".", id="nothing on the stack"),
        pytest.param(b"\x80\x02}q\x00(K\x01K\x02u.", id="a key that is no text"),
        pytest.param(b"\x80\x02]r\xff\xff\xff\x7f.", id="a gap in the memo"),
        pytest.param(b"\x80\x02h\x07.", id="never put there"),
        pytest.param(b"X\xff\xff\xff\xff.", id="a text longer than the file"),
        pytest.param(b"\x8a\xff" + b"\x01" * 255 + b".", id="an endless number"),
        pytest.param(b"(K\x01e.", id="appended to nothing"),
        pytest.param(b"}" * (plain_pickle.CONTAINERS_MAX + 1), id="too many parts"),
        pytest.param(b"I1\n.", id="an old form"),
    ],
)
def test_anything_else_is_refused(raw, capsys):
    """Nothing is called, and no place is made for what is not there."""
    with pytest.raises(PlainPickleError):
        plain_pickle.loads(raw)
    assert not capsys.readouterr().out


def test_every_operation_it_takes_is_plain():
    """None of pickle's that names, calls or builds anything is among them."""
    names = {op.code: op.name for op in pickletools.opcodes}
    known = {names[chr(code)] for code in plain_pickle.OPERATIONS}

    assert not known & {
        *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ"),
        *("NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER"),
    }
