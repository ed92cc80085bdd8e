"""The picture of the seconds around the death, as values."""

from dsup.report.html.happened import events
from dsup.report.html.last_seconds import caption, last_seconds, strip
from dsup.report.html.lives import Signal


def texts(chart):
    """Return what is written in a chart."""
    return [text.text for text in chart.texts]


def test_the_story_of_a_death(stories):
    """The kernel's kill, the late end of the rank and dsup's signal are told."""
    story = stories.run()
    chart = last_seconds(story)

    assert "kernel log: Killed process 41877" in texts(chart)
    assert "rank 5 was gone; dsup ends the others" in texts(chart)
    assert "dying: the kernel frees 161\N{NO-BREAK SPACE}GiB" in texts(chart)
    assert sum(line.kind == "event" for line in chart.lines) == 2


def test_what_dsup_ended_pales_at_its_signal(stories):
    """A rank that dsup ended is pale from the signal on."""
    chart = last_seconds(stories.run())

    assert sum(bar.kind == "ending" for bar in chart.bars) == 5
    assert sum(bar.kind == "dying" for bar in chart.bars) == 1


def test_exit_order_misleads(stories):
    """Where others were gone before the first rank, the caption says so."""
    story = stories.run()
    attempt = story.attempt
    zero_s = attempt.verdict.at_s
    assert "mislead" not in caption(story, zero_s, attempt)

    lives = list(attempt.ranks)
    lives[4] = lives[4]._replace(end_s=zero_s + 0.3)
    said = caption(story, zero_s, attempt._replace(ranks=tuple(lives)))

    assert "Exit order alone would mislead" in said
    assert "before rank 5" in said


def test_a_hang_does_not_die(stories):
    """A rank that hangs is not said to take minutes to die."""
    story = stories.hang()
    chart = last_seconds(story)

    assert "hangs" in texts(chart)
    assert "mislead" not in caption(story, story.attempt.verdict.at_s, story.attempt)


def test_all_over_at_once(stories):
    """Where all is over after a tenth of a second, that tenth fills the picture."""
    story = stories.run(attempts=1)
    zero_s = story.attempt.verdict.at_s
    lives = tuple(
        life._replace(end_s=zero_s + life.rank / 100) for life in story.attempt.ranks
    )
    attempt = story.attempt._replace(ranks=lives, signals=(), end_s=zero_s + 0.1)
    chart = last_seconds(story._replace(attempts=(attempt,)))
    ends = [mark.x for mark in chart.marks]

    assert max(ends) - min(ends) > 250


def test_no_head_is_crossed_by_a_line(stories):
    """The line of one event goes through no other event's words."""
    story = stories.run(attempts=1)
    zero_s = story.attempt.verdict.at_s
    sent = tuple(Signal(zero_s + s, 15, (0,)) for s in (0.05, 0.2, 2.4))
    attempt = story.attempt._replace(signals=sent)
    chart = last_seconds(story._replace(attempts=(attempt,)))
    heads = [t for t in chart.texts if t.y < chart.bands[0].top - 110]

    for line in chart.lines:
        if line.kind == "event":
            (x, top), _ = line.points
            for text in heads:
                left, _, right, bottom = text.box
                assert not (left < x < right and top < bottom), (x, text)


def test_without_a_time_there_is_none(stories):
    """A verdict whose time is impossible has no last seconds."""
    story = stories.run(attempts=1)
    verdict = story.attempt.verdict._replace(at_s=5.0)
    attempt = story.attempt._replace(verdict=verdict)

    assert last_seconds(story._replace(attempts=(attempt,))) is None


def test_strip_has_every_rank(stories):
    """All ranks are drawn, three pixels each."""
    chart = strip(stories.run(ranks=1000))

    assert {bar.height for bar in chart.bars} == {3.0}
    assert len({bar.top for bar in chart.bars}) == 1000


def test_events_without_a_verdict(stories):
    """An attempt that did not fail has no last seconds."""
    story = stories.run(attempts=1)
    attempt = story.attempt._replace(verdict=None)

    assert events(story, attempt, 0.0) == []
    assert last_seconds(story._replace(attempts=(attempt,))) is None
