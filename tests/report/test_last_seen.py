"""What was seen last of an attempt that is cut off, beyond its journal."""

import json

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.facts.samples import Sample
from dsup.report.account import account
from dsup.report.hindsight import agent_gone
from dsup.report.last_seen import SLACK_S, cut, one_more
from dsup_runtime import contract

BEGUN = (
    ev.Launched("launched", 10.0),
    cmd.Prepare("prepare", 0),
    ev.RankStarted("rank_started", 11.0, 0, 0, 70),
    ev.RankStarted("rank_started", 11.0, 0, 1, 71),
    ev.Stepped("stepped", 12.0, 0, 3, 11.9),
)
ENDED = ev.RankExited("rank_exited", 13.0, 0.0, 0, 1, -9, ())


def page(*told, kept_s=None):
    """Return a page of ranks, each ``(step, beat, seconds)`` or None for silence."""
    words = [0] * contract.HEADER_WORDS
    for one in told:
        slot = [0] * contract.SLOT_WORDS
        slot[contract.SLOT_STEP] = contract.NO_STEP
        if one is not None:
            step, beat_s = one
            slot[contract.SLOT_STEP] = step
            slot[contract.SLOT_HEARTBEAT_NS] = int(beat_s * 1e9)
            slot[contract.SLOT_PROGRESS_NS] = int(beat_s * 1e9)
            slot[contract.SLOT_PHASE] = contract.PHASES.index("train")
        words += slot
    words += [] if kept_s is None else [int(kept_s * 1e9)]
    return b"".join(word.to_bytes(8, "little", signed=True) for word in words)


@pytest.fixture
def lines(job):
    """Give ``lines(*more)``: the journal of an attempt that was at step 3, and more."""

    def told(*more):
        items = enumerate((*BEGUN, *more), 1)
        return [journal.header(job.spec), *(journal.encode(n, one) for n, one in items)]

    return told


@pytest.mark.parametrize(
    ("more", "kept", "sampled", "told"),
    [
        pytest.param(
            (), page((90, 55.0), (88, 55.5), kept_s=56), [20.0], (56, 88), id="a page"
        ),
        pytest.param(
            (), page(None, None, kept_s=56), [20.0], (56, None), id="no runtime"
        ),
        pytest.param((), b"", [15.0, 20.0], (20, None), id="samples alone"),
        pytest.param(
            (), page((90, 21.0), (9, 21.5)), [20.0], (21.5, 9), id="the ranks' file"
        ),
        pytest.param(
            (ENDED,), page((90, 14.0), kept_s=15), [], (15, None), id="a rank had ended"
        ),
        pytest.param((), page((4, 9.0), kept_s=9), [9.0], None, id="nothing newer"),
        pytest.param((), b"", [], None, id="nothing kept"),
        pytest.param(
            (cmd.Exit("exit", 0, "rank"),),
            page((9, 50.0)),
            [50.0],
            None,
            id="it is over",
        ),
    ],
)
def test_the_journal_is_read_on_to_what_was_seen_last(lines, more, kept, sampled, told):
    """A line more, as the agent would have written it; none where it knew as much."""
    journaled = lines(*more)
    found = cut(journaled)
    line = one_more(found, kept, [Sample(s, {}) for s in sampled]) if found else ""
    if told is None:
        assert line == ""
        return

    known = account([*journaled, line])
    assert known.unread == 0
    assert (round(known.last.at_s, 6), getattr(known.last, "step", None)) == told
    assert json.loads(line)["n"] == len(journaled)


def test_no_rank_makes_a_run_last_longer_than_it_did(lines):
    """A time that lies far beyond all that dsup wrote is not believed."""
    found = cut(lines())
    assert found is not None
    liar = one_more(found, page((5, 12.0 + 2 * SLACK_S), (5, 12.5)), [])

    assert json.loads(liar)["at_s"] == 12.5


def test_a_post_mortem_tells_how_far_each_living_rank_was(lines):
    """Who had been silent for longer is named before the others."""
    told = account([*lines(ENDED), journal.encode(9, ev.Tick("tick", 60.0))])
    kept = page((90, 59.9), (7, 12.0), (40, 20.0), (91, 59.8))
    verdict = agent_gone(told, node="n", rebooted=False, page=kept)

    said = [(one.rank, one.text) for one in verdict.evidence if one.at_s != ENDED.at_s]
    assert said[1:] == [
        (2, "step 40, phase train, 40.0 s before the end"),
        (None, "ranks 0, 3: steps 90-91, phase train, 0.1 s before the end"),
    ]
