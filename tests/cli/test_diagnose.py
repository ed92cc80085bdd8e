"""dsup diagnose: real runs, runs that were cut short, and directories that are none."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from dsup.core.verdict import Evidence, Verdict
from dsup.linux import file_lock
from dsup.report.verdict_file import encode

WORKER = """
import os, signal, sys
what, rank = sys.argv[1], os.environ["RANK"]
if rank == "1" and what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == "1" and what == "fail":
    sys.exit(7)
if what != "ok":
    open(sys.argv[2] + rank, "w").close()
    signal.pause()
"""
NAME = "20991130T022748Z-train-a0b408_gpu-a17"
OTHER = "20991130T022749Z-other-c1d2e3_gpu-a17"
BOOTED = "00000000-0000-0000-0000-000000000000"
ZERO_S = 1_000_000_000
"""CLOCK_REALTIME when the agent's clock of a hand-made run was 0: 01:46:40 UTC."""

SPEC = {
    "world_size": 2,
    "settle_s": 2.0,
    "grace_s": 25.0,
    "keep_helpers": False,
    "policy": {
        "max_restarts": 1,
        "backoff_s": [10.0],
        "healthy_after_s": 1800.0,
        "restart_on_user": False,
        "checkpoints_known": False,
    },
}


def until(condition):
    """Wait for a condition, some minutes at most, and return its value."""
    nap, end_s = threading.Event(), time.monotonic() + 600
    while not (value := condition()):
        assert time.monotonic() < end_s, "not within minutes"
        nap.wait(0.01)
    return value


def event(kind, **fields):
    """Return an event of a journal, its number left to the caller."""
    return {"event": kind, "at_s": fields.pop("at_s", 5.0), **fields}


def command(kind, **fields):
    """Return a command of a journal."""
    return {"command": kind, **fields}


def exited(rank, status, attempt=0, at_s=3.0):
    """Return a rank's end."""
    return event(
        "rank_exited",
        at_s=at_s,
        late_s=0.0,
        attempt=attempt,
        rank=rank,
        status=status,
        dying=[],
    )


def agreed(attempt=0, restart_at_s=None, code=137):
    """Return a plan."""
    return event(
        "plan_agreed",
        attempt=attempt,
        restart_at_s=restart_at_s,
        code=code,
        reason="so it is",
    )


START = (
    event("launched", at_s=1.0),
    command("prepare", attempt=0),
    event("rank_started", at_s=1.0, attempt=0, rank=0, pid=100),
    event("rank_started", at_s=1.0, attempt=0, rank=1, pid=101),
)
SIGNALS = command("signal_ranks", attempt=0, ranks=[0], signum=15)
GIVEN_UP = (
    *START,
    exited(1, -9),
    SIGNALS,
    exited(0, -15, at_s=3.5),
    agreed(),
    command("exit", code=137, origin="rank"),
)


@pytest.fixture
def made(home):
    """Give ``made(*items, **how)``: a run directory made by hand, in the default place.

    ``name`` is its name, ``extra`` is put behind the journal as it is, ``known`` goes
    into run.json.
    """

    def make(*items, name=NAME, extra=b"", known=()):
        path = home / ".local/state/dsup/runs" / name
        (path / "attempt_0" / "1").mkdir(parents=True)
        lines = [{"n": 0, "journal": 1, "spec": SPEC}]
        lines += [{"n": number, **item} for number, item in enumerate(items, 1)]
        journal = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        (path / "events.jsonl").write_bytes(journal + extra)
        clocks = {"realtime_ns": (ZERO_S + 1) * 10**9, "monotonic_ns": 10**9}
        fields = {"schema": "dsup.run/1", "host": "gpu-a17", "clocks": clocks}
        (path / "run.json").write_text(json.dumps({**fields, **dict(known)}))
        return path

    return make


def verdict(attempt=0, summary="Rank 1 was killed by somebody."):
    """Return a verdict as an agent would keep it."""
    return Verdict(
        attempt=attempt,
        cause="killed",
        first_ranks=(1,),
        certainty="proven",
        at_s=3.0,
        summary=summary,
        rule="killed",
        evidence=(Evidence("status", "rank 1: SIGKILL", 1, 3.0),),
        ended_by_dsup=(0,),
        status=-9,
    )


