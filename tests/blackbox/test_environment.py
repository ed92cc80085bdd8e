"""What a rank is given: its environment, its arguments, its program, its port."""

import json
import os
import re
import shlex
import socket

import pytest

OF_RANK_1_OF_2 = {
    "LOCAL_RANK": "1",
    "RANK": "1",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_NAME": "default",
    "ROLE_RANK": "1",
    "ROLE_WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "WORLD_SIZE": "2",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "OMP_NUM_THREADS": "1",
}
HAVE_A_VALUE = (
    "MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_ERROR_FILE "
    "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_SIGNALS_TO_HANDLE"
).split()
OF_DSUP = "DSUP_RUN_DIR DSUP_HEARTBEAT DSUP_GRACE_S DSUP_COMM_TIMEOUT_S".split()
OF_SYSTEMD = {
    "NOTIFY_SOCKET": "/run/systemd/notify",
    "WATCHDOG_USEC": "1000000",
    "WATCHDOG_PID": "1",
    "LISTEN_FDS": "1",
    "LISTEN_PID": "1",
    "INVOCATION_ID": "0123456789abcdef0123456789abcdef",
}
OF_LIBC = 0b11 << 31
"""Signals 32 and 33 are glibc's own; its posix_spawn leaves them ignored."""


def environment(run):
    """Return the environment of each rank, by rank, once the run ended well."""
    assert run.ended() == 0, run.console()
    return {event.rank: event.env for event in run.events("env")}


def test_each_rank_runs_once(run):
    """B1: --nproc-per-node 4 starts ranks 0 to 3, one each."""
    run.start("--standalone --nproc-per-node 4", f"*:touch={run.tmp}")

    assert run.ended() == 0, run.console()
    assert sorted(os.listdir(run.tmp)) == ["0", "1", "2", "3"]


def test_one_rank_by_default(run):
    """B2: without options there is one rank, and OMP_NUM_THREADS is left alone."""
    run.start("", "*:env")

    env = environment(run)
    assert list(env) == [0]
    assert env[0]["WORLD_SIZE"] == "1"
    assert "OMP_NUM_THREADS" not in env[0]


def test_every_variable_of_torchrun_is_set(run):
    """B3: a rank finds every variable that torchrun always sets, with its value."""
    run.start("--nproc-per-node 2", "*:env")

    env = environment(run)[1]
    assert {name: env.get(name) for name in OF_RANK_1_OF_2} == OF_RANK_1_OF_2
    assert [name for name in HAVE_A_VALUE if not env.get(name)] == []
    assert "NODE_RANK" not in env
    assert "PYTHONUNBUFFERED" not in env


