"""Whole logs of other launchers, from the file to the verdict."""

import math

import pytest

from dsup.core.errors import DsupError
from dsup.postmortem import NO_FAILURE, diagnose_logs

REPORT = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/app/train.py", line 88, in <module>
[rank2]:     main()
[rank2]:   File "/app/train.py", line 61, in main
[rank2]:     loss = step(batch)
[rank2]: ValueError: batch 17 has no labels
[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/train.py", line 62, in main
[rank0]:     dist.all_reduce(loss)
[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:77, remote \
process exited or there was a network error
W0702 10:41:07.120000 900 torch/distributed/elastic/multiprocessing/api.py:897] \
Sending process 911 closing signal SIGTERM
E0702 10:41:07.431000 900 torch/distributed/elastic/multiprocessing/api.py:869] \
failed (exitcode: 1) local_rank: 0 (pid: 910) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-07-02_10:41:07
  host      : gpu-a17
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 912)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-07-02_10:41:07
  host      : gpu-a17
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 910)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic
============================================================
"""

OOM = """\
Traceback (most recent call last):
  File "/app/train.py", line 40, in <module>
    out = model(x)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
total capacity of 79.15 GiB of which 312.00 MiB is free.
"""

LOST = """\
Traceback (most recent call last):
  File "/app/train.py", line 41, in <module>
    dist.barrier()
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection \
closed by peer [10.0.0.7]:31544
"""


@pytest.fixture
def write(tmp_path):
    """Write a log and return its path."""

    def written(text, name="job.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return written


def test_a_log_of_torchrun(write):
    """The traceback of rank 2 stands in it, though the summary names rank 0."""
    path = write(REPORT)
    told = diagnose_logs([path])

    (finding,) = told.findings
    verdict = finding.verdict
    assert (verdict.cause, verdict.first_ranks) == ("python_exception", (2,))
    assert verdict.summary == (
        "Rank 2 raised ValueError: batch 17 has no labels (train.py:61)."
    )
    assert (verdict.evidence[0].file, verdict.evidence[0].line) == (path, 6)
    assert [victim.rank for victim in verdict.victims] == [0]
    assert finding.launcher == "torchrun"
    assert finding.nodes == ("gpu-a17",)
    assert told.bytes_read == len(REPORT)
    assert not told.remarks


def test_a_log_for_each_rank(tmp_path, write):
    """Files of one attempt, named by their ranks, are one finding."""
    write(LOST, "attempt_0/0/stderr.log")
    write(OOM, "attempt_0/1/stderr.log")
    write(LOST, "attempt_0/2/stderr.log")

    (finding,) = diagnose_logs([str(tmp_path)]).findings
    verdict = finding.verdict
    assert (verdict.cause, verdict.first_ranks) == ("cuda_oom", (1,))
    assert [victim.rank for victim in verdict.victims] == [0, 2]
    assert verdict.evidence[0].file.endswith("attempt_0/1/stderr.log")


def test_a_log_of_two_attempts(write):
    """Each life of the group has a verdict of its own, in the order of the log."""
    again = (
        "I0702 10:41:08.000000 900 torch/distributed/elastic/agent/server/api.py:924] "
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
        "I0702 10:41:09.000000 900 torch/distributed/elastic/agent/server/api.py:525] "
        "[default] Rendezvous complete for workers. Result:\n  restart_count=1\n"
    )
    second = OOM.replace("\n", "\n[rank1]: ").removesuffix("[rank1]: ")
    first = REPORT.partition("W0702")[0]
    told = diagnose_logs([write(f"{first}{again}[rank1]: {second}")])

    answers = [(f.verdict.cause, f.verdict.first_ranks) for f in told.findings]
    assert answers == [("python_exception", (2,)), ("cuda_oom", (1,))]
    assert [f.verdict.attempt for f in told.findings] == [0, 1]


def test_a_log_that_says_nothing(write):
    """There is a verdict, and it is unknown."""
    (finding,) = diagnose_logs([write("epoch 1\nepoch 2\n")]).findings

    assert finding.verdict.cause == "unknown"
    assert finding.verdict.first_ranks == ()
    assert math.isnan(finding.verdict.at_s)
    assert finding.spans == ()


def test_times_without_a_date_are_none(write):
    """A clock without a year is no time of the day that a reader could look up."""
    line = "[rank1]:[E702 10:41:07.120 ProcessGroupNCCL.cpp:1895] [PG ID 0 Rank 1] "
    text = "Process group watchdog thread terminated with exception: CUDA error: "
    (finding,) = diagnose_logs([write(f"{line}{text}unknown error\n")]).findings

    assert finding.verdict.cause == "cuda_error"
    assert math.isnan(finding.verdict.at_s)


def test_lines_with_dates_make_spans(write):
    """Each rank's first and last dated line, for a timeline."""
    text = (
        "2026-07-02T10:00:00Z [rank1]: step 1\n2026-07-02T10:05:00Z [rank1]: step 2\n"
    )
    (finding,) = diagnose_logs([write(text)]).findings

    assert [(rank, last - first) for rank, first, last in finding.spans] == [(1, 300.0)]


def test_a_log_that_forges_a_report(write):
    """Terminal escapes of a log reach no verdict."""
    text = (
        "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: \x1b[2Jok\n"
    )
    (finding,) = diagnose_logs([write(text)]).findings

    shown = [finding.verdict.summary, *(e.text for e in finding.verdict.evidence)]
    assert all(text.isprintable() for text in shown)


@pytest.mark.parametrize("text", [b"", b"\x7fELF\x02\x01\x01" + bytes(4000)])
def test_nothing_that_could_be_read(write, text):
    """A file that is no log is refused with the reason."""
    with pytest.raises(DsupError, match=r"cannot diagnose these logs: .*because"):
        diagnose_logs([write(text)])


