"""What a journal tells of a run that its time limit stopped."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core import journal
from dsup.report.account import account, failed, outcome
from dsup.report.html.moments import moments


@pytest.mark.parametrize(
    ("limit_s", "tick_s", "said"),
    [
        pytest.param(
            30.0, 40.0, "the run was stopped by its time limit, exit code 143", id="up"
        ),
        pytest.param(
            30.0, 39.0, "the run was given up with exit code 143", id="not up yet"
        ),
        pytest.param(
            None, 40.0, "the run was given up with exit code 143", id="no limit"
        ),
    ],
)
def test_a_time_limit_is_told_from_a_failure(job, limit_s, tick_s, said):
    """No signal is in such a journal: the limit counts from the launch."""
    items: list[ev.Event | cmd.Command] = [
        ev.Launched("launched", 10.0),
        cmd.Prepare("prepare", 0),
        ev.Tick("tick", tick_s),
        cmd.Exit("exit", 143, "dsup"),
    ]
    lines = [journal.header(job.spec._replace(stop_after_s=limit_s))]
    lines += [journal.encode(n, item) for n, item in enumerate(items, 1)]
    told = account(lines)

    assert outcome(told, alive=False) == said
    assert failed(told, ()) == ([] if "time limit" in said else [0])


@pytest.mark.parametrize(
    ("signalled", "own"),
    [
        pytest.param(True, [], id="dsup killed all"),
        pytest.param(False, [0, 1], id="rank 1 was already dying beside rank 0"),
    ],
)
def test_who_was_dying_of_dsups_own_signal_did_not_end_by_itself(job, signalled, own):
    """That a rank is seen to end beside another says nothing after dsup's signal."""
    items: list[ev.Event | cmd.Command] = [
        ev.RankStarted("rank_started", 1.0, 0, 0, 7),
        ev.RankStarted("rank_started", 1.0, 0, 1, 8),
        ev.RankExited("rank_exited", 2.0, 0.0, 0, 0, -9, (1,)),
        ev.RankExited("rank_exited", 2.1, 0.0, 0, 1, -9, ()),
    ]
    items.insert(2 if signalled else 3, cmd.KillAll("kill_all", 0))
    lines = [journal.header(job.spec)]
    lines += [journal.encode(n, item) for n, item in enumerate(items, 1)]

    assert [end.rank for end in account(lines).lives[0].own] == own


def test_a_tick_of_a_journal_is_read_without_json(job, calls_of):
    """Lines that a long run has most of cost a few calls, and tell what they tell."""

    def ticking(times):
        launched = journal.encode(1, ev.Launched("launched", 1.0))
        ticks = [journal.encode(2, ev.Tick("tick", 2.5))] * times
        prepare = journal.encode(3, cmd.Prepare("prepare", 0))
        return [journal.header(job.spec), launched, *ticks, prepare]

    few, many = ticking(1), ticking(1001)
    told, when = account(many), moments(many)
    more = calls_of(lambda: (account(many), moments(many))) - calls_of(
        lambda: (account(few), moments(few))
    )

    assert told.last == ev.Tick("tick", 2.5)
    assert when[0].began_s == 2.5
    assert more < 20 * 1000
