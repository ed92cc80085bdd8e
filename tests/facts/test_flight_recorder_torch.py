"""What is made of flight recorders' dumps, beside what torch's own analyser makes."""

import pickle
import re
import subprocess
import sys

import pytest

from dsup.attribution.collectives import stuck
from dsup.facts.flight_recorder import of_dump

pytestmark = [pytest.mark.slow, pytest.mark.torch]

RANKS = range(3)
ANALYSER = "torch.distributed.flight_recorder.fr_trace"


def entry(number, op, state, sides=(4,)):
    """Return an entry, as NCCL's process group records it."""
    return {
        "frames": [{"name": "step", "filename": "/srv/train.py", "line": 52}],
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [list(sides)],
        "input_dtypes": ["Float"],
        "output_sizes": [list(sides)],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def dump(*entries):
    """Return a dump with these entries."""
    ranks = str(list(RANKS))
    return {
        "version": "2.10",
        "entries": list(entries),
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {},
        "comm_lib_version": "2.29.3",
    }


DONE = entry(1, "all_reduce", "completed")
WAITS = entry(2, "all_reduce", "scheduled")
SCENES = {
    "absent": (dump(DONE, WAITS), dump(DONE, WAITS), dump(DONE)),
    "function": (
        *(dump(DONE, WAITS), dump(DONE, entry(2, "broadcast", "scheduled"))),
        dump(DONE, WAITS),
    ),
    "size": (
        *(dump(DONE, WAITS), dump(DONE, entry(2, "all_reduce", "scheduled", (8,)))),
        dump(DONE, WAITS),
    ),
}


EACH = f"""
import logging, sys
from {ANALYSER} import main
for directory in sys.argv[1:]:
    main([directory, "-p", "nccl_trace_rank_"])
    logging.getLogger().handlers[:] = []
    print("END OF SCENE", flush=True)
"""


def named_by_torch(said):
    """Return who is missing, or has called something else, in torch's words."""
    missing = re.search(r"missing ranks: \{([\d, ]+)\}", said)
    odd = {int(rank) for rank in re.findall(r"Culprit rank (\d+)", said)}
    return {int(n) for n in missing[1].split(",")} if missing else odd


def test_both_name_the_same_rank(tmp_path):
    """Torch's unpickles what workers wrote, which dsup does not."""
    ours = []
    for scene, dumps in SCENES.items():
        (tmp_path / scene).mkdir()
        raw = [pickle.dumps(dump, 2) for dump in dumps]
        for rank in RANKS:
            (tmp_path / scene / f"nccl_trace_rank_{rank}").write_bytes(raw[rank])
        told = {rank: of_dump(raw[rank], rank) for rank in RANKS}
        traces = {rank: trace for rank, trace in told.items() if trace}
        ours.append(set(stuck(traces, len(RANKS)).ranks))
    done = subprocess.run(
        [sys.executable, "-c", EACH, *(str(tmp_path / scene) for scene in SCENES)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    theirs = [named_by_torch(said) for said in done.stdout.split("END OF SCENE")[:-1]]

    assert ours == theirs == [{2}, {1}, {1}], done.stdout
