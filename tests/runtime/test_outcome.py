"""``Outcome``: what an exception means for a run."""

import json

import pytest

from dsup_runtime import deferred, error_text
from dsup_runtime.errors import BarrierTimeout, PeerError
from dsup_runtime.lifecycle import last_words, outcome
from dsup_runtime.lifecycle.last_words import Report
from dsup_runtime.stop import Stop


class Mute(Exception):  # noqa: N818
    """An exception that cannot say what it is."""

    def __str__(self):
        """Fail."""
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "status", "code", "rank"),
    [
        (ValueError("x"), "FAILED", 1, 3),
        (MemoryError(), "FAILED", 1, 3),
        (SystemExit(3), "FAILED", 3, 3),
        (SystemExit("because"), "FAILED", 1, 3),
        (SystemExit(-1), "FAILED", 255, 3),
        (SystemExit(256), "FAILED", 1, 3),
        (SystemExit(143), "KILLED", 143, 3),
        (SystemExit(130), "KILLED", 130, 3),
        (KeyboardInterrupt(), "KILLED", 130, 3),
        (
            RuntimeError("[third_party/gloo/transport/tcp/pair.cc:1] Co"),
            "FAILED",
            1,
            None,
        ),
        (RuntimeError("mine"), "FAILED", 1, 3),
        (GeneratorExit(), "FAILED", 1, 3),
        (PeerError("gone", ranks=[5, 4]), "FAILED", 1, 4),
        (PeerError("gone"), "FAILED", 1, None),
        (BarrierTimeout("b", missing=[7], waited_s=1), "FAILED", 1, 7),
        (BarrierTimeout("b", missing=[], waited_s=1), "FAILED", 1, None),
    ],
    ids=repr,
)
def test_an_exception_has_one_outcome(error, status, code, rank):
    """Status, exit code and the rank to blame follow from the exception alone."""
    result = outcome.of_error(error, rank=3, step=17)

    assert (result.status, result.exit_code, result.rank) == (status, code, rank)
    assert result.step == 17
    assert result.resumable is (code == 143)


def test_an_exception_that_cannot_be_worded_has_an_outcome_too():
    """Its class is of the user's own making."""
    result = outcome.of_error(Mute(), rank=0, step=None)

    assert result.error == "Mute: <exception str() failed>"


def test_a_long_text_is_cut():
    """An outcome goes into a note, a file and a tag."""
    assert len(error_text.describe(ValueError("x" * 99_999))) == 2000


class Leaving(Exception):  # noqa: N818
    """An exception whose text ends the program."""

    def __str__(self):
        """Exit."""
        raise SystemExit(0)


def test_no_text_of_the_users_own_ends_the_end():
    """Whatever a ``__str__`` raises, it is not the run's own exit."""
    assert error_text.describe(Leaving()) == "Leaving: <exception str() failed>"


def test_a_ctrl_c_within_a_text_is_one():
    """It is not the text's fault that it took so long."""

    class Endless(Exception):  # noqa: N818
        def __str__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        error_text.describe(Endless())


@pytest.fixture
def kept():
    """Keep an error as deferred; none stays."""
    yield lambda error, where: deferred.keep(error, where=where)
    deferred.clear()


def test_what_takes_no_note_is_raised_without_one(kept):
    """The first error is worth more than what else is known."""
    error = ValueError("first")
    vars(error)["__notes__"] = "mine"
    kept(error, "a save")
    others = [report(2, 4), *last_words.own(0)]

    assert last_words.to_raise(others, 0) is error


def test_what_is_told_of_an_error_is_short_and_plain(kept):
    """Names and texts are of the user's own making, and have to travel."""
    long = type("E" * 20_000, (Exception,), {})
    kept(long("x" * 20_000), 5)
    kept(Leaving(), "w" * 20_000)

    first, second = last_words.own(3)
    assert (len(first.type), len(first.message), first.where) == (200, 1000, "5")
    assert (second.type, len(second.where)) == ("Leaving", 1000)
    assert len(json.dumps([first, second])) < 10_000


def stop(kind, rank):
    """Return a stop of a kind that a rank wants."""
    return Stop(kind, f"{kind} of {rank}", 3, rank, 25.0)


@pytest.mark.parametrize(
    ("wishes", "winner"),
    [
        pytest.param([None, None], None, id="nobody wants any"),
        pytest.param([(stop("user", 0), 0), (stop("preempt", 1), 0)], 1, id="greatest"),
        pytest.param([(stop("user", 0), 1), (stop("error", 1), 0)], 0, id="decided"),
        pytest.param(
            [(stop("limit", 0), 0), (stop("limit", 1), 0)], 0, id="least rank"
        ),
    ],
)
def test_one_stop_is_settled_where_the_ranks_part(wishes, winner):
    """Every rank picks it from the same wishes by the same rule."""
    chosen = last_words.greatest(wish for wish in wishes if wish)

    assert (chosen and chosen.rank) == winner


def report(rank, step):
    """Return what a rank tells of an error at a step."""
    return Report(rank, "a save", "OSError", f"rank {rank}", step)


@pytest.mark.parametrize(
    ("told", "first"),
    [
        pytest.param([(0, 9), (2, 4), (1, 7)], 2, id="the lowest step"),
        pytest.param([(3, 4), (2, 4), (4, 5)], 2, id="then the lowest rank"),
        pytest.param([(0, None), (2, 4)], 2, id="a known step before none"),
        pytest.param([(1, None), (0, None)], 0, id="no steps at all"),
    ],
)
def test_the_first_error_of_the_run_is_the_same_for_all(told, first):
    """Every rank picks it from the same reports by the same rule."""
    reports = last_words.in_order(report(*each) for each in told)
    result = last_words.verdict(reports)

    assert result.rank == first
    assert result.step == dict(told)[first]
    assert result.error == f"OSError: rank {first}"
