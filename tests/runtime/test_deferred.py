"""Deferred errors: kept and logged, first things first, and out of the loop's way."""

import asyncio
import functools
import logging
import threading

import pytest

from dsup_runtime import contract, deferred
from dsup_runtime.deferred import (
    defer,
    has_deferred_error,
    raise_if_deferred_error,
    try_or_defer,
)
from dsup_runtime.errors import BarrierTimeout, CollectiveInDefer, PeerError

PASSING = [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit]


@pytest.fixture(autouse=True)
def _nothing_left():
    deferred.clear()
    yield
    deferred.clear()


def fail(error):
    raise error


def test_what_succeeds_is_as_if_it_were_not_wrapped():
    """Arguments go in, the value comes out, and nothing is kept."""
    assert try_or_defer(divmod, 17, 5) == (3, 2)
    assert try_or_defer(int, "ff", base=16) == 255
    with defer("a block"):
        reached = True

    assert reached
    assert not has_deferred_error()
    assert deferred.first() is None
    raise_if_deferred_error()


@pytest.mark.parametrize("form", ["call", "block"])
def test_an_error_waits_until_it_is_asked_for(form):
    """Control flow goes on; then the very object is raised, once."""
    error = ValueError("no space for a log line")
    if form == "call":
        assert try_or_defer(fail, error, where="log") is None
    else:
        with defer("log"):
            raise error

    assert has_deferred_error()
    assert (deferred.first().error, deferred.first().where) == (error, "log")
    with pytest.raises(ValueError, match="no space") as raised:
        raise_if_deferred_error()
    assert raised.value is error
    assert not has_deferred_error()
    raise_if_deferred_error()


def test_the_first_error_is_the_cause_and_every_one_is_logged(caplog):
    """A later error never takes the first one's place; both have their traceback."""
    try_or_defer(fail, ValueError("first"))
    try_or_defer(fail, KeyError("second"))

    assert str(deferred.first().error) == "first"
    assert [type(kept.error) for kept in deferred.all_kept()] == [ValueError, KeyError]
    assert {record.name for record in caplog.records} == {"dsup_runtime"}
    lines = caplog.text.splitlines()
    assert lines.count("Traceback (most recent call last):") == 2
    assert "ValueError: first" in lines
    assert "KeyError: 'second'" in lines


def test_a_function_gives_its_error_a_place():
    """Where nobody says what is done, the function's own name does."""
    try_or_defer(fail, ValueError())
    try_or_defer(functools.partial(fail, ValueError()))

    assert [kept.where for kept in deferred.all_kept()] == ["fail", "partial"]


@pytest.mark.parametrize("kind", PASSING)
def test_what_is_no_exception_passes(kind):
    """Whoever asks for the end of the process or of a task gets it."""
    with pytest.raises(kind):
        try_or_defer(fail, kind())
    with pytest.raises(kind), defer("a block"):
        raise kind

    assert not has_deferred_error()


def test_a_group_that_holds_an_interrupt_passes():
    """It is no Exception either, whatever else is in it."""
    both = BaseExceptionGroup("both", [ValueError(), KeyboardInterrupt()])
    with pytest.raises(BaseExceptionGroup), defer("a block"):
        raise both

    assert not has_deferred_error()


