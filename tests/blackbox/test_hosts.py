"""The places where dsup must work: containers, other users, limits, dead mounts."""

import contextlib
import os
import select
import signal
import struct
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="makes mounts, namespaces or cgroups"
)

PAUSE = "emit=ready,hang"
AS_PID_1 = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@pytest.mark.root
@needs_root
class TestPid1:
    """As a container's first process, dsup is its init."""

    def test_exit_code_and_orphans(self, run):
        """PID 1 reaps whatever its ranks' helpers leave, and passes the code on."""
        run.start(
            "--nproc 2",
            "*:helper=short,helper=short,emit=ready,wait=ready*2,work=0.5,exit=5",
            wrap=AS_PID_1,
        )

        assert run.ended() == 5, run.console()

    def test_zombies_of_others_are_reaped(self, run):
        """Processes that were orphaned during the run do not stay as zombies."""
        listing = f"ps -A -o stat=,args= > {run.files}/ps"
        look = f"sleep 0.1; {listing}; grep -q ^Z {run.files}/ps || exit 0"
        run.start(
            "--nproc 1 --no-python",
            "-c",
            f"for i in 1 2 3; do (setsid sleep 0.05 &) ; done; sleep 0.5; "
            f"for i in {{1..600}}; do {look}; done",
            script="bash",
            wrap=AS_PID_1,
        )

        assert run.ended() == 0, run.console()
        states = (run.files / "ps").read_text().splitlines()
        assert states
        assert [line for line in states if line.startswith("Z")] == []

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_stop(self, run, proc, number):
        """PID 1 has no default for signals: dsup must handle them itself."""
        run.start("--nproc 2", f"*:{PAUSE}", wrap=AS_PID_1)
        run.wait_event("ready", 2)
        (guard,) = proc.children_of(run.process.pid)
        os.kill(guard, number)

        assert run.ended() == 128 + number, run.console()
        run.nothing_left()

    def test_agent_killed(self, run, proc):
        """The guard of a namespace whose agent is killed ends all, and says so."""
        run.start("--nproc 2", f"*:helper=clear,{PAUSE}", wrap=AS_PID_1)
        run.wait_event("ready", 2)
        (guard,) = proc.children_of(run.process.pid)
        (agent,) = proc.children_of(guard)
        os.kill(agent, signal.SIGKILL)

        assert run.ended() == 137, run.console()
        assert any("agent" in line for line in run.said()), run.console()
        proc.until(lambda: not run.processes(), 600, run.processes)


@pytest.mark.root
@needs_root
def test_no_cgroups_at_all(run):
    """In a container without cgroup rights dsup works, with less evidence."""
    bare = 'mount -t tmpfs -o ro tmpfs /sys/fs/cgroup && exec "$@"'
    run.start(
        "--nproc 2 --max-restarts 1",
        "1@0:emit=ready,wait=ready*2,die=KILL",
        f"*@0:helper=setsid,{PAUSE}",
        "*:emit=again",
        wrap=[*AS_PID_1, "sh", "-c", bare, "sh"],
    )

    assert run.ended() == 0, run.console()
    assert len(run.events("again")) == 2
    run.nothing_left()


@pytest.fixture
def pids_limit():
    """Give a command prefix that puts a run into a cgroup of at most 60 tasks."""
    if not os.access("/sys/fs/cgroup/pids", os.W_OK):
        pytest.skip("no cgroup of the pids controller can be made")
    group = Path(tempfile.mkdtemp(prefix="dsup-test-", dir="/sys/fs/cgroup/pids"))
    (group / "pids.max").write_text("60")
    yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    end = threading.Event()
    while (group / "cgroup.procs").read_text():
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        end.wait(0.05)
    group.rmdir()


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_fork_bomb_under_a_pids_limit(run, pids_limit, restarts):
    """Even when nothing more can be started, the run is ended, cleaned, restarted.

    The limit is the node's: given up, the code says that another node may have room.
    """
    run.start(
        f"--nproc 2 --max-restarts {restarts}",
        "1@0:emit=ready,wait=ready*2,forks=100",
        f"*@0:{PAUSE}",
        "*:emit=again",
        wrap=pids_limit,
    )

    assert run.ended() == (0 if restarts else 193), run.console()
    assert "Resource temporarily unavailable" in run.console()
    assert any("rank 1" in line for line in run.said()), run.console()
    run.nothing_left()


