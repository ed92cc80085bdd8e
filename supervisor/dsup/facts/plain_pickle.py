"""Pickles of plain data, read without ``pickle``: nothing in them is ever called.

torch writes its flight recorder's trace as a pickle, and whoever wrote the file may be
anybody. So only those operations are known here that build dictionaries, lists, tuples,
texts, bytes and numbers; any other is refused, above all those that name a class. Each
takes constant time, the memo only grows by what is put into it in order, and keys are
texts only (the hashes of others can be chosen): time and memory are linear in the
input.

Source: CPython's Lib/pickletools.py, protocols 0 to 5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

CONTAINERS_MAX: Final = 500_000
_LONG_MAX_BYTES: Final = 16
_GET, _LONG_GET, _SMALL, _MARK, _STOP = b"hjK(."
_BYTE, _SHORT, _WORD = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I")
_SIGNED, _WIDE, _REAL = struct.Struct("<i"), struct.Struct("<Q"), struct.Struct(">d")


class PlainPickleError(ValueError):
    """It is no pickle of plain data, or not a whole one."""


def loads(raw: bytes) -> object:
    """Return what a pickle holds; values may be shared, as in the original.

    Raises:
        PlainPickleError: it is cut, or holds anything but plain data.
    """
    reader = _Reader(raw)
    try:
        return reader.read()
    except (IndexError, TypeError, struct.error, UnicodeDecodeError) as error:
        raise PlainPickleError(type(error).__name__) from None


class _Reader:
    """The stack machine of a pickle, as far as plain data need it."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._made = 0

    def read(self) -> object:
        """Run to the end; the four commonest operations are done in place."""
        raw, stack, memo, operations = self._raw, self._stack, self._memo, OPERATIONS
        at = 0
        while True:
            code = raw[at]
            at += 1
            if code == _GET:
                stack.append(memo[raw[at]])
                at += 1
            elif code == _LONG_GET:
                stack.append(memo[int.from_bytes(raw[at : at + 4], "little")])
                at += 4
            elif code == _SMALL:
                stack.append(raw[at])
                at += 1
            elif code == _MARK:
                self._marks.append(len(stack))
            elif code == _STOP:
                return stack.pop()
            else:
                operation = operations.get(code)
                if operation is None:
                    raise PlainPickleError(f"operation {code:#x}")
                self._at = at
                operation(self)
                at = self._at

    def _take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._raw):
            raise PlainPickleError("it is cut")
        return self._raw[start : self._at]

    def _number(self, form: struct.Struct) -> Any:  # noqa: ANN401 (a number)
        start, self._at = self._at, self._at + form.size
        return form.unpack_from(self._raw, start)[0]

    def _since_mark(self) -> list[Any]:
        """Return the values since the last mark, taken off the stack."""
        mark = self._marks.pop()
        found = self._stack[mark:]
        del self._stack[mark:]
        return found

    def _collect(self, most: int) -> None:
        """Make a tuple of the last values."""
        if len(self._stack) < most:
            raise PlainPickleError("the stack is empty")
        found = tuple(self._stack[-most:])
        del self._stack[-most:]
        self._make(found)

    def _make(self, container: Any) -> None:  # noqa: ANN401 (of plain data)
        """Push a container: it takes far more memory than the byte that asks for it."""
        self._made += 1
        if self._made > CONTAINERS_MAX:
            raise PlainPickleError("it has too many parts")
        self._stack.append(container)

    def _append(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise PlainPickleError("no list")
        target.extend(values)

    def _set(self, values: list[Any]) -> None:
        target = self._stack[-1]
        keys = values[::2]
        if type(target) is not dict or len(values) % 2:
            raise PlainPickleError("no dictionary")
        if any(type(key) is not str for key in keys):
            raise PlainPickleError("a key is no text")
        target.update(zip(keys, values[1::2], strict=True))

    def _long(self) -> None:
        count = self._take(1)[0]
        if count > _LONG_MAX_BYTES:
            raise PlainPickleError("a number is too long")
        number = int.from_bytes(self._take(count), "little", signed=True)
        self._stack.append(number)

    def _pair(self) -> list[Any]:
        value, key = self._stack.pop(), self._stack.pop()
        return [key, value]

    def _put(self, place: int) -> None:
        if place == len(self._memo):
            self._memo.append(self._stack[-1])
        elif place < len(self._memo):
            self._memo[place] = self._stack[-1]
        else:
            raise PlainPickleError("the memo has a gap")

    def push(self, value: Any) -> None:  # noqa: ANN401 (plain data)
        self._stack.append(value)


def _text(form: struct.Struct) -> Callable[[_Reader], None]:
    def push(r: _Reader) -> None:
        raw = r._take(r._number(form))
        r.push(raw.decode("utf-8", "surrogatepass"))

    return push


def _bytes(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r.push(r._take(r._number(form)))


def _int(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r.push(r._number(form))


def _put(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r._put(r._number(form))


# ruff: noqa: SLF001 (the table is the machine's own)
OPERATIONS: Final[dict[int, Callable[[_Reader], None]]] = {
    0x80: lambda r: r._number(_BYTE),  # the protocol
    0x95: lambda r: r._number(_WIDE),  # the length of a frame
    ord("}"): lambda r: r._make({}),
    ord("]"): lambda r: r._make([]),
    ord(")"): lambda r: r.push(()),
    ord("N"): lambda r: r.push(None),
    0x88: lambda r: r.push(True),
    0x89: lambda r: r.push(False),
    ord("e"): lambda r: r._append(r._since_mark()),
    ord("a"): lambda r: r._append([r._stack.pop()]),
    ord("u"): lambda r: r._set(r._since_mark()),
    ord("s"): lambda r: r._set(r._pair()),
    ord("t"): lambda r: r._make(tuple(r._since_mark())),
    0x85: lambda r: r._collect(1),
    0x86: lambda r: r._collect(2),
    0x87: lambda r: r._collect(3),
    ord("X"): _text(_WORD),
    0x8C: _text(_BYTE),
    ord("B"): _bytes(_WORD),
    ord("C"): _bytes(_BYTE),
    ord("M"): _int(_SHORT),
    ord("J"): _int(_SIGNED),
    ord("G"): _int(_REAL),
    0x8A: _Reader._long,
    ord("q"): _put(_BYTE),
    ord("r"): _put(_WORD),
    0x94: lambda r: r._put(len(r._memo)),
}
