"""Metrics: what the status document says, in Prometheus' units; nothing is made up."""

import copy

import pytest

from dsup.report.metrics import families

DOCUMENT = {
    "schema": "dsup.status/1",
    "run": "r",
    "run_id": "id",
    "node": "n",
    "program": "train",
    "at": "1970-01-01T00:01:40.500000Z",
    "live": True,
    "outcome": "running",
    "stage": "running",
    "attempt": 1,
    "run_s": 60.0,
    "attempt_s": 20.0,
    "world_size": 2,
    "alive": 2,
    "restarts": {"used": 1, "limit": 3},
    "step": 40,
    "steps_per_s": 4.0,
    "checkpoint": {"step": 30, "age_s": 7.0},
    "pause_left_s": None,
    "stop": None,
    "memory": {"used_kb": 1024, "limit_kb": None, "kb_per_min": 0},
    "ledger": {
        "productive_s": 50.0,
        "ettr": 0.8333,
        "lost_s": {"start_up": 6.0, "pause": 4.0},
    },
    "failures": {"killed": 1, "host_oom": 2},
    "ranks": [
        {"rank": 0, "gpu": 4, "beat_age_s": 0.5, "rss_kb": 2048, "ecc": "ok"},
        {"rank": 1, "gpu": 5, "beat_age_s": None, "cpu_percent": 150.0, "ecc": "bad"},
    ],
    "exit": None,
}


def samples(document):
    """Return the value of each sample, by name and labels but for the run's."""
    return {
        (family.name, *(value for name, value in labels if name != "run")): value
        for family in families(document, "r")
        for labels, value in family.samples
    }


def test_values_are_in_base_units():
    """Seconds, bytes, ratios; counters count attempts and failures."""
    found = samples(DOCUMENT)

    assert found[("up",)] == 1
    assert found[("status_timestamp_seconds",)] == 100
    assert found[("attempts",)] == 2
    assert found[("failures", "host_oom")] == 2
    assert found[("step_seconds",)] == 0.25
    assert found[("memory_used_bytes",)] == 1024 * 1024
    assert found[("rank_resident_memory_bytes", "0")] == 2048 * 1024
    assert found[("rank_cpu_ratio", "1")] == 1.5
    assert found[("rank_gpu_healthy", "0", "4")] == 1
    assert found[("rank_gpu_healthy", "1", "5")] == 0
    assert found[("ledger_seconds", "productive")] == 50
    assert found[("stage", "running")] == 1
    assert found[("stage", "over")] == 0


def test_what_is_unknown_has_no_sample():
    """Null is no zero."""
    names = {key[0] for key in samples(DOCUMENT)}

    assert not names & {"pause_left_seconds", "memory_limit_bytes", "exit_code"}
    assert ("rank_heartbeat_age_seconds", "1") not in samples(DOCUMENT)


def test_without_an_answer_only_up_is_told():
    """An agent that cannot be asked is down; all else would be a guess."""
    assert samples({}) == {("up",): 0.0}


def test_a_run_that_is_over_is_not_up():
    """Its exit code is there; it has a file still, where one was asked for."""
    over = DOCUMENT | {"outcome": "failed", "exit": {"code": 137, "origin": "rank"}}

    assert samples(over)[("up",)] == 0
    assert samples(over)[("exit_code",)] == 137


@pytest.mark.parametrize("odd", ["x", [], {}, [1], True, {"step": "x"}, None])
@pytest.mark.parametrize("key", DOCUMENT)
def test_a_document_of_another_kind_is_no_error(key, odd):
    """What is no number is left out, wherever it is."""
    document = copy.deepcopy(DOCUMENT) | {key: odd}

    assert ("up",) in samples(document)
