"""JSON that nobody vouches for, as the types it is said to have. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, Literal, TypeVar, cast, get_args, get_origin
from typing import get_type_hints as hints_of

NUMBER_MAX: Final = 1 << 53
"""Whole numbers up to this are exact in every reader of JSON."""

T = TypeVar("T")


def loads(raw: bytes) -> object:
    """Return what JSON says.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        found: object = json.loads(raw, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def a_dict(found: object) -> dict[str, object]:
    """Return an object, which JSON gives names that are strings.

    Raises:
        ValueError: it is no object.
    """
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 (one error for all garbage)
    return found


def a_list(found: object) -> list[object]:
    """Return a list.

    Raises:
        ValueError: it is no list.
    """
    if not isinstance(found, list):
        raise ValueError("not a list")  # noqa: TRY004 (one error for all garbage)
    return found


def build(cls: type[T], found: object) -> T:
    """Return what was read if it is of a type.

    Args:
        cls: str, int, float, or a NamedTuple of these, of words, of lists and of
            further such NamedTuples; None may stand where a type allows it.
        found: a NamedTuple is a list of its fields.

    Raises:
        ValueError: it is of another type, or a number that is no plain number.
    """
    return cast("T", _value(cls, found))


def _value(hint: Any, found: object) -> object:  # noqa: ANN401 (a type annotation)
    if hasattr(hint, "_fields"):
        return _tuple(hint, found)
    if get_origin(hint) is Literal:
        return _word(get_args(hint), found)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], item) for item in a_list(found))
    if get_args(hint):
        return None if found is None else _value(get_args(hint)[0], found)
    return _plain(hint, found)


def _tuple(cls: Any, found: object) -> object:  # noqa: ANN401 (a NamedTuple class)
    hints = hints_of(cls)
    items = a_list(found)
    if len(items) != len(hints):
        raise ValueError(f"not a {cls.__name__}")
    pairs = zip(hints.values(), items, strict=True)
    return cls(*(_value(hint, item) for hint, item in pairs))


def _word(words: tuple[object, ...], found: object) -> object:
    if not isinstance(found, str) or found not in words:
        raise ValueError("not a known word")
    return found


def _plain(cls: type, found: object) -> object:
    fits = type(found) is cls or (cls is float and type(found) is int)
    if not fits or (isinstance(found, int | float) and not abs(found) <= NUMBER_MAX):
        raise ValueError(f"not {cls.__name__}")
    return float(found) if cls is float and isinstance(found, int) else found


def _no_number(word: str) -> None:
    """Refuse NaN and Infinity, which JSON does not have but Python reads."""
    raise ValueError(word)