def keep(path, kept):
    """Put a verdict into a run directory."""
    directory = path / f"attempt_{kept.attempt}"
    directory.mkdir(exist_ok=True)
    raw = encode(kept, node="gpu-a17", offset_s=float(ZERO_S), ended=None)
    (directory / "verdict.json").write_bytes(raw)


GIVEN_UP_TEXT = f"""\
{NAME}: 2 ranks on gpu-a17, started 2001-09-09 01:46:41 UTC
━━ dsup ━ attempt 0 failed ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 01:46:43 UTC ━━
Rank 1 was killed by somebody.

 cause    killed, proven
 first    rank 1 on gpu-a17 (local 1, pid 101), 01:46:43.0
 proof    status  rank 1: SIGKILL
 victims  ended by dsup: rank 0
 next     the run was given up with exit code 137: so it is
 more     attempt_0/1
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
 course   seconds from 01:46:43.0 UTC
   +0.00  rank 1          ended first: SIGKILL
   +0.00  dsup            SIGTERM to rank 0
   +0.50  rank 0          ended by dsup: SIGTERM
"""


def test_a_kept_verdict_is_shown_as_it_was(made, dsup):
    """The panel of the failed attempt, and below it what happened when."""
    keep(made(*GIVEN_UP), verdict())
    said = dsup("diagnose")

    assert (said.code, said.err) == (0, "")
    log = re.compile(r"(?m)^( more     ).*(attempt_0/1)")  # in full where that fits
    assert log.sub(r"\1\2", said.out) == GIVEN_UP_TEXT


def test_json_is_one_verdict_for_each_failed_attempt(made, dsup):
    """The form that programs read; the exit is the last attempt's alone."""
    path = made(
        *START,
        exited(1, -9),
        agreed(restart_at_s=6.0),
        command("prepare", attempt=1),
        exited(1, -9, attempt=1, at_s=8.0),
        agreed(attempt=1),
        command("exit", code=137, origin="rank"),
    )
    keep(path, verdict())
    keep(path, verdict(attempt=1))
    said = json.loads(dsup("diagnose", "--json").out)

    assert set(said) == {"schema", "verdicts", "sources", "remarks"}
    assert said["schema"] == "dsup.diagnosis/1"
    assert [(v["attempt"], v["cause"], v["exit"]) for v in said["verdicts"]] == [
        (0, "killed", None),
        (1, "killed", {"code": 137, "origin": "rank"}),
    ]
    assert said["verdicts"][0]["at"] == "2001-09-09T01:46:43.000000Z"


def test_earlier_attempts_are_one_line_each_unless_all_are_asked_for(made, dsup):
    """The last one counts; --all prints every panel."""
    path = made(
        *START,
        exited(1, -9),
        agreed(restart_at_s=6.0),
        command("prepare", attempt=1),
        agreed(attempt=1),
        command("exit", code=137, origin="rank"),
    )
    keep(path, verdict(summary="Rank 1 left early."))
    keep(path, verdict(attempt=1))
    brief, full = dsup("diagnose").out, dsup("diagnose", "--all").out

    assert brief.splitlines()[1] == ("attempt 0, 01:46:43: rank 1 left early")
    assert brief.count(" failed ━") == 1
    assert full.count(" failed ━") == 2


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param(
            GIVEN_UP,
            ("killed", [1], "guess", [0]),
            id="a rank was killed, dsup ended the other",
        ),
        pytest.param(
            (
                *START,
                exited(1, 1),
                SIGNALS,
                exited(0, -9, at_s=3.5),
                agreed(code=1),
                command("exit", code=1, origin="rank"),
            ),
            ("python_exception", [1], "guess", [0]),
            id="a death that dsup brought about is nobody's fault",
        ),
        pytest.param(
            (
                *START,
                exited(0, 1),
                exited(1, -11),
                agreed(code=139),
                command("exit", code=139, origin="rank"),
            ),
            ("killed", [1], "guess", []),
            id="a death that nobody else can cause goes first",
        ),
        pytest.param(
            (
                *START,
                exited(1, 1),
                event(
                    "judged",
                    attempt=0,
                    cause="disk_full",
                    first_ranks=[0],
                    status=1,
                    signature="",
                    final=True,
                ),
                agreed(code=1),
                command("exit", code=1, origin="rank"),
            ),
            ("disk_full", [0], "likely", []),
            id="the judge's word is in the journal",
        ),
        pytest.param(
            (
                *START[:2],
                event(
                    "cannot",
                    attempt=0,
                    cause="spawn_error",
                    code=127,
                    reason="cannot start train, because it is not there",
                ),
                agreed(code=127),
                command("exit", code=127, origin="dsup"),
            ),
            ("spawn_error", [], "proven", []),
            id="an obstacle",
        ),
        pytest.param(
            (*START, command("exit", code=193, origin="dsup")),
            ("unknown", [], "unknown", []),
            id="a code and nothing else",
        ),
    ],
)
def test_a_verdict_that_is_missing_is_made_from_the_journal(
    made, dsup, items, expected
):
    """Never more is claimed than wait statuses and what the agent met support."""
    made(*items)
    (found,) = json.loads(dsup("diagnose", "--json").out)["verdicts"]

    names = ("cause", "first_ranks", "certainty", "ended_by_dsup")
    assert tuple(found[name] for name in names) == expected


