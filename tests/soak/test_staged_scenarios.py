"""Scenarios that need a hand from outside: two nodes, a colleague, a GPU, dsup's death.

As in ``test_scenarios.py`` all ranks are real; what is staged is said in each test.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dsup.core.verdict import LOOKED_AT

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.timeout(150),
]

FAKE_NVML = Path(__file__).parent.parent / "edges" / "fake_nvml.c"
TEAM = Path(__file__).parent / "scenarios" / "team.py"
RECORDED_KERNEL_LOG = (
    ': > "$SCENARIO_DIR/kmsg"; mount --bind "$SCENARIO_DIR/kmsg" /dev/kmsg'
)


def texts(verdict, source):
    """Return what of the evidence is of a source, and proves something."""
    lines = verdict["evidence"]
    found = [line["text"] for line in lines if line["source"] == source]
    return [text for text in found if not text.startswith(LOOKED_AT)]


def free_port():
    """Return a port that nobody has at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def nodes(run):
    """Give ``nodes(act, rank, *options)``: the consoles of two torchruns, as files.

    Each has two ranks; both are on this machine and believe to be on two.
    """
    started = []

    def start(act, rank, *options):
        where = "--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1"
        port = f"--master-port={free_port()}"
        env = run.environ({"TEAM_WAIT_S": "5"}) | {"OMP_NUM_THREADS": "1"}
        logs = [run.files / f"node{number}.log" for number in (0, 1)]
        for number, log in enumerate(logs):
            words = *where, port, f"--node-rank={number}", *options
            command = [sys.executable, "-m", "torch.distributed.run", *words]
            with log.open("wb") as console:
                started.append(
                    subprocess.Popen(
                        [*command, str(TEAM), act, str(rank)],
                        env=env,
                        stdin=subprocess.DEVNULL,
                        stdout=console,
                        stderr=subprocess.STDOUT,
                    )
                )
        for process in started:
            assert process.wait(90) != 0
        return logs

    yield start
    for process in started:
        process.terminate()
        process.wait(40)


@pytest.mark.parametrize("options", [(), ("--tee=3",)], ids=["plain", "tee"])
def test_the_logs_of_two_nodes(nodes, diagnose, options):
    """Rank 3 raises on the second node; every console ends with a wrong summary.

    Both agents report the ranks of their own node, and those of the first are victims
    all: only both logs together name the one that raised something of its own.
    """
    [told] = diagnose(*nodes("leaves:raise_alone", 3, *options))

    assert (told["cause"], told["first_ranks"]) == ("python_exception", [3]), told
    assert "bad batch 17" in told["summary"]
    assert any("bad batch 17" in line for line in texts(told, "log")), told


def test_the_log_of_the_victims_node_alone(nodes, diagnose):
    """Of the other node there is no log: no rank of this one may be called the first.

    Its ranks report closed connections only, so the first is elsewhere, or unknown.
    """
    log, _ = nodes("leaves:raise_alone", 3)
    [told] = diagnose(log)

    assert not {0, 1} & set(told["first_ranks"]), told
    assert told["certainty"] != "proven"


def test_a_folder_of_rank_logs(launch, run, diagnose):
    """What ranks wrote is enough: directories named by rank, and nothing of dsup's.

    There are no ends and no clock, so it is not proven, but the exception is one of
    the rank's own and the others' are not.
    """
    launch("leaves:raise_alone", (2,))
    run.ended(90)
    folder = run.files / "saved-logs"
    for rank in run.run_dir().glob("attempt_0/[0-9]*"):
        for log in rank.glob("*.log"):
            (folder / rank.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, folder / rank.name / log.name)
    [told] = diagnose(folder)

    assert (told["cause"], told["first_ranks"]) == ("python_exception", [2]), told
    assert "bad batch 17" in told["summary"]


def test_a_colleague_kills_a_rank(launch, run, verdict):
    """By hand, with kill -9: no memory was short, so somebody sent the signal."""
    launch("leaves:ask", (2,), env={"TEAM_WAIT_S": "40"})
    [asked] = run.wait_event("here", within_s=60)
    os.kill(asked.pid, signal.SIGKILL)
    told = verdict()

    assert (told["cause"], told["first_ranks"]) == ("killed", [2]), told
    assert told["certainty"] in {"proven", "likely"}
    assert any("SIGKILL" in line for line in texts(told, "status")), told
    assert told["exit"]["code"] == 137


