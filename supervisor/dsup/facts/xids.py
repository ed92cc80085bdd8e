"""NVIDIA's Xid numbers: what each means, who is at fault, what dies, what to do. Data.

Sources, as of 2026-10: https://docs.nvidia.com/deploy/xid-errors/ (its catalogue for
Ampere and newer: immediate and investigatory action), nverror.h of the open kernel
modules 515 to 595 (names of the numbers), https://github.com/leptonai/gpud and
https://github.com/NVIDIA/k8s-device-plugin (which numbers operators act upon). What
dies is documented for 43, 45, 48, 63, 74, 79, 94 and 95, and inferred for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, cast

Klass: TypeAlias = Literal[
    "application", "driver", "hardware", "link", "bookkeeping", "unknown"
]
"""What is behind a number, most often; ``unknown`` for one that no source explains."""

Dies: TypeAlias = Literal["nothing", "process", "gpu", "fabric", "follows", "unknown"]

DIES: Final[Mapping[Dies, str]] = {
    "nothing": "nothing",
    "process": "the process that used the GPU for this",
    "gpu": "every process on the GPU",
    "fabric": "every process on the GPU, and those of its NVLink peers",
    "follows": "what the Xid before it ended",
    "unknown": "not documented",
}
"""What ends of a number, in words; processes end of their own next CUDA call."""

Action: TypeAlias = Literal[
    "ignore",
    "restart_app",
    "reset_gpu",
    "reset_links",
    "reboot",
    "restart_vm",
    "check_power",
    "check_app",
    "check_software",
    "update_driver",
    "follow_other",
    "as_told",
    "contact",
    "unknown",
]

ACTIONS: Final[Mapping[Action, str]] = {
    "ignore": "nothing needs to be done at once",
    "restart_app": "start the run again",
    "reset_gpu": "reset the GPU (nvidia-smi --gpu-reset) while nothing uses it",
    "reset_links": "reset the GPUs at both ends of the link",
    "reboot": "reboot the node, by power if the GPU stays away",
    "restart_vm": "start the virtual machine again",
    "check_power": "check the power cables of the GPU",
    "check_app": "debug the program: compute-sanitizer, or CUDA_LAUNCH_BLOCKING=1",
    "check_software": "look for a newer driver and firmware, and for their known bugs",
    "update_driver": "update the driver",
    "follow_other": "look for the Xid before it: that one is the cause",
    "as_told": "do what its text says, for the Xids before it",
    "contact": "take the GPU out and have it checked",
    "unknown": "read its text, and look whether it comes back on the same GPU",
}

_BLAMES: Final[Mapping[Klass, str]] = {
    "application": "the program first; the GPU if it shows it in two different jobs",
    "driver": "the driver or its firmware; the GPU if it comes back",
    "hardware": "the GPU or its board, not the program",
    "link": "the link: either end of it, or what is between, may be faulty",
    "bookkeeping": "nobody: it goes along with something else, or is for the record",
    "unknown": "not known",
}


class Xid(NamedTuple):
    """What is known of an Xid number.

    Attributes:
        number: the number.
        meaning: what happened, a few words.
        klass: what is behind it, most often.
        dies: what ends of it.
        immediate: what to do now.
        investigate: what to do if it comes back.
        blames: who is at fault, as far as the number tells.
    """

    number: int
    meaning: str
    klass: Klass
    dies: Dies
    immediate: Action
    investigate: Action
    blames: str

    @property
    def advice(self) -> str:
        """What to do, a line for people."""
        now, then = ACTIONS[self.immediate], ACTIONS[self.investigate]
        return now if now == then else f"{now}; if it comes back: {then}"


_TABLE: Final = """\
1-7,20-22 driver process contact contact
    corrupt push buffer (old drivers)
8 driver process restart_app contact
    the GPU stopped processing (idle time-out)
9,12 driver process contact contact
    the driver programmed the GPU wrongly
11,25,32,80 application process restart_app check_app
    invalid or corrupt push buffer stream
13 application process restart_app check_app
    exception of a graphics or compute engine: a bad instruction or address