@pytest.mark.parametrize(
    ("items", "said"),
    [
        pytest.param(
            (*START, command("exit", code=0, origin="rank")),
            "the run finished: every rank ended with 0",
            id="finished",
        ),
        pytest.param(
            (
                *START,
                agreed(restart_at_s=6.0),
                command("prepare", attempt=1),
                command("exit", code=0, origin="rank"),
            ),
            "the run finished in attempt 1: every rank ended with 0",
            id="finished after a restart",
        ),
        pytest.param(
            (
                *START,
                event("signalled", signum=10, sender_pid=1),
                event("signalled", signum=15, sender_pid=1),
                exited(0, -15),
                command("exit", code=143, origin="dsup"),
            ),
            "the run was stopped by SIGTERM, exit code 143",
            id="stopped",
        ),
        pytest.param(
            (
                *START,
                event(
                    "stop_wanted",
                    attempt=0,
                    rank=1,
                    stop="preempt",
                    reason="SIGTERM",
                    step=17,
                ),
                exited(0, 143),
                command("exit", code=143, origin="dsup"),
            ),
            "the run was stopped by rank 1 (SIGTERM), exit code 143",
            id="stopped by a rank",
        ),
    ],
)
def test_what_became_of_a_run_is_the_last_line(made, dsup, items, said):
    """A run that succeeded, or was stopped, is no failure."""
    made(*items)
    answer = dsup("diagnose")

    assert (answer.code, answer.out.splitlines()[-1]) == (0, said)


def test_a_run_without_failures_has_no_verdicts(made, dsup):
    """Nothing is made up."""
    made(*START, command("exit", code=0, origin="rank"))

    assert json.loads(dsup("diagnose", "--json").out)["verdicts"] == []
    assert "failed" not in dsup("diagnose").out


GONE = "The agent was killed in attempt 0: its journal just ends."


@pytest.mark.parametrize(
    ("items", "known", "told"),
    [
        pytest.param(START, {}, ("agent_killed", GONE), id="no exit"),
        pytest.param(
            START,
            {"host": os.uname().nodename, "boot_id": BOOTED},
            (
                "node_rebooted",
                f"Node {os.uname().nodename} was rebooted during attempt 0.",
            ),
            id="another boot id",
        ),
        pytest.param(
            START,
            {"host": "elsewhere", "boot_id": BOOTED},
            ("agent_killed", GONE),
            id="another node's boot id says nothing",
        ),
        pytest.param(
            (
                *START,
                event("guard_lost"),
                command("exit", code=137, origin="dsup"),
            ),
            {},
            (
                "agent_killed",
                "The guard was killed in attempt 0; the agent ended the ranks.",
            ),
            id="the guard went",
        ),
    ],
)
def test_a_journal_that_just_ends_tells_who_is_gone(made, dsup, items, known, told):
    """Without an exit and without a writer, agent or node went; no rank is blamed."""
    made(*items, known=known)
    (found,) = json.loads(dsup("diagnose", "--json").out)["verdicts"]

    assert (found["cause"], found["summary"]) == told
    assert found["first_ranks"] == []


