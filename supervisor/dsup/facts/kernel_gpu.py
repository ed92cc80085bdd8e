"""What NVIDIA's driver says of GPUs (Xid) and of NVSwitches (SXid).

An Xid ends no process by itself: contexts are torn down, and processes fail or hang on
their own. The pid is that of the process that owns the channel, or of a bystander that
was in the driver just then, or it is missing; the PCI address is what can be relied on.

Source: NVIDIA open-gpu-kernel-modules 515 to 595 (krcReportXid and its callers), and
the forms of the drivers before, as they are in public reports.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.hardware import pci_address
from dsup.facts.kernel import KernelFault, Record, Severity, told
from dsup.facts.kernel_groups import Said

FALLEN_OFF: Final = 79
_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"

_XID: Final = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?P<pci>{_BDF})[^)\n]{{0,40}}\): (?P<xid>\d{{1,6}})"
    r"(?:, pid=(?P<pid>\d{1,10}|'?<[^>\n]{1,16}>'?))?"
    r"(?:, name='?(?P<comm>[^\n]{0,60}?)'?(?=, |\s*\n|\s*\Z))?"
    r"(?=,|\s|\Z)(?P<rest>.*)",
    re.DOTALL,
)
"""Examples: ``NVRM: Xid (0000:01:00): 31, Ch 3`` of drivers up to 331; ``NVRM: Xid
(PCI:0000:01:00 GPU-I:05): 31, pid=41, name=python, Ch 0000002a`` of those since 470."""

_CAUSED: Final = re.compile(r"caused by previous Xid (\d{1,6})")
_UNKNOWN: Final = "<"

_GONE: Final = re.compile(
    rf"NVRM: (?:GPU )?(?:at )?(?:PCI:)?(?P<pci>{_BDF})(?:\.[0-9a-f])?:?"
    r"(?: GPU)? has fallen off the bus"
)
"""Examples: ``NVRM: GPU 0000:4b:00.0: GPU has fallen off the bus.``; of old drivers
``NVRM: GPU at 0000:4b:00.0 has fallen off the bus.``"""

_PROBED: Final = re.compile(rf"NVRM: The NVIDIA GPU (?:at )?(?:PCI:)?(?P<pci>{_BDF})")
_PROBED_GONE: Final = re.compile(
    r"(?:NVRM: )?\s{0,20}(?:installed in this system has )?"
    r"fallen off the bus and is no"
)
_FALLEN: Final = "fallen off the bus"
"""At the driver's start one record of three lines, or three records: ``NVRM: The NVIDIA
GPU 0000:4b:00.0``, ``NVRM: (PCI ID: …) installed in this system has``, ``NVRM: fallen
off the bus and is not responding to commands.`` Others begin in the same way."""

_DEAD: Final = re.compile(
    rf"NVRM: (?:GPU (?P<pci>{_BDF})(?:\.[0-9a-f])?: )?"
    r"(?:RmInitAdapter failed!|rm_init_adapter(?:\(\d{1,4}\))? failed)"
    r"|nvidia-uvm: [^\n]{0,200}ncountered a global fatal error"
)
"""No Xid has a number for these, and no new process can use the GPU after them."""

_SXID: Final = re.compile(
    r"nvidia-(?P<device>nvswitch\d{1,4}):? "
    rf"SXid \(PCI:(?P<pci>{_BDF})[^)\n]{{0,8}}\): "
    r"(?P<xid>\d{1,6}), (?P<what>.{0,40})",
    re.DOTALL,
)
"""The word decides, not the number: ``nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034,
Fatal, Link 30 LTSSM Fault Up``. Records of the same number with ``Severity`` or
``Data {`` first belong to it."""

_WORDS: Final[tuple[tuple[str, Severity], ...]] = (
    ("Non-fatal,", "nonfatal"),
    ("Fatal,", "fatal"),
    ("Correctable,", "corrected"),
)
_PROBE: Final = ("gone at probe",)


def said(record: Record) -> Said | None:
    """Return what a record says of a GPU or a switch."""
    text = record.text
    if text.startswith("NVRM: "):
        return _xid(record) or _gone(record) or _dead(record)
    if text.startswith("nvidia-nvswitch"):
        return _sxid(record)
    return _dead(record) if text.startswith("nvidia-uvm: ") else _probe_end(record)


def _xid(record: Record) -> Said | None:
    found = _XID.match(record.text)
    if not found:
        return None
    number, pci = int(found["xid"]), pci_address(found["pci"])
    pid, comm = found["pid"], found["comm"]
    caused = _CAUSED.search(found["rest"])
    fault = told("xid", record)._replace(
        xid=number,
        pci=pci,
        # Drivers of 440 to 465 print 0 for a process that they do not know.
        pid=int(pid) if pid and pid.isdecimal() and int(pid) else None,
        comm=None if not comm or comm.startswith(_UNKNOWN) else comm,
        previous_xid=int(caused[1]) if caused else None,
    )
    whole = ("xid", pci, number)
    return Said(fault, ((*whole, fault.pid), whole), also=(whole,))


def _gone(record: Record) -> Said | None:
    found = _GONE.match(record.text)
    if found:
        pci = pci_address(found["pci"])
        fault = told("xid", record)._replace(xid=FALLEN_OFF, pci=pci)
        return Said(fault, (("xid", pci, FALLEN_OFF),))
    if opening := _PROBED.match(record.text):
        pci = pci_address(opening["pci"])
        fault = told("xid", record)._replace(xid=FALLEN_OFF, pci=pci)
        return Said(fault, (_PROBE,), sure=_FALLEN in record.text, fresh=True)
    return _probe_end(record)


def _probe_end(record: Record) -> Said | None:
    if not _PROBED_GONE.match(record.text):
        return None
    return Said(told("xid", record)._replace(xid=FALLEN_OFF), (_PROBE,))


def _dead(record: Record) -> Said | None:
    found = _DEAD.match(record.text)
    if not found:
        return None
    pci = pci_address(found["pci"] or "") or None
    return Said(told("xid", record)._replace(pci=pci), (("dead", pci),))


def _sxid(record: Record) -> Said | None:
    found = _SXID.match(record.text)
    if not found:
        return None
    number, pci = int(found["xid"]), pci_address(found["pci"])
    fault = _rated(record, found["what"])._replace(
        xid=number, pci=pci, device=found["device"]
    )
    whole = ("sxid", pci, number)
    if not fault.severity:
        return Said(fault, (whole,))
    return Said(fault, ((*whole, fault.severity), whole), also=(whole,))


def _rated(record: Record, what: str) -> KernelFault:
    fault = told("sxid", record)
    for word, severity in _WORDS:
        if what.startswith(word):
            return fault._replace(severity=severity)
    return fault
