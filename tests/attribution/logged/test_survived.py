"""What a rank outlives ended nothing: its steps go on behind it."""

import pytest

from dsup.attribution.logged.calm import is_calm
from dsup.attribution.logged.judge import judge_log
from dsup.facts.logs.attempts import split
from dsup.facts.logs.extract import attempt
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.streams import lines


def told(*rows):
    """Return what the only attempt of a log tells."""
    raw = [RawLine("job.log", i, row.encode()) for i, row in enumerate(rows, 1)]
    (batch,) = split(lines(raw))
    return attempt(batch.lines, 0)


def answer(*rows):
    """Return cause and first ranks."""
    verdict = judge_log(told(*rows))
    return verdict.cause, verdict.first_ranks


def steps(first, last, *ranks):
    """Return the lines of some steps of ranks; without ranks, of nobody."""
    before = [f"[rank{rank}]: " for rank in ranks] or [""]
    return [f"{b}step {n} of fit" for n in range(first, last) for b in before]


def raised(before, what):
    """Return a traceback."""
    head = "Traceback (most recent call last):"
    rows = (head, '  File "/app/fit.py", line 8, in fit', "    go()", what)
    return [f"{before}{row}" for row in rows]


CAUGHT = raised("[rank0]: ", "KeyError: 'rouge'")
REAL = raised("[rank1]: ", "IndexError: list index out of range")
BETWEEN = (
    "[rank1]: ",
    "[rank1]: During handling of the above exception, another exception occurred:",
    "[rank1]: ",
)
AGENT = (
    "E0603 08:01:02.000000 7 torch/distributed/elastic/multiprocessing/api.py:874] "
    "failed (exitcode: -9) local_rank: 2 (pid: 93) of binary: /opt/python"
)


def test_a_caught_exception_is_not_the_end():
    """The rank trained on, and another one ended."""
    rows = [*steps(0, 4, 0, 1), *CAUGHT, *steps(4, 9, 0, 1), *REAL]

    assert answer(*rows) == ("python_exception", (1,))


def test_the_launchers_word_of_an_end_outweighs_a_caught_exception():
    """SIGKILL of another rank ended the job, long after."""
    rows = [*steps(0, 4, 0, 1, 2), *CAUGHT, *steps(4, 9, 0, 1, 2), AGENT]

    assert answer(*rows) == ("killed", (2,))


def test_without_ranks_the_steps_of_all_tell():
    """In a log without prefixes the second traceback is the end."""
    caught = raised("", "KeyError: 'rouge'")
    rows = [*steps(0, 4), *caught, *steps(4, 9), *raised("", "OSError: [Errno 28] x")]

    assert answer(*rows) == ("disk_full", ())


def test_one_step_more_is_no_proof():
    """Ranks that share a stream finish the step at hand after one has failed."""
    rows = [*steps(0, 4), *raised("", "KeyError: 'rouge'"), *steps(4, 5)]

    assert answer(*rows) == ("python_exception", ())


def test_steps_out_of_a_buffer_follow_the_last_words():
    """Standard output that was never flushed is printed when the process ends."""
    lost = "torch.distributed.DistBackendError: NCCL error: ncclRemoteError"
    rows = [*CAUGHT, *steps(0, 9, 0), *raised("[rank1]: ", lost)]

    assert answer(*rows) == ("python_exception", (0,))


WARNINGS = [
    "WARNING: No space left on device while the events were written; goes on",
    "loss is nan, this batch counts nothing",
    "OSError: [Errno 98] Address already in use, next port",
    "WARN CUDA out of memory with 96, once more with 48",
    "[W603 08:00:00.1 socket.cpp:7] [c10d] connect failed (Connection refused).",
]


@pytest.mark.parametrize("warning", WARNINGS)
def test_a_warning_before_more_steps_is_no_cause(warning):
    """A line alone loses against a traceback, and says nothing where all went well."""
    rows = [*steps(0, 3, 0, 1), f"[rank0]: {warning}", *steps(3, 9, 0, 1)]
    well = told(*rows, "[rank0]: finished")

    assert answer(*rows, *REAL) == ("python_exception", (1,))
    assert is_calm(well, judge_log(well))


