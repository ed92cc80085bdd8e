"""What holds however a rank's heartbeats reach the agent: by memory, file or TCP."""

import time

import pytest

from dsup.edges.loop import Loop
from dsup_runtime import contract
from dsup_runtime.page import Page as RankPage

WAITING = """
import sys
from dsup_runtime import beat, phase, info, heartbeat
def pause(value="null"):
    print(value, flush=True)
    sys.stdin.readline()
"""
BEAT = "from dsup_runtime import beat, info; beat(7); print(info().supervised)"


def test_the_agent_sees_step_phase_time_and_pid(agent, start):
    """A beat and a phase reach the slot of their rank, and no other."""
    before_ns = time.monotonic_ns()
    script = WAITING + "beat(41)\nwith phase('eval', limit_s=9): pause()"
    worker = start(agent, script, 1)
    worker.hear()
    slot = agent.slot(1)

    assert slot[contract.SLOT_PID] == worker.pid
    assert slot[contract.SLOT_STEP] == 41
    assert contract.PHASES[slot[contract.SLOT_PHASE]] == "eval"
    assert slot[contract.SLOT_PHASE_LIMIT_NS] == 9_000_000_000
    assert before_ns < slot[contract.SLOT_PROGRESS_NS] < time.monotonic_ns()
    assert slot[contract.SLOT_HEARTBEAT_NS] >= slot[contract.SLOT_PROGRESS_NS]
    assert agent.slot(0)[contract.SLOT_PID] == 0
    assert agent.page.step() == 41


def test_each_beat_of_a_loop_that_is_not_very_fast_is_told(agent, start):
    """Ranks of equal progress are not told apart by when they last reported."""
    script = WAITING + "import time\nfor step in range(5): beat(step); pause(); "
    worker = start(agent, script + "time.sleep(0.002)")
    for step in range(5):
        worker.hear()

        assert agent.page.step() == step
        worker.go_on()


def test_what_a_worker_told_outlives_it(agent, start):
    """After SIGKILL the agent still finds what the worker said last."""
    script = WAITING + "beat(1)\nbeat(12)\nwith phase('checkpoint'): pause()"
    worker = start(agent, script)
    worker.hear()
    worker.kill()
    worker.wait()

    assert agent.slot()[contract.SLOT_STEP] == 12
    assert contract.PHASES[agent.slot()[contract.SLOT_PHASE]] == "checkpoint"


def test_the_worker_sees_the_agents_words(agent, start):
    """Who is dead, and a stop with its reason, are there after an exchange."""
    script = (
        WAITING
        + """
import json
from dsup_runtime import contract
beat(3)
page = heartbeat.own_page()
pause()
while page.header(contract.HEADER_STOP_STEP) < 0:
    assert page.exchange()
first = contract.HEADER_STOP_REASON
reason = page.words[first:first + 8].tobytes().rstrip(b"\\0").decode()
pause(json.dumps([page.dead(), page.words[:8].tolist(), reason]))
"""
    )
    worker = start(agent, script)
    worker.hear()
    agent.page.mark_dead(1)
    agent.page.freeze(12.5)
    agent.page.publish(4, "preempt", 1, "asked by somebody")
    worker.go_on()
    dead, header, reason = worker.hear()

    assert dead == [1]
    assert header[contract.HEADER_FREEZE] == 1
    assert header[contract.HEADER_STOP_STEP] == 4
    assert header[contract.HEADER_STOP_RANK] == 1
    assert header[contract.HEADER_STOP_DEADLINE_NS] == 12_500_000_000
    assert contract.STOP_KINDS[header[contract.HEADER_STOP_KIND]] == "preempt"
    assert reason == "asked by somebody"
    assert agent.slot()[contract.SLOT_STEP] == 3


