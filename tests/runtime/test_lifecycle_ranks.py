"""``run`` on two or three ranks: together they end well, or all of them do not.

The ranks are forked from a process that has torch, and then end as any script does: by
the interpreter's own way out, with its exit code.
"""

import json
import sys
from itertools import count
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import dsup_runtime
from dsup_runtime import checkpoints

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FORGE = """
import ctypes, json, os, select, sys, time
import torch, torch.distributed
import torch.nn.parallel, torch.utils.data, torch._dynamo

torch.set_num_threads(1)

def be_rank(trial, rank):
    ctypes.CDLL(None).prctl(1, 9)  # no rank outlives this process
    os.setpgid(0, 0)
    for fd, name in ((1, "out"), (2, "err")):
        path = f"{trial['home']}/{rank}.{name}"
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), fd)
    os.environ.update(trial["env"], RANK=str(rank), LOCAL_RANK=str(rank))
    os.environ["TORCHELASTIC_ERROR_FILE"] = f"{trial['home']}/{rank}.error"

def look_after(trial, pids):
    begin = time.monotonic()
    fds = {os.pidfd_open(pid): rank for rank, pid in enumerate(pids)}
    ended = [None for _ in pids]
    while set(fds.values()) - set(trial["frozen"]):
        left = begin + trial["limit_s"] - time.monotonic()
        ready = select.select(list(fds), [], [], max(left, 0))[0]
        if not ready:
            break
        for fd in ready:
            rank = fds.pop(fd)
            ended[rank] = os.waitstatus_to_exitcode(os.waitpid(pids[rank], 0)[1])
    for rank in fds.values():
        os.kill(pids[rank], 9)
        os.waitpid(pids[rank], 0)
    return ended

def serve():
    for line in sys.stdin:
        trial, pids = json.loads(line), []
        for rank in range(trial["size"]):
            pids.append(os.fork())
            if not pids[-1]:
                be_rank(trial, rank)
                return trial["code"]
        print(json.dumps(look_after(trial, pids)), flush=True)
    return ""

exec(compile(serve(), "train.py", "exec"), {"__name__": "__main__"})
"""
SCRIPT = """
import atexit, os, signal, sys, threading, time
from datetime import timedelta
import torch, torch.distributed as dist
import dsup_runtime as rt
from dsup_runtime.adapters import JsonLinesReporter

rank = rt.info().rank
home = os.environ["HOME"]

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def begin(timeout_s=600, leave_timeout_s=600):
    dist.init_process_group(
        "gloo", init_method=f"file://{home}/meet", rank=rank,
        world_size=rt.info().world_size, timeout=timedelta(seconds=timeout_s),
    )
    # Who leaves or freezes while others still join would have them join for ever.
    store = dist.distributed_c10d._get_default_store()
    store.add("joined", 1)
    while store.add("joined", 0) < rt.info().world_size:
        time.sleep(0.01)
    reporter = JsonLinesReporter(f"{home}/report")
    return rt.run(reporter=reporter, leave_timeout_s=leave_timeout_s)

"""


class Ended:
    """How a rank ended: exit code (None: it had to be killed), and its output."""

    def __init__(self, home, rank, code):
        self.code = code
        self.out = (home / f"{rank}.out").read_text()
        self.err = (home / f"{rank}.err").read_text()