10,14-15,17,23,49-53,55,87,90-91,138 bookkeeping nothing contact contact
    unused or reserved number
16,18-19 driver unknown contact contact
    display hung, or bus mastering was switched off
24 driver process contact contact
    semaphore time-out
26,30,33,59,61 hardware unknown contact contact
    frame buffer or micro-controller of the GPU failed
27-29,34-36,42,47,60,65 driver process contact contact
    error of a video engine
31 application process restart_app check_app
    page fault of the GPU: an illegal address was accessed
37,66-67 driver nothing ignore check_software
    the driver used a firmware method or register that it must not
38,44 driver process ignore contact
    context switch engine failed (FECS)
39-41,70-72,75-77,85,126-135 driver process restart_app contact
    error of a copy engine
43 application process ignore check_app
    a channel was reset after a fault of the program; the GPU is healthy
45 bookkeeping follows follow_other follow_other
    clean-up after a process that was ended, or after another Xid
46 hardware gpu reset_gpu contact
    the GPU stopped processing (time-out)
48 hardware gpu reset_gpu contact
    uncorrectable (double-bit) error of the GPU's memory
54 hardware gpu check_power contact
    auxiliary power is not connected
56-58 driver unknown contact contact
    display or memory link could not be trained
62 hardware gpu reset_gpu contact
    the power management unit of the GPU halted
63 bookkeeping nothing ignore reset_gpu
    a bad row or page of the GPU's memory was noted for replacement
64 hardware unknown reset_gpu contact
    a bad row or page of the GPU's memory could not be replaced
68,73,82-84,86,88-89,96-105,139,142 driver process restart_app contact
    error of a video decoder or encoder
69 application process restart_app check_app
    graphics class error
74 link fabric reset_links contact
    NVLink error
78 driver nothing update_driver update_driver
    a virtual GPU could not be started
79 hardware gpu reboot contact
    the GPU has fallen off the bus
81,111-118 driver unknown contact contact
    error of the display part
92 bookkeeping nothing ignore contact
    many corrected single-bit memory errors
93,125 bookkeeping nothing ignore contact
    wear of the board's information memory
94 hardware process restart_app reset_gpu
    contained memory error: only the process that used the memory ends
95 hardware gpu reset_gpu contact
    uncontained memory error
106-107 bookkeeping nothing ignore ignore
    test message of the management bus
108 link fabric ignore check_app
    address of a remote NVLink access could not be translated
109 driver process reset_gpu contact
    context switch timed out
110 hardware gpu reset_gpu check_software
    security fault of the GPU
119 driver gpu reboot check_software
    the GPU's system processor (GSP) does not answer
120 driver gpu reset_gpu check_software
    error of the firmware of the GPU's system processor (GSP)
121 link unknown ignore contact
    error of the chip-to-chip link (C2C)
122-124 hardware nothing contact contact
    access to the board's flash memory failed
136 link fabric reset_links contact
    an NVLink could not be trained
137 application process ignore check_app
    a peer read bad memory over NVLink
140 hardware gpu reset_gpu contact
    memory errors that could not be recovered
141 driver unknown ignore contact
    CUDA fast path
143 hardware gpu reset_gpu contact
    the GPU could not be initialised
144-150 link fabric reset_links contact
    NVLink error (fifth generation); its text says whether it is fatal
151 driver process restart_vm contact
    key rotation of confidential computing failed
152-153 driver unknown ignore contact
    error of the deep learning accelerator (DLA)
154 bookkeeping follows as_told follow_other
    what the GPU needs to recover has changed; its text names it
155 link fabric reset_links check_software
    NVLink error defined by software
156 hardware nothing reset_gpu ignore
    a part of the GPU was retired
157 hardware nothing ignore contact
    a part of the GPU could not be retired
158 hardware gpu reset_gpu contact
    fatal time-out in the GPU
159 hardware nothing check_software contact
    error of the bus between processor and GPU (CHI)
160-161 bookkeeping nothing ignore check_software
    a memory channel was retired, or could not be
162-165 bookkeeping nothing ignore contact
    state of the power smoothing
