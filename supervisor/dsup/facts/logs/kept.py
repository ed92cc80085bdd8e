"""A list that stays small: the first and the last of what is added."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")

FIRST: Final = 2000
LAST: Final = 2000


class Kept(Generic[T]):
    """The first and the last of many; a log tells most at its begin and its end.

    Args:
        first: so many of the first are kept.
        last: so many of the last.
    """

    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        self._room = first
        self._first: list[T] = []
        self._last: deque[T] = deque(maxlen=last)

    def add(self, item: T) -> None:
        """Keep an item, and give up one from the middle if there are too many."""
        if len(self._first) < self._room:
            self._first.append(item)
        else:
            self._last.append(item)

    def all(self) -> tuple[T, ...]:
        """Return what is kept, in the order in which it was added."""
        return (*self._first, *self._last)
