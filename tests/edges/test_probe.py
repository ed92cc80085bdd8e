"""The probe: NVML may be absent, old, wrong, dead or silent, and the agent goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsup.core.state import NEVER
from dsup.edges.aide import Aides
from dsup.edges.loop import Loop
from dsup.edges.probe import protocol
from dsup.edges.probe.client import ANSWER_S, Answer, Probe

HERE = Path(__file__).parent
DRIVER = HERE / "probe_driver.py"
SLOW = pytest.mark.slow


@pytest.fixture
def probed(nvml, tmp_path):
    """Give ``probed(mode, …)``: what is known of the GPUs after a death, by attempt."""

    def run(mode, *options, attempts=1, **more):
        sickens = tmp_path / "sickens"
        sickens.unlink(missing_ok=True)
        settings = {f"FAKE_NVML_{name.upper()}": str(v) for name, v in more.items()}
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": nvml(*options),
            "FAKE_NVML_MODE": mode,
            "FAKE_NVML_WHEN": "" if mode in {"hang_start", "init"} else str(sickens),
            **settings,
        }
        done = subprocess.run(
            [sys.executable, str(DRIVER), str(sickens), str(attempts)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines()]
        return told if attempts > 1 else told[0]

    return run


def states(told):
    """Return state and problem of each GPU."""
    return [(one["state"], one["problem"]) for one in told["health"]]


WELL = ("ok", "")


@SLOW
def test_identities_are_known_before_anything_happens(probed):
    """Number, UUID, PCI address and minor are four names of one GPU, and none equal."""
    told = probed("healthy")

    assert told["gpus"][1] == {
        "number": 1,
        "uuid": "GPU-10000000-aaaa-bbbb-cccc-0123456789ab",
        "pci": "0000:2b:00",
        "minor": 0,
        "serial": "132001",
        "name": "Fake H100 80GB",
        "mig": "",
    }
    assert (states(told), told["nvml"]) == ([WELL, WELL], "")
    assert told["lates"] == 1


@SLOW
@pytest.mark.parametrize(
    ("mode", "problem", "words"),
    [
        ("ecc", "ecc", "had 1 uncorrectable memory error"),
        ("remap", "row_remap", "could not remap"),
        ("recovery", "recovery_action", "wants a reset"),
        ("lost", "lost", "is lost (NVML error 15)"),
        ("reset", "reset_required", "error 16"),
        ("xid", "xid", "had Xid 79"),
    ],
)
def test_what_is_bad_has_a_name_and_the_others_are_well(probed, mode, problem, words):
    """One GPU's fault is told of that GPU alone."""
    told = probed(mode)

    assert states(told) == [WELL, ("bad", problem)]
    assert words in told["health"][1]["text"]
    assert told["nvml"] == ""


@SLOW
def test_what_explains_more_is_noted(probed):
    """Links that had errors and a brake on the clocks stand beside the finding."""
    told = probed("ecc")

    assert told["health"][1]["notes"] == [
        "NVLink 0: 17 more checksum errors",
        "is slowed down now: power brake",
    ]
    assert told["health"][0]["notes"] == []


@SLOW
def test_what_gpus_do_is_told_when_stacks_are_taken(probed):
    """A kernel that waits for another GPU is busy and moves nothing."""
    told = probed("spin")

    assert told["loads"] == [
        "GPU 0 idle: nothing runs on it; 70 W, P0",
        "GPU 1 busy 100 % with memory idle: a kernel spins; 118 W, P0",
    ]
    assert states(told) == [WELL, WELL]


@SLOW
def test_an_unknown_error_names_nothing(probed):
    """Error 999 is a lost GPU, or a device node taken away: that is not known here."""
    told = probed("unknown")

    assert states(told) == [WELL, ("unknown", "")]
    assert "999" in told["health"][1]["text"]


@SLOW
def test_an_xid_of_an_application_is_told_and_is_no_fault(probed):
    """Xid 31 is an illegal address of a kernel: the GPU is well."""
    told = probed("xid", xid=31)

    assert states(told) == [WELL, WELL]
    assert told["health"][1]["xids"] == [31]


@SLOW
def test_an_old_driver_tells_what_it_can(probed):
    """Functions that it does not have cost their values only."""
    healthy, sick = probed("healthy", "-DOLD_DRIVER"), probed("ecc", "-DOLD_DRIVER")

    assert states(healthy) == [WELL, WELL]
    assert states(sick) == [WELL, ("bad", "ecc")]


@SLOW
def test_eight_gpus_cut_by_mig_are_known_with_their_slices(probed):
    """A MIG device is named with its GPU; health is the whole GPU's."""
    told = probed("ecc", gpus=8, mig=1, gpu=6)

    assert [len(uuids) for uuids in told["slices"]] == [2] * 8
    assert told["slices"][6][1] == "MIG-61000000-aaaa-bbbb-cccc-0123456789ab"
    assert [number for number, s in enumerate(states(told)) if s[0] == "bad"] == [6]


@SLOW
def test_a_driver_that_hangs_costs_its_deadline_and_is_told(probed):
    """A call that never returns, deaf to SIGTERM, is given up after two seconds.

    Those that had answered before are known.
    """
    told = probed("hang")

    assert told["took_s"] > ANSWER_S - 0.1
    assert states(told) == [WELL, ("unknown", "")]
    assert "gave no answer on GPU 1 for 2 s" in told["nvml"]


@SLOW
def test_a_driver_that_hangs_at_its_start_is_told(probed):
    """A rank that dies meanwhile is not kept waiting for it."""
    told = probed("hang_start")

    assert told["health"] == []
    assert "NVML had not started after 2 s" in told["nvml"]


@SLOW
def test_a_probe_that_dies_is_replaced_once(probed):
    """After the second death nobody is started any more; the reason stays."""
    first, second, third = probed("die", attempts=3)

    assert all("has died" in told["nvml"] for told in (first, second, third))
    assert states(first) == [WELL, ("unknown", "")]
    assert third["probes"] == 0


@SLOW
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "the driver is not loaded"),
        (18, "the driver was changed while it ran"),
        (999, "unknown error"),
        (77, "error 77"),
    ],
)
def test_why_nvml_cannot_be_asked_is_said(probed, code, words):
    """A refusal at the start is a reason in words, and no finding."""
    told = probed("init", code=code)

    assert words in told["nvml"]
    assert told["health"] == []


def test_without_nvml_a_probe_says_so_and_ends():
    """A node without GPUs pays for one short-lived process."""
    loop = Loop()
    aides, answers = Aides(loop), list[Answer]()
    probe = Probe(loop, aides.bury, lambda: 0.0, print)
    probe.ask(protocol.HEALTH, answers.append, patient=True)
    probe.ask(protocol.REST, answers.append, patient=True)
    while len(answers) < 2:
        loop.turn(NEVER)

    assert (probe.failed, probe.pid, probe.deadline()) == (b"-1", 0, NEVER)
    while aides.pids:
        os.waitid(os.P_PID, next(iter(aides.pids)), os.WEXITED | os.WNOWAIT)
        aides.expire(0.0)


@pytest.mark.parametrize("raw", [b"", b"R", b"R x y", b"R -1 {}", b"\xff \xff"])
def test_a_frame_without_a_head_is_none(raw):
    """What is no frame is passed over."""
    assert protocol.decode(raw) is None