def test_the_agents_word_in_a_slot_is_its_own(agent, start):
    """No worker can take the mark of a dead rank away, whatever it sends."""
    script = "beat(1); pause(); beat(2)\nwith phase('eval'): pause()"
    worker = start(agent, WAITING + script)
    worker.hear()
    agent.page.mark_dead(1)
    worker.go_on()
    worker.hear()

    assert agent.slot(0)[contract.SLOT_STEP] == 2
    assert agent.slot(0)[contract.SLOT_DEAD] == 0
    assert agent.slot(1)[contract.SLOT_DEAD] == 1


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({contract.ATTEMPT: "6"}, id="of the attempt before"),
        pytest.param({contract.ATTEMPT: ""}, id="of no attempt"),
        pytest.param({contract.ATTEMPT: "9" * 30}, id="of attempt 999..."),
    ],
)
def test_a_worker_of_another_attempt_is_refused(agent, start, env):
    """An old worker that lives on is unsupervised, and tells nothing."""
    before = agent.page.copy()

    assert start(agent, BEAT, env=env).finish() == (0, "False\n", "")
    assert agent.page.copy() == before


def test_an_old_attempts_writer_does_not_reach_the_new_page(
    make_agent, start, tmp_path
):
    """A worker that outlives its attempt writes on, and nobody reads it."""
    for kind in ("page", "file", "tcp"):
        old = make_agent(kind, tmp_path / f"{kind}-0", attempt=0)
        worker = start(old, WAITING + "beat(1)\npause()\nbeat(99)\npause()")
        worker.hear()
        new = make_agent(kind, tmp_path / f"{kind}-1", attempt=1)
        worker.go_on()
        worker.hear()

        assert new.page.step() is None
        assert new.slot()[contract.SLOT_PID] == 0


def test_a_slot_beyond_the_page_is_refused(agent, start):
    """There are as many slots as the header says."""
    assert start(agent, BEAT, 2).finish() == (0, "False\n", "")
    assert agent.page.step() is None


def test_a_slot_is_one_process_s(agent, start):
    """A script that a worker starts does not speak for it, until the worker has ended.

    It inherits the variables, and of the page what the worker has not closed.
    """
    holder = start(agent, WAITING + "beat(1); pause()")
    holder.hear()

    assert start(agent, BEAT).finish() == (0, "False\n", "")
    assert agent.slot()[contract.SLOT_STEP] == 1
    assert agent.said == []
    holder.kill()
    holder.wait()
    assert start(agent, BEAT).finish() == (0, "True\n", "")
    assert agent.slot()[contract.SLOT_STEP] == 7


def test_a_worker_that_executes_itself_anew_keeps_its_slot(agent, start):
    """The same process is the same worker, whatever program it runs now."""
    script = f"""
import os, sys, dsup_runtime
dsup_runtime.beat(1)
os.execv(sys.executable, [sys.executable, "-c", {BEAT!r}])
"""
    assert start(agent, script).finish() == (0, "True\n", "")
    assert agent.slot()[contract.SLOT_STEP] == 7


def test_a_forked_child_does_not_speak_for_its_parent(agent, start):
    """A fork beats for nobody, and its end takes nothing from its parent."""
    script = """
import os
from dsup_runtime import beat, info, phase
beat(3)
if (child := os.fork()) == 0:
    beat(99)
    with phase("checkpoint"): beat(100)
    os._exit(info().supervised)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
with phase("eval"): beat(4)
assert info().supervised
"""
    assert start(agent, script).finish() == (0, "", "")
    assert agent.slot()[contract.SLOT_STEP] == 4


def test_a_script_may_close_every_descriptor(agent, start, tmp_path):
    """Descriptors that are opened in the place of ours are never written to."""
    script = f"""
import os
from dsup_runtime import beat, phase
beat(1)
os.closerange(3, 2048)
fds = [os.open("{tmp_path}/mine", os.O_RDWR | os.O_CREAT) for _ in range(150)]
for step in range(2, 50):
    beat(step)
    with phase("eval"): pass
"""
    assert start(agent, script).finish() == (0, "", "")
    assert agent.slot()[contract.SLOT_STEP] >= 1
    assert (tmp_path / "mine").read_bytes() == b""


