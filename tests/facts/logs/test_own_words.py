"""What dsup itself has printed into somebody's log."""

import pytest

from dsup.facts.logs.attempts import split
from dsup.facts.logs.extract import attempt
from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.streams import lines

CONSOLE = """\
dsup: 2 ranks of train; logs in /runs/20260702T100000Z-train-a1b2c3_n7; \
OMP_NUM_THREADS=1 as torchrun sets it
epoch 1
dsup: rank 1 (pid 77) ended with exit code 1, the first to fail; ending rank 0
━━ dsup ━ attempt 0 failed ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 10:00:03 UTC ━━
Rank 1 raised KeyError: 'labels' and the sentence goes on
in a second line (data.py:7).

 cause    python_exception, proven
 first    {first}
 proof    note    KeyError: 'labels' (data.py:7)
 do       read the traceback and fix the script
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
dsup: given up with exit code 1: the script itself failed
"""


def told(text):
    raw = [
        RawLine("job.out", i, row.encode()) for i, row in enumerate(text.split("\n"))
    ]
    return [attempt(batch.lines, batch.number) for batch in split(lines(raw))]


@pytest.mark.parametrize("line", ["━", "="])
@pytest.mark.parametrize(
    ("first", "ranks"),
    [
        ("rank 1 on n7 (local 1, pid 77), 10:00:03.2", (1,)),
        ("ranks 0-2, 5 on n7, 10:00:03.2", (0, 1, 2, 5)),
        ("ranks 3, 5, 10:00:03.2", (3, 5)),
        ("no rank can be named", ()),
    ],
)
def test_a_panel_is_read(line, first, ranks):
    """Its sentence, its cause and its ranks, drawn in either character set."""
    (found,) = told(CONSOLE.format(first=first).replace("━", line))

    (panel,) = found.panels
    assert panel.text == (
        "Rank 1 raised KeyError: 'labels' and the sentence goes on in a second line "
        "(data.py:7)."
    )
    assert (panel.cause, panel.ranks) == ("python_exception", ranks)
    assert (found.launcher, found.world_size) == ("dsup", 2)
    assert found.directory == "/runs/20260702T100000Z-train-a1b2c3_n7"


def test_two_runs_in_one_log_are_two_attempts():
    """Each has a panel of its own."""
    text = CONSOLE.format(first="rank 1 on n7")

    assert [len(one.panels) for one in told(text * 2)] == [1, 1]


def test_a_panel_that_never_ends_is_no_panel_for_long():
    """A forged head makes nobody read on for ever, and eats no traceback."""
    head = "━━ dsup ━ attempt 0 failed ━━\n"
    text = head + "say\n" * 40 + "[rank1]: Traceback (most recent call last):\n"
    text += '[rank1]:   File "/app/t.py", line 7, in <module>\n'
    (found,) = told(f"{text}[rank1]: ValueError: no labels\n")

    assert not found.panels
    assert [error.type for error in found.errors] == ["ValueError"]


def test_a_panel_that_a_rank_prints_is_none_of_dsup():
    """No rank stands before the lines of dsup's own console."""
    rows = CONSOLE.format(first="rank 1 on n7").split("\n")
    forged = "\n".join(f"[rank0]: {row}" for row in rows[3:])

    assert not any(one.panels for one in told(forged))
