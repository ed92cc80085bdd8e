"""Every transition of the machine's table, one sentence a test."""

import pytest

from dsup.core import commands as cmd
from dsup.core.enter import ALIKE_S, KILL_S, LINGER_S, PREPARE_S, SCAN_S
from dsup.core.exits import signal_name
from dsup.core.pausing import AGREE_S
from dsup.core.state import NEVER, Stage

ABRT, KILL, SEGV, BUS, ILL, FPE, TERM = 6, 9, 11, 7, 4, 8, 15


def kill_all(attempt=0):
    """Return the order to kill everything."""
    return (cmd.KillAll("kill_all", attempt),)


def signal_ranks(*ranks, signum=TERM):
    """Return the order to signal ranks of attempt 0."""
    return (cmd.SignalRanks("signal_ranks", 0, ranks, signum),)


def lost(node, rank, signal):
    """Return the order to tell the ranks whom they have lost, and that none waits."""
    words = rank, f"rank {rank} died of {signal}", node.state.kill_s
    return (cmd.PublishStop("publish_stop", 0, 0, "peer", *words),)


def ended(*ranks):
    """Return the orders to end ranks and to judge what was seen."""
    return signal_ranks(*ranks) + judge()


def judge(*, final=False):
    """Return the order to judge attempt 0."""
    return (cmd.Judge("judge", 0, final),)


# PREPARING


def test_a_run_begins_with_the_preparation_of_attempt_0(node):
    """When the run is launched, attempt 0 is prepared, within a minute."""
    node.launched()

    assert node.stage is Stage.PREPARING
    assert node.commands == (cmd.Prepare("prepare", 0),)
    assert node.due_in_s == PREPARE_S == 60


def test_a_prepared_attempt_runs(node):
    """When everything is prepared the ranks are started, and nothing limits them."""
    node.launched().prepared()

    assert node.stage is Stage.RUNNING
    assert node.commands == (cmd.Spawn("spawn", 0),)
    assert node.due_in_s == NEVER


def test_an_attempt_that_cannot_be_prepared_is_cleaned_up(node):
    """What cannot be prepared goes through KILLING too, and is then decided upon."""
    node.launched().cannot("port_in_use")
    assert (node.stage, node.commands) == (Stage.KILLING, kill_all())

    node.group_empty().scanned()

    assert node.state.signature == ("port_in_use", None, 1, "")


def test_a_preparation_that_takes_too_long_is_a_failure(node):
    """A preparation without an answer in time has failed for its storage."""
    node.launched().ticked()
    assert node.stage is Stage.KILLING

    node.group_empty().scanned()

    assert node.state.signature == ("storage_io", None, 1, "")


def test_a_stop_while_preparing_cleans_up(node):
    """A stop before the first rank leaves nothing behind and starts nothing."""
    node.launched().signalled()
    assert (node.stage, node.commands) == (Stage.KILLING, kill_all())

    node.prepared()
    assert node.commands == ()

    node.group_empty()
    assert (node.stage, node.exit_code) == (Stage.OVER, 143)


# RUNNING


@pytest.mark.parametrize("signum", [KILL, SEGV, BUS, ILL, FPE])
def test_a_decisive_death_ends_the_others_at_once(node, signum):
    """A death that no other rank can cause has the others terminated at once."""
    node.running().exited(1, -signum)

    assert node.stage is Stage.TERMINATING
    assert node.commands == lost(node, 1, signal_name(signum)) + ended(0, 2)
    assert node.due_in_s == 20


@pytest.mark.parametrize("status", [1, 3, 255, -ABRT, -TERM])
def test_a_death_that_may_be_a_victims_is_settled_first(node, status):
    """After a death that another rank may have caused nobody is signalled yet."""
    node.running().exited(1, status)

    assert node.stage is Stage.SETTLING
    assert node.commands == ()
    assert node.due_in_s == 2


def test_a_death_with_nobody_else_alive_needs_no_settling(node):
    """When the last rank fails after the others ended with 0, nobody is signalled."""
    node.running().exited(0, 0).exited(2, 0).exited(1, 1)

    assert (node.stage, node.commands) == (Stage.TERMINATING, judge())
    assert node.due_in_s == LINGER_S


def test_a_rank_that_ends_early_with_0_is_let_go(node):
    """An early exit 0 is recorded, and nobody is signalled for it."""
    node.running().exited(0, 0)

    assert (node.stage, node.commands) == (Stage.RUNNING, ())
    assert [death.rank for death in node.state.ended] == [0]


def test_ranks_that_cannot_all_be_started_are_killed(node):
    """When a rank cannot be started, those that were started go as well."""
    node.launched().prepared().started(0).cannot("spawn_error", 127)
    assert (node.stage, node.commands) == (Stage.KILLING, kill_all())

    node.exited(0, -KILL).group_empty().scanned().echoed()

    assert node.exit_code == 127


