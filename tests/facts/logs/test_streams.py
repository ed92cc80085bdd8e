"""Clean lines: bars, boxes, tables, JSON, wrapped copies, glued statements."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.logs.clean import LINE_MAX_CHARS
from dsup.facts.logs.line import LogLine, Place
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.streams import lines


def read(text: str | bytes) -> list[LogLine]:
    data = text.encode() if isinstance(text, str) else text
    rows = enumerate(data.split(b"\n"), 1)
    return list(lines(RawLine("job.log", i, row) for i, row in rows))


def texts(text: str | bytes) -> list[str]:
    return [line.text for line in read(text)]


GLUED = [
    ("5%|█  | 1/9 [00:01<00:08, 1.2s/it]RuntimeError: no", "RuntimeError: no"),
    ("5%|█  | 1/9 [00:01<?, ?it/s][rank3]: RuntimeError: no", "RuntimeError: no"),
    ("Map: 5%|███WARNING:torch.distributed.api:Sending", "Sending"),
    (
        "5%|█ | 1/9 [0:01<0:08, 1.2it/s, loss=2][E P.cpp:8] [Rank 0] gone",
        "[Rank 0] gone",
    ),
    ("5%|█ | 1/9 [0:01<0:08, 1.2it/s]slurmstepd: error: x", "slurmstepd: error: x"),
    ("5%|█ | 1/9 [0:01<0:08]Traceback (most recent call last):", None),
    ("channels per peern1:5:6 [0] NCCL INFO x", None),
    ("some text terminate called after throwing", "terminate called after throwing"),
    ("an instance of 'c10::Error' what(): gone", " what(): gone"),
    ("^CWARNING:torch.api:x", "x"),
]


@pytest.mark.parametrize(("text", "rest"), GLUED)
def test_what_is_glued_behind_a_bar_is_a_line_of_its_own(text, rest):
    """A dying rank writes where another's bar has left the cursor."""
    found = texts(text)

    assert len(found) == 2
    assert rest is None or found[1] == rest


def test_lines_of_one_row_share_its_number_and_not_its_order():
    """File and line stay right for the report."""
    first, second, third = read("5%|█| 1/9 [0:01<0:08, 1s/it][rank3]: no\nx")

    assert (first.number, second.number, third.number) == (1, 1, 2)
    assert (first.order, second.order, third.order) == (0, 1, 2)
    assert first.place == Place()
    assert second.place == Place(rank=3)


def test_a_label_behind_a_bar_replaces_the_one_before_it():
    """Composer's local ranks: the bar is 0's, the time-out 6's."""
    _, told = read("[0]:train 5%|█| 1/9 [0:01<0:08, 1s/ba][6]:[E P.cpp:8] [Rank 38] x")

    assert told.place == Place(rank=38, local_rank=6, label="[6]:")


def test_of_a_bar_drawn_again_the_last_state_stays():
    """A bar has thousands of states in one line."""
    bar = "".join(f"\rEpoch 1: {i}%|" for i in range(100))

    assert texts(f"start{bar}") == ["start", "Epoch 1: 99%|"]


def test_colours_titles_and_tabs_are_taken_off():
    """Whether their escape was printed, spelt out or lost."""
    assert texts("\x1b[31mred\x1b[0m \x1b]0;title\x07end\tx") == ["red end    x"]
    assert texts("#033[31mred#033[0m end") == ["red end"]
    assert texts("[36m(W pid=7)[0m red") == ["red"]


def test_what_moves_the_cursor_is_spelt_out():
    """A log may try to write over the report."""
    [text] = texts(b"a\x1b[2Jb\xff\x00c\xe2\x80\xaed")

    assert text.isprintable()


def test_a_hole_of_zeros_is_skipped():
    """The log was truncated under its writer."""
    assert texts(b"\0" * 5000 + b"after") == ["after"]


BOXES = [
    ("│ a.py:8 in <module>     │", "a.py:8 in <module>"),
    ("│   7 │   f()   │", "  7 │   f()"),
    (
        "╭──── Traceback (most recent call last) ────╮",
        "Traceback (most recent call last)",
    ),
    ("╰───────────╯", ""),
    ("| [E P.cpp:8] x |", "x"),
    ("-- | --", ""),
    ("| --- | --- |", ""),
    ("2024-05-08T08:47:31Z | [0]:train 21%\\|██\\| 1/9", "train 21%|██| 1/9"),
    ("text that ends here        [76/904]", "text that ends here"),
    ("============", "============"),
    ("| epoch 024 | loss 6.4", "| epoch 024 | loss 6.4"),
]


@pytest.mark.parametrize(("text", "inner"), BOXES)
def test_boxes_and_tables_are_opened(text, inner):
    """Rich's panels, a viewer's table, tmux's scroll mark; a table of text stays."""
    assert texts(text) == [inner]


