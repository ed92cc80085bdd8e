"""The ranks' half of a stop by the heartbeat page: how they wait, and where they leave.

The agent's half is a few stores of the test itself.
"""

import itertools
import json
import select
import socket
import threading
import time

import pytest

from dsup_runtime import contract

RANK = """
import json, os, signal, sys, threading
from dsup_runtime import deferred, heartbeat
from dsup_runtime.stop import agreed, request_stop, should_stop
def tell(*told):
    print(json.dumps(told), flush=True)
def pause(*told):
    tell(*told)
    sys.stdin.readline()
"""
WAIT_S = 600.0


def eventually(find):
    """Return what is found as soon as it is something."""
    until_s = time.monotonic() + WAIT_S
    while not (found := find()):
        assert time.monotonic() < until_s, "nothing came of it"
        threading.Event().wait(0.002)
    return found


def checks(page, slot=0):
    """Return the number of a rank's last check."""
    return page.slot(slot)[contract.SLOT_SEQUENCE]


def freeze(page):
    """Have every rank wait at its next check."""
    page.words[contract.HEADER_STOP_STEP] = contract.NO_STEP
    page.words[contract.HEADER_FREEZE] = 1


def publish(page, check, *, kind="preempt", rank=-1, reason=b"asked"):
    """Say at which check all ranks leave, and why."""
    words = page.words
    words[contract.HEADER_STOP_KIND] = (
        kind if isinstance(kind, int) else contract.STOP_KINDS.index(kind)
    )
    words[contract.HEADER_STOP_RANK] = rank
    reason = memoryview(reason.ljust(64, b"\0")).cast("q")
    first = contract.HEADER_STOP_REASON
    words[first : first + len(reason)] = reason
    words[contract.HEADER_STOP_STEP] = check


def test_a_check_is_counted_and_says_that_this_rank_stops_itself(start, page):
    """The agent sees the number of the last check, and leaves steps to ``beat``."""
    script = """
heartbeat.beat(5000)
pause()
for step in (5000, 5001, 4990): assert should_stop(step) is None
pause()
"""
    rank = start(RANK + script, page=page)
    rank.hear()
    slot = page.slot()
    assert slot[contract.SLOT_FLAGS] & contract.FLAG_STOPS_ITSELF == 0
    rank.go_on()
    rank.hear()

    assert slot[contract.SLOT_FLAGS] & contract.FLAG_STOPS_ITSELF
    assert slot[contract.SLOT_SEQUENCE] == 3
    assert slot[contract.SLOT_STEP] == 5000
    assert slot[contract.SLOT_WANTED] == 0


def test_a_frozen_rank_waits_and_leaves_at_the_published_check(start, page):
    """It is let through to the checks before, whatever its own steps are called."""
    script = """
assert should_stop(70) is None
pause()
for step in (71, 72, 60, 61):  # a rollback in between
    stop = should_stop(step)
    tell(step, stop)
    if stop: break
assert should_stop() is stop
"""
    rank = start(RANK + script, page=page)
    rank.hear()
    freeze(page)
    rank.go_on()
    eventually(lambda: checks(page) == 2)
    waits = select.select([rank.stdout], [], [], 0.1)[0] == []
    publish(page, 4, kind="limit", rank=3, reason="Zeit um: é".encode())

    assert waits
    told = [rank.hear() for _ in range(3)]
    assert told == [
        [71, None],
        [72, None],
        [60, ["limit", "Zeit um: é", 60, 3, 25.0]],
    ]
    assert rank.finish()[::2] == (0, "")


def test_a_check_past_the_published_one_leaves_too(start, page):
    """Numbers are compared by at least, so that none can be missed."""
    freeze(page)
    publish(page, 3)
    script = "should_stop(every=1); should_stop(); tell(agreed()); tell(should_stop(9))"
    rank = start(RANK + "should_stop()\n" + script, page=page)

    assert rank.hear() == [["preempt", "asked", 3, None, 25.0]]
    assert rank.hear() == [["preempt", "asked", 3, None, 25.0]]


def test_ranks_that_are_ended_for_a_failure_of_another_agree_on_nothing(start, page):
    """Who waits at a frozen page is let go, and no later check is another one."""
    script = """
from dsup_runtime.errors import PeerError
for step in (70, 71):
    try:
        should_stop(step)
    except PeerError as lost:
        tell(str(lost), lost.ranks)
tell(agreed())
"""
    freeze(page)
    rank = start(RANK + script, page=page)
    eventually(lambda: checks(page) == 1)
    publish(
        page, contract.AT_ONCE, kind="peer", rank=2, reason=b"rank 2 died of SIGKILL"
    )

    why = "cannot go on, because rank 2 died of SIGKILL (look at the rank it names)"
    assert [rank.hear() for _ in range(3)] == [[why, [2]], [why, [2]], [None]]


