"""Ranks that stop by themselves: at one check, in half the grace, for one reason."""

import pytest

from dsup.core import commands as cmd
from dsup.core import events as ev
from dsup.core.exits import signal_name
from dsup.core.state import Stage
from dsup.core.stopping import FREEZE_S, last_check
from dsup_runtime.contract import AT_ONCE

INT, KILL, USR1, TERM = 2, 9, 10, 15
GRACE_S = 20
SIGTERM_ALL = (cmd.SignalRanks("signal_ranks", 0, (0, 1, 2), TERM),)
JUDGE = cmd.Judge("judge", 0, final=False)


def ready(node):
    """Run three ranks whose loops ask whether to stop."""
    return node.running().self_stopping()


def published(node, stop="preempt", rank=-1, reason="SIGTERM", check=18):
    """Return the order to publish a stop, with the deadline that it has now."""
    until_s = node.state.kill_s - GRACE_S / 2
    return (cmd.PublishStop("publish_stop", 0, check, stop, rank, reason, until_s),)


@pytest.mark.parametrize(
    ("counts", "last"),
    [
        pytest.param([17, 18, 16], 18, id="the greatest"),
        pytest.param([], 0, id="no rank"),
        pytest.param([0, 0], 0, id="none has come to a check"),
        pytest.param([-1, 4], 4, id="what is below 0 is no count"),
        pytest.param([2**62, 4, -(2**63)], 4, id="nor is what no loop could reach"),
    ],
)
def test_the_last_check(counts, last):
    """The page is the ranks' to write: what cannot be a count is left out."""
    assert last_check(counts) == last


@pytest.mark.parametrize("signum", [TERM, INT, 1, 3])
def test_a_stop_freezes_the_page_and_signals_nobody(node, signum):
    """Where every rank stops itself the page is frozen in place of a signal."""
    ready(node).signalled(signum)

    until_s = node.now_s + GRACE_S / 2
    assert node.stage is Stage.PARKING
    assert node.commands == (cmd.FreezePage("freeze_page", 0, until_s),)
    assert node.due_in_s == pytest.approx(FREEZE_S)


def test_the_checks_are_counted_when_none_can_be_missed(node):
    """20 ms after the freeze the ranks are looked at, then it is half the grace."""
    ready(node).signalled(TERM)
    begun_s = node.now_s
    node.ticked()

    assert node.commands == (cmd.CountChecks("count_checks", 0),)
    assert node.now_s + node.due_in_s == begun_s + GRACE_S / 2


def test_the_check_after_the_last_one_is_published(node):
    """The greatest count of all ranks plus one: who has passed it comes to it."""
    ready(node).signalled(TERM).ticked().counted(17)

    assert node.commands == published(node)


@pytest.mark.parametrize(
    ("signum", "kind"), [(INT, "user"), (TERM, "preempt"), (1, "preempt")]
)
def test_ranks_are_told_a_person_from_a_scheduler(node, signum, kind):
    """Ctrl-C is a person's, every other signal may be a scheduler's."""
    ready(node).signalled(signum).ticked().counted(17)

    assert node.commands == published(node, kind, -1, signal_name(signum))


def test_a_stop_is_published_once(node):
    """A second count, late from another node, changes nothing."""
    ready(node).signalled(TERM).ticked().counted(17).counted(30)

    assert node.commands == ()


@pytest.mark.parametrize(
    ("signum", "code"), [(TERM, 143), (INT, 130), (1, 129), (3, 131)]
)
@pytest.mark.parametrize("status", [0, 143, -TERM])
def test_a_run_whose_ranks_left_has_the_code_of_its_signal(node, signum, code, status):
    """Exit codes of ranks that stop say nothing more than the stop itself."""
    ready(node).signalled(signum).ticked().counted(17)
    for rank in range(3):
        node.exited(rank, status)

    assert node.stage is Stage.TERMINATING
    assert JUDGE not in node.ordered
    assert node.emptied().exit_code == code


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(lambda node: node.running(), id="none asks"),
        pytest.param(
            lambda node: node.running().self_stopping(0, 2), id="one does not"
        ),
        pytest.param(lambda node: ready(node).exited(1, 0), id="one has ended"),
    ],
)
def test_one_rank_that_cannot_means_signals(node, story):
    """A stop that not every rank would come to is sent to all, at once."""
    story(node).signalled(TERM)

    assert node.stage is Stage.TERMINATING
    assert [type(c) for c in node.commands] == [cmd.SignalRanks]


def test_half_the_grace_brings_sigterm_in_what_is_left_of_it(node):
    """The ranks' own time comes out of the grace, it is not added to it."""
    ready(node).signalled(INT)
    begun_s = node.now_s
    node.ticked().counted(17).ticked()

    assert (node.stage, node.commands) == (Stage.TERMINATING, SIGTERM_ALL)
    assert node.now_s == begun_s + GRACE_S / 2
    assert node.due_in_s == GRACE_S / 2
    assert node.ticked().stage is Stage.KILLING


