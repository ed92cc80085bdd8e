"""What devices say of themselves: GPUs by NVML, network ports by sysfs. Values only."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

State: TypeAlias = Literal["ok", "bad", "unknown"]

Problem: TypeAlias = Literal[
    "", "lost", "reset_required", "ecc", "row_remap", "recovery_action", "xid"
]
"""The one named thing that makes a GPU bad; empty for one that is not."""


class Gpu(NamedTuple):
    """A GPU's identity, read while it answered.

    Attributes:
        number: NVML's index.
        uuid: ``GPU-…``; of a MIG device, its parent's.
        pci: ``dddd:bb:dd``, lower case, as in ``KernelFault``.
        minor: N of ``/dev/nvidiaN``; None if unknown.
        serial: of the board; empty if unknown.
        name: the model; empty if unknown.
        mig: UUID of the MIG device that is used; empty for the whole GPU.
    """

    number: int
    uuid: str
    pci: str
    minor: int | None = None
    serial: str = ""
    name: str = ""
    mig: str = ""


class GpuHealth(NamedTuple):
    """What NVML says of a GPU after a death, compared with the start of the attempt.

    Attributes:
        gpu: which one.
        state: ``bad`` only for a problem with a name; no answer is ``unknown``.
        problem: that name.
        text: one sentence for people, such as ``GPU 6 is lost (NVML error 15)``.
        xids: numbers of the Xid events that NVML told of, in order.
        notes: what is no verdict but worth reading: throttle reasons, PCIe width,
            NVLink counters that rose.
        at_s: when the first event or the answer came, agent clock, seconds.
    """

    gpu: Gpu
    state: State
    problem: Problem = ""
    text: str = ""
    xids: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    at_s: float | None = None


class PortChange(NamedTuple):
    """A network port whose state or error counters changed during the attempt.

    Attributes:
        device: such as ``mlx5_2``.
        port: from 1.
        what: ``state`` or the counter's name, such as ``link_downed``.
        bad: the port is down now, or went down: what breaks connections. A risen
            counter of symbol errors is not.
    """

    device: str
    port: int
    what: str
    before: str
    after: str
    bad: bool
