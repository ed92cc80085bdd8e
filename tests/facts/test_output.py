"""What a rank's last words say: exceptions and crashes as real programs print them."""

import subprocess
import sys
import textwrap

import pytest

from dsup.facts.output import last_words


def stream(*lines):
    """Return lines as a program writes them."""
    return "".join(f"{line}\n" for line in lines).encode()


def traceback(*named, file="train.py", line=5):
    """Return the lines of a traceback that ends with an exception's text."""
    head = "Traceback (most recent call last):"
    return [head, f'  File "{file}", line {line}, in main', "    step()", *named]


@pytest.fixture
def script(tmp_path):
    """Run a script; return what its stderr says."""

    def run(text, **options):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        ran = subprocess.run(
            [sys.executable, str(path)], capture_output=True, check=False, **options
        )
        return last_words(ran.stderr, ran.stdout, first_line=1)

    return run


PROGRAMS = {
    "raise": ("def main():\n  raise ValueError('bad')\nmain()", "ValueError: bad", 2),
    "several lines": ("raise ValueError('one\\ntwo')", "ValueError: one two", 1),
    "no text": ("assert 0", "AssertionError", 1),
    "a note": (
        "e = ValueError('bad')\ne.add_note('at step 5')\nraise e",
        "ValueError: bad at step 5",
        3,
    ),
    "in the library": ("import shutil\nshutil.copy('', '')", "FileNotFoundError: ", 2),
    "evaluated": ("eval('= 1')", "SyntaxError: invalid syntax", 1),
    "not compiled": ("x = = 1", "SyntaxError: invalid syntax", 1),
    "its own type": (
        "def f():\n  class Mine(Exception): pass\n  raise Mine('x')\nf()",
        "f.<locals>.Mine: x",
        3,
    ),
    "tracebacks in a group": (
        """
        def part():
            raise OSError(5)
        try:
            part()
        except OSError as error:
            raise ExceptionGroup("all", [error, ValueError("a")])
        """,
        "ExceptionGroup: all (2 sub-exceptions) OSError: 5 ValueError: a",
        7,
    ),
    "recursion": ("def f(): f()\nf()", "RecursionError: maximum recursion", 1),
    "group": (
        "G = ExceptionGroup; raise G('all', [ValueError('a'), G('b', [OSError(5)])])",
        "ExceptionGroup: all (2 sub-exceptions) ValueError: a ExceptionGroup: b",
        1,
    ),
}


@pytest.mark.parametrize(
    ("text", "exception", "line"), PROGRAMS.values(), ids=PROGRAMS.keys()
)
def test_an_exception_and_where_it_was(script, text, exception, line):
    """An uncaught exception is told with the innermost frame of the user's code."""
    words = script(text)

    assert words.exception.startswith(exception)
    assert f"train.py:{line}" in words.frame
    assert words.crash == ""


def test_a_chain_ends_with_what_was_raised(script):
    """The last exception of a chain counts; those before are its causes."""
    words = script("""
        def main():
            try:
                try:
                    {}["x"]
                except KeyError as error:
                    raise OSError(28, "full") from error
            except OSError:
                raise RuntimeError("cannot save")
        main()
    """)

    assert words.exception == "RuntimeError: cannot save"
    assert words.causes == (("OSError", "[Errno 28] full"), ("KeyError", "'x'"))
    assert words.frame.endswith("train.py:9 in main")


def test_an_exception_in_a_thread(script):
    """A thread's exception is told with the name of the thread."""
    words = script("""
        import threading
        def work():
            raise OSError(28, "full")
        thread = threading.Thread(target=work, name="saver")
        thread.start()
        thread.join()
    """)

    assert (words.thread, words.exception) == ("saver", "OSError: [Errno 28] full")
    assert words.frame.endswith("train.py:4 in work")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("raise KeyboardInterrupt", id="interrupted"),
        pytest.param("raise SystemExit('cannot go on')", id="exit with a message"),
        pytest.param(
            "class A:\n  def __del__(self): raise ValueError\nA()", id="ignored"
        ),
        pytest.param(
            "import atexit\n@atexit.register\ndef end(): raise ValueError('x')",
            id="at exit",
        ),
        pytest.param(
            "import multiprocessing as m\ndef f(): raise ValueError\n"
            "p = m.get_context('fork').Process(target=f)\np.start()\np.join()",
            id="of a child process",
        ),
        pytest.param(
            "import logging\nlogging.warning('%d', 'x')", id="of the log itself"
        ),
        pytest.param(
            "import sys\nprint('ValueError: bad', file=sys.stderr)", id="only printed"
        ),
    ],
)
def test_what_is_no_uncaught_exception(script, text):
    """What did not end the process by an exception is not called one."""
    words = script(text)

    assert (words.exception, words.frame) == ("", "")


DOUBLE_FREE = (
    "c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; "
    "p = ctypes.c_void_p(c.malloc(2000)); c.malloc(9); c.free(p); c.free(p)"
)
CRASHES = {
    "segfault": ("ctypes.string_at(0)", "Segmentation fault", "2 in <module>"),
    "abort": ("os.abort()", "Aborted", "2 in <module>"),
    "double free": (
        DOUBLE_FREE,
        "double free or corruption",
        "2 in <module>",
    ),
    "fatal": ("ctypes.pythonapi.Py_FatalError(b'boom')", "Fatal Python error", "2 in"),
}


