"""The sampler: memory of real processes, and steps from a real page."""

import mmap
import os
import subprocess
import sys

import pytest

from dsup.core.state import NEVER
from dsup.edges.heartbeats import Page
from dsup.edges.sampler import EVERY_S, PROCESSES_MAX, Sampler
from dsup.facts.samples import SAMPLES_MAX, decode, decode_all
from dsup_runtime import contract

MIB = 1024
HOLD = """
import sys
held = bytearray(64 << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder():
    """Start a process that holds 64 MiB."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.stdin.close()


def test_a_rank_is_sampled_with_its_helpers(holder):
    """What DataLoader workers hold is the rank's."""
    sampler = Sampler()
    sampler.begin(0.0)

    sampler.look(0.5, {os.getpid(): 0, holder.pid: 1}, None)
    sampler.look(1.5, {os.getpid(): 0, holder.pid: 0}, None)

    apart, together = decode_all(sampler.lines)
    assert apart.rss_kb[1] > 64 * MIB
    assert together.rss_kb[0] > apart.rss_kb[0] + 64 * MIB - 16 * MIB


def test_steps_and_phases_are_those_of_the_page():
    """A rank that does not use the runtime has neither."""
    page = Page(0, 2)
    with mmap.mmap(page.fd, 0) as mapping, memoryview(mapping).cast("q") as words:
        first = contract.slot_offset(1)
        words[first + contract.SLOT_HEARTBEAT_NS] = 1
        words[first + contract.SLOT_STEP] = 41
        words[first + contract.SLOT_PHASE] = contract.PHASES.index("eval")

    sampler = Sampler()
    sampler.look(1.0, {}, page)
    page.close()

    found = decode(sampler.lines[0])
    assert found.steps == {1: 41}
    assert found.phases == {1: "eval"}


def test_memory_of_the_cgroup_stands_beside_its_limit():
    """They are told in KiB; what is unknown is left out."""
    sampler = Sampler(lambda: (3 << 30, None))

    sampler.look(1.0, {}, None)

    found = decode(sampler.lines[0])
    assert (found.cgroup_kb, found.limit_kb) == (3 << 20, None)


def test_nothing_is_due_before_the_ranks_run():
    """The start of the ranks is not kept waiting."""
    assert Sampler().due_s == NEVER


def test_the_distance_doubles_up_to_its_most():
    """Who dies young has a curve, too, and who lives long costs little."""
    sampler, now_s, distances = Sampler(), 0.0, []
    sampler.begin(now_s)
    for _ in range(8):
        distances.append(sampler.due_s - now_s)
        now_s = sampler.due_s
        sampler.look(now_s, {}, None)

    assert distances == [0.5, 1.0, 2.0, 4.0, 8.0, EVERY_S, EVERY_S, EVERY_S]


def test_a_long_life_costs_no_more_memory_than_a_short_one():
    """Old samples are thinned out, and the newest are all there."""
    sampler = Sampler()
    for second in range(4 * SAMPLES_MAX):
        sampler.look(float(second), {}, None)

    found = decode_all(sampler.lines)
    assert len(found) <= SAMPLES_MAX
    assert [s.at_s for s in found[-3:]] == [4 * SAMPLES_MAX - n for n in (3, 2, 1)]
    assert found[0].at_s == 0.0


def test_processes_that_have_gone_are_left_out():
    """A pid without a process has no memory; and too many are not looked at."""
    sampler = Sampler()

    sampler.look(1.0, {2**22 + n: n for n in range(PROCESSES_MAX + 5)}, None)

    assert decode(sampler.lines[0]).rss_kb == {}
