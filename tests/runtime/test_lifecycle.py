"""``run`` in one process: what each end of its block comes to."""

import json
import signal

import pytest

BEGIN = """
import os, signal, sys, threading
import dsup_runtime as rt
from dsup_runtime.adapters import JsonLinesReporter
def begin(**more):
    return rt.run(reporter=JsonLinesReporter(os.environ["REPORT"]), **more)
"""
DEFERRED = "rt.try_or_defer(int, 'x')"
STOPPED = "rt.request_stop('that is all', kind={!r}); rt.should_stop(4)"


@pytest.fixture
def report(tmp_path):
    """Return the outcome in the report of a run that has ended, finished once."""

    def read():
        lines = (tmp_path / "report").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        assert [e["event"] for e in events].count("finish") == 1
        return events[-1]

    return read


@pytest.fixture
def live(run, tmp_path):
    """Run a script that may begin a run: (exit status, stdout, stderr)."""

    def live_through(code, **env):
        env = {"REPORT": str(tmp_path / "report"), **env}
        return run(BEGIN + code, env=env)

    return live_through


@pytest.mark.parametrize(
    ("block", "code", "end"),
    [
        pytest.param("pass", 0, ("FINISHED", False), id="the end"),
        pytest.param("sys.exit()", 0, ("FINISHED", False), id="exit"),
        pytest.param("sys.exit(3)", 3, ("FAILED", False), id="exit 3"),
        pytest.param("sys.exit('no')", 1, ("FAILED", False), id="exit with words"),
        pytest.param("sys.exit(143)", 143, ("KILLED", True), id="exit 143"),
        pytest.param("1 / 0", 1, ("FAILED", False), id="an error"),
        pytest.param(DEFERRED, 1, ("FAILED", False), id="a deferred error"),
        pytest.param(
            "raise KeyboardInterrupt", -signal.SIGINT, ("KILLED", False), id="Ctrl-C"
        ),
        pytest.param(STOPPED.format("user"), 0, ("FINISHED", False), id="enough"),
        pytest.param(STOPPED.format("limit"), 143, ("KILLED", True), id="time limit"),
        pytest.param(STOPPED.format("preempt"), 143, ("KILLED", True), id="preempted"),
        pytest.param(STOPPED.format("peer"), 1, ("FAILED", False), id="a peer's death"),
        pytest.param(
            STOPPED.format("error"), 1, ("FAILED", False), id="a rank's error"
        ),
        pytest.param(
            "run.leave(); 1 / 0", 1, ("FAILED", False), id="post_train raises"
        ),
    ],
)
def test_process_and_report_end_alike(live, report, block, code, end):
    """Each end of the block is one exit code and one outcome, whatever comes first."""
    assert live(f"with begin() as run:\n {block}")[0] == code

    outcome = report()
    assert (outcome["status"], outcome["resumable"]) == end
    assert outcome["exit_code"] == (130 if code == -signal.SIGINT else code)


@pytest.mark.parametrize(
    "block", [DEFERRED, STOPPED.format("preempt"), STOPPED.format("error")]
)
def test_nothing_comes_after_a_leave_that_raises(live, block):
    """A run that failed, or is to be resumed, has no post_train."""
    _, out, _ = live(f"with begin() as run:\n {block}\n run.leave()\n print('post')")

    assert out == ""


def test_an_error_of_leave_cannot_be_swallowed(live, report):
    """The block ends well, and the run is as failed as before."""
    code = f"""
with begin() as run:
    {DEFERRED}
    try:
        run.leave()
    except ValueError:
        print("caught")
print("never")
"""
    status, out, err = live(code)

    assert (status, out) == (1, "caught\n")
    assert "ValueError: invalid literal" in err
    assert report()["status"] == "FAILED"


