"""Prefixes: who wrote a line, when, and by which logger, per launcher."""

import pytest

from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.streams import lines


def read(*texts: str, file: str = "job.log") -> list[LogLine]:
    raw = (RawLine(file, i, text.encode()) for i, text in enumerate(texts, 1))
    return list(lines(raw))


def one(text: str) -> LogLine:
    [line] = read(text)
    return line


TORCH = [
    ("[rank5]: ValueError: no", 5),
    ("[rank5]:   File ", 5),
    ("[rank17]:[E822 10:00:01.5 ProcessGroupNCCL.cpp:12] gone", 17),
    ("[rank5]:W0101 11:20:46.301000 188 site-packages/torch/x.py:25] odd", 5),
    ("[rank: 5] Received SIGTERM: 15", 5),
    ("[default1]:[rank5]: ValueError: no", 5),
]


@pytest.mark.parametrize(("text", "rank"), TORCH)
def test_torchs_own_prefix_is_the_global_rank(text, rank):
    """``[rank5]: ``, or before a logger's prefix, is what torch itself says."""
    line = one(text)

    assert rank == line.place.rank
    assert line.ranked


def test_the_indentation_behind_a_prefix_is_kept():
    """A frame stays a frame."""
    assert one('[rank0]:   File "a.py", line 1').text == '  File "a.py", line 1'
    assert one('[default0]:  File "a.py", line 1').text == '  File "a.py", line 1'
    assert one('[1,0]<stderr>:  File "a.py", line 1').text == '  File "a.py", line 1'


PLACES = [
    ("[default3]:loss 2.5", Place(local_rank=3, label="default3")),
    ("[trainer3]:loss 2.5", Place(local_rank=3, label="trainer3")),
    ("[1,3]<stderr>:loss 2.5", Place(rank=3, label="1,3")),
    ("[3]<stdout>:loss 2.5", Place(rank=3, label="3")),
    ("[3]:loss 2.5", Place(local_rank=3, label="[3]:")),
    ("[gpu07:3]:loss 2.5", Place(local_rank=3, node="gpu07", label="gpu07:3")),
    ("[pod/job-worker-3/torch] loss 2.5", Place(node="job-worker-3/torch")),
    ("(Worker pid=77, ip=10.0.0.5) loss 2.5", Place(node="10.0.0.5", pid=77)),
    ("(raylet) loss 2.5", Place(label="raylet")),
    ("gpu07:77:81 [3] NCCL INFO x", Place(node="gpu07", pid=77)),
    ("[gpu07:77] *** Process received signal ***", Place(node="gpu07", pid=77)),
    ("[gpu07:77  :3:81] Caught signal 7 (Bus error)", Place(node="gpu07", pid=77)),
    ("(PID:77, Device:3, RankID:11) ERR02200 DIST", Place(rank=11, pid=77)),
    ("[Rank 3] Watchdog caught", Place(rank=3)),
    ("[PG 0 Rank 3] Timeout at NCCL work", Place(rank=3)),
    ("[PG ID 0 PG GUID 0(default_pg) Rank 3] Timeout", Place(rank=3)),
    ("[PG 2 Rank 3] Timeout at NCCL work", Place()),
    ("[PG ID 4 PG GUID 31(mesh_tp) Rank 3] Timeout", Place()),
    ("  what():  [Rank 3] Watchdog caught", Place(rank=3)),
    ("rank 3: epoch 1", Place(rank=3)),
    ("[RANK 3] epoch 1", Place(rank=3)),
    ("[GPU3] Epoch 1", Place(local_rank=3)),
    ("Rank 3 crashed with exit code -7.", Place()),
    ("rank 3 has 240 params", Place()),
]


@pytest.mark.parametrize(("text", "place"), PLACES)
def test_a_prefix_tells_the_place(text, place):
    """Each launcher's own form; NCCL's ``[3]`` is a device and no rank."""
    found = one(text).place

    assert place.rank == found.rank
    assert place.local_rank == found.local_rank
    assert place.node == found.node
    assert place.pid == found.pid
    assert not place.label or place.label == found.label


LOGGERS = [
    ("WARNING:torch.distributed.run:x", "W", "torch.distributed.run", "x"),
    ("ERROR: torch.distributed.api:x", "E", "torch.distributed.api", "x"),
    (
        "[2024-05-08 08:47:31,261] torch.elastic.api: [ERROR] x",
        "E",
        "torch.elastic.api",
        "x",
    ),
    (
        "[2024-05-08 08:47:31,261] [INFO] [launch.py:4:main] x",
        "I",
        "launch.py:4:main",
        "x",
    ),
    ("[2024-05-08 08:47:31,261][a.builder][WARNING] - x", "W", "a.builder", "x"),
    ("[ERROR] 2024-05-08 08:47:31,261 api: failed (x", "E", "api", "failed (x"),
    ("2024-05-08 08:47:31,261 - mmdet - INFO - x", "I", "mmdet", "x"),
    ("2024-05-08 08:47:31.261 | ERROR    | a:<module>:2 - x", "E", "a:<module>:2", "x"),
    (
        "E0325 20:57:27.620000 26 site-packages/t/api.py:8] x",
        "E",
        "site-packages/t/api.py:8",
        "x",
    ),
    ("E0909 14:03:50.1 140470868341592 torch/run.py:7] x", "E", "torch/run.py:7", "x"),
    ("[E910 09:55:46.99 Process.cpp:45] x", "E", "Process.cpp:45", "x"),
    ("[E1118 09:55:46.99 Process.cpp:45] x", "E", "Process.cpp:45", "x"),
    ("[E Process.cpp:45] x", "E", "Process.cpp:45", "x"),
    (" Process.cpp:45] x", "", "Process.cpp:45", "x"),
    ("[16:25:34] WARNING  x    api.py:7", "W", "api.py:7", "x"),
    ("           WARNING  x    api.py:7", "W", "api.py:7", "x"),
    ("submitit WARNING (2024-05-08 08:47:31,118) - x", "W", "submitit", "x"),
    ("[INFO|trainer.py:29] 2024-05-08 08:47:31,430 >> x", "I", "trainer.py:29", "x"),
    ("2024-05-08 08:47:31,4: rank0[19][MainThread]: INFO: a.b: x", "I", "a.b", "x"),
    ("2024-05-08 08:47:31,4\tWARNING worker.py:18 -- x", "W", "worker.py:18", "x"),
    ("stderr: WARNING:torch.api:x", "W", "torch.api", "x"),
]


