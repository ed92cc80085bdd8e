"""Stragglers of an attempt: with the reasons that kernel and devices give."""

import json
import os
from types import SimpleNamespace

import pytest

from dsup.core import events as ev
from dsup.devices import Found
from dsup.facts.hardware import Access
from dsup.facts.nvml import Probed
from dsup.straggling import Straggling, read

CARD = {"number": 0, "uuid": "GPU-0", "pci": "0000:01:00.0", "minor": 0}
EVEN = {0: 0.1, 1: 0.1, 2: 0.1}
SLOW = {**EVEN, 2: 0.3}


class Clues:
    """Devices that have said something."""

    def __init__(self, found):
        self.found, self.glances = found, 0

    def glance(self):
        """Be asked."""
        self.glances += 1


@pytest.fixture
def compared():
    """Give ``compared(looks, clues, answer)``: the events of step times, looked at."""

    def run(looks, clues=None, answer=b"{}"):
        told: list[ev.Event] = []
        orders: list[object] = []

        def start(work, _deadline_s, done):
            orders.append(work)
            done(answer)

        pids = dict.fromkeys(range(3), os.getpid())
        aides = SimpleNamespace(start=start)
        straggling = Straggling(4, pids, aides, clues, told.append)
        for now_s in range(0, 10 * len(looks), 10):
            straggling.look(looks[now_s // 10], float(now_s))
        straggling.close()
        return told, orders

    return run


def test_nobody_is_asked_why_while_all_keep_up(compared):
    """It costs what comparing some numbers costs."""
    clues = Clues(Found(Probed(present=True)))

    told, orders = compared([EVEN] * 20, clues)

    assert (told, orders, clues.glances) == ([], [], 0)


def test_a_straggler_is_told_with_what_its_gpu_says(compared):
    """It was asked when the rank began to lag, once."""
    clues = Clues(Found(Probed(present=True)))
    answer = json.dumps({2: "GPU 2 has 8 of 16 PCIe lanes"}).encode()

    [event], orders = compared([SLOW] * 12, clues, answer)

    assert (event.rank, event.attempt, event.times) == (2, 4, pytest.approx(3.0))
    assert event.why.startswith("GPU 2 has 8 of 16 PCIe lanes")
    assert (len(orders), clues.glances) == (1, 1)


def test_without_gpus_nobody_asks_them(compared):
    """The kernel may know a reason all the same."""
    clues = Clues(Found(Probed(present=False)))

    [event], orders = compared([SLOW] * 12, clues)

    assert event.rank == 2
    assert (orders, clues.glances) == ([], 0)


@pytest.mark.parametrize(
    ("load", "rest", "why"),
    [
        ({"throttle": 0x40}, {}, "GPU 0 is slowed down by heat (hardware)"),
        ({}, {"pcie_width": 8, "pcie_width_max": 16}, "GPU 0 has 8 of 16 PCIe lanes"),
        ({"throttle": 0}, {"pcie_width": 16, "pcie_width_max": 16}, None),
        ({}, {}, None),
    ],
)
def test_a_device_is_a_reason_where_it_calls_itself_limited(load, rest, why):
    """Clocks that were lowered, and lanes that are missing."""
    probed = Probed(
        cards=json.dumps({"cards": [CARD]}).encode(),
        before=(json.dumps({"number": 0, "values": rest}).encode(),),
        loads=(json.dumps({"number": 0, "values": load}).encode(),),
        present=True,
    )

    told = json.loads(read(Found(probed, {0: Access(local_rank=0)})))

    assert told == ({} if why is None else {"0": why})
