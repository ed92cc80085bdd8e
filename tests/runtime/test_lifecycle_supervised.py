"""What a run under dsup leaves for the agent: notes at once, and one file."""

import json
import socket
import time

import pytest

from dsup_runtime import contract

BEGIN = """
import os, signal, sys, threading
import dsup_runtime as rt
"""
FIELDS = "v status exit_code resumable reason error rank step".split()


@pytest.fixture
def live(start, page, tmp_path):
    """Let a rank of attempt 2 live a script: (exit status, its notes, its stderr)."""
    (tmp_path / "attempt_2").mkdir()
    page.words[contract.HEADER_ATTEMPT] = 2
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def live_through(code, **env):
        paths = [contract.BOOTSTRAP_DIR, contract.BOOTSTRAP_DIR.rsplit("/", 2)[0]]
        told = {
            **page.environment(attempt=2),
            contract.RUN_DIR: str(tmp_path),
            contract.NOTES: contract.format_notes(theirs.fileno()),
            contract.BOOTSTRAP: "0",
            "PYTHONPATH": ":".join(paths),
            **env,
        }
        rank = start(BEGIN + code, page=page, env=told, pass_fds=(theirs.fileno(),))
        status, _, err = rank.finish()
        ours.setblocking(False)
        notes = []
        try:
            while True:
                notes.append(json.loads(ours.recv(contract.NOTE_MAX_BYTES)))
        except BlockingIOError:
            return status, notes, err

    with ours, theirs:
        yield live_through


@pytest.fixture
def written(tmp_path):
    """Return what outcome.json holds; None if there is none."""
    path = tmp_path / "attempt_2" / contract.OUTCOME_FILE
    return lambda: json.loads(path.read_bytes()) if path.exists() else None


def test_a_success_is_noted_and_written(live, written):
    """The note and the file say the same, in the fields that the agent reads."""
    status, [note], _ = live("with rt.run():\n rt.beat(7)")

    assert status == 0
    assert (note["kind"], note["status"], note["step"]) == ("outcome", "FINISHED", 7)
    assert list(written()) == FIELDS
    assert written() == {name: note[name] for name in FIELDS}


def test_an_error_is_told_before_the_rank_unwinds_and_only_once(live, written):
    """The agent has it while the tracker still works; the hook says nothing twice."""
    code = """
class Asking:
    def start(self, info): pass
    def event(self, name, fields): pass
    def finish(self, outcome):
        rt.notes.send("finish")

import dsup_runtime.notes
rt.notes = dsup_runtime.notes
def train():
    rt.beat(41)
    raise LookupError("lost") from OSError("no disk")
with rt.run(reporter=Asking()):
    train()
"""
    status, notes, err = live(code)
    raised = notes[0]

    assert status == 1
    assert [note["kind"] for note in notes] == ["raised", "outcome", "finish"]
    assert (raised["type"], raised["text"]) == ("LookupError", "lost")
    assert (raised["function"], raised["causes"]) == ("train", [["OSError", "no disk"]])
    assert raised["at_ns"] < time.monotonic_ns()
    assert notes[1]["error"] == "LookupError: lost"
    assert err.endswith("LookupError: lost\n")
    assert (written()["status"], written()["step"]) == ("FAILED", 41)


def test_what_is_raised_after_the_run_is_told_as_ever(live):
    """Only the exception that ended the run is known to the agent."""
    code = "try:\n with rt.run(): 1 / 0\nexcept ZeroDivisionError: raise KeyError(3)"
    _, notes, _ = live(code)

    assert [note.get("type") for note in notes] == [
        "ZeroDivisionError",
        None,
        "KeyError",
    ]


