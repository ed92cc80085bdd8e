"""What the PCIe root ports say of errors on the way to a device.

The port that tells of an error is often a bridge; the device is named after it, or in
the record that follows. Corrected errors hint at a bad link, and explain no death.

Source: Linux drivers/pci/pcie/aer.c, err.c, dpc.c and drivers/pci/hotplug/pciehp_*.c.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.hardware import pci_address
from dsup.facts.kernel import Record, Severity, told
from dsup.facts.kernel_groups import SECOND_US, Key, Said

_TOGETHER_US: Final = 10 * SECOND_US
_BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}"

_ABOUT: Final = re.compile(
    rf"(?:[\w.-]{{1,32}} )?(?P<pci>{_BDF})\.[0-7]:? (?P<rest>.{{1,400}})", re.DOTALL
)
"""Example: ``pcieport 0000:00:1c.0: AER: Corrected error received: 0000:03:00.0``."""

_RECEIVED: Final = re.compile(
    r"(?:AER: )?(?:Multiple )?(?P<word>Corrected|Correctable|Uncorrected|Uncorrectable)"
    r"(?: \((?P<how>Non-Fatal|Fatal)\))? error (?:message )?received"
    rf"(?:(?: from|:) (?P<source>{_BDF})\.[0-7])?"
)
_BARE_RECEIVED: Final = re.compile(
    r"AER: (?:Multiple )?(?P<word>Corrected|Correctable|Uncorrected|Uncorrectable)"
    r"(?: \((?P<how>Non-Fatal|Fatal)\))? error (?:message )?received"
)
_BUS_ERROR: Final = re.compile(
    r"(?:AER: )?PCIe Bus Error: severity="
    r"(?P<word>Corrected|Correctable|Uncorrected|Uncorrectable)"
    r"(?: \((?P<how>Non-Fatal|Fatal)\))?"
)
_LOST: Final = re.compile(
    r"(?:pcieport )?(?:DPC:? (?:containment event|unmasked uncorrectable)"
    r"|pciehp: Slot\([^)\n]{1,20}\): (?:Link Down|Card not present)"
    r"|(?:[\w.-]{1,15}:? )?PCIe link lost"
    r"|AER: can't recover|(?:AER: )?aer_status: 0x)"
)
"""What stands for an error without one of the records above."""

_SENDER: Final = re.compile(rf"received from (?P<pci>{_BDF})\.[0-7]")
"""Since 6.16: ``DPC: containment event, status:0x200d, ERR_FATAL received from
0015:01:00.0``."""

_REST: Final = re.compile(
    r"(?:AER:\s{1,4})?(?:device \[|\s{0,4}\[\s{0,2}\d{1,2}\] |\s{0,4}TLP Header:"
    r"|(?:  )?Error of this Agent|broadcast |device recovery |aer_|device has no AER)"
)
_HOTPLUG: Final = re.compile(
    rf"(?:pciehp|dpc) (?P<pci>{_BDF})\.[0-7]:pcie\d{{1,3}}: (?:"
    r"[Ss]lot\([^)\n]{0,20}\): (?:Link Down|Card not present)"
    r"|Card not present on Slot\(|DPC (?:containment event|unmasked uncorrectable))"
)
"""Examples: of kernels up to 4.18 ``pciehp 0000:02:05.0:pcie24: slot(6): Link Down
event`` and ``dpc 0000:10:00.0:pcie208: DPC unmasked uncorrectable error detected``."""


def said(record: Record) -> Said | None:
    """Return what a record says of a PCIe link."""
    about = _ABOUT.match(record.text)
    if about:
        pci, rest = pci_address(about["pci"]), about["rest"]
        return _named(record, pci, rest)
    if found := _BARE_RECEIVED.match(record.text):
        severity = _severity(found["word"], found["how"])
        fault = told("aer", record)._replace(severity=severity)
        return Said(fault, (("aer",),), lasts_us=_TOGETHER_US)
    if found := _HOTPLUG.match(record.text):
        return _lost(record, pci_address(found["pci"]))
    return None


def _named(record: Record, pci: str, rest: str) -> Said | None:
    found = _RECEIVED.match(rest)
    source = pci
    if found:
        source = pci_address(found["source"] or "") or pci
    found = found or _BUS_ERROR.match(rest)
    if found:
        severity = _severity(found["word"], found["how"])
        fault = told("aer", record)._replace(severity=severity, pci=source)
        keys: tuple[Key, ...] = (("aer", source, severity), ("aer", source, ""))
        return Said(fault, keys, also=(("aer",), ("aer", source)))
    if _LOST.match(rest):
        sender = _SENDER.search(rest)
        return _lost(record, pci_address(sender["pci"]) if sender else pci)
    if _REST.match(rest):
        fault = told("aer", record)._replace(pci=pci)
        keys = (("aer", pci), ("aer",))
        return Said(fault, keys, sure=False, lasts_us=_TOGETHER_US)
    return None


def _lost(record: Record, pci: str) -> Said:
    fault = told("aer", record)._replace(pci=pci)
    return Said(fault, (("aer", pci), ("aer", pci, "")), also=(("aer",),))


def _severity(word: str, how: str | None) -> Severity:
    if word.startswith("Corr"):
        return "corrected"
    if how is None:
        return ""
    return "fatal" if how == "Fatal" else "nonfatal"
