"""``Progress`` goes on in the middle of whatever makes the batches."""

from typing import Any

import pytest

from dsup_runtime.progress import Progress
from dsup_runtime.resumable_sampler import ResumableSampler


class Stream:
    """A loader without a sampler, which counts what is drawn from it."""

    def __init__(self):
        self.drawn = 0

    def __iter__(self):
        """Yield ten batches."""
        for number in range(10):
            self.drawn += 1
            yield number


def test_of_any_other_loader_the_consumed_batches_are_drawn_and_dropped():
    """Exact too, as long as nothing else has changed."""
    progress = Progress()
    batches = progress.skip(Stream())
    consumed = [next(batches) for _ in range(4)]
    for _ in consumed:
        progress.advance(samples=1)
    resumed = Progress()
    resumed.load_state_dict(progress.state_dict())

    assert list(resumed.skip(Stream())) == list(range(4, 10))


class StatefulStream(Stream):
    """A loader that can go on in the middle by itself."""

    def __init__(self):
        super().__init__()
        self.position = 0

    def __iter__(self):
        """Yield the rest."""
        while self.position < 10:
            self.drawn += 1
            self.position += 1
            yield self.position - 1

    def state_dict(self):
        """Return where it is."""
        return {"position": self.position}

    def load_state_dict(self, state):
        """Go there."""
        self.position = state["position"]


@pytest.mark.torch
@pytest.mark.slow
def test_the_state_of_a_stateful_loader_travels_along():
    """It goes on by itself, and nothing that was consumed is drawn again."""
    progress = Progress()
    batches = progress.skip(StatefulStream())
    for _ in range(4):
        next(batches)
        progress.advance(samples=1)
    resumed, loader = Progress(), StatefulStream()
    resumed.load_state_dict(progress.state_dict())

    assert list(resumed.skip(loader)) == [4, 5, 6, 7, 8, 9]
    assert loader.drawn == 6


def test_the_state_of_a_loader_after_its_last_batch_brings_nothing_back():
    """A stateful loader that has ended speaks of its next epoch, not of this one."""
    progress = Progress()
    for _ in progress.skip(StatefulStream()):
        progress.advance(samples=1)
    resumed = Progress()
    resumed.load_state_dict(progress.state_dict())
    assert list(resumed.skip(StatefulStream())) == []

    resumed.epoch += 1
    assert len(list(resumed.skip(StatefulStream()))) == 10


class StatelessStream(Stream):
    """As accelerate's loaders: it has the methods, with nothing behind them."""

    use_stateful_dataloader = False

    def state_dict(self):
        """Fail, as theirs does."""
        raise AttributeError

    load_state_dict = None


def test_a_loader_that_only_looks_stateful_is_drawn_from_again():
    """What was consumed is dropped, as with any loader that has no state."""
    progress = Progress()
    batches = progress.skip(StatelessStream())
    for _ in range(4):
        next(batches)
        progress.advance(samples=1)
    resumed = Progress()
    resumed.load_state_dict(progress.state_dict())

    assert list(resumed.skip(StatelessStream())) == [4, 5, 6, 7, 8, 9]


class Squares:
    """A data set that remembers what was asked of it."""

    def __init__(self):
        self.asked = []

    def __len__(self):
        """Return how many there are."""
        return 24

    def __getitem__(self, index):
        """Return one of them."""
        self.asked.append(index)
        return index**2


@pytest.mark.torch
@pytest.mark.slow
def test_a_data_loader_begins_in_the_middle_without_touching_the_rest():
    """Only what is left of the epoch is ever asked of the data set."""
    from torch.utils.data import DataLoader

    data: Any = Squares()
    sampler = ResumableSampler(len(data), 3)
    order = list(sampler)
    progress = Progress(samples=20, batch=5)
    batches = progress.skip(DataLoader(data, 3, sampler=sampler))

    assert [batch.tolist() for batch in batches] == [
        [index**2 for index in order[20:23]],
        [order[23] ** 2],
    ]
    assert data.asked == order[20:]


@pytest.mark.torch
@pytest.mark.slow
def test_a_distributed_sampler_gets_its_epoch():
    """Its order is a function of (seed, epoch) too, on as many ranks as before."""
    from torch.utils.data import DataLoader, DistributedSampler

    data: Any = Squares()

    def loader():
        sampler: Any = DistributedSampler(data, num_replicas=2, rank=1, seed=9)
        return DataLoader(data, 2, sampler=sampler)

    whole = [batch.tolist() for batch in Progress(epoch=5).skip(loader())]
    rest = [batch.tolist() for batch in Progress(epoch=5, batch=4).skip(loader())]
    first = [batch.tolist() for batch in Progress().skip(loader())]
    assert rest == whole[4:]
    assert first != whole


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("taken", [1, 4, 12], ids=["begun", "middle", "all"])
def test_torchdata_goes_on_where_it_was(taken):
    """StatefulDataLoader's own state travels, in the middle and at the end."""
    name = "torchdata.stateful_dataloader"
    module = pytest.importorskip(name, reason="torchdata is not installed")

    def batches(progress):
        return progress.skip(module.StatefulDataLoader(Squares(), batch_size=2))

    whole = [batch.tolist() for batch in batches(Progress())]
    progress = Progress()
    consumed = []
    for batch in batches(progress):
        progress.advance(samples=2)
        consumed.append(batch.tolist())
        if len(consumed) == taken:
            break
    resumed = Progress()
    resumed.load_state_dict(progress.state_dict())
    assert consumed + [batch.tolist() for batch in batches(resumed)] == whole
