"""``dsup logs``: what the ranks of a run wrote, in the order of time."""

import json
import os
import random
import select
import threading

import pytest

from dsup.cli.log_choice import Wish
from dsup.cli.log_printer import Paper, Style
from dsup.cli.log_show import Logs
from dsup.cli.log_stream import LogStream, Source
from dsup.cli.main import run
from dsup.core.errors import SpecError
from dsup.core.streams import STDOUT
from dsup.linux import file_lock
from dsup_runtime.contract import INDEX_RECORD

NAME = "20991130T022748Z-train-a0b408_here"
START_NS = 1_780_000_000_000_000_000
DEADLINE_S = 600


class Directory:
    """A run directory, written as the scribe does."""

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True)
        self.options()
        self.journal = (path / "events.jsonl").open("a+b")
        file_lock.share(self.journal.fileno())

    def options(self, **options):
        """Say in run.json what was asked for."""
        found = {name.replace("_", "-"): {"value": v} for name, v in options.items()}
        (self.path / "run.json").write_text(json.dumps({"options": found}))

    def log(self, attempt, rank, name="stdout.log"):
        """Return where a log is, its directory made."""
        directory = self.path / f"attempt_{attempt}" / str(rank)
        directory.mkdir(parents=True, exist_ok=True)
        return directory / name

    def write(self, attempt, rank, text, at_s=0.0, name="stdout.log"):
        """Append what a rank wrote at some time."""
        path = self.log(attempt, rank, name)
        data = text.encode("latin-1")
        with path.open("a+b") as log, path.with_name(f"{name}.index").open("a+b") as ix:
            ix.write(INDEX_RECORD.pack(START_NS + int(at_s * 1e9), log.tell()))
            log.write(data)

    def rotate(self, attempt, rank, name="stdout.log"):
        """Give a log and its index their other names, as the scribe does."""
        path = self.log(attempt, rank, name)
        path.rename(f"{path}.1")
        path.with_name(f"{name}.index").rename(f"{path}.1.index")

    def end(self):
        """Have the run be over."""
        self.journal.close()


@pytest.fixture
def made(tmp_path):
    """Give the directory of a run that goes on."""
    directory = Directory(tmp_path / "runs" / NAME)
    yield directory
    directory.end()


@pytest.fixture
def logs(home, capfd, made):
    """Give ``logs(*words)``: the code, stdout and stderr of a call about that run."""

    def call(*words):
        capfd.readouterr()
        code = run(["logs", str(made.path), *words], None)
        return code, *capfd.readouterr()

    return call


class Followed:
    """What ``dsup logs -f`` shows of a run, as it shows it."""

    def __init__(self, wish):
        self._out, into = os.pipe()
        self._text = ""
        self._thread = threading.Thread(target=self._run, args=(wish, into))
        self._thread.start()

    def _run(self, wish, into):
        try:
            Logs(wish, Paper(into), Style()).show()
        finally:
            os.close(into)

    def until(self, words):
        """Return all that was shown as soon as some words are."""
        while words not in self._text:
            assert self._read(), self._text
        return self._text

    def rest(self):
        """Return all that was shown, once it has ended by itself."""
        while self._read():
            pass
        self._thread.join()
        os.close(self._out)
        return self._text

    def _read(self):
        ready, _, _ = select.select([self._out], [], [], DEADLINE_S)
        assert ready, f"nothing came: {self._text}"
        data = os.read(self._out, 65536)
        self._text += data.decode()
        return data


