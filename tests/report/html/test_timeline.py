"""The picture of the whole run, as values."""

from itertools import combinations, pairwise

from dsup.report.html import last_seconds
from dsup.report.html.chart import GUTTER, LEFT, RIGHT, WIDTH, apart, overlap
from dsup.report.html.timeline import whole_run


def charts(story):
    """Return the charts of a story."""
    both = (whole_run(story), last_seconds.last_seconds(story))
    return [chart for chart in both if chart]


def test_no_two_labels_overlap(any_story):
    """In no story does a label lie on another one, whatever font the reader has."""
    for chart in charts(any_story):
        for one, other in combinations(chart.texts, 2):
            tight = {one.x, other.x} == {GUTTER} or one.x == other.x == 8
            assert tight or not overlap(one, other, 0.0), (one, other)


def test_rows_have_a_line_each(any_story):
    """Labels of rows that follow each other are at least a line apart."""
    for chart in charts(any_story):
        for x in (8, GUTTER):
            lines = sorted(text.y for text in chart.texts if text.x == x)
            assert all(b - a >= 12 for a, b in pairwise(lines))


def test_everything_is_inside(any_story):
    """Bars lie in the plot, labels on the page."""
    for chart in charts(any_story):
        for bar in chart.bars:
            assert LEFT <= bar.left < bar.right <= RIGHT + 1
            assert 0 <= bar.top < bar.top + bar.height <= chart.height
        for text in chart.texts:
            assert 0 <= text.y <= chart.height
            assert -1 <= text.x <= WIDTH


def test_ticks(any_story):
    """Where there is a clock there are six to ten ticks."""
    if not any_story.clock:
        return
    for chart in charts(any_story):
        across = {
            line.points[0][0]
            for line in chart.lines
            if line.kind == "grid" and line.points[0][0] == line.points[1][0]
        }
        assert 6 <= len(across) <= 10


def test_orange_is_where_it_began(stories):
    """Only the first rank's row is orange, in each attempt in which it was first."""
    chart = whole_run(stories.run())
    orange = {bar.top for bar in chart.bars if bar.kind in {"first", "fstart"}}

    assert len(orange) == 1
    assert [m.kind for m in chart.marks].count("died") == 4  # rows and memory
    assert sum(bar.kind == "first" for bar in chart.bars) == 2


def test_another_attempt_another_rank(stories):
    """A rank that was first in the other attempt only is not orange in this one."""
    story = stories.run()
    other = stories.attempt(0, stories.start_s, 1168.0, first=2)
    chart = whole_run(story._replace(attempts=(other, story.attempts[1])))
    tops = {bar.top for bar in chart.bars if bar.kind == "first"}

    assert len(tops) == 2


def test_all_alike_nothing_is_orange(stories):
    """Where all ranks failed alike no bar is loud, and every row has a cross."""
    story = stories.run(attempts=1)
    verdict = story.attempt.verdict._replace(
        first_ranks=tuple(range(8)), victims=(), ended_by_dsup=()
    )
    attempt = story.attempt._replace(verdict=verdict)
    told = story.told[0]._replace(verdict=verdict)
    chart = whole_run(story._replace(attempts=(attempt,), told=(told,)))

    assert not chart.bands
    assert not any(bar.kind == "first" for bar in chart.bars)
    assert [mark.kind for mark in chart.marks] == ["died"] * 8


def test_past_six_hours_older_attempts_are_blocks(stories):
    """In a run of ten hours the last attempt is whole, older ones have one width."""
    chart = whole_run(stories.run(attempts=3, lived_s=12000))
    brackets = [line.points for line in chart.lines if line.kind == "bracket"]
    widths = sorted(points[-1][0] - points[0][0] for points in brackets)

    assert len(widths) == 3
    assert abs(widths[0] - 58) < 1
    assert abs(widths[1] - 58) < 1
    assert widths[2] > 600


def test_of_many_attempts_the_last_are_drawn(stories):
    """Of forty attempts twelve are drawn."""
    story = stories.run(attempts=40, lived_s=300)
    chart = whole_run(story)

    assert sum(line.kind == "bracket" for line in chart.lines) == 12


def test_checkpoints_are_gaps(stories):
    """Each checkpoint is a gap in each row; too many are left out."""
    story = stories.run(attempts=1)
    chart = whole_run(story)

    assert sum(line.kind == "gap" for line in chart.lines) == 8 * 3
    dense = tuple(stories.start_s + 2 * n for n in range(500))
    attempt = story.attempt._replace(checkpoints=dense)
    chart = whole_run(story._replace(attempts=(attempt,)))
    assert "gap" not in chart.kinds


def test_start_up_is_shown_where_it_is_known(stories):
    """Nothing is called start-up in a run that told of no step."""
    assert "start" in whole_run(stories.run()).kinds
    assert "start" not in whole_run(stories.unknown()).kinds


def test_without_a_clock_there_is_only_order(stories):
    """A log without times has rows but no ticks, and no last seconds."""
    story = stories.no_clock()
    chart = whole_run(story)

    assert not any(text.text == "UTC" for text in chart.texts)
    assert not any(line.kind == "grid" for line in chart.lines)
    assert len(chart.bands) == 1
    assert last_seconds.last_seconds(story) is None


def test_without_ranks_there_is_no_picture(stories):
    """A story of which no rank is known has no timeline."""
    assert whole_run(stories.log(spans=())) is None


def test_summary_row_spans_its_ends(stories):
    """The row of many ranks has a mark at its first and at its last end."""
    chart = last_seconds.last_seconds(stories.run(ranks=64))
    bottom = max(mark.y for mark in chart.marks)
    ends = [mark.x for mark in chart.marks if mark.y == bottom]

    assert len(ends) == 2
    assert ends[0] < ends[1]


def test_apart():
    """Blocks keep their order, do not touch, and end where they must."""
    tops = apart([0, 2, 90], [20, 20, 20], 100)

    assert tops == [0, 20, 80]
