"""What syslog writes before a kernel's line: a date, a host and a tag, in any form."""

from itertools import product

import pytest

from dsup.facts.kernel_text import record_of
from dsup.facts.kernel_wall import wall_iso, wall_us

TEXT = "Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:2kB"
WALLS = {
    "2024-03-01 12:00:00": "2024-03-01T12:00:00",
    "2024.03.01 12:00:00": "2024-03-01T12:00:00",
    "20240301T120000": "2024-03-01T12:00:00",
    "20240301T120000.5+0100": "2024-03-01T12:00:00.5+01:00",
    "20240301 12:00:00": "2024-03-01T12:00:00",
    "20240301120000": "2024-03-01T12:00:00",
    "01-Mar-2024 12:00:00.123": "2024-03-01T12:00:00.123",
    "01/Mar/2024:12:00:00 +0000": "2024-03-01T12:00:00+00:00",
    "1709294400": "2024-03-01T12:00:00+00:00",
    "1709294400.25": "2024-03-01T12:00:00.250000+00:00",
    # Nobody tells whether the day comes first, or which year it is.
    "01/03/2024 12:00:00": None,
    "03/01/2024 12:00:00 PM": None,
    "01.03.2024 12:00:00": None,
    "03-01 12:00:00": None,
    "Mar  1 12:00:00": None,
}
SIGNED = [
    "node7 kernel:",
    "node7 kernel[n/a]:",
    "node7 kernel[-]:",
    "node7 kernel[123]:",
    "node7 user.err kernel:",
    "node7 node7 kernel:",
    "kernel:",
    "node7 kernel - - -",
    'node7 kernel n/a ID47 [meta seq="1" x="a] b"][o@1 y=""]',
]
FOREIGN = [
    "node7 python:",
    "node7 python[12]:",
    "node7 python[n/a]: kernel:",
    "node7 rsyslogd: kernel:",
    "node7 kernel-watch - - -",
    "node7 python - - - kernel:",
    "INFO train kernel:",
    "ERROR kernel:",
]


@pytest.mark.parametrize("date", WALLS)
def test_a_header_comes_off_whatever_its_date_and_tag(date):
    """What remains is the kernel's text, and the date is kept as it was shown."""
    for tag, ring in product(SIGNED, ("", "[   12.345678] ")):
        record = record_of(f"{date} {tag} {ring}{TEXT}".encode())

        assert record is not None, tag
        assert (record.text, record.stamp) == (TEXT, date), tag
        assert record.at_us == (12_345_678 if ring else None)


@pytest.mark.parametrize("date", WALLS)
def test_a_line_that_another_program_signed_is_not_the_kernels(date):
    """Whatever it quotes."""
    for tag in FOREIGN:
        record = record_of(f"{date} {tag} {TEXT}".encode())

        assert record is None or not record.text.startswith("Out of"), tag


@pytest.mark.parametrize(
    ("header", "stamp"),
    [
        ("<4>1 2024-03-01T12:00:00.5Z node7 kernel - - - ", "2024-03-01T12:00:00.5Z"),
        ("<4>1 2024-03-01T12:00:00Z node7 kernel 123 - - ", "2024-03-01T12:00:00Z"),
        ("<4>1 2024-03-01T12:00:00Z - kernel - - - \ufeff", "2024-03-01T12:00:00Z"),
        ("<4>1 - node7 kernel - - - ", ""),
        ('<4>1 - node7 kernel - - [timeQuality tzKnown="1"] ', ""),
        ("<30>1 - node7 kernel - - - ", None),
        ("<4>1 - node7 python - - - ", None),
    ],
)
def test_a_line_of_rfc_5424_is_the_kernels_by_its_program_and_facility(header, stamp):
    """Its time and host may be missing, and data may stand before the text."""
    record = record_of(f"{header}{TEXT}".encode())
    found = record.stamp if record and record.text == TEXT else None

    assert found == stamp


@pytest.mark.parametrize(("stamp", "wall"), WALLS.items())
def test_a_date_is_told_only_where_nothing_is_to_be_guessed(stamp, wall):
    """Times of one log can be compared all the same."""
    later = stamp.replace("12:00:00", "12:00:07").replace("120000", "120007")
    later = later.replace("1709294400", "1709294407")

    assert wall_iso(stamp) == wall
    assert (wall_us(later) or 0) - (wall_us(stamp) or 0) == 7_000_000
