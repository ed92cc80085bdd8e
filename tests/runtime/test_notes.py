"""What the bootstrap's hooks tell the agent of an exception that nobody caught."""

import os
import time

import pytest

RAISES = """
def work():
    try:
        {}["label"]
    except KeyError as error:
        raise ValueError("bad batch 17") from error
work()
"""


def test_an_exception_is_told_with_its_place_and_causes(told):
    """Type, text, frame, pid and what it was raised from are in the note."""
    _, [note] = told(RAISES)

    assert (note["type"], note["text"]) == ("ValueError", "bad batch 17")
    assert (note["file"], note["line"], note["function"]) == ("<string>", 6, "work")
    assert (note["thread"], note["causes"]) == ("", [["KeyError", "'label'"]])
    assert note["pid"] != os.getpid()


def test_the_time_is_when_the_hook_began(told):
    """It is the agent's clock, in nanoseconds; what the note costs comes after it."""
    before = time.monotonic_ns()
    result, [note] = told(
        "import time\n"
        "class Late(Exception):\n"
        " def __str__(self): return str(time.monotonic_ns())\n"
        "raise Late"
    )

    assert before < note["at_ns"] < int(note["text"]) < time.monotonic_ns()
    assert result.returncode == 1


PLACES = {
    "a call into the standard library": ("import json\njson.loads('{')", 2, "<module>"),
    "a callback from it": (
        "import functools\ndef f(a, b): 1/0\nfunctools.reduce(f, 'ab')\n",
        2,
        "f",
    ),
    "a syntax error": ("import broken", 2, ""),
}


@pytest.mark.parametrize(("script", "line", "function"), PLACES.values(), ids=PLACES)
def test_the_place_is_where_the_user_can_mend_it(
    told, tmp_path, script, line, function
):
    """The innermost frame of the user's own code, not a library's."""
    (tmp_path / "broken.py").write_text("x = 1\ny = (\n")
    _, [note] = told(script, cwd=tmp_path)

    assert (note["line"], note["function"]) == (line, function)
    assert note["file"].endswith(("<string>", "/broken.py"))


CHAINS = {
    "raised from": ("raise E1 from E0", ["E0"]),
    "raised while": ("try:\n  raise E0\n except E: raise E1", ["E0"]),
    "raised from none": ("try:\n  raise E0\n except E: raise E1 from None", []),
    "a circle": ("E0.__cause__ = E1\n E1.__cause__ = E0\n raise E1", ["E0"]),
    "a long chain": (
        "for n in range(9):\n  e = E(f'E{9 - n}'); e.__cause__ = E1; E1 = e\n raise E1",
        ["E2", "E3", "E4", "E5"],
    ),
}


@pytest.mark.parametrize(("chain", "causes"), CHAINS.values(), ids=CHAINS)
def test_what_it_came_from_is_told_nearest_first(told, chain, causes):
    """As Python's traceback tells it, but no more than four."""
    script = (
        f"E = OSError\nE0, E1 = E('E0'), E('E1')\ndef f(E0, E1):\n {chain}\nf(E0, E1)"
    )
    _, [note] = told(script)

    assert note["causes"] == [["OSError", text] for text in causes]


ODD = {
    "a text that cannot be had": (
        "class E(Exception):\n def __str__(self): raise SystemExit(5)\nraise E",
        {"type": "E", "text": "<exception str() failed>"},
    ),
    "a cause that cannot be had": (
        "class E(Exception):\n @property\n def __cause__(self): 1/0\nraise E('x')",
        {"type": "E", "text": "x", "causes": []},
    ),
    "no text in its bytes": (
        "raise ValueError('a\\udc80b')",
        {"text": "a\\udc80b"},
    ),
    "quotes and control characters": (
        "raise ValueError('\\x00\\x1b\\n\"\\\\\\'')",
        {"text": "\x00\x1b\n\"\\'"},
    ),
    "a type of a package": (
        "class E(Exception): pass\nE.__module__ = 'torch'\nraise E",
        {"type": "torch.E"},
    ),
    "no memory": (
        (
            "from resource import RLIMIT_AS, setrlimit\n"
            "setrlimit(RLIMIT_AS, (1 << 28, 1 << 28))\n"
            "bytearray(1 << 30)"
        ),
        {"type": "MemoryError", "text": ""},
    ),
    "no stack": ("def f(): f()\nf()", {"type": "RecursionError", "function": "f"}),
    "no environment": ("import os\nos.environ.clear()\n1/0", {"line": 3}),
    "no descriptor": (
        (
            "import os, resource, socket\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))\n"
            "while True: os.dup(1)"
        ),
        {"type": "OSError", "text": "[Errno 24] Too many open files"},
    ),
}


