"""Who wrote each line of an attempt, as all its lines together tell.

One line says ``[default3]:[rank12]: ``: all lines labelled ``default3`` are rank 12's.
NCCL says which rank a pid is, torchrun's summary which rank a local rank is. And what
looked like a rank on one line may turn out a node, a line number or a place in a group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from dsup.facts.logs import sniffed
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.pids import Known, known, short
from dsup.facts.logs.years import dated

_ELASTIC: Final = ("torch.distributed.elastic", "torch/distributed/elastic", "torchrun")
_ONE_NODE: Final = (
    "--nnodes=1 ",
    "--nnodes 1 ",
    "--nnodes=1:1 ",
    "--rdzv_endpoint=localhost:",
    "--rdzv-endpoint=localhost:",
    "nnodes=1, ",
    "group_world_size=1",
    "--num_machines 1 ",
    "--num_machines=1 ",
)

_GROUPS_LEAST: Final = 3

Stream: TypeAlias = tuple[str, str, str]
"""File, node and label: lines that have these in common are one process's."""


class _Doubt(NamedTuple):
    """What the lines of an attempt tell of ranks that are none.

    Attributes:
        below: labels that count Slurm's or MPI's tasks stand for launchers, since each
            runs several ranks.
        numbered: files whose ``[123] `` are a viewer's line numbers.
        grouped: c10's bare ``[Rank 2]`` counts inside some group.
    """

    below: bool
    numbered: frozenset[str]
    grouped: bool


class _Told(NamedTuple):
    """What the lines of an attempt tell together.

    Attributes:
        streams: to rank, where the lines of a stream agree.
        processes: pids and local ranks.
        one_node: local ranks are the ranks.
    """

    streams: dict[Stream, int]
    processes: Known
    one_node: bool


def placed(lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
    """Return the lines of one attempt, each with the rank that is known for it."""
    doubt = _doubt(lines)
    sure = [_at(line, _corrected(line, doubt)) for line in lines]
    told = _told(sure)
    return tuple(dated(_at(line, _found(line, told)) for line in sure))


def _at(line: LogLine, place: Place) -> LogLine:
    return line if place is line.place else line._replace(place=place)


def _found(line: LogLine, told: _Told) -> Place:
    place = line.place
    if place.rank is not None or place == Place():
        return place
    rank = _rank(line, place, told)
    return place if rank is None else place._replace(rank=rank)


def _corrected(line: LogLine, doubt: _Doubt) -> Place:
    """Return a line's place without a rank that was none."""
    place = line.place
    if place.rank is None or line.ranked:
        return place
    if place.label.startswith("[") and line.file in doubt.numbered:
        return place._replace(rank=None, label="")
    if doubt.below and _is_task(place.label):
        node = place.node or f"task {place.rank}"
        return place._replace(rank=None, node=node)
    if doubt.grouped and sniffed.is_bare(line.text):
        return place._replace(rank=None)
    return place


def _rank(line: LogLine, place: Place, told: _Told) -> int | None:
    if place.label:
        rank = told.streams.get((line.file, place.node, place.label))
        if rank is not None:
            return rank
    processes = told.processes
    if place.pid is not None:
        node = short(place.node)
        rank = processes.by_pid.get((node, place.pid))
        rank = processes.by_pid.get(("", place.pid)) if rank is None else rank
        if rank is not None:
            return rank
    if place.local_rank is None:
        return None
    if told.one_node:
        return place.local_rank
    return processes.by_local.get(place.local_rank) if processes.nodes == 1 else None


def _doubt(lines: Sequence[LogLine]) -> _Doubt:
    below = any(_is_elastic(line) for line in lines) or _contradicts(lines)
    return _Doubt(below, _numbered(lines), _is_grouped(lines))


def _told(lines: Sequence[LogLine]) -> _Told:
    streams: dict[Stream, set[int]] = defaultdict(set)
    for line in lines:
        place = line.place
        if place.label and place.rank is not None and not _is_task(place.label):
            streams[line.file, place.node, place.label].add(place.rank)
    agreed = {stream: min(r) for stream, r in streams.items() if len(r) == 1}
    return _Told(agreed, known(lines), _is_one_node(lines))


def _is_task(label: str) -> bool:
    """Return whether a label counts tasks of Slurm or MPI, and not local ranks."""
    return label.rstrip(":").strip("[]").replace(",", "").isdigit() and (
        not label.endswith("]:")
    )


def _is_elastic(line: LogLine) -> bool:
    return any(word in line.logger or word in line.text for word in _ELASTIC)


def _contradicts(lines: Iterable[LogLine]) -> bool:
    """Return whether torch's own rank differs from the task that a label counts."""
    return any(
        line.ranked
        and _is_task(line.place.label)
        and line.place.rank != int(line.place.label.strip("[]:").rpartition(",")[2])
        for line in lines
    )


def _numbered(lines: Iterable[LogLine]) -> frozenset[str]:
    """Return the files whose ``[123] `` grow from line to line."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for line in lines:
        label = line.place.label
        if label.startswith("[") and label.endswith("]"):
            found[line.file][line.number] = int(label[1:-1])
    return frozenset(
        file for file, numbers in found.items() if _grow(list(numbers.values()))
    )


def _grow(numbers: list[int]) -> bool:
    return len(numbers) > 1 and all(a < b for a, b in pairwise(numbers))


def _is_grouped(lines: Iterable[LogLine]) -> bool:
    """Return whether a bare ``[Rank 2]`` is seen not to be the global rank.

    Torch's own prefix says another rank, one process says two, or one rank waits for
    work of several sequences at a time: each group counts its own.
    """
    sequences: dict[int, set[int]] = defaultdict(set)
    owners: dict[Stream, set[int]] = defaultdict(set)
    for line in lines:
        if not sniffed.is_bare(line.text):
            continue
        inner = sniffed.rank_in(line.text)
        if inner is None or (line.ranked and inner != line.place.rank):
            return True
        if line.ranked:
            continue
        if line.place.label:
            owners[line.file, line.place.node, line.place.label].add(inner)
        if (seq := sniffed.sequence_in(line.text)) is not None:
            sequences[inner].add(seq)
    many = any(len(ranks) > 1 for ranks in owners.values())
    return many or any(map(_apart, sequences.values()))


def _apart(numbers: set[int]) -> bool:
    """Return whether sequence numbers are of several groups: they are not in a row.

    Two may be of two runs in one file.
    """
    rows = max(numbers) - min(numbers) >= len(numbers)
    return rows and len(numbers) >= _GROUPS_LEAST


def _is_one_node(lines: Iterable[LogLine]) -> bool:
    one = False
    for line in lines:
        place = line.place
        if place.local_rank is not None and place.rank not in {None, place.local_rank}:
            return False
        one = one or _says_one_node(line.text)
    return one


def _says_one_node(text: str) -> bool:
    if "--standalone" in text:
        return True
    if "node" not in text and "local" not in text and "machines" not in text:
        return False
    ended = f"{text} "
    return any(word in ended for word in _ONE_NODE)