def test_lines_come_in_the_order_of_time(made, logs):
    """Lines of all ranks and both streams are merged by when they were read."""
    made.write(0, 0, "a\nb\n", 0)
    made.write(0, 0, "e\n", 2)
    made.write(0, 1, "c\n", 1)
    made.write(0, 10, "d\n", 1.5, "stderr.log")

    assert logs()[:2] == (
        0,
        "[rank 0] a\n[rank 0] b\n[rank 1] c\n[rank 10] d\n[rank 0] e\n",
    )


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param(["--rank", "1"], "1o\n1e\n", id="one rank"),
        pytest.param(
            ["--rank", "0,1", "--stderr"],
            "[rank 0] 0e\n[rank 1] 1e\n",
            id="stderr of two",
        ),
        pytest.param(["--rank", "2", "--stdout"], "2o\n", id="stdout"),
        pytest.param(
            ["--since", "2026-05-28T20:26:51+00:00"], "[rank 2] 2e\n", id="since"
        ),
        pytest.param(["-n", "2"], "[rank 1] 1e\n[rank 2] 2e\n", id="the last two"),
        pytest.param(["-n", "0"], "", id="none"),
        pytest.param(
            ["-n", "1", "--rank", "0", "--raw"], "0e\n", id="the last of one, raw"
        ),
    ],
)
def test_a_part_is_shown(made, logs, words, shown):
    """Options choose ranks, a stream, a time, a number of lines."""
    for rank in range(3):
        made.write(0, rank, f"{rank}o\n", rank)
        made.write(0, rank, f"{rank}e\n", rank + 9, "stderr.log")

    assert logs(*words) == (0, shown, "")


def test_attempts_are_told_apart(made, logs):
    """Each attempt after the first is announced; of one that is named, nothing is."""
    for attempt in range(3):
        made.write(attempt, 0, f"of {attempt}\n")

    assert logs()[1].splitlines() == [
        "[rank 0] of 0",
        "dsup: attempt 1",
        "[rank 0] of 1",
        "dsup: attempt 2",
        "[rank 0] of 2",
    ]
    assert logs("--attempt", "1")[1] == "[rank 0] of 1\n"
    assert logs("-n", "2")[1].splitlines()[-3:] == [
        "[rank 0] of 1",
        "dsup: attempt 2",
        "[rank 0] of 2",
    ]


def test_a_rotated_log_is_one_with_the_log_after_it(made, logs):
    """What a log held before it grew past its limit is shown first."""
    made.write(0, 0, "".join(f"{n}\n" for n in range(5)))
    made.rotate(0, 0)
    made.write(0, 0, "".join(f"{n}\n" for n in range(5, 8)), 3)
    made.write(0, 1, "between\n", 1)

    assert logs("--rank", "0")[1].split() == list("01234567")
    assert logs("--rank", "0", "-n", "5")[1].split() == list("34567")
    assert logs()[1].splitlines()[5] == "[rank 1] between"


def test_hostile_bytes_are_spelled_out_and_raw_ones_are_not(made, logs):
    """Nothing moves a cursor or begins a line of dsup's own, unless it is asked for."""
    text = "\x1b]0;title\x07\x1b[31mred\x1b[0m \xff\n10 %\r20 %\ndsup: forged\nlast"
    made.write(0, 0, text)

    assert logs("--rank", "0")[1].splitlines() == [
        r"\x1b]0;title\x07red \xff",
        "20 %",
        "(rank) dsup: forged",
        "last",
    ]
    path = made.log(0, 0)
    with os.fdopen(os.open(path.parent / "raw", os.O_RDWR | os.O_CREAT), "r+b") as out:
        Logs(Wish(str(made.path)), Paper(out.fileno()), Style(False, raw=True)).show()
        assert path.with_name("raw").read_bytes() == text.encode("latin-1") + b"\n"


def test_a_line_without_end_is_shown_in_pieces(made, logs):
    """A line longer than memory is for does not wait for its end."""
    made.write(0, 0, "x" * 200_000)
    made.write(0, 1, "y\n", 1)
    shown = logs()[1]

    assert shown.count("x") == 200_000
    assert "\n[rank 1] y\n" in shown


NOISE = random.Random(7).randbytes(160)  # noqa: S311 (the same bytes each time)


@pytest.mark.parametrize("index", [b"", b"\0" * 7, b"\xff" * 160, NOISE])
def test_a_bad_index_costs_order_only(made, logs, index):
    """All lines are shown whatever the index says."""
    made.write(0, 0, "".join(f"{n}\n" for n in range(100)))
    made.log(0, 0, "stdout.log.index").write_bytes(index)

    assert logs("--rank", "0")[1].split() == list(map(str, range(100)))
    assert logs("--rank", "0", "-n", "3")[1].split() == ["97", "98", "99"]


