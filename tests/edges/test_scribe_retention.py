"""Old run directories: only what is proven to be a dead run of ours is removed."""

import fcntl
import json
import os
import subprocess
import sys

import pytest

from dsup.edges.scribe.retention import Claim, old_runs, prune
from dsup.linux import file_lock, proc

OWN = "20250110T000000Z-train-0123ab_node-1"


def name(day, host="node-1"):
    return f"202501{day:02}T000000Z-train-abcdef_{host}"


def make(parent, run, schema="dsup.run/1"):
    path = parent / run
    (path / "attempt_0" / "0").mkdir(parents=True)
    (path / "attempt_0" / "0" / "stdout.log").write_text("hello\n")
    (path / "events.jsonl").write_text("{}\n")
    (path / "run.json").write_text(json.dumps({"schema": schema}))
    return path


def remove(parent, keep=2):
    return list(prune(str(parent / OWN), keep))


@pytest.fixture
def runs(tmp_path):
    make(tmp_path, OWN)
    return tmp_path


@pytest.mark.parametrize(
    ("names", "keep", "old"),
    [
        pytest.param([OWN, name(1), name(2)], 2, [name(1)], id="the oldest go"),
        pytest.param([OWN, name(1), name(2)], 3, [], id="there is room"),
        pytest.param([OWN, name(11)], 1, [name(11)], id="this one counts and stays"),
        pytest.param([OWN, name(1)], 0, [name(1)], id="this one always stays"),
        pytest.param([OWN, name(1, "node-2")], 1, [], id="another node's"),
        pytest.param([OWN, "notes", "2025", ".."], 1, [], id="other names"),
    ],
)
def test_what_is_old(names, keep, old):
    """The oldest runs of this node beyond the number, by their names."""
    assert old_runs(names, OWN, keep) == old


def test_old_runs_are_removed_a_file_at_a_time(runs):
    """A run beyond the number goes, in many steps, so that no rank waits for it."""
    old, new = make(runs, name(1)), make(runs, name(2))
    steps = remove(runs)

    assert not old.exists()
    assert new.exists()
    assert (runs / OWN / "run.json").exists()
    assert len(steps) == 1 + 1 + 2  # looked at; a file; two directories


def test_all_stay_where_nobody_says_how_many(runs):
    """None keeps all."""
    make(runs, name(1))
    remove(runs, keep=None)

    assert len(os.listdir(runs)) == 2


def alive(path):
    assert Claim(str(path / "events.jsonl"), 0o600).settled


def with_an_agent_that_lives(path):
    agent = {"pid": os.getpid(), "start": proc.stat(os.getpid()).start}
    told = {"schema": "dsup.run/1", "boot_id": proc.boot_id(), "agent": agent}
    (path / "run.json").write_text(json.dumps(told))


def of_an_older_dsup(path):
    journal = os.open(path / "events.jsonl", os.O_RDWR)
    fcntl.flock(journal, fcntl.LOCK_SH)


def foreign(path):
    (path / "run.json").write_text(json.dumps({"schema": "other/1"}))


def no_json(path):
    (path / "run.json").write_text("no JSON")


def no_object(path):
    (path / "run.json").write_text("[1]")


def unproven(path):
    (path / "run.json").unlink()


def no_journal(path):
    (path / "events.jsonl").unlink()


def fifo(path):
    (path / "run.json").unlink()
    os.mkfifo(path / "run.json")


def linked_proof(path):
    (path / "run.json").rename(path / "real.json")
    os.symlink("real.json", path / "run.json")


def linked(path):
    path.rename(path.with_name("elsewhere"))
    os.symlink("elsewhere", path)


@pytest.mark.parametrize(
    "change",
    [
        alive,
        with_an_agent_that_lives,
        of_an_older_dsup,
        foreign,
        no_json,
        no_object,
        unproven,
        no_journal,
        fifo,
        linked_proof,
        linked,
    ],
)
def test_what_is_not_proven_stays(runs, change):
    """Alive, another program's, or a link: it is left as it is, and nothing fails."""
    old = make(runs, name(1))
    change(old)
    before = sorted(os.walk(runs))
    remove(runs, keep=1)

    assert sorted(os.walk(runs)) == before