def test_the_end_of_a_rank_that_is_not_alive_changes_nothing(node):
    """A rank ends once: a second report does not count towards success."""
    node.running().exited(0, 0)
    before = node.state

    node.exited(0, 0)

    assert (node.state, node.commands) == (before, ())


# SETTLING


def test_a_decisive_death_ends_settling(node):
    """A decisive death while settling has the rest terminated at once."""
    node.settling().exited(0, -SEGV)

    told = lost(node, 0, "SIGSEGV")
    assert (node.stage, node.commands) == (Stage.TERMINATING, told + ended(2))


def test_settling_goes_on_while_others_die_undecisively(node):
    """Further deaths of the same doubtful kind do not shorten or lengthen settling."""
    node.settling().after(1.5).exited(0, 1)

    assert (node.stage, node.commands) == (Stage.SETTLING, ())
    assert node.due_in_s == 0.5


def test_settling_ends_in_time(node):
    """When the settle time is over the ranks still alive are terminated."""
    node.settling().ticked()

    assert node.stage is Stage.TERMINATING
    assert node.commands[1:] == ended(0, 2)
    assert node.commands[0].reason == "rank 1 ended with exit code 1"


def test_settling_ends_when_all_are_dead(node):
    """With nobody left to listen to, nobody is signalled, and cleaning up begins."""
    node.settling().exited(0, 1).exited(2, 0)

    assert (node.stage, node.commands) == (Stage.TERMINATING, judge())
    assert node.due_in_s == LINGER_S


@pytest.mark.parametrize(
    ("story", "settles_s"),
    [
        pytest.param("noted exited", ALIKE_S, id="the rank that ended had told of one"),
        pytest.param("other exited", ALIKE_S, id="another had told of one"),
        pytest.param("exited other", ALIKE_S, id="another tells of one afterwards"),
        pytest.param("victim exited", 2, id="what is told may be another's fault"),
    ],
)
def test_an_exception_that_no_other_can_cause_shortens_settling(node, story, settles_s):
    """The others then get just the moment that shows whether all fail alike."""
    happenings = {
        "noted": lambda: node.noted(1),
        "other": lambda: node.noted(2),
        "victim": lambda: node.noted(1, decisive=False),
        "exited": lambda: node.exited(1, 1),
    }
    node.running()
    for word in story.split():
        happenings[word]()

    assert (node.stage, node.commands) == (Stage.SETTLING, ())
    assert node.due_in_s == pytest.approx(settles_s)


def test_settling_that_was_to_be_shorter_stays_so(new_node):
    """With --settle 0 nobody is listened to, notes or not."""
    node = new_node(settle_s=0.0).running().noted(1).exited(1, 1)

    assert node.due_in_s == 0


def test_a_note_alone_ends_nobody(node):
    """A rank that tells of an exception runs on until it ends, however long."""
    node.running().noted(1)

    assert (node.stage, node.commands, node.due_in_s) == (Stage.RUNNING, (), NEVER)


# TERMINATING and KILLING


def test_the_grace_ends_with_a_kill(node):
    """Ranks that do not end in the grace are killed, and everything else with them."""
    node.terminating().ticked()

    assert (node.stage, node.commands) == (Stage.KILLING, kill_all())
    assert node.due_in_s == KILL_S == 5


def test_an_emptied_group_is_closed_and_what_a_plan_needs_is_looked_for(node):
    """Only a group that is proven empty is closed; then the pause begins."""
    node.deciding()

    closed, scan = cmd.CloseAttempt("close_attempt", 0), cmd.Scan("scan", 0)
    assert node.stage is Stage.DECIDING
    assert node.commands == (closed, scan, *judge(final=True))
    assert node.due_in_s == SCAN_S == 30


@pytest.mark.parametrize(
    "path",
    [
        "killing",
        "lingering ticked",
        "leaving ticked",
        "running signalled ticked",
        "launched cannot",
        "launched guard_lost",
    ],
)
def test_what_cannot_be_killed_makes_the_node_unfit(node, path):
    """What survives SIGKILL for 5 s ends the run with 193, whatever led there."""
    for happens in path.split():
        getattr(node, happens)()

    node.ticked()

    assert (node.stage, node.exit_code) == (Stage.OVER, 193)


# DECIDING


def test_the_plan_is_proposed_when_the_search_has_ended(node):
    """The plan is put to all nodes; the pause counts from the first death."""
    first_death_s = node.terminating().now_s
    node.exited(0, -TERM).exited(2, -TERM).after(1).emptied().scanned(7)

    plan = node.proposed
    assert (plan.restart_at_s, plan.attempt) == (first_death_s + 10, 0)
    assert node.due_in_s == AGREE_S


@pytest.mark.parametrize("order", [["searched", "judged"], ["judged", "searched"]])
def test_the_plan_awaits_the_search_and_the_judge(node, order):
    """Whichever answers last brings the plan; there is one plan."""
    node.deciding()
    for answer in order:
        assert not any(isinstance(c, cmd.Propose) for c in node.ordered)
        getattr(node, answer)()

    assert node.commands == (node.proposed,)
    assert node.searched().judged().commands == ()