@pytest.mark.parametrize(
    ("options", "words", "told"),
    [
        pytest.param({"log_dir": "/dev/null"}, [], "--log-dir /dev/null", id="null"),
        pytest.param({"stdio": "inherit"}, ["-f"], "--stdio inherit", id="inherit"),
        pytest.param({"stdio": "auto"}, [], "dsup's own streams", id="one rank"),
    ],
)
def test_a_run_without_logs_says_why(made, logs, options, words, told):
    """Where no log was kept, the refusal says which option did that."""
    made.options(**options)
    made.log(0, 0)
    code, out, err = logs(*words)

    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rank", "9"], f"cannot show rank 9 of {NAME}, because its ranks are 0-1"),
        (["--attempt", "4"], "because the last one is 0"),
        (["--since", "noon"], "a time such as"),
    ],
)
def test_what_is_not_there_is_refused(made, logs, words, told):
    """A rank, an attempt or a time that there is not, is a wrong call."""
    made.write(0, 0, "a\n")
    made.write(0, 1, "a\n")
    code, _, err = logs(*words)

    assert code == 2
    assert told in err


def test_a_link_is_not_followed(made, logs):
    """A log that is a link to somewhere is no log."""
    made.log(0, 0).symlink_to("/etc/passwd")
    code, out, err = logs()

    assert (code, out) == (1, "")
    assert "cannot read attempt_0/0/stdout.log" in err


def test_a_run_is_followed_to_its_end(made):
    """What comes is shown, through rotations and restarts, until the run is over."""
    made.write(0, 0, "old\nlast\n")
    followed = Followed(Wish(str(made.path), last=1, follow=True))
    followed.until("[rank 0] last\n")
    made.write(0, 0, "new\n", 1)
    followed.until("new\n")
    made.rotate(0, 0)
    made.write(0, 0, "rotated\nunfinished?", 2)
    followed.until("[rank 0] unfinished?")
    made.write(0, 0, " yes\n", 3)
    followed.until("unfinished? yes\n")
    made.write(1, 0, "again\n", 4)
    made.write(1, 1, "the other\n", 5)
    followed.until("the other\n")
    made.write(1, 0, "end", 6)
    made.end()

    assert followed.rest().splitlines() == [
        "[rank 0] last",
        "[rank 0] new",
        "[rank 0] rotated",
        "[rank 0] unfinished? yes",
        "dsup: attempt 1",
        "[rank 0] again",
        "[rank 1] the other",
        "[rank 0] end",
    ]


def test_a_log_that_was_rotated_twice_is_read_on(made):
    """Nothing tells what is missing between two looks, so that something may be."""
    made.write(0, 0, "a\n")
    stream = LogStream(str(made.path), Source(0, 0, STDOUT))
    shown = stream.read()
    for text in "bcd":
        made.rotate(0, 0)
        made.write(0, 0, f"{text}\n")
    assert not stream.left
    stream.grow()
    while more := stream.read():
        shown += more
    stream.close()

    assert (shown, stream.missed) == (b"a\nc\nd\n", True)


def test_a_run_that_begins_is_waited_for(made):
    """Whoever follows from the first moment on misses nothing."""
    followed = Followed(Wish(str(made.path), follow=True))
    made.log(0, 0)
    made.write(0, 1, "first\n")
    followed.until("[rank 1] first\n")
    made.write(0, 0, "second\n")
    made.end()

    assert followed.rest().splitlines()[-1] == "[rank 0] second"


def test_one_attempt_is_followed_to_its_end(made):
    """To follow one attempt ends when the next one has begun."""
    made.write(0, 0, "a\n")
    followed = Followed(Wish(str(made.path), attempt=0, follow=True))
    followed.until("a\n")
    made.write(1, 0, "b\n")

    assert followed.rest() == "[rank 0] a\n"


def test_nobody_reads_any_more(made):
    """A reader that has had enough ends it like any program."""
    made.write(0, 0, "a\n")
    out, into = os.pipe()
    os.close(out)
    with pytest.raises(BrokenPipeError):
        Logs(Wish(str(made.path)), Paper(into), Style()).show()
    os.close(into)


def test_an_attempt_without_ranks_has_no_logs(made):
    """A run that ended before its first rank was started says so."""
    made.end()
    with pytest.raises(SpecError, match="no rank of it has been started"):
        Logs(Wish(str(made.path), follow=True), Paper(1), Style())