@pytest.mark.parametrize(
    ("text", "crash", "place"), CRASHES.values(), ids=CRASHES.keys()
)
def test_a_crash_and_where_it_was(script, text, crash, place):
    """A crash is told by its reason, with the frame that faulthandler shows."""
    words = script(
        f"import ctypes, faulthandler, os; faulthandler.enable()\n{text}", env={}
    )

    assert words.crash.startswith(crash)
    assert f"train.py:{place}" in words.frame
    assert (words.exception, words.line) == ("", words.lines[-1])
    assert "File " not in words.line


def test_of_all_threads_the_one_that_crashed():
    """Of faulthandler's report the current thread counts, not the others'."""
    err = stream(
        "Fatal Python error: Bus error",
        "",
        "Thread 0x00007f6e443fc6c0 (most recent call first):",
        '  File "other.py", line 1 in wait',
        "",
        "Current thread 0x00007f6e44e60b80 (most recent call first):",
        '  File "/env/lib/python3.11/site-packages/torch/storage.py", line 9 in new',
        '  File "train.py", line 7 in load',
        '  File "train.py", line 9 in <module>',
        "",
        "Extension modules: numpy.core._multiarray_umath (total: 1)",
    )

    words = last_words(err)

    assert (words.crash, words.frame) == ("Bus error", "train.py:7 in load")
    assert words.lines == ("Fatal Python error: Bus error",)


def test_a_crash_outside_python():
    """Where the thread that crashed ran no Python, no other's place is told."""
    err = stream(
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f6e44e60b80 (most recent call first):",
        "  <no Python frame>",
        "",
        "Thread 0x00007f6e443fc6c0 (most recent call first):",
        '  File "train.py", line 1 in wait',
    )

    assert last_words(err).frame == ""


@pytest.mark.parametrize(
    ("lines", "crash"),
    [
        pytest.param(
            [
                "terminate called after throwing an instance of 'c10::Error'",
                "  what():  NCCL error: remote process exited",
                "Last error:",
            ],
            "terminate called after throwing an instance of 'c10::Error': "
            "NCCL error: remote process exited",
            id="C++ exception",
        ),
        pytest.param(
            ["terminate called without an active exception"],
            "terminate called without an active exception",
            id="C++ without an exception",
        ),
        pytest.param(
            [" 9%|▉    | 9/99 [00:01<00:12]terminate called recursively"],
            "terminate called recursively",
            id="behind a bar",
        ),
        pytest.param(
            ["python: a.cc:6: void f(int): Assertion `n > 0' failed."],
            "python: a.cc:6: void f(int): Assertion `n > 0' failed.",
            id="assertion",
        ),
        pytest.param(
            ["a.cu:1: block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed."],
            "",
            id="assertion on a device, which is no crash",
        ),
        pytest.param(
            ["malloc(): unsorted double linked list corrupted"],
            "malloc(): unsorted double linked list corrupted",
            id="heap",
        ),
        pytest.param(
            ["*** stack smashing detected ***: terminated", "Aborted (core dumped)"],
            "*** stack smashing detected ***: terminated",
            id="stack, and the shell's word for it",
        ),
        pytest.param(
            ["run.sh: line 3: 1906 Segmentation fault      ./train"],
            "Segmentation fault",
            id="a shell's word alone",
        ),
        pytest.param(
            ["F0512 09:14:02.184216 4711 mapper.cc:88] Check failed: a == b"],
            "Check failed: a == b",
            id="glog's check",
        ),
    ],
)
def test_the_reason_of_an_abort(lines, crash):
    """What C++ and the C library say before they abort is told."""
    assert last_words(stream(*lines)).crash == crash


@pytest.mark.parametrize(
    ("earlier", "later", "frame"),
    [
        pytest.param(
            traceback("ValueError: bad"),
            ["terminate called without an active exception"],
            "",
            id="crash at exit, its place unknown",
        ),
        pytest.param(
            ["ERROR: Unexpected bus error encountered in worker."],
            traceback("RuntimeError: DataLoader worker (pid 7) is killed"),
            "train.py:5 in main",
            id="exception after a worker's crash",
        ),
    ],
)
def test_the_frame_is_of_what_came_last(earlier, later, frame):
    """With an exception and a crash both are told, and where the later one was."""
    words = last_words(stream(*earlier, *later))

    assert words.exception
    assert words.crash
    assert words.frame == frame


@pytest.mark.torch
@pytest.mark.slow
def test_torch_excepthook(script):
    """Torch puts the rank before each line of a traceback: it is taken off."""
    words = script(
        """
        import tempfile
        import torch.distributed as dist
        with tempfile.NamedTemporaryFile() as file:
            store = dist.FileStore(file.name, 1)
            dist.init_process_group("gloo", store=store, rank=0, world_size=1)
            raise ValueError("one\\n\\ntwo")
        """
    )

    assert (words.type, words.text) == ("ValueError", "one\ntwo")
    assert words.frame.endswith("train.py:7 in <module>")
    assert words.lines[0] == "ValueError: one"


def test_a_refused_command_line(script):
    """Of a parser's refusal the error is told, though an exit handler spoke later."""
    words = script("""
        import argparse, atexit, sys
        atexit.register(print, "bye", file=sys.stderr)
        parser = argparse.ArgumentParser("train.py")
        parser.add_argument("--lr", type=float)
        parser.parse_args(["--lr", "x"])
    """)

    assert words.line == "train.py: error: argument --lr: invalid float value: 'x'"
    assert (words.number, words.exception) == (2, "")
