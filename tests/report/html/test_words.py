"""Numbers, times and texts as the page shows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.report.html import words
from dsup.report.html.words import NBSP


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0031, "3 ms"),
        (1.58, "1.58 s"),
        (9.999, "10 s"),
        (59.7, "1 min"),
        (2349, "39 min 9 s"),
        (7200, "2 h"),
        (12 * 3600 + 59, "12 h"),
        (90_061, "1 d 1 h"),
        (float("nan"), "?"),
    ],
)
def test_duration(seconds, text):
    """A duration has two units at most, and three digits below ten seconds."""
    assert text == words.duration(seconds).replace(NBSP, " ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.58, "+1.58 s"),
        (0.0061, "+0.006 s"),
        (0.512, "+0.51 s"),
        (-9.0, "−9 s"),  # noqa: RUF001 (a minus is what the page shows)
        (153.0, "+2 min 33 s"),
    ],
)
def test_later(seconds, text):
    """A distance from the death has a sign, and no more digits than are known."""
    assert text == words.later(seconds).replace(NBSP, " ")


def test_between():
    """Two distances with one unit name it once."""
    assert words.between(1.9, 2.4).replace(NBSP, " ") == "+1.9 to +2.4 s"
    assert words.between(1.9, 90).replace(NBSP, " ") == "+1.9 s to +1 min 30 s"
    assert words.between(1.9, 1.9).replace(NBSP, " ") == "+1.9 s"


@pytest.mark.parametrize(
    ("kb", "text"),
    [
        (161 * 2**20, "161 GiB"),
        (33.9 * 2**20, "33.9 GiB"),
        (7.2 * 2**20, "7.2 GiB"),
        (0.5 * 2**20, "0.5 GiB"),
        (20_480, "20 MiB"),
    ],
)
def test_size(kb, text):
    """A size has three digits, in GiB unless it is small."""
    assert text == words.size(kb).replace(NBSP, " ")


def test_clock_is_cut():
    """A time of day is cut off, not rounded: nothing is told as later than it was."""
    assert words.clock(1.9999, 3) == "00:00:01.999"
    assert words.clock(1.9999) == "00:00:01"


def test_clock_of_no_time():
    """What is no time is shown as one all the same, and breaks nothing."""
    for wall_s in (float("nan"), float("inf"), -5.0, 1e300):
        assert len(words.clock(wall_s, 3)) == 12
        assert words.date(wall_s)


def test_period():
    """A span of time names its day once."""
    assert words.period(0.0, 2400.0) == "1970-01-01, 00:00 to 00:40"
    assert words.period(0.0, 3.0) == "1970-01-01, 00:00:00 to 00:00:03"
    assert words.period(0, 86400 * 1.5) == ("1970-01-01 00:00 to 1970-01-02 12:00")


def test_shown_moves_nothing():
    """Control and direction characters are shown by their numbers."""
    assert words.shown("a\x1b[2J\u202eb\u2028\x00\n") == (
        "a\\x1b[2J\\u202eb\\u2028\\x00\\n"
    )
    assert words.shown(f"1{NBSP}s") == f"1{NBSP}s"


@given(st.text(max_size=200))
def test_pieces_are_the_text(text):
    """Where a line may break changes nothing of what is copied."""
    found = words.pieces(text)

    assert text == "".join(found)
    assert all("," not in piece[:-1] and "/" not in piece[:-1] for piece in found)


@given(st.text(max_size=100), st.floats(8, 400))
def test_fitted_fits(text, width):
    """A cut text is no wider than its place, and says that it is cut."""
    seen = words.fitted(text, 12.5, width)

    assert seen == text or seen.endswith("…")
    assert words.text_width(seen, 12.5) <= max(width, words.text_width("…", 12.5))


def test_capped():
    """A long text says how much of it is left out."""
    assert words.capped("abc", 3) == "abc"
    assert words.capped("abcdef", 3) == "abc… (3 more characters)"


@pytest.mark.parametrize(
    ("code", "text"),
    [(137, "128 + SIGKILL"), (143, "128 + SIGTERM"), (1, ""), (193, "")],
)
def test_code_words(code, text):
    """An exit code above 128 is taken apart, where a signal made it."""
    assert text == words.code_words(code)


def test_a_clock_is_as_exact_as_a_time_of_today():
    """A float of this century is a quarter of a microsecond off."""
    assert words.clock(1_796_041_735.257, 3).endswith(".257")
