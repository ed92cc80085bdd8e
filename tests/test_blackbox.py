"""What is on disk of an attempt that goes on: the page, and every sample."""

import os
from types import SimpleNamespace

import pytest

from dsup.blackbox import Blackbox
from dsup.edges.heartbeats import Page
from dsup.edges.sampler import Sampler
from dsup.facts.samples import SAMPLES_MAX
from dsup_runtime import contract

NAME = f"attempt_0/{contract.SAMPLES_FILE}"


class Desk:
    """A run directory in memory."""

    def __init__(self):
        self.pages, self.files, self.saves = [], {}, 0

    def keep_page(self, attempt, fd):
        """Note whose page was handed over."""
        self.pages.append((attempt, fd))

    def append(self, name, lines):
        """Make a file longer."""
        self.files[name] = self.files.get(name, b"") + lines

    def save(self, name, fd, **_how):
        """Replace a file."""
        self.saves += 1
        self.files[name] = os.pread(fd, os.fstat(fd).st_size, 0)


@pytest.fixture
def desk():
    """Give a desk."""
    return Desk()


def test_the_file_of_samples_is_what_is_kept_in_memory(desk):
    """Each is appended; what is thinned out goes from the file as well."""
    box, sampler = Blackbox(desk), Sampler()
    box.started(0, None)
    for second in range(3 * SAMPLES_MAX):
        sampler.look(float(second), {}, None)
        box.look(0, sampler.lines)
        box.look(0, sampler.lines)
    assert desk.files[NAME] == b"".join(sampler.lines)
    assert 0 < desk.saves < 10
    assert desk.files[NAME].count(b"\n") <= SAMPLES_MAX


def test_an_attempt_begins_a_file_of_its_own(desk):
    """Its samples do not go on where the others ended."""
    box = Blackbox(desk)
    for attempt in range(2):
        box.started(attempt, None)
        box.look(attempt, [])
        box.look(attempt, [b"%d\n" % attempt])

    assert desk.files == {NAME: b"0\n", f"attempt_1/{contract.SAMPLES_FILE}": b"1\n"}


def test_a_page_that_is_a_file_is_not_written_over(desk):
    """Its ranks write into that very file: a copy of what the agent read is older."""
    page = Page(0, 1)
    Blackbox(desk).started(0, page)
    assert desk.pages == [(0, page.kept_fd)]

    carrier = SimpleNamespace(where="file:/run/attempt_0/heartbeats", close=int)
    page.carry(lambda _: carrier)
    Blackbox(desk).started(0, page)
    page.close()
    assert len(desk.pages) == 1
