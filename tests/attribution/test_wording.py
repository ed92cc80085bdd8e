"""How sentences are put together."""

import pytest

from dsup.attribution import wording
from dsup.core.verdict import SUMMARY_MAX_CHARS


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        pytest.param((2,), "Rank 2", id="one"),
        pytest.param((1, 3), "Ranks 1 and 3", id="two"),
        pytest.param((0, 2, 5), "Ranks 0, 2 and 5", id="three"),
        pytest.param((2, 3, 4), "Ranks 2 to 4", id="a range"),
        pytest.param(range(8), "All 8 ranks", id="all"),
    ],
)
def test_ranks_are_listed(ranks, text):
    """Ranks are listed, given as a range, or counted where all are meant."""
    assert wording.subject(ranks, 8) == text


def test_one_rank_alone_is_not_all():
    """A world of one has a rank, not "all"."""
    assert wording.subject((0,), 1) == "Rank 0"


@pytest.mark.parametrize(
    ("kib", "text"),
    [
        pytest.param(400 << 20, "400 GiB", id="hundreds"),
        pytest.param(1536 << 10, "1.5 GiB", id="a few"),
        pytest.param(64 << 10, "64 MiB", id="less than one"),
    ],
)
def test_sizes_have_three_digits(kib, text):
    """Sizes are in the unit that a reader would choose."""
    assert wording.gib(kib) == text


def test_a_sentence_ends_once_and_is_not_too_long():
    """There is one full stop, and a limit."""
    assert wording.sentence("It ended. ") == "It ended."
    assert len(wording.sentence("x" * 1000)) == SUMMARY_MAX_CHARS


def test_numbers_are_no_part_of_likeness():
    """Texts that differ by numbers and addresses alone are alike."""
    one, two = "rank 3 at 0x7f0a, 12 left", "rank 17 at 0x55, 9 left"

    assert wording.alike(one) == wording.alike(two)
