"""Logs as people paste them: cut, flattened, quoted; each retells a public report."""

import pytest

from dsup.attribution.logged.calm import is_calm
from dsup.attribution.logged.judge import judge_log
from dsup.facts.logs.extract import attempt
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.streams import lines


def read(text):
    """Return what a log's text tells."""
    rows = enumerate(text.strip("\n").encode().split(b"\n"), 1)
    return attempt(lines(RawLine("job.log", number, row) for number, row in rows), 0)


def judged(text):
    """Return the cause and the first ranks."""
    verdict = judge_log(read(text))
    return verdict.cause, verdict.first_ranks


def waited(rank, rest="SeqNum=46950, OpType=ALLREDUCE, Timeout(ms)=1800000) ran"):
    """Return a watchdog's line."""
    said = "Watchdog caught collective operation timeout: WorkNCCL("
    return f"[E ProcessGroupNCCL.cpp:737] [Rank {rank}] {said}{rest}"


WAITS = "\n".join(map(waited, (1, 3, 2)))
TRACED = "[I ProcessGroupWrapper.cpp:562] [Rank {}] Running collective: "
PRINT = "CollectiveFingerPrint(SequenceNumber={}, OpType={}, TensorShape=[1])"
FAILED = "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: {})"

PASTED = {
    "an operation's name is cut at the end": (
        f"{WAITS}\n{waited(5, 'SeqNum=46950, OpType=ALLR')}",
        ("hang", ()),
    ),
    "a number is cut at the end": (
        f"{WAITS}\n{waited(5, 'SeqNum=469')}",
        ("hang", ()),
    ),
    "the time-out itself is cut": (
        (
            "[rank6]:[E624 04:14:29.2 P.cpp:1896] [PG ID 1 PG GUID 1 Rank 6]"
            " Process group watchdog thread terminated with exception: [Rank 6]"
            " Watchdog caught co"
        ),
        ("hang", ()),
    ),
    "who is accused stands before the cut": (
        (
            "[E ProcessGroupGloo.cpp:138] Rank 3 successfully reached"
            " monitoredBarrier, but received errors while waiting for send/recv"
            " from rank 2. Please check rank 2 logs for faul"
        ),
        ("hang", (2,)),
    ),
    "the first step that is seen after a time-out is no rise": (
        "\n".join(map(waited, (0, 2, 3))) + "\nINFO:root:step 120 loss 2.3",
        ("hang", ()),
    ),
    "srun waits for a job step, not for a collective": (
        (
            "srun: error: Task launch for 3.0 failed on node n1: Credential expired\n"
            "srun: error: Timed out waiting for job step to complete"
        ),
        ("spawn_error", ()),
    ),
    "a container that Slurm could not start": (
        (
            "slurmstepd: error: pyxis: container start failed with error code: 1\n"
            "slurmstepd: error: spank: required plugin spank_pyxis.so failed\n"
            "srun: error: n2: task 1: Exited with exit code 1"
        ),
        ("spawn_error", (1,)),
    ),
    "an option that srun does not know": (
        (
            "srun: unrecognized option '--container-image'\n"
            'Try "srun --help" for more information'
        ),
        ("config_error", ()),
    ),
    "calls that are traced do not differ": (
        TRACED.format(0)
        + PRINT.format(12, "ALLREDUCE")
        + "\n"
        + TRACED.format(1)
        + PRINT.format(12, "BROADCAST")
        + "\n"
        + FAILED.format(-9)
        + " local_rank: 1 (pid: 71)",
        ("killed", (1,)),
    ),
    "a logger tells of calls with other numbers": (
        (
            "[RANK 1] 2026-05-19 10:10:29,701 [ERROR] Detected mismatch between"
            " collectives on ranks. Rank 1 is running collective: "
            f"{PRINT.format(101, 'ALLGATHER')},"
            " but Rank 7 is running collective: CollectiveFingerPrint(SequenceNumber=0"
            "OpType=REDUCE).\n"
            "[rank7]: Traceback (most recent call last):\n"
            '[rank7]:   File "train.py", line 225, in <module>\n'
            "[rank7]:     trainer.train()"
        ),
        ("collective_mismatch", ()),
    ),
    "a C++ exception stands in one line": (
        (
            "[E P.cpp:460] We are taking the entire process down. terminate called"
            " after throwing an instance of 'std::exception' what(): NCCL error: remote"
            " process exited or there was a network error, NCCL version 2.14.3"
            " ncclRemoteError: A call failed. Last error: NET/IB : Got completion from"
            " peer 10.2.1.7<391> with error 12, opcode 0, len 0, vendor err 129"
        ),
        ("nccl_network", ()),
    ),
    "a network's own error in an exception": (
        (
            "[rank3]: torch.distributed.DistBackendError: NCCL error in: N.hpp:268,"
            " remote process exited or there was a network error, NCCL version 2.28.8\n"
            "[rank3]: ncclRemoteError: A call failed.\n"
            "[rank3]: Last error:\n"
            "[rank3]: NET/OFI Request 0x7f completed with error. RC: 113. Error: 2"
        ),
        ("nccl_network", ()),
    ),
    "a process that is asked to end is no crash": (
        "*** SIGTERM received by PID 167 (TID 167) on cpu 20 from PID 161; stack trace",
        ("unknown", ()),
    ),
    "glog says of every signal that it aborted": (
        (
            "W1212 04:02:33.400863 244 init.cc:205] *** Aborted at 1576123353 (unix)\n"
            "W1212 04:02:33.403934 244 init.cc:205] *** SIGSEGV (@0x0) received by"
            " PID 24044"
        ),
        ("segfault", ()),
    ),
    "what a launcher prints behind the echo of Ctrl-C": (
        (
            "{'loss': 2.1, 'epoch': 0.1}\n"
            "^C[2024-05-26 15:06:40,046] [INFO] [launch.py:315:sigkill_handler] Killing"
            " subprocess 22523"
        ),
        ("user_interrupt", ()),
    ),
    "a limit outweighs frames whose exception is cut": (
        (
            '  File "/w/wandb/api.py", line 3, in <module>\n'
            "    from wandb.sdk import Api\n"
            '  File "/w/wandb/sdk.py", line 1, in <module>\n'
            "slurmstepd: error: *** STEP 34.0 ON n1 CANCELLED AT 2024-04-16T22:14:41"
            " DUE TO TIME LIMIT ***"
        ),
        ("time_limit", ()),
    ),
    "a planner of checkpoints": (
        (
            "ValueError: Size mismatch between saved torch.Size([2]) and current:"
            " torch.Size([3]) for model.w"
        ),
        ("checkpoint_error", ()),
    ),
    "no memory for another process": (
        "    self.pid = os.fork()\nOSError: [Errno 12] Cannot allocate memory",
        ("host_oom", ()),
    ),
    "a file store on storage that went away": (
        "RuntimeError: flock: Transport endpoint is not connected",
        ("storage_io", ()),
    ),
    "torch's own writer": (
        "RuntimeError: write(): fd 29 failed with Input/output error",
        ("storage_io", ()),
    ),
    "CUDA's errors as torch numbered them": (
        "RuntimeError: cuda runtime error (2) : out of memory at THCStorage.cu:58",
        ("cuda_oom", ()),
    ),
    "a tuner only tells that its trials failed": (
        (
            "ray.tune.error.TuneError: ('Trials did not complete', [seed:5591])\n"
            "slurmstepd: error: Detected 8 oom-kill event(s) in step 591.batch cgroup."
        ),
        ("host_oom", ()),
    ),
    "HCCL's time-out is a victim's": (
        (
            "w-1: RuntimeError: npuSynchronizeDevice: NPU error, error code is 107020\n"
            "w-1: [ERROR] 2024-07-03-11:28:40 (PID:639, Device:0, RankID:16) ERR00100\n"
            "w-1: EI9999: hccl fftsplus task timeout occurred during task execution"
        ),
        ("unknown", ()),
    ),
    "an indented line that names its rank": (
        "    AssertionError: Rank 11: found NaN in local grad norm in backward pass",
        ("numeric_divergence", (11,)),
    ),
    "a closing report hides nothing of what was done": (
        "Loading checkpoint shards: 33% 1/3\n"
        + FAILED.format(-9)
        + " local_rank: 0 (pid: 71)\n"
        + "wandb: synced 5 files\n" * 14,
        ("host_oom", (0,)),
    ),
    "a node's name before every line": (
        (
            "gpu-a12: Primary job  terminated normally, but 1 process returned\n"
            "gpu-a12: a non-zero exit code.\n"
            "gpu-a12: mpirun detected that one or more processes exited with non-zero\n"
            "gpu-a12:   Process name: [[29973,1],0]\n"
            "gpu-a12:   Exit code:    1"
        ),
        ("python_exception", (0,)),
    ),
    "the journal's process is that of the unit": (
        "Mar 04 10:00:01 n7 run.sh[4321]: "
        + FAILED.format(-11)
        + " local_rank: 4 (pid: 71)",
        ("segfault", (4,)),
    ),
}


@pytest.mark.parametrize(("text", "answer"), PASTED.values(), ids=PASTED.keys())
def test_a_pasted_log_is_read_as_it_was_meant(text, answer):
    """Neither a cut nor a wrapping changes what is told, and nothing is invented."""
    assert judged(text) == answer


CALM = {
    "a client of a web service tries again": (
        "'(MaxRetryError(\"HTTPSConnectionPool(host='hub', port=443): Max retries"
        " exceeded (Caused by NewConnectionError('[Errno 101] Network is unreachable'))"
        "\"))' thrown while requesting HEAD https://hub/config.json\n"
        "Retrying in 1s [Retry 1/5].\n"
        "step 10 loss 2.0\nstep 20 loss 1.9\nstep 30 loss 1.8\ntraining finished"
    ),
    "somebody who watched a log stopped watching": (
        "step 10 loss 2.0\nstep 20 loss 1.9\ntraining finished\n^C\nuser@n1:~$"
    ),
}


@pytest.mark.parametrize("text", CALM.values(), ids=CALM.keys())
def test_frightening_words_of_a_healthy_run_are_no_failure(text):
    """There is no verdict."""
    found = read(text)

    assert is_calm(found, judge_log(found))
