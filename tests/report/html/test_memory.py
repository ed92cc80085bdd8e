"""Memory below the timeline, as values."""

from collections import Counter

from dsup.facts.samples import Sample
from dsup.report.html import growth, memory
from dsup.report.html.scale import Scale, Stretch
from dsup.report.html.timeline import whole_run

GIB = 1 << 20
SCALE = Scale((Stretch(0, 1000, 74, 862),))


def test_few_points_of_many_samples():
    """Ten thousand samples become at most two points in three pixels."""
    samples = [Sample(n / 10, {0: GIB + n % 100 * 1000, 1: GIB}) for n in range(10_000)]

    found = memory.points(samples, frozenset({0}), SCALE)
    columns = Counter(int(point.x // memory.COLUMN_PX) for point in found)

    assert len(found) <= 600
    assert max(columns.values()) <= 2
    assert max(p.total for p in found) == max(sum(s.rss_kb.values()) for s in samples)


def test_first_above_the_others(stories):
    """The first rank's area lies on the others', and ends at the limit."""
    chart = whole_run(stories.run(attempts=1))
    others, own = chart.areas

    assert (others.kind, own.kind) == ("others", "own")
    assert own.bottom == others.top
    limit = next(line.points[0][1] for line in chart.lines if line.kind == "limit")
    assert abs(own.top[-1][1] - limit) < 3


def test_left_out_where_it_explains_nothing(stories):
    """A script's own exception has no memory below it, unless memory was full."""
    story = stories.run(attempts=1)
    verdict = story.attempt.verdict._replace(cause="python_exception")
    low = tuple(s._replace(limit_kb=4000 * GIB) for s in story.attempt.samples)
    told = story.told[0]._replace(verdict=verdict)
    attempt = story.attempt._replace(verdict=verdict, samples=low)
    other = story._replace(attempts=(attempt,), told=(told,))

    assert not whole_run(other).areas
    assert not whole_run(stories.unknown()).areas


def test_a_limit_far_away_is_not_drawn(stories):
    """A limit of ten times what is used is told, but does not flatten the curve."""
    story = stories.run(attempts=1)
    low = tuple(s._replace(limit_kb=4000 * GIB) for s in story.attempt.samples)
    attempt = story.attempt._replace(samples=low)
    chart = whole_run(story._replace(attempts=(attempt,)))

    assert not any(line.kind == "limit" for line in chart.lines)
    assert any("far above" in text.text for text in chart.texts)


def test_page_cache_has_a_line(stories):
    """Where the cgroup holds more than its ranks, that is a line of its own."""
    story = stories.run(attempts=1)
    more = tuple(
        s._replace(cgroup_kb=int(s.cgroup_kb * 1.5)) for s in story.attempt.samples
    )
    chart = whole_run(story._replace(attempts=(story.attempt._replace(samples=more),)))

    assert "cgroup" in chart.kinds
    assert "cgroup" not in whole_run(story).kinds


def test_samples_of_nothing(stories):
    """Samples without a number draw nothing, and break nothing."""
    story = stories.run(attempts=1)
    for samples in ((), (Sample(stories.start_s, {}),), (Sample(0.0, {5: 0}),) * 3):
        attempt = story.attempt._replace(samples=samples)
        assert whole_run(story._replace(attempts=(attempt,)))


def test_values_are_round():
    """The axis has three to six round values, the highest at most the top."""
    for top_kb in (3000, 90_000, 7 * GIB, 64 * GIB, 400 * GIB, 1999 * GIB):
        steps = memory.steps_kb(top_kb)
        assert 3 <= len(steps) <= 6
        assert steps[0] == 0
        assert steps[-1] <= top_kb


def test_growth(stories):
    """A leak is told by its rate, the others as flat."""
    said = growth.sentence(stories.run(attempts=1).attempt)

    assert said.replace("\N{NO-BREAK SPACE}", " ") == (
        "Rank 5 held 161 GiB and grew by 7.2 GiB per minute over the last "
        "11 min 37 s; the other 7 stayed at 34 GiB each."
    )


def test_left_out_where_there_was_one_look(stories):
    """One point is no curve, and an empty frame says nothing."""
    story = stories.run(attempts=1)
    one = story.attempt._replace(samples=story.attempt.samples[-1:])

    assert whole_run(story._replace(attempts=(one,))).areas == ()
    assert "memory of the" not in " ".join(
        text.text for text in whole_run(story._replace(attempts=(one,))).texts
    )
