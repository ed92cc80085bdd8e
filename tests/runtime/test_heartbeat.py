"""``beat`` and ``phase``: what a worker writes into its slot, and when it must not."""

import os
import time
from itertools import count

import pytest

from dsup_runtime import contract

BEAT = "from dsup_runtime import beat, info; beat(7); print(info().supervised)"
WAITING = """
import sys
from dsup_runtime import beat, phase
def pause():
    print("null", flush=True)
    sys.stdin.readline()
"""
LINGER_S = 600.0


def phase_of(slot):
    """Return what a slot says: the phase's name and its limit, nanoseconds."""
    return (
        contract.PHASES[slot[contract.SLOT_PHASE]],
        slot[contract.SLOT_PHASE_LIMIT_NS],
    )


def test_a_beat_tells_step_time_and_pid(start, page):
    """A beat stores the step and, for progress and heartbeat, the monotonic clock."""
    slot = page.slot()
    before_ns = time.monotonic_ns()
    worker = start(WAITING + "beat(41); pause()", page=page)
    worker.hear()

    assert slot[contract.SLOT_PID] == worker.pid
    assert slot[contract.SLOT_STEP] == 41
    assert before_ns < slot[contract.SLOT_PROGRESS_NS] < time.monotonic_ns()
    assert slot[contract.SLOT_HEARTBEAT_NS] == slot[contract.SLOT_PROGRESS_NS]


def test_a_worker_writes_into_its_own_slot_only(run, make_page):
    """The header and the slots of other ranks stay as they were."""
    page = make_page(slots=3)
    before = page.words.tolist()

    run(BEAT, page=page, env=page.environment(slot=1))

    first = contract.slot_offset(1)
    after = page.words.tolist()
    assert after[:first] == before[:first]
    assert after[first + contract.SLOT_WORDS :] == before[first + contract.SLOT_WORDS :]
    assert after[first + contract.SLOT_STEP] == 7


def test_phases_nest_and_the_first_step_starts_training(start, page):
    """Each phase ends where the one around it goes on, with that one's limit."""
    script = (
        WAITING
        + """
with phase("init", limit_s=60):
    beat(0)
    pause()
pause()
beat(1)
pause()
with phase("eval", limit_s=900):
    pause()
    with phase("checkpoint"):
        pause()
    pause()
pause()
"""
    )
    worker = start(script, page=page)
    told = []
    for _ in range(7):
        worker.hear()
        told.append(phase_of(page.slot()))
        worker.go_on()

    assert told == [
        ("init", 60_000_000_000),
        ("init", 0),
        ("train", 0),
        ("eval", 900_000_000_000),
        ("checkpoint", 0),
        ("eval", 900_000_000_000),
        ("train", 0),
    ]


def test_a_phase_is_a_heartbeat_but_no_progress(start, page):
    """Entering and leaving say that the worker lives, not that a step was done."""
    script = WAITING + "with phase('eval'): pause()\npause()"
    slot = page.slot()
    worker = start(script, page=page)
    worker.hear()
    entered_ns = slot[contract.SLOT_HEARTBEAT_NS]
    worker.go_on()
    worker.hear()

    assert 0 < entered_ns < slot[contract.SLOT_HEARTBEAT_NS]
    assert slot[contract.SLOT_PROGRESS_NS] == 0


def test_an_exception_ends_its_phase(start, page):
    """A phase that fails is left like any other, and its exception goes on."""
    script = """
try:
    with phase("eval", limit_s=5):
        with phase("checkpoint", limit_s=6):
            raise KeyError("mine")
except KeyError:
    pause()
"""
    worker = start(WAITING + "beat(0)" + script, page=page)
    worker.hear()

    assert phase_of(page.slot()) == ("train", 0)


