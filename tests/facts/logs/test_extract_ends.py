"""Ends of workers, stops of jobs and complaints, as others word them."""

from __future__ import annotations

import pytest

from dsup.facts.logs.extract import attempt
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.said import LoggedAttempt


def read(*texts: str | tuple[int, str]) -> LoggedAttempt:
    """Return what lines tell; a pair is a line that torch marked with its rank."""
    lines = []
    for order, text in enumerate(texts):
        rank, said = text if isinstance(text, tuple) else (None, text)
        ranked = rank is not None
        lines.append(
            LogLine(said, Place(rank), "job.log", order + 1, order, ranked=ranked)
        )
    return attempt(lines, 0)


def test_reads_every_entry_of_a_failure_summary() -> None:
    """The root cause is told from the other failures, each with rank, pid and time."""
    found = read(
        "Failures:",
        "[1]:",
        "  time      : 2024-05-01_10:00:02",
        "  host      : n7",
        "  rank      : 9 (local_rank: 1)",
        "  exitcode  : 1 (pid: 412)",
        "  error_file: <N/A>",
        "------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2024-05-01_10:00:01",
        "  host      : n7",
        "  rank      : 8 (local_rank: 0)",
        "  exitcode  : -11 (pid: 411)",
        "  traceback : Signal 11 (SIGSEGV) received by PID 411",
        "==============================",
    )
    other, root = found.ends
    assert (other.source, other.place.rank, other.status) == ("report", 9, 1)
    assert (root.source, root.place.rank, root.status) == ("root_cause", 8, -11)
    assert root.at_s is not None
    assert other.at_s == root.at_s + 1


def test_reads_a_summary_that_was_typed_again() -> None:
    """Rows that lost their layout still bear the words they are known by."""
    found = read(
        "Root Cause (first observed failure) :",
        "rank5 (local rank: 5)exitcode: -9 (pid: 71)error file: <N/A>",
    )
    assert (found.ends[0].place.rank, found.ends[0].status) == (5, -9)


def test_an_agent_knows_the_global_rank_by_the_pid() -> None:
    """Its line has the local rank only; the summary or the worker's log has both."""
    found = read(
        "failed (exitcode: -9) local_rank: 0 (pid: 52) of binary: python",
        "  rank      : 24 (local_rank: 0)",
        "  exitcode  : -9 (pid: 52)",
    )
    assert found.ends[0].source == "agent"
    assert found.ends[0].place.rank == 24


def test_a_local_rank_is_no_rank_on_several_nodes() -> None:
    """With more nodes than one it may be any rank of that number on its node."""
    line = "failed (exitcode: 1) local_rank: 2 (pid: 9) of binary: python"
    assert read(line).ends[0].place.rank == 2
    assert read("torchrun --nnodes=4 fit.py", line).ends[0].place.rank is None


FORMS = (
    ("Sending process 71 closing signal SIGTERM", None, None, True),
    (
        "Unable to shutdown process 71 via 15, forcefully exiting via 9",
        None,
        -9,
        True,
    ),
    (
        "mp.ProcessExitedException: process 2 terminated with signal SIGBUS",
        2,
        -7,
        False,
    ),
    ("Exception: process 2 terminated with exit code 3", 2, 3, False),
    (
        "mpirun noticed that process rank 3 with PID 8 on node a exited on signal 11",
        3,
        -11,
        False,
    ),
    ("srun: error: n3: task 4: Exited with exit code 1", 4, 1, False),
    ("srun: error: n3: task 4: Out Of Memory", 4, -9, False),
    ("srun: error: n3: task 4: Terminated", 4, -15, True),
    ("['python', '--local_rank=7'] exits with return code = -9", None, -9, False),
    ("Killing subprocess 812", None, None, True),
    ("Rank 2 crashed with exit code -7.", 2, -7, False),
    ("Global rank 6 (PID 12) exited with code 1", 6, 1, False),
    ("Process 1 exit with status code 137.", 1, -9, False),
    ("Worker 3 has failed.", 3, None, False),
    (
        "CalledProcessError: Command '['python']' died with <Signals.SIGABRT: 6>.",
        None,
        -6,
        False,
    ),
    (
        "./run.sh: line 3: 19 Segmentation fault      (core dumped) python a",
        None,
        -11,
        False,
    ),
    ("    Exit Code:    137", None, -9, False),
)


@pytest.mark.parametrize(("text", "rank", "status", "by_launcher"), FORMS)
def test_every_launcher_tells_an_end_in_its_own_words(
    text: str, rank: int | None, status: int | None, *, by_launcher: bool
) -> None:
    """Who ended, how, and whether the launcher itself did it."""
    [end] = read(text).ends
    assert (end.place.rank, end.status, end.by_launcher) == (rank, status, by_launcher)


def test_mpirun_names_the_process_and_its_code_in_two_lines() -> None:
    """Open MPI's and PRRTE's names of processes end with the rank."""
    old = read("  Process name: [[48,1],5]", "  Exit code:    1")
    new = read("   Process name: [prterun-a-12@1,7]", "   Exit code:    134")
    assert [(e.place.rank, e.status) for e in old.ends] == [(5, 1)]
    assert [(e.place.rank, e.status) for e in new.ends] == [(7, -6)]