@pytest.mark.parametrize("grace_s", [0.0, 0.01, 0.03])
def test_a_grace_that_is_shorter_than_the_freeze_ends_all_the_same(new_node, grace_s):
    """With no time to count in, SIGTERM is next."""
    node = ready(new_node(grace_s=grace_s)).signalled(TERM).ticked()

    assert (node.stage, node.commands) == (Stage.TERMINATING, SIGTERM_ALL)
    assert node.ticked().stage is Stage.KILLING


@pytest.mark.parametrize(
    ("signum", "stage", "orders"),
    [
        pytest.param(INT, Stage.KILLING, (cmd.KillAll("kill_all", 0),), id="INT kills"),
        pytest.param(TERM, Stage.TERMINATING, SIGTERM_ALL, id="TERM is passed on"),
    ],
)
def test_a_second_stop_ends_the_parking(node, signum, stage, orders):
    """Whoever asks again does not want to wait for a step."""
    ready(node).signalled(TERM).after(1).signalled(signum)

    assert (node.stage, node.commands) == (stage, orders)
    assert node.due_in_s == 5


def test_stops_within_a_second_count_once(node):
    """What a terminal and a scheduler send together does not end the parking."""
    ready(node).signalled(TERM).after(0.5).signalled(INT)

    assert (node.stage, node.commands) == (Stage.PARKING, ())


@pytest.mark.parametrize("status", [1, -KILL, 3])
def test_a_death_on_the_way_ends_the_parking(node, status):
    """A rank that ends otherwise than a stopped one takes the others' step away."""
    ready(node).signalled(TERM).ticked().counted(17).after(2).exited(1, status)

    others = cmd.SignalRanks("signal_ranks", 0, (0, 2), TERM)
    assert (node.stage, node.commands) == (Stage.TERMINATING, (others, JUDGE))
    assert node.state.failed.rank == 1
    assert node.due_in_s == pytest.approx(GRACE_S - 2 - FREEZE_S)


def test_a_death_before_a_check_is_published_frees_those_that_wait(node):
    """On the frozen page they would wait for one until half the grace has passed."""
    ready(node).signalled(TERM).exited(1, -KILL)

    told, *orders = node.commands
    why = "rank 1 died of SIGKILL"
    assert told == published(node, "peer", 1, why, AT_ONCE)[0]._replace(
        until_s=node.state.kill_s
    )
    assert orders == [cmd.SignalRanks("signal_ranks", 0, (0, 2), TERM), JUDGE]


def test_the_last_rank_to_die_on_the_way_is_judged(node):
    """Where nobody is left to signal, the judge is asked all the same."""
    ready(node).signalled(TERM).exited(0, 143).exited(2, 0).exited(1, 1)

    assert (node.stage, node.commands) == (Stage.TERMINATING, (JUDGE,))
    assert node.emptied().exit_code == 143


def test_a_stall_of_the_agent_gives_the_ranks_their_time_again(node):
    """Half the grace counts from where the agent runs again."""
    ready(node).signalled(TERM).ticked().counted(17).stalled(7.0)

    assert node.due_in_s == pytest.approx(GRACE_S / 2 + 7 - FREEZE_S)
    assert node.ticked().stage is Stage.TERMINATING


def test_what_the_ranks_lose_meanwhile_ends_the_attempt(node):
    """A store that goes away is what it is while RUNNING."""
    ready(node).wanted(1, "user").cannot("store_lost")

    assert node.stage is Stage.KILLING


def test_user_signals_reach_ranks_that_are_parked(node):
    """USR1 is the ranks' own business until they have left."""
    ready(node).signalled(TERM).signalled(USR1)

    assert node.commands == (cmd.PassOn("pass_on", 0, (0, 1, 2), USR1),)


# A rank's own wish


@pytest.mark.parametrize("stop", ["user", "limit", "preempt", "peer", "error"])
def test_a_rank_that_wants_a_stop_parks_all(node, stop):
    """The others leave with it, and learn who it was and why."""
    ready(node).wanted(1, stop, "enough", 7)
    assert node.stage is Stage.PARKING

    node.ticked().counted(17)

    assert node.commands == published(node, stop, 1, "enough")


@pytest.mark.parametrize(
    ("stop", "cause"), [("preempt", "preempted"), ("limit", "time_limit")]
)
@pytest.mark.parametrize("status", [0, 143])
def test_some_wishes_stop_the_run(node, stop, cause, status):
    """A preempted rank, or one whose time is up: 143, and no restart."""
    ready(node).wanted(1, stop)
    for rank in range(3):
        node.exited(rank, status)

    assert node.state.stop.cause == cause
    assert node.emptied().exit_code == 143


