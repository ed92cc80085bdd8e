"""How memory went before a kill: what grew, by how much, and who stayed flat."""

from dsup.attribution.growth import of_growth
from dsup.attribution.timeline import End, Timeline
from dsup.facts.samples import Sample

GIB = 1024 * 1024


def timeline(*rows, ended_s=1000.0):
    """Return an attempt with one sample a minute, each with the GiB of every rank."""
    samples = tuple(
        Sample(60.0 * n, {rank: round(gib * GIB) for rank, gib in enumerate(row)})
        for n, row in enumerate(rows)
    )
    ends = (End(0, 100, -9, ended_s),)
    return Timeline(0, len(rows[0]), "node", 0.0, ends=ends, samples=samples)


def told(found):
    """Return the texts of evidence."""
    return [line.text for line in found]


def test_the_rank_that_grew_is_told_with_its_rate():
    """A leak is a number of GiB a minute, and the others' sizes stand beside it."""
    leak = timeline(*((34 + 7.2 * n, 34, 33.6) for n in range(9)))

    (text,) = told(of_growth(leak, (0,)))
    grown, others = text.split("; ")
    assert grown == "rank 0 grew from 62.8 GiB to 91.6 GiB, +7.2 GiB/min"
    assert others == "the other 2 33.6 GiB to 34 GiB, flat"


def test_a_flat_victim_is_told_with_the_rank_that_grew():
    """The kernel may kill one rank for what another one takes."""
    leak = timeline(*((34, 20 + n) for n in range(9)))

    assert told(of_growth(leak, (0,))) == [
        "rank 0 held 34 GiB, flat; the other rank 28 GiB, 1 of them growing",
        "rank 1 grew from 24 GiB to 28 GiB, +1 GiB/min; the other rank 34 GiB, flat",
    ]


def test_what_a_program_needs_to_start_is_no_growth():
    """The rate is that of the last half of the attempt's life."""
    start = timeline((1, 1), (20, 20), (34, 34), (34, 34), (34, 34), (34, 34))

    assert told(of_growth(start, (0,))) == [
        "rank 0 held 34 GiB, flat; the other rank 34 GiB, flat"
    ]


def test_one_sample_tells_nothing():
    """An attempt that died young has no curve."""
    assert not of_growth(timeline((34, 34)), (0,))


def test_two_samples_tell_a_direction():
    """What grows by the second is seen after seconds."""
    (line,) = of_growth(timeline((1, 1), (9, 1)), (0,))

    assert line.text.startswith("rank 0 grew from 1 GiB to 9 GiB, +8 GiB/min")


def test_samples_after_the_first_death_are_not_looked_at():
    """What is freed at the end would make a leak look flat."""
    rows = [(10 + n, 10) for n in range(6)] + [(0, 10)] * 3

    (line,) = of_growth(timeline(*rows, ended_s=301.0), (0,))

    assert line.text.startswith("rank 0 grew from 13 GiB to 15 GiB, +1 GiB/min")
    assert line.at_s == 300.0
