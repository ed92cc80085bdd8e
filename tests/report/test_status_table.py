"""The table of ``dsup status``: what is shown of a run where there is so much room."""

from itertools import product

import pytest

from dsup.report.columns import width
from dsup.report.status_cells import age, gib, lasting, slope
from dsup.report.status_table import Look, table

GIB = 1 << 20
SLOW = {"note": "no step for 61 s (limit 150)"}


def rank(number, **fields):
    known = {
        "rank": number,
        "local_rank": number,
        "pid": 41862 + 3 * number,
        "gpu": number,
        "state": "alive",
        "status": None,
        "phase": "train",
        "step": 13420,
        "beat_age_s": 0.2,
        "step_age_s": 1.1,
        "cpu_percent": 102.3,
        "rss_kb": int(34.1 * GIB),
        "kb_per_min": 12,
        "ecc": "ok",
        "note": "",
    }
    return {**known, **fields}


def status(ranks=(), **fields):
    known = {
        "schema": "dsup.status/1",
        "run": "20261130T144808Z-llm7b_gpu-a17",
        "at": "2026-11-30T14:34:35.123456Z",
        "live": True,
        "outcome": "running",
        "stage": "running",
        "attempt": 1,
        "attempt_s": 877.2,
        "run_s": 1500.0,
        "world_size": len(ranks),
        "alive": len(ranks),
        "restarts": {"used": 1, "limit": 1},
        "step": 13420,
        "steps_per_s": 0.8,
        "checkpoint": {"step": 13400, "age_s": 25.0},
        "memory": {"used_kb": 365 * GIB, "limit_kb": 400 * GIB, "kb_per_min": 7 * GIB},
        "ledger": {"ettr": 0.86},
        "ranks": list(ranks),
        "attempts": [
            {
                "attempt": 0,
                "at": "2026-11-30T14:19:48.000000Z",
                "summary": "Rank 5 was killed by the kernel.",
            }
        ],
    }
    return {**known, **fields}


def shown(document, **look):
    return [line for line, _ in table(document, Look(**look))]


GROWING = rank(1, note="memory grows", rss_kb=127 * GIB, kb_per_min=int(7.2 * GIB))


USUAL = """
    dsup llm7b  attempt 1, running 14 min 37 s, step 13420, 0.80/s      14:34:35 UTC
    checkpoint 13400, 25 s ago   cgroup 365 of 400 GiB, +7.0/min: full in 5 min
    restarts 1 of 1 used   new steps 86 % of the time

      rank     pid  phase     step   beat  rss GiB  GiB/min  ecc  note
         0   41862  train    13420   0.2s     34.1     +0.0  ok
    >    1   41865  train    13420   0.2s    127.0     +7.2  ok   memory grows

    attempt 0, 14:19:48: rank 5 was killed by the kernel  q quits"""


def test_a_run_on_a_terminal():
    """A head, a row a rank with its values under their names, the last failure."""
    said = shown(status([rank(0), GROWING]), cells=80, hint="q quits")

    assert said == [line[4:] for line in USUAL.splitlines()[1:]]


@pytest.mark.parametrize(
    ("cells", "titles"),
    [
        pytest.param(
            100,
            "rank pid gpu phase step beat step age cpu % rss GiB GiB/min ecc note",
            id="all",
        ),
        pytest.param(
            93,
            "rank pid phase step beat step age cpu % rss GiB GiB/min ecc note",
            id="without the GPU",
        ),
        pytest.param(
            90,
            "rank pid phase step beat step age rss GiB GiB/min ecc note",
            id="without the processor",
        ),
        pytest.param(
            80, "rank pid phase step beat rss GiB GiB/min ecc note", id="a terminal"
        ),
        pytest.param(79, "rank step beat note", id="narrow"),
    ],
)
def test_columns_give_way_to_the_width(cells, titles):
    """The narrower a terminal, the fewer columns, and those that matter stay."""
    said = shown(status([rank(0), GROWING]), cells=cells)
    head = next(line for line in said if "rank " in line and "note" in line)

    assert " ".join(head.split()) == titles


def test_columns_give_way_to_a_note():
    """A note that is longer than its room is shown whole all the same."""
    said = shown(status([rank(0), rank(1, **SLOW)]), cells=100)

    assert any(line.endswith("no step for 61 s (limit 150)") for line in said)


