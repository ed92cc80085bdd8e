"""Whole logs of other launchers, from the file to the verdict."""

import math

import pytest

from dsup.core.errors import DsupError
from dsup.postmortem import diagnose_logs

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
