"""The status document: what is told of a run at one moment, and what is null."""

import json
import math

import pytest

from dsup.core.plan import Plan, Policy
from dsup.core.state import Death, Hang, Parking, Spec, Stage, State, Stop
from dsup.core.verdict import Verdict
from dsup.facts.samples import Sample
from dsup.report.rank_rows import Gpu, Process
from dsup.report.snapshot import ATTEMPTS_MAX, Name, Scene, document
from dsup_runtime import contract

NOW_S, OFFSET_S, GIB = 1000.0, 1_700_000_000.0, 1 << 20
POLICY = Policy(2, (10.0,), 1800.0, restart_on_user=False, checkpoints_known=False)
SPEC = Spec(2, 2.0, 25.0, keep_helpers=False, policy=POLICY)
NAME = Name("20231114T220000Z-t-a1b2c3_n1", "id", "/runs/x", "n1", "t")
RUNNING = State(
    SPEC, stage=Stage.RUNNING, alive=frozenset({0, 1}), started_s=NOW_S - 60
)


def page(*slots):
    """Return a page; each slot as ``{word: value}``."""
    words = [0] * contract.HEADER_WORDS
    for told in slots:
        slot = [0] * contract.SLOT_WORDS
        slot[contract.SLOT_STEP] = contract.NO_STEP
        for word, value in told.items():
            slot[word] = value
        words += slot
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words)


def slot(step, ago_s=1.0, **words):
    """Return a training rank's slot."""
    at_ns = int((NOW_S - ago_s) * 1e9)
    told = {
        contract.SLOT_HEARTBEAT_NS: at_ns,
        contract.SLOT_PROGRESS_NS: at_ns,
        contract.SLOT_STEP: step,
        contract.SLOT_PHASE: contract.PHASES.index("train"),
    }
    return told | {getattr(contract, name): value for name, value in words.items()}


def told(state=RUNNING, **fields):
    """Return the document of a scene, as it crosses the socket."""
    scene = Scene(state, NOW_S, OFFSET_S, NOW_S - 90, **fields)
    return json.loads(json.dumps(document(NAME, scene), allow_nan=False))


def test_a_run_without_anything_measured_says_null():
    """Nothing is invented: no runtime, no sample, no GPU, no checkpoint."""
    found = told()

    assert (found["schema"], found["outcome"], found["live"]) == (
        "dsup.status/1",
        "running",
        True,
    )
    assert (found["run_s"], found["attempt_s"], found["alive"]) == (90.0, 60.0, 2)
    assert found["at"] == "2023-11-14T22:30:00.000000Z"
    unknown = ("step", "steps_per_s", "checkpoint", "pause_left_s", "stop", "memory")
    assert {found[name] for name in (*unknown, "ledger", "exit")} == {None}
    rank = found["ranks"][1]
    known = ("rank", "local_rank", "state", "note")
    assert {name: rank.pop(name) for name in known} == {
        "rank": 1,
        "local_rank": 1,
        "state": "alive",
        "note": "",
    }
    assert set(rank.values()) == {None}