def test_a_log_beside_one_that_cannot_be_read(write):
    """What could be read is judged; what could not is said."""
    told = diagnose_logs([write(REPORT), write(b"", "empty.log")])

    assert told.findings[0].verdict.first_ranks == (2,)
    assert any("empty.log" in remark for remark in told.remarks)


def test_a_path_that_is_not_there(tmp_path):
    """It is named, and why it cannot be read."""
    with pytest.raises(DsupError, match="no such file"):
        diagnose_logs([str(tmp_path / "gone.log")])


@pytest.mark.parametrize(
    "text",
    [
        "W0702 10:41:07.120000 900 torch/distributed/run.py:874] **\ndone 1\ndone 0\n",
        "import torch\nif rank == 1: raise ValueError('loss is nan')\n",
        '{"title": "node", "world_size": "error"}\n',
        "[rank0]: step 9\n[rank0]: training finished\n",
    ],
    ids=["torchrun", "a script", "a document", "a training that ended"],
)
def test_a_log_of_no_failure(write, text):
    """There is no verdict on what did not fail, and that is said."""
    told = diagnose_logs([write(text)])

    assert told.findings == ()
    assert told.remarks == (NO_FAILURE,)


@pytest.mark.parametrize("text", ["[rank0]: step 9\n", "[rank0]: lost the data set\n"])
def test_a_log_that_may_tell_of_one(write, text):
    """It breaks off between two steps, or has a word that failures are told with."""
    (finding,) = diagnose_logs([write(text)]).findings

    assert finding.verdict.cause == "unknown"


def test_a_restart_that_is_not_told_to_fail(write):
    """The attempt that failed has a finding, the other one a remark."""
    again = (
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group"
    )
    told = diagnose_logs(
        [write(f"{OOM}{again}\nrank 0 ready\nrank 1 ready\nrank 0 done\n")]
    )

    assert [one.verdict.attempt for one in told.findings] == [0]
    assert told.remarks == (f"attempt 1: {NO_FAILURE}",)


@pytest.mark.parametrize(
    ("stamp", "zoned"),
    [("2026-07-02T10:00:00Z", True), ("2026-07-02 10:00:00,120", False)],
)
def test_times_with_and_without_a_zone(write, stamp, zoned):
    """A clock on the wall of an unknown place is not called UTC."""
    text = "".join(
        f"{stamp} [rank1]: {line}\n"
        for line in (
            "Traceback (most recent call last):",
            '  File "/app/t.py", line 7, in <module>',
            "ValueError: no labels",
        )
    )
    (finding,) = diagnose_logs([write(text)]).findings

    assert math.isfinite(finding.verdict.at_s)
    assert finding.zoned is zoned


def test_the_layout_of_torchrun_tells_who_started_the_ranks(tmp_path, write):
    """A directory of a made-up name above its attempts; dsup's begins with a time."""
    write(LOST, "logs/none_x1y2z3ab/attempt_0/0/stderr.log")
    write("", "logs/none_x1y2z3ab/attempt_0/1/stderr.log")
    write(LOST, "runs/20260702T100000Z-train-a1b2c3_gpu-a17b/attempt_0/0/stderr.log")
    theirs = diagnose_logs([str(tmp_path / "logs")])
    own = diagnose_logs([str(tmp_path / "runs")])

    assert (theirs.launcher, own.launcher) == ("torchrun", "")
    (remark,) = theirs.remarks
    assert remark.startswith("nothing was written to ")
    assert remark.endswith("attempt_0/1/stderr.log")


def test_the_words_of_a_library_follow_the_place_in_its_code(write):
    """What gloo says comes before where in gloo that is; the script's line is told."""
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/g.py", line 7, in <module>\n'
        "[rank0]:     dist.all_reduce(t)\n"
        "[rank0]: RuntimeError: [/src/gloo/transport/tcp/unbound_buffer.cc:78] Timed "
        "out waiting 6000ms for recv operation to complete\n"
    )
    (finding,) = diagnose_logs([write(text)]).findings

    assert finding.verdict.evidence[0].text == (
        "RuntimeError: Timed out waiting 6000ms for recv operation to complete (g.py:7)"
    )


def test_what_dsup_printed_is_quoted(write):
    """Its verdict, its run directory; a rank may have printed them too: no proof."""
    text = (
        "dsup: 2 ranks of train; logs in /runs/20260702T100000Z-train-a1b2c3_n7\n"
        "━━ dsup ━ attempt 0 failed ━━━━━━━━ 10:00:03 UTC ━━\n"
        "Rank 1 was killed by the kernel's OOM killer.\n\n"
        " cause    host_oom, proven\n first    rank 1 on n7 (local 1), 10:00:03.2\n"
        "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━\n"
    )
    (finding,) = diagnose_logs([write(text)]).findings
    verdict = finding.verdict

    assert (verdict.cause, verdict.first_ranks) == ("host_oom", (1,))
    assert verdict.certainty == "likely"
    assert verdict.summary.startswith(
        "The log says, in dsup's words: Rank 1 was killed"
    )
    assert finding.launcher == "dsup"
    assert finding.directory == "/runs/20260702T100000Z-train-a1b2c3_n7"


def test_a_node_has_the_name_that_the_summary_gives_it(tmp_path):
    """A file's name counts the nodes; the failure summary knows the host."""
    path = tmp_path / "node3.log"
    path.write_text(REPORT)

    (finding,) = diagnose_logs([str(path)]).findings
    assert finding.nodes == ("gpu-a17",)
