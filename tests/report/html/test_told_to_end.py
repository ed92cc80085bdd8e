"""A rank that got dsup's signal and left with 0 was told to end, not ended."""

from dsup.core.verdict import with_ends
from dsup.report.columns import Columns
from dsup.report.course import course
from dsup.report.html import phrases, tables
from dsup.report.html.lives import roles
from dsup.report.html.rows import outcome
from dsup.report.rank_rows import how_it_ended
from dsup.report.sentences import victims
from dsup.report.verdict_file import decode, encode


def story_of(stories):
    """Return the story of a run in whose only attempt rank 2 left with 0."""
    story = stories.run(attempts=1)
    attempt = story.attempts[0]
    lives = [one._replace(status=0) if one.rank == 2 else one for one in attempt.ranks]
    ends = {one.rank: one.status for one in lives}
    verdict = with_ends(attempt.verdict, ends)
    told = story.told[0]._replace(verdict=verdict)
    attempt = attempt._replace(ranks=tuple(lives), verdict=verdict)
    return story._replace(attempts=(attempt,), told=(told,))


def test_every_report_tells_alike_that_a_rank_left_with_0(stories):
    """Panel, course, page and status have the same words for it."""
    story = story_of(stories)
    attempt = story.attempts[0]
    panel = victims(attempt.verdict)
    page = {end.ranks: end.role for end in tables.ends(story)}
    row = outcome(roles(attempt)[2], attempt.ranks[2], "dsup")
    rows = "\n".join(course(attempt, Columns()))

    assert panel.endswith(
        "· ended by dsup: ranks 0-1, 3, 7 · told to end by dsup: rank 2 (exit 0)"
    )
    assert (page["0-1, 3, 7"], page["2"]) == ("ended by dsup", "told to end by dsup")
    assert row == how_it_ended(0, asked=True) == "told to end by dsup"
    assert "rank 2          told to end by dsup: exit 0" in rows
    assert "dsup ended ranks 0-1, 3, 7; rank 2 left with 0" in phrases.reasons(story)[1]


def test_programs_read_it_beside_whom_dsup_signalled(stories):
    """A verdict of an earlier version does not say it, and is read all the same."""
    verdict = story_of(stories).told[0].verdict
    raw = encode(verdict, node="a", offset_s=0.0, ended=None)
    earlier = raw.replace(b'"left_with_0"', b'"unknown"')

    assert decode(raw).verdict.ended_by_dsup == (0, 1, 2, 3, 7)
    assert decode(raw).verdict.left_with_0 == (2,)
    assert decode(earlier).verdict.left_with_0 == ()