def test_a_failure_before_the_agent_went_is_told_too(made, dsup):
    """Killed while it listened, dsup left a rank's end in the journal: two times."""
    made(*START, exited(1, 1, at_s=3.0), exited(0, 1, at_s=4.0))
    rank, agent = json.loads(dsup("diagnose", "--json").out)["verdicts"]
    said = dsup("diagnose").out

    assert (rank["cause"], rank["first_ranks"]) == ("python_exception", [1])
    assert (agent["cause"], agent["first_ranks"]) == ("agent_killed", [])
    assert [one["at"][17:19] for one in (rank, agent)] == ["43", "44"]
    assert "rank 1 may have gone first: it ended with exit code 1" in said
    assert "killed in attempt 0, after rank 1 ended with exit code 1" in said


def test_a_run_whose_journal_is_held_goes_on(made, dsup):
    """The scribe's lock shows that it lives."""
    path = made(*START)
    with (path / "events.jsonl").open() as journal:
        file_lock.share(journal.fileno())
        said = dsup("diagnose")

    assert said.out.splitlines()[1:] == ["the run goes on, in attempt 0"]


def test_looking_at_a_run_takes_no_lock(made, dsup):
    """Nobody is kept from it meanwhile, nor taken for a scribe that lives."""
    path = made(*START)
    with (path / "events.jsonl").open("r+") as journal:
        file_lock.seize(journal.fileno())
        held = dsup("diagnose").out
    free = dsup("diagnose").out

    assert "if it does not still run elsewhere" in held
    assert "the agent was killed in attempt 0" in free
    assert "elsewhere" not in free


STEP = b'{"n":9,"event":"progressed","at_s":9.0,"attempt":0,"step":3}\n'


@pytest.mark.parametrize(
    ("extra", "remark"),
    [
        pytest.param(b'{"n":10,"eve', "1 line of the journal cannot be read", id="cut"),
        pytest.param(b"\xff\x00\n{}\n", "2 lines of the journal cannot", id="garbage"),
        pytest.param(b"[" * 60_000 + b"\n", "1 line of the journal", id="nested"),
        pytest.param(b"x" * 100_000, "1 line of the journal", id="no line at all"),
        pytest.param(STEP * 3, "", id="steps"),
    ],
)
def test_a_damaged_journal_is_read_as_far_as_it_goes(made, dsup, extra, remark):
    """What cannot be read is counted, and the rest is used."""
    made(*GIVEN_UP, extra=extra)
    said = dsup("diagnose")

    assert said.code == 0
    assert "cause    killed, guess" in said.out
    assert remark in said.out
    assert bool(remark) == ("cannot be read" in said.out)


