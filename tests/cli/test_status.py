"""``dsup status`` of runs that cannot be asked: what their directories tell."""

import json
import os
import socket

import pytest

from dsup.facts.samples import Sample, encode
from dsup.linux import file_lock
from dsup_runtime import contract

VERDICT = {
    "attempt": 0,
    "cause": "host_oom",
    "first_ranks": [1],
    "first_nodes": ["gpu-a17"],
    "certainty": "proven",
    "at": "2001-09-09T01:46:43.000000Z",
    "summary": "Rank 1 was killed by the kernel.",
    "rule": "oom",
    "evidence": [],
    "victims": [],
    "ended_by_dsup": [0],
    "advice": None,
    "exit": {"code": 137, "origin": "rank"},
    "status": -9,
    "signature": "",
}


@pytest.fixture
def status(dsup):
    """Give ``status(*words)``: the document that is printed."""

    def call(*words):
        said = dsup("status", "--json", *words)
        assert said.code == 0, said.err
        return json.loads(said.out)

    return call


def test_a_run_that_has_ended_is_told_from_its_files(failed_run, status):
    """The same document, of its last moment: ends, verdict, exit code, times."""
    path = failed_run(attempt_0__verdict_json=json.dumps(VERDICT).encode())
    found = status()

    assert (found["run"], found["run_dir"]) == (path.name, str(path))
    assert (found["program"], found["node"]) == ("train", "gpu-a17")
    assert (found["live"], found["outcome"], found["stage"]) == (
        False,
        "failed",
        "over",
    )
    assert (found["run_s"], found["attempt_s"], found["alive"]) == (2.5, 2.5, 0)
    assert found["at"] == "2001-09-09T01:46:43.500000Z"
    assert found["exit"] == {"code": 137, "origin": "rank"}
    assert [(row["state"], row["status"], row["pid"]) for row in found["ranks"]] == [
        ("ended", -15, 100),
        ("ended", -9, 101),
    ]
    notes = [row["note"] for row in found["ranks"]]
    assert notes == ["ended by dsup", "killed by SIGKILL"]
    assert [one["summary"] for one in found["attempts"]] == [VERDICT["summary"]]
    assert found["restarts"] == {"used": 0, "limit": 0}
    unknown = ("step", "steps_per_s", "checkpoint", "memory", "pause_left_s", "stop")
    assert {found[name] for name in unknown} == {None}


@pytest.mark.parametrize("held", [False, True])
def test_an_agent_that_left_its_socket_behind(failed_run, status, held):
    """Killed, the run is lost; where a scribe still writes, it is said to run."""
    path = failed_run()
    journal = path / contract.JOURNAL_FILE
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:5]))
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left,
        journal.open() as f,
    ):
        os.chdir(path)
        left.bind(contract.CONTROL_SOCKET)
        if held:
            file_lock.share(f.fileno())
        found = status(str(path))

    assert found["outcome"] == ("running" if held else "lost")
    assert (found["exit"], found["stage"]) == (None, None)
    assert [row["state"] for row in found["ranks"]] == ["alive" if held else None] * 2


def test_a_page_that_was_kept_tells_steps_and_the_last_checkpoint(failed_run, status):
    """How far each rank was, and what it had saved, is in the run directory."""
    saved = int(2.5e9)
    slot = [0, 10**9, 10**9, 70, contract.PHASES.index("train"), 0, 0, 0, 0, 0, 0]
    words = [0] * contract.HEADER_WORDS + [*slot, 60, saved, 0, 0, 0] * 2
    page = b"".join(word.to_bytes(8, "little") for word in words)
    path = failed_run()
    (path / "attempt_0" / contract.HEARTBEATS_FILE).write_bytes(page)
    found = status(str(path))

    assert [(row["step"], row["phase"]) for row in found["ranks"]] == [
        (70, "train")
    ] * 2
    assert found["checkpoint"] == {"step": 60, "age_s": 1.0}


def test_samples_that_were_kept_tell_the_memory_of_the_end(failed_run, status):
    """What each rank had, how it grew, and what all had together; broken lines none."""
    samples = [
        Sample(at_s, {0: 5000, 1: kb}, {}, {}, 5000 + kb, 90_000)
        for at_s, kb in ((1.0, 40_000), (2.0, 50_000), (3.0, 60_000))
    ]
    kept = b"[]\n" + b"".join(map(encode, samples))
    found = status(str(failed_run(attempt_0__samples_jsonl=kept)))

    rss = [(row["rss_kb"], row["kb_per_min"]) for row in found["ranks"]]
    assert rss == [(5000, 0), (60_000, 600_000)]
    assert found["memory"] == {
        "used_kb": 65_000,
        "limit_kb": 90_000,
        "kb_per_min": 600_000,
    }


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("nosuch", "cannot find nosuch, because it is no file, and no run is kept in"),
        ("no/such", "because there is no such file or directory"),
        (".", "because it is no run directory"),
    ],
)
def test_what_is_no_run_is_said_so(dsup, home, word, reason):
    """One line, whichever word was wrong."""
    said = dsup("status", "--json", word)

    assert said.code == 2
    assert reason in said.err
