"""The bootstrap's hooks and fault handler: nobody but the agent sees any of it."""

import signal
import subprocess
import sys

import pytest

from dsup_runtime import contract


def test_no_module_of_the_users_is_run_for_a_note(told, tmp_path):
    """A script's neighbours may have names of the standard library."""
    for name in ("json", "socket", "traceback", "stat", "typing"):
        (tmp_path / f"{name}.py").write_text("print('mine')")
    result, [note] = told("1/0", cwd=tmp_path)

    assert result.stdout == ""
    assert note["type"] == "ZeroDivisionError"


def test_a_program_that_a_rank_starts_does_not_have_the_socket(told):
    """What it would write there would be heard as the rank's word."""
    script = (
        "import os\nnumber = os.environ['DSUP_NOTES'][3:]\n"
        "os.execlp('test', 'test', '-e', f'/proc/self/fd/{number}')"
    )

    assert told(script)[0].returncode == 1


STRANGER = """
import os, socket
own = int(os.environ["DSUP_NOTES"][3:])
reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
reader.setblocking(False)
os.dup2(writer.fileno(), own)
try:
    1 / 0
finally:
    import atexit
    @atexit.register
    def look():
        try:
            print("heard", reader.recv(9))
        except BlockingIOError:
            print("nothing")
"""


def test_a_socket_of_the_users_at_that_number_gets_nothing(told):
    """The system log's is of the same kind, and may come to have the number."""
    result, notes = told(STRANGER)

    assert (result.stdout, notes) == ("nothing\n", [])


@pytest.mark.parametrize(
    "value",
    ["", "fd:", "fd:x", "fd:-1", "fd:1", "fd:999", "fd:" + "9" * 9999, "3", "fd:²"],
)
def test_a_variable_that_names_no_socket_of_ours_changes_nothing(alone, value):
    """It may be another program's, or what is left of a rank that has ended."""
    result = alone(
        "1/0",
        {"PYTHONPATH": contract.BOOTSTRAP_DIR, contract.NOTES: value},
    )

    assert result.stderr == alone("1/0", {}).stderr


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("def f(): raise ValueError(17)\nf()", id="an exception"),
        pytest.param("import sys; sys.exit(3)", id="an exit code"),
        pytest.param("import sys; sys.exit('because')", id="an exit with a text"),
        pytest.param("raise KeyboardInterrupt", id="an interrupt"),
        pytest.param("class E(Exception):\n def __str__(self): 1/0\nraise E", id="str"),
        pytest.param("def f(): f()\nf()", id="no stack left"),
        pytest.param(
            "import sys\nsys.excepthook = lambda *_: print('own')\n1/0", id="own"
        ),
        pytest.param("import os\nos.environ.clear()\n1/0", id="no environment"),
        pytest.param("import os\nos.closerange(3, 99)\n1/0", id="no descriptor"),
    ],
)
def test_a_user_sees_what_python_alone_would_show(told, alone, script):
    """Output and exit code are the same to the byte."""
    plain = alone(script, {})
    with_dsup, _ = told(script)

    assert with_dsup.stderr == plain.stderr
    assert (with_dsup.stdout, with_dsup.returncode) == (plain.stdout, plain.returncode)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("import sys; sys.exit(3)", id="an exit"),
        pytest.param("raise KeyboardInterrupt", id="an interrupt"),
        pytest.param(
            "import sys, threading\nthreading.Thread(target=sys.exit).start()",
            id="a thread's exit",
        ),
        pytest.param("pass", id="success"),
        pytest.param(
            "import os\nfd = int(os.environ['DSUP_NOTES'][3:])\n"
            "os.dup2(os.open('/dev/null', 1), fd)\n1/0",
            id="another file has the number",
        ),
    ],
)
def test_nothing_is_told_of(told, script):
    """No exception was left uncaught, or there is nobody to tell."""
    assert told(script)[1] == []


def test_a_full_socket_holds_nobody_up(told):
    """A rank that cannot tell prints its traceback and ends."""
    flood = (
        "import os, socket\n"
        "s = socket.socket(fileno=os.dup(int(os.environ['DSUP_NOTES'][3:])))\n"
        "try:\n while True: s.send(b'{}', socket.MSG_DONTWAIT)\n"
        "except BlockingIOError: pass\n"
        "raise ValueError('told nobody')"
    )
    result, notes = told(flood)

    assert result.returncode == 1
    assert "ValueError: told nobody" in result.stderr
    assert {} in notes


SEGFAULT = "import ctypes; ctypes.string_at(0)"


@pytest.mark.parametrize(
    ("bootstrap", "printed"),
    [("0", True), ("0:no-faulthandler", False)],
    ids=["armed", "not wanted"],
)
def test_a_crash_prints_where_python_was(told, bootstrap, printed):
    """With the fault handler stderr has the stack; without it the kernel has a line."""
    result, _ = told(SEGFAULT, bootstrap=bootstrap)

    assert result.returncode == -signal.SIGSEGV
    assert ("Fatal Python error: Segmentation fault" in result.stderr) is printed


def test_a_fault_handler_of_the_users_is_left_alone(told, early, tmp_path, bare):
    """Whoever armed one first keeps it."""
    log = tmp_path / "crash.log"
    more = early(
        f"import faulthandler\nf = open({str(log)!r}, 'w')\nfaulthandler.enable(f)"
    )
    result, _ = told(SEGFAULT, more=more, python=bare)

    assert "Segmentation fault" in log.read_text()
    assert result.stderr == ""


def test_a_closed_stderr_gets_no_fault_handler():
    """Its number may be another file's by the time of the crash."""
    script = "import faulthandler; print(faulthandler.is_enabled())"
    line = f'exec "{sys.executable}" -c "{script}" 2>&-'
    result = subprocess.run(
        ["/bin/sh", "-c", line],
        env={"PYTHONPATH": contract.BOOTSTRAP_DIR, contract.BOOTSTRAP: "0"},
        stdout=subprocess.PIPE,
        check=True,
    )

    assert result.stdout == b"False\n"


@pytest.mark.torch
@pytest.mark.slow
def test_torchs_own_hook_keeps_both_its_prefix_and_the_note(told, alone):
    """Torch wraps the hook once a group exists; the note still comes."""
    script = (
        "import os, torch.distributed as dist\n"
        "os.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1',"
        " MASTER_PORT='0')\n"
        "dist.init_process_group('gloo')\n"
        "dist.destroy_process_group()\n"  # its threads may abort at the exit
        "raise ValueError('told twice')"
    )
    result, [note] = told(script)

    assert "[rank0]: ValueError: told twice" in result.stderr
    assert result.stderr == alone(script, {}).stderr
    assert (note["text"], note["line"]) == ("told twice", 5)
