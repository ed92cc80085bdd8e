"""The run before a launch: which one it is, and when it is closed."""

import json
import os
import subprocess
from multiprocessing import get_context

import pytest

from dsup.cli.diagnosis import diagnosis
from dsup.cli.predecessor import look_back
from dsup.core.parentage import Parentage
from dsup.linux import file_lock, proc
from dsup.takeover import decode

OWN = "20991130T022750Z-train-ffffff_n"
BEFORE = "20991130T022748Z-train-{:06x}_n"
UNIT = Parentage("unit train.service", "/srv/train.py", "/srv")
BY_HAND = UNIT._replace(parent="")
BOOT_ID = proc.read_text("/proc/sys/kernel/random/boot_id").strip()
NOBODY = {"pid": 2**22 + 1, "start": 7}
SPEC = {
    "world_size": 1,
    "settle_s": 2.0,
    "grace_s": 25.0,
    "keep_helpers": False,
    "policy": {
        "max_restarts": None,
        "backoff_s": [10.0],
        "healthy_after_s": 1800.0,
        "restart_on_user": False,
        "checkpoints_known": False,
    },
}
STARTED = (
    {"n": 0, "journal": 1, "spec": SPEC},
    {"n": 1, "event": "launched", "at_s": 1.0},
    {"n": 2, "command": "prepare", "attempt": 0},
    {"n": 3, "event": "rank_started", "at_s": 1.1, "attempt": 0, "rank": 0, "pid": 9},
)
EXIT = {"n": 4, "command": "exit", "code": 0, "origin": "rank"}


@pytest.fixture
def before(home):
    """Give ``before(more, **known)``: a run that was launched, and then no more."""
    made = iter(range(99))

    def make(*more, parentage=UNIT, **known):
        path = home / "runs" / BEFORE.format(next(made))
        (path / "attempt_0").mkdir(parents=True)
        lines = map(json.dumps, (*STARTED, *more))
        (path / "events.jsonl").write_text("\n".join([*lines, ""]))
        fields = {
            "schema": "dsup.run/1",
            "host": os.uname().nodename,
            "boot_id": BOOT_ID,
            "clocks": {"realtime_ns": 10**18, "monotonic_ns": 10**9},
            "agent": NOBODY,
            **parentage._asdict(),
        }
        (path / "run.json").write_text(json.dumps({**fields, **known}))
        return path

    return make


@pytest.fixture
def found(home, job):
    """Give ``found(parentage, **how)``: what a launch finds now."""

    def look(parentage=UNIT, **how):
        own = str(home / "runs" / OWN)
        launched = job()._replace(run_dir=own, parentage=parentage)
        return decode(look_back(launched, **how))

    return look


def test_a_run_that_was_cut_off_is_closed(before, found):
    """Once: it has a verdict then, and the next launch finds nothing to take over."""
    path = before()
    told = found()

    assert told.before[2:] == (path.name, "agent_killed", 0, 1, None)
    assert told.closed
    assert json.loads((path / "closed.json").read_text())["by"] == OWN
    verdict = json.loads((path / "attempt_0" / "verdict.json").read_text())
    assert verdict["cause"] == "agent_killed"
    assert found() is None


def test_what_diagnose_says_of_a_closed_run(before, found):
    """The same as before, but for who took over; nothing is told twice."""
    rank_died = {"n": 4, "event": "rank_exited", "at_s": 2.0, "late_s": 0.0}
    path = before(rank_died | {"attempt": 0, "rank": 0, "status": -9, "dying": []})
    [*_, first], [*_, last] = diagnosis(str(path)).cases, diagnosis(str(path)).cases
    found()
    cases = diagnosis(str(path)).cases

    assert [case.verdict.cause for case in cases] == ["killed", "agent_killed"]
    assert cases[-1].verdict.summary == first.verdict.summary == last.verdict.summary
    assert OWN in cases[-1].next_text
    moments = [case.verdict.at_s + case.offset_s for case in (first, cases[-1])]
    assert moments[0] == pytest.approx(moments[1])


