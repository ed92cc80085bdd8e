"""``--numa-binding``: each rank near its GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from dsup.core import numa
from dsup.core.environment import visible_gpus
from dsup.core.errors import SpecError
from dsup.linux import topology


def bindings(
    mode: str, ranks: int, environment: Mapping[str, str], root: str = "/"
) -> tuple[tuple[str, ...], ...]:
    """Return what goes before the command of each local rank.

    Args:
        mode: ``node``, ``socket``, ``exclusive`` or ``core-complex``.
        ranks: of this node.
        environment: names the visible GPUs, and where programs are.
        root: where /proc and /sys are.

    Raises:
        SpecError: if ranks cannot be bound; says why.
    """
    program = shutil.which("numactl", path=environment.get("PATH"))
    if program is None:
        raise _refusal(mode, "there is no numactl on PATH", "install it")
    try:
        found = _topology(environment, root)
        sets = [numa.processors(mode, rank, found) for rank in range(ranks)]
    except ValueError as error:
        advice = "drop --numa-binding, or give fewer ranks"
        raise _refusal(mode, str(error), advice) from None
    return tuple((program, f"--physcpubind={numa.ranges(cpus)}") for cpus in sets)


def _refusal(mode: str, reason: str, advice: str) -> SpecError:
    return SpecError(f"cannot use --numa-binding {mode}, because {reason} ({advice})")


def _topology(environment: Mapping[str, str], root: str) -> numa.Topology:
    allowed = os.sched_getaffinity(0)
    nodes = {
        node: numa.parse_ranges(cpus) & allowed
        for node, cpus in topology.numa_nodes(root).items()
    }
    known = {
        cpu: topology.processor(cpu, root) for cpus in nodes.values() for cpu in cpus
    }
    return numa.Topology(
        gpus=tuple(topology.numa_node(gpu, root) for gpu in _gpus(environment, root)),
        nodes=nodes,
        sockets={cpu: int(found.socket) for cpu, found in known.items()},
        cores={cpu: _lowest(found.core) for cpu, found in known.items()},
        caches={cpu: _lowest(found.cache) for cpu, found in known.items()},
    )


def _lowest(cpus: str) -> int:
    return min(numa.parse_ranges(cpus))


def _gpus(environment: Mapping[str, str], root: str) -> list[str]:
    """Return the PCI address of each GPU that ranks see, in their order."""
    all_gpus = topology.gpus(root)
    if not all_gpus:
        raise ValueError("this node has no GPU")
    listed = visible_gpus(environment)
    if listed is None:
        return all_gpus
    by_name = {str(number): gpu for number, gpu in enumerate(all_gpus)}
    by_name |= {topology.gpu_uuid(gpu, root): gpu for gpu in all_gpus}
    strange = [word for word in listed if word not in by_name]
    if strange:
        raise ValueError(f"no GPU here is called {strange[0]!r}")
    return [by_name[word] for word in listed]
