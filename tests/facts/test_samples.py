"""Samples: written as lines, read back by somebody who trusts none of them."""

import json

import pytest

from dsup.facts.samples import SAMPLES_MAX, Sample, decode, decode_all, encode, thinned

FULL = Sample(12.5, {0: 1000, 1: 2000}, {0: 7}, {0: "train"}, 4000, 8000)
BARE = Sample(12.5, {0: 1000})


@pytest.mark.parametrize("sample", [FULL, BARE])
def test_a_sample_is_read_back_as_it_was(sample):
    """What is known of a moment survives the file, and what is not stays unknown."""
    assert decode(encode(sample)) == sample


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'{"at": "soon", "rss_kb": {}}',
        b'{"at": NaN, "rss_kb": {}}',
        b'{"at": null}',
        b"\xff\xfe",
    ],
)
def test_a_line_that_is_no_sample_is_passed_over(line):
    """A torn or foreign line costs a point of a curve and nothing else."""
    assert decode(line) is None


def test_values_that_cannot_be_are_left_out():
    """A negative size, a rank with a name or an endless number says nothing."""
    row = {"at": 1, "rss_kb": {"0": -1, "x": 5, "1": 10**40, "2": 7}, "cgroup_kb": "a"}

    assert decode(json.dumps(row).encode()) == Sample(1.0, {2: 7})


def test_of_too_many_lines_the_last_are_kept():
    """A file that grew without limit costs no more than one that did not."""
    lines = [encode(Sample(float(n), {0: n})) for n in range(SAMPLES_MAX + 50)]

    found = decode_all(lines)

    assert len(found) == SAMPLES_MAX
    assert found[-1].at_s == SAMPLES_MAX + 49


def test_thinning_keeps_the_end_whole():
    """Old samples give way to new ones, every other of them."""
    lines = [str(n).encode() for n in range(8)]

    assert thinned(lines) == [b"0", b"2", b"4", b"6", b"7"]