def test_after_a_boot_the_node_is_to_blame(before, found):
    """Another boot id tells that the node went, and whoever has that pid now is not."""
    me = {"pid": os.getpid(), "start": proc.stat(os.getpid()).start}
    before(boot_id="another", agent=me)

    assert found().before.cause == "node_rebooted"


def test_a_person_s_run_is_only_spoken_of(before, found):
    """A launch by hand takes nothing over, and closes nothing."""
    path = before(parentage=BY_HAND)

    assert not found(BY_HAND).closed
    assert not (path / "closed.json").exists()


@pytest.mark.parametrize(
    "known",
    [
        {"parent": "unit other.service"},
        {"parent": ""},
        {"script": "/srv/other.py"},
        {"directory": "/elsewhere"},
        {"host": "another"},
        {"agent": None},
        {"agent": {"pid": "1", "start": []}},
        {"parent": None},
        {"parent": {"unit": 1}},
    ],
    ids=str,
)
def test_another_s_run_is_left_alone(before, found, known):
    """Of another parent, script, directory or node, or of who knows whom."""
    path = before(**known)

    assert found() is None
    assert {entry.name for entry in path.iterdir()} == {
        *("attempt_0", "events.jsonl", "run.json")
    }


def test_a_run_whose_agent_lives_is_left_alone(before, found):
    """By its pid and when it began, whatever holds the journal or does not."""
    me = {"pid": os.getpid(), "start": proc.stat(os.getpid()).start}
    before(agent=me)

    assert found() is None


def test_an_agent_that_nobody_has_collected_is_dead(before, found):
    """In a container whose first process collects nobody its pid stays taken."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        before(agent={"pid": ended.pid, "start": proc.stat(ended.pid).start})

        assert found().before.cause == "agent_killed"


def test_a_run_whose_journal_is_held_is_left_alone(before, found):
    """A scribe that lives holds it: the agent may live where its pid is another's."""
    path = before()
    with (path / "events.jsonl").open() as journal:
        file_lock.share(journal.fileno())
        assert found(draining_s=0) is None
    assert found() is not None


def test_a_run_that_ended_since_makes_what_was_before_it_history(before, found):
    """Failures are counted in a row: a later run of the same job breaks it."""
    before()
    os.utime(before(EXIT) / "events.jsonl", ns=(2**62, 2**62))

    assert found() is None


@pytest.mark.parametrize("raw", [b"", b"[" * 10**5, b"\xff{", b"[]", b'{"parent": 1}'])
def test_garbage_is_passed_over(before, found, raw):
    """What somebody wrote over a run.json costs no more than that run."""
    path = before()
    (path / "run.json").write_bytes(raw)

    assert found() is None


def test_what_is_no_file_is_passed_over(before, found):
    """A FIFO would be waited for, and a link may lead anywhere."""
    fifo, link, other = before(), before(), before()
    (fifo / "run.json").unlink()
    os.mkfifo(fifo / "run.json")
    (link / "run.json").rename(link.parent / "theirs.json")
    (link / "run.json").symlink_to(link.parent / "theirs.json")
    other.rename(other.parent / "elsewhere")
    other.symlink_to(other.parent / "elsewhere")

    assert found() is None


@pytest.mark.root
def test_another_user_s_run_is_left_alone(before, found):
    """Whoever may write into a shared directory of runs may not have runs closed."""
    path = before()
    os.chown(path, 65534, 65534)

    assert found() is None


def test_a_verdict_that_was_kept_stays(before, found):
    """What the judge had said of the last attempt is worth more."""
    path = before()
    (path / "attempt_0" / "verdict.json").write_text("of a later version")

    assert found().closed
    assert (path / "attempt_0" / "verdict.json").read_text() == "of a later version"


@pytest.mark.slow
def test_of_two_launches_at_once_one_takes_over(before, found):
    """The count of a run goes on in one other run."""
    before()
    context = get_context("fork")
    start, answers = context.Barrier(4), context.SimpleQueue()

    def launch():
        start.wait()
        answers.put(found() is not None)

    launches = [context.Process(target=launch) for _ in range(4)]
    for one in launches:
        one.start()
    for one in launches:
        one.join()

    assert sorted(answers.get() for _ in launches) == [False, False, False, True]
