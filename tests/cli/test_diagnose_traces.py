"""``dsup diagnose`` on dumps of flight recorders, beside logs or alone."""

import json
import pickle

import pytest
from click.testing import CliRunner

from dsup.cli.main import cli

TIMED_OUT = (
    "[rank0]:[E109 10:00:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before "
    "timing out.\n"
)


def write(directory, rank, last, state, op="all_reduce"):
    """Write the dump of a rank that has called so many collectives."""
    entries = [
        {
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": number,
            "profiling_name": f"nccl:{op if number == last else 'all_reduce'}",
            "time_created_ns": 1_700_000_000_000_000_000 + number,
            "state": state if number == last else "completed",
        }
        for number in range(1, last + 1)
    ]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    told = {"version": "2.10", "entries": entries, "pg_config": config}
    directory.mkdir(exist_ok=True)
    (directory / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(told, 2))


@pytest.fixture
def stuck(tmp_path):
    """Give a directory with the dumps of three ranks, of which rank 2 did not come."""
    for rank, last in enumerate((9, 9, 8)):
        write(tmp_path, rank, last, "completed" if rank == 2 else "scheduled")
    return tmp_path


def diagnosed(*paths):
    """Return the verdicts and remarks about some paths."""
    done = CliRunner().invoke(cli, ["diagnose", "--json", *map(str, paths)])
    told = json.loads(done.stdout)
    return told["verdicts"], told["remarks"]


def test_a_directory_of_dumps(stuck):
    """Who did not come, which collective, and since when the others wait."""
    (verdict,), remarks = diagnosed(stuck)

    assert verdict["summary"] == (
        "Rank 2 likely hung before all_reduce #9; the other 2 wait for it there."
    )
    assert (verdict["cause"], verdict["first_ranks"]) == ("hang", [2])
    assert verdict["at"].startswith("2023-11-14T22:13:20")
    assert verdict["evidence"][0]["text"] == (
        "rank 2 finished #8; ranks 0 and 1 are inside all_reduce #9"
    )
    assert verdict["evidence"][0]["file"].endswith("nccl_trace_rank_2")
    assert remarks == []


def test_dumps_that_are_named(stuck):
    """As the shell spells out a pattern."""
    (verdict,), _ = diagnosed(*sorted(stuck.iterdir()))

    assert verdict["first_ranks"] == [2]


def test_dumps_of_two_nodes(tmp_path):
    """Directories that have no rank in common belong together."""
    write(tmp_path / "a", 0, 9, "scheduled")
    write(tmp_path / "b", 1, 9, "scheduled", op="broadcast")
    write(tmp_path / "b", 2, 9, "scheduled")
    (verdict,), _ = diagnosed(tmp_path)

    assert (verdict["cause"], verdict["certainty"]) == ("collective_mismatch", "proven")
    assert (
        "Rank 1 called broadcast as #9 where the other 2 called all_reduce"
        in (verdict["summary"])
    )


def test_a_log_of_victims_beside_them(stuck):
    """The log has who timed out; the dumps have who did not come."""
    (stuck / "rank0.log").write_text(TIMED_OUT)
    (verdict,), _ = diagnosed(stuck)

    assert verdict["rule"] == "called_out_of_order"
    assert verdict["first_ranks"] == [2]
    assert any("Watchdog" in line["text"] for line in verdict["evidence"])


def test_a_cause_that_a_log_knows_stays(stuck):
    """Why rank 2 did not come is said by itself; the numbers stand behind it."""
    (stuck / "rank2.log").write_text(
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "train.py", line 7, in <module>\n'
        "[rank2]: ValueError: batch 812 has no labels\n"
    )
    (verdict,), _ = diagnosed(stuck)

    assert verdict["cause"] == "python_exception"
    assert verdict["evidence"][-2]["source"] == "order"


def test_a_dump_that_is_cut_is_told_of(stuck):
    """The rest is read without it."""
    dump = stuck / "nccl_trace_rank_1"
    dump.write_bytes(dump.read_bytes()[:100])
    (verdict,), remarks = diagnosed(stuck)

    assert verdict["first_ranks"] == [2]
    assert "rank 1 gave no trace" in verdict["evidence"][0]["text"]
    (remark,) = remarks
    assert "nccl_trace_rank_1 as a flight recorder's dump" in remark


def test_a_link_is_not_followed_and_no_program_is_run(stuck):
    """Whoever wrote the directory may be anybody."""
    (stuck / "nccl_trace_rank_0").unlink()
    (stuck / "nccl_trace_rank_0").symlink_to(stuck / "nccl_trace_rank_1")
    made = stuck / "made"
    (stuck / "nccl_trace_rank_3").write_bytes(
        b"cos\nsystem\n(S'touch %s'\ntR." % str(made).encode()
    )
    _, remarks = diagnosed(stuck)

    assert not made.exists()
    assert "nccl_trace_rank_3" in remarks[0]
