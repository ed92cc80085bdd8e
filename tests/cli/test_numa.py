"""--numa-binding on a node that is made of files."""

import os

import pytest

from dsup.cli.numa import bindings
from dsup.core.errors import SpecError

ME = min(os.sched_getaffinity(0))


@pytest.fixture
def node(tmp_path):
    """Make a node of two NVIDIA GPUs on NUMA node 1, with one processor of ours."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    for bus, kind in (("3b", "0x030200"), ("d8", "0x030200"), ("01", "0x020000")):
        device = f"sys/bus/pci/devices/0000:{bus}:00.0"
        write(f"{device}/vendor", "0x10de")
        write(f"{device}/class", kind)
        write(f"{device}/numa_node", "1")
        write(
            f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information",
            f"Model: \t\t X\nGPU UUID: \t GPU-{bus}",
        )
    write("sys/devices/system/node/node0/cpulist", "")
    write("sys/devices/system/node/node1/cpulist", f"{ME},4000-4001")
    write("sys/devices/system/node/possible", "0-1")
    cpu = f"sys/devices/system/cpu/cpu{ME}"
    write(f"{cpu}/topology/thread_siblings_list", str(ME))
    write(f"{cpu}/topology/physical_package_id", "0")
    for index, level, kind in (
        (0, 1, "Data"),
        (1, 3, "Unified"),
        (2, 9, "Instruction"),
    ):
        write(f"{cpu}/cache/index{index}/level", str(level))
        write(f"{cpu}/cache/index{index}/type", kind)
        write(f"{cpu}/cache/index{index}/shared_cpu_list", str(ME))
    write("bin/numactl", "#!/bin/sh")
    (tmp_path / "bin/numactl").chmod(0o755)
    return tmp_path


@pytest.fixture
def bind(node):
    """Give ``bind(mode, ranks, **variables)``."""

    def call(mode, ranks, **variables):
        environment = {"PATH": str(node / "bin")} | variables
        return bindings(mode, ranks, environment, str(node))

    return call


@pytest.mark.parametrize("mode", ["node", "socket", "core-complex"])
def test_a_rank_is_bound_by_numactl(bind, node, mode):
    """To those of the processors near its GPU that dsup itself may use."""
    bound = (str(node / "bin/numactl"), f"--physcpubind={ME}")

    assert bind(mode, 2) == (bound, bound)


@pytest.mark.parametrize("visible", ["1", "GPU-d8", "GPU-3b,0"])
def test_gpus_are_those_that_the_ranks_see(bind, visible):
    """By number or by UUID, as CUDA reads them."""
    ranks = visible.count(",") + 1

    assert len(bind("node", ranks, CUDA_VISIBLE_DEVICES=visible)) == ranks


@pytest.mark.parametrize(
    ("mode", "ranks", "variables", "why"),
    [
        ("node", 3, {}, "there are 2 GPUs for local rank 2"),
        ("node", 2, {"CUDA_VISIBLE_DEVICES": "0"}, "there are 1 GPUs for local rank 1"),
        ("node", 1, {"CUDA_VISIBLE_DEVICES": "MIG-1"}, "no GPU here is called 'MIG-1'"),
        ("exclusive", 2, {}, "1 cores cannot be divided among 2 GPUs"),
        ("node", 1, {"PATH": "/nowhere"}, "there is no numactl on PATH"),
    ],
)
def test_what_cannot_be_bound_is_refused(bind, mode, ranks, variables, why):
    """Exit code 2, the reason, and what to do."""
    with pytest.raises(SpecError, match=why) as refused:
        bind(mode, ranks, **variables)

    assert refused.value.exit_code == 2
    assert str(refused.value).startswith(f"cannot use --numa-binding {mode}, because ")


def test_a_node_without_gpus_is_refused(node):
    """There is nothing to be near to."""
    with pytest.raises(SpecError, match="this node has no GPU"):
        bindings("node", 1, {"PATH": str(node / "bin")}, str(node / "empty"))
