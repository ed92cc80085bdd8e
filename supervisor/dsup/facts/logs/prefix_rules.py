"""Rules that take a prefix off a line: a form, and what it tells."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from dsup.facts.logs.head import Head

Take: TypeAlias = Callable[[re.Match[str], Head], bool]
"""Takes a prefix in; False if it is none after all."""

Rule: TypeAlias = tuple[re.Pattern[str], Take]


class Rules(NamedTuple):
    """Prefixes that begin alike.

    Attributes:
        gate: matches where one of them does: most lines have none.
        each: the first that is taken wins.
    """

    gate: re.Pattern[str]
    each: tuple[Rule, ...]

    def peel(self, text: str, head: Head) -> str | None:
        """Take one prefix off a text; None where there is none."""
        if not self.gate.match(text):
            return None
        for pattern, take in self.each:
            if (found := pattern.match(text)) and take(found, head):
                return text[found.end() :]
        return None


def rules_of(*pairs: tuple[str, Take]) -> Rules:
    """Return the rules of these forms and of what takes them in."""
    gate = "|".join(f"(?:{pattern})" for pattern, _ in pairs)
    each = tuple((re.compile(pattern), take) for pattern, take in pairs)
    return Rules(re.compile(gate), each)