def test_a_stop_that_was_decided_outlives_the_failure_of_another_rank(start, page):
    """The loop has been left already: what comes after it is not cut short."""
    script = "should_stop(1)\nsys.stdin.readline()\ntell(should_stop(2))"
    freeze(page)
    publish(page, 1)
    rank = start(RANK + script, page=page)
    eventually(lambda: checks(page) == 1)
    publish(page, contract.AT_ONCE, kind="peer", rank=2)
    rank.go_on()

    assert rank.hear() == [["preempt", "asked", 1, None, 25.0]]


@pytest.mark.parametrize(
    ("published", "found"),
    [
        pytest.param({"kind": 0}, ["preempt", "asked"], id="kind none"),
        pytest.param({"kind": 77}, ["preempt", "asked"], id="kind of a later dsup"),
        pytest.param({"kind": -1}, ["preempt", "asked"], id="no kind"),
        pytest.param({"reason": b""}, ["preempt", ""], id="no reason"),
        pytest.param(
            {"reason": b"x" * 63 + "é".encode()[:1]}, ["preempt", "x" * 63], id="cut"
        ),
        pytest.param({"reason": b"\xff\xfe a"}, ["preempt", " a"], id="no text"),
    ],
)
def test_what_the_agent_publishes_is_read_with_care(start, page, published, found):
    """No word of the page can make a check fail."""
    freeze(page)
    publish(page, 1, **published)
    rank = start(RANK + "tell(should_stop())", page=page)

    assert rank.hear()[0][:2] == found


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param("limit", "preempt", id="greater one later"),
        pytest.param("preempt", "limit", id="greater one first"),
    ],
)
def test_a_wish_is_a_word_of_the_slot_and_a_note(start, page, left, right):
    """The word holds the greatest kind wanted here; each kind rings the bell once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        script = f"""
request_stop("before", kind={left!r})
pause()
should_stop(16)
request_stop("after", kind={right!r})
request_stop("again", kind={right!r})
pause()
"""
        notes = {contract.NOTES: contract.format_notes(theirs.fileno())}
        rank = start(RANK + script, page=page, env=notes, pass_fds=(theirs.fileno(),))
        rank.hear()
        before = page.slot()[contract.SLOT_WANTED]
        rank.go_on()
        rank.hear()
        ours.setblocking(False)
        told = [json.loads(ours.recv(contract.NOTE_MAX_BYTES)) for _ in range(2)]
        with pytest.raises(BlockingIOError):
            ours.recv(1)

    assert before == 0
    assert page.slot()[contract.SLOT_WANTED] == contract.STOP_KINDS.index("preempt")
    sent = {"v": 1, "kind": "stop", "step": 16}
    assert told == [
        {**sent, "stop": left, "reason": "before"},
        {**sent, "stop": right, "reason": "after"},
    ]


def test_a_deferred_error_is_wanted_and_not_acted_upon_alone(start, page):
    """The rank goes on until the agent says where all leave."""
    script = """
deferred.try_or_defer(int, "x", where="upload")
pause([should_stop(step) for step in range(50)])
tell(should_stop(50))
"""
    rank = start(RANK + script, page=page)
    assert rank.hear() == [[None] * 50]
    assert page.slot()[contract.SLOT_WANTED] == contract.STOP_KINDS.index("error")
    freeze(page)
    publish(page, 51, kind="error", rank=0, reason=b"upload")
    rank.go_on()

    assert rank.hear() == [["error", "upload", 50, 0, 25.0]]


def test_a_waiting_rank_can_still_be_signalled(start, page):
    """A handler that asks for a stop runs while its rank waits at a check."""
    script = """
signal.signal(signal.SIGTERM, lambda *_: request_stop("SIGTERM", kind="preempt"))
pause()
tell(should_stop())
"""
    freeze(page)
    rank = start(RANK + script, page=page)
    rank.hear()
    rank.go_on()
    eventually(lambda: checks(page) == 1)
    rank.terminate()
    eventually(lambda: page.slot()[contract.SLOT_WANTED])
    publish(page, 1, kind="user")

    assert rank.hear()[0][0] == "user"


def test_an_agent_that_goes_away_costs_the_grace_once(start, page):
    """A freeze without an end is waited for once, told in one line, and left behind."""
    script = """
