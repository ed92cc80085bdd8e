"""How a verdict says it: one sentence, subject first, certainty in its words. Pure.

Counts are exact, dsup's own acts are named as dsup's, and no code stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dsup.core.exits import signal_name
from dsup.core.printable import printable
from dsup.core.verdict import SUMMARY_MAX_CHARS, Certainty
from dsup.facts.raised import Raised

TEXT_MAX_CHARS: Final = 180
"""So much of an exception's text goes into the sentence."""

LINE_MAX_CHARS: Final = 400
SHELL_SIGNALS: Final = frozenset({1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 15})
"""Signals that a shell's exit code 128+n tells of."""

WAS_SENT: Final = "or somebody sent it"
CAST_OFF: Final = "without an active exception"
"""What the C++ run time says of a thread that is destroyed while it runs."""

_KIB_PER_GIB: Final = 1024 * 1024
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")
_IN_WORKER: Final = "in DataLoader worker process"


def one_line(text: str, limit: int = LINE_MAX_CHARS) -> str:
    """Return a text in one printable line of at most so many characters."""
    line = printable(" ".join(text[: 8 * limit].split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def sentence(text: str) -> str:
    """Return a summary: one line, one full stop, not too long."""
    return f"{one_line(text, SUMMARY_MAX_CHARS - 1).rstrip('.')}."


def alike(text: str) -> str:
    """Return a text without what differs between ranks, attempts and machines."""
    return _NUMBER.sub("#", one_line(text, 160))


def common(told: Iterable[Raised]) -> Raised:
    """Return the first of exceptions, ``#`` in its text for numbers that differ.

    Where the texts differ in more than numbers, it says that it is an example.
    """
    alike_ones = list(told)
    texts = [message(one) for one in alike_ones]
    if len(set(texts)) == 1:
        return alike_ones[0]
    if len({_NUMBER.sub("#", text) for text in texts}) > 1:
        return alike_ones[0]._replace(text=f"for example {texts[0]}")
    numbers = zip(*map(_NUMBER.findall, texts), strict=True)
    shown = iter([found[0] if len(set(found)) == 1 else "#" for found in numbers])
    text = _NUMBER.sub(lambda _: next(shown), texts[0])
    return alike_ones[0]._replace(text=text)


def listed(ranks: Iterable[int]) -> str:
    """Return ``2``, ``1 and 3``, ``0, 2 and 5`` or ``0 to 7``."""
    numbers = sorted(set(ranks))
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:  # noqa: PLR2004
        return f"{numbers[0]} to {numbers[-1]}"
    shown = [str(number) for number in numbers]
    return " and ".join((", ".join(shown[:-1]), shown[-1]) if shown[1:] else shown)


def subject(ranks: Iterable[int], world_size: int | None = None) -> str:
    """Return ``Rank 2``, ``Ranks 1 and 3``, or ``All 8 ranks`` for the whole world."""
    numbers = set(ranks)
    if world_size is not None and len(numbers) == world_size > 1:
        return f"All {world_size} ranks"
    return f"{'Rank' if len(numbers) == 1 else 'Ranks'} {listed(numbers)}"


def others(count: int) -> str:
    """Return ``the other rank`` or ``the other 7``."""
    return "the other rank" if count == 1 else f"the other {count}"


def was(ranks: tuple[int, ...]) -> str:
    """Return the verb that fits so many ranks."""
    return "was" if len(ranks) == 1 else "were"


def hedge(certainty: Certainty) -> str:
    """Return ``likely`` and a blank where a thing is not proven; else nothing."""
    return "" if certainty == "proven" else "likely "


def status_text(status: int) -> str:
    """Return ``SIGKILL``, or ``exit code 7``."""
    return signal_name(-status) if status < 0 else f"exit code {status}"


def gib(kib: int) -> str:
    """Return a size of so many KiB with three digits, such as ``161 GiB``."""
    value = kib / _KIB_PER_GIB
    if value < 1:
        return f"{kib / 1024:.3g} MiB"
    return f"{value:.0f} GiB" if value >= 100 else f"{value:.3g} GiB"  # noqa: PLR2004


def place(raised: Raised) -> str:
    """Return ``train.py:203``; empty where nobody said."""
    name = raised.file.rpartition("/")[2]
    return f"{name}:{raised.line}" if name and raised.line is not None else name


def message(raised: Raised) -> str:
    """Return the telling part of an exception's text, one line."""
    lines = [line.strip() for line in raised.text.splitlines() if line.strip()]
    if not lines:
        return ""
    if _IN_WORKER in lines[0]:
        _, _, inner = lines[-1].partition(": ")
        return one_line(
            f"{inner or lines[-1]} (in a DataLoader worker)", TEXT_MAX_CHARS
        )
    telling = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return one_line(telling, TEXT_MAX_CHARS)


def exception(raised: Raised) -> str:
    """Return ``ValueError: batch 812 has no labels (train.py:203)``."""
    text, where = message(raised).rstrip("."), place(raised)
    named = one_line(raised.type, 80)
    shown = f"{named}: {text}" if text else named
    return f"{shown} ({one_line(where, 60)})" if where else shown
