"""After a restart training goes on with exactly the samples that nobody has seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup_runtime.errors import CheckpointError
from dsup_runtime.progress import Progress
from dsup_runtime.resumable_sampler import ResumableSampler


class Loader:
    """Batches of whatever its sampler says, as DataLoader makes them."""

    def __init__(self, sampler, batch):
        self.sampler = sampler
        self.batch = batch

    def __iter__(self):
        """Yield the batches."""
        numbers = list(self.sampler)
        for first in range(0, len(numbers), self.batch):
            yield numbers[first : first + self.batch]


def loaders(ranks, *, length=24, batch=2, seed=0, shuffle=False):
    """Return the loader of each rank."""
    return [
        Loader(
            ResumableSampler(length, seed, rank=rank, ranks=ranks, shuffle=shuffle),
            batch,
        )
        for rank in range(ranks)
    ]


def train(states, ranks, steps, **how):
    """Let ranks take some steps; return their states and what they consumed."""
    progresses = [Progress() for _ in range(ranks)]
    consumed: list[int] = []
    for progress in progresses:
        if states:
            progress.load_state_dict(states[0])
    runs = [
        progress.skip(loader)
        for progress, loader in zip(progresses, loaders(ranks, **how), strict=True)
    ]
    for _ in range(steps):
        batches: list[list[int]] = [next(run, []) for run in runs]
        assert len({bool(batch) for batch in batches}) == 1  # none is left waiting
        if not batches[0]:
            break
        for progress, batch in zip(progresses, batches, strict=True):
            progress.advance(samples=len(batch))
            consumed += batch
    states = [progress.state_dict() for progress in progresses]
    assert all(state == states[0] for state in states)
    return states, consumed


@given(
    lives=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, 5), st.integers(1, 4)),
        max_size=4,
    )
)
def test_each_sample_is_consumed_once_however_often_the_world_changes(lives):
    """Ranks, batches and steps differ from life to life; the epoch is one."""
    states, consumed = None, []
    for ranks, steps, batch in (*lives, (4, 99, 3), (1, 99, 3)):
        states, more = train(states, ranks, steps, batch=batch)
        consumed += more

    assert sorted(consumed) == list(range(24))


@pytest.mark.parametrize(("length", "ranks"), [(10, 4), (7, 2), (3, 4), (8, 4)])
def test_every_rank_gets_as_many_samples_as_the_others(length, ranks):
    """A step needs all ranks, so the last length % ranks samples are left out."""
    states, consumed = train(None, ranks, 99, length=length, batch=1)

    assert len(consumed) == len(set(consumed)) == length - length % ranks
    assert states[0]["samples"] == len(consumed)


@pytest.mark.torch
@pytest.mark.slow
def test_the_order_is_a_function_of_seed_and_epoch():
    """Nothing that happened before changes it; another seed or epoch does."""
    sampler = ResumableSampler(100, 7, rank=0, ranks=1)
    sampler.start(3, 0)
    third = list(sampler)
    assert sorted(third) == list(range(100))

    again = ResumableSampler(100, 7, rank=0, ranks=1)
    assert list(again) != third
    again.set_epoch(3)
    assert list(again) == third
    again.start(3, 40)
    assert list(again) == third[40:]
    other = ResumableSampler(100, 8, rank=0, ranks=1)
    other.start(3, 0)
    assert list(other) != third


def test_a_new_epoch_begins_at_its_start():
    """Setting the epoch resets the cursor, and setting the same one does not."""
    progress = Progress(epoch=2, samples=8, batch=4)
    seen = []
    for progress.epoch in range(progress.epoch, 4):  # noqa: B020 (how it is used)
        seen.append((progress.epoch, progress.samples, progress.batch))

    assert seen == [(2, 8, 4), (3, 0, 0)]


def test_an_epoch_that_was_consumed_has_no_rest():
    """A checkpoint taken after the last batch does not bring the epoch back."""
    states, consumed = train(None, 2, 99)
    assert len(consumed) == 24

    assert train(states, 2, 99)[1] == []


class Verdict:
    """Whether a step was applied, which is known only when it is asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = 0

    def __bool__(self):
        """Count and answer."""
        self.asked += 1
        return self.answer


def test_steps_are_counted_at_once_and_skips_when_they_are_known():
    """A verdict that would make the host wait is asked one step later, and once."""
    progress = Progress()
    verdicts = [Verdict(answer) for answer in (True, False, False)]
    asked = []
    for verdict in verdicts:
        progress.advance(samples=4, applied=verdict)
        asked.append([each.asked for each in verdicts])

    assert asked == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert (progress.step, progress.skipped, progress.applied) == (3, 2, 1)
    assert progress.samples == 12
    assert [each.asked for each in verdicts] == [1, 1, 1]


def test_a_rollback_goes_back_in_steps_and_forward_in_the_data():
    """The batches that spoiled the numbers do not come again."""
    progress = Progress()
    for _ in range(3):
        progress.advance(samples=2)
    healthy = progress.state_dict()
    for _ in range(5):
        progress.advance(samples=2, applied=False)
    progress.rewind(healthy)

    assert (progress.step, progress.skipped) == (3, 0)
    assert (progress.samples, progress.batch) == (16, 8)


def test_another_order_in_the_middle_of_an_epoch_is_refused():
    """With another seed or length nobody can tell what has been seen."""
    states, _ = train(None, 1, 2)
    for change in ({"seed": 1, "shuffle": True}, {"length": 25}):
        with pytest.raises(CheckpointError, match=r"cannot resume epoch 0 .*another"):
            train(states, 1, 1, **change)


def test_another_order_at_the_start_of_an_epoch_is_fine():
    """A data set may grow between epochs."""
    states, _ = train(None, 1, 99)
    progress = Progress()
    progress.load_state_dict(states[0])
    progress.epoch += 1

    assert len(list(progress.skip(loaders(1, length=30)[0]))) == 15


def test_the_names_in_the_state_never_change():
    """DCP loads in place: what is asked for must be what was saved."""
    used = Progress()
    list(used.skip(loaders(1)[0]))
    used.advance(samples=2)

    assert {name: type(value) for name, value in used.state_dict().items()} == {
        name: type(value) for name, value in Progress().state_dict().items()
    }


@pytest.mark.parametrize("name", ["step", "samples", "epoch", "batch", "skipped"])
@pytest.mark.parametrize("number", [-1, float("nan"), 1.5, True, None])
def test_what_is_no_count_is_refused(name, number):
    """The error names it."""
    with pytest.raises(ValueError, match=f"cannot set {name} to "):
        Progress(**{name: number})


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 0},
        {"length": float("nan")},
        {"length": 9, "seed": -1},
        {"length": 9, "rank": 2, "ranks": 2},
        {"length": 9, "rank": 0, "ranks": 0},
    ],
)
def test_what_is_no_order_is_refused(wrong):
    """Before anything is sampled by it."""
    with pytest.raises(ValueError, match="because there is no such order"):
        ResumableSampler(**wrong)