def test_a_log_line_in_json_is_what_it_holds():
    """Docker's and Kubeflow's: several lines in one, and their time."""
    row = {"log": "Traceback:\n  File\nEnd\n", "time": "2024-05-08T08:47:31.5Z"}
    found = read(json.dumps(row))

    assert [line.text for line in found] == ["Traceback:", "  File", "End"]
    assert {line.at_s for line in found} == {1715158051.5}


def test_json_that_was_cut_is_read_to_its_end():
    """The last line of a log that was cut off by size."""
    assert texts('{"log": "first\\n  second\\"x') == ["first", '  second"x']


def test_json_that_is_no_log_line_stays():
    """Metrics, and brackets without end."""
    assert texts('{"loss": 2.5}') == ['{"loss": 2.5}']
    assert len(texts('{"a":' + "[" * 100_000)) == 1


def test_a_quoted_traceback_is_spelt_out():
    """The repr of an exception's text."""
    quoted = "error 'Traceback (most recent call last):\\n  File \\'a.py\\'\\nX: y"

    assert texts(quoted)[-2:] == ["  File 'a.py'", "X: y"]


def test_a_quoted_copy_loses_its_marks():
    """An e-mail or an issue: ``> `` before each line."""
    assert texts("> Traceback:\n>   File\n> **X: y**") == [
        "Traceback:",
        "  File",
        "X: y",
    ]


WIDE = (
    "[rank6]:[E429 13:55:49.384372190 Group.cpp:43] [Rank 6] the watchdog g".ljust(70),
    "ot stuck".ljust(70),
    "[rank6]:[E429 13:55:50.384372190 Group.cpp:43] [Rank 6] preparing the ".ljust(70),
    "dump".ljust(70),
)


def test_lines_that_a_terminal_broke_are_joined():
    """Copied from a terminal of 70 columns, padded with blanks."""
    first, second = read("\n".join(WIDE))

    assert first.text == "[Rank 6] the watchdog got stuck"
    assert second.text == "[Rank 6] preparing the dump"
    assert (first.number, second.number) == (1, 3)


def test_rows_that_are_alike_are_not_joined():
    """A progress table's rows are as wide as each other, and whole."""
    rows = "\n".join(f"iter {i} loss 0.12345 ".ljust(79, "x") for i in range(10, 19))

    assert len(texts(rows)) == 9


def test_a_padded_row_of_rows_is_cut():
    """A copy that lost its line ends: each row is padded to the width."""
    rows = (
        "WARNING:torch.api:Sending a".ljust(60),
        "WARNING:torch.api:Sending b".ljust(60),
        "Traceback (most recent call last):".ljust(60),
        '  File "a.py", line 3, in f'.ljust(60),
        "    raise X(".ljust(60),
        "mod.X: y".ljust(60),
    )

    assert texts("".join(rows)) == [
        "Sending a",
        "Sending b",
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "    raise X(",
        "mod.X: y",
    ]


def test_a_line_of_any_length_is_cut_in_the_middle():
    """Both its beginning and its end tell something."""
    [text] = texts("a" * 100_000 + "b")

    assert len(text) < LINE_MAX_CHARS + 10
    assert text.endswith("b")


def test_rich_prints_a_time_once_for_all_lines_of_a_second():
    """The next ones have it too."""
    first, second = read(
        "[16:25:34] WARNING  a    api.py:7\n           WARNING  b    api.py:8"
    )

    assert first.at_s == second.at_s == 59134.0


PIECES = st.sampled_from(
    '[rank3]:|[|]|\r|│|\x1b[|\x1b]|{|"log":"|\\n| |1:|2024-05-08|T08:47:31Z|E0508 '
    "|s/it]|%|NCCL |\x00|é|Traceback (most recent call last):|WARNING:torch.|\n"
    "|PG 1 Rank 2]".split("|")
)


@pytest.mark.slow
@given(st.lists(PIECES | st.text(max_size=8), max_size=30))
def test_any_text_gives_printable_lines(pieces):
    """No crash, whatever a log holds; each line with a number of the file."""
    text = "".join(pieces).encode("utf-8", "surrogatepass")
    rows = text.count(b"\n") + 1

    for line in read(text):
        assert line.text.isprintable()
        assert 1 <= line.number <= rows


@given(st.binary(max_size=400))
def test_any_bytes_give_printable_lines(data):
    """Binary rubbish too."""
    assert all(line.text.isprintable() for line in read(data))


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["[", "\r", "7", "|", " ", "\x1b]", "s/it, ", "─", "é"]
)
def test_a_megabyte_of_anything_takes_linear_time(piece):
    """In one line and in many: no expression looks at a line again and again."""
    text = piece * (1_000_000 // len(piece))
    cut = "\n".join(text[i : i + 900] for i in range(0, len(text), 900))

    assert len(read(text)) + len(read(cut)) < 60_000
