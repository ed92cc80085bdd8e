"""Errors of processors, memory and PCIe: severity, and one fault for each incident."""

import pytest

from dsup.facts.kernel import Record, match
from dsup.facts.kernel_text import SavedLog

ROOT, CARD = "0000:3a:00", "0000:3b:00"


def records(*lines, apart_us=1000):
    """Give the lines of a log."""
    return [Record(n, n * apart_us, line) for n, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("status", "severity"),
    [
        ("8c00004000010091", "corrected"),
        ("bd80000000100134", "nonfatal"),
        ("be00000000800400", "fatal"),
    ],
)
@pytest.mark.parametrize(
    "head",
    [
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: ",
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 1: ",
        "[Hardware Error]: CPU 3: Machine Check Exception: 4 Bank 4: ",
        "[Hardware Error]: CPU:3 (17:1:1) MC15_STATUS[Over|UE|MiscV]: 0x",
    ],
)
def test_the_status_of_a_machine_check_tells_how_bad_it_is(head, status, severity):
    """Bit 61 is an error that was not corrected, bit 57 a processor that lost its way.

    Only those explain a death.
    """
    lines = (
        head + status,
        "mce: [Hardware Error]: TSC 0 ADDR 2a1b3c400 MISC 1370",
        "mce: [Hardware Error]: PROCESSOR 0:50657 TIME 1 SOCKET 0 APIC 1 microcode d6",
    )
    (fault,) = match(records(*lines))

    assert (fault.kind, fault.severity, fault.pid) == ("mce", severity, None)


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("mce: [Hardware Error]: Machine check events logged", ""),
        ("CMCI storm detected: switching to poll mode", "corrected"),
        ("[Hardware Error]: Corrected error, no action required.", "corrected"),
        ("mce: Uncorrected hardware memory error in user-access at 2e1d3c0", ""),
        ("Kernel panic - not syncing: Fatal machine check", "fatal"),
        ("Kernel panic - not syncing: Fatal Machine check", "fatal"),
    ],
)
def test_other_words_of_machine_checks(line, severity):
    """Not every record of a machine check has its status."""
    (fault,) = match(records(line))

    assert (fault.kind, fault.severity) == ("mce", severity)


@pytest.mark.parametrize(
    ("line", "severity", "device"),
    [
        (
            "EDAC MC2: 3 UE memory read error on CPU_SrcID#0_MC#2_Chan#1_DIMM#1 (x)",
            "nonfatal",
            "MC2",
        ),
        ("EDAC MC0: 12 CE memory scrubbing error on any memory", "corrected", "MC0"),
        ("EDAC MC0: CE page 0x41, offset 0x0, grain 8, row 0", "corrected", "MC0"),
        ("EDAC MC1: UE row 2, channel-a= 0 channel-b= 1", "nonfatal", "MC1"),
        ("EDAC skx MC0: HANDLING MCE MEMORY ERROR", "", "MC0"),
    ],
)
def test_a_memory_controller_says_which_errors_it_corrected(line, severity, device):
    """CE is corrected and costs nobody anything; UE is not."""
    (fault,) = match(records(line))

    assert (fault.kind, fault.severity, fault.device) == ("ecc_mem", severity, device)


KILLS = [
    "Memory failure: 0x1a2b: Sending SIGBUS to @ due to hardware memory corruption",
    "Memory failure: 0x1a2b: Killing @ due to hardware memory corruption",
    "MCE 0x1a2b: Killing @ early due to hardware memory corruption",
    "MCE 0x1a2b: Killing @ due to hardware memory corruption",
    "Memory failure: 0x1a2b: forcibly killing @ because of failure to unmap corrupted",
    "MCE: Killing @ due to hardware memory corruption fault at 7f0011223344",
    (
        "mce: Memory error may not recovered: 0x1a2b: Sending SIGBUS to @ due to"
        " hardware memory corruption"
    ),
]


@pytest.mark.parametrize("line", KILLS)
@pytest.mark.parametrize("comm", ["python", "a:b 1", "CPU 1/KVM"])
def test_whom_a_broken_page_cost_its_life(line, comm):
    """The kernel kills those that use the page, and says whom in the old forms too."""
    (fault,) = match(records(line.replace("@", f"{comm}:4177")))

    assert (fault.kind, fault.pid, fault.comm) == ("ecc_mem", 4177, comm)


