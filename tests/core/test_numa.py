"""Which processors are near a GPU: torchrun's four modes on a node of two sockets."""

import pytest

from dsup.core import numa

# Two sockets of two NUMA nodes each; every core has two threads, n and n + 16; four
# processors share a cache. GPUs 0-2 are on node 0, GPU 3 on node 2.
CPUS = range(32)
TOPOLOGY = numa.Topology(
    gpus=(0, 0, 0, 2),
    nodes={
        node: frozenset(
            {*range(4 * node, 4 * node + 4), *range(16 + 4 * node, 20 + 4 * node)}
        )
        for node in range(4)
    },
    sockets={cpu: cpu % 16 // 8 for cpu in CPUS},
    cores={cpu: cpu % 16 for cpu in CPUS},
    caches={cpu: cpu % 16 // 2 * 2 for cpu in CPUS},
)


@pytest.mark.parametrize(
    ("mode", "gpu", "expected"),
    [
        ("node", 0, "0-3,16-19"),
        ("node", 3, "8-11,24-27"),
        ("socket", 1, "0-7,16-23"),
        ("socket", 3, "8-15,24-31"),
        ("exclusive", 0, "0-1,16-17"),
        ("exclusive", 1, "2,18"),
        ("exclusive", 2, "3,19"),
        ("exclusive", 3, "8-11,24-27"),
        ("core-complex", 0, "0-1,16-17"),
        ("core-complex", 1, "2-3,18-19"),
        ("core-complex", 2, "0-1,16-17"),
    ],
)
def test_the_processors_of_a_rank(mode, gpu, expected):
    """Whole cores, shared out evenly; the first ranks get what is left over."""
    assert numa.ranges(numa.processors(mode, gpu, TOPOLOGY)) == expected


def test_larger_core_complexes_come_first():
    """Where dsup may not use all processors, the fuller cache is the better one."""
    nodes = {0: frozenset({1, 2, 3}), 2: frozenset()}

    found = numa.processors("core-complex", 0, TOPOLOGY._replace(nodes=nodes))

    assert found == {2, 3}


@pytest.mark.parametrize(
    ("mode", "gpu", "nodes", "why"),
    [
        ("node", 4, TOPOLOGY.nodes, "there are 4 GPUs for local rank 4"),
        ("node", 3, {0: frozenset({0})}, "no processor of NUMA node 2"),
        ("exclusive", 0, {0: frozenset({0, 16})}, "1 cores cannot be divided among 3"),
    ],
)
def test_what_cannot_be_is_told(mode, gpu, nodes, why):
    """The reason names what there is."""
    with pytest.raises(ValueError, match=why):
        numa.processors(mode, gpu, TOPOLOGY._replace(nodes=nodes))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", set()), ("0", {0}), ("0-2,4,6-7\n", {0, 1, 2, 4, 6, 7})],
)
def test_lists_of_the_kernel(text, numbers):
    """A list can be read and written."""
    assert numa.parse_ranges(text) == numbers
    assert numa.ranges(numbers) == text.strip()
