"""Every stage's answer to every event: a new one of either fails until it is named.

``-`` changes nothing at all, ``=`` changes what is remembered or gives orders, and a
name is the stage that follows.
"""

import itertools
import typing

import pytest

from dsup.core import events as ev
from dsup.core import machine
from dsup.core.state import NEVER, Stage

# The columns: how to get there. "lingering" and "leaving" are TERMINATING with no rank
# alive, after a failure and after success; "pausing" is DECIDING with an agreed plan.
STORIES = """
    launched running parking capturing settling terminating lingering leaving killing
    deciding pausing over
""".split()

# fmt: off
TABLE = """
                    launched running     parking     capturing   settling    terminating lingering leaving killing  deciding pausing   over
launched            -        -           -           -           -           -           -         -       -        -        -         -
prepared            RUNNING  -           -           -           -           -           -         -       -        -        -         -
cannot              KILLING  KILLING     KILLING     -           -           -           -         -       -        -        -         -
rank_started        =        =           =           =           =           =           =         =       =        =        =         -
rank_exited/0       -        =           =           =           =           =           -         -       =        -        -         -
rank_exited/1       -        SETTLING    SETTLING    =           =           =           -         -       =        -        -         -
rank_exited/-9      -        TERMINATING TERMINATING =           TERMINATING =           -         -       =        -        -         -
noted/yes           =        =           =           =           =           =           =         =       =        =        =         -
noted/no            -        -           -           -           -           -           -         -       -        -        -         -
self_stopping       =        =           -           =           =           =           =         =       =        =        =         -
stop_wanted/user    -        PARKING     -           -           -           -           -         -       -        -        -         -
stop_wanted/error   -        PARKING     =           -           -           -           -         -       -        -        -         -
stop_wanted/preempt -        TERMINATING =           -           -           -           -         -       -        -        -         -
checks_counted      -        -           =           -           -           -           -         -       -        -        -         -
helpers_left        -        -           -           -           -           -           -         =       -        -        -         -
group_empty         -        -           -           -           -           -           KILLING   KILLING DECIDING -        -         -
progressed          =        =           =           =           =           =           =         =       =        =        =         -
stepped             -        -           -           -           -           -           -         -       -        -        -         -
took_over           =        =           =           =           =           =           =         =       =        =        =         -
hang_suspected      -        =           -           -           -           -           -         -       -        -        -         -
hang_cleared        -        -           -           RUNNING     -           -           -         -       -       -        -         -
hang_confirmed      -        CAPTURING   -           -           -           -           -         -       -        -        -         -
captured/early      -        -           -           -           -           -           -         -       -        -        -         -
captured/final      -        -           -           TERMINATING -           -           -         -       -        -        -         -
straggles           =        =           =           =           =           =           =         =       =        =        =         -
scanned             =        =           =           =           =           =           =         =       =        =        =         -
judged              =        =           =           =           =           =           =         =       =        =        =         -
plan_agreed         -        -           -           -           -           -           -         -       -        OVER     OVER      -
signalled/15        KILLING  TERMINATING =           TERMINATING TERMINATING =           =         KILLING =        OVER     OVER      -
signalled/10        -        =           =           =           =           -           -         -       -        -        -         -
guard_lost          KILLING  KILLING     KILLING     KILLING     KILLING     KILLING     KILLING   KILLING =        KILLING  KILLING   -
loop_stalled        =        -           =           =           =           =           =         =       =        =        -         -
tick                KILLING  -           =           TERMINATING TERMINATING KILLING     KILLING   KILLING OVER     =        PREPARING -
tick/early          -        -           -           -           -           -           -         -       -        -        -         -
"""  # noqa: E501
# fmt: on

KINDS = {
    typing.get_args(typing.get_type_hints(cls)["kind"])[0]: cls
    for cls in typing.get_args(ev.Event)
}
HEAD, *ROWS = (line.split() for line in TABLE.strip().splitlines())
CASES = [
    (row[0], story, answer)
    for row in ROWS
    for story, answer in zip(HEAD, row[1:], strict=True)
]
OF_AN_ATTEMPT = [
    row[0] for row in ROWS if "attempt" in KINDS[row[0].partition("/")[0]]._fields
]


def happening(row, node):
    """Return the event of a row, as it would happen to a node now."""
    kind, _, variant = row.partition("/")
    due_s = machine.deadline(node.state)
    values = {
        "kind": kind,
        "at_s": due_s if row == "tick" else min(node.now_s, due_s - 1),
        "attempt": node.attempt,
        "port": 29500,
        "resume_from": "",
        "cause": "port_in_use",
        "code": 1,
        "reason": "",
        "rank": 7 if kind == "rank_started" else 0,
        "pid": 4007,
        "late_s": 0.0,
        "status": int(variant) if kind == "rank_exited" else 0,
        "dying": (),
        "names": (),
        "total": 1,
        "step": 9,
        "path": "",
        "error": "",
        "restart_at_s": None,
        "ranks": (0,),
        "stop": variant or "user",
        "last": 17,
        "signum": int(variant) if kind == "signalled" else 0,
        "sender_pid": 1,
        "sender_uid": None,
        "now": False,
        "gap_s": 2.0,
        "decisive": variant == "yes",
        "first_ranks": (0,),
        "signature": "",
        "final": variant != "early",
        "taken": True,
        "why": "frozen",
        "since_s": 0.0,
        "usual_s": 0.1,
        "op": "all_reduce",
        "place": "",
        "times": 1.7,
        "made_s": 1.0,
        "run": "20261130T022700Z-train-0a1b2c_n",
        "ended_in": 2,
        "failed_attempts": 1,
        "best_step": None,
    }
    cls = KINDS[kind]
    return cls(**{name: values[name] for name in cls._fields})


def test_every_event_and_every_stage_is_named(new_node):
    """The table has a row for each kind of event and a column for each stage."""
    stages = {getattr(new_node(), story)().stage for story in STORIES}

    assert {row[0].partition("/")[0] for row in ROWS} == set(KINDS)
    assert HEAD == STORIES
    assert stages == set(Stage)


@pytest.mark.parametrize("story", STORIES)
def test_the_answer_is_that_of_the_table(new_node, story):
    """The machine does with an event what the table says, and nothing else."""
    for row, told, answer in CASES:
        if told != story:
            continue
        node = getattr(new_node(), story)()
        before = node.state

        node.tell(happening(row, node))

        changed = node.state != before or node.commands != ()
        stays = node.stage is before.stage
        expected = {"-": (False, True), "=": (True, True)}.get(answer, (True, False))
        assert (changed, stays) == expected, f"{row} while {story}"
        assert answer in ("-", "=", node.stage.name), f"{row} while {story}"


@pytest.mark.parametrize("story", [name for name in STORIES if name != "over"])
def test_an_event_of_another_attempt_changes_nothing(new_node, story):
    """What is late from the attempt before, or of none yet, has no effect."""
    for row, other in itertools.product(OF_AN_ATTEMPT, (-1, 1)):
        node = getattr(new_node(), story)()
        event = happening(row, node)
        before = node.state

        node.tell(event._replace(attempt=node.attempt + other))

        assert (node.state, node.commands) == (before, ()), f"{row}, {other:+}"


def test_before_its_launch_a_run_has_no_deadline(node):
    """Nothing is due before the first event, and that is Launched."""
    assert node.due_in_s == NEVER