166,170 link unknown contact contact
    NVLink traffic or an interrupt that confidential computing forbids
167 hardware gpu reboot contact
    fatal time-out of PCIe
168 hardware nothing contact contact
    errors in protected memory: the GPU has less of it
169 hardware gpu reset_gpu contact
    the security processor of the GPU halted
171-172 hardware gpu reset_gpu contact
    uncorrectable memory error: detail of Xid 48
173 link gpu reboot contact
    fatal error of the chip-to-chip link (C2C)
174-176 unknown unknown unknown contact
    known by number only (driver 595 and newer)
999 unknown unknown unknown contact
    an Xid that NVML has no number for
"""
"""Numbers, class, what dies, immediate and later action; below that the meaning."""

_BLAMED: Final[Mapping[int, str]] = {
    11: "the program or a library first; the PCIe link if it comes back",
    13: "the program first; the GPU if the same SM shows it again",
    25: "the program or a library first; the PCIe link if it comes back",
    31: "the program first, or a peer that freed memory it had mapped; rarely the GPU",
    32: "the program or a library first; the PCIe link if it comes back",
    43: "the program: a device-side assertion shows like this",
    63: "the GPU's memory; it goes on, and a reset replaces the row",
    79: "the GPU, its slot, its power or its cooling; never the program",
    80: "the program or a library first; the PCIe link if it comes back",
    94: "the GPU's memory; right after Xid 137, the memory of an NVLink peer",
    109: "the driver or the program; the GPU if it comes back",
    119: "the GPU's firmware or the GPU; every call into the driver hangs, then fails",
    120: "the GPU's firmware or the GPU",
    137: "most often a program that ended on another GPU; look at that peer",
    999: "not known; suspect the GPU",
}
"""Where a number says more of it than its class."""


def _rows() -> Iterator[Xid]:
    lines = _TABLE.splitlines()
    for columns, meaning in zip(lines[::2], lines[1::2], strict=True):
        numbers, klass, dies, now, then = columns.split()
        for span in numbers.split(","):
            first, _, last = span.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield Xid(
                    number,
                    meaning.strip(),
                    cast("Klass", klass),
                    cast("Dies", dies),
                    cast("Action", now),
                    cast("Action", then),
                    _BLAMED.get(number, _BLAMES[cast("Klass", klass)]),
                )


XIDS: Final[Mapping[int, Xid]] = {row.number: row for row in _rows()}
"""Every number that a source explains."""


class Recovery(NamedTuple):
    """What a GPU needs to recover, by NVML's field 230 or the text of Xid 154.

    Attributes:
        name: as NVML names it.
        advice: what to do, a line for people.
    """

    name: str
    advice: str


RECOVERY: Final[Mapping[int, Recovery]] = {
    0: Recovery("none", "nothing needs to be done"),
    1: Recovery("gpu_reset", ACTIONS["reset_gpu"]),
    2: Recovery("node_reboot", "reboot the node"),
    3: Recovery("drain_p2p", "end what uses the GPU from its peers, then reset it"),
    4: Recovery("drain_and_reset", "let no new work onto the GPU, then reset it"),
    5: Recovery("recover_imex", "start the IMEX domain again"),
    6: Recovery("bus_reset", "reset the GPU's bus"),
    7: Recovery("system_reboot", "reboot the whole system"),
}
"""Since driver 570."""


def catalogued(number: int) -> Xid:
    """Return what is known of a number; of one that no source explains, just that."""
    unknown = Xid(
        number,
        "a number that the catalogue does not have",
        "unknown",
        "unknown",
        "unknown",
        "contact",
        _BLAMES["unknown"],
    )
    return XIDS.get(number, unknown)


def is_device(number: int) -> bool:
    """Return whether a number tells of a GPU or link that failed, whatever ran on it.

    Numbers for the record, and those that a program can bring about, are none.
    """
    found = catalogued(number)
    if found.klass == "hardware":
        return found.dies != "nothing"
    return found.klass in {"driver", "link"} and found.dies in {"gpu", "fabric"}