@pytest.mark.parametrize("supervised", [True, False])
@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param(
            "phase('lunch')",
            "cannot enter phase 'lunch', because it is none of init, train, eval",
            id="no such phase",
        ),
        pytest.param("phase('eval', limit_s=0)", "a limit is above 0", id="no time"),
        pytest.param(
            "phase('eval', limit_s=float('nan'))", "a limit is above 0", id="nan"
        ),
        pytest.param(
            "phase('eval', limit_s=float('inf'))", "at most 1000000000 s", id="endless"
        ),
    ],
)
def test_a_wrong_phase_is_refused_everywhere(run, page, call, why, supervised):
    """A mistake shows under any launcher, so that it is found before dsup is used."""
    script = f"from dsup_runtime import phase\n{call}"
    status, _, error = run(script, page=page if supervised else None)

    assert status == 1
    assert "ValueError: cannot " in error
    assert why in error


def test_without_a_supervisor_nothing_happens(run, tmp_path):
    """Beats and phases do nothing, open nothing and make no file."""
    script = """
import os
from dsup_runtime import beat, phase
before = os.listdir("/proc/self/fd")
for step in range(3):
    beat(step)
    with phase("checkpoint", limit_s=1): pass
assert os.listdir("/proc/self/fd") == before
"""
    status, _, error = run(script, cwd=tmp_path)

    assert (status, error) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("supervised", [True, False])
def test_a_step_that_is_no_whole_number_harms_nobody(run, page, supervised):
    """It is cut, or not told: with dsup and without, the same step is remembered."""
    script = """
from dsup_runtime import beat, heartbeat
class Odd:
    def __index__(self): raise KeyError("odd")
for step in (1.5, 2**63, -(2**63) - 1, float("nan"), "x", None, Odd(), True, 2**63 - 1):
    beat(step)
    print(heartbeat.last_step())
beat(7.9)
"""
    status, told, error = run(script, page=page if supervised else None)

    assert (status, error) == (0, "")
    assert told.split() == ["1", *["None"] * 6, "1", str(2**63 - 1)]
    if supervised:
        assert page.slot()[contract.SLOT_STEP] == 7
        assert page.slot()[contract.SLOT_PROGRESS_NS] > 0


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param({"magic": 0}, id="no magic word"),
        pytest.param({"magic": contract.MAGIC ^ 1 << 56}, id="layout of a later dsup"),
        pytest.param({"attempt": 1}, id="page of another attempt"),
        pytest.param({"size": contract.page_bytes(1) + 8}, id="a word too long"),
        pytest.param({"size": contract.page_bytes(1) - 8}, id="a word too short"),
        pytest.param({"size": contract.page_bytes(2)}, id="more slots than it says"),
        pytest.param({"size": 8}, id="nearly empty"),
    ],
)
def test_a_page_that_is_not_ours_is_left_alone(run, make_page, spoiled):
    """What is not proven to be this attempt's page is never written to."""
    page = make_page(**spoiled)
    before = page.words.tolist()

    assert run(BEAT, page=page) == (0, "False\n", "")
    assert page.words.tolist() == before


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("fd:1#0", id="a pipe"),
        pytest.param("fd:999#0", id="a closed descriptor"),
        pytest.param("fd:99999999999999999999#0", id="no descriptor at all"),
        pytest.param(f"fd:{'9' * 5000}#0", id="5000 digits"),
        pytest.param("shm:/tmp/page#0", id="a kind of a later dsup"),
        pytest.param("fd:3", id="no slot"),
        pytest.param("fd:3#-1", id="a slot below 0"),
        pytest.param("fd:/tmp/page#0", id="a path for a number"),
        pytest.param("", id="empty"),
    ],
)
def test_a_variable_that_names_no_page_is_ignored(run, value):
    """Nothing that the variable can hold stops the training script."""
    env = {contract.HEARTBEAT: value, contract.ATTEMPT: "0"}

    assert run(BEAT, env=env) == (0, "False\n", "")


def test_a_slot_beyond_the_page_is_ignored(run, make_page):
    """A page has as many slots as it says, and no word after them is touched."""
    page = make_page(slots=2)

    told = run(BEAT, page=page, env=page.environment(slot=2))
    assert told == (0, "False\n", "")


def test_a_page_that_cannot_be_written_is_ignored(run, page):
    """A descriptor open for reading only gives no heartbeat and no error."""
    readable = os.open(f"/proc/self/fd/{page.fd}", os.O_RDONLY)
    try:
        os.dup2(readable, page.fd, inheritable=False)
        assert run(BEAT, page=page) == (0, "False\n", "")
    finally:
        os.close(readable)
    assert page.slot().tolist() == [0] * contract.SLOT_WORDS


