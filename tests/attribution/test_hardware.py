"""GPUs that failed: by the kernel's word, by a switch's, and by NVML's."""

import pytest

from dsup.facts.audit import Abend
from dsup.facts.hardware import Gpu, GpuHealth

LOST = "CUDA error: unspecified launch failure"
GSP = "NVRM: Xid (PCI:0000:0c:00): 119, Timeout after 6s of waiting for RPC response"


def gpu(rank):
    """Return the GPU of a rank: number and bus go with it."""
    return Gpu(rank, f"GPU-{rank}", f"0000:{0x0A + rank:02x}:00", minor=rank)


def mapped(story, ranks=4):
    """Let it be known which GPU each rank uses."""
    return story.but(gpus={rank: gpu(rank) for rank in range(ranks)})


def xid(story, number, rank=None, at=9.5, pid=None, **fields):
    """Let the kernel log tell of an Xid of a rank's GPU."""
    pci = "0000:f0:00" if rank is None else gpu(rank).pci
    return story.kernel("xid", pid, at, xid=number, **{"pci": pci, **fields})


def test_a_gpu_that_fell_off_the_bus_goes_before_the_traceback(incident):
    """The rank raises what it sees of it; the kernel's line tells what it was."""
    story = mapped(incident()).raised(2, "RuntimeError", LOST).lost(0, 1, 3)
    xid(story, 79, 2, pid=1002)

    assert story.answer == ("gpu_failed", "gpu_hardware", (2,), "proven")
    verdict = story.verdict
    assert verdict.summary == (
        "Rank 2's GPU 2 (0000:0c:00) failed: the GPU has fallen off the bus (Xid 79)."
    )
    assert [line.source for line in verdict.evidence[:2]] == ["kernel", "dsup"]
    assert "never the program" in verdict.evidence[1].text
    assert verdict.advice.action == "drain_node"


def test_the_kernel_s_time_is_when_it_began(incident):
    """The rank hangs for minutes before it raises."""
    story = mapped(incident()).raised(2, "RuntimeError", LOST, 200.0).lost(0, 1)
    xid(story, 79, 2, 9.5)

    assert story.verdict.at_s == pytest.approx(109.5)


def test_a_rank_that_hangs_with_its_gpu(incident):
    """The GPU's firmware does not answer, the rank sleeps, and the others wait."""
    story = mapped(incident()).timed_out(0, 1, 3).stood(2, state="D", at=16.0)
    xid(story, 119, 2, 9.0, text=GSP)

    assert story.answer == ("gpu_failed", "gpu_hardware", (2,), "proven")


@pytest.mark.parametrize("number", [46, 48, 62, 79, 94, 95, 119, 120, 140, 143])
def test_xids_of_the_hardware(incident, number):
    """Each of these ends the work on its GPU, whatever the program did."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)

    assert xid(story, number, 1).answer[1:] == ("gpu_hardware", (1,), "proven")


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 92, 154, 177])
def test_xids_that_a_program_brings_about_or_that_follow(incident, number):
    """They support the rank's own words, and make no GPU guilty."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    verdict = xid(story, number, 1, text=f"Xid {number}").verdict

    assert (verdict.rule, verdict.cause) == ("raised", "cuda_error")
    assert any(f"Xid {number}" in line.text for line in verdict.evidence)


def test_the_root_of_an_incident_is_named_not_what_follows(incident):
    """Clean-up of channels is told of in between, before and after."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    for number, at in ((63, 9.0), (48, 9.1), (45, 9.2), (43, 9.3), (154, 9.4)):
        xid(story, number, 1, at)

    assert "(Xid 48)" in story.verdict.summary


def test_clean_up_that_names_the_xid_before_it(incident):
    """The root's own line was overwritten; its number is told all the same."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    verdict = xid(story, 45, 1, previous_xid=119).verdict

    assert verdict.cause == "gpu_hardware"
    assert "(Xid 119)" in verdict.summary
    assert any("is not in the log" in line.text for line in verdict.evidence)


def test_a_stranger_s_gpu_is_no_cause(incident):
    """All GPUs of this run are known, and this one is another tenant's."""
    story = mapped(incident()).raised(1, "ValueError", "no").lost(0, 2, 3)

    assert xid(story, 79).answer == ("raised", "python_exception", (1,), "proven")


def test_without_a_map_a_lost_gpu_is_likely(incident):
    """Ranks that tell of their device are named; the line itself names none."""
    story = incident().raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    verdict = xid(story, 79).verdict

    assert verdict.first_ranks == (1,)
    assert (verdict.rule, verdict.certainty) == ("gpu_failed", "likely")
    assert verdict.summary.startswith("The GPU at 0000:f0:00 likely failed")


def test_without_a_map_a_rank_s_own_exception_stands(incident):
    """A lost GPU that nobody connects with this run explains no ValueError."""
    story = incident().raised(1, "ValueError", "no").lost(0, 2, 3)

    assert xid(story, 79).answer[0] == "raised"


def test_without_a_map_the_pid_of_a_rank_joins(incident):
    """The pid in the line owns the channel."""
    story = incident().raised(1, "RuntimeError", LOST).lost(0, 2, 3)

    assert xid(story, 94, pid=1001).answer[2:] == ((1,), "proven")