@pytest.mark.parametrize(("script", "expected"), ODD.values(), ids=ODD)
def test_a_rank_in_trouble_can_still_tell(told, alone, script, expected):
    """The note comes, and the user sees what Python alone would show."""
    result, [note] = told(script)
    plain = alone(script, {})

    assert note.items() >= expected.items()
    assert (result.returncode, result.stdout) == (plain.returncode, plain.stdout)
    assert result.stderr == plain.stderr


THREAD = """
import threading
def work():
    raise RuntimeError("no data")
thread = threading.Thread(target=work, name="prefetch")
thread.start(); thread.join()
"""
PRELOADED = """
import threading
earlier = threading.excepthook
def hook(args):
    print("seen", args.exc_type.__name__)
    earlier(args)
threading.excepthook = hook
"""


def test_an_exception_in_a_thread_is_told_with_its_name(told, alone):
    """The process lives on, and that a thread died is known all the same."""
    result, [note] = told(THREAD)

    assert (note["type"], note["thread"]) == ("RuntimeError", "prefetch")
    assert (result.returncode, result.stderr) == (0, alone(THREAD, {}).stderr)


def test_a_hook_of_threads_that_was_there_first_still_runs(told, alone, early, bare):
    """Something before the bootstrap may have imported threading and set its hook."""
    more = early(PRELOADED)
    result, [note] = told(THREAD, more=more, python=bare)
    plain = alone(THREAD, more, python=bare)

    assert (note["type"], note["thread"]) == ("RuntimeError", "prefetch")
    assert (result.returncode, result.stdout) == (0, "seen RuntimeError\n")
    assert (plain.stdout, plain.stderr) == (result.stdout, result.stderr)


NAMELESS = """
import threading
class Thread(threading.Thread):
    name = property(lambda self: 1 / 0, lambda self, name: None)
    def run(self): raise OSError
thread = Thread()
thread.start(); thread.join()
"""


def test_no_thread_is_taken_for_the_main_one(told):
    """Python's own hook fails at this name, and hands that to the main one's hook."""
    _, notes = told(NAMELESS)

    assert [(note["type"], note["thread"]) for note in notes] == [
        ("OSError", "?"),
        ("ZeroDivisionError", "?"),
    ]


def test_a_forked_process_tells_for_itself(told):
    """Its pid says that it is not the rank."""
    script = "import os\nif os.fork(): os.wait()\nraise ValueError(str(os.getpid()))"
    _, notes = told(script)

    assert len({note["pid"] for note in notes}) == 2
    assert all(note["text"] == str(note["pid"]) for note in notes)


@pytest.mark.parametrize("letter", ["x", "\\U0001f600", "\\x00"])
def test_a_text_without_end_is_cut(told, letter):
    """A note stays within its limit, whatever an exception and its causes say."""
    script = (
        f"def f(n):\n text = 'begin' + '{letter}' * 1_000_000 + 'end'\n"
        " if n: \n  try: f(n - 1)\n  except OSError as e: raise OSError(text) from e\n"
        " raise OSError(text)\nf(5)"
    )
    _, [note] = told(script)

    assert note["text"].startswith("begin")
    assert note["text"].endswith("end")
    assert len(note["text"].encode()) <= 8192
    assert len(note["causes"]) == 4


HANDED = """
import sys
try: 1 / 0
except ZeroDivisionError: sys.excepthook(*sys.exc_info())
"""
CHAINED = """
import sys
earlier = sys.excepthook
sys.excepthook = lambda *raised: earlier(*raised)
1 / 0
"""


@pytest.mark.parametrize(
    ("script", "handed"),
    [
        pytest.param(HANDED, [1], id="by the program"),
        pytest.param("1 / 0", [0], id="by the interpreter"),
        pytest.param(CHAINED, [0], id="by the interpreter, to another hook first"),
    ],
)
def test_a_note_says_who_called_the_hook(told, script, handed):
    """What a program hands to the hook itself does not end it."""
    result, notes = told(script)

    assert [note["handed"] for note in notes] == handed
    assert result.returncode == 1 - sum(handed)
