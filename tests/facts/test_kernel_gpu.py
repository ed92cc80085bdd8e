"""Xid and SXid: every driver's form, one fault for each incident, and look-alikes."""

import pytest

from dsup.facts.kernel import Record, match

PCI = "0000:4b:00"


def records(*lines, apart_us=1000):
    """Give the lines of a log."""
    return [Record(n, n * apart_us, line) for n, line in enumerate(lines)]


def told(faults):
    """Return what matters of faults."""
    return [(f.kind, f.xid, f.pci, f.pid, f.comm) for f in faults]


@pytest.mark.parametrize(
    ("line", "xid", "pid", "comm"),
    [
        pytest.param(f"NVRM: Xid ({PCI}): 13, 0001 0000", 13, None, None, id="304"),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 31, Ch 00000010, engmask 00000101, intr 10000000",
            31,
            None,
            None,
            id="384",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 45, pid=4177, Ch 00000018",
            45,
            4177,
            None,
            id="450",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 61, pid=0, 0cec(3098) 00000000",
            61,
            None,
            None,
            id="450, 0 is nobody",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 31, pid=4177, name=pt_main_thread, Ch 0000002a, "
            "intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted",
            31,
            4177,
            "pt_main_thread",
            id="535",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 109, pid=4177, name=VLLM::Worker [a]: x, Ch 08",
            109,
            4177,
            "VLLM::Worker [a]: x",
            id="a name may hold anything but a comma",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 48, pid='<unknown>', name=<unknown>, An error",
            48,
            None,
            None,
            id="535, unknown",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 95, pid=<n/a>, name=<n/a>, Uncontained: FBHUB",
            95,
            None,
            None,
            id="not available",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI}): 154, GPU recovery action changed from 0x0 (None)",
            154,
            None,
            None,
            id="570, no pair",
        ),
        pytest.param(
            f"NVRM: Xid (PCI:{PCI} GPU-I:05 GPU-CI:00): 43, pid=9, name=python, Ch 1",
            43,
            9,
            "python",
            id="MIG",
        ),
        pytest.param(
            "NVRM: Xid (PCI:00000000:4B:00.0): 79, GPU has fallen off the bus.",
            79,
            None,
            None,
            id="long domain, upper case, function",
        ),
        pytest.param(f"NVRM: Xid (PCI:{PCI}): 16,", 16, None, None, id="cut off"),
    ],
)
def test_an_xid_is_told_in_many_forms(line, xid, pid, comm):
    """Number, GPU and process are found in every driver's form, and nothing else."""
    assert told(match(records(line))) == [("xid", xid, PCI, pid, comm)]