@pytest.mark.parametrize("noted", [0, 2, 64])
def test_it_fits_whatever_the_terminal(noted):
    """No line is wider than the terminal, and there are no more lines than it has."""
    ranks = [rank(n, **(SLOW if n < noted else {})) for n in range(64)]
    for lines, cells in product(
        (1, 3, 6, 8, 9, 12, 24, 60), (12, 20, 79, 80, 100, 200)
    ):
        said = shown(status(ranks), cells=cells, lines=lines, hint="q quits")

        assert len(said) <= lines
        assert max(map(width, said)) <= cells
        assert "q quits"[:cells] in said[-1]


def test_many_ranks_share_a_row():
    """Of 64 ranks, those with a note have a row, the others one, with the worst."""
    ranks = [rank(n) for n in range(64)]
    ranks[3] = rank(3, **SLOW)
    ranks[9] = rank(9, step=13001, beat_age_s=3.0, rss_kb=90 * GIB)
    said = shown(status(ranks), cells=100)

    assert [line.split()[:3] for line in said if line.startswith(">")] == [
        [">", "3", "41871"]
    ]
    rest = next(line for line in said if "63 more" in line)
    assert rest.split()[3:8] == ["train", "13001", "3.0s", "90.0", "+0.0"]
    assert rest.endswith("0-2, 4-63")
    assert sum("train" in line for line in said) == 2


def test_the_gravest_are_shown_where_not_all_can_be():
    """On a low terminal a silent rank is shown before those that are slow."""
    ranks = [rank(n, note="slow: 1.6x the median") for n in range(30)]
    ranks[29] = rank(29, note="silent 41 s")
    said = shown(status(ranks), cells=100, lines=14)

    assert any(line.startswith(">      29 ") for line in said)
    assert any("with a note, of" in line for line in said)


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        pytest.param(
            {"gpu": None, "ecc": None, "kb_per_min": None, "cpu_percent": None},
            [
                "0",
                "41862",
                "-",
                "train",
                "13420",
                "0.2s",
                "1.1s",
                "-",
                "34.1",
                "-",
                "-",
            ],
            id="not measured",
        ),
        pytest.param(
            {"pid": None, "rss_kb": None, "ecc": "unknown"},
            ["0", "?", "0", "train", "13420", "0.2s", "1.1s", "102", "?", "+0.0", "?"],
            id="unknown",
        ),
        pytest.param(
            {"state": "ended", "status": -9, "rss_kb": None, "beat_age_s": None},
            [
                *[">", "0", "41862", "0", "ended", "13420", "-", "1.1s", "102"],
                *["-", "+0.0", "ok", "killed", "by", "SIGKILL"],
            ],
            id="ended",
        ),
        pytest.param(
            {"pid": "x", "step": [], "phase": 7, "beat_age_s": True, "note": None},
            ["0", "?", "0", "-", "-", "-", "1.1s", "102", "34.1", "+0.0", "ok"],
            id="of the wrong types",
        ),
    ],
)
def test_what_is_not_known_is_said_so(fields, cells):
    """What is unknown is ``?``, what was not measured ``-``; nothing is made up."""
    said = shown(status([rank(0, **fields)]), cells=140)
    titles = next(n for n, line in enumerate(said) if line.startswith("  rank"))

    assert said[titles + 1].split() == cells


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param(
            {"stage": "deciding", "pause_left_s": 6.6}, "restart in 7 s", id="a pause"
        ),
        pytest.param({"stage": "parking"}, "stopping at the next step", id="a stop"),
        pytest.param({"alive": 6}, "6 of 2 ranks alive", id="some have ended"),
        pytest.param(
            {"live": False, "outcome": "failed", "exit": {"code": 3}},
            "failed after 25 min (exit code 3)",
            id="failed",
        ),
        pytest.param(
            {"live": False, "outcome": "lost", "lost": "agent"},
            "lost after 25 min (its agent has gone)",
            id="lost",
        ),
        pytest.param(
            {"live": False, "outcome": "lost", "lost": "guard"},
            "lost after 25 min (its guard was killed)",
            id="lost its guard",
        ),
        pytest.param(
            {"memory": {"used_kb": 34 * GIB, "limit_kb": None, "kb_per_min": None}},
            "cgroup 34.0 GiB ",
            id="no limit",
        ),
    ],
)
def test_the_head_says_how_it_stands(fields, told):
    """The first lines tell the stage, or how it ended, and what is left of memory."""
    assert told in "\n".join(shown(status([rank(0), rank(1)], **fields)))