def test_ranks_that_have_enough_have_succeeded(node):
    """A wish of kind user: every rank ends with 0, so does the run."""
    ready(node).wanted(1, "user")
    for rank in range(3):
        node.exited(rank, 0)
    node.emptied()

    assert (node.exit_code, node.state.succeeded) == (0, True)


@pytest.mark.parametrize("stop", ["user", "peer", "error"])
def test_ranks_that_fail_after_a_wish_fail_the_attempt(node, stop):
    """The ordinary way: who ends undecided is waited for, then judged and planned."""
    ready(node).wanted(1, stop).ticked().counted(17).exited(1, 1)
    assert node.stage is Stage.SETTLING

    node.exited(0, 1).exited(2, 1).emptied().scanned(5).echoed()

    assert (node.stage, node.state.plan.restart_at_s is None) == (Stage.DECIDING, False)


def test_a_rank_that_is_killed_after_a_wish_is_decisive(node):
    """As from RUNNING, the others are not waited for."""
    ready(node).wanted(1, "error").exited(0, -KILL)

    assert node.stage is Stage.TERMINATING
    assert node.commands[-1] == JUDGE


def test_a_wish_waits_for_ranks_that_are_not_at_their_loops(node):
    """Frozen before, those that wait would hold up one that is not there."""
    node.running().self_stopping(0, 1).wanted(1, "user")
    assert (node.stage, node.commands) == (Stage.PARKING, ())
    assert node.due_in_s == GRACE_S / 2

    node.after(3).self_stopping(2)

    assert [type(c) for c in node.commands] == [cmd.FreezePage]
    assert node.commands[0].until_s == node.now_s + GRACE_S / 2 - 3


def test_a_rank_that_ended_well_is_not_waited_for(node):
    """It needs no check any more; those that are left can leave together."""
    node.running().self_stopping(0, 1).wanted(1, "user").exited(2, 0)

    assert [type(c) for c in node.commands] == [cmd.FreezePage]


def test_a_preempted_rank_does_not_wait_for_others(node):
    """The node goes away: ranks that do not stop themselves get SIGTERM at once."""
    node.running().self_stopping(0, 1).wanted(1, "preempt")

    assert (node.stage, node.commands) == (Stage.TERMINATING, SIGTERM_ALL)
    assert node.state.stop.cause == "preempted"


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        pytest.param((0, "user"), (1, "error"), (1, "error"), id="greater"),
        pytest.param((0, "error"), (1, "user"), (0, "error"), id="smaller"),
        pytest.param((0, "peer"), (1, "peer"), (0, "peer"), id="the same: the first"),
    ],
)
def test_the_greatest_wish_wins_until_it_is_published(node, first, second, winner):
    """Within the freeze several ranks may want something."""
    ready(node).wanted(*first).wanted(*second).ticked().counted(17)

    rank, stop = winner
    assert node.commands == published(node, stop, rank, "")


def test_a_wish_learns_its_reason_from_the_note(node):
    """The page was seen first, and has no words: they come with the note."""
    ready(node).wanted(1, "error").wanted(1, "error", "loss is nan", 7)
    node.ticked().counted(17)

    assert node.commands == published(node, "error", 1, "loss is nan")


def test_a_wish_after_the_publication_changes_nothing(node):
    """All ranks were told the same, and that stays."""
    ready(node).wanted(0, "user").ticked().counted(17)
    before = node.state
    node.wanted(1, "preempt")

    assert (node.state, node.commands) == (before, ())


@pytest.mark.parametrize(
    ("stop", "winner"),
    [("user", (-1, "user")), ("preempt", (1, "preempt")), ("error", (1, "error"))],
)
def test_a_persons_stop_counts_as_much_as_a_schedulers(node, stop, winner):
    """The training is not over, as it is where a rank has enough."""
    ready(node).wanted(1, stop).signalled(INT).ticked().counted(17)

    told = node.commands[0]
    assert (told.rank, told.stop) == winner


def test_a_signal_makes_a_wish_the_runs_stop(node):
    """SIGTERM after a rank's wish: no new grace, but no restart, and 143."""
    ready(node).wanted(0, "error").after(0.01).signalled(TERM)
    assert (node.stage, node.state.parking.kind) == (Stage.PARKING, "error")
    node.ticked().counted(17).exited(0, 1)

    assert node.stage is Stage.TERMINATING
    assert node.exited(1, 143).exited(2, 143).emptied().exit_code == 143