def test_a_run_needs_no_torch_and_leaves_no_trace(live, tmp_path):
    """Unsupervised there is no file but the reporter's, and no thread that stays."""
    code = """
before = signal.getsignal(signal.SIGTERM)
with begin(leave_timeout_s=5) as run:
    rt.beat(3)
    rt.should_stop(3)
    run.leave()
    run.leave()
assert "torch" not in sys.modules
assert signal.getsignal(signal.SIGTERM) is before
print([t.name for t in threading.enumerate() if not t.name.startswith("dsup-report")])
"""
    assert live(code) == (0, "['MainThread']\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_runs_may_follow_each_other_but_not_nest(live):
    """Within a run a second one is refused in words; after it there may be another."""
    code = """
with rt.run():
    try:
        with rt.run():
            print("never")
    except RuntimeError as error:
        print(error)
with rt.run() as run:
    print("again")
try:
    with run:
        print("never")
except RuntimeError as error:
    print(error)
"""
    _, out, err = live(code)

    assert out.replace("(call run once around the whole life of the training)", "") == (
        "cannot enter the run, because this process is in one \n"
        "again\n"
        "cannot enter the run, because this one has ended \n"
    ), err


@pytest.mark.parametrize("limit", ["0", "-1", "float('nan')", "float('inf')", "1e12"])
def test_a_wait_that_is_no_time_is_refused(live, limit):
    """A wrong limit is found before the training, not at its end."""
    _, _, err = live(f"rt.run(leave_timeout_s={limit})")

    assert "ValueError: cannot wait" in err


def test_a_forked_child_does_not_end_the_run(live, report):
    """It may come out of the block as its parent does."""
    code = """
with begin():
    child = os.fork()
    if child:
        print(os.waitpid(child, 0)[1])
if not child:
    os._exit(0)
"""
    assert live(code) == (0, "0\n", "")
    assert report()["status"] == "FINISHED"


STUCK = "os.kill(os.getpid(), 15); threading.Event().wait()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "code", "status"),
    [
        pytest.param(STUCK, 143, "KILLED", id="the loop never looks"),
        pytest.param(f"{DEFERRED}; {STUCK}", 1, "FAILED", id="it had failed before"),
    ],
)
def test_who_cannot_stop_in_time_says_so_before_the_kill(
    live, report, block, code, status
):
    """At four fifths of the grace the outcome is told, with the place it hangs at."""
    ended, _, err = live(f"with begin():\n {block}", DSUP_GRACE_S="1")

    assert ended == code
    assert "cannot stop in time, because the main thread is here:\n" in err
    assert 'threading.py", line' in err
    assert report()["status"] == status


@pytest.mark.slow
def test_a_reporter_has_no_longer_than_the_grace(live):
    """A tracker that hangs when a stop was asked for does not outlive the kill."""
    code = """
class Hanging(JsonLinesReporter):
    def finish(self, outcome):
        threading.Event().wait()

with rt.run(reporter=Hanging(os.environ["REPORT"])):
    os.kill(os.getpid(), 15)
    rt.should_stop(1)
"""
    status, _, err = live(code, DSUP_GRACE_S="2")

    assert (status, err.count("cannot wait longer for the reporter")) == (143, 1)


@pytest.mark.parametrize(
    ("block", "written"),
    [
        pytest.param("raise KeyError('lost')", "KeyError: 'lost'", id="an error"),
        pytest.param(DEFERRED, "ValueError: invalid literal", id="a deferred one"),
        pytest.param("sys.exit(3)", None, id="an exit code"),
        pytest.param("pass", None, id="a success"),
    ],
)
def test_torchs_error_file_is_written_in_its_format(live, tmp_path, block, written):
    """The launcher that asks for it finds the exception, with its traceback."""
    path = tmp_path / "error.json"
    live(f"with begin():\n {block}", TORCHELASTIC_ERROR_FILE=str(path))

    assert path.exists() is (written is not None)
    if written:
        message = json.loads(path.read_bytes())["message"]
        assert message["message"].startswith(written)
        assert "Traceback" in message["extraInfo"]["py_callstack"]
        assert message["extraInfo"]["timestamp"].isdigit()


def test_torchs_error_file_is_not_replaced(live, tmp_path):
    """Whoever wrote it, ``record`` in the script or another, was nearer to it."""
    path = tmp_path / "error.json"
    path.write_text("mine")
    live("with begin():\n 1 / 0", TORCHELASTIC_ERROR_FILE=str(path))

    assert path.read_text() == "mine"
