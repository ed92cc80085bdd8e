"""Whose line it is, as all lines of an attempt together tell."""

from dsup.facts.logs.attempts import split
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.streams import lines


def read(text: str) -> list[LogLine]:
    rows = enumerate(text.strip("\n").split("\n"), 1)
    raw = [RawLine("job.log", i, row.encode()) for i, row in rows]
    return [line for batch in split(lines(raw)) for line in batch.lines]


def ranks(text: str) -> list[int | None]:
    return [line.place.rank for line in read(text)]


def test_a_label_is_the_rank_that_torch_says_behind_it():
    """With tee on several nodes local 2 is global 10, also without torch's prefix."""
    assert ranks("[default2]:loading\n[default2]:[rank10]: X: no") == [10, 10]


def test_a_label_of_two_nodes_is_no_rank():
    """Two nodes' tee laid into one log: the label is both ranks'."""
    text = "[default2]:[rank2]: X: no\n[default2]:[rank10]: X: no\n[default2]:bye"

    assert ranks(text) == [2, 10, None]


def test_srun_labels_above_torchrun_are_nodes():
    """One task is one agent there, with all ranks of its node."""
    found = read(
        "0: E0508 10:00:00.1 7 torch/distributed/elastic/api.py:8] failed\n"
        "1: epoch 1\n"
        "1: [rank9]: ValueError: no\n"
    )

    assert [line.place.rank for line in found] == [None, None, 9]
    assert found[1].place.node == "task 1"


def test_srun_labels_that_torch_contradicts_are_nodes():
    """Rank 9 speaks under task 1."""
    assert ranks("0: epoch 1\n1: epoch 1\n1: [rank9]: X: no") == [None, None, 9]


def test_srun_labels_alone_are_ranks():
    """One task a rank: what Slurm's users do without a launcher."""
    assert ranks("0: epoch 1\n1: epoch 1\n1: [rank1]: X: no") == [0, 1, 1]


def test_numbers_that_grow_are_a_viewers():
    """``[7001] `` numbers the lines of the log."""
    found = read("[7001] epoch 1\n[7002] epoch 2\n[7004] epoch 3")

    assert [line.place.rank for line in found] == [None, None, None]
    assert [line.text for line in found] == ["epoch 1", "epoch 2", "epoch 3"]


def test_numbers_that_come_again_are_ranks():
    """MPICH puts the rank there."""
    assert ranks("[0] epoch 1\n[1] epoch 1\n[0] epoch 2") == [0, 1, 0]


NCCL = """
n1:70:70 [0] NCCL INFO comm 0x7f rank 4 nranks 8 cudaDev 0 busId 1a - Init COMPLETE
n1:70:70 [0] NCCL INFO comm 0x8f rank 0 nranks 2 cudaDev 0 busId 1a - Init COMPLETE
n1:70:99 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error
n2:70:99 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error
"""


def test_nccl_says_which_rank_a_pid_is():
    """By the communicator with most ranks; another node's same pid is another."""
    assert ranks(NCCL) == [4, 4, 4, None]


SUMMARY = """
n1:412:500 [1] NCCL INFO init.cc:8 -> 5
[default1]:loading
[0]:
  time      : 2024-05-08_10:00:09
  host      : n1.cluster
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 412)
"""


def test_a_failure_summary_says_which_rank_a_pid_and_a_local_rank_are():
    """The report maps both; its host has a domain, NCCL's has none."""
    assert ranks(SUMMARY)[:2] == [5, 5]


def test_on_one_node_local_ranks_are_the_ranks():
    """The command says so."""
    command = "+ torchrun --standalone --nproc_per_node 8 train.py"

    assert ranks(f"{command}\n[default3]:loading") == [None, 3]
    assert ranks("+ torchrun --nproc_per_node 8 train.py\n[default3]:x") == [None, None]


def watchdog(rank: int, seq: int) -> str:
    told = f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, Timeout(ms)=1800000)"
    return f"[E P.cpp:4] [Rank {rank}] Watchdog caught collective timeout: {told}"


def test_a_bare_rank_of_many_groups_is_none():
    """One rank that waits for work of three sequences is rank 0 of several groups."""
    apart = "\n".join(watchdog(0, seq) for seq in (120, 117, 125))

    assert ranks(f"{apart}\n{watchdog(3, 99)}") == [None, None, None, None]


def test_a_bare_rank_is_global_else():
    """Most jobs have the one default group."""
    assert ranks(f"{watchdog(0, 3)}\n{watchdog(1, 3)}") == [0, 1]


def test_a_bare_rank_that_torch_contradicts_is_none():
    """``[rank9]:`` says which rank it is; the others' count inside their groups."""
    first = f"[rank9]:{watchdog(1, 3)}"

    assert ranks(f"{first}\n{watchdog(0, 3)}") == [9, None]


def test_the_year_comes_from_another_line():
    """A C++ logger prints no year; a summary, a scheduler or another logger does."""
    text = (
        "E0508 10:00:00.000000 7 a/api.py:8] failed\n  time      : 2024-05-08_10:00:00"
    )

    assert read(text)[0].at_s == 1715162400.0


def test_a_clock_without_a_date_goes_on_over_midnight():
    """``00:00:01`` comes after ``23:59:59``."""
    first, second = read("23:59:59 a\n00:00:01 b")

    assert first.at_s is not None
    assert second.at_s == first.at_s + 2
