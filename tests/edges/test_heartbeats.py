"""The heartbeat page: shared with the ranks, and none of them can harm the agent."""

import fcntl
import mmap
import os
import subprocess
import sys

import pytest

from dsup.edges.heartbeats import Page
from dsup_runtime import contract

F_ADD_SEALS = 1033
F_SEAL_WRITE = 8


@pytest.fixture
def page():
    """Make a page for four ranks of attempt 7."""
    made = Page(7, 4)
    yield made
    made.close()


@pytest.fixture
def words(page):
    """Give the page as a worker maps it."""
    mapping = mmap.mmap(page.fd, 0)
    view = memoryview(mapping).cast("q")
    yield view
    view.release()
    mapping.close()


def set_step(words, slot, step):
    words[contract.slot_offset(slot) + contract.SLOT_STEP] = step


def test_a_new_page_holds_what_the_contract_says(page, words):
    """A worker knows the page, its attempt and its size by the header."""
    assert words.nbytes == contract.page_bytes(4)
    assert words[contract.HEADER_MAGIC] == contract.MAGIC
    assert words[contract.HEADER_ATTEMPT] == 7
    assert words[contract.HEADER_SLOTS] == 4
    assert words[contract.HEADER_FREEZE] == 0
    assert words[contract.HEADER_STOP_STEP] == contract.NO_STEP
    assert page.step() is None


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda fd: os.ftruncate(fd, 0), id="shrink"),
        pytest.param(lambda fd: os.ftruncate(fd, 1 << 20), id="grow"),
        pytest.param(
            lambda fd: fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), id="seal more"
        ),
    ],
)
def test_the_page_keeps_its_size(page, harm):
    """A mapping of a file that shrinks would end its reader with SIGBUS."""
    with pytest.raises(PermissionError):
        harm(page.fd)

    assert os.fstat(page.fd).st_size == contract.page_bytes(4)


HARMS = {
    "truncates it": "os.ftruncate(page, 0)",
    "truncates it by its path": "open(f'/proc/self/fd/{page}', 'wb')",
    "writes beyond its end": "os.pwrite(page, b'x', 1 << 20)",
    "fills it with noise": "os.pwrite(page, os.urandom(size), 0)",
    "makes a hole in it": "ctypes.CDLL(None).fallocate64(page, 3, 0, 4096)",
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
def test_a_worker_cannot_harm_the_agent(page, harm):
    """Whatever a worker does to the page, the agent can read and write it."""
    size = contract.page_bytes(4)
    code = f"import ctypes, os; page, size = {page.fd}, {size}; {harm}"
    subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        pass_fds=(page.fd,),
        stderr=subprocess.DEVNULL,
    )
    step = page.step()
    page.mark_dead(3)

    assert step is None or 0 <= step < 2**53
    assert os.fstat(page.fd).st_size == size


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([-1, -1, -1, -1], None, id="nobody reports"),
        pytest.param([5, 5, 5, 5], 5, id="all are equal"),
        pytest.param([8, 7, 9, 8], 7, id="the slowest counts"),
        pytest.param([0, 3, 3, 3], 0, id="step 0 is a step"),
        pytest.param([-1, 4, -1, 6], 4, id="the silent do not count"),
        pytest.param([-2, 4, 5, 6], 4, id="negative"),
        pytest.param([-(2**63), 4, 5, 6], 4, id="the least number"),
        pytest.param([2**63 - 1, 4, 5, 6], 4, id="the greatest number"),
        pytest.param([2**53, 2**53 - 1, -1, -1], 2**53 - 1, id="the limit"),
        pytest.param([2**53] * 4, None, id="all beyond the limit"),
    ],
)
def test_the_step_is_what_every_reporting_rank_has_finished(
    page, words, steps, expected
):
    """Ranks that report nothing, or nonsense, are not waited for."""
    for slot, step in enumerate(steps):
        set_step(words, slot, step)

    assert page.step() == expected


def test_a_dead_rank_is_marked_in_its_own_slot_alone(page, words):
    """The others can read who has ended."""
    page.mark_dead(2)
    dead = [words[contract.slot_offset(slot) + contract.SLOT_DEAD] for slot in range(4)]

    assert dead == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        pytest.param([0, 0, 0, 0], set(), id="none"),
        pytest.param([1, 0, 1, 0], {0, 2}, id="two"),
        pytest.param([3, 2, -1, 1], {0, 2, 3}, id="other flags beside it"),
    ],
)
def test_ranks_that_stop_themselves_say_so_by_a_flag(page, words, flags, ranks):
    """A rank sets it once its loop asks whether to stop."""
    for slot, flag in enumerate(flags):
        words[contract.slot_offset(slot) + contract.SLOT_FLAGS] = flag

    assert page.self_stopping() == ranks


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        pytest.param([0, 0, 0, 0], {}, id="nobody"),
        pytest.param([0, 5, 1, 0], {1: 5, 2: 1}, id="two"),
        pytest.param([-1, 6, 2**62, -(2**63)], {}, id="no such kinds"),
    ],
)
def test_who_wants_a_stop_is_read_from_the_page(page, words, kinds, wanted):
    """A note may be lost; what is no kind that is known wants nothing."""
    for slot, kind in enumerate(kinds):
        words[contract.slot_offset(slot) + contract.SLOT_WANTED] = kind

    assert page.wanted() == wanted


def test_checks_are_given_as_the_ranks_have_them(page, words):
    """What cannot be a count is for the reader to leave out."""
    for slot, count in enumerate([7, 8, -1, 2**63 - 1]):
        words[contract.slot_offset(slot) + contract.SLOT_SEQUENCE] = count

    assert page.checks() == [7, 8, -1, 2**63 - 1]


def test_a_frozen_page_says_until_when(page, words):
    """The deadline is there before the freeze; no stop is published yet."""
    page.freeze(12.5)

    assert words[contract.HEADER_FREEZE] == 1
    assert words[contract.HEADER_STOP_DEADLINE_NS] == 12_500_000_000
    assert words[contract.HEADER_STOP_STEP] == contract.NO_STEP


@pytest.mark.parametrize(
    ("reason", "read"),
    [
        pytest.param("SIGTERM", "SIGTERM", id="short"),
        pytest.param("", "", id="none"),
        pytest.param("x" * 99, "x" * 64, id="too long"),
        pytest.param("x" * 63 + "ä", "x" * 63, id="no half characters"),
        pytest.param("a\udcffb", "a?b", id="no text at all"),
    ],
)
def test_a_published_stop_says_what_where_who_and_why(page, words, reason, read):
    """Each rank reads the same of it."""
    page.publish(18, "error", 3, reason)
    first = contract.HEADER_STOP_REASON

    assert words[contract.HEADER_STOP_STEP] == 18
    assert contract.STOP_KINDS[words[contract.HEADER_STOP_KIND]] == "error"
    assert words[contract.HEADER_STOP_RANK] == 3
    told = words[first : first + 8].tobytes()
    assert told.rstrip(b"\0").decode() == read


def test_the_descriptor_is_out_of_the_ranks_way(page):
    """It is above every number a rank has, and no child gets it by chance."""
    assert page.fd > 63
    assert not os.get_inheritable(page.fd)


def test_a_worker_keeps_its_mapping_when_the_agent_lets_go(descriptors):
    """The end of an attempt ends no worker that still writes."""
    before = descriptors()
    page = Page(0, 1)
    with mmap.mmap(page.fd, 0) as mapping, memoryview(mapping).cast("q") as words:
        page.close()
        set_step(words, 0, 3)

        assert words[contract.slot_offset(0) + contract.SLOT_STEP] == 3
    assert descriptors() == before
