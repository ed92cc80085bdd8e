"""How a verdict came about, in lines, and what attempts have in common."""

import pytest

from dsup.core.verdict import Looked, Verdict
from dsup.report.columns import Columns, width
from dsup.report.compared import compared
from dsup.report.panel import WIDTH
from dsup.report.why import why

RAISED = Verdict(
    attempt=0,
    cause="python_exception",
    first_ranks=(1,),
    certainty="proven",
    at_s=100.0,
    summary="Rank 1 raised ValueError: no.",
    rule="raised",
    looked=(
        Looked("obstacle"),
        Looked("crashed"),
        Looked("raised", "python_exception", (1,)),
        Looked("only_victims", "store_lost", (0, 2)),
        Looked("killed"),
    ),
    would_change=("the output of rank 3 was not seen",),
    signature="python_exception ValueError",
)
TEXT = """\
 why      rule raised spoke: python_exception of rank 1, proven
          (dsup explain raised tells what it looks for)
 before   asked before it, and silent: obstacle, crashed
 after    only_victims would have said store_lost of ranks 0, 2
          asked after it, and silent: killed
 missing  the output of rank 3 was not seen"""


def test_who_spoke_who_would_have_and_who_had_nothing_to_say():
    """In the order of the rules; what would change the answer is last."""
    assert "\n".join(why(RAISED, Columns())) == TEXT


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"looked": ()}, "which others were tried was not kept", id="old"),
        pytest.param(
            {"rule": "unknown", "cause": "unknown", "certainty": "unknown"},
            "rule unknown spoke: unknown of rank 1; none of 5 rules had",
            id="unknown",
        ),
        pytest.param(
            {"would_change": ()}, "nothing that dsup could look for", id="nothing more"
        ),
    ],
)
def test_what_is_not_there_is_said(fields, said):
    """An old verdict.json keeps no rules; a sure answer lacks nothing."""
    lines = " ".join(line.strip() for line in why(RAISED._replace(**fields), Columns()))

    assert said in lines


def test_the_lines_are_as_wide_as_a_panel_whatever_is_in_them():
    """Hostile words of a file move no cursor."""
    evil = "\x1b[2J━" * 200
    lines = why(
        RAISED._replace(
            looked=tuple(Looked(evil, evil, (1,)) for _ in range(64)),
            would_change=(evil,) * 12,
        ),
        Columns(unicode=False),
    )

    assert max(map(width, lines)) <= WIDTH
    assert all(line.isascii() and line.isprintable() for line in lines)


def died(attempt, cause="killed", ranks=(1,), signature=None):
    """Return an attempt's verdict."""
    return RAISED._replace(
        attempt=attempt, cause=cause, first_ranks=ranks, signature=signature or cause
    )


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        pytest.param([died(0)], "", id="one attempt is like no other"),
        pytest.param(
            [died(0), died(1)],
            "attempts compared: the same signature in all 2: killed, each time rank 1",
            id="the same rank: a machine's",
        ),
        pytest.param(
            [died(0), died(1, ranks=(3,))],
            "attempts compared: the same signature in all 2: killed, rank 1, then "
            "rank 3",
            id="another rank: the code's",
        ),
        pytest.param(
            [died(0, "hang"), died(1), died(2, ranks=())],
            "attempts compared: the same signature in attempts 1-2: killed; another in "
            "attempt 0",
            id="the last two",
        ),
        pytest.param(
            [died(0, "hang"), died(1)],
            "attempts compared: the last one has a signature of its own: hang, then "
            "killed",
            id="none alike",
        ),
    ],
)
def test_attempts_are_compared_by_their_signature(verdicts, said):
    """The same death twice is no accident."""
    assert compared(verdicts) == said