def test_each_victim_of_a_page_is_told_once():
    """What became of the page is no fault of its own, and its number joins them."""
    lines = [
        *(KILLS[0].replace("@", f"python:{pid}") for pid in (41, 42)),
        KILLS[4].replace("@", "python:42"),
        "Memory failure: 0x1a2b: recovery action for dirty LRU page: Recovered",
    ]

    assert [f.pid for f in match(records(*lines))] == [41, 42]


def test_a_page_that_cost_nobody_is_told_without_a_process():
    """A page of the kernel's own has no victim."""
    lines = (
        "Memory failure: 0x7f: reserved kernel page still referenced by 1 users",
        "Memory failure: 0x7f: recovery action for reserved kernel page: Failed",
    )

    assert [(f.kind, f.pid) for f in match(records(*lines))] == [("ecc_mem", None)]


def block(number, *rest):
    """Give a block of firmware's."""
    head = f"{{{number}}}[Hardware Error]: "
    first = "Hardware error from APEI Generic Hardware Error Source: 1"
    return [f"{head}{line}" for line in (first, *rest)]


@pytest.mark.parametrize(
    ("rest", "kind", "severity", "pci"),
    [
        (
            [
                "event severity: recoverable",
                " Error 0, type: recoverable",
                "  section_type: memory error",
                "  physical_address: 0x0000000412345678",
            ],
            "ecc_mem",
            "nonfatal",
            None,
        ),
        (
            [
                "event severity: corrected",
                "  section_type: PCIe error",
                "  device_id: 0000:3b:00.0",
            ],
            "aer",
            "corrected",
            CARD,
        ),
        (
            ["event severity: fatal", "  section_type: general processor error"],
            "mce",
            "fatal",
            None,
        ),
        (["event severity: info"], "mce", "", None),
        (["   error_type: 3, multi-bit ECC"], "ecc_mem", "", None),
    ],
)
def test_a_block_of_firmware_is_one_fault(rest, kind, severity, pci):
    """Its number groups it, its section tells what it is about."""
    (fault,) = match(records(*block(1, *rest)))

    assert (fault.kind, fault.severity, fault.pci) == (kind, severity, pci)


@pytest.mark.parametrize(
    ("section", "kind"),
    [("memory error", "ecc_mem"), ("Firmware Error Record Reference", "mce")],
)
def test_a_block_from_before_a_reboot_has_no_number(section, kind):
    """It is grouped by how closely its records follow each other."""
    lines = (
        "BERT: Error records from previous boot:",
        "[Hardware Error]: event severity: fatal",
        "[Hardware Error]:  Error 0, type: fatal",
        f"[Hardware Error]:   section_type: {section}",
    )
    (fault,) = match(records(*lines))

    assert (fault.kind, fault.severity) == (kind, "fatal")


def test_two_blocks_that_come_mixed_stay_apart():
    """Records of two processors interleave; the number before them does not lie."""
    first = block(1, "event severity: corrected", "  section_type: PCIe error")
    second = block(2, "event severity: fatal", "  section_type: memory error")
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]

    assert [(f.kind, f.severity) for f in match(records(*mixed))] == [
        ("aer", "corrected"),
        ("ecc_mem", "fatal"),
    ]


def test_what_the_kernel_does_about_an_error_belongs_to_it():
    """Firmware tells of the error, the kernel then of the page and the victim."""
    lines = [
        *block(4, "event severity: recoverable", "  section_type: memory error"),
        KILLS[0].replace("@", "python:41"),
    ]
    (fault,) = match(records(*lines))

    assert (fault.kind, fault.pid, fault.severity) == ("ecc_mem", 41, "nonfatal")