def test_what_was_logged_counts_less_than_what_was_not():
    """A logger's line right before a traceback: somebody has caught the exception."""
    logged = ["[rank0]: ERROR:root:no metrics", *CAUGHT]
    crash = "[rank2]: Fatal Python error: Segmentation fault"

    assert answer(*steps(0, 4, 0, 2), *logged, crash) == ("segfault", (2,))
    assert answer(*steps(0, 4, 0, 2), *logged) == ("python_exception", (0,))


def test_an_agent_that_finished_well_tells_of_no_failure():
    """The last word of torchrun's agent outweighs what was caught right before it."""
    last = (
        "I0603 08:10:00.100000 7 torch/distributed/elastic/agent/server/api.py:879] "
        "[default] worker group successfully finished. Waiting for other agents."
    )
    well = told(*steps(0, 4, 0), *CAUGHT, last)

    assert is_calm(well, judge_log(well))


PROSE = [
    "hint: on 'CUDA out of memory' take a smaller batch",
    "note: device-side assert triggered stands for a wrong label",
    "vendor docs: NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.",
    "dataset sample: 'Out of memory: Killed process 8 (java) total-vm:1kB'",
    (
        "slurmstepd: error: *** JOB 5 ON a CANCELLED AT x DUE TO TIME LIMIT *** "
        "(from last run)"
    ),
    "exit code 137 of the previous job was no surprise",
    "tests/test_gpu.py::test_xid[NVRM: Xid (PCI:0000:17:00): 79] PASSED",
]


@pytest.mark.parametrize("line", PROSE)
def test_who_only_speaks_of_failures_has_none(line):
    """Advice, documents, data, an earlier run: their words are no evidence."""
    assert answer(f"[rank0]: {line}", *REAL) == ("python_exception", (1,))


def test_a_program_that_a_rank_ran_is_not_the_rank():
    """Its ``CalledProcessError`` is an exception like any other."""
    text = "Command '['sox', 'in.wav']' died with <Signals.SIGKILL: 9>."
    rows = raised("[rank1]: ", f"subprocess.CalledProcessError: {text}")

    assert answer(*rows) == ("python_exception", (1,))


def test_a_rank_in_json_is_known():
    """A logger that prints objects tells the rank, and the exception beside it."""
    row = (
        '{"time": "2026-06-03T08:00:00Z", "rank": 5, "level": "error", "msg": "over", '
        '"exc_info": "Traceback (most recent call last):\\n  File \\"/app/f.py\\", '
        'line 2, in go\\nValueError: no"}'
    )

    assert answer(row) == ("python_exception", (5,))


def test_a_sorry_rank_names_its_first_exception():
    """What it raised while it cleaned up only met the others' end."""
    first = raised("[rank1]: ", "OSError: [Errno 28] No space left on device")
    last = "RuntimeError: [pair.cc:5] Connection closed by peer [10.1.1.1]"
    rows = [*first, *BETWEEN, *raised("[rank1]: ", last)]

    assert answer(*rows) == ("disk_full", (1,))


def test_what_steers_a_program_is_no_first_exception():
    """``Empty`` of a queue stands before many a lost connection."""
    first = raised("[rank1]: ", "_queue.Empty")
    last = "RuntimeError: [pair.cc:5] Connection closed by peer [10.1.1.1]"
    rows = [*first, *BETWEEN, *raised("[rank1]: ", last)]

    assert answer(*rows)[1] == ()


WORDS = [
    (
        "what():  [enforce fail at p.cc:4] op.preamble.length <= op.nbytes. 8 vs 4.",
        "collective_mismatch",
    ),
    ("NCCL WARN Mismatched collective detected near rank 7", "collective_mismatch"),
    (
        "b.cc:1 NCCL WARN Bootstrap Root : rank 2 of 4 ranks has already checked in",
        "nccl_network",
    ),
    ("ncclSocketInit: family 7 is neither AF_INET(2) nor AF_INET6(10)", "nccl_network"),
    (
        "NCCL INFO connect returned No route to host, retrying (9/9) after a sleep",
        "nccl_network",
    ),
    (
        "NCCL WARN Connect to fe80::1%2<77> failed : Network is unreachable",
        "nccl_network",
    ),
    (
        "RendezvousConnectionError: The connection to the C10d store has failed.",
        "store_lost",
    ),
    ("libgomp: Thread creation failed: Resource temporarily unavailable", "pids_limit"),
]


@pytest.mark.parametrize(("line", "cause"), WORDS)
def test_a_libraries_own_words_tell_the_cause_but_no_rank(line, cause):
    """A wrong set-up of the network, of the store or of the calls is nobody's alone."""
    assert answer(line) == (cause, ())


