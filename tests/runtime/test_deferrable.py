"""What cannot be deferred: work that a call does not run, and other people's errors."""

import asyncio
import functools
from contextlib import contextmanager

import pytest

from dsup_runtime import deferred
from dsup_runtime.deferred import defer, has_deferred_error, try_or_defer


@pytest.fixture(autouse=True)
def _nothing_left():
    deferred.clear()
    yield
    deferred.clear()


async def later():
    """Stand for any coroutine function."""


async def many_later():
    """Stand for any asynchronous generator function."""
    yield


def many():
    yield


class Loader:
    """Nothing but its call."""

    async def __call__(self):
        """Stand for an object whose call is a coroutine."""


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        pytest.param(later, "a coroutine function", id="coroutine function"),
        pytest.param(many_later, "a coroutine function", id="async generator function"),
        pytest.param(many, "a generator function", id="generator function"),
        pytest.param(functools.partial(later), "a coroutine function", id="partial"),
        pytest.param(Loader(), "a coroutine function", id="object"),
        pytest.param(lambda *_: later(), "a coroutine:", id="result"),
        pytest.param(lambda *_: many_later(), "a coroutine:", id="async generator"),
    ],
)
def test_what_a_call_does_not_run_is_refused(fn, kind):
    """A coroutine that nobody awaits would lose its work and its errors."""
    with pytest.raises(TypeError, match=kind):
        try_or_defer(fn)

    assert not has_deferred_error()


def test_a_begun_asynchronous_generator_is_ended():
    """What is refused has run its ``finally`` before the caller hears of it."""
    ended = []

    async def numbers():
        try:
            yield 1
        finally:
            ended.append(True)

    begun = numbers()
    with pytest.raises(StopIteration):
        anext(begun).send(None)
    with pytest.raises(TypeError):
        try_or_defer(lambda: begun)

    assert ended


@contextmanager
def deferring():
    with defer("a block"):
        yield


def delegating():
    with defer("a block"):
        yield from many()


def test_what_is_thrown_in_at_a_yield_is_not_ours(caplog):
    """A context manager that defers around its yield swallows nothing of its user's."""
    with pytest.raises(KeyError), deferring():
        raise KeyError("the user's")
    delegated = delegating()
    next(delegated)
    with pytest.raises(KeyError):
        delegated.throw(KeyError("the consumer's"))

    assert not has_deferred_error()
    assert caplog.text.count("take the yield out of the block") == 2


def test_what_is_thrown_into_an_asynchronous_generator_is_not_ours():
    """The same holds at the yield of an asynchronous one."""

    async def numbers():
        with defer("a block"):
            yield 1

    async def consume():
        begun = numbers()
        await anext(begun)
        with pytest.raises(KeyError):
            await begun.athrow(KeyError("the consumer's"))

    asyncio.run(consume())

    assert not has_deferred_error()


def test_the_own_error_of_a_generator_is_kept():
    """That the code stands in a generator or awaits something changes nothing."""

    def numbers():
        yield 1
        with defer("in a generator"):
            raise KeyError
        with defer("around a yield"):
            yield 2
            raise KeyError

    async def awaits():
        with defer("after an await"):
            await asyncio.sleep(0)
            raise KeyError

    assert list(numbers()) == [1, 2]
    asyncio.run(awaits())
    told = [kept.where for kept in deferred.all_kept()]
    assert told == ["in a generator", "around a yield", "after an await"]
