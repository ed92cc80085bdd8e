"""InfiniBand and RoCE ports, and the port of the ranks' store. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.finding import Check, Said, State, silent
from dsup.checkup.readings import READER_S, Readings

_ACTIVE: Final = "ACTIVE"


def ports(readings: Readings) -> Iterator[Said]:
    """Ports that are not active while others are; none active is bad.

    A port that nobody cabled looks the same as one whose cable broke, so it is for you
    to know. Those that NCCL_IB_HCA names must all be active.
    """
    if readings.network is None:
        yield silent("/sys/class/infiniband", READER_S)
        return
    found = readings.network.ports
    down = [
        name for name, told in found.items() if told.get("state", _ACTIVE) != _ACTIVE
    ]
    if not found:
        yield Said("ok", "no InfiniBand or RoCE port")
    elif not down:
        yield Said("ok", f"{len(found)} ports are active")
    else:
        named = _named(readings.asked.environment.get("NCCL_IB_HCA", ""), down)
        state: State = "bad" if named or len(down) == len(found) else "warn"
        shown = ", ".join(f"{name} {found[name].get('state', '?')}" for name in down)
        text = f"{len(down)} of {len(found)} ports are not active: {shown}"
        yield Said(state, text, "ibstat; rdma link; look at cable and switch")


def master_port(readings: Readings) -> Iterator[Said]:
    """A fixed port for rank 0's store must be free; without one dsup chooses."""
    error = readings.network.port_error if readings.network else ""
    if error:
        yield Said("warn", error, "leave --master-port out: a free one is chosen")


CHECKS: Final = (
    Check("infiniband", "Network", ports),
    Check("master-port", "The job", master_port),
)


def _named(hcas: str, down: list[str]) -> bool:
    """Return whether NCCL_IB_HCA names one of these ports."""
    wish = hcas.strip()
    if not wish or wish.startswith("^"):
        return False
    exact = wish.startswith("=")
    for word in wish.lstrip("=").split(","):
        device, _, number = word.strip().partition(":")
        for name in down:
            theirs, _, port = name.rpartition("/")
            same = theirs == device if exact else theirs.startswith(device)
            if device and same and number in {"", port}:
                return True
    return False
