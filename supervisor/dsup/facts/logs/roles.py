"""What ``[rank3]:`` before a line means: torch's global rank, or a launcher's label.

torch (since 2.3) puts ``[rank3]: `` before each line of an uncaught exception and
``[rank3]:`` before its loggers' own ``[E410 …``: the global rank. torchrun's ``--tee``
puts role and LOCAL rank, and some jobs have a role named ``rank``: then what follows
has no blank of its own, or a second such prefix, which is torch's.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.head import Head

_RANK: Final = re.compile(r"\[rank(\d{1,6})\]:")
_LOGGER: Final = re.compile(r"\[?[EWIFCDV](?:\d{3,4})? ")
_ROLE: Final = ("--role rank", "--role=rank", "--role 'rank'")
_LOCAL_MAX: Final = 16
"""No node has more devices; a higher number is a global rank."""


class Roles:
    """Remembers whether a file's ``[rank3]:`` are labels of a role named rank."""

    def __init__(self) -> None:
        self._is_label: bool | None = None

    def see(self, text: str) -> None:
        """Look whether a line is the command that names the role."""
        if "--role" in text and any(role in text for role in _ROLE):
            self._is_label = True

    def peel(self, text: str, head: Head) -> str:
        """Take such a prefix off a text; the same text where there is none."""
        found = _RANK.match(text)
        if found is None:
            return text
        rank, rest = int(found[1]), text[found.end() :]
        if self._labels(rank, rest):
            head.launcher(f"rank{rank}", local=rank)
            return rest
        head.worker(rank)
        return rest.removeprefix(" ")

    def _labels(self, rank: int, rest: str) -> bool:
        if rank >= _LOCAL_MAX:
            self._is_label = False
            return False
        if _RANK.match(rest):
            return True
        if self._is_label is None and not _is_torchs(rest):
            self._is_label = True
        return bool(self._is_label)


def _is_torchs(rest: str) -> bool:
    return not rest or rest[0] == " " or _LOGGER.match(rest) is not None
