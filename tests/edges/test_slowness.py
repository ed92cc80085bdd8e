"""Why a rank may be slow: what the kernel has counted since it began to lag."""

import pytest

from dsup.edges.slowness import Slowness

PID = 4711


@pytest.fixture
def counters(tmp_path):
    """Give ``counters(waited_s, stolen)``: what the kernel has counted by now."""
    (tmp_path / f"proc/{PID}").mkdir(parents=True)

    def set_to(waited_s, stolen=0):
        line = f"cpu  100 0 100 {800 - stolen} 0 0 0 {stolen} 0 0\n"
        (tmp_path / "proc/stat").write_text(line)
        told = f"5 {int(waited_s * 1e9)} 7\n"
        (tmp_path / f"proc/{PID}/schedstat").write_text(told)

    set_to(0.0)
    return set_to


@pytest.fixture
def seen(tmp_path, counters):
    """Give what looks at a process, as ranks 0 and 1."""
    made = Slowness({0: PID, 1: PID}, str(tmp_path))
    yield made
    made.close()


def test_of_a_rank_that_is_new_nothing_is_known(seen):
    """Nor of one that nothing has slowed down since."""
    assert seen.look([0], 0.0) == {}
    assert seen.look([0], 1e6) == {}


def test_what_has_risen_enough_is_told(seen, counters):
    """Since this rank began to lag, and not since that one did."""
    counters(10.0, 0)
    seen.look([0], 0.0)
    counters(40.0, 0)

    assert seen.look([0, 1], 60.0) == {
        0: "it waited for a processor for 50% of the time"
    }


def test_a_rank_that_keeps_up_is_forgotten(seen, counters, descriptors):
    """When it lags again, it is looked at anew, and no file has stayed open."""
    before = descriptors()
    counters(0.0, 0)
    seen.look([0], 0.0)
    seen.look([], 10.0)
    counters(50.0, 0)

    assert seen.look([0], 60.0) == {}
    seen.look([], 70.0)
    assert descriptors() == before
