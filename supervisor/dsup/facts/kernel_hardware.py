"""What the processor, the memory and the firmware say of errors in themselves.

Corrected errors explain no death. Of uncorrected ones in memory the kernel tells which
process had to die; of those that stop the machine only a log after the reboot tells.

Source: Linux arch/x86/kernel/cpu/mce, drivers/edac, drivers/acpi/apei/ghes.c,
drivers/firmware/efi/cper.c, mm/memory-failure.c, arch/*/mm/fault.c.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.hardware import pci_address
from dsup.facts.kernel import Record, Severity, told
from dsup.facts.kernel_groups import SECOND_US, Key, Said

_TOGETHER_US: Final = 2 * SECOND_US
"""The banks of all processors are told within this time."""

# Of the 15 bytes of a name each may be written as four characters.
_TASK = r"(?P<comm>.{1,60}):(?P<pid>\d{1,10})"

_MACHINE: Final = re.compile(
    r"(?:mce: )?\[Hardware Error\]: |mce: Uncorrected hardware memory error"
    r"|(?:mce: )?CMCI storm detected|Machine check events logged"
    r"|(?:MCE: )?CPU:? ?\d{1,6}: Machine Check(?: Exception)?:"
    r"|Kernel panic - not syncing: (?:Fatal |Fatal local )?[Mm]achine check"
)
"""Examples: ``mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 6: 8c…``;
of AMD's decoder ``[Hardware Error]: Corrected error, no action required.``"""

_STATUS: Final = re.compile(
    r"Bank \d{1,3}: (?P<status>[0-9a-f]{16})|STATUS\[[^\]\n]{0,80}\]: "
    r"0x(?P<amd>[0-9a-f]{16})"
)
_UNCORRECTED: Final = 1 << 61
_CONTEXT_CORRUPT: Final = 1 << 57

_BLOCK: Final = re.compile(r"(?:\{(?P<number>\d{1,9})\})?\[Hardware Error\]:\s{0,20}")
_BLOCK_SEVERITY: Final = re.compile(
    r"(?:event severity|APEI[^\n]{0,60} severity|severity): (?P<word>[a-z]{1,16})"
)
_BLOCK_MEMORY: Final = re.compile(
    r"section[_ ]type: [^\n]{0,20}memory|physical_address|error_type: \d{1,3}, "
    r"|(?:node|card|module|rank|bank)[ :]|DIMM location"
)
_BLOCK_PCIE: Final = re.compile(r"section[_ ]type: [^\n]{0,20}PCI|port_type: |aer_")
_BLOCK_DEVICE: Final = re.compile(r"device_id: (?P<bdf>[0-9a-f:.]{7,16})")
_BLOCK_WORDS: Final[dict[str, Severity]] = {
    "corrected": "corrected",
    "recoverable": "nonfatal",
    "fatal": "fatal",
}
"""Firmware's block: ``{1}[Hardware Error]: event severity: recoverable``; the number
before each record says whose it is. One that it kept from before a reboot (BERT) has no
number, and its records begin as those of AMD's decoder do."""

_EDAC: Final = re.compile(
    r"EDAC (?:[\w-]{1,20} )?(?P<device>MC\d{1,4}): (?:"
    r"(?:\d{1,10} )?(?P<word>CE|UE)\b|HANDLING (?:MCE|IBECC) MEMORY ERROR"
    r"|[^\n]{0,40}(?:ECC error|Uncorrected error|UNCORRECTED))"
)
"""Examples: ``EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (…)``;
up to 3.6 ``EDAC MC0: CE page 0x41, offset 0x0, grain 8, syndrome 0x0, row 0, …``."""

_EDAC_WORDS: Final[dict[str, Severity]] = {"CE": "corrected", "UE": "nonfatal"}
_MEMORY: Final = ("memory",)
"""The latest error that hardware told of, which the kernel then acts upon."""

_POISON: Final = re.compile(
    r"(?:Memory failure: |MCE |mce: Memory error (?:may )?not recovered: )"
    r"(?P<page>0x[0-9a-f]{1,16}): (?P<rest>.{1,200})",
    re.DOTALL,
)
_POISON_TASK: Final = re.compile(
    rf"(?:Sending SIGBUS to|[Kk]illing|forcibly killing) {_TASK}"
    r"(?= (?:early )?(?:due to|because of))",
    re.DOTALL,
)
"""Examples: ``Memory failure: 0x1840200: Sending SIGBUS to python:41 due to hardware
memory corruption``; ``MCE 0x1840200: Killing python:41 early due to …`` up to 3.x."""