@pytest.mark.parametrize("comm", ["nvidia-smi", "dcgm-exporter", "NvmlTaskRunner"])
def test_a_monitor_s_pid_joins_nothing(incident, comm):
    """Whoever calls the driver at the moment may be named in the line."""
    story = incident().child(3, 7000).raised(1, "RuntimeError", LOST).lost(0, 2, 3)

    assert xid(story, 79, pid=7000, comm=comm).answer[2:] == ((1,), "likely")


def test_an_xid_that_comes_after_another_rank_s_failure(incident):
    """What breaks while everything is torn down did not begin it."""
    story = mapped(incident()).raised(0, "ValueError", "no", 5.0).lost(1, 2, 3)

    assert xid(story, 79, 2, 9.0).answer[1:3] == ("python_exception", (0,))


def test_an_xid_of_an_attempt_before(incident):
    """A line that is older than the attempt explains nothing."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)

    assert xid(story, 79, 1, -30.0).answer[:2] == ("raised", "cuda_error")


def test_both_ends_of_a_link_are_named(incident):
    """NVLink errors of two GPUs within seconds are one incident."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    xid(story, 74, 3, 9.0)
    xid(story, 74, 1, 9.4)
    verdict = story.verdict

    assert verdict.first_ranks == (1, 3)
    assert "either end of the link may be at fault" in verdict.summary


def test_a_link_error_that_is_not_fatal_is_no_more_than_likely(incident):
    """The word of the line decides, and only where nothing else explains the end."""
    text = "NVRM: Xid (PCI:0000:0b:00): 149, NETIR Nonfatal XC0 i0 Link 04 (0x1 0x2)"
    story = mapped(incident()).lost(0, 1, 2, 3)

    assert xid(story, 149, 1, text=text).answer == (
        "gpu_failed",
        "gpu_hardware",
        (1,),
        "likely",
    )
    other = mapped(incident()).raised(1, "ValueError", "no").lost(0, 2, 3)
    assert xid(other, 149, 1, text=text).answer[0] == "raised"


def test_a_fatal_pcie_error_is_of_the_same_incident(incident):
    """The bridge above the GPU tells why it left the bus."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    story.kernel("aer", None, 9.4, pci="0000:09:01", severity="fatal")
    verdict = xid(story, 79, 1).verdict

    assert "after a fatal PCIe error of 0000:09:01 (Xid 79)" in verdict.summary
    assert any(line.text.startswith("aer") for line in verdict.evidence[:2])


def test_a_fatal_error_of_a_switch(incident):
    """The fabric's line names no GPU; ranks that tell of their device are named."""
    story = (
        mapped(incident()).raised(0, "RuntimeError", "CUDA error: nvlink").lost(1, 2)
    )
    story.kernel("sxid", None, 9.4, xid=20034, severity="fatal", device="nvswitch0")
    verdict = story.verdict

    assert story.answer == ("fabric_failed", "gpu_hardware", (0,), "likely")
    assert "SXid 20034 of nvswitch0" in verdict.summary


def test_an_error_of_a_switch_that_is_not_fatal(incident):
    """It ends nothing by itself."""
    story = mapped(incident()).raised(0, "ValueError", "no").lost(1, 2, 3)
    story.kernel("sxid", None, 9.4, xid=12028, severity="nonfatal")

    assert story.answer[0] == "raised"


def test_a_program_that_the_gpu_stopped_and_that_says_nothing(incident):
    """An illegal address, then a rank that ends without a word."""
    story = mapped(incident()).ended(1, -6, 10.0).lost(0, 2, 3, at=10.4)
    verdict = xid(story, 31, 1, pid=1001).verdict

    assert story.answer == ("program_faulted", "cuda_error", (1,), "likely")
    assert "(Xid 31)" in verdict.summary


def test_channel_resets_after_dsup_s_own_kill_name_nobody(incident):
    """Such lines follow from the signal."""
    story = mapped(incident()).timed_out(0, 1, 3).stood(2, at=16.0)

    assert xid(story, 43, 1, 16.5).answer[0] != "program_faulted"


def bad(rank, problem="lost", text="", **fields):
    """Return what NVML says of a bad GPU of a rank."""
    one = gpu(rank)
    named = f"GPU {one.number} ({one.pci}) {text or 'is lost (NVML error 15)'}"
    return GpuHealth(one, "bad", problem, named, **fields)


def test_nvml_s_word_where_the_kernel_log_is_silent(incident):
    """In a container there is no kernel log, but NVML answers."""
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    story.but(gpu_health=(bad(1),), kernel_log="cannot be read")
    verdict = story.verdict

    assert story.answer == ("gpu_reported_bad", "gpu_hardware", (1,), "proven")
    assert verdict.summary == "Rank 1's GPU 1 (0000:0b:00) is lost (NVML error 15)."
    assert verdict.evidence[0].source == "nvml"


