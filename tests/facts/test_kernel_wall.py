"""Dates in kernel logs: what is told is kept, and nothing is made up."""

import pytest

from dsup.facts.kernel_wall import wall_iso


@pytest.mark.parametrize(
    ("stamp", "wall"),
    [
        ("Sat Oct 12 18:35:32 2024", "2024-10-12T18:35:32"),
        ("Mon Jan  6 10:20:30 2025", "2025-01-06T10:20:30"),
        ("2024-10-12T18:35:32.123456+02:00", "2024-10-12T18:35:32.123456+02:00"),
        ("2024-04-29T14:55:41,678628+0200", "2024-04-29T14:55:41.678628+02:00"),
        ("Sat 2024-10-12 18:35:32 UTC", "2024-10-12T18:35:32Z"),
        ("2024-10-12 18:35:32 CEST", "2024-10-12T18:35:32"),
        ("2024/10/12 18:35:32", "2024-10-12T18:35:32"),
        ("Sat Oct 12 06:35:32 2024 PM", "2024-10-12T18:35:32"),
        ("1728750932.123456", "2024-10-12T16:35:32.123456+00:00"),
    ],
)
def test_a_whole_date_is_told_as_iso(stamp, wall):
    """A zone is told where the log tells it, as a number or as UTC."""
    assert wall_iso(stamp) == wall


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "18:35:32",
        "Oct 12 18:35:32",
        "Feb 31 10:00:00 2024",
        "Oct12 18:35",
        "x 99:99",
    ],
)
def test_half_a_date_is_none(stamp):
    """A year that the log does not tell is not guessed."""
    assert wall_iso(stamp) is None