@pytest.mark.parametrize(
    "error",
    [
        PeerError("lost"),
        BarrierTimeout("step", missing=[2], waited_s=1.0),
        CollectiveInDefer("mixed up"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_error_of_a_collective_is_raised_at_once(error):
    """After it this rank cannot take part in what the others start next."""
    with pytest.raises(type(error)):
        try_or_defer(fail, error)

    assert not has_deferred_error()


def test_a_block_may_be_entered_within_itself():
    """One object serves nested blocks: each keeps its own error and goes on."""
    block = defer("a block")
    with block:
        with block:
            raise KeyError
        raise ValueError

    assert [type(kept.error) for kept in deferred.all_kept()] == [KeyError, ValueError]


def test_fifty_threads_lose_no_error(caplog):
    """One error is the first, each is logged, and no more are kept than is said."""
    begin = threading.Barrier(50)

    def work(number):
        begin.wait(600)
        try_or_defer(fail, ValueError(number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    logged = {int(str(record.exc_info[1])) for record in caplog.records}
    assert logged == set(range(50))
    assert [record.getMessage() for record in caplog.records].count(
        "deferred an error in fail (the first one)"
    ) == 1
    assert len(deferred.all_kept()) == deferred.KEPT_MAX
    assert len({str(kept.error) for kept in deferred.all_kept()}) == deferred.KEPT_MAX


def test_a_log_that_fails_does_not_stop_the_loop():
    """Control flow goes on whatever the user's handler does."""

    class Broken(logging.Handler):
        def emit(self, _record):
            raise OSError

    broken = Broken()
    logging.getLogger("dsup_runtime").addHandler(broken)
    try:
        try_or_defer(fail, ValueError("kept all the same"))
    finally:
        logging.getLogger("dsup_runtime").removeHandler(broken)

    assert str(deferred.first().error) == "kept all the same"


def test_an_error_of_odd_make_does_not_stop_the_loop():
    """Nothing that an exception's own class does gets out."""

    class OddError(Exception):
        def __setattr__(self, _name, _value):
            raise OSError

        def __str__(self):
            raise OSError

    error = OddError()
    try_or_defer(fail, error)

    assert deferred.first().error is error


def test_a_forked_child_begins_with_none(run):
    """A DataLoader's worker has no errors, even if a thread was keeping one."""
    script = """
import os, signal, threading
from dsup_runtime import deferred
deferred.keep(ValueError("the parent's"), where="parent")
held, over = threading.Event(), threading.Event()
def hold():
    with deferred._store.lock:
        held.set()
        over.wait(600)
threading.Thread(target=hold).start()
held.wait(600)
if (child := os.fork()) == 0:
    signal.alarm(60)  # ends it, should it wait for the parent's lock
    assert not deferred.has_deferred_error()
    deferred.keep(KeyError("the child's"), where="child")
    print(deferred.first().where, flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
over.set()
print(status, deferred.first().where)
"""
    status, told, _ = run(script)

    assert (status, told) == (0, "child\n0 parent\n")


def test_what_needs_all_ranks_is_refused_in_a_block():
    """Only in the thread's own block, whose innermost name is told."""
    elsewhere = []
    with defer("outer"), defer("inner"):
        other = threading.Thread(target=lambda: elsewhere.append(forbidden()))
        other.start()
        other.join()
        inside = forbidden()

    assert inside.startswith("cannot run agree in the deferred block 'inner', because")
    assert elsewhere == [None]
    assert forbidden() is None


def forbidden():
    try:
        deferred.forbid("agree")
    except CollectiveInDefer as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("rank", ["0", "2"])
def test_the_step_is_that_of_the_last_beat(run, page, rank):
    """Any rank keeps its errors, main or not, each with where training was."""
    script = """
from dsup_runtime import beat
from dsup_runtime import contract, deferred
deferred.keep(ValueError(), where="before")
beat(17)
deferred.keep(ValueError(), where="after")
print([kept.step for kept in deferred.all_kept()])
deferred.raise_if_deferred_error()
"""
    page.slot()[contract.SLOT_STEP] = contract.NO_STEP
    status, told, _ = run(script, page=page, env={"RANK": rank})

    assert (status, told) == (1, "[None, 17]\n")


def test_nothing_but_the_standard_library_is_needed(run):
    """Without torch and without a page errors are kept, logged and raised."""
    script = """
import sys
from dsup_runtime import contract, deferred
with deferred.defer("upload"):
    raise OSError("no route")
assert deferred.first().step is None
assert "torch" not in sys.modules
deferred.raise_if_deferred_error()
"""
    status, _, error = run(script)

    assert status == 1
    assert error.startswith("deferred an error in upload (the first one)\nTraceback")
    assert error.endswith("OSError: no route\n")