def test_a_training_rank_is_told_in_full():
    """Step, phase and ages are the rank's word; memory and its slope are sampled."""
    samples = [
        Sample(
            NOW_S - 60 + at, {0: 8 * GIB, 1: 8 * GIB + at * GIB // 10}, {}, {}, kb, 9
        )
        for at, kb in ((0, 5), (30, 6), (60, 7))
    ]
    found = told(
        pids={0: 40, 1: 41},
        page=page(slot(7, 0.5), slot(6, 2.0)),
        processes={1: Process(101.5, 5)},
        samples=samples,
        gpus={1: Gpu(3, "ok")},
        rate=0.8,
    )

    assert (found["step"], found["steps_per_s"]) == (6, 0.8)
    assert found["memory"] == {"used_kb": 7, "limit_kb": 9, "kb_per_min": 2}
    assert found["ranks"][1] == {
        "rank": 1,
        "local_rank": 1,
        "pid": 41,
        "gpu": 3,
        "state": "alive",
        "status": None,
        "phase": "train",
        "step": 6,
        "beat_age_s": 2.0,
        "step_age_s": 2.0,
        "cpu_percent": 101.5,
        "rss_kb": 14 * GIB,
        "kb_per_min": 6 * GIB,
        "ecc": "ok",
        "note": "memory grows",
    }
    assert found["ranks"][0]["note"] == ""


@pytest.mark.parametrize(
    ("fields", "rank", "note"),
    [
        (
            {"ended": (Death(1, -9, 5.0),), "alive": frozenset({0})},
            1,
            "killed by SIGKILL",
        ),
        ({"ended": (Death(1, 3, 5.0),), "alive": frozenset({0})}, 1, "exit code 3"),
        ({"ended": (Death(1, 0, 5.0),), "alive": frozenset({0})}, 1, ""),
        ({"suspected": Hang((0,), "stalled", 5.0)}, 0, "no step for 41 s"),
        ({"suspected": Hang((0,), "silent", 5.0)}, 0, "silent 41 s"),
        ({"suspected": Hang((0,), "frozen", 5.0)}, 0, "frozen (state T)"),
        ({"suspected": Hang((0,), "stalled", 5.0)}, 1, ""),
        ({"slow": frozenset({1})}, 1, "slower than its peers"),
    ],
)
def test_the_worst_of_a_rank_is_its_note(fields, rank, note):
    """One note a rank, in words that need no other column."""
    found = told(RUNNING._replace(**fields), page=page(slot(7, 41.0), slot(7, 41.0)))

    assert found["ranks"][rank]["note"] == note


def test_a_note_tells_the_limit_in_force_and_by_how_much():
    """Where the vigil has a limit; a slow rank's step time is over the others'."""
    slots = page(slot(7, 61.0), slot(7, 61.0))
    stalled = RUNNING._replace(suspected=Hang((0,), "stalled", 5.0))
    slow = RUNNING._replace(slow=frozenset({1}))

    known = told(stalled, page=slots, limits_s={0: 150.0})["ranks"]
    assert known[0]["note"] == "no step for 61 s (limit 150)"
    compared = told(slow, steps_s={0: 0.5, 1: 0.7})["ranks"]
    assert compared[1]["note"] == "slow: 1.4x the median"


@pytest.mark.parametrize(
    ("gpu", "note"),
    [
        (Gpu(3, "bad", "ecc", 2), "ECC +2"),
        (Gpu(3, "bad", "ecc"), "ECC error"),
        (Gpu(3, "bad", "lost"), "GPU lost"),
        (Gpu(3, "unknown"), ""),
    ],
)
def test_what_ails_a_gpu_is_named(gpu, note):
    """A GPU that is gone has no ECC errors."""
    assert told(gpus={1: gpu})["ranks"][1]["note"] == note


def test_whom_dsup_ended_is_said_so():
    """By its signals, until a verdict knows who was dying before they came."""
    ends = (Death(1, -9, 5.0), Death(0, -15, 6.0))
    state = RUNNING._replace(alive=frozenset(), ended=ends)
    known = Verdict(0, "host_oom", (1,), "proven", 5.0, "", "oom", ended_by_dsup=(0,))

    for fields in ({"asked": {0}}, {"asked": {0, 1}, "verdicts": [known]}):
        notes = [row["note"] for row in told(state, **fields)["ranks"]]
        assert notes == ["ended by dsup", "killed by SIGKILL"]


@pytest.mark.parametrize(
    ("limit_kb", "cgroup_kb", "rss_kb", "noted"),
    [
        pytest.param(100 * GIB, (70, 71, 72), (8, 9, 10), True, id="full in 14 min"),
        pytest.param(400 * GIB, (70, 71, 72), (8, 9, 10), False, id="full in 3 h"),
        pytest.param(None, (70, 71, 72), (8, 9, 10), True, id="no limit, fast"),
        pytest.param(None, (70, 71, 72), (8, 9, 9), False, id="no limit, it was once"),
        pytest.param(None, (70, 71, 72), (80, 81, 82), False, id="no limit, slow"),
        pytest.param(None, (70, 72), (8, 10), False, id="no limit, too few samples"),
    ],
)
def test_growth_has_a_note_where_it_matters(limit_kb, cgroup_kb, rss_kb, noted):
    """Full within half an hour; without a limit, a tenth of itself a minute, twice."""
    samples = [
        Sample(
            NOW_S + 30 * (n - len(rss_kb)), {1: rss * GIB}, {}, {}, kb * GIB, limit_kb
        )
        for n, (kb, rss) in enumerate(zip(cgroup_kb, rss_kb, strict=True))
    ]

    assert told(samples=samples)["ranks"][1]["note"] == ("memory grows" * noted)


def test_restarts_are_those_that_policy_would_allow():
    """Without a checkpoint location a step is needed; one on the page will do."""
    chosen = SPEC._replace(policy=POLICY._replace(max_restarts=None))
    running = RUNNING._replace(spec=chosen)

    assert told(running)["restarts"] == {"used": 0, "limit": 0}
    steps = page(slot(7), slot(7))
    assert told(running, page=steps)["restarts"] == {"used": 0, "limit": 3}


def test_a_checkpoint_that_ranks_have_saved_has_an_age():
    """So has one that was looked for; what was found before the attempt has none."""
    saved = {"SLOT_SAVED_STEP": 400, "SLOT_SAVED_NS": int((NOW_S - 25) * 1e9)}
    known = RUNNING._replace(checkpoint_step=300)

    assert told(known)["checkpoint"] == {"step": 300, "age_s": None}
    both = page(slot(410, **saved), slot(410))
    assert told(known, page=both)["checkpoint"] == {"step": 400, "age_s": 25.0}
    newer = RUNNING._replace(checkpoint_step=500)
    assert told(newer, page=both)["checkpoint"] == {"step": 500, "age_s": None}
    seen = {"page": both, "looked_for": (450, NOW_S - 5)}
    assert told(known, **seen)["checkpoint"] == {"step": 450, "age_s": 5.0}
    assert told(newer, **seen)["checkpoint"] == {"step": 500, "age_s": None}


def test_a_pause_and_the_restarts_are_counted():
    """The failure that is being decided about has used up no restart yet."""
    deciding = State(
        SPEC,
        stage=Stage.DECIDING,
        attempt=1,
        failed_attempts=2,
        plan=Plan(NOW_S + 8.5, 0, ""),
    )

    assert told(deciding)["restarts"] == {"used": 1, "limit": 2}
    assert told(deciding)["pause_left_s"] == 8.5
    assert told(deciding)["attempt_s"] is None


def test_a_stop_tells_how_long_the_ranks_have():
    """And of what kind it is; at which step, nobody knows before it is over."""
    parked = RUNNING._replace(
        stage=Stage.PARKING,
        stop=Stop(2, 1, NOW_S, "user_interrupt", (0, 7)),
        parking=Parking("preempt", -1, "dsup stop"),
        kill_s=NOW_S + 20,
    )

    assert told(parked)["stop"] == {
        "kind": "user",
        "step": None,
        "reason": "dsup stop (uid 0, pid 7)",
        "kill_in_s": 20.0,
    }


@pytest.mark.parametrize(
    ("stop", "kind", "reason"),
    [
        (
            Stop(2, 1, NOW_S, "user_interrupt", (0, 7)),
            "user",
            "dsup stop (uid 0, pid 7)",
        ),
        (Stop(2, 1, NOW_S, "user_interrupt"), "user", "SIGINT"),
        (Stop(15, 1, NOW_S), "preempt", "SIGTERM"),
        (Stop(15, 0, NOW_S, "time_limit"), "limit", "time limit"),
    ],
)
def test_a_stop_of_plain_ranks_tells_who_wanted_it(stop, kind, reason):
    """Those that do not leave by themselves are signalled, whoever asked."""
    stopped = RUNNING._replace(stage=Stage.TERMINATING, stop=stop)

    found = told(stopped)["stop"]
    assert (found["kind"], found["reason"]) == (kind, reason)


@pytest.mark.parametrize(
    "state",
    [
        State(SPEC, stage=Stage.DECIDING, plan=Plan(NOW_S + 8.5, 0, "")),
        State(SPEC, stage=Stage.OVER, succeeded=True),
    ],
)
def test_steps_stay_known_while_no_rank_runs(state):
    """In a pause, and at the end: the last that all ranks finished, and each one's."""
    found = told(state, page=page(slot(9), slot(8)))

    assert found["step"] == 8
    assert [row["step"] for row in found["ranks"]] == [9, 8]


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"succeeded": True}, "succeeded"),
        ({"stop": Stop(15, 1, 5.0)}, "stopped"),
        ({"plan": Plan(None, 1, "")}, "failed"),
    ],
)
def test_a_run_that_is_over_says_how(fields, outcome):
    """The agent answers to its last moment."""
    over = State(SPEC, stage=Stage.OVER, **fields)

    assert told(over)["outcome"] == outcome


def test_failed_attempts_are_the_last_ones_and_their_words_are_tamed():
    """A summary that came from a log moves no cursor and has an end."""
    summary = "Rank 1 raised \x1b[2J" + "x" * 9999
    verdicts = [
        Verdict(n, "host_oom", (1,), "proven", 5.0, summary, "rule") for n in range(12)
    ]
    found = told(verdicts=verdicts)["attempts"]

    assert [one["attempt"] for one in found] == list(range(2, 2 + ATTEMPTS_MAX))
    assert "\x1b" not in found[0]["summary"]
    assert len(found[0]["summary"]) <= 300


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b"\xff" * 1001, id="all ones, cut"),
        pytest.param(b"\x7f" * 2048, id="huge"),
        pytest.param(b"", id="none"),
    ],
)
def test_a_page_that_makes_no_sense_is_passed_over(hostile):
    """A rank may store what it likes; the answer stays JSON, without huge steps."""
    found = told(page=hostile)

    assert found["step"] is None
    assert all(row["phase"] is None for row in found["ranks"])
    ages = [row["beat_age_s"] or 0.0 for row in found["ranks"]]
    assert all(math.isfinite(age) for age in ages)