import time
begin = time.monotonic()
assert should_stop() is None
waited = time.monotonic() - begin
for _ in range(100): assert should_stop() is None
pause(waited)
tell(should_stop())
"""
    freeze(page)
    rank = start(RANK + script, page=page, env={contract.GRACE_S: "0.5"})
    (waited_s,) = rank.hear()  # had each check waited, it would be after a minute
    publish(page, 90)  # it has come back
    rank.go_on()

    assert waited_s >= 0.5
    assert rank.hear()[0][0] == "preempt"
    error = rank.finish()[2]
    assert error.count("\n") == 1
    assert "has not said within 0.5 s at which step (training goes on" in error


def test_a_freeze_that_is_taken_back_lets_the_ranks_go(start, page):
    """Training goes on at once, without a word."""
    freeze(page)
    rank = start(RANK + "tell(should_stop()); tell(should_stop())", page=page)
    eventually(lambda: checks(page) == 1)
    page.words[contract.HEADER_FREEZE] = 0

    assert [rank.hear(), rank.hear()] == [[None], [None]]
    assert rank.finish()[2] == ""


@pytest.mark.parametrize(
    ("spoiled", "env"),
    [
        pytest.param({"magic": contract.MAGIC ^ 1 << 56}, {}, id="another version"),
        pytest.param({"attempt": 1}, {}, id="another attempt"),
        pytest.param({"slots": 2}, {}, id="a slot without a rank"),
        pytest.param({}, {"WORLD_SIZE": "2"}, id="ranks on other nodes"),
    ],
)
def test_a_page_that_does_not_hold_all_ranks_decides_nothing(
    start, make_page, spoiled, env
):
    """Then ranks ask each other: the page's freeze means nothing to them."""
    page = make_page(**spoiled)
    freeze(page)
    publish(page, 1)
    wish = "request_stop('enough', kind='limit')"
    script = f"tell(should_stop()); {wish}; tell(should_stop())"
    rank = start(RANK + script, page=page, env=env)

    assert rank.hear() == [None]
    assert rank.hear()[0][:2] == ["limit", "enough"]
    rank.finish()
    slot = page.slot()
    assert slot[contract.SLOT_FLAGS] == checks(page) == 0
    # Ranks that it cannot ask are left to the agent.
    assert slot[contract.SLOT_WANTED] == (2 if env else 0)


def test_a_forked_child_leaves_the_page_alone(start, page):
    """A DataLoader's worker neither counts checks nor waits at a freeze."""
    script = """
should_stop(); should_stop()
pause()
if (child := os.fork()) == 0:
    request_stop("mine", kind="error")
    os._exit(any(should_stop() for _ in range(9)))
tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    rank = start(RANK + script, page=page)
    rank.hear()
    freeze(page)
    publish(page, 1)
    rank.go_on()

    assert rank.hear() == [0]
    assert checks(page) == 2
    assert page.slot()[contract.SLOT_WANTED] == 0


def test_wishes_in_a_handler_are_never_lost_to_one_it_interrupts(start, page):
    """Whichever store comes last, the slot ends with the greatest kind."""
    script = """
kinds = iter(["user", "limit", "preempt", "peer", "error"])
handled = 0
def handler(signum, frame):
    global handled
    if kind := next(kinds, None): request_stop(kind, kind=kind)
    handled += 1
signal.signal(signal.SIGALRM, handler)
should_stop()
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
while handled < 5:
    should_stop()
signal.setitimer(signal.ITIMER_REAL, 0)
tell()
"""
    rank = start(RANK + script, page=page)
    rank.hear()

    assert page.slot()[contract.SLOT_WANTED] == contract.STOP_KINDS.index("error")


def test_a_check_is_a_handful_of_calls(start, page):
    """What it costs a step is a handful of calls, whatever the machine's speed."""
    script = """
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
for step in range(10): should_stop(step)
sys.setprofile(count)
for step in range(100): should_stop(step)
sys.setprofile(None)
tell(calls / 100)
"""
    (calls,) = start(RANK + script, page=page).hear()

    assert calls < 20


def test_ranks_of_one_page_leave_at_the_same_check(start, make_page):
    """Three ranks at steps of their own pace end with the same number of checks."""
    page = make_page(slots=3)
    page.renew()
    script = """
import time
for step in range(1 << 30):
    if stop := should_stop(step): break
    time.sleep(0.001 * (1 + os.getpid() % 3))
tell(stop)
"""
    ranks = [
        start(
            RANK + script, page=page, env={**page.environment(slot), "WORLD_SIZE": "3"}
        )
        for slot in range(3)
    ]
    eventually(lambda: all(checks(page, slot) > 3 for slot in range(3)))
    freeze(page)
    threading.Event().wait(0.02)
    publish(page, max(checks(page, slot) for slot in range(3)) + 1)
    stops = [rank.hear()[0] for rank in ranks]

    assert all(one == other for one, other in itertools.pairwise(stops))
    assert len({checks(page, slot) for slot in range(3)}) == 1