def test_no_attempt_in_the_environment_means_no_page(run, page):
    """A worker that does not know its attempt cannot prove that a page is its own."""
    told = run(BEAT, page=page, env={contract.ATTEMPT: ""})

    assert told == (0, "False\n", "")
    assert page.slot().tolist() == [0] * contract.SLOT_WORDS


def test_a_slot_held_by_a_living_process_is_left_to_it(start, run, page):
    """A script started by a worker inherits the variables but not the slot."""
    holder = start(WAITING + "beat(1); pause()", page=page)
    holder.hear()

    assert run(BEAT, page=page) == (0, "False\n", "")
    assert page.slot()[contract.SLOT_PID] == holder.pid
    assert page.slot()[contract.SLOT_STEP] == 1


@pytest.mark.parametrize("reaped", [True, False], ids=["gone", "still a zombie"])
def test_a_dead_process_holds_no_slot(start, run, page, reaped):
    """The slot of a process that has ended goes to the next one of this rank."""
    first = start(BEAT, page=page)
    if reaped:
        first.finish()
    else:
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)

    assert run(BEAT, page=page) == (0, "True\n", "")
    assert page.slot()[contract.SLOT_PID] != first.pid


def test_a_worker_that_executes_itself_anew_keeps_its_slot(run, page):
    """The same pid is the same worker, whatever program it runs now."""
    script = f"""
import os, sys, dsup_runtime
dsup_runtime.beat(1)
os.execv(sys.executable, [sys.executable, "-c", {BEAT!r}])
"""
    assert run(script, page=page) == (0, "True\n", "")
    assert page.slot()[contract.SLOT_STEP] == 7


def test_a_forked_child_does_not_speak_for_its_parent(run, page):
    """A DataLoader's worker, being a fork, beats for nobody and is not supervised."""
    script = """
import os
from dsup_runtime import beat, info, phase
beat(3)
with phase("eval"):
    if (child := os.fork()) == 0:
        beat(99)
        with phase("checkpoint"):
            beat(100)
        os._exit(info().supervised)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert info().supervised
"""
    status, _, error = run(script, page=page)

    assert (status, error) == (0, "")
    assert page.slot()[contract.SLOT_STEP] == 3
    assert phase_of(page.slot()) == ("train", 0)


def test_the_page_may_be_closed_under_a_running_worker(run, page):
    """A script that closes every descriptor it does not know goes on, and beats on."""
    script = """
import os
from dsup_runtime import beat
beat(1)
os.closerange(3, 1024)
beat(2)
"""
    assert run(script, page=page) == (0, "", "")
    assert page.slot()[contract.SLOT_STEP] == 2


def test_what_a_worker_told_outlives_it(start, page):
    """After SIGKILL the page still says where the rank was."""
    worker = start(WAITING + "beat(12)\nwith phase('checkpoint'): pause()", page=page)
    worker.hear()
    worker.kill()
    worker.finish()

    assert page.slot()[contract.SLOT_STEP] == 12
    assert phase_of(page.slot()) == ("checkpoint", 0)


def test_a_reader_never_sees_half_a_number(start, page):
    """Whatever the moment of reading, a word holds one of the values stored."""
    whole = {byte * 0x0101010101010101 for byte in range(1, 128)}
    script = f"""
from dsup_runtime import beat
steps = {sorted(whole)}
beat(steps[0])
print("null", flush=True)
while True:
    for step in steps: beat(step)
"""
    worker = start(script, page=page)
    worker.hear()
    slot = page.slot()
    seen, last_ns, deadline_s = set(), 0, time.monotonic() + LINGER_S
    for reads in count():
        seen.add(slot[contract.SLOT_STEP])
        now_ns = slot[contract.SLOT_HEARTBEAT_NS]
        assert now_ns >= last_ns
        last_ns = now_ns
        if reads >= 200_000 and len(seen) > 100:
            break
        assert time.monotonic() < deadline_s, f"{len(seen)} steps in {reads} reads"

    assert seen <= whole
