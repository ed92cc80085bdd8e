"""InfiniBand and RoCE ports, and the port of the ranks' store. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dsup.checkup.finding import Check, Said, silent
from dsup.checkup.readings import READER_S, Readings

_ACTIVE: Final = "ACTIVE"
_OFF: Final = frozenset({"", "0", "n", "no", "f", "false", "off"})


def ports(readings: Readings) -> Iterator[Said]:
    """Ports that are not active, of those that NCCL_IB_HCA leaves.

    A port that nobody cabled looks the same as one whose cable broke, so it is for you
    to know. NCCL passes over it, and ranks of one node do without: none of it is bad.
    """
    if readings.network is None:
        yield silent("/sys/class/infiniband", READER_S)
        return
    found, wish = readings.network.ports, readings.asked.environment
    ours = _chosen(wish.get("NCCL_IB_HCA", ""), found)
    down = [n for n, told in ours.items() if told.get("state", _ACTIVE) != _ACTIVE]
    if not found:
        yield Said("ok", "no InfiniBand or RoCE port")
    elif not uses_infiniband(wish):
        yield Said("ok", f"the job leaves the {len(found)} InfiniBand ports alone")
    elif not ours:
        text = f"NCCL_IB_HCA leaves none of {len(found)} ports"
        yield Said("warn", text, f"unset NCCL_IB_HCA; there are {', '.join(found)}")
    elif not down:
        yield Said("ok", f"{len(ours)} ports are active")
    else:
        shown = ", ".join(f"{name} {ours[name].get('state', '?')}" for name in down)
        text = f"{len(down)} of {len(ours)} ports are not active: {shown}"
        yield Said("warn", text, "ibstat; rdma link; look at cable and switch")


def uses_infiniband(environment: Mapping[str, str]) -> bool:
    """Return whether NCCL may use the ports, by the job's variables."""
    off = environment.get("NCCL_IB_DISABLE", "").strip().lower() not in _OFF
    return not off and environment.get("NCCL_NET", "").strip().lower() != "socket"


def master_port(readings: Readings) -> Iterator[Said]:
    """A fixed port for rank 0's store must be free; without one dsup chooses."""
    error = readings.network.port_error if readings.network else ""
    if error:
        yield Said("warn", error, "leave --master-port out: a free one is chosen")


CHECKS: Final = (
    Check("infiniband", "Network", ports),
    Check("master-port", "The job", master_port),
)


def _chosen(
    hcas: str, ports: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Mapping[str, str]]:
    """Return the ports that NCCL_IB_HCA leaves.

    It lists beginnings of names, each with a port or without; ``=`` makes them whole
    names, and ``^`` before that excludes what it lists.
    """
    wish = hcas.strip()
    excluded, exact = wish.startswith("^"), wish.lstrip("^").startswith("=")
    words = [word.strip() for word in wish.lstrip("^=").split(",") if word.strip()]
    if not words:
        return ports
    return {
        name: told
        for name, told in ports.items()
        if any(_is_named(name, word, exact=exact) for word in words) != excluded
    }


def _is_named(name: str, word: str, *, exact: bool) -> bool:
    device, _, number = word.partition(":")
    theirs, _, port = name.rpartition("/")
    same = theirs == device if exact else theirs.startswith(device)
    return same and number in {"", port}
