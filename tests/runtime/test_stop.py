"""``request_stop`` and ``should_stop`` in a process that has nobody to ask."""

import sys

import pytest

STOP = """
import os, signal, sys, threading
from dsup_runtime import deferred
from dsup_runtime.stop import Stop, agreed, drain, request_stop, should_stop
"""


def test_a_stop_is_agreed_at_the_next_check_and_stays(run):
    """Inner and outer loop leave by the same answer, which is never reset."""
    script = """
left = []
for epoch in range(3):
    for step in range(10):
        if step == 4:
            assert agreed() is None
            request_stop("enough")
        if stop := should_stop(100 * epoch + step):
            left.append(stop)
            break
    if stop := should_stop():
        left.append(stop)
        break
assert epoch == 0
assert left == [Stop("user", "enough", 4, 0, 25.0)] * 2
assert should_stop(999) is agreed() is left[0]
assert drain()
assert "torch" not in sys.modules
"""
    assert run(STOP + script) == (0, "", "")


def test_the_greatest_kind_wins_until_the_stop_is_agreed(run):
    """Of one kind the first reason stays; once a stop is agreed, nothing changes it."""
    script = """
request_stop("time", kind="limit")
request_stop("SIGTERM", kind="preempt")
request_stop("SIGUSR1", kind="preempt")
request_stop("enough")
stop = should_stop(1)
assert stop[:2] == ("preempt", "SIGTERM"), stop
request_stop("worse", kind="error")
assert should_stop(2) is stop
"""
    assert run(STOP + script) == (0, "", "")


def test_a_deferred_error_ends_the_run(run):
    """An error that was kept asks for a stop that says where it was and what."""
    script = """
assert should_stop(0) is None
deferred.try_or_defer(int, "x", where="upload")
deferred.try_or_defer(int, "y", where="another")
stop = should_stop(1)
assert stop[:3] == (
    "error", "upload: ValueError: invalid literal for int() with base 10: 'x'", 1
), stop
"""
    status, _, error = run(STOP + script)

    assert status == 0, error


def test_only_every_so_many_th_call_looks(run):
    """With every=3 a request waits for the third call, wherever the steps are."""
    script = """
request_stop("enough")
assert [bool(should_stop(step, every=3)) for step in range(70, 75)] == [
    False, False, True, True, True
]
assert agreed().step == 72
"""
    assert run(STOP + script) == (0, "", "")


@pytest.mark.parametrize(
    ("calls", "step"),
    [
        pytest.param("", 1, id="none named: the calls are counted"),
        pytest.param("should_stop(); should_stop()", 3, id="third call"),
        pytest.param("should_stop(40)", 40, id="the last one that was named"),
        pytest.param("should_stop(40); should_stop(31)", 31, id="after a rollback"),
    ],
)
def test_a_stop_names_the_step_of_its_caller(run, calls, step):
    """A call without a step is at that of the last call that named one."""
    script = f"""
{calls}
request_stop("enough")
print(should_stop().step)
"""
    assert run(STOP + script) == (0, f"{step}\n", "")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        pytest.param("request_stop('x', kind='now')", "of kind 'now'", id="kind"),
        pytest.param("request_stop('x', kind='none')", "of kind 'none'", id="none"),
        pytest.param("should_stop(every=0)", "every 0th call", id="every 0th"),
        pytest.param("should_stop(every=-3)", "every -3th call", id="below 0"),
    ],
)
def test_wrong_arguments_are_refused(run, call, why):
    """A mistake is an error at once, not a stop that never comes."""
    status, _, error = run(STOP + call)

    assert status == 1
    assert "ValueError: cannot " in error
    assert why in error


def test_a_signal_handler_may_ask_at_any_moment(run):
    """A request is safe while another one, or a check, is interrupted by it."""
    script = """
asked = 0
def handler(signum, frame):
    global asked
    asked += 1
    request_stop(f"alarm {asked}", kind="preempt" if asked >= 20 else "limit")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
while asked < 20:
    request_stop("loop")
    should_stop(every=1 << 40)
stop = should_stop()
while asked < 40:
    assert should_stop() is stop
signal.setitimer(signal.ITIMER_REAL, 0)
# A handler may be interrupted by the next alarm's, which then asks before it.
assert stop.kind == "preempt" and int(stop.reason[6:]) >= 20, stop
"""
    assert run(STOP + script) == (0, "", "")


