"""Where the time went, as the page shows it."""

import pytest

from dsup.report.html.page import render
from dsup.report.html.spent import spent


def test_all_parts_are_named_and_make_the_whole(stories):
    """What was of use comes first; what is nothing is left out."""
    found = spent(stories.run().spent)

    assert [share.name for share in found.shares] == [
        "new steps",
        "steps done again",
        "start-up",
        "pauses",
    ]
    parts: list[float] = [share.percent for share in found.shares]
    assert sum(parts) == pytest.approx(100)


def test_without_steps_the_page_says_so(stories):
    """Time that ranks were alive is not called new steps, and is no ETTR."""
    story = stories.run()
    page = render(story._replace(spent=story.spent._replace(by_steps=False)))

    assert "No rank told its steps" in page
    assert "ETTR" not in page
    assert "the ETTR" in render(story)


def test_without_a_ledger_the_section_is_left_out(stories):
    """Another launcher's log tells no such thing."""
    assert "Where the time went" not in render(stories.log())
