"""What viewers put before every line: taken off where it is plain, kept elsewhere."""

import pytest

from dsup.facts.logs.gutter import Gutter
from dsup.facts.logs.raw import RawLine

LOG = (
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "t.py", line 3, in <module>',
    "",
    "[rank1]: ValueError: no",
    "srun: error: n7: task 1: Exited with exit code 1",
    "done",
)


def bare(*texts, skipped=0):
    """Return the texts of lines without their gutter."""
    rows = [RawLine("f", i + skipped, t.encode()) for i, t in enumerate(texts, 1)]
    return tuple(line.data.decode() for line in Gutter(rows).off(rows))


PUT_BEFORE = {
    "cat -n": lambda number, text: f"{number:6d}\t{text}",
    "a pager's numbers": lambda number, text: f"{number:>4} {text}",
    "an editor's ruler": lambda number, text: f"{number:>3} | {text}",
    "numbers that begin elsewhere": lambda number, text: f"{number + 700} {text}",
    "a code block": lambda _, text: f"    {text}" if text else "",
    "a tab": lambda _, text: f"\t{text}",
    "a quotation": lambda _, text: f"> {text}" if text else ">",
}


@pytest.mark.parametrize("put", PUT_BEFORE.values(), ids=PUT_BEFORE.keys())
def test_a_gutter_is_taken_off_and_what_is_behind_stays(put):
    """Frames keep the indentation that they had."""
    pasted = [put(number, text) for number, text in enumerate(LOG, 1)]

    assert bare(*pasted) == LOG


KEPT = {
    "labels of srun": ("0: up", "1: up", "2: up", "3: up", "4: up"),
    "numbers that skip": ("1 a", "2 b", "4 c", "5 d", "6 e"),
    "too few numbers": ("1 a", "2 b"),
    "frames whose head is cut": ('  File "a.py", line 1, in f', "    g()"),
    "prose": ("  one thing", "  and another"),
    "one quoted line": ("> ValueError: no", "ValueError: no"),
}


@pytest.mark.parametrize("texts", KEPT.values(), ids=KEPT.keys())
def test_what_only_looks_like_a_gutter_is_kept(texts):
    """Ranks and the indentation of code are none."""
    assert bare(*texts) == texts


def test_emphasis_goes_and_a_launchers_own_marks_stay():
    """A mail makes words bold; Slurm and Open MPI put three asterisks."""
    said = "slurmstepd: error: *** STEP 3.0 CANCELLED ***"

    assert bare("> **X: y**", f"> {said}") == ("X: y", said)


def test_a_line_without_the_number_is_left_alone():
    """The sample tells of the gutter; a line that was put between has none."""
    rows = [RawLine("f", i, f"{i}\tx".encode()) for i in range(1, 7)]
    other = RawLine("f", 7, b"7 GPUs found")

    assert list(Gutter(rows).off([other])) == [other._replace(data=b"GPUs found")]
    assert list(Gutter(rows).off([other._replace(number=9)])) == [
        other._replace(number=9)
    ]