@pytest.mark.dsup_only
def test_every_variable_of_dsup_is_set(run):
    """A rank finds dsup's own variables; there's nothing to resume from yet."""
    run.start("--nproc-per-node 2 --shutdown-timeout 7 --comm-timeout 90", "*:env")

    env = environment(run)[1]
    assert [name for name in OF_DSUP if not env.get(name)] == []
    assert env["DSUP_ATTEMPT"] == "0"
    assert env["DSUP_RESUME_FROM"] == ""
    assert float(env["DSUP_GRACE_S"]) == 7.0
    assert float(env["DSUP_COMM_TIMEOUT_S"]) == 90.0
    assert env["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "90"
    assert env["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert "DSUP_BOOTSTRAP" not in env


@pytest.mark.dsup_only
def test_the_bootstrap_leaves_no_trace(run):
    """A rank's PYTHONPATH is the user's own, and is absent if the user had none."""
    run.start("--nproc-per-node 1", "*:env", env={"PYTHONPATH": sources(run)})

    assert environment(run)[0]["PYTHONPATH"] == sources(run)


def sources(run):
    """Return the PYTHONPATH that the launcher itself needs."""
    return run.environ({})["PYTHONPATH"]


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_preset_omp_num_threads_is_kept(run, nproc):
    """B4: OMP_NUM_THREADS of the user stays, and nothing is said about it."""
    run.start(f"--nproc-per-node {nproc}", "*:env", env={"OMP_NUM_THREADS": "7"})

    assert environment(run)[0]["OMP_NUM_THREADS"] == "7"
    assert "OMP_NUM_THREADS" not in run.console()


def test_what_the_parent_says_about_ranks_is_overwritten(run):
    """B6: other variables pass through; RANK and its like are the launcher's."""
    run.start("", "*:env", env={"FOO": "bar", "RANK": "7", "WORLD_SIZE": "9"})

    env = environment(run)[0]
    assert (env["FOO"], env["RANK"], env["WORLD_SIZE"]) == ("bar", "0", "1")


@pytest.mark.dsup_only
def test_the_service_manager_is_the_agents_alone(run):
    """A rank that answered systemd's watchdog would hide a dead agent."""
    run.start("", "*:env", env=OF_SYSTEMD)

    assert set(environment(run)[0]).isdisjoint(OF_SYSTEMD)


def test_arguments_of_the_script_are_its_own(run):
    """B7: all that follows the script is handed over as it is, options and -- too."""
    given = ["a", "--b", "--", "c", "--nproc-per-node", "9", "", "ä b"]
    run.start("--nproc-per-node 1", "*:argv", *given)

    assert run.ended() == 0, run.console()
    assert [event.argv[2:] for event in run.events("argv")] == [given]


@pytest.mark.dsup_only
def test_dollars_are_kept(run):
    """B9: torchrun's macro is filled in, and no other dollar is touched."""
    words = ("a$$b", "$HOME", "$${local_rank}", "$local_rank", "${local_rank}")
    run.start("", "*:argv", *words)

    assert run.ended() == 0, run.console()
    (event,) = run.events("argv")
    assert event.argv[2:] == ["a$$b", "$HOME", "$${local_rank}", "0", "0"]


def test_module_runs_as_module(run):
    """B10: -m runs a module of the current directory, as python -m does."""
    package = run.files / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mod.py").write_text(
        "import sys\nprint(__name__, __package__, sys.argv[1:])\n"
    )
    run.start("-m", "x", "-m", script="pkg.mod", cwd=run.files)

    assert run.ended() == 0, run.console()
    assert "__main__ pkg ['x', '-m']" in run.console()


def test_any_program_can_be_a_rank(run):
    """B11: --no-python runs the script itself, found on PATH."""
    run.start("--no-python --nproc-per-node 2", "-c", "echo r$RANK", script="bash")

    assert run.ended() == 0, run.console()
    assert {"r0", "r1"} <= set(run.console().split())


def test_python_exec_names_the_interpreter(run):
    """PYTHON_EXEC is the interpreter of the ranks; it is called with -u."""
    python = run.files / "python"
    python.write_text(f'#!/bin/sh\necho "called $1"\nexec {shlex.quote(exe())} "$@"\n')
    python.chmod(0o755)
    run.start("", "*:env", env={"PYTHON_EXEC": str(python)})

    assert environment(run)[0]["RANK"] == "0"
    assert "called -u" in run.console()


def exe():
    """Return this interpreter's path."""
    return os.readlink("/proc/self/exe")


FROM_PET = {
    "PET_NPROC_PER_NODE": "2",
    "PET_STANDALONE": "1",
    "PET_MAX_RESTARTS": "5",
}


@pytest.mark.parametrize(
    ("options", "env", "world", "restarts"),
    [
        pytest.param("", FROM_PET, 2, "5", id="B13 PET variables are options"),
        pytest.param(
            "--nproc-per-node 1 --max-restarts 4",
            FROM_PET,
            1,
            "4",
            id="B13 the command line wins",
        ),
        pytest.param(
            "",
            {"DSUP_NPROC": "2", "DSUP_MAX_RESTARTS": "1"},
            2,
            "1",
            id="DSUP variables are options",
            marks=pytest.mark.dsup_only,
        ),
        pytest.param("--nproc_per_node=2", {}, 2, "0", id="underscores as in torchrun"),
        pytest.param(
            "--nproc-per-node=cpu",
            {},
            len(os.sched_getaffinity(0)),
            "0",
            id="nproc cpu",
        ),
    ],
)
def test_options_by_variable(run, options, env, world, restarts):
    """Options come from the command line, else from variables, else from defaults."""
    run.start(options, "*:env", env=env)

    envs = environment(run)
    assert len(envs) == world
    assert envs[0]["TORCHELASTIC_MAX_RESTARTS"] == restarts


def test_no_logs_if_so_wished(run):
    """B52: --log-dir /dev/null, and there is no error file either."""
    run.start("--log-dir /dev/null", "*:env", logs=False)

    assert environment(run)[0]["TORCHELASTIC_ERROR_FILE"] == ""


@pytest.mark.dsup_only
def test_who_holds_the_port_is_named(run):
    """B54: --master-port P with P taken says who has it, and is not started."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        run.start(f"--master-port {port} --nproc-per-node 2", "*:emit=started")

        assert run.ended() in (1, 2, 195), run.console()
    assert not run.events("started")
    assert str(port) in run.console()
    assert str(os.getpid()) in run.console()
    assert "Traceback" not in run.console()


@pytest.mark.dsup_only
def test_the_masters_port_is_free_for_rank_0(run):
    """MASTER_PORT can be listened on by rank 0, and by others once all is over."""
    listen = (
        "import os, socket; socket.create_server(('', int(os.environ['MASTER_PORT'])))"
    )
    run.start("--no-python", "-c", listen, script=exe())

    assert run.ended() == 0, run.console()


@pytest.mark.dsup_only
def test_a_rank_gets_no_stray_descriptor(run):
    """Open are 0, 1, 2 and what a variable names; nothing of dsup's or its parent's."""
    reader, writer = os.pipe()
    run.start("--nproc 2", "*:fds,env", pass_fds=(reader, writer))
    os.close(reader)
    os.close(writer)

    for rank, env in environment(run).items():
        told = [value for name, value in env.items() if name.startswith("DSUP_")]
        named = {int(fd) for value in told for fd in re.findall(r"^fd:(\d+)", value)}
        (fds,) = [event.fds for event in run.events("fds") if event.rank == rank]
        assert set(fds) == {0, 1, 2} | named


def test_a_rank_starts_with_clean_signals(run):
    """No signal is blocked or ignored in a program that asked for neither."""
    run.start("--no-python", "Sig(Blk|Ign)", "/proc/self/status", "-E", script="grep")

    assert run.ended() == 0, run.console()
    masks = [int(mask, 16) for mask in re.findall(r"Sig\w+:\s*(\w+)", run.console())]
    assert [mask & ~OF_LIBC for mask in masks] == [0, 0]


def test_standard_input_is_inherited(run):
    """What is typed or piped into the launcher reaches the rank."""
    path = run.files / "typed"
    path.write_text("some words\n")
    with path.open() as typed:
        run.start("--no-python", script="cat", stdin=typed)

    assert run.ended() == 0, run.console()
    assert "some words" in run.console()


@pytest.mark.dsup_only
def test_logs_are_where_torchrun_puts_them(run):
    """The run directory holds attempt_N/RANK/stdout.log and stderr.log, whole."""
    run.start("--nproc-per-node 2", "*:say=to-out,warn=to-err")

    assert run.ended() == 0, run.console()
    for rank in "01":
        logs = run.run_dir() / "attempt_0" / rank
        assert (logs / "stdout.log").read_text() == "to-out\n"
        assert (logs / "stderr.log").read_text() == "to-err\n"
    lines = (run.run_dir() / "events.jsonl").read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    assert json.loads((run.run_dir() / "run.json").read_text())


@pytest.mark.dsup_only
def test_a_dry_run_starts_nothing(run):
    """--dry-run shows what would be started, each value with its origin."""
    run.start(
        "--dry-run --nproc-per-node 3", "*:emit=started", env={"PET_MAX_RESTARTS": "2"}
    )

    assert run.ended() == 0, run.console()
    assert not run.events("started")
    assert "act.py" in run.console()
    assert "PET_MAX_RESTARTS" in run.console()


@pytest.mark.dsup_only
@pytest.mark.parametrize("code", ["130", "143", "193", "194", "195"])
def test_the_policy_explains_itself(run, code):
    """--explain-policy prints causes and codes, without a script."""
    run.start("--explain-policy", script=None)

    assert run.ended() == 0, run.console()
    assert code in run.console()