@pytest.mark.parametrize(
    ("line", "severity", "pci"),
    [
        (f"pcieport {ROOT}.0: AER: Corrected error received: {CARD}.0", "corrected", 1),
        (
            (
                f"pcieport {ROOT}.0: AER: Multiple Corrected error message received "
                f"from {CARD}.0"
            ),
            "corrected",
            1,
        ),
        (f"pcieport {ROOT}.0: Uncorrected (Fatal) error received: id=3a00", "fatal", 0),
        (
            (
                f"pcieport {ROOT}.0: AER: Uncorrectable (Non-Fatal) error message "
                f"received from {CARD}.0"
            ),
            "nonfatal",
            1,
        ),
        (
            (
                f"nvidia {CARD}.0: PCIe Bus Error: severity=Uncorrected (Fatal),"
                " type=Transaction Layer, (Requester ID)"
            ),
            "fatal",
            1,
        ),
        (
            f"pcieport {ROOT}.0: AER: PCIe Bus Error: severity=Correctable, type=Data",
            "corrected",
            0,
        ),
        (f"pcieport {ROOT}.0: pciehp: Slot(4): Link Down", "", 0),
        (f"pciehp {ROOT}.0:pcie004: Slot(4): Card not present", "", 0),
        (f"pcieport {ROOT}.0: DPC: containment event, status:0x1f01 source:0x0", "", 0),
        (f"pcieport {ROOT}.0: DPC containment event, status:0x1f09 source:0x0", "", 0),
        (
            (
                f"pcieport {ROOT}.0: DPC: containment event, status:0x200d, ERR_FATAL"
                f" received from {CARD}.0"
            ),
            "",
            1,
        ),
        (f"dpc {ROOT}.0:pcie208: DPC unmasked uncorrectable error detected", "", 0),
        (f"pciehp {ROOT}.0:pcie24: slot(6): Link Down event", "", 0),
        (f"pciehp {ROOT}.0:pcie04: Card not present on Slot(4)", "", 0),
        (f"nvme {CARD}.0: AER: aer_status: 0x00001000, aer_mask: 0x00000000", "", 1),
        (f"igc {CARD}.0 eno1: PCIe link lost, device now detached", "", 1),
        (f"nvidia {CARD}.0: AER: can't recover (no error_detected callback)", "", 1),
    ],
)
def test_an_error_of_a_link_names_the_device_that_it_is_about(line, severity, pci):
    """The port that tells of it is often a bridge; the sender is named after it."""
    log = SavedLog()
    log.take(line.encode())
    (fault,) = log.faults()

    assert (fault.kind, fault.severity) == ("aer", severity)
    assert fault.pci == (CARD if pci else ROOT)


def test_the_records_of_a_link_error_are_one_fault():
    """Port, device and registers tell of the same error, whoever comes between."""
    lines = (
        f"pcieport {ROOT}.0: AER: Uncorrected (Fatal) error received: {CARD}.0",
        f"nvidia {CARD}.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=x",
        "eth0: renamed",
        f"nvidia {CARD}.0: AER:   device [10de:2330] error status/mask=00100000/00",
        f"nvidia {CARD}.0: AER:    [20] UnsupReq               (First)",
        f"nvidia {CARD}.0: AER: can't recover (no error_detected callback)",
        f"pcieport {ROOT}.0: AER: device recovery failed",
    )

    assert [(f.pci, f.severity, f.seq) for f in match(records(*lines))] == [
        (CARD, "fatal", 0)
    ]


def test_a_fatal_error_after_corrected_ones_is_a_fault_of_its_own():
    """A flood of corrected ones must not hide the one that counts."""
    noise = f"nvidia {CARD}.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"
    last = f"nvidia {CARD}.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x"

    assert [f.severity for f in match(records(*[noise] * 50, last))] == [
        "corrected",
        "fatal",
    ]


LOOK_ALIKES = f"""\
EDAC MC: Ver: 3.0.0
EDAC MC0: Giving out device to module igen6_edac controller Intel: DEV {ROOT}.0
mce: CPU0: Core temperature above threshold, cpu clock throttled (total events = 1)
mce: Using 32 MCE banks
CMCI storm subsided: switching to interrupt mode
pcieport {ROOT}.0: AER: enabled with IRQ 24
pcieport {ROOT}.0: pciehp: Slot(4): Card present
pcieport {ROOT}.0: PME: Signaling with IRQ 24
GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.
mcelog: failed to prefill DIMM database from DMI data
rasdaemon[41]: mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010091
""".splitlines()


@pytest.mark.parametrize("line", LOOK_ALIKES)
def test_what_only_looks_like_a_hardware_error_is_none(line):
    """What is said at boot, of temperature, or by a daemon, is no fault."""
    assert match(records(line)) == []