def fifo(path):
    """Put a FIFO in the place of a file."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link(path):
    """Put a link to a good file in the place of a file."""
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"\x1b[2J{" * 99), id="garbage"),
        pytest.param(lambda path: os.truncate(path, 1 << 30), id="1 GiB"),
        pytest.param(fifo, id="a FIFO"),
        pytest.param(link, id="a link"),
        pytest.param(
            lambda path: path.write_text(path.read_text().replace(": 0,", ": 7,", 1)),
            id="another attempt's",
        ),
    ],
)
def test_a_verdict_that_cannot_be_read_is_replaced_and_said(made, dsup, damage):
    """A file in a run directory is not trusted."""
    path = made(*GIVEN_UP)
    keep(path, verdict())
    damage(path / "attempt_0" / "verdict.json")
    said = dsup("diagnose")

    assert said.code == 0
    assert "attempt_0/verdict.json cannot be read" in said.out
    assert "cause    killed, guess" in said.out


@pytest.mark.parametrize(
    "known",
    [b"", b"[]", b'{"clocks": {"realtime_ns": 1e400}}', b'{"clocks": 7, "host": 7}'],
    ids=["empty", "no object", "odd clocks", "odd fields"],
)
def test_without_a_run_file_the_rest_is_still_told(made, dsup, known):
    """Times of a renamed one then come from when the journal was last written."""
    made_in = made(*GIVEN_UP)
    path = made_in.rename(made_in.parent / "copied")
    (path / "run.json").write_bytes(known)
    os.utime(path / "events.jsonl", (ZERO_S, ZERO_S))
    said = dsup("diagnose", str(path))

    assert (said.code, said.err) == (0, "")
    assert "on an unknown node" in said.out
    assert "━ 01:46:38 UTC ━━" in said.out


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(
            lambda path: (path / "events.jsonl").unlink(),
            "because it holds no events.jsonl: it is no run directory of dsup's",
            id="no journal",
        ),
        pytest.param(
            lambda path: fifo(path / "events.jsonl"),
            "because its events.jsonl cannot be read: not a regular file",
            id="a FIFO",
        ),
        pytest.param(
            lambda path: link(path / "events.jsonl"),
            "because its events.jsonl cannot be read: too many levels of",
            id="a link",
        ),
        pytest.param(
            lambda path: (path / "events.jsonl").write_bytes(b""),
            "cannot read the journal, because it is empty",
            id="an empty journal",
        ),
        pytest.param(
            lambda path: (path / "events.jsonl").write_bytes(b'{"journal": 9}\n'),
            "its version is 9, not 1",
            id="another version's",
        ),
    ],
)
def test_what_is_no_run_is_said_so(made, dsup, spoil, reason):
    """One line on stderr, exit code 1."""
    path = made(*GIVEN_UP)
    spoil(path)
    said = dsup("diagnose", str(path))

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"dsup: cannot diagnose {path}")
    assert reason in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param("", id="the newest"),
        pytest.param(OTHER, id="a name"),
        pytest.param("20991130T022749Z-other-c1d2e3", id="a run id"),
        pytest.param("c1d2e3", id="a part"),
        pytest.param("my-own-id", id="an id of its owner's"),
        pytest.param("{runs}/" + OTHER, id="a path"),
        pytest.param("{runs}", id="a directory of runs"),
    ],
)
def test_a_run_is_found(made, dsup, home, asked):
    """By nothing, name, part of it, id, or path."""
    made(*GIVEN_UP)
    made(*GIVEN_UP, name=OTHER, known={"run_id": "my-own-id"})
    words = [asked.format(runs=home / ".local/state/dsup/runs")] if asked else []

    assert dsup("diagnose", *words).out.startswith(f"{OTHER}: ")


def test_of_two_runs_of_one_second_the_later_one_is_the_newest(made, dsup):
    """Their names differ by chance alone."""
    names = [f"20991130T022748Z-train-{letter * 6}_gpu-a17" for letter in "bca"]
    for number, name in enumerate(names):
        path = made(*GIVEN_UP, name=name)
        os.utime(path / "events.jsonl", (ZERO_S + number, ZERO_S + number))

    assert dsup("diagnose").out.startswith(f"{names[-1]}: ")


@pytest.mark.parametrize("variable", ["DSUP_RUNS_DIR", "PET_LOG_DIR"])
def test_runs_are_looked_for_where_launch_would_keep_them(
    made, dsup, tmp_path, monkeypatch, variable
):
    """A place that the environment names is one of them."""
    made(*GIVEN_UP, name=OTHER).parent.rename(tmp_path / "runs")
    monkeypatch.setenv(variable, str(tmp_path / "runs"))

    assert dsup("diagnose").out.startswith(f"{OTHER}: ")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(
            ["nosuch"], f"(the newest is {OTHER})", id="no such name: a suggestion"
        ),
        pytest.param(
            ["2099"],
            f"have that in them: {OTHER} (failed), {NAME} (failed)",
            id="ambiguous",
        ),
        pytest.param(["/no/such"], "there is no such file", id="no such path"),
        pytest.param(["other", "zzz"], "cannot find run zzz", id="one of two words"),
    ],
)
def test_a_run_that_is_not_there_is_a_wrong_call(made, dsup, words, reason):
    """Exit code 2, one line, and what could have been meant."""
    made(*GIVEN_UP)
    made(*GIVEN_UP, name=OTHER)
    said = dsup("diagnose", *words)

    assert (said.code, said.out) == (2, "")
    assert reason in said.err
    assert said.err.count("\n") == 1


def test_a_hostile_run_directory_moves_no_cursor(made, dsup):
    """Nothing in it reaches the terminal as it is."""
    evil = "\x1b[2J\u202e"
    items = [*GIVEN_UP[:-2], {**agreed(), "reason": f"{evil}\n━━ fine ━━"}]
    path = made(*items, GIVEN_UP[-1], known={"host": evil})
    keep(path, verdict(summary=evil))
    said = dsup("diagnose", "--all")

    assert said.code == 0
    assert [line for line in said.out.splitlines() if not line.isprintable()] == []
    assert "\n━━ fine" not in said.out


def child(*words, **variables):
    """Run dsup as a user does; return what it said."""
    return subprocess.run(
        [sys.executable, "-m", "dsup", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["locale", "locale that Python believes"],
)
def test_a_terminal_without_unicode_gets_ascii(made, dsup, variables):
    """Rules are = there, and nothing fails to be encoded."""
    keep(made(*GIVEN_UP), verdict(summary="Rank 1 raised ValueError: größer 内存."))
    said = child("diagnose", **variables)

    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.isascii()
    assert "\n== dsup = attempt 0 failed ====" in said.stdout


@pytest.mark.slow
def test_colours_are_shown_where_they_are_wanted(made, dsup):
    """The loud lines only; a pipe has none unless they are asked for."""
    keep(made(*GIVEN_UP), verdict())
    forced = child("diagnose", FORCE_COLOR="1").stdout

    assert "\x1b" not in child("diagnose").stdout
    assert [line[:4] for line in forced.splitlines() if "\x1b" in line] == [
        "\x1b[1;",
        "\x1b[1;",
        "\x1b[33",
    ]


@pytest.mark.slow
def test_a_diagnosis_is_at_hand_at_once(made, cost):
    """A tenth of a second's work, wherever that takes a tenth of a second."""
    keep(made(*GIVEN_UP), verdict())
    calls, modules = cost("diagnose")

    assert calls < 200_000
    assert modules < 280