def test_requests_of_many_threads_lose_none(run):
    """Whoever asks last, the greatest kind that anyone asked for is agreed."""
    script = """
kinds = ["user", "limit", "preempt", "peer", "error"] * 10
begin = threading.Barrier(len(kinds))
def ask(kind):
    begin.wait()
    for number in range(50):
        request_stop(f"thread {number}", kind=kind)
threads = [threading.Thread(target=ask, args=(kind,)) for kind in kinds]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert should_stop()[:2] == ("error", "thread 0"), agreed()
"""
    assert run(STOP + script) == (0, "", "")


def test_a_forked_child_never_stops(run):
    """A DataLoader's worker goes on until its loader ends it, whatever was agreed."""
    script = """
request_stop("enough")
assert should_stop(1)
if (child := os.fork()) == 0:
    request_stop("SIGTERM", kind="preempt")
    request_stop("mine", kind="error")
    request_stop("mine again")
    os._exit(should_stop(2) is not None or agreed() is not None)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert should_stop(2).reason == "enough"
"""
    status, _, error = run(STOP + script)

    assert status == 0, error
    assert error.startswith(
        "cannot stop the run for 'mine', because it is asked for in"
    )
    assert error.count("this helper process only") == 1


@pytest.mark.slow
@pytest.mark.torch
def test_a_loader_of_before_the_first_check_never_stops(run):
    """A DataLoader's worker knows itself for one, though no check came before it."""
    script = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return int(should_stop(index) is not None)
request_stop("enough")
loader = torch.utils.data.DataLoader(Data(), num_workers=2)
assert [int(found) for found in loader] == [0] * 4
assert should_stop(1)
"""
    status, _, error = run(STOP + script)

    assert status == 0, error


def test_checks_of_a_second_thread_are_reported_once(run):
    """Counts of checks mean nothing where two threads make them: one line says so."""
    script = """
should_stop(0)
def check():
    for step in range(3): should_stop(step)
for _ in range(2):
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
"""
    status, _, error = run(STOP + script)

    assert status == 0
    assert error.count("\n") == 1
    assert "from several threads (call it from the training loop alone)" in error


def test_importing_does_nothing(run, tmp_path):
    """The modules start no thread, set no handler, open nothing, import no torch."""
    script = """
import os, signal, sys, threading
before = os.listdir("/proc/self/fd")
handlers = [signal.getsignal(number) for number in signal.valid_signals()]
import dsup_runtime.agreement, dsup_runtime.stop
assert threading.active_count() == 1
assert handlers == [signal.getsignal(number) for number in signal.valid_signals()]
assert os.listdir("/proc/self/fd") == before
assert "torch" not in sys.modules
"""
    assert run(script, cwd=tmp_path) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


HELPERS = """
import torch
from dsup_runtime import deferred
from dsup_runtime.stop import request_stop, should_stop
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        deferred.try_or_defer(int, "x", where="decode")
        request_stop("bad shard", kind="error")
        return index
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(
        Data(), num_workers=1, batch_size=1, multiprocessing_context="{how}"
    )
    assert len(list(loader)) == 4
    assert should_stop() is None
"""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_what_a_loader_keeps_to_itself_is_said_once(start, tmp_path, how):
    """Neither an error nor a wish leaves a helper process, and the log says so."""
    script = tmp_path / "train.py"
    script.write_text(HELPERS.replace("{how}", how))
    worker = start([sys.executable, str(script)])
    _, error = worker.communicate(timeout=600)

    assert worker.returncode == 0, error
    assert (
        error.count("cannot stop the run for the error in decode, because it is") == 1
    )
    assert error.count("cannot stop the run for 'bad shard', because it is") == 1


def test_a_rank_without_a_group_says_once_that_it_answers_alone(run):
    """Where the launcher started others, a local answer is not agreed."""
    script = """
from dsup_runtime.agreement import agree
assert should_stop() is None
assert agree(True) and should_stop() is None
"""
    for size, times in ("2", 1), ("1", 0):
        status, _, error = run(STOP + script, env={"RANK": "0", "WORLD_SIZE": size})

        assert status == 0, error
        assert error.count("answering for this rank alone") == times