def test_a_stopped_agent_keeps_no_worker_waiting(agent, start):
    """Whoever does not read is not waited for: the worker goes on."""
    script = (
        WAITING
        + """
beat(0)
pause()
page = heartbeat.own_page()
for steps in range(1, 10_001):
    beat(steps)
    page.exchange()
print(steps, flush=True)
sys.stdin.readline()
beat(steps + 1); page.exchange()
"""
    )
    worker = start(agent, script)
    worker.hear()
    worker.go_on()
    steps = int(worker.stdout.readline())  # the agent does not turn meanwhile

    assert agent.until(lambda: agent.page.step() or 0) > 0
    worker.go_on()
    worker.finish()
    agent.until(lambda: agent.page.step() >= steps)


def test_a_beat_without_an_agent_is_no_error(agent, start):
    """When the agent goes, its workers go on, and are told so by an exchange."""
    script = (
        WAITING
        + """
beat(1)
page = heartbeat.own_page()
pause()
for step in range(100):
    beat(step)
    reached = page.exchange()
pause(int(reached))
"""
    )
    worker = start(agent, script)
    worker.hear()
    if agent.page.carrier:
        agent.page.carrier.close()
        agent.page.carrier = None
    worker.go_on()

    assert worker.hear() == int(agent.kind != "tcp")


@pytest.mark.parametrize("kind", ["page", "file", "tcp"])
def test_the_agent_leaks_no_descriptor(make_agent, start, descriptors, kind):
    """An attempt's page takes all of its descriptors with it."""
    loop = Loop()
    before = descriptors()
    agent = make_agent(kind, loop=loop)
    worker = start(agent, BEAT)
    assert worker.finish()[0] == 0
    worker.stdin.close()
    agent.close()

    assert descriptors() == before


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param(100_000, id="1e5", marks=pytest.mark.slow),
        pytest.param(
            10_000_000, id="1e7", marks=[pytest.mark.soak, pytest.mark.timeout(1800)]
        ),
    ],
)
def test_a_reader_never_sees_half_a_number(agent, start, reads):
    """Whatever the moment of reading, a word holds one of the values stored."""
    whole = {byte * 0x0101010101010101 & (1 << 53) - 1 for byte in range(1, 128)}
    script = f"""
from dsup_runtime import beat, heartbeat
steps = {sorted(whole)}
beat(steps[0])
page = heartbeat.own_page()
print("null", flush=True)
while True:
    for step in steps:
        beat(step)
        page.exchange()
"""
    worker = start(agent, script)
    worker.hear()
    seen: set[int] = set()
    last_ns = done = 0
    end_s = time.monotonic() + 600
    while done < reads or (len(seen) <= 20 and time.monotonic() < end_s):
        slot = agent.slot()
        seen.add(slot[contract.SLOT_STEP])
        assert slot[contract.SLOT_HEARTBEAT_NS] >= last_ns
        last_ns = slot[contract.SLOT_HEARTBEAT_NS]
        done += 1

    assert seen <= whole
    assert len(seen) > 20


def test_no_thread_and_no_socket_module_where_none_is_needed(agent, start):
    """A worker that inherits its page imports neither sockets nor files' locks."""
    script = """
import sys, threading
from dsup_runtime import beat
beat(1)
print(threading.active_count(), int("dsup_runtime.page_carriers" in sys.modules))
"""
    _, told, _ = start(agent, script).finish()

    assert told == f"1 {int(agent.kind != 'page')}\n"


def test_an_exchange_that_a_signal_interrupts_is_not_begun_again_within():
    """A handler may look at the page, too: half a frame would be torn apart."""

    class Interrupted:
        every_ns, lost, begun = 0, False, 0

        def exchange(self, _mine):
            self.begun += 1
            assert page.exchange()

        def close(self):
            """Nothing is held."""

    words = memoryview(bytearray(contract.page_bytes(1))).cast("q")
    carrier = Interrupted()
    page = RankPage(words, 0, carrier)

    assert [page.exchange(), page.exchange()] == [True, True]
    assert carrier.begun == 2
