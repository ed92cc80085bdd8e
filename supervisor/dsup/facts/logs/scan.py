"""What of a log of any size is worth reading, in bounded memory.

A small log is handed out whole. Of a large one: its beginning (commands, banners, which
pid is which rank), its end (last progress, the failure), and between them the regions
around words that failures are told with. The first and the last of each kind are kept,
so that a log of nothing but errors keeps both the failure and what came of it.

A block without such words costs a search for each word and no line of it is made: some
150 MB/s on one core. Line numbers stay right, as newlines are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dsup.facts.logs.raw import RawLine

BLOCK_BYTES: Final = 1_048_576

KINDS: Final = (
    b"traceback",
    b"error",
    b"fail",
    b"signal",
    b"exit",
    b"watchdog",
    b"nccl warn",
    b"terminat",
    b"abort",
    b"killed",
    b"cancelled",
    b"restart",
)
"""Words of failures, lower case. Each telling line of the public reports has one of
them, or stands close to a line that has: an exception comes with its traceback, a
broken heap with the signal that it ends in. More words would cost more time."""

_SEAM_BYTES: Final = 16
"""As long as the longest word, so that none is missed between two blocks."""

_BEFORE_BYTES: Final = 4096
_AFTER_BYTES: Final = 12_288
_HITS_MAX: Final = 4
"""So many of the first places of a word in a block are looked at, and its last one:
what costs time and memory is bounded whatever a log is full of."""


class Limits(NamedTuple):
    """How much of one file is kept.

    Attributes:
        whole: a file of so many bytes is handed out as it is.
        head: so many bytes of the beginning of a larger one.
        tail: and of its end.
        each: so many regions of each kind, first ones and last ones, half and half.
    """

    whole: int = 4 * BLOCK_BYTES
    head: int = 262_144
    tail: int = 2 * BLOCK_BYTES
    each: int = 32


_TOTAL_BYTES: Final = 32 * BLOCK_BYTES
_LEAST_BYTES: Final = 16_384


def limits_for(files: int) -> Limits:
    """Return what to keep of each of so many files: all together stay bounded."""
    share = max(_LEAST_BYTES, _TOTAL_BYTES // max(1, files))
    whole = min(Limits().whole, share)
    return Limits(
        whole=whole,
        head=min(Limits().head, whole // 4),
        tail=min(Limits().tail, whole // 2),
        each=max(2, min(Limits().each, whole // 262_144)),
    )


class _Region(NamedTuple):
    """A piece of a file.

    Attributes:
        start: offset of its first byte.
        line: number of the line that this byte is in.
        data: its bytes.
    """

    start: int
    line: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class _Open(NamedTuple):
    """A region that goes on in the next block, up to an offset."""

    kind: bytes
    region: _Region
    end: int


def scan(
    file: str, blocks: Iterable[bytes], limits: Limits | None = None
) -> Iterator[RawLine]:
    """Yield the lines of a log that are worth reading, in order.

    Args:
        file: its name.
        blocks: its bytes; some ``BLOCK_BYTES`` each do best.
        limits: how much to keep.
    """
    kept = _Kept(limits or Limits())
    for block in blocks:
        for start in range(0, len(block), BLOCK_BYTES):
            kept.feed(block[start : start + BLOCK_BYTES])
    yield from _lines(file, kept.regions())


class _Kept:
    """Keeps the regions of one file."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._head: list[_Region] = []
        self._tail: deque[_Region] = deque()
        self._tail_bytes = 0
        self._first: dict[bytes, list[_Region]] = {kind: [] for kind in KINDS}
        self._last: dict[bytes, deque[_Region]] = {
            kind: deque(maxlen=max(1, limits.each // 2)) for kind in KINDS
        }
        self._open: list[_Open] = []
        self._offset = 0
        self._line = 1
        self._before = _Region(0, 1, b"")

    def feed(self, block: bytes) -> None:
        """Take in the next bytes."""
        region = _Region(self._offset, self._line, block)
        if self._offset < self._limits.head:
            self._head.append(_cut(region, self._offset, self._limits.head))
        self._go_on(region)
        self._look(region)
        self._tail.append(region)
        self._tail_bytes += len(block)
        self._shrink()
        self._before = region
        self._offset += len(block)
        self._line += block.count(b"\n")

    def _shrink(self) -> None:
        """Let go of what the tail holds beyond its size; a small file stays whole."""
        size = self._tail_bytes
        if self._offset + len(self._before.data) <= self._limits.whole and (
            self._tail[0].start == 0 and size <= self._limits.whole
        ):
            return
        while self._tail_bytes - len(self._tail[0].data) >= self._limits.tail:
            self._tail_bytes -= len(self._tail.popleft().data)

    def regions(self) -> list[_Region]:
        """Return what is kept, by offset."""
        whole = self._offset <= self._limits.whole
        end = list(self._tail)
        if not whole:
            end = [_cut(x, self._offset - self._limits.tail, self._offset) for x in end]
        firsts = (region for kept in self._first.values() for region in kept)
        lasts = (region for kept in self._last.values() for region in kept)
        unfinished = (found.region for found in self._open)
        return sorted({*self._head, *firsts, *lasts, *unfinished, *end})

    def _look(self, block: _Region) -> None:
        seam = self._before.data[-_SEAM_BYTES:]
        text = (seam + block.data).lower()
        for kind in KINDS:
            if kind in text:
                self._keep(kind, text, block, len(seam))

    def _keep(self, kind: bytes, text: bytes, block: _Region, seam: int) -> None:
        at = -1
        end = -1
        for _ in range(_HITS_MAX):
            at = text.find(kind, max(at + 1, end))
            if at < 0:
                return
            end = self._add(kind, block, at - seam) + seam
        last = text.rfind(kind)
        if last >= end:
            self._add(kind, block, last - seam)

    def _add(self, kind: bytes, block: _Region, at: int) -> int:
        """Keep the surroundings of a place; return where in the block they end."""
        place = block.start + at
        start, end = place - _BEFORE_BYTES, place + _AFTER_BYTES
        region = _cut(block, start, end, max(block.start, place))
        if start < block.start and self._before.data:
            before = _cut(self._before, start, block.start, block.start)
            region = _joined(before, region)
        if end > block.end:
            self._open.append(_Open(kind, region, end))
        else:
            self._store(kind, region)
        return at + _AFTER_BYTES

    def _store(self, kind: bytes, region: _Region) -> None:
        first = self._first[kind]
        if len(first) < max(1, self._limits.each // 2):
            first.append(region)
        else:
            self._last[kind].append(region)

    def _go_on(self, block: _Region) -> None:
        """Add what comes to the regions that went beyond the last block."""
        still, self._open = self._open, []
        for kind, region, end in still:
            whole = _joined(region, _cut(block, block.start, end))
            if end > block.end:
                self._open.append(_Open(kind, whole, end))
            else:
                self._store(kind, whole)


def _joined(first: _Region, second: _Region) -> _Region:
    return _Region(first.start, first.line, first.data + second.data)


def _cut(region: _Region, start: int, end: int, keep: int = 0) -> _Region:
    """Return the part of a region between two offsets, in whole lines if it has any.

    Args:
        region: to be cut.
        start: where the part may begin.
        end: where it has to end.
        keep: an offset that stays in the part.
    """
    low = max(0, start - region.start)
    high = min(len(region.data), max(0, end - region.start))
    if low:
        low = _next_line(region.data, low, min(high, max(low, keep - region.start)))
    if high < len(region.data):
        newline = region.data.rfind(b"\n", max(low, keep - region.start), high)
        high = high if newline < 0 else newline + 1
    line = region.line + region.data.count(b"\n", 0, low)
    return _Region(region.start + low, line, region.data[low:high])


def _next_line(data: bytes, low: int, high: int) -> int:
    """Return where the first line after a place begins, or after a bar's state."""
    found = data.find(b"\n", low, high)
    if found < 0:
        found = data.find(b"\r", low, high)
    return low if found < 0 else found + 1


def _lines(file: str, regions: list[_Region]) -> Iterator[RawLine]:
    """Yield the lines of regions, each byte once."""
    rest, number, done = b"", 1, 0
    for region in regions:
        if region.end <= done:
            continue
        if region.start > done:
            if rest:
                yield RawLine(file, number, rest)
            rest, number = b"", region.line
        data = region.data[max(0, done - region.start) :]
        *full, rest = (rest + data).split(b"\n")
        for line in full:
            yield RawLine(file, number, line)
            number += 1
        done = region.end
    if rest:
        yield RawLine(file, number, rest)
