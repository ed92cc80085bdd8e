"""The global stop of ranks without a group, by a page that is no shared memory."""

import time

import pytest

from dsup_runtime import contract

STOP = """
import json, os, sys, time
from dsup_runtime import request_stop, should_stop
def tell(value):
    print(json.dumps(value), flush=True)
def steps(limit_s=600):
    until_s = time.monotonic() + limit_s
    while not (stop := should_stop()) and time.monotonic() < until_s:
        time.sleep(0.002)
    return stop
"""
ASKER = "should_stop(); request_stop('enough'); tell(steps())"


def environment(rank):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}


def test_a_wish_of_one_rank_stops_all(agent, start):
    """However the page is reached: the agent hears of it, and all leave together."""
    script = "tell(steps())"
    other = start(agent, STOP + script, 0, env=environment(0))
    asker = start(agent, STOP + ASKER, 1, env=environment(1))
    agent.until(lambda: agent.page.wanted() == {1: 1})
    agent.until(lambda: agent.page.self_stopping() == {0, 1})
    agent.page.freeze(time.monotonic() + 600)
    end_s = time.monotonic() + 0.1
    agent.until(lambda: time.monotonic() > end_s)
    agent.page.publish(max(agent.page.checks()) + 1, "user", 1, "enough")

    for worker in other, asker:
        assert worker.hear()[:2] == ["user", "enough"]


def test_an_agent_that_has_gone_decides_nothing(make_agent, start):
    """Where nobody can be asked any more, a wish is obeyed where it came up."""
    agent = make_agent("tcp")
    script = "should_stop(); tell(1); sys.stdin.readline(); request_stop('enough')\n"
    worker = start(agent, STOP + script + "tell(steps())", env=environment(0))
    worker.hear()
    agent.close()
    worker.go_on()

    assert worker.hear()[:2] == ["user", "enough"]
    assert "answering for this rank alone" in worker.finish()[2]


@pytest.mark.parametrize("kind", ["limit", "preempt", "error"])
def test_a_rank_that_leaves_alone_has_the_agent_stop_the_others(
    make_agent, start, kind
):
    """Where the page does not hold all ranks, the wish itself still reaches it."""
    agent = make_agent("file")
    script = f"request_stop('enough', kind='{kind}'); tell(should_stop())"
    env = {**environment(1), "WORLD_SIZE": "4"}

    assert start(agent, STOP + script, 1, env=env).hear()[0] == kind
    number = contract.STOP_KINDS.index(kind)
    agent.until(lambda: agent.page.wanted() == {1: number})


def test_a_rank_that_never_looks_is_told_by_the_signal_whom_it_lost(agent, start):
    """However the page is reached: the handler looks at it as it is now."""
    script = "import threading, dsup_runtime as rt\nwith rt.run():\n rt.beat(1)\n"
    script += " tell(0)\n while True: threading.Event().wait(0.02)"
    env = {**environment(0), contract.GRACE_S: "600"}
    worker = start(agent, STOP + script, env=env)
    worker.hear()
    agent.page.publish(contract.AT_ONCE, "peer", 1, "rank 1 died of SIGKILL")
    worker.terminate()
    status, _, err = worker.finish()

    assert status == 1, err
    assert "PeerError: cannot go on, because rank 1 died of SIGKILL" in err
