"""What a rank's last words say, however they are drawn, cut, or meant."""

import hashlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.lines import LINES_MAX
from dsup.facts.output import LINE_MAX_CHARS, LastWords, last_words
from dsup.facts.output import LINES_MAX as SHOWN_MAX

TAIL = 64 * 1024


def stream(*lines):
    """Return lines as a program writes them."""
    return "".join(f"{line}\n" for line in lines).encode()


def traceback(*named, file="train.py", line=5):
    """Return the lines of a traceback that ends with an exception's text."""
    head = "Traceback (most recent call last):"
    return [head, f'  File "{file}", line {line}, in main', "    step()", *named]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(traceback("E.Bad: x"), id="plain"),
        pytest.param([f"[rank3]: {t}" for t in traceback("E.Bad: x")], id="torch"),
        pytest.param(
            [f"[default1]:[rank3]: {t}" for t in traceback("E.Bad: x")],
            id="torch below a launcher that tees",
        ),
        pytest.param([f"[1,3]<stderr>:{t}" for t in traceback("E.Bad: x")], id="MPI"),
        pytest.param([f"3: {t}" for t in traceback("E.Bad: x")], id="srun --label"),
        pytest.param([f"{t}\r" for t in traceback("E.Bad: x")], id="CR LF"),
        pytest.param(
            [" 9%|▉ | 9/99\r10%|█ | 10/99" + "\n".join(traceback("E.Bad: x"))],
            id="glued to a bar",
        ),
        pytest.param(
            ["10%|█ |[rank3]: " + "\n[rank3]: ".join(traceback("E.Bad: x"))],
            id="glued to a bar, with torch's prefix",
        ),
        pytest.param(
            [f"\x1b[1;31m{t}\x1b[0m" for t in traceback("E.Bad: x")], id="colours"
        ),
        pytest.param(
            ["\x1b]0;Traceback\x07" + "\n".join(traceback("E.Bad: x"))], id="title"
        ),
        pytest.param(
            [*traceback()[:2], "worker 7: loaded", "", *traceback("E.Bad: x")[2:]],
            id="another thread's words between",
        ),
        pytest.param(
            [
                "╭────────── Traceback (most recent call last) ──────────╮",
                "│ /env/lib/python3.11/site-packages/x.py:9 in call       │",
                "│ train.py:5 in main                                     │",
                "│                                                        │",
                "│ ❱ 5 │   step()                                         │",
                "╰────────────────────────────────────────────────────────╯",
                "E.Bad: x",
            ],
            id="rich",
        ),
    ],
)
def test_tracebacks_however_they_are_drawn(lines):
    """Prefixes, bars, colours and boxes hide no traceback."""
    words = last_words(stream("step 1", *lines))

    assert (words.exception, words.frame) == ("E.Bad: x", "train.py:5 in main")
    assert words.line == "E.Bad: x"


@pytest.mark.parametrize(
    ("line", "exception"),
    [
        pytest.param("torch.OutOfMemoryError: CUDA out of memory.", "", id="bare"),
        pytest.param(
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory.",
            "torch.OutOfMemoryError: CUDA out of memory.",
            id="with torch's prefix",
        ),
        pytest.param("[rank3]: Step: 5", "", id="prefix, and no error"),
    ],
)
def test_an_exception_without_its_traceback(line, exception):
    """Without a traceback only torch's own prefix makes a line an exception."""
    assert last_words(stream(line)).exception == exception


@pytest.mark.parametrize(
    "later",
    [
        "",
        "wandb: cannot upload, because no space left on device",
        "[W310 ProcessGroup.cpp:9] Warning: no space left on device",
        "2026-03-04 05:06:07 no space left on device",
        "ERROR:root:no space left on device",
        "frame #0: c10::Error::Error() + 0x9",
        "terminate called without an active exception",
    ],
)
def test_an_exceptions_text_ends(later):
    """What others say at exit is not taken for the exception's text."""
    err = stream(*traceback("OSError: one", "two"), later, "no space left on device")

    assert last_words(err).text == "one\ntwo"


def test_a_long_text_is_cut():
    """Of a long text the first line is told, and some 300 characters after it."""
    words = last_words(stream(*traceback("ValueError: " + "a" * 5000, *["b" * 99] * 9)))

    assert words.text.startswith("a" * 1000)
    assert 1250 < len(words.text) <= 1310


@pytest.mark.parametrize(
    "noise",
    [
        "W0621 07:14:22.4 14 torch/distributed/run.py:757] *****************",
        "*****************************************",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1",
        "[rank0]:[W1 c.cpp:1] Warning: WARNING: process group has NOT been destroyed",
        "W0310 api.py:900] Sending process 17 closing signal SIGTERM",
        "t.py:254: UserWarning: resource_tracker: There appear to be 1 leaked\n  warn(",
        "/env/x.py:3: FutureWarning: use y\n  warnings.warn(",
        "frame #3: c10d::ProcessGroupNCCL::WorkNCCL::wait() + 0x56 (0x7f in lib.so)",
        "Exception raised from wait at /pytorch/x.cpp:43 (most recent call first):",
        "epoch 3:  43%|████▎     | 29/67 [26:31<22:40, 35.81s/it]",
        "Unable to shutdown process 5 via 15, forcefully exiting via 9",
        "────────────",
    ],
)
def test_noise_is_never_the_last_line(noise):
    """What every failing rank prints is not shown as its last words."""
    words = last_words(stream("cannot read shard 5", noise), first_line=41)

    assert words.lines == ("cannot read shard 5",)
    assert (words.line, words.number) == ("cannot read shard 5", 41)


