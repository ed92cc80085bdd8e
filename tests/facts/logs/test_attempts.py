"""Attempts and runs: where a log is cut, and which files belong together."""

from dsup.facts.logs.attempts import Batch, split
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.streams import lines


def batches(**files: str) -> list[Batch]:
    raw = [
        RawLine(name.replace("__", "/"), i, row.encode())
        for name, text in files.items()
        for i, row in enumerate(text.strip("\n").split("\n"), 1)
    ]
    return list(split(lines(raw)))


def cut(**files: str) -> list[tuple[int, list[str]]]:
    return [(b.number, [line.text for line in b.lines]) for b in batches(**files)]


def test_a_log_of_one_run_is_one_attempt():
    """Its banners and its own failure cut nothing."""
    log = (
        "+ torchrun train.py\nepoch 1\na.ChildFailedError: \nsrun: error: n1: task 0: x"
    )

    assert [number for number, _ in cut(job=log)] == [0]


RESTARTED = """
epoch 1
[ERROR] 2024-05-08 10:00:00,177 api: failed (exitcode: 1) local_rank: 1 (pid: 77)
[INFO] 2024-05-08 10:00:00,178 api: FAILED. 3/3 left; will restart worker group
[INFO] 2024-05-08 10:00:00,179 api: [default] Rendezvous complete for workers. Result:
  restart_count=1
epoch 2
"""


def test_a_restart_by_the_agent_begins_an_attempt():
    """The line that announces it belongs to the one that failed."""
    first, second = cut(job=RESTARTED)

    assert first[0] == 0
    assert first[1][-1].endswith("will restart worker group")
    assert second[0] == 1
    assert second[1][-1] == "epoch 2"


def test_restart_counts_alone_cut_too():
    """A log at the level WARNING lacks the announcement."""
    log = "  restart_count=0\nepoch\na.ChildFailedError:\n  restart_count=1\nepoch"

    assert [number for number, _ in cut(job=log)] == [0, 1]


def test_attempts_that_were_cut_off_keep_their_numbers():
    """The log begins in the third."""
    assert [n for n, _ in cut(job="  restart_count=2\na\n  restart_count=3\nb")] == [
        2,
        3,
    ]


def test_a_second_command_after_a_failure_is_a_run():
    """A shell loop, or a user who tries again."""
    run = "+ torchrun train.py\nepoch 1\na.ChildFailedError: \nx FAILED"

    assert [number for number, _ in cut(job=f"{run}\n{run}")] == [0, 1]


def test_a_command_before_any_failure_is_no_second_run():
    """Each of two nodes prints its own."""
    assert len(cut(job="+ torchrun train.py\n+ torchrun train.py\nepoch 1")) == 1


def test_a_banner_that_came_late_is_no_run():
    """Buffered until the launcher ended."""
    told = "Setting OMP_NUM_THREADS environment variable for each process to be 1"
    late = f"***\n{told}\n***"

    assert len(cut(job=f"epoch 1\nsubprocess.CalledProcessError: x\n{late}")) == 1


SPAWNED = (
    "[2024-05-08 10:00:00,167] [INFO] [launch.py:9:main] process {pid} spawned with "
    "command: ['python', '-u', 'train.py', '--local_rank={local}']"
)


def test_a_worker_spawned_again_after_a_failure_is_a_run():
    """DeepSpeed tells each worker's start; those of one run differ in local rank."""
    run = "\n".join(SPAWNED.format(pid=70 + i, local=i) for i in range(2))
    end = "[2024-05-08 10:00:00,167] [ERROR] [launch.py:9:h] Killing subprocess 70\n"

    assert len(cut(job=f"{run}\n{end}{run}\nepoch")) == 2


def test_files_of_one_attempt_are_laid_together():
    """Two nodes' logs, or each rank's: one attempt, not one for each file."""
    assert cut(a="epoch 1", b="epoch 1") == [(0, ["epoch 1", "epoch 1"])]


SILENT = """
epoch 1
W0508 10:00:00.100000 60 torch/distributed/x/api.py:1] Sending process 71 closing signal
E0508 10:00:00.177000 60 torch/distributed/x/api.py:1] failed (exitcode: 1) \
local_rank: 0 (pid: 70) of binary
epoch 1 again
W0508 10:00:04.100000 {agent} torch/distributed/x/api.py:1] Sending process {first} \
closing signal
E0508 10:00:04.177000 {agent} torch/distributed/x/api.py:1] failed (exitcode: 1) \
local_rank: 1 (pid: {second}) of binary
"""


def test_an_agent_that_restarts_without_a_word():
    """Below ``INFO`` it tells of each failure alone: the second is a new attempt's."""
    first, second = cut(job=SILENT.format(agent=60, first=80, second=81))

    assert first[1][-1].startswith("failed (exitcode: 1) local_rank: 0")
    assert second[1][0] == "epoch 1 again"
    assert [first[0], second[0]] == [0, 1]


def test_two_agents_that_fail_are_two_nodes_of_one_attempt():
    """Another agent's pid; or, in a container, one pid and workers of the same age."""
    assert len(cut(job=SILENT.format(agent=61, first=80, second=81))) == 1
    assert len(cut(job=SILENT.format(agent=60, first=70, second=71))) == 1


def test_files_are_laid_together_attempt_by_attempt():
    """The second attempt of one node goes with that of the other."""
    first, second = batches(a=RESTARTED, b=RESTARTED)

    assert {line.file for line in first.lines} == {"a", "b"}
    assert {line.file for line in second.lines} == {"a", "b"}


def test_the_directory_of_an_attempt_tells_its_number():
    """With the ``--log-dir`` of torchrun."""
    found = cut(r__attempt_0__1__err="old", r__attempt_2__1__err="new")

    assert found == [(0, ["old"]), (2, ["new"])]


def test_lines_of_several_files_are_merged_in_time():
    """All of them tell it; lines without a stamp stay behind those before them."""
    merged = batches(
        a="2024-05-08 10:00:00 a1\nmore\n2024-05-08 10:00:04 a2",
        b="2024-05-08 10:00:02 b1",
    )

    assert [line.text for line in merged[0].lines] == ["a1", "more", "b1", "a2"]
    assert [line.order for line in merged[0].lines] == [0, 1, 2, 3]


def test_runs_that_lie_apart_are_not_laid_together():
    """Yesterday's log and today's, each with its end, in one folder."""
    log = "2024-05-0{} 10:00:00 epoch\na.ChildFailedError: \nx FAILED"

    assert len(batches(a=log.format(7), b=log.format(8))) == 2
    assert len(batches(a=log.format(7), b=log.format(7))) == 1


def test_no_lines_are_no_attempt():
    """An empty log."""
    assert list(split([])) == []