@pytest.fixture
def launched(home):
    """Give ``launched(*words)``: a real launch of two ranks, ended after the test."""
    (home / "train.py").write_text(WORKER)
    started = []

    def launch(what):
        argv = [sys.executable, "-m", "dsup", "launch", "--nproc", "2"]
        argv += ["--settle", "0.2", "--backoff", "0", "--max-restarts", "0"]
        run = subprocess.Popen(
            [*argv, "train.py", what, str(home / "alive")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started.append(run)
        return run

    yield launch
    for run in started:
        with contextlib.suppress(ProcessLookupError):
            run.terminate()
        run.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("ok", 0, "the run finished: every rank ended with 0"),
        ("kill", 137, "given up with exit code 137: --max-restarts 0"),
        ("fail", 7, "given up with exit code 7: --max-restarts 0"),
    ],
)
def test_a_real_run_is_diagnosed(launched, dsup, what, code, said):
    """With what dsup launch leaves behind, whether it went well or not."""
    assert launched(what).wait() == code
    found = json.loads(dsup("diagnose", "--json").out)["verdicts"]

    assert said in dsup("diagnose").out
    assert [verdict["first_ranks"] for verdict in found] == [[1]] * bool(code)
    assert [verdict["exit"]["code"] for verdict in found] == [code] * bool(code)


@pytest.mark.slow
def test_a_running_run_goes_on_and_a_killed_agent_is_named(launched, dsup, home):
    """First the scribe's lock shows that it lives; then agent and lock are gone."""
    run = launched("wait")
    until(lambda: (home / "alive0").exists() and (home / "alive1").exists())
    until(lambda: "the run goes on" in dsup("diagnose").out)
    with open(f"/proc/{run.pid}/task/{run.pid}/children") as children:
        (agent,) = map(int, children.read().split())
    os.kill(agent, signal.SIGKILL)
    run.wait()
    until(lambda: "the run goes on" not in dsup("diagnose").out)
    (found,) = json.loads(dsup("diagnose", "--json").out)["verdicts"]

    assert (found["cause"], found["first_ranks"]) == ("agent_killed", [])
    assert dsup("diagnose").out.endswith("the agent was killed in attempt 0\n")