@pytest.fixture
def kill_the_agent(run, proc):
    """Give ``kill_the_agent(after)``: do it when the journal has that word.

    It returns the run directory, once the guard has ended the ranks.
    """

    def journal():
        return b"".join(file.read_bytes() for file in run.logs.glob("*/events.jsonl"))

    def kill(after):
        proc.until(lambda: after.encode() in journal(), 60, run.console)
        [agent] = proc.children_of(run.process.pid)
        os.kill(agent, signal.SIGKILL)
        assert run.ended(10) == 137
        return run.run_dir()

    return kill


def test_the_agent_is_killed(launch, run, kill_the_agent, diagnose):
    """The guard ends the ranks; afterwards the directory alone says what happened."""
    launch("leaves:ask", (1,), nproc=2, env={"TEAM_WAIT_S": "60"})
    run.wait_event("here", within_s=60)
    [told] = diagnose(kill_the_agent("started"))

    assert (told["cause"], told["first_ranks"]) == ("agent_killed", []), told
    assert told["certainty"] in {"proven", "likely"}
    run.nothing_left()


@pytest.mark.parametrize(
    ("act", "words"),
    [("without_words", "exit code 3"), ("report_and_leave", "bad batch 17")],
)
def test_the_agent_is_killed_while_it_settles(
    launch, kill_the_agent, diagnose, act, words
):
    """A rank had ended with 3 before: two deaths, each told, the rank's first.

    No judge has looked at it, but journal and rank logs are in the directory: what the
    rank printed is part of the answer.
    """
    launch(f"leaves:{act}", (1,), "-", nproc=2, options="--settle 60")
    first, last = diagnose(kill_the_agent("rank_exited"))

    assert (first["cause"], first["first_ranks"]) == ("python_exception", [1]), first
    assert words in first["summary"] + str(first["evidence"]), first
    assert last["cause"] == "agent_killed"


def test_the_port_is_in_use(launch, run, holder, diagnose):
    """--master-port of somebody else: no rank is started, and the holder is named."""
    launch("leaves:ask", (1,), nproc=2, options=f"--master-port {holder}")
    assert run.ended(30) != 0
    [told] = diagnose(run.run_dir())

    assert (told["cause"], told["first_ranks"]) == ("port_in_use", []), told
    assert str(holder) in told["summary"]


@pytest.fixture
def nvml(built, run):
    """Give ``nvml(mode)``: variables with which dsup finds an NVML with two GPUs.

    They are well until a rank says otherwise; the second is the one that fails.
    """

    def variables(mode):
        library = built("nvml/libnvidia-ml.so.1", FAKE_NVML.read_text(), "-x", "c")
        return {
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKE_NVML_MODE": mode,
            "FAKE_NVML_WHEN": str(run.files / "sickens"),
            "FAKE_NVML_SEEN": str(run.files / "seen"),
        }

    return variables


@pytest.mark.root
@pytest.mark.parametrize("act", ["gpus:fall_off_the_bus", "gpus:fall_silently"])
def test_a_gpu_falls_off_the_bus(launch, verdict, nvml, act):
    """Xid 79 names no rank: its PCI address does, which NVML told at the start.

    The kernel log is a recorded one; the rank raises what CUDA says then, or is stuck
    in the driver while the other one times out.
    """
    launch(act, (1,), nproc=2, env=nvml("lost"), stage=RECORDED_KERNEL_LOG)
    told = verdict()

    assert (told["cause"], told["first_ranks"]) == ("gpu_hardware", [1]), told
    assert told["certainty"] == "proven"
    assert any("79" in line for line in texts(told, "kernel")), told
    assert "Xid 79" in told["summary"]


@pytest.mark.root
def test_gpu_memory_fails(launch, verdict, nvml):
    """NVML counts an uncorrectable error that was not there; the rank's words fit."""
    launch("gpus:double_bit", (1,), nproc=2, env=nvml("ecc"))
    told = verdict()

    assert (told["cause"], told["first_ranks"]) == ("gpu_hardware", [1]), told
    assert any("uncorrectable" in line for line in texts(told, "nvml")), told
