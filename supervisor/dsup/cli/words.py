"""Abbreviated options spelled out, as argparse's users expect. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Spelling(NamedTuple):
    """One way to write an option.

    Attributes:
        option: the same for all spellings of an option.
        takes_value: a value follows.
    """

    option: str
    takes_value: bool


class AmbiguousError(ValueError):
    """An abbreviation stands for several options; says which."""


def spelled_out(words: Sequence[str], known: Mapping[str, Spelling]) -> list[str]:
    """Return a command line without abbreviations, up to the script and its words.

    Args:
        words: the command line.
        known: every spelling with dashes of every option, ``-m`` and ``--module``.

    Raises:
        AmbiguousError: if a beginning stands for several options.
    """
    done, rest = list[str](), list(words)
    while rest and _is_option(rest[0]):
        word = rest.pop(0)
        long = word.startswith("--")
        full = _long(word, known) if long else _short(word, known)
        done.append(full)
        if rest and _wants_value(full, known):
            done.append(rest.pop(0))
    return done + rest


def _is_option(word: str) -> bool:
    return word.startswith("-") and word not in {"-", "--"}


def _long(word: str, known: Mapping[str, Spelling]) -> str:
    name, equals, value = word.partition("=")
    name = name.replace("_", "-")
    fitting = [spelling for spelling in known if spelling.startswith(name)]
    meant = {known[spelling].option for spelling in fitting}
    if name in known or not fitting:
        return f"{name}{equals}{value}"
    if len(meant) > 1:
        raise AmbiguousError(f"option '{name}' could be {', '.join(sorted(fitting))}")
    return f"{fitting[0]}{equals}{value}"


def _short(word: str, known: Mapping[str, Spelling]) -> str:
    """Return ``-r3`` for ``-r=3``."""
    found = known.get(word[:2])
    drop = found and found.takes_value and word[2:3] == "=" and len(word) > len("-r=")
    return word[:2] + word[3:] if drop else word


def _wants_value(word: str, known: Mapping[str, Spelling]) -> bool:
    if word.startswith("--"):
        found = known.get(word)
        return bool(found and found.takes_value)
    letters = [known.get(f"-{letter}") for letter in word[1:]]
    taking = [bool(found and found.takes_value) for found in letters]
    return any(taking) and taking.index(True) == len(taking) - 1
