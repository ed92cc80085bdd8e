"""Ranks that stand in the texts of errors, or in the line before them.

An error whose line has no place may still tell its rank: frameworks write it into the
message, a device has a number, a file of a checkpoint is named by its rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from dsup.facts.logs.kept import Kept
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import Error

_SPEAKER: Final = re.compile(
    r"(?:^|Error: |Exception: )\[?[Rr]ank[: ]{0,2}(\d{1,6})[\]:,]"
    r"|\bbut Rank (\d{1,6}) has\b"
    r"|\b[Pp]rocess group .{0,60}? on rank:? (\d{1,6})\b"
    r"|\bon (?:global )?rank[: ]{1,2}(\d{1,6})\b"
    r"|\bdid not receive grad for rank (\d{1,6})\b"
    r"|\[[Rr]ank[: ]{0,2}(\d{1,6})\]"
)
_GPU: Final = re.compile(
    r"\bGPU (\d{1,4}) has a total capacity|\(GPU (\d{1,4}); [\d.]{1,12} [GM]iB total"
)
_FILE: Final = re.compile(r"(?:zero_pp_rank_|[/_.-]rank[_-]?)(\d{1,6})[_./-]")
_WRITE: Final = (
    "file write failed",
    "No space left on device",
    "Disk quota exceeded",
    "writing",
    "Stale file handle",
)
_NEAR_LINES: Final = 200


class Hints:
    """Remembers files that are named by a rank; finds ranks in texts."""

    def __init__(self) -> None:
        self._files: Kept[tuple[int, int]] = Kept(200, 200)

    def feed(self, line: LogLine) -> None:
        """Take in a line."""
        text = line.text
        if "rank" not in text or "av" not in text:
            return
        found = (
            _FILE.search(text[-1000:]) if "aving" in text or "aved" in text else None
        )
        if found:
            self._files.add((line.order, int(found[1])))

    def placed(
        self, locate: Callable[[Place], Place], errors: Iterable[Error]
    ) -> tuple[Error, ...]:
        """Return errors with their ranks, as far as these can be known.

        Args:
            locate: finds the rank of a place.
            errors: with the places of their lines.
        """
        located = [e._replace(place=locate(e.place)) for e in errors]
        devices = {gpu for e in located if (gpu := _gpu(e.text)) is not None}
        return tuple(self._placed(e, locate, devices) for e in located)

    def _placed(
        self, error: Error, locate: Callable[[Place], Place], devices: set[int]
    ) -> Error:
        if error.place.rank is not None:
            return error
        rank = speaker(error.text)
        gpu = _gpu(error.text)
        # Where every process sees one GPU, each calls its own number 0.
        if rank is None and gpu is not None and devices != {0}:
            return error._replace(place=locate(error.place._replace(local_rank=gpu)))
        if rank is None and any(word in error.text for word in _WRITE):
            rank = self._written(error.order)
        return (
            error
            if rank is None
            else error._replace(place=error.place._replace(rank=rank))
        )

    def _written(self, order: int) -> int | None:
        """Return the rank that the last file named which was being written."""
        before = [kept for kept in self._files.all() if kept[0] < order]
        if not before or order - before[-1][0] > _NEAR_LINES:
            return None
        return before[-1][1]


def speaker(text: str) -> int | None:
    """Return the rank that a text says it is of; None for none."""
    found = _SPEAKER.search(text[:2000])
    return next((int(g) for g in found.groups() if g), None) if found else None


def _gpu(text: str) -> int | None:
    found = _GPU.search(text[:2000])
    return next((int(g) for g in found.groups() if g), None) if found else None
