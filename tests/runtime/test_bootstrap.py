"""The bootstrap: a rank dies with its agent; nothing else tells that dsup is there."""

import ast
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from dsup_runtime import contract

BOOTSTRAP = contract.BOOTSTRAP_DIR
SEE = """
import json, os, sys, threading
names = set(sys.modules) - {"_ctypes", "faulthandler"}
print(json.dumps({
    "path": sys.path, "argv": sys.argv, "main": sorted(globals()),
    "modules": sorted(names), "environ": dict(os.environ),
    "threads": threading.active_count(), "fds": os.listdir("/proc/self/fd"),
}))
"""
DEATH_SIGNAL = """
import ctypes
told = ctypes.c_int()
assert ctypes.CDLL(None).prctl(2, ctypes.byref(told)) == 0
print(told.value)
"""


def bootstrapped(pythonpath="", agent=None):
    """Return the variables that dsup gives a rank, for a user's own PYTHONPATH."""
    entries = [BOOTSTRAP, *([pythonpath] if pythonpath else [])]
    return {
        "PYTHONPATH": os.pathsep.join(entries),
        contract.BOOTSTRAP: str(os.getpid() if agent is None else agent),
    }


def plain(pythonpath=""):
    """Return the variables that the same rank has without dsup."""
    return {"PYTHONPATH": pythonpath}


@pytest.fixture
def compare(run):
    """Run the same command without and with the bootstrap."""

    def both(command, pythonpath="", **options):
        return [
            run(command, env=environment(pythonpath), **options)
            for environment in (plain, bootstrapped)
        ]

    return both


@pytest.mark.parametrize(
    "pythonpath",
    [
        pytest.param("", id="none of the user's"),
        pytest.param("/usr/share", id="one entry"),
        pytest.param("/usr/share::/srv:", id="empty entries mean something"),
    ],
)
@pytest.mark.parametrize("how", ["-c", "script", "-m"])
def test_user_code_sees_what_it_would_see_without_dsup(
    compare, tmp_path, pythonpath, how
):
    """Path, argv, environment, main module, modules, threads, descriptors: equal."""
    (tmp_path / "see.py").write_text(SEE)
    start = {"-c": ["-c", SEE], "script": ["see.py"], "-m": ["-m", "see"]}[how]
    command = [sys.executable, *start, "--lr", "1"]
    without, with_dsup = compare(command, pythonpath, cwd=tmp_path)

    expected, seen = json.loads(without[1]), json.loads(with_dsup[1])
    if not pythonpath:
        expected["environ"].pop("PYTHONPATH")
    assert seen == expected
    assert with_dsup[2] == without[2]


def test_the_directory_is_removed_wherever_it_is(run, tmp_path):
    """A wrapper that puts its own entry first does not bring it back."""
    env = {"PYTHONPATH": f"{tmp_path}:{BOOTSTRAP}:/srv", contract.BOOTSTRAP: "1"}
    _, told, _ = run(SEE, env=env)

    seen = json.loads(told)
    assert seen["environ"]["PYTHONPATH"] == f"{tmp_path}:/srv"
    assert BOOTSTRAP not in seen["path"]
    assert contract.BOOTSTRAP not in seen["environ"]


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        pytest.param(None, signal.SIGKILL, id="child of the agent"),
        pytest.param(1 << 22, 0, id="child of another"),
        pytest.param("x", 0, id="not a pid"),
        pytest.param("", 0, id="no pid"),
    ],
)
def test_only_a_child_of_the_agent_dies_with_it(run, agent, told):
    """The kernel is asked to kill the rank when its parent, being the agent, dies."""
    result = run(DEATH_SIGNAL, env=bootstrapped(agent=agent))

    assert result == (0, f"{int(told)}\n", "")


