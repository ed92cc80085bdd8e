"""Which processors a rank is bound to, so that it stays near its GPU. Pure.

Source: torch/numa/binding.py of torch 2.13, whose four modes these are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Topology(NamedTuple):
    """Where the GPUs and processors of a node are.

    Attributes:
        gpus: NUMA node of each GPU that ranks can see, in the order of their devices.
        nodes: the processors of each NUMA node that dsup itself may use.
        sockets: socket of each processor.
        cores: the lowest processor of the physical core of each processor.
        caches: the lowest processor that shares the last level of cache with each.
    """

    gpus: tuple[int, ...]
    nodes: Mapping[int, frozenset[int]]
    sockets: Mapping[int, int]
    cores: Mapping[int, int]
    caches: Mapping[int, int]


def processors(mode: str, gpu: int, topology: Topology) -> frozenset[int]:
    """Return the processors of the rank that uses a GPU.

    Args:
        mode: ``node``, ``socket``, ``exclusive`` or ``core-complex``.
        gpu: the device, from 0.
        topology: of the node.

    Raises:
        ValueError: if there is no such GPU, or no processor for it.
    """
    if gpu >= len(topology.gpus):
        raise ValueError(f"there are {len(topology.gpus)} GPUs for local rank {gpu}")
    home = topology.gpus[gpu]
    near = topology.nodes.get(home, frozenset())
    if not near:
        raise ValueError(f"dsup may use no processor of NUMA node {home}")
    if mode == "node":
        return near
    if mode == "socket":
        return _socket(near, topology)
    peers = [number for number, node in enumerate(topology.gpus) if node == home]
    if mode == "exclusive":
        groups = _grouped(near, topology.cores)
        return _share(groups, peers.index(gpu), len(peers))
    caches = sorted(_grouped(near, topology.caches), key=lambda c: (-len(c), min(c)))
    return caches[peers.index(gpu) % len(caches)]


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as the kernel lists them: ``0-2,4``."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def parse_ranges(text: str) -> frozenset[int]:
    """Return the numbers of a list as the kernel writes it.

    Raises:
        ValueError: if it is no such list.
    """
    found: set[int] = set()
    for word in filter(None, text.strip().split(",")):
        first, _, last = word.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _socket(near: frozenset[int], topology: Topology) -> frozenset[int]:
    mine = topology.sockets.get(min(near))
    same = (
        cpus
        for cpus in topology.nodes.values()
        if cpus and topology.sockets.get(min(cpus)) == mine
    )
    return frozenset().union(*same)


def _grouped(
    numbers: Iterable[int], leaders: Mapping[int, int]
) -> list[frozenset[int]]:
    groups = defaultdict[int, set[int]](set)
    for number in numbers:
        groups[leaders.get(number, number)].add(number)
    return [frozenset(groups[leader]) for leader in sorted(groups)]


def _share(cores: list[frozenset[int]], index: int, shares: int) -> frozenset[int]:
    """Return one of equal shares of the cores; the first ones get what is left over."""
    size, extra = divmod(len(cores), shares)
    if size == 0:
        raise ValueError(f"{len(cores)} cores cannot be divided among {shares} GPUs")
    start = index * size + min(index, extra)
    return frozenset().union(*cores[start : start + size + (index < extra)])
