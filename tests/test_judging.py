"""Raw evidence of an attempt becomes typed facts."""

import pytest

from dsup.attribution.timeline import Timeline
from dsup.edges.scribe.protocol import encode_tail
from dsup.judging import Case, timeline

KNOWN = Timeline(attempt=0, world_size=4, node="gpu-a17", started_s=100.0)
RAISED = b"""[rank3]: Traceback (most recent call last):
[rank3]:   File "train.py", line 5, in main
[rank3]: ValueError: no batch
"""


@pytest.mark.parametrize(
    ("rank", "exception"),
    [
        pytest.param(3, "ValueError: no batch", id="its own"),
        pytest.param(2, "", id="another rank's"),
    ],
)
def test_a_rank_is_believed_about_itself_only(rank, exception):
    """What it prints with another rank's number is not what ended it."""
    found = timeline(Case(KNOWN, tails=encode_tail(rank, 1, RAISED)))

    assert found.words[rank].exception == exception
