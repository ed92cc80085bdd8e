"""Physical log lines as clean lines, each with who wrote it and when.

Lines of processes that share one stream without prefixes stay one stream: nothing tells
them apart. What one line alone cannot tell (whether ``3: `` is a rank or a node, which
rank a pid is) ``ranks.placed`` settles for a whole attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count, groupby, islice
from typing import Final

from dsup.facts.logs import clean, file_names, glued, prefixes, sniffed
from dsup.facts.logs.gutter import Gutter
from dsup.facts.logs.head import Head
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.neighbours import SAMPLE_LINES, Neighbours
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.roles import Roles
from dsup.facts.logs.wrapped import Margin

_QUARTER_S: Final = 900.0
_SLACK_S: Final = 300.0
_ZONE_MAX_S: Final = 14 * 3600.0


def lines(raw: Iterable[RawLine]) -> Iterator[LogLine]:
    """Yield what physical lines say; blank lines are kept, as they end tracebacks.

    Args:
        raw: lines, those of one file together.
    """
    order = count()
    for file, group in groupby(raw, key=lambda line: line.file):
        first = list(islice(group, SAMPLE_LINES))
        gutter = Gutter(first)
        sample = list(gutter.off(first))
        reader = _File(file, sample)
        for line in Margin(sample).joined(chain(sample, gutter.off(group))):
            for made in reader.read(line):
                yield made._replace(order=next(order))


class _File:
    """Reads one file's lines.

    Args:
        name: its name, which may tell who wrote it.
        sample: its first lines.
    """

    def __init__(self, name: str, sample: list[RawLine]) -> None:
        self._name = name
        self._given = file_names.place_of(name)
        texts = [next(clean.statements(line.data)) for line in sample]
        self._neighbours = Neighbours(texts)
        self._is_rich = any(map(prefixes.RICH.match, texts))
        self._roles = Roles()
        self._zone_s = 0.0
        self._rich_s: float | None = None

    def read(self, raw: RawLine) -> Iterator[LogLine]:
        """Yield the statements of a line."""
        for text in clean.statements(raw.data):
            self._roles.see(text)
            head = Head(self._given)
            head.is_rich = self._is_rich
            first, *others = glued.parts(self._peeled(text, head))
            yield self._line(first, raw.number, head)
            for other in others:
                head = head.behind()
                yield self._line(self._peeled(other, head), raw.number, head)

    def _peeled(self, text: str, head: Head) -> str:
        for _ in range(prefixes.PREFIXES_MAX):
            rest = self._roles.peel(text, head)
            if rest == text:
                rest = prefixes.peel(text, head)
            if rest == text:
                rest = self._neighbours.peel(text, head)
            if rest == text:
                rest = glued.unframed(text)
            if rest == text:
                break
            text = rest
        return text

    def _line(self, text: str, number: int, head: Head) -> LogLine:
        if head.column:
            text, source = glued.source_column(text)
            head.logger = head.logger or source
        place = head.place
        if place.rank is None and (rank := sniffed.rank_in(text)) is not None:
            place = place._replace(rank=rank)
        if place.local_rank is None and (device := sniffed.device_in(text)) is not None:
            place = place._replace(local_rank=device)
        at_s = self._at_s(head)
        return LogLine(
            text,
            place,
            self._name,
            number,
            0,
            at_s,
            head.ranked,
            head.level,
            head.logger,
            head.zoned,
        )

    def _at_s(self, head: Head) -> float | None:
        """Return a line's time: its own stamp, in the zone of the collector's.

        Both tell of the same moment but for the zone, so their difference in quarters
        of an hour is the zone of the inner one.
        """
        inner, outer = head.at_s, head.outer_s
        if head.column:
            # Rich prints a time once for all lines of that second.
            inner = self._rich_s = self._rich_s if inner is None else inner
        if inner is None or outer is None:
            return inner
        if inner == outer:
            return inner
        zone_s = round((outer - inner) / _QUARTER_S) * _QUARTER_S
        if abs(zone_s) <= _ZONE_MAX_S and abs(outer - inner - zone_s) <= _SLACK_S:
            self._zone_s = zone_s
            return inner + zone_s
        return outer
