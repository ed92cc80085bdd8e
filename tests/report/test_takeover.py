"""What is said of a run before that was cut off."""

import pytest

from dsup.core import events as ev
from dsup.report import takeover

RUN = "20261130T022700Z-train-0a1b2c_n7"


@pytest.mark.parametrize(
    ("cause", "failures", "what", "counted"),
    [
        ("agent_killed", 1, "its agent was killed", "1 failed attempt counts on"),
        ("node_rebooted", 3, "its node was rebooted", "3 failed attempts count on"),
    ],
)
def test_a_run_that_was_closed_is_one_line(cause, failures, what, counted):
    """It names the run, what ended it, and how many failures go on counting."""
    event = ev.TookOver("took_over", 5.0, RUN, cause, 2, failures, None)

    assert takeover.line(event) == (
        f"the run before, {RUN}, ended when {what} (attempt 2); its {counted}"
    )


@pytest.mark.parametrize(("directory", "where"), [("", RUN), ("/logs", f"/logs/{RUN}")])
def test_a_run_that_is_nobody_s_is_one_line(directory, where):
    """It says what to type, wherever the run is kept."""
    line = takeover.left_behind(RUN, "node_rebooted", directory)

    assert line.startswith(f"the run before, {RUN}, ended without a word: its node")
    assert line.endswith(f"; dsup diagnose {where}")