@pytest.mark.parametrize("document", [{}, {"ranks": 3, "attempts": {}, "at": 7}])
def test_a_strange_document_is_shown_all_the_same(document):
    """A document that says next to nothing is a table that says next to nothing."""
    assert shown(document)[0].startswith("dsup ")


def test_hostile_texts_move_no_cursor():
    """Names and notes are shown as text, without Unicode as ASCII."""
    document = status([rank(0, note="\x1b[2J\u202e…", phase="\x07")], run="\x1b[31mx")
    said = "\n".join(shown(document, unicode=False))

    assert said.isascii()
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("make", "value", "told"),
    [
        (age, 0.04, "0.0s"),
        (age, 9.96, "10s"),
        (age, 599.0, "599s"),
        (age, 3600.0, "60min"),
        (age, 90000.0, "25h"),
        (gib, 34 * GIB, "34.0"),
        (gib, 1234 * GIB, "1234"),
        (slope, -3, "+0.0"),
        (slope, -2 * GIB, "-2.0"),
        (lasting, 59.6, "1 min"),
        (lasting, 7500, "2 h 5 min"),
        (lasting, 180000, "2 d 2 h"),
    ],
)
def test_numbers_take_few_cells(make, value, told):
    """Times and sizes have as many digits as matter."""
    assert make(value) == told


def test_in_a_pause_only_those_that_began_it_are_marked():
    """Whom dsup ended, and who fell with the first, are no news; all have a note."""
    notes = ["ended by dsup", "killed by SIGKILL", "exit code 1"]
    ends = [rank(n, state="ended", status=1, note=note) for n, note in enumerate(notes)]
    failed = {"attempt": 1, "first_ranks": [1], "summary": "Rank 1 was killed."}

    def marked(**fields):
        said = table(status(ends, **fields), Look())
        return [line[:7].split()[-1] for line, _ in said if line.startswith(">")]

    assert marked(attempts=[failed]) == ["1"]
    assert marked(attempts=[]) == ["1", "2"]


NARROW = """
    dsup llm7b  attempt 1, running 14 min 37 s, step 13420
    0.80 steps/s   checkpoint 13400, 25 s ago
    cgroup 365 of 400 GiB, +7.0/min: full in 5 min
    restarts 1 of 1 used   new steps 86 % of the time
    14:34:35 UTC"""


def test_a_narrow_terminal_shows_the_same_in_more_lines():
    """What the first line has no room for, stands below it."""
    said = shown(status([rank(0)]), cells=60)

    assert said[:5] == [line[4:] for line in NARROW.splitlines()[1:]]


ENDED = {"live": False, "outcome": "failed", "exit": {"code": 137}}


@pytest.mark.parametrize(
    ("fields", "cells", "first"),
    [
        pytest.param(
            {}, 60, "dsup llm7b  attempt 1, running 14 min 37 s, step 13420", id="runs"
        ),
        pytest.param({}, 44, "dsup llm7b  attempt 1, running, step 13420", id="44"),
        pytest.param({}, 40, "dsup llm7b  running, step 13420", id="40"),
        pytest.param(
            {"run": "20261130T144808Z-pretrain-llama-70b-long-context-1f9c2e_gpu-a17"},
            60,
            "dsup pretrain-llama-70b-long-context- …  running, step 13420",
            id="a long name",
        ),
        pytest.param(
            {"stage": "parking"},
            60,
            "dsup llm7b  attempt 1, stopping at the next step, step 13420",
            id="it stops",
        ),
        pytest.param(ENDED, 50, "dsup llm7b  failed, step 13420", id="it has ended"),
        pytest.param(
            ENDED,
            60,
            "dsup llm7b  failed after 25 min (exit code 137), step 13420",
            id="it has ended, on a wide one",
        ),
    ],
)
def test_the_first_line_has_run_stage_and_step(fields, cells, first):
    """However narrow the terminal is, within reason."""
    said = shown(status([rank(0)], **fields), cells=cells)

    assert said[0].startswith(first)
    assert "exit code 137" in " ".join(said) or "exit" not in fields


def test_many_ranks_lose_no_column_for_it():
    """The row that ranks share is labelled wider than a rank, in the same columns."""
    said = shown(status([rank(n) for n in range(64)]), cells=80)

    assert any("rss GiB" in line for line in said)