@pytest.mark.parametrize(
    ("there", "stays"),
    [
        pytest.param('{"status": "FAILED"}', True, id="stronger"),
        pytest.param('{"status": "KILLED"}', True, id="as strong"),
        pytest.param('{"status": "FINISHED"}', False, id="weaker"),
        pytest.param('{"status": 3}', False, id="no status"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_an_outcome_replaces_only_a_weaker_one(live, tmp_path, written, there, stays):
    """FAILED stays before KILLED, KILLED before FINISHED."""
    path = tmp_path / "attempt_2" / contract.OUTCOME_FILE
    path.write_text(there)
    live("with rt.run(): sys.exit(143)")

    if stays:
        assert path.read_text() == there
    else:
        assert (written()["status"], written()["resumable"]) == ("KILLED", True)


def test_a_link_in_its_place_is_replaced_and_not_followed(live, tmp_path, written):
    """What it names is not ours to read or write."""
    victim = tmp_path / "victim"
    victim.write_text('{"status": "FAILED"}')
    (tmp_path / "attempt_2" / contract.OUTCOME_FILE).symlink_to(victim)
    live("with rt.run(): pass")

    assert written()["status"] == "FINISHED"
    assert victim.read_text() == '{"status": "FAILED"}'


def test_a_directory_that_has_gone_costs_a_line_and_nothing_else(live, tmp_path):
    """The run's own end is what counts."""
    (tmp_path / "attempt_2").rmdir()
    status, [note], err = live("with rt.run(): pass")

    assert (status, note["status"]) == (0, "FINISHED")
    assert "cannot write the outcome" in err


def test_another_rank_tells_and_writes_nothing(live, written):
    """The file is the main rank's."""
    _, [note], _ = live("with rt.run(): pass", RANK="1", WORLD_SIZE="2")

    assert note["kind"] == "outcome"
    assert written() is None


def test_after_leave_no_step_is_expected_any_more(start, page):
    """What the main rank does then is phase finish, however long it takes."""
    code = """
with rt.run() as run:
    rt.beat(1)
    run.leave()
    print("null", flush=True)
    sys.stdin.readline()
print("null", flush=True)
sys.stdin.readline()
"""
    rank = start(BEGIN + code, page=page)
    phases = []
    for _ in range(2):
        rank.hear()
        phases.append(contract.PHASES[page.slot()[contract.SLOT_PHASE]])
        rank.go_on()

    assert phases == ["finish", "train"]


def test_a_child_with_the_variables_but_no_slot_writes_nothing(run, tmp_path, written):
    """Who is not supervised makes no file, whatever the environment says."""
    (tmp_path / "attempt_2").mkdir()
    env = {contract.RUN_DIR: str(tmp_path), contract.ATTEMPT: "2"}
    status, _, _ = run(BEGIN + "with rt.run(): pass", env=env)

    assert (status, written()) == (0, None)


@pytest.mark.slow
def test_the_agents_deadline_is_the_one_that_counts(live, page):
    """A rank that got SIGTERM in the middle of the grace has only the rest of it."""
    page.words[contract.HEADER_STOP_DEADLINE_NS] = time.monotonic_ns() + 2_000_000_000
    code = "with rt.run(): os.kill(os.getpid(), 15); threading.Event().wait()"
    status, notes, _ = live(code, DSUP_GRACE_S="600")

    assert status == 143
    assert notes[-1]["reason"] == "not stopped in time"


@pytest.mark.slow
def test_a_full_socket_holds_no_run_up(live, written):
    """Notes are dropped then; the file says it all the same."""
    flood = """
import socket
s = socket.socket(fileno=os.dup(int(os.environ["DSUP_NOTES"][3:])))
try:
    while True: s.send(b"{}", socket.MSG_DONTWAIT)
except BlockingIOError: pass
with rt.run(): 1 / 0
"""
    status, notes, _ = live(flood)

    assert status == 1
    assert notes[-1] == {}
    assert written()["error"] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("rank", "end"),
    [
        pytest.param(-1, (143, "KILLED", True), id="a person"),
        pytest.param(0, (0, "FINISHED", False), id="a rank that has enough"),
    ],
)
def test_a_person_who_stops_dsup_makes_no_training_a_success(live, page, rank, end):
    """Both are of kind user; only who has asked tells one from the other."""
    words = page.words
    words[contract.HEADER_STOP_KIND] = contract.STOP_KINDS.index("user")
    words[contract.HEADER_STOP_RANK] = rank
    words[contract.HEADER_STOP_STEP] = words[contract.HEADER_FREEZE] = 1
    code = """
with rt.run() as run:
    assert rt.should_stop(3).kind == "user"
    run.leave()
"""
    status, notes, err = live(code)

    told = notes[-1]
    assert (status, told["status"], told["resumable"]) == end, err