@pytest.mark.root
def test_another_users_run_stays(runs):
    """In a shared directory everybody's runs are their own."""
    old = make(runs, name(1))
    os.chown(old, 65534, 65534)
    remove(runs, keep=1)

    assert old.exists()


@pytest.mark.root
def test_a_run_with_a_file_system_mounted_in_it_stays(runs):
    """What is mounted there is somebody's data."""
    old = make(runs, name(1))
    (old / "sub" / "a mount").mkdir(parents=True)
    script = """
        mount -t tmpfs none "$2/sub/a mount" && touch "$2/sub/a mount/precious" &&
        "$3" -c "
import sys
from dsup.edges.scribe.retention import prune
list(prune(sys.argv[1], 1))" "$1" && ls "$2/sub/a mount" "$2"
    """
    paths = [str(runs / OWN), str(old), sys.executable]
    said = subprocess.check_output(["unshare", "-m", "sh", "-c", script, "sh", *paths])

    assert {b"precious", b"run.json", b"attempt_0"} <= set(said.split())


def test_links_inside_are_removed_and_not_followed(runs, tmp_path):
    """A link in an old run does not lead to what it names."""
    kept = tmp_path / "data"
    kept.mkdir()
    (kept / "precious").write_text("data")
    old = make(runs, name(1))
    os.symlink(kept, old / "attempt_0" / "link")
    os.symlink(kept / "precious", old / "link")
    remove(runs, keep=1)

    assert not old.exists()
    assert (kept / "precious").read_text() == "data"


def test_an_unfinished_removal_is_still_proven(runs):
    """What proves it goes last, so that the next run can go on."""
    old = make(runs, name(1))
    steps = prune(str(runs / OWN), 1)
    while (old / "attempt_0").exists():
        next(steps)
    del steps

    assert sorted(os.listdir(old)) == ["events.jsonl", "run.json"]
    remove(runs, keep=1)
    assert not old.exists()


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param({"pid": os.getpid(), "start": 1}, id="its pid is another's now"),
        pytest.param({"pid": 1 << 30, "start": 1}, id="it has gone"),
        pytest.param({"pid": "1", "start": None}, id="it makes no sense"),
        pytest.param(7, id="it is nothing"),
    ],
)
def test_an_agent_that_is_no_more_keeps_nothing(runs, agent):
    """A pid alone proves nothing: the number may be another process's."""
    old = make(runs, name(1))
    told = {"schema": "dsup.run/1", "boot_id": proc.boot_id(), "agent": agent}
    (old / "run.json").write_text(json.dumps(told))
    remove(runs, keep=1)

    assert not old.exists()


def test_a_claim_is_made_as_soon_as_nobody_is_in_its_way(tmp_path):
    """Whoever has the journal for himself, only puts it off."""
    path = tmp_path / "events.jsonl"
    with path.open("w") as journal:
        file_lock.seize(journal.fileno())
        claim = Claim(str(path), 0o600)
        put_off = not claim.settled
        assert put_off
        assert file_lock.is_shared(os.open(path, os.O_RDONLY)) is None
    claim.hold()

    assert claim.settled
    seen = os.open(path, os.O_RDONLY)
    assert [file_lock.is_shared(seen) for _ in range(2)] == [True, True]
    del claim


@pytest.mark.slow
def test_a_scribe_shows_that_it_lives_once_nobody_is_in_its_way(
    scribe_agent, eventually
):
    """It works meanwhile, and needs nothing to happen to try again."""
    a = scribe_agent()
    with (a.run_dir / "events.jsonl").open("w") as journal:
        file_lock.seize(journal.fileno())
        a.start()
        a.rank("echo alive")
        a.shown(until=b"alive\n")
    with (a.run_dir / "events.jsonl").open() as journal:
        eventually(lambda: file_lock.is_shared(journal.fileno()))
    assert a.end()