def test_an_early_answer_of_the_judge_is_no_plan_yet(node):
    """What was judged before the group was gone may still change."""
    node.deciding().searched().judged("host_oom", (1,), final=False)

    assert node.commands == ()


def test_the_judge_says_what_the_plan_is_made_for(node):
    """The last answer with a cause counts, not the wait status."""
    node.terminating().judged("killed", (1,), -9, final=False).exited(0, -TERM)
    node.exited(2, -TERM).emptied().judged("hang", (2,), 1, "stuck").searched()

    assert node.state.signature == ("hang", 2, 1, "stuck")


def test_without_the_judge_the_wait_status_decides(node):
    """A judge that was given up leaves what it had said before, else the status."""
    node.deciding().judged("").searched()

    assert node.state.signature == ("killed", 1, -KILL, "")


def test_several_first_ranks_are_none_in_particular(node):
    """Where all failed alike no rank is compared with the failure before."""
    node.deciding().judged("config_error", (0, 1, 2), 2).searched()

    assert node.state.signature == ("config_error", None, 2, "")


def test_a_search_without_an_answer_does_not_hold_up_the_plan(node):
    """When the search does not answer in time, the plan is made without it."""
    node.deciding().ticked()

    assert node.commands == (node.proposed,)


def test_an_agreed_restart_waits_for_its_time(node):
    """An agreed restart is prepared when the pause is over, not before."""
    node.deciding().scanned().agreed(restart_at_s=node.now_s + 7)
    assert (node.stage, node.due_in_s) == (Stage.DECIDING, 7)

    node.ticked()

    assert (node.stage, node.attempt) == (Stage.PREPARING, 1)
    assert node.commands == (cmd.Prepare("prepare", 1),)


def test_a_restart_that_was_due_long_ago_is_due_now(node):
    """A pause that is over before it was agreed, even at time 0, is no obstacle."""
    node.deciding().scanned().agreed(restart_at_s=0.0)
    assert node.due_in_s == -node.now_s

    node.ticked()

    assert (node.stage, node.attempt) == (Stage.PREPARING, 1)


def test_what_is_agreed_counts_not_what_was_proposed(node):
    """The agreed plan may be another than this node's own proposal."""
    node.deciding().scanned(7)
    assert node.proposed.restart_at_s is not None

    node.agreed(None, code=194)

    assert (node.stage, node.exit_code) == (Stage.OVER, 194)


def test_nodes_that_do_not_agree_end_the_run(node):
    """A plan that nobody agrees to in time ends the run with 195."""
    node.deciding().scanned().ticked()

    assert (node.stage, node.exit_code) == (Stage.OVER, 195)


def test_a_new_attempt_starts_clean(node):
    """Of the attempt before only what the policy needs is remembered."""
    node.running().progressed(5).exited(1, -KILL).exited(0, -TERM).exited(2, -TERM)
    node.emptied().scanned(4).echoed().ticked()

    state = node.state
    assert (state.alive, state.ended, state.failed) == (frozenset(), (), None)
    assert (state.plan, state.agreed, state.progressed) == (None, False, False)
    assert (state.best_step, state.checkpoint_step) == (5, 4)
    assert (state.failed_attempts, state.signature) == (1, ("killed", 1, -KILL, ""))


# Any time


@pytest.mark.parametrize(
    "stage",
    [
        "launched",
        "running",
        "settling",
        "terminating",
        "lingering",
        "leaving",
        "deciding",
        "pausing",
    ],
)
def test_a_lost_guard_ends_everything_at_once(node, stage):
    """Without its guard the agent kills everything and ends as if it were killed."""
    getattr(node, stage)().guard_lost()
    assert (node.stage, node.commands) == (Stage.KILLING, kill_all())

    node.group_empty()

    assert (node.stage, node.exit_code) == (Stage.OVER, 137)


@pytest.mark.parametrize(
    "stage",
    [
        "launched",
        "settling",
        "terminating",
        "lingering",
        "leaving",
        "killing",
        "deciding",
    ],
)
def test_limits_start_again_after_a_stall_of_the_agent(node, stage):
    """Time in which the agent itself stood still is nobody else's fault."""
    getattr(node, stage)()
    due_in_s = node.due_in_s

    node.after(100).stalled(100)

    assert node.due_in_s == due_in_s


def test_a_stall_does_not_cut_the_grace_short(node):
    """After a stall the ranks still have what was left of their grace."""
    node.running().signalled(2).after(100).stalled(100).ticked()
    assert node.commands == signal_ranks(0, 1, 2)

    assert node.due_in_s == 10


def test_a_stall_does_not_move_an_agreed_restart(node):
    """The moment of a restart is agreed between nodes: one node cannot move it."""
    node.pausing()
    due_in_s = node.due_in_s

    node.after(3).stalled(3)

    assert node.due_in_s == due_in_s - 3
