"""A kept error prints as it did, and keeps nobody's batch in memory."""

import gc
import sys
import traceback
import weakref

import pytest

from dsup_runtime import deferred, plain_traceback
from dsup_runtime.deferred import defer, try_or_defer


@pytest.fixture(autouse=True)
def _nothing_left():
    """Without the collector: memory comes back at once, or not at all."""
    deferred.clear()
    gc.disable()
    yield
    gc.enable()
    deferred.clear()


class Batch:
    """As large as a tensor of the user's, for all that anybody knows."""


def in_a_call(alive):
    def log():
        batch = Batch()
        alive.append(weakref.ref(batch))
        raise OSError

    try_or_defer(log)


def as_an_argument(alive):
    batch = Batch()
    alive.append(weakref.ref(batch))
    try_or_defer(lambda _batch: int("no"), batch)


def in_the_block_s_own_frame(alive):
    batch = Batch()
    alive.append(weakref.ref(batch))
    with defer("log"):
        raise OSError


def in_the_frames_of_its_cause(alive):
    with defer("log"):
        try:
            in_a_call_that_fails(alive)
        except OSError as error:
            raise ValueError from error


def in_the_frames_of_its_context(alive):
    try:
        in_a_call_that_fails(alive)
    except OSError:
        with defer("log"):
            raise ValueError  # noqa: B904 (the context is what is tested)


def in_a_member_of_a_group(alive):
    with defer("log"):
        try:
            in_a_call_that_fails(alive)
        except OSError as error:
            raise ExceptionGroup("all", [error]) from None


def in_a_frame_that_holds_its_own_error(alive):
    def log():
        batch = Batch()
        alive.append(weakref.ref(batch))
        error = OSError()
        raise error

    try_or_defer(log)


def in_a_later_error(alive):
    deferred.keep(ValueError("the first"), where="before")
    in_a_call(alive)


def in_a_call_that_fails(alive):
    batch = Batch()
    alive.append(weakref.ref(batch))
    raise OSError


PLACES = [
    in_a_call,
    as_an_argument,
    in_the_block_s_own_frame,
    in_the_frames_of_its_cause,
    in_the_frames_of_its_context,
    in_a_member_of_a_group,
    in_a_frame_that_holds_its_own_error,
    in_a_later_error,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_kept_error_keeps_no_batch(place):
    """Wherever the batch was a variable, it goes when the code around it ends."""
    alive: list[weakref.ref[Batch]] = []
    place(alive)

    assert deferred.has_deferred_error()
    assert [each() for each in alive] == [None]


@pytest.mark.slow
@pytest.mark.torch
def test_a_tensor_is_freed():
    """The memory that matters is that of tensors, with a graph behind them."""
    import torch

    alive = []

    def log():
        loss = (torch.ones(4, requires_grad=True) * 2).sum()
        alive.append(weakref.ref(loss))
        raise OSError

    try_or_defer(log)
    with defer("sample"):
        (torch.ones(4) @ torch.ones(5)).sum()

    assert len(deferred.all_kept()) == 2
    assert alive[0]() is None


def test_the_traceback_prints_as_before():
    """Files, lines, marks, causes and the innermost frame are all still there."""

    def fail():
        try:
            print(dict[str, int]()["label"] + 1)
        except KeyError as error:
            raise ExceptionGroup("all", [error, ValueError("x")]) from error

    with pytest.raises(ExceptionGroup) as raised:
        fail()
    before = traceback.format_exception(raised.value)
    plain_traceback.strip(raised.value)

    assert "^^^" in "".join(before)
    assert traceback.format_exception(raised.value) == before


def test_python_itself_prints_it_as_before(alone, tmp_path):
    """What nobody catches in the end shows the lines and marks of where it arose."""
    script = tmp_path / "train.py"
    script.write_text(
        "from dsup_runtime import deferred\n"
        "def log(batch):\n"
        "    return batch['loss'] + 1\n"
        "with deferred.defer('log'):\n"
        "    log({})\n"
        "deferred.raise_if_deferred_error()\n"
    )
    result = alone(
        "import runpy; runpy.run_path('train.py')",
        {"PYTHONPATH": ":".join(sys.path)},
        cwd=tmp_path,
    )

    logged, raised = result.stderr.split("Traceback (most recent call last):\n")[1:]
    assert "    return batch['loss'] + 1\n           ~~~~~^^^^^^^^" in logged
    assert raised.endswith(logged)


def test_a_generator_in_the_traceback_goes_on():
    """A loader that hands out its errors is not ended when one of them is kept."""

    def loader():
        for divisor in (1, 0, 2):
            try:
                sample = 6 // divisor
            except ZeroDivisionError as error:
                yield error
            else:
                yield sample

    def learn(sample):
        if isinstance(sample, Exception):
            raise sample

    samples = []
    for sample in loader():
        try_or_defer(learn, sample)
        samples.append(sample)

    assert deferred.has_deferred_error()
    assert samples == [6, deferred.first().error, 3]