@pytest.mark.parametrize(
    "lines",
    [
        [f"NVRM: GPU {PCI}.0: GPU has fallen off the bus."],
        [f"NVRM: GPU at {PCI}.0 has fallen off the bus."],
        [
            (
                f"NVRM: The NVIDIA GPU {PCI}.0\nNVRM: (PCI ID: 10de:20b5) installed in"
                " this system has\nNVRM: fallen off the bus and is not responding."
            )
        ],
        [
            f"NVRM: The NVIDIA GPU {PCI}.0",
            "NVRM: (PCI ID: 10de:20b5) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
        [
            f"NVRM: Xid (PCI:{PCI}): 79, pid=<n/a>, GPU has fallen off the bus.",
            f"NVRM: GPU {PCI}.0: GPU has fallen off the bus.",
            "NVRM: A GPU crash dump has been created. If possible, please run",
        ],
    ],
    ids=["since 390", "old", "at its start", "in three records", "beside its Xid"],
)
def test_a_lost_gpu_is_xid_79_in_every_form(lines):
    """The driver has four ways to say that a GPU is gone, and it is one fault."""
    assert told(match(records(*lines))) == [("xid", 79, PCI, None, None)]


def test_a_gpu_that_the_driver_does_not_support_is_no_fault():
    """Its message begins as that of a lost GPU does; only its end tells."""
    lines = (
        f"NVRM: The NVIDIA GPU {PCI}.0 (PCI ID: 10de:1234)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
    )

    assert match(records(*lines)) == []


def test_one_incident_is_one_fault():
    """Each channel of a process that is cleaned up has a line, as has each register."""
    clean_up = [
        f"NVRM: Xid (PCI:{pci}): 45, pid={pid}, name=python, Ch {channel:08x}"
        for channel in range(200)
        for pci, pid in ((PCI, 41), (PCI, 42), ("0000:9b:00", 43))
    ]
    registers = [
        f"NVRM: Xid (PCI:{PCI}): 13, pid=41, name=python, Graphics Exception: ESR {n:x}"
        for n in range(9)
    ]
    faults = match(records(*registers, *clean_up))

    assert [(f.xid, f.pid) for f in faults] == [(13, 41), (45, 41), (45, 42), (45, 43)]
    assert [f.seq for f in faults] == [0, 9, 10, 11]


def test_the_same_xid_minutes_later_is_another_fault():
    """What is told long after the first record is told of something else."""
    line = f"NVRM: Xid (PCI:{PCI}): 63, Row Remapper: New row marked for remapping"

    assert len(match(records(line, line, apart_us=61_000_000))) == 2
    assert len(match(records(line, line, apart_us=59_000_000))) == 1


def test_without_times_the_same_xid_is_one_fault():
    """A log that shows no time does not tell how far apart its lines are."""
    line = f"NVRM: Xid (PCI:{PCI}): 74, NVLink: fatal error detected on link 3(0x0)"
    log = [Record(None, None, line)] * 3

    assert len(match(log)) == 1


def test_an_xid_names_the_one_that_caused_it():
    """Newer drivers say whose clean-up it is."""
    line = f"NVRM: Xid (PCI:{PCI}): 45, pid=9, name=a, Ch 0c caused by previous Xid 145"
    (fault,) = match(records(line))

    assert (fault.xid, fault.previous_xid) == (45, 145)


@pytest.mark.parametrize(
    "line",
    [
        f"NVRM: GPU {PCI}.0: RmInitAdapter failed! (0x24:0x72:1568)",
        f"NVRM: GPU {PCI}.0: rm_init_adapter failed, device minor number 5",
        "NVRM: rm_init_adapter(0) failed",
        (
            "nvidia-uvm: uvm_global.c:421 uvm_global_set_fatal_error_impl[pid:9] "
            "Encountered a global fatal error: RM device failure"
        ),
    ],
)
def test_a_gpu_no_process_can_use_is_a_fault_without_a_number(line):
    """No Xid is written for these, and CUDA starts on that GPU for nobody."""
    (fault,) = match(records(line))

    assert (fault.kind, fault.xid, fault.pid) == ("xid", None, None)


@pytest.mark.parametrize(
    ("words", "severity"),
    [
        ("Fatal, Link 30 LTSSM Fault Up", "fatal"),
        ("Non-fatal, Link 46 MC TS crumbstore MCTO (First)", "nonfatal"),
        ("Correctable, Link 11 ingress ECC header limit", "corrected"),
    ],
)
def test_the_word_of_an_sxid_is_its_severity(words, severity):
    """The number alone does not tell whether an NVSwitch goes on."""
    head = "nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 20034, "
    rest = ("Severity 5 Engine instance 30 Sub-engine instance 0", "Data {0x5, 0x1e}")
    (fault,) = match(records(head + words, *(head + more for more in rest)))

    assert told([fault]) == [("sxid", 20034, "0000:c1:00", None, None)]
    assert (fault.severity, fault.device) == (severity, "nvswitch2")


LOOK_ALIKES = f"""\
NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.1  Tue
NVRM: GPU at PCI:{PCI}: GPU-01234567-89ab-cdef-0123-456789abcdef
NVRM: GPU Board Serial Number: 1320000000000
NVRM: nvidia-bug-report.sh as root to collect this data before
NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Failed to update Rx Detect Link mask!
NVRM: _fabricNotifyEvent: Unable to notify ImexSessionApi
nvidia: module license 'NVIDIA' taints kernel.
nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping
nvidia-nvswitch0: open (major=510)
nvidia-modeset: Allocated GPU:0 (GPU-x) @ PCI:{PCI}.0
gpu-watch: NVRM: Xid (PCI:{PCI}): 31, pid=4, name=python, MMU Fault
a line about NVRM: Xid (PCI:{PCI}): 31, pid=4
python[41]: NVRM: Xid (PCI:{PCI}): 31
""".splitlines()


@pytest.mark.parametrize("line", LOOK_ALIKES)
def test_what_only_looks_like_an_xid_is_none(line):
    """The driver's notes, and other programs that quote it, are no fault."""
    assert match(records(line)) == []
