"""SXid numbers of NVSwitch: what each means and whether it is fatal. Data.

The word of the line (Fatal, Non-fatal) decides; the number only where it has none.
Source, as of 2026-10: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
and the table of https://github.com/leptonai/gpud. Fabrics of Blackwell GPUs report by
Xid 144 to 150 instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.facts.kernel import Severity

Gravity: TypeAlias = Literal["always", "if_said", "never", "unknown"]
"""When a number is fatal: always; where its line says ``Fatal``; never by itself."""

ALWAYS_FATAL: Final[Mapping[int, str]] = {
    10003: "unhandled interrupt of the host",
    12020: "sequence number of the egress",
    22003: "Minion halted",
    22011: "external error of Minion",
    23001: "ingress source channel overflow",
    23002: "ingress source channel underflow",
    23003: "egress destination credit overflow",
    23004: "egress destination credit underflow",
    23005: "ingress packet burst",
    23006: "ingress sticky packet error",
    23007: "bubbles at the ingress",
    23008: "invalid destination at the ingress",
    23009: "ingress packet parity",
    23010: "ingress source channel overflow",
    23011: "ingress source channel underflow",
    23012: "egress destination credit overflow",
    23013: "egress destination credit underflow",
    23014: "egress packet burst",
    23015: "egress sticky packet error",
    23016: "bubbles at the egress",
    23017: "credit parity",
}
"""The fabric must be reset: the work on all its GPUs is lost."""

FATAL_IF_SAID: Final[Mapping[int, str]] = {
    11001: "invalid command at the ingress",
    11009: "invalid channel set at the ingress",
    11013: "double-bit error of a header at the ingress",
    11018: "double-bit error of the route table (RID)",
    11019: "double-bit error of the route table (RLAN)",
    11020: "control parity at the ingress",
    12001: "crossbar overflow",
    12002: "packet route at the egress",
    12022: "double-bit error at the egress's input",
    12024: "double-bit error at the egress's output",
    12025: "credit overflow at the egress",
    12026: "destination request at the egress",
    12027: "destination response at the egress",
    12030: "control parity at the egress",
    12031: "credit parity at the egress",
    12032: "flit type at the egress",
    14017: "time-out of the time stamp unit (ATO)",
    15001: "route buffer",
    15006: "end of a transaction (transdone)",
    15009: "double-bit error of the lookup table (GLT)",
    15010: "route parity",
    15012: "double-bit error of incoming data",
    15013: "route credit parity",
    20034: "link training failed (LTSSM fault up)",
    22012: "Minion reports a link that is not there",
    24004: "double-bit error of source tracking",
    24005: "double-bit error of source tracking",
    24006: "double-bit error of source tracking",
    24007: "time-out of source tracking",
    **dict.fromkeys(
        (
            *(19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063),
            *(19064, 19066, 19067, 19069, 19070),
        ),
        "link interface (NCISOC, header, data, request or response memory)",
    ),
}
"""The CUDA jobs on the GPUs of that link end, if the line says ``Fatal``."""

NEVER_FATAL: Final[Mapping[int, str]] = {
    11004: "access control at the ingress",
    12028: "privilege error of a request at the egress: traffic stalls, and jobs hang",
    19084: "heartbeat of a link: goes along with a fatal one",
    20001: "a packet was sent again",
    20009: "short-time error rate of a link",
    20012: "broken connection of a link",
    22013: "link request of Minion: to be ignored",
    **dict.fromkeys(
        (
            *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011),
            *(19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071),
            *(24001, 24002, 24003),
        ),
        "corrected single-bit error",
    ),
}

UNDECIDED: Final[Mapping[int, str]] = {
    10001: "privilege error of the host interface",
    10002: "privilege time-out of the host interface",
    10004: "the switch is too hot",
    10005: "the switch has cooled down",
    **dict.fromkeys(range(10006, 10011), "heat, I/O or firmware of the switch"),
}

ADVICE: Final[Mapping[Gravity, str]] = {
    "always": "reset the fabric: all GPUs and NVSwitches of the partition together",
    "if_said": "reset the GPUs of the link together; if it comes back, drain the node",
    "never": "watch whether it comes back; it ends nothing by itself",
    "unknown": "read its text, and look for a fatal one beside it",
}


class SXid(NamedTuple):
    """What is known of an SXid number.

    Attributes:
        meaning: what happened, a few words.
        gravity: when it is fatal.
    """

    number: int
    meaning: str
    gravity: Gravity

    @property
    def advice(self) -> str:
        """What to do, a line for people."""
        return ADVICE[self.gravity]


_TABLES: Final[tuple[tuple[Gravity, Mapping[int, str]], ...]] = (
    ("always", ALWAYS_FATAL),
    ("if_said", FATAL_IF_SAID),
    ("never", NEVER_FATAL),
    ("unknown", UNDECIDED),
)

SXIDS: Final[Mapping[int, SXid]] = {
    number: SXid(number, meaning, gravity)
    for gravity, table in _TABLES
    for number, meaning in table.items()
}
"""Every number that a source explains."""


def catalogued(number: int) -> SXid:
    """Return what is known of a number; of one that no source explains, just that."""
    unknown = SXid(number, "a number that the catalogue does not have", "unknown")
    return SXIDS.get(number, unknown)


def is_fatal(number: int | None, severity: Severity) -> bool:
    """Return whether a line tells of lost work.

    Args:
        number: its number; None if it was not read.
        severity: its word; empty where it has none.
    """
    if severity:
        return severity == "fatal"
    return number is not None and number in ALWAYS_FATAL