def test_a_task_below_a_launcher_is_no_rank() -> None:
    """With torchrun in between, srun's task 0 is a node."""
    found = read(
        "failed (exitcode: 1) local_rank: 3 (pid: 9) of binary: python",
        "srun: error: n1: task 0: Exited with exit code 1",
    )
    assert [end.place.rank for end in found.ends] == [3, None]


def test_srun_kills_the_other_tasks_after_the_first() -> None:
    """A task that is killed once the step was aborted has not failed by itself."""
    found = read(
        "srun: error: n1: task 2: Exited with exit code 1",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: error: n1: tasks 0-1: Killed",
    )
    assert [(e.place.rank, e.by_launcher) for e in found.ends] == [
        (2, False),
        (0, True),
        (1, True),
    ]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Received 15 death signal, shutting down workers", "preempted"),
        ("Received Signals.SIGHUP death signal, shutting down", "user_interrupt"),
        ("api.SignalException: Process 33 got signal: 2", "user_interrupt"),
        ("KeyboardInterrupt", "user_interrupt"),
        (
            "slurmstepd: error: *** STEP 1.0 CANCELLED AT x DUE TO TIME LIMIT ***",
            "time_limit",
        ),
        (
            "slurmstepd: error: *** JOB 1 CANCELLED AT x DUE TO PREEMPTION ***",
            "preempted",
        ),
        ("=>> PBS: job killed: walltime 3620 exceeded limit 3600", "time_limit"),
    ],
)
def test_tells_who_stopped_a_job(text: str, cause: str) -> None:
    """A hang-up or an interrupt comes from a user, SIGTERM from a scheduler."""
    assert [stop.cause for stop in read(text).stops] == [cause]


def test_a_cancelled_step_alone_has_no_reason() -> None:
    """Slurm cancels a step after the first bad exit too."""
    found = read("slurmstepd: error: *** STEP 6.0 ON n1 CANCELLED AT 2024-04-23 ***")
    assert found.stops == ()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x [3] alloc.h:1 NCCL WARN Cuda failure 'out of memory'", "oom_device"),
        ("x NCCL WARN Failed to CUDA calloc 62 bytes", "oom_device"),
        ("x NCCL WARN Cuda failure 700 'an illegal memory access'", "device"),
        ("NCCL WARN Call to ibv_create_cq failed: Cannot allocate memory", "memlock"),
        ("NCCL WARN Error while creating shared memory segment /x (size 9)", "shm"),
        ("NCCL WARN NET/IB : Got async event : port error", "nic"),
        ("NET/IB : Got completion from peer 10.0.0.7<391> with error 12", "completion"),
        ("NCCL WARN Duplicate GPU detected : rank 0 and rank 1 on device 7", "other"),
        ("what():  CUDA error: uncorrectable ECC error encountered", "ecc"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0", "oom_host"),
        (
            "[c10d] failed to bind to [::]:29500 (errno: 98 - Address already in use)",
            "port",
        ),
        ("double free or corruption (!prev)", "glibc"),
        ("ERROR: Unexpected bus error encountered in worker.", "loader"),
        ("fit.py: error: unrecognized arguments: --lr", "refusal"),
        ("Killed", "killed"),
        ("*** JOB 7 ON n1 CANCELLED AT x DUE TO NODE FAILURE ***", "node"),
    ],
)
def test_tells_kinds_of_complaints_apart(text: str, kind: str) -> None:
    """Each has its words; what hides a reason of its own is called by the reason."""
    assert [complaint.kind for complaint in read(text).complaints] == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "n0:21:47 [326] NCCL INFO [Service thread] Connection closed by localRank 2",
        "Bypassing SIGTERM: 15",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "[W socket.cpp:1] client socket cannot be initialized (errno: 97 - No family)",
        "DataLoader worker (pid 7) is killed by signal: Terminated.",
        "UserWarning: may potentially fail with unexpected CUDA errors",
    ],
)
def test_takes_noise_for_no_complaint(text: str) -> None:
    """Victims and healthy runs say such things."""
    assert read(text).complaints == ()


def test_a_peer_that_closed_is_named() -> None:
    """The address in a victim's words is where the culprit was."""
    found = read("socketProgress: Connection closed by remote peer ip-10-0-0-45<329>")
    assert found.complaints[0].peer == "ip-10-0-0-45"


def test_a_place_that_repeats_itself_is_heard_a_few_times() -> None:
    """A warning in a loop must not crowd out everything else."""
    assert len(read(*["the node failure"] * 100).complaints) == 8


def test_knows_how_far_each_rank_had_come() -> None:
    """The last step that a rank printed, and that it said it was done."""
    found = read(
        (0, "step 11 loss 0.2"), (1, "step 12 loss 0.3"), (1, "training finished")
    )
    assert found.progress[0].step == 11
    assert (found.progress[1].step, found.progress[1].done) == (12, True)
    assert found.ranks == {0, 1}


def test_takes_sizes_from_commands_and_banners() -> None:
    """A command echo, NCCL's banner and torch's own words tell the world's size."""
    assert read("torchrun --nproc_per_node=8 fit.py").world_size == 8
    assert read("x comm 0x5 rank 1 nranks 16 cudaDev 1").world_size == 16
    assert read("store based barrier (world_size=4, worker_count=1)").world_size == 4