def test_nvml_s_word_and_only_victims(incident):
    """The rank of the bad GPU hangs, and no rank says what of."""
    story = mapped(incident()).timed_out(0, 1, 3).stood(2, at=16.0)
    story.but(gpu_health=(bad(2, "ecc", "had 2 uncorrectable memory errors (ECC)"),))

    assert story.answer[1:] == ("gpu_hardware", (2,), "proven")


def test_nvml_s_word_does_not_go_before_another_rank_s_exception(incident):
    """NVML tells no time: the GPU may have gone bad of anything, or after it."""
    story = mapped(incident()).raised(0, "ValueError", "no").lost(1, 2, 3)

    assert story.but(gpu_health=(bad(3),)).answer[1:3] == ("python_exception", (0,))


def test_a_gpu_that_gives_no_answer_is_no_cause(incident):
    """Unknown is not bad."""
    health = GpuHealth(gpu(1), "unknown", "", "GPU 1 (0000:0b:00) gave no answer")
    story = mapped(incident()).lost(0, 1, 2, 3).but(gpu_health=(health,))

    assert story.verdict.cause == "nccl_network"


def test_a_bad_gpu_that_no_rank_uses_is_no_cause(incident):
    """It is another tenant's."""
    story = mapped(incident()).lost(0, 1, 2, 3).but(gpu_health=(bad(6),))

    assert story.verdict.cause == "nccl_network"


def test_killed_says_what_was_quiet(incident):
    """Who is killed from outside wants to know that GPU and kernel had no part."""
    story = mapped(incident()).ended(1, -9).lost(0, 2, 3)
    story.but(gpu_health=tuple(GpuHealth(gpu(r), "ok") for r in range(4)))
    texts = [line.text for line in story.verdict.evidence if line.source == "nvml"]

    assert story.verdict.cause == "killed"
    assert texts == ["NVML finds nothing wrong with any GPU"]


def test_unknown_says_what_could_not_be_asked(incident):
    """NVML and the kernel log are named, read or not."""
    story = incident().stood(0, 1, 2, 3).but(nvml="cannot ask NVML, because it hangs")
    evidence = [(line.source, line.text) for line in story.verdict.evidence]

    assert story.verdict.cause == "unknown"
    assert ("nvml", "cannot ask NVML, because it hangs") in evidence
    assert ("kernel", "the kernel log tells of no fault") in evidence


def test_an_audit_record_is_cited_for_a_crash(incident):
    """It comes after handlers, so there is one where no segfault line is."""
    story = incident().ended(1, -11).lost(0, 2, 3)
    story.but(abends=(Abend(1001, "python3", "/usr/bin/python3", 11, 109_900_000),))
    found = [line for line in story.verdict.evidence if line.source == "audit"]

    assert story.answer == ("crashed", "segfault", (1,), "likely")
    assert [(line.text, line.rank) for line in found] == [
        ("pid 1001 (python3) died of SIGSEGV", 1)
    ]


@pytest.mark.parametrize(
    "abend",
    [
        pytest.param(Abend(1001, "python3", "", 6), id="another signal"),
        pytest.param(Abend(1002, "python3", "", 11), id="another rank"),
        pytest.param(Abend(77, "python3", "", 11), id="a stranger"),
    ],
)
def test_audit_records_of_others_are_not_cited(incident, abend):
    """A record counts for the process that it names, and for its signal."""
    story = incident().ended(1, -11).lost(0, 2, 3).but(abends=(abend,))

    assert all(line.source != "audit" for line in story.verdict.evidence)


def test_a_gpu_that_the_driver_gave_up_without_a_number_is_cited(incident):
    """No Xid tells of a GPU that cannot be initialised; the rank's error is CUDA's."""
    text = "NVRM: GPU 0000:0b:00.0: RmInitAdapter failed! (0x24:0x72:1568)"
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    verdict = xid(story, None, 1, text=text).verdict

    assert (verdict.rule, verdict.cause) == ("raised", "cuda_error")
    assert any(line.text.startswith(text) for line in verdict.evidence)


def test_nvml_s_notes_are_cited_for_what_devices_bear_on(incident):
    """Throttling, narrow links and replays are no verdict, but worth reading."""
    note = "its PCIe link has 4 of 16 lanes"
    health = GpuHealth(gpu(1), "ok", "", "NVML finds nothing wrong", notes=(note,))
    story = mapped(incident()).raised(1, "RuntimeError", LOST).lost(0, 2, 3)
    story.but(gpu_health=(health,))

    assert any(note in line.text for line in story.verdict.evidence)


def test_a_line_about_a_stranger_s_gpu_says_so(incident):
    """It stands among what was looked at, with the reason."""
    story = mapped(incident()).raised(1, "ValueError", "no").lost(0, 2, 3)
    texts = [line.text for line in xid(story, 79).verdict.evidence]

    assert any("looked at, no GPU of this run" in text for text in texts)


def test_a_rank_that_ended_well_does_not_make_its_gpu_the_cause(incident):
    """Its work was done when the GPU went."""
    story = mapped(incident()).ended(3, 0, 5.0).raised(1, "ValueError", "no")

    assert xid(story, 79, 3, 4.0).answer[:2] != ("gpu_failed", "gpu_hardware")
