"""Pressure and quota as the kernel writes them, read from files that look the same."""

import os
from types import SimpleNamespace

import pytest

from dsup.linux.gauge import Gauge

PSI = "some avg10=1.00 avg60=0.50 avg300=0.00 total={}\nfull avg10=0.00 total=7\n"


@pytest.fixture
def node(tmp_path):
    """Give a maker of a node's files, and a gauge on it."""
    root, gauges = tmp_path, []

    def write(path, text):
        """Write one of its files."""
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def gauge():
        """Return a gauge on process 7."""
        gauges.append(Gauge(7, str(root)))
        return gauges[-1]

    node = SimpleNamespace(write=write, gauge=gauge)
    write("proc/7/cgroup", "0::/job\n")
    write("proc/self/mountinfo", "1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n")
    write("cg/job/cgroup.procs", "7\n")
    yield node
    for one in gauges:
        one.close()


def test_the_pressure_of_the_own_cgroup_counts(node):
    """What others on the node wait for does not slow the ranks."""
    node.write("cg/job/cpu.pressure", PSI.format(1234))
    node.write("cg/job/memory.pressure", PSI.format(99))
    node.write("proc/pressure/cpu", PSI.format(777_777))

    assert node.gauge().read() == (1234, 99, 0, 0)


def test_the_node_stands_in_where_the_cgroup_does_not_tell(node):
    """As without version 2 of cgroups."""
    node.write("proc/pressure/cpu", PSI.format(55))

    assert node.gauge().read() == (55, 0, 0, 0)


def test_a_quota_of_a_cgroup_above_counts(node):
    """The quota that is used up most often is the one that holds the ranks up."""
    node.write("cg/job/cpu.max", "max 100000\n")
    node.write("cg/cpu.max", "50000 100000\n")
    node.write("cg/cpu.stat", "usage_usec 9\nnr_periods 40\nnr_throttled 30\n")

    assert node.gauge().read() == (0, 0, 40, 30)


def test_a_quota_of_version_1_counts(node):
    """Where each controller has a hierarchy of its own."""
    node.write("proc/7/cgroup", "3:cpu,cpuacct:/job\n")
    node.write(
        "proc/self/mountinfo", "1 1 0:1 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    )
    node.write("cpu/job/cpu.cfs_quota_us", "50000\n")
    node.write("cpu/job/cpu.stat", "nr_periods 8\nnr_throttled 2\nthrottled_time 5\n")

    assert node.gauge().read() == (0, 0, 8, 2)


def test_counters_are_read_anew_each_time(node, tmp_path):
    """The files stay open, and what they say changes."""
    node.write("cg/job/cpu.pressure", PSI.format(1))
    gauge = node.gauge()
    (tmp_path / "cg/job/cpu.pressure").write_text(PSI.format(2))

    assert gauge.read()[0] == 2


def test_nothing_is_known_where_nothing_is_told(node):
    """An old kernel has no pressure; then there is none."""
    assert node.gauge().read() == (0, 0, 0, 0)


def test_this_kernel_is_understood():
    """Whatever cgroups the tests run in, reading them works."""
    gauge = Gauge(os.getpid())

    assert all(number >= 0 for number in gauge.read())
    gauge.close()
