"""The host: broken memory, storage that fails, tasks that are stuck."""

import pytest

BUS, KILL = 7, 9
READ = "[Errno 5] Input/output error: '/data/shard-3'"


def test_memory_that_broke_under_a_rank(incident):
    """The kernel names the process, and sends it SIGBUS."""
    story = incident().ended(2, -BUS).lost(0, 1, 3).kernel("mce", 1002, 9.9)
    verdict = story.verdict

    assert story.answer == ("memory_broke", "sigbus", (2,), "proven")
    assert verdict.summary == "Rank 2 got SIGBUS because memory of the node is broken."
    assert verdict.advice.action == "drain_node"


def test_memory_that_broke_under_a_thread_of_a_rank(incident):
    """The page fault's path names a thread."""
    story = incident().child(2, 6001).ended(2, -KILL).lost(0, 1, 3)

    assert story.kernel("mce", 6001, 9.9).answer[:3] == ("memory_broke", "sigbus", (2,))


def test_an_uncorrected_error_that_names_nobody_is_likely(incident):
    """The controller tells the module, not whose page it was."""
    story = incident().ended(2, -BUS).lost(0, 1, 3)
    story.kernel("ecc_mem", None, 9.9, severity="nonfatal", device="DIMM_B1")

    assert story.answer == ("memory_broke", "sigbus", (2,), "likely")
    assert "DIMM_B1" in story.verdict.summary


@pytest.mark.parametrize(
    ("pid", "severity"),
    [
        pytest.param(None, "corrected", id="corrected"),
        pytest.param(None, "", id="without a severity"),
        pytest.param(4711, "fatal", id="of a stranger"),
    ],
)
def test_errors_of_memory_that_explain_no_bus_error(incident, pid, severity):
    """A bus error has other reasons, most often a full /dev/shm."""
    story = incident().ended(2, -BUS).lost(0, 1, 3)

    assert story.kernel("ecc_mem", pid, 9.9, severity=severity).answer[0] == "crashed"


def test_storage_that_fails_by_the_kernel_s_word_and_the_rank_s(incident):
    """An exception tells of EIO, and the kernel names the device."""
    story = incident().raised(1, "OSError", READ).lost(0, 2, 3)
    story.kernel("io_error", None, 9.8, device="nvme1n1", text="I/O error, dev nvme1n1")

    assert story.answer == ("storage_failed", "storage_io", (1,), "proven")
    assert "storage (nvme1n1) failed" in story.verdict.summary


def test_all_ranks_with_the_same_i_o_error_are_named(incident):
    """They read the same file system."""
    story = incident(2).raised(0, "OSError", READ, 10).raised(1, "OSError", READ, 12)

    assert story.kernel("io_error", None, 9.8).answer[2] == (0, 1)


def test_ranks_asleep_while_a_server_does_not_answer(incident):
    """Nobody gets an error: the mount waits, and the others time out."""
    story = incident().timed_out(0, 1, 3).stood(2, state="D", wchan="rpc", at=16.0)
    story.kernel("io_error", None, 5.0, text="nfs: server fs1 not responding")

    assert story.answer == ("storage_failed", "storage_io", (2,), "likely")


def test_an_i_o_error_of_a_disk_that_nobody_reads(incident):
    """A rank's own exception is not storage's because a disk is worn."""
    story = incident().raised(1, "ValueError", "no").lost(0, 2, 3)

    assert story.kernel("io_error", None, 9.8).answer[0] == "raised"


def test_a_thread_that_the_kernel_calls_stuck(incident):
    """The main thread sleeps as usual; another waits for a driver."""
    story = incident().child(2, 6001).timed_out(0, 1, 3, at=390.0).stood(2, at=400.0)
    text = "INFO: task pt_autograd_0:6001 blocked for more than 120 seconds."
    story.kernel("hung_task", 6001, 150.0, text=text)

    assert story.answer[:3] == ("stuck_in_kernel", "hang", (2,))


def test_a_stuck_task_of_somebody_else(incident):
    """Tasks of other programs get stuck too."""
    story = incident().timed_out(0, 1, 3).stood(2, at=16.0)

    assert story.kernel("hung_task", 99, 10.0).answer[0] == "did_not_come"


def test_a_stuck_task_is_cited_for_a_rank_asleep(incident):
    """The state at the end is the proof; the kernel's line says for how long."""
    story = incident().timed_out(0, 1, 3).stood(2, state="D", at=400.0)
    story.kernel("hung_task", 1002, 12.0, text="INFO: task python:1002 blocked")

    assert story.answer[0] == "asleep_in_kernel"
    assert any("task python:1002" in line.text for line in story.verdict.evidence)


def test_a_refused_fork_is_cited_for_pids_limit(incident):
    """The kernel tells of a cgroup's first refused fork only."""
    story = incident().raised(1, "RuntimeError", "can't start new thread").lost(0, 2)
    story.kernel(
        "pids_limit", None, 9.9, text="cgroup: fork rejected by pids controller"
    )

    assert story.verdict.cause == "pids_limit"
    assert any("fork rejected" in line.text for line in story.verdict.evidence)


def test_a_lockup_is_evidence_only(incident):
    """On virtual machines it is often stolen time."""
    story = incident().timed_out(0, 1, 3).stood(2, at=16.0)
    story.kernel("lockup", None, 10.0, text="watchdog: BUG: soft lockup - CPU#3 stuck")

    assert story.answer[0] == "did_not_come"
    assert any("soft lockup" in line.text for line in story.verdict.evidence)
