"""Attempts that no judge answered for: what journal and logs still tell."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.report.account import account
from dsup.report.hindsight import agent_gone, from_journal

RAISED = b"""step 41
Traceback (most recent call last):
  File "/srv/train.py", line 88, in step
    loss = criterion(out, labels)
ValueError: batch 812 has no labels
"""
LOST = b"""Traceback (most recent call last):
  File "/srv/train.py", line 90, in step
    dist.all_reduce(loss)
RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:1
"""


def ended(rank, status, at_s):
    """Return that a rank ended by itself."""
    return ev.RankExited("rank_exited", at_s, 0.001, 0, rank, status, ())


@pytest.fixture
def cut_short(job):
    """Give the account of a journal that ends while dsup listened to these ends."""

    def told(*ends):
        items = [ev.Launched("launched", 10.0), cmd.Prepare("prepare", 0), *ends]
        lines = [journal.header(job.spec)]
        lines += [journal.encode(n, item) for n, item in enumerate(items, 1)]
        return account(lines)

    return told


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        pytest.param(1, "python_exception", id="a code"),
        pytest.param(-9, "killed", id="a signal"),
        pytest.param(-11, "killed", id="a crash"),
    ],
)
def test_a_wait_status_alone_tells_the_kind_of_its_cause(cut_short, status, cause):
    """Who killed the agent while it settled took the judge's answer along."""
    verdict = from_journal(cut_short(ended(1, status, 12.0)), 0)

    assert (verdict.cause, verdict.first_ranks) == (cause, (1,))
    assert verdict.certainty == "guess"
    assert verdict.summary.startswith("Rank 1 may have gone first: ")


def test_the_exception_in_a_kept_log_is_named(cut_short):
    """Its traceback tells more than the order in which the ranks were seen to end."""
    told = cut_short(ended(0, 1, 12.0), ended(1, 1, 12.4))
    verdict = from_journal(told, 0, {0: (LOST, b""), 1: (RAISED, b"")})

    assert (verdict.cause, verdict.first_ranks) == ("python_exception", (1,))
    assert verdict.certainty == "likely"
    assert "ValueError: batch 812 has no labels (train.py:88)" in verdict.summary
    assert verdict.at_s == 12.4


def test_a_kept_log_does_not_make_sure_what_only_the_kernel_knows(cut_short):
    """A killed rank's log is silent, and the kernel's was not kept."""
    told = cut_short(ended(1, -9, 12.0), ended(0, 1, 12.4))
    verdict = from_journal(told, 0, {0: (LOST, b""), 1: (b"step 41\n", b"")})

    assert (verdict.cause, verdict.first_ranks) == ("killed", (1,))
    assert verdict.certainty == "likely"


def test_logs_that_say_nothing_change_nothing(cut_short):
    """Empty ones are no words: the status stays a guess."""
    told = cut_short(ended(1, 1, 12.0))

    assert from_journal(told, 0, {1: (b"", b"")}) == from_journal(told, 0)


@pytest.mark.parametrize(
    "last",
    [
        pytest.param([ev.Tick("tick", 90.0)], id="the agent, as its scribe saw"),
        pytest.param(
            [ev.GuardLost("guard_lost", 90.0), ev.GroupEmpty("group_empty", 95.0, 0)],
            id="the guard, as its agent saw",
        ),
    ],
)
def test_who_was_killed_long_after_a_rank_has_a_time_of_its_own(cut_short, last):
    """In a pause, the earlier death is not when dsup itself went."""
    told = cut_short(ended(1, 1, 12.0), *last)
    verdict = agent_gone(told, node="n", rebooted=False)

    assert verdict.at_s == 90.0
    assert [(one.source, one.at_s) for one in verdict.evidence] == [
        ("dsup", 90.0),
        ("status", 12.0),
    ]