def test_a_rank_behind_a_shell_outlives_the_shell(run):
    """With a script in between, the death of the shell means nothing."""
    shell = ["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, DEATH_SIGNAL]

    assert run(shell, env=bootstrapped()) == (0, "0\n", "")


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_an_isolated_python_runs_without_the_bootstrap(run, flag):
    """Where Python ignores PYTHONPATH or site, the script runs all the same."""
    command = [sys.executable, flag, "-c", DEATH_SIGNAL]

    assert run(command, env=bootstrapped()) == (0, "0\n", "")


AGENT = """
import os, sys
env = dict(os.environ, DSUP_BOOTSTRAP=str(os.getpid()), PYTHONPATH=os.environ["RANKS"])
rank = os.posix_spawn(sys.executable, [sys.executable, "-c", sys.argv[1]], env)
os.waitpid(rank, 0)
"""
RANK = "import sys; print('null', flush=True); sys.stdin.readline()"


def test_no_rank_outlives_a_killed_agent(start):
    """SIGKILL of the agent takes its ranks with it, without any clean-up of dsup's."""
    command = [sys.executable, "-c", AGENT, RANK]
    agent = start(command, env={"RANKS": BOOTSTRAP})
    agent.hear()
    agent.kill()

    # The rank holds the same stdout: it ends only with the rank.
    assert agent.stdout.read() == ""


REAPER = """
import ctypes, os, signal, sys
assert ctypes.CDLL(None).prctl(36, 1) == 0  # PR_SET_CHILD_SUBREAPER
ready, report = os.pipe()
os.set_inheritable(report, True)
env = dict(os.environ, REPORT=str(report))
command = [sys.executable, "-c", os.environ["AGENT"], "print('user code')"]
agent = os.posix_spawn(sys.executable, command, env)
os.close(report)
assert os.read(ready, 1) == b"."
os.kill(agent, signal.SIGKILL)
statuses = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)]
print(statuses)
"""
LATE = """
import os, select
def dlopen(*_): pass
def dlsym(*_): pass
def call_function(*_):
    agent = os.getppid()
    os.write(int(os.environ["REPORT"]), b".")
    while os.getppid() == agent:
        select.select([], [], [], 0.001)
"""


def test_a_rank_that_lost_its_agent_on_the_way_ends_before_user_code(run, tmp_path):
    """The agent may die just before the kernel knows: the rank then sees it itself."""
    (tmp_path / "_ctypes.py").write_text(LATE)
    env = {"RANKS": f"{BOOTSTRAP}:{tmp_path}", "AGENT": AGENT}

    assert run(REAPER, env=env) == (0, "[-9, 137]\n", "")


@pytest.mark.parametrize(
    "module",
    [
        pytest.param("raise ImportError('built without it')", id="missing"),
        pytest.param("", id="other names"),
        pytest.param(
            "dlopen = dlsym = call_function = lambda: None", id="other arguments"
        ),
        pytest.param("def dlopen(*_): raise OSError", id="refused"),
    ],
)
def test_a_python_without_the_private_interface_runs_the_script(run, tmp_path, module):
    """What the bootstrap cannot have costs the user nothing and prints nothing."""
    (tmp_path / "_ctypes.py").write_text(module)

    result = run("print('user code')", env=bootstrapped(str(tmp_path)))
    assert result == (0, "user code\n", "")


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(
            "import sys; sys.mine = __name__, __file__, len(globals())", id="works"
        ),
        pytest.param("raise ValueError('mine')", id="fails"),
        pytest.param("import no_such_module", id="lacks a module"),
        pytest.param("import sitecustomize.more", id="misuses its name"),
        pytest.param("raise SystemExit(5)", id="exits"),
        pytest.param(None, id="is missing"),
    ],
)
def test_the_users_own_sitecustomize_runs_as_ever(compare, tmp_path, own):
    """What the user's sitecustomize does, prints and leaves behind stays the same.

    Only the traceback of Python's fatal error at SystemExit has a frame more.
    """
    if own is not None:
        (tmp_path / "sitecustomize.py").write_text(own)
    script = (
        "import sys; print(sys.__dict__.get('mine'), 'sitecustomize' in sys.modules)"
    )
    results = compare(script, str(tmp_path))

    without, with_dsup = (
        (status, told, [line for line in error.splitlines() if line[:2] != "  "])
        for status, told, error in results
    )
    assert with_dsup == without


SPAWNING = """
import multiprocessing, os, sys
class Mine:
    def __init__(self, told): self.told = told
def look():
    return Mine([BOOTSTRAP in sys.path, "DSUP_BOOTSTRAP" in os.environ,
                 os.environ.get("PYTHONPATH"), __name__])
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.apply(look).told)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "name"),
    [("spawn", "__mp_main__"), ("forkserver", "__mp_main__"), ("fork", "__main__")],
)
def test_multiprocessing_works_as_ever(run, tmp_path, method, name):
    """Children of a rank see nothing of dsup's, and its main module can be pickled."""
    script = tmp_path / "train.py"
    script.write_text(f"BOOTSTRAP = {BOOTSTRAP!r}\n{SPAWNING}")
    command = [sys.executable, str(script), method]

    assert run(command, env=bootstrapped()) == (
        0,
        f"[False, False, None, '{name}']\n",
        "",
    )


@pytest.mark.parametrize("name", ["sitecustomize.py", "_dsup_notes.py"])
def test_older_interpreters_can_read_it(name):
    """A job may have a Python older than dsup's own: 3.8 at least is understood."""
    source = Path(BOOTSTRAP, name).read_text()

    ast.parse(source, feature_version=(3, 8))


def test_with_notes_user_code_sees_the_socket_and_nothing_else(run, tmp_path):
    """A variable and a descriptor that other programs do not get are all there is."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        notes = {contract.NOTES: contract.format_notes(theirs.fileno())}
        fds = {"pass_fds": (theirs.fileno(),)}
        _, without, _ = run(SEE, env=plain(str(tmp_path)) | notes, **fds)
        _, with_dsup, _ = run(SEE, env=bootstrapped(str(tmp_path)) | notes, **fds)

    assert json.loads(with_dsup) == json.loads(without)