_TOUCHED: Final = re.compile(
    rf"MCE: Killing {_TASK} due to hardware memory corruption", re.DOTALL
)
"""A task touched a page that was poisoned before; what is poisoned may be simulated."""


def said(record: Record) -> Said | None:
    """Return what a record says of the machine's own hardware."""
    text = record.text
    for start, teller in _BY_START:
        if text.startswith(start):
            found = teller(record)
            if found is not None:
                return found
    return None


def _machine(record: Record) -> Said | None:
    if not _MACHINE.match(record.text):
        return None
    fault = told("mce", record)._replace(severity=_machine_severity(record.text))
    block = ("block", "")
    return Said(fault, (("mce",), block), lasts_us=_TOGETHER_US)


def _machine_severity(text: str) -> Severity:
    if text.startswith("Kernel panic"):
        return "fatal"
    if "Corrected error" in text or "CMCI storm" in text:
        return "corrected"
    found = _STATUS.search(text)
    if not found:
        return ""
    status = int(found["status"] or found["amd"], 16)
    if not status & _UNCORRECTED:
        return "corrected"
    return "fatal" if status & _CONTEXT_CORRUPT else "nonfatal"


def _block(record: Record) -> Said | None:
    found = _BLOCK.match(record.text)
    if not found:
        return None
    rest = record.text[found.end() :]
    fault = told("mce", record)
    severity = _BLOCK_SEVERITY.match(rest)
    if severity:
        fault = fault._replace(severity=_BLOCK_WORDS.get(severity["word"], ""))
    if device := _BLOCK_DEVICE.match(rest):
        fault = fault._replace(pci=pci_address(device["bdf"]) or None)
    keys: tuple[Key, ...] = (("block", found["number"] or ""),)
    if _BLOCK_MEMORY.match(rest):
        memory = fault._replace(kind="ecc_mem")
        return Said(memory, keys, also=(_MEMORY,), decides=True)
    if _BLOCK_PCIE.match(rest):
        return Said(fault._replace(kind="aer"), keys, decides=True)
    return Said(fault, keys) if found["number"] or severity else None


def _edac(record: Record) -> Said | None:
    found = _EDAC.match(record.text)
    if not found:
        return None
    word, device = found["word"], found["device"]
    severity = _EDAC_WORDS.get(word or "", "")
    fault = told("ecc_mem", record)._replace(device=device, severity=severity)
    whole: Key = ("edac", device)
    keys = ((*whole, severity), whole) if severity else (whole,)
    also = (whole,) if severity == "corrected" else (whole, _MEMORY)
    return Said(fault, keys, also=also, lasts_us=_TOGETHER_US)


def _poison(record: Record) -> Said | None:
    found = _POISON.match(record.text)
    if not found:
        return None
    fault = told("ecc_mem", record)
    task = _POISON_TASK.match(found["rest"])
    if task:
        fault = fault._replace(pid=int(task["pid"]), comm=task["comm"])
    whole = ("poison", found["page"])
    return Said(fault, ((*whole, fault.pid), whole, _MEMORY), also=(whole,))


def _touched(record: Record) -> Said | None:
    found = _TOUCHED.match(record.text)
    if not found:
        return None
    pid = int(found["pid"])
    fault = told("ecc_mem", record)._replace(pid=pid, comm=found["comm"])
    return Said(fault, (("touched", pid),))


_BY_START: Final = (
    ("{", _block),
    ("EDAC ", _edac),
    ("Memory failure: ", _poison),
    ("MCE: Killing ", _touched),
    ("MCE 0x", _poison),
    ("mce: Memory error ", _poison),
    ("mce: ", _machine),
    ("[Hardware Error]", _block),
    ("[Hardware Error]", _machine),
    ("MCE: CPU", _machine),
    ("CPU", _machine),
    ("CMCI", _machine),
    ("Machine check", _machine),
    ("Kernel panic", _machine),
)