def test_a_signal_after_the_publication_still_stops_the_run(node):
    """The ranks were told of a wish and end well: it is 143 all the same."""
    ready(node).wanted(0, "user").ticked().counted(17).signalled(TERM)
    assert (node.stage, node.state.parking.kind) == (Stage.PARKING, "user")
    for rank in range(3):
        node.exited(rank, 0)

    assert node.emptied().exit_code == 143


@pytest.mark.parametrize("story", ["settling", "terminating", "killing", "deciding"])
@pytest.mark.parametrize("stop", ["preempt", "error"])
def test_a_wish_that_dsups_own_signal_may_have_made_is_none(new_node, story, stop):
    """A rank that gets SIGTERM wants a stop; that must not forbid the restart."""
    node = getattr(new_node(), story)()
    before = node.state
    node.wanted(0, stop)

    assert (node.state, node.commands) == (before, ())


@pytest.mark.parametrize(
    ("stop", "cause", "code"),
    [
        pytest.param("user", "hang", 194, id="user"),
        pytest.param("peer", "hang", 194, id="peer"),
        pytest.param("error", "python_exception", 1, id="error"),
    ],
)
def test_a_wish_that_ranks_do_not_come_to_fails_the_attempt(
    new_node, stop, cause, code
):
    """The reason names who wanted it and how many did not come."""
    node = ready(new_node(max_restarts=0)).wanted(1, stop, "why").ticked().counted(17)
    node.ticked()
    assert (node.stage, node.commands) == (Stage.TERMINATING, (*SIGTERM_ALL, JUDGE))
    met = node.state.cannot
    assert met.cause == cause
    assert "rank 1" in met.reason
    assert "(why), and 3 of 3 ranks did not come to it within 10 s" in met.reason

    for rank in range(3):
        node.exited(rank, -TERM)

    assert node.emptied().scanned().echoed().exit_code == code


def test_the_next_attempt_begins_without_a_wish(node):
    """What an attempt was told is not told to the next one."""
    ready(node).wanted(1, "error").exited(1, 1).exited(0, 1).exited(2, 1)
    node.emptied().scanned(5).echoed().ticked()

    assert node.attempt == 1
    assert (node.state.parking, node.state.self_stopping) == (None, frozenset())


# The time limit


def test_a_time_limit_is_a_deadline_from_the_launch(new_node):
    """It counts from the launch of the run, and is due whatever the stage."""
    node = new_node(stop_after_s=30.0).launched().after(5).prepared()

    assert node.due_in_s == 25


def test_a_time_limit_parks_ranks_that_stop_themselves(new_node):
    """The kind is limit, the reason says how long it was."""
    node = ready(new_node(stop_after_s=30.0)).ticked()
    assert node.stage is Stage.PARKING

    node.ticked().counted(17)

    assert node.commands == published(node, "limit", -1, "time limit of 30 s")
    for rank in range(3):
        node.exited(rank, 143)
    assert node.emptied().exit_code == 143
    assert node.state.stop.cause == "time_limit"


@pytest.mark.parametrize(
    ("story", "stage"),
    [
        ("launched", Stage.KILLING),
        ("running", Stage.TERMINATING),
        ("parking", Stage.PARKING),
        ("settling", Stage.TERMINATING),
        ("terminating", Stage.TERMINATING),
        ("killing", Stage.KILLING),
        ("deciding", Stage.OVER),
        ("pausing", Stage.OVER),
    ],
)
def test_a_time_limit_is_a_stop_in_every_stage(new_node, story, stage):
    """Where there are no ranks to park it is what SIGTERM would be."""
    node = getattr(new_node(stop_after_s=1000.0), story)().after(1000)
    node.tell(ev.Tick("tick", node.now_s))

    assert node.stage is stage
    assert node.state.stop.cause == "time_limit"


def test_a_time_limit_does_not_begin_anew_with_an_attempt(new_node):
    """The limit is the run's."""
    node = new_node(stop_after_s=500.0).pausing().ticked()

    assert node.attempt == 1
    assert node.state.limit_s == 600.0


@pytest.mark.parametrize(
    "story", ["parking", "terminating", "over"], ids=["parking", "stopped", "over"]
)
def test_a_stopped_run_has_no_time_limit_any_more(new_node, story):
    """After a stop, and after the end, the limit is due no more."""
    node = getattr(new_node(stop_after_s=7.0), story)().signalled(TERM)
    node.after(8)

    assert node.state.deadline_s == node.now_s + node.due_in_s


def test_the_first_signal_after_a_limit_hurries_nobody(new_node):
    """Ctrl-C while the time limit is being obeyed is not the second Ctrl-C."""
    node = ready(new_node(stop_after_s=30.0)).ticked().after(2).signalled(INT)
    assert (node.stage, node.commands) == (Stage.PARKING, ())

    node.after(2).signalled(INT)

    assert node.stage is Stage.KILLING
    assert node.state.stop.signum == TERM