@pytest.mark.parametrize(("text", "level", "logger", "rest"), LOGGERS)
def test_a_loggers_prefix_is_taken_off(text, level, logger, rest):
    """Level and logger are told apart from the message, in all styles."""
    line = one(text)

    assert (level, logger, rest) == (line.level, line.logger, line.text)


TIMES = [
    ("2024-05-08T08:47:31Z x", 1715158051.0),
    ("2024-05-08T10:47:31.5+02:00 x", 1715158051.5),
    ("2024-05-08T01:47:31-0700 stderr F x", 1715158051.0),
    ("[2024-05-08T08:47:31.5Z] x", 1715158051.5),
    ("2024/05/08 08:47:31 x", 1715158051.0),
    ("[05/08/24 08:47:31] INFO  x", 1715158051.0),
    ("Wed May  8 08:47:31 2024 x", 1715158051.0),
    ("08-May-24 08:47:31 x", 1715158051.0),
    ("2024-05-08T08:47:31Z | x", 1715158051.0),
    ("| 2024-05-08T08:47:31Z | x", 1715158051.0),
]


@pytest.mark.parametrize(("text", "at_s"), TIMES)
def test_time_stamps_of_all_styles_are_read(text, at_s):
    """Those of collectors, viewers and loggers, with and without a zone."""
    line = one(text)

    assert at_s == line.at_s
    assert line.text == "x"


def test_a_date_that_is_none_stops_nothing():
    """Month 13 is text."""
    line = one("2024-13-08T08:47:31Z x")

    assert line.at_s is None
    assert line.text == "2024-13-08T08:47:31Z x"


def test_the_inner_time_is_put_on_the_collectors_clock():
    """A worker on local time behind a collector on UTC: their quarter hours differ."""
    line = one("2024-05-08T08:47:31.2Z E0508 10:47:31.000000 26 a/api.py:8] x")

    assert line.at_s == 1715158051.0


def test_the_second_of_two_prefixes_wrote_the_line():
    """One rank had its prefix printed and then nothing: the next wrote the text."""
    line = one("[1,4]<stderr>:[1,6]<stderr>:ERROR in worker")

    assert line.place == Place(rank=6, label="1,6")
    assert line.text == "ERROR in worker"


def test_tee_with_a_role_named_rank_labels_local_ranks():
    """``[rank1]:`` without a blank of its own is torchrun's label."""
    first, second, frame = read(
        "+ torchrun --nnodes 2 --role rank --tee 3 train.py",
        "[rank1]:loading",
        "[rank1]:  File",
    )

    assert first.place == Place()
    assert second.place == Place(local_rank=1, label="rank1")
    assert frame.text == "  File"


def test_the_inner_of_two_rank_prefixes_is_torchs():
    """Role ``rank`` with tee, then torch's own."""
    line = one("[rank1]:[rank9]: ValueError: no")

    assert line.place == Place(rank=9, local_rank=1, label="rank1")
    assert line.text == "ValueError: no"


def test_srun_labels_count_where_most_lines_have_them():
    """``3: `` alone is a program's own text."""
    labelled = read("0: start", "03: start", "3: ready")
    alone = read("3: ready", "go", "stop", "wait")

    assert [line.place.rank for line in labelled] == [0, 3, 3]
    assert labelled[2].text == "ready"
    assert alone[0].place == Place()
    assert alone[0].text == "3: ready"


def test_a_node_before_a_known_line_is_pdshs():
    """Of DeepSpeed's launches of several nodes; an exception's name is no node."""
    first, second, third = read(
        "gpu-2: Traceback (most recent call last):", "gpu-2: why", "Wrong2: no"
    )

    assert first.place == second.place == Place(node="gpu-2", label="gpu-2")
    assert second.text == "why"
    assert third.text == "Wrong2: no"


FILES = [
    ("logs/rank_3.log", Place(rank=3)),
    ("out/rank3/stderr", Place(rank=3)),
    ("2024_rank3.txt", Place(rank=3)),
    ("node1_rank12.log", Place(rank=12, node="node-1")),
    ("local_rank_3.log", Place(local_rank=3, label="local_rank_3.log")),
    ("r/none_x/attempt_0/3/stderr.log", Place(local_rank=3, label="attempt_0/3")),
    ("slurm-4711-3.out", Place(rank=3, label="3:")),
    ("4711_3_log.err", Place(rank=3, label="3:")),
    ("slurm-4711.out", Place()),
    ("worker-0-logs.txt", Place(node="worker-0")),
    ("oom-on-rank-3.log", Place()),
    ("illegal-access-rank3.log", Place()),
    ("3.log", Place()),
]


@pytest.mark.parametrize(("file", "place"), FILES)
def test_the_name_of_a_file_tells_the_place(file, place):
    """A name that tells of a failure and not of a writer is not one."""
    [line] = read("hello", file=file)

    assert place == line.place