@pytest.fixture(scope="module")
def forge(tmp_path_factory):
    """The process that forks ranks; it goes with this module's tests."""
    packages = str(Path(dsup_runtime.__file__).parents[1])
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": packages}
    command = [sys.executable, "-c", FORGE]
    with Popen(command, env=env, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def live(forge, tmp_path):
    """Let ranks live a script to its end."""
    numbers = count()

    def live_through(code, size=2, frozen=(), limit_s=600):
        home = tmp_path / f"world{next(numbers)}"
        home.mkdir()
        trial = {
            "code": SCRIPT + code,
            "size": size,
            "frozen": frozen,
            "limit_s": limit_s,
            "home": str(home),
            "env": {"WORLD_SIZE": str(size), "HOME": str(home)},
        }
        forge.stdin.write(json.dumps(trial) + "\n")
        forge.stdin.flush()
        ended = json.loads(forge.stdout.readline())
        return home, [Ended(home, rank, code) for rank, code in enumerate(ended)]

    return live_through


def reported(home):
    """Return the outcome in the report, which has one start and one finish."""
    events = [json.loads(line) for line in (home / "report").read_text().splitlines()]
    assert [e["event"] for e in events if e["event"] != "stop"] == ["start", "finish"]
    return events[-1]


def test_a_run_that_ends_well_ends_together_and_the_main_rank_goes_on(live):
    """After leave the group is gone, and the report spans what the main rank does."""
    code = """
with begin() as run:
    dist.barrier()
    run.leave()
    say("group", dist.is_initialized())
    if rt.info().is_main:
        say("report", "finish" in open(f"{home}/report").read())
"""
    home, ranks = live(code)

    assert [rank.code for rank in ranks] == [0, 0]
    assert ranks[0].out == "group False\nreport False\n"
    assert ranks[1].out == "group False\n"
    assert reported(home)["status"] == "FINISHED"


def test_an_error_deferred_on_one_rank_ends_all_in_failure(live):
    """Barrier, destroy, raise, in this order; nobody goes on to post_train."""
    code = """
def look():
    threading.Event().wait(0.4)
    say("held", dist.is_initialized())
    open(f"{home}/looked{rank}", "w").close()

with begin() as run:
    if rank == 2:
        rt.try_or_defer(int, "x", where="an upload")
        while not all(os.path.exists(f"{home}/looked{one}") for one in (0, 1)):
            threading.Event().wait(0.01)
    else:
        threading.Thread(target=look).start()
    say("came", time.monotonic())
    try:
        run.leave()
    finally:
        say("left", time.monotonic())
        say("group", dist.is_initialized())
    say("post_train")
"""
    home, ranks = live(code, size=3)
    said = [dict(line.split() for line in r.out.splitlines()) for r in ranks]

    assert [rank.code for rank in ranks] == [1, 1, 1]
    assert not any("post_train" in words for words in said)
    assert {words["group"] for words in said} == {"False"}
    assert [said[0]["held"], said[1]["held"]] == ["True", "True"]
    assert min(float(words["left"]) for words in said) > float(said[2]["came"])
    assert "ValueError: invalid literal" in ranks[2].err
    for rank in ranks[:2]:
        assert "PeerError: cannot go on, because rank 2, in an upload: Val" in rank.err
    outcome = reported(home)
    assert (outcome["status"], outcome["rank"]) == ("FAILED", 2)
    assert json.loads((home / "2.error").read_text())["message"]["message"].startswith(
        "ValueError: invalid literal"
    )


def test_each_owner_raises_its_own_error_and_the_rest_are_notes(live):
    """With errors on two ranks the lower rank's is the first of the run."""
    code = """
with begin():
    if rank:
        rt.try_or_defer({1: int, 2: float}[rank], "x")
"""
    home, ranks = live(code, size=3)

    assert [rank.code for rank in ranks] == [1, 1, 1]
    assert "because rank 1, in int: ValueError" in ranks[0].err
    assert "also deferred: rank 2, in float: ValueError" in ranks[0].err
    assert "also deferred: rank 2, in float: ValueError" in ranks[1].err
    assert "ValueError: could not convert" in ranks[2].err
    assert "also deferred: rank 1, in int: ValueError" in ranks[2].err
    assert reported(home)["rank"] == 1


def test_an_error_in_backward_ends_the_peers_at_once(live):
    """Nobody waits for the rank that failed, which here ends after all others."""
    code = """
class Spoil(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ArithmeticError("spoiled")

def outlive():
    for other in others:
        while os.path.exists(f"/proc/{other}"):
            threading.Event().wait(0.01)

with begin():
    pids = [None] * 3
    dist.all_gather_object(pids, os.getpid())
    others = [pids[0], pids[2]]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(torch.ones(2, 4))
    if rank == 1:
        atexit.register(outlive)
        loss = Spoil.apply(loss)
    loss.sum().backward()
"""
    home, ranks = live(code, size=3)

    assert [rank.code for rank in ranks] == [1, 1, 1]
    assert "ArithmeticError: spoiled" in ranks[1].err
    outcome = reported(home)
    assert (outcome["status"], outcome["rank"]) == ("FAILED", None)


def test_work_in_flight_holds_up_no_rank_that_fails(live):
    """Its own limit is minutes away; the group's connections are closed under it."""
    code = """
with begin():
    if rank == 1:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        raise ArithmeticError("spoiled")
    dist.broadcast(torch.ones(4), src=1)
"""
    home, ranks = live(code)

    assert [rank.code for rank in ranks] == [1, 1]
    assert "ArithmeticError: spoiled" in ranks[1].err
    assert reported(home)["status"] == "FAILED"


PREEMPTED = """
import subprocess
from torch.utils.data import DataLoader

with begin() as run:
    checkpoints = rt.CheckpointDir(f"{home}/checkpoints", every=1000)
    steps = enumerate(DataLoader(range(10_000), num_workers=2))
    for step, batch in steps:
        dist.all_reduce(batch)
        if rank == 1 and step == 5:
            subprocess.run(["kill", "-TERM", "--", VICTIM.format(os.getpid())])
        if stop := rt.should_stop(step):
            break
    say("stopped", stop.kind, stop.step, next(steps)[0])
    checkpoints.save(stop.step, lambda path: open(f"{path}/{rank}", "w").close())
    run.leave()
    say("post_train")
"""


@pytest.mark.parametrize("victim", ["{}", "-{}"], ids=["one rank", "its whole group"])
def test_sigterm_at_one_rank_commits_a_checkpoint_and_ends_all_with_143(live, victim):
    """All leave at one step; DataLoader workers that got the signal too work on."""
    home, ranks = live(f"VICTIM = {victim!r}\n{PREEMPTED}")
    said = ranks[0].out.split()

    assert [rank.code for rank in ranks] == [143, 143], ranks[1].err
    assert said[:2] == ["stopped", "preempt"]
    assert int(said[3]) == int(said[2]) + 1
    assert ranks[1].out == ranks[0].out
    newest = checkpoints.newest_valid(home / "checkpoints").newest
    assert newest.step == int(said[2])
    outcome = reported(home)
    assert (outcome["status"], outcome["resumable"]) == ("KILLED", True)
    assert (outcome["rank"], outcome["reason"]) == (1, "SIGTERM")


def test_an_exit_0_of_one_rank_is_no_success(live):
    """Who leaves while others still need it fails, and they do not wait for it."""
    code = """
with begin():
    if rank == 1:
        sys.exit(0)
    dist.broadcast(torch.ones(4), src=1)
"""
    home, ranks = live(code)

    assert [rank.code for rank in ranks] == [1, 1]
    assert "BarrierTimeout: cannot pass barrier 'run.leave'" in ranks[1].err
    assert reported(home)["status"] == "FAILED"


def test_an_exit_0_of_all_ranks_is_a_success(live):
    """Many scripts end so; nothing is wrong with it."""
    home, ranks = live("with begin():\n sys.exit(0)")

    assert [rank.code for rank in ranks] == [0, 0]
    assert reported(home)["status"] == "FINISHED"


def test_a_rank_that_fails_is_not_waited_for_at_the_end(live):
    """Those who have come to the end learn of it there, before their limit is over."""
    code = """
with begin():
    if rank == 1:
        raise ValueError("too few rows")
"""
    home, ranks = live(code)

    assert [rank.code for rank in ranks] == [1, 1]
    assert "because rank 1 has ended" in ranks[0].err
    outcome = reported(home)
    assert (outcome["status"], outcome["rank"]) == ("FAILED", 1)


def test_a_rank_that_never_comes_is_named_and_hides_no_error(live):
    """The wait at the end is bounded; an own deferred error is raised before it."""
    code = """
with begin(leave_timeout_s=3):
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 1:
        rt.try_or_defer(int, "x")
    open(f"{home}/comes{rank}", "w").close()
    while not all(os.path.exists(f"{home}/comes{one}") for one in (0, 1)):
        time.sleep(0.001)
"""
    home, ranks = live(code, size=3, frozen=[2])

    assert [rank.code for rank in ranks] == [1, 1, None]
    assert "BarrierTimeout: cannot pass barrier 'run.leave', bec" in ranks[0].err
    assert "because rank 2 did not come" in ranks[0].err
    written = json.loads((home / "1.error").read_text())["message"]
    assert written["message"].startswith("ValueError: invalid literal")
    assert "\nBarrierTimeout: cannot" in written["extraInfo"]["py_callstack"]
    outcome = reported(home)
    assert (outcome["status"], outcome["rank"]) == ("FAILED", 2)


def test_a_model_in_a_cycle_goes_before_its_process_group(live):
    """A trainer of that kind would be the last to hold it, and join gloo's threads."""
    script = """
import gc, weakref
gc.disable()
class Trainer: pass
trainer = Trainer()
trainer.itself = trainer
weakref.finalize(trainer, lambda: say(dist.is_initialized()))
with begin() as run:
    del trainer
    run.leave()
    say(dist.is_initialized())
"""
    _, ranks = live(script)

    assert [rank.out.split() for rank in ranks] == [["True", "False"]] * 2