def test_few_and_short_lines_are_shown():
    """At most eight lines are shown, none longer than 300 characters."""
    words = last_words(stream(*(f"line {n} " + "x" * 500 for n in range(20))))

    assert len(words.lines) == SHOWN_MAX
    assert words.lines[-1].startswith("line 19 ")
    assert {len(line) for line in words.lines} == {LINE_MAX_CHARS}


def test_stdout_counts_where_stderr_is_silent():
    """A script that sends all to stdout is heard there; else stderr alone counts."""
    out = stream(*traceback("ValueError: bad"))

    assert last_words(b"", out, first_line=1).exception == "ValueError: bad"
    assert last_words(b"", out, first_line=1).number is None
    assert last_words(b"", out).stream == "stdout"
    assert last_words(stream("bye"), out).exception == ""


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param('File "a.py", line 1, in a', id="inside a traceback"),
        pytest.param("ränk"[1:], id="between lines"),
    ],
)
def test_a_tail_may_begin_anywhere(lost):
    """A traceback whose head is beyond the tail is told all the same."""
    frames = stream(*['  File "train.py", line 5, in main', "    step()"] * 800)
    end = stream("ValueError: bad")
    err = (lost.encode() * TAIL)[-(TAIL - len(frames + end) - 1) :] + b"\n"

    words = last_words(err + frames + end)

    assert words.exception == "ValueError: bad"
    assert words.frame == "train.py:5 in main"


def test_a_traceback_that_broke_off():
    """Of a rank that was killed while it printed a traceback the place is told."""
    words = last_words(stream(*traceback()))

    assert (words.exception, words.line) == ("", "train.py:5 in main")


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"\n" * 9 + b"x" * TAIL + b"\n", id="before the tail"),
        pytest.param(b"a\n" * 3 * LINES_MAX, id="before the last lines of it"),
    ],
)
def test_line_numbers_count_what_is_not_looked_at(before):
    """Lines before those that are looked at count, however many there are."""
    words = last_words(before + stream("last"), first_line=1)

    assert (words.line, words.number) == ("last", before.count(b"\n") + 1)


def test_a_line_that_was_overwritten():
    """Of a line that was overwritten the last state is told."""
    assert last_words(b"loading 1\rloading 2\rcannot load\r\n").line == "cannot load"


NOISE = hashlib.shake_128(b"noise").digest(TAIL)
HOSTILE = {
    "carriage returns": b"\r" * TAIL,
    "one line": b"a" * TAIL,
    "newlines": b"\n" * TAIL,
    "prefixes": b"[rank1]: " * (TAIL // 9),
    "escapes": b"\x1b[" * (TAIL // 2),
    "titles that never end": b"\x1b]" * (TAIL // 2),
    "no UTF-8": b"\xff" * TAIL,
    "dots": b'Traceback (most recent call last):\n  File "a", line 1, in b\n'
    + b"A.<" * 2700,
    "files": b'  File "' + b'", line ' * (TAIL // 8),
    "bars": b"1%|a|" * (TAIL // 5),
    "heads": b"Traceback (most recent call last):\n" * (TAIL // 36),
    "warnings": b"a:1: Warning: " * (TAIL // 14),
    "noise": NOISE,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_words_cost_little(data):
    """No bytes take more than some operations for each line that is looked at."""

    def operations(part):
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            last_words(part)
        finally:
            sys.settrace(before)
        return count

    assert operations(data) < 100 * LINES_MAX


@given(st.lists(st.sampled_from([*traceback("E: x"), "│ a", "+ |", "x: error: "])))
def test_any_order_of_lines_is_taken(lines):
    """No order of the lines of reports is an error, and what is told is printable."""
    words = last_words(stream(*lines))

    assert all(line.isprintable() for line in (*words.lines, words.exception))


@given(st.binary(max_size=400))
def test_any_bytes_are_taken(data):
    """Whatever a rank wrote, what is told of it moves no cursor."""
    words = last_words(data)

    assert all(line.isprintable() for line in (*words.lines, words.crash, words.frame))
    assert words == LastWords() or words.line


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([f"[rank3]: {t}" for t in traceback("E.Bad: x")], id="traceback"),
        pytest.param(["[rank3]: torch.OutOfMemoryError: no"], id="bare"),
        pytest.param(
            ["10%|█ |[rank3]: " + "\n[rank3]: ".join(traceback("E.Bad: x"))],
            id="glued to a bar",
        ),
        pytest.param(["[rank3]: terminate called after throwing"], id="C++"),
    ],
)
def test_another_rank_s_words_are_not_this_one_s(lines):
    """Whoever prints what torch's prefix says is another's, passes it on."""
    err = stream("step 1", *lines)

    assert last_words(err, rank=2).exception == last_words(err, rank=2).crash == ""
    own = last_words(err, rank=3)
    assert own == last_words(err)
    assert own.exception or own.crash


def test_a_rank_s_own_exception_among_another_s():
    """What another rank said before or after hides nothing."""
    theirs = [f"[rank3]: {t}" for t in traceback("E.Bad: x")]
    mine = [f"[rank2]: {t}" for t in traceback("E.Mine: y")]

    for lines in ([*theirs, *mine], [*mine, *theirs], [*mine[:2], *theirs, *mine[2:]]):
        assert last_words(stream(*lines), rank=2).exception == "E.Mine: y"
