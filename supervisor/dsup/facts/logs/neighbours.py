"""Prefixes that count only because the lines around have them too.

``3: `` before a line is ``srun --label``'s task, or the program's own text; ``[3] `` is
MPICH's rank, the number that a log viewer gave the line, or a footnote; ``worker-1: ``
is pdsh's node, or a word. What most lines of the file's beginning have is a prefix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from dsup.facts.logs.head import Head
from dsup.facts.logs.prefixes import KNOWN

SAMPLE_LINES: Final = 200
_LEAST: Final = 2
_SHARED_LEAST: Final = 4
_SHARED: Final = 0.9
"""What so large a part of the lines begin with is a node's name, whatever they say."""

_VIEWER_LEAST: Final = 16_384
"""More ranks than that have no such label; a line number has."""

_TASK: Final = re.compile(r" {0,5}(\d{1,5}):(?: |$)")
_NUMBER: Final = re.compile(
    r"\[(\d{1,9})\](?: |$)(?!NCCL |\w{1,32}/\w{1,64}\.\w{1,4}:\d)"
)
_LOCAL: Final = re.compile(r"\[(\d{1,4})\]:(?=.)")
_SCROLL: Final = re.compile(r"\[\d{1,6}/\d{1,6}\] ")
_WORD: Final = re.compile(r"([A-Za-z\d][\w./-]{0,62}?)(?::(?: |$)| {1,20}\|(?: |$))")
_REPLICA: Final = re.compile(r"([a-z_][\w-]{0,40}/\d{1,5}) ")
_BOLD: Final = re.compile(r"(?<!\*)\*\*(?!\*)")
_STAMP: Final = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\S{8,24} (?:\| )?")
_NO_NODES: Final = frozenset(
    ("srun", "slurmstepd", "mpirun", "mpiexec", "bash", "sh", "python", "torchrun")
)


class Neighbours:
    """Which of these prefixes the lines of one file have.

    Args:
        sample: its first lines.
    """

    def __init__(self, sample: Iterable[str]) -> None:
        texts = [_without_stamp(text) for text in sample if text.strip()]
        least = max(_LEAST, len(texts) // 2)
        self._tasks = sum(map(bool, map(_TASK.match, texts))) >= least
        self._numbers = sum(map(bool, map(_NUMBER.match, texts))) >= least
        self._quoted = sum(text.startswith(">") for text in texts) >= least
        self._names = _names(texts)

    def peel(self, text: str, head: Head) -> str:
        """Take one such prefix off a text; the same text where there is none."""
        if not text:
            return text
        if text[0] == "[":
            return self._bracket(text, head)
        if self._quoted and text[0] == ">":
            return _BOLD.sub("", text[1:].removeprefix(" "))
        found = _TASK.match(text)
        if found and (self._tasks or KNOWN.match(text, found.end())):
            head.launcher(f"{int(found[1])}:", rank=int(found[1]))
            return text[found.end() :]
        return self._word(text, head) if text[0].isalnum() else text

    def _bracket(self, text: str, head: Head) -> str:
        if found := _LOCAL.match(text):
            head.launcher(f"[{found[1]}]:", local=int(found[1]))
            return text[found.end() :]
        found = _NUMBER.match(text)
        if found and (self._numbers or KNOWN.match(text, found.end())):
            if int(found[1]) < _VIEWER_LEAST:
                head.launcher(f"[{found[1]}]", rank=int(found[1]))
            return text[found.end() :]
        found = _SCROLL.match(text)
        if found and KNOWN.match(text, found.end()):
            return text[found.end() :]
        return text

    def _word(self, text: str, head: Head) -> str:
        found = _WORD.match(text) or _REPLICA.match(text)
        if found is None or not self._is_node(found[1], text[found.end() :]):
            return text
        head.launcher(found[1])
        head.place = head.place._replace(node=found[1])
        return text[found.end() :]

    def _is_node(self, name: str, rest: str) -> bool:
        return name in self._names or _is_node(name, rest)


def _names(texts: list[str]) -> frozenset[str]:
    known: set[str] = set()
    counted: Counter[str] = Counter()
    for text in texts:
        found = _WORD.match(text) or _REPLICA.match(text)
        if found and _has_number(found[1]):
            counted[found[1]] += 1
            if KNOWN.match(text, found.end()):
                known.add(found[1])
    most = counted.most_common(1)
    if most and len(texts) >= _SHARED_LEAST and most[0][1] >= len(texts) * _SHARED:
        known.add(most[0][0])
    return frozenset(known)


def _is_node(name: str, rest: str) -> bool:
    """Return whether a word is a node's name: a number in it, a log line behind it."""
    return _has_number(name) and KNOWN.match(rest) is not None


def _has_number(name: str) -> bool:
    return name not in _NO_NODES and any(map(str.isdigit, name))


def _without_stamp(text: str) -> str:
    found = _STAMP.match(text)
    return text[found.end() :] if found else text