def test_a_try_that_is_not_the_last_one_is_no_failure():
    """NCCL tries to connect again and again, and tells of it as of news."""
    line = "NCCL INFO connect returned No route to host, retrying (3/9) after a sleep"

    assert answer(line)[0] == "unknown"


def test_an_actor_of_ray_that_is_gone_has_raised_nothing():
    """Its driver tells so; what ended the process is not in that line."""
    gone = "ray.exceptions.ActorDiedError: The actor died unexpectedly."
    verdict = judge_log(told(*raised("", gone)))

    assert (verdict.cause, verdict.certainty) == ("killed", "guess")


ENDS = [
    ("api.py: failed (exitcode: -6) local_rank: 1", ("abort", (1,))),
    ("ERROR failed (exitcode: -7) local_rank: 0 (pid:    api.py:6", ("sigbus", (0,))),
    (
        (
            "mpirun noticed that process rank 1 with PID xxxx on node yy exited on "
            "signal 9 (Killed)."
        ),
        ("killed", (1,)),
    ),
]


@pytest.mark.parametrize(("line", "expected"), ENDS)
def test_an_end_needs_no_pid(line, expected):
    """Columns cut it off, and people mask it."""
    assert answer(line) == expected


def test_several_tasks_of_srun_leave_an_unnamed_error_unnamed():
    """The launcher tells of every task that lost one: none is proven by it."""
    rows = [
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "srun: error: n2: task 4: Exited with exit code 1",
        "srun: error: n1: tasks 0-1: Exited with exit code 1",
    ]

    assert answer(*rows) == ("cuda_oom", ())


def test_a_process_that_is_taken_down_is_of_a_job():
    """A watchdog's line alone tells that something failed, though not what."""
    line = "[E ProcessGroupNCCL.cpp:4] we are taking the entire process down."
    said = told(line)

    assert not is_calm(said, judge_log(said))


def test_a_logged_exception_counts_where_its_rank_failed():
    """The launcher tells of that rank's end, whatever another one said later."""
    logged = ["[rank0]: ERROR:root:no data", *CAUGHT]
    end = AGENT.replace("-9", "1").replace("local_rank: 2", "local_rank: 0")

    assert answer(*steps(0, 4, 0, 2), *logged, end) == ("python_exception", (0,))


def test_a_rank_without_steps_is_carried_by_those_of_the_others():
    """Only rank 0 prints, and it cannot go on without rank 3 that had caught it."""
    caught = raised("[rank3]: ", "KeyError: 'rouge'")
    rows = [*steps(0, 4, 0), *caught, *steps(4, 9, 0), *REAL]

    assert answer(*rows) == ("python_exception", (1,))
    assert answer(*rows[:-4]) == ("python_exception", (3,))


def test_a_rank_that_others_trained_on_with_is_not_blamed_for_their_loss():
    """Between the caught exception and the loss, the others had come further."""
    lost = "torch.distributed.DistBackendError: NCCL error: ncclRemoteError"
    rows = [*steps(0, 4, 0, 1), *CAUGHT, *steps(4, 9, 0, 1)]

    assert answer(*rows, *raised("[rank1]: ", lost))[0] != "python_exception"


def test_a_buffers_rest_follows_the_last_words_too():
    """Steps had been seen before; the last ones are printed at the exit."""
    lost = "torch.distributed.DistBackendError: NCCL error: ncclRemoteError"
    rows = [*steps(0, 4, 0, 1), *CAUGHT, *steps(4, 9, 0), *raised("[rank1]: ", lost)]

    assert answer(*rows) == ("python_exception", (0,))


KERNEL = [
    "Out of memory: Killed process 81 (java) total-vm:1kB, anon-rss:1kB",
    "NVRM: Xid (PCI:0000:17:00): 79, pid=8, GPU has fallen off the bus.",
    "slurmstepd: error: *** STEP 5.0 ON a CANCELLED AT x DUE TO TIME LIMIT ***",
]


@pytest.mark.parametrize("line", KERNEL)
def test_a_rank_does_not_speak_for_the_kernel(line):
    """What torch marks as a rank's has not been printed by a kernel or a daemon."""
    assert answer(f"[rank0]: {line}")[0] == "unknown"
    assert answer(line)[0] != "unknown"
