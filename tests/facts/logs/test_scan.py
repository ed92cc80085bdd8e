"""What is kept of a log that is too large to be read line by line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.logs.raw import RawLine
from dsup.facts.logs.scan import BLOCK_BYTES, Limits, limits_for, scan

SMALL = Limits(whole=1000, head=500, tail=500, each=4)


def boring(first: int, last: int) -> bytes:
    return b"".join(b"step %06d loss 2.5 lr 0.001\n" % i for i in range(first, last))


def kept(data: bytes, limits: Limits = SMALL, size: int = BLOCK_BYTES) -> list[RawLine]:
    blocks = (data[i : i + size] for i in range(0, len(data), size))
    return list(scan("job.log", blocks, limits))


def test_a_small_log_is_handed_out_whole():
    """Blank lines too, and a last line without its end."""
    assert kept(b"a\n\nb\nc") == [
        RawLine("job.log", 1, b"a"),
        RawLine("job.log", 2, b""),
        RawLine("job.log", 3, b"b"),
        RawLine("job.log", 4, b"c"),
    ]


def test_of_a_large_log_the_beginning_the_end_and_the_errors_stay():
    """With their numbers; what lies between is left out."""
    data = boring(1, 90_000) + b"ValueError: no\n" + boring(90_001, 180_000)
    found = {line.number: line.data for line in kept(data)}

    assert found[1].startswith(b"step 000001")
    assert found[90_000] == b"ValueError: no"
    assert found[89_999].startswith(b"step 089999")
    assert found[179_999].startswith(b"step 179999")
    assert len(found) < 2_000


def test_the_lines_before_an_error_stay_with_it():
    """They hold the last progress."""
    data = boring(1, 90_000) + b"Traceback (most recent\n" + boring(90_001, 180_000)
    numbers = [line.number for line in kept(data)]

    assert set(range(89_900, 90_200)) <= set(numbers)


def test_a_word_between_two_blocks_is_found():
    """The seam is looked at as well."""
    data = boring(1, 4_000) + b"Traceback\n" + boring(4_001, 9_000)
    at = data.index(b"Traceback") + 4
    blocks = (data[:at], data[at:])
    found = [line.data for line in scan("job.log", blocks, SMALL)]

    assert b"Traceback" in found


@pytest.mark.parametrize("size", [1 << 20, 70_000, 4_096])
def test_the_size_of_blocks_changes_no_number(size):
    """A pipe gives what it has."""
    data = boring(1, 9_000) + b"killed\n" + boring(9_001, 20_000)
    rows = data.split(b"\n")

    for line in kept(data, size=size):
        assert rows[line.number - 1].endswith(line.data)


def test_a_log_of_nothing_but_errors_keeps_the_first_and_the_last():
    """And does not grow."""
    data = b"".join(
        b"error %06d: the same again and again\n" % i for i in range(200_000)
    )
    found = kept(data)

    assert found[0].data.startswith(b"error 000000")
    assert found[-1].data.startswith(b"error 199999")
    assert sum(len(line.data) for line in found) < 400_000


def test_a_rare_error_is_not_lost_among_frequent_ones():
    """Each kind has room of its own."""
    noise = b"".join(b"error %06d: retry\n" % i for i in range(60_000))
    data = noise + b"Traceback (most recent call last):\nX: why\n" + noise

    assert b"X: why" in [line.data for line in kept(data)]


def test_a_bar_without_end_is_cut_at_its_states():
    """Megabytes of one line: what is glued to it is found."""
    bar = b"".join(b"\r 5%%| %06d" % i for i in range(200_000))
    data = bar + b"RuntimeError: no" + bar
    found = [line.data for line in kept(data)]

    assert any(b"RuntimeError: no" in row for row in found)
    assert sum(map(len, found)) < 200_000


def test_many_files_share_the_room():
    """A folder of thousands of rank logs takes no more than a few."""
    for files in (1, 8, 100, 4_096):
        assert limits_for(files).whole * files <= 80 * BLOCK_BYTES


@given(
    st.lists(
        st.sampled_from([b"x", b"\n", b"error", b"\r", b"kill", b"ed\n"]), max_size=300
    ),
    st.integers(1, 50),
)
def test_any_log_gives_each_kept_line_once_and_in_order(pieces, size):
    """Whatever its regions are and however they overlap."""
    data = b"".join(pieces) * 9
    rows = data.split(b"\n")
    limits = Limits(whole=100, head=40, tail=60, each=2)
    found = kept(data, limits, size)
    numbers = [line.number for line in found]

    assert numbers == sorted(numbers)
    for line in found:
        assert line.data in rows[line.number - 1]


@pytest.mark.slow
def test_lines_that_tell_nothing_are_not_even_made(calls_of):
    """Four hundred thousand of them cost a search for each word in each block."""
    short, long = boring(1, 200_000), boring(1, 600_000)
    blocks = (len(long) - len(short)) // BLOCK_BYTES + 1
    more = calls_of(lambda: kept(long, Limits())) - calls_of(
        lambda: kept(short, Limits())
    )

    assert more < 100 * blocks