FUSE_INIT = struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 10, 4096, 1, 0, 0, 0)


@pytest.fixture
def lose(mount):
    """Give ``lose.at(directory)``: from then on its server reads and never answers.

    Whoever looks into it sleeps uninterruptibly, SIGKILL or not, as on a lost NFS
    server, until ``lose.release()``. The call returns a function that waits for
    somebody to look.
    """
    servers = []

    def lose_it(where):
        try:
            server = os.open("/dev/fuse", os.O_RDWR)
        except OSError as error:
            pytest.skip(f"cannot open /dev/fuse: {error.strerror}")
        servers.append(server)
        mount("fuse", where, f"fd={server},rootmode=40000,user_id=0,group_id=0")
        (unique,) = struct.unpack_from("<Q", os.read(server, 1 << 20), 8)
        os.write(server, struct.pack("<IiQ", 80, 0, unique) + FUSE_INIT)

        def wait_for_a_look():
            assert select.select([server], [], [], 600)[0], "nobody looked"
            os.read(server, 1 << 20)

        return wait_for_a_look

    def release():
        while servers:
            os.close(servers.pop())

    yield SimpleNamespace(at=lose_it, release=release)
    release()


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(
    "how", [pytest.param("stopped", marks=pytest.mark.soak), "a rank failed"]
)
def test_a_rank_that_no_signal_can_end(run, proc, lose, how):
    """A rank in state D after SIGKILL: named, 193, no restart, within seconds."""
    where = run.base / "dead"
    where.mkdir()
    wait_for_a_look = lose.at(where)
    run.start(
        "--nproc 2 --max-restarts 3 --shutdown-timeout 1",
        f"0:emit=ready,stat={where}/x",
        f"1:emit=ready,wait=go,{'die=KILL' if how == 'a rank failed' else 'hang'}",
    )
    ranks = {event.rank: event.pid for event in run.wait_event("ready", 2)}
    wait_for_a_look()
    run.emit("go")
    if how == "stopped":
        run.signal(signal.SIGTERM)

    assert run.ended() == 193, run.console()
    assert any(str(ranks[0]) in line or "rank 0" in line for line in run.said())
    assert proc.state_of(ranks[0]) == "D"


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(("agent", signal.SIGKILL, 137), id="agent -9"),
        pytest.param(("guard", signal.SIGKILL, 137), id="guard -9"),
        pytest.param(("guard", signal.SIGTERM, 143), id="stopped"),
    ],
)
def test_the_end_while_preparing_a_restart(run, proc, lose, end):
    """The checkpoints' file system hangs: even then dsup can be ended, and is gone."""
    who, number, code = end
    root = run.files / "ckpt"
    root.mkdir()
    run.start(
        f"--nproc 2 --max-restarts 3 --checkpoint-dir {root}",
        "1@0:emit=ready,wait=go,die=KILL",
        f"*@0:helper=clear,{PAUSE}",
        "*:emit=again",
    )
    agent = proc.until(lambda: proc.children_of(run.process.pid), 600, run.console)[0]
    run.wait_event("ready", 2)
    wait_for_a_look = lose.at(root)
    run.emit("go")
    wait_for_a_look()
    os.kill({"agent": agent, "guard": run.process.pid}[who], number)

    assert run.ended() == code, run.console()
    proc.until(
        lambda: all(proc.state_of(pid) == "D" for pid, _ in run.processes()),
        600,
        run.processes,
    )
    lose.release()
    proc.until(lambda: not run.processes(), 600, run.processes)
    assert not run.events("again")


@pytest.mark.root
@needs_root
@pytest.mark.soak
def test_a_checkpoint_directory_that_hangs(run, lose):
    """Nothing is started over what cannot be looked at: 195 when tries are used up."""
    root = run.files / "ckpt"
    root.mkdir()
    run.start(
        f"--nproc 2 --max-restarts 1 --checkpoint-dir {root}",
        "1@0:emit=ready,wait=go,die=KILL",
        f"*@0:{PAUSE}",
        "*:emit=again",
    )
    run.wait_event("ready", 2)
    wait_for_a_look = lose.at(root)
    run.emit("go")
    wait_for_a_look()

    assert run.ended() == 195, run.console()
    assert not run.events("again")
    assert any("cannot look for a checkpoint" in line for line in run.said())
