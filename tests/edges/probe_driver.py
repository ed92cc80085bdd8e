"""Plays the agent to the probe: a process of its own, since NVML is loaded but once.

Usage: ``probe_driver.py SICKENS [ATTEMPTS]``. It starts, has the GPUs asked, makes the
file SICKENS, lets a rank die, and prints what is known then as JSON, one line an
attempt.
"""

import json
import os
import sys
import time
from pathlib import Path

from dsup.core.state import NEVER
from dsup.devices import Devices
from dsup.edges.aide import Aides
from dsup.edges.loop import Loop
from dsup.facts import gpu_health, gpu_load, nvml

LIMIT_S = 600.0
RANK = {"LOCAL_RANK": "0"}


class Driver:
    """The agent's loop with nothing but the devices in it."""

    def __init__(self):
        self.loop = Loop()
        self.aides = Aides(self.loop)
        self.lates = 0
        self.devices = Devices(self.aides, self.late)
        self.until_s = time.monotonic() + LIMIT_S

    def late(self):
        """Count answers after a death."""
        self.lates += 1

    def turn_while(self, condition):
        """Turn the loop; a limit of the test's own ends it."""
        while condition() and time.monotonic() < self.until_s:
            self.loop.turn(min(self.devices.deadline(), time.monotonic() + 0.05))
            self.devices.on_tick()
            self.aides.expire(time.monotonic())

    def attempt(self, number, sickens):
        """Have a rank start and die; print what is then known of the GPUs."""
        devices = self.devices
        devices.started(number, {0: os.getpid()}, [RANK])
        if os.environ.get("FAKE_NVML_MODE") != "hang_start":
            self.turn_while(lambda: devices.deadline() < NEVER)
        sickens.touch()
        if os.environ.get("FAKE_NVML_MODE") == "spin":
            devices.glance()
            self.turn_while(lambda: not devices.found.probed.loads)
        if os.environ.get("FAKE_NVML_MODE") == "xid":
            self.turn_while(lambda: not devices.found.probed.events)
        died_s, probe = time.monotonic(), devices.pids
        devices.died()
        devices.ended({0: os.getpid()})
        self.turn_while(lambda: devices.awaited)
        self.tell(devices.found.probed, time.monotonic() - died_s)
        assert not probe & devices.pids or not devices.found.probed.why_not

    def tell(self, probed, took_s):
        """Print it as the judge would take it."""
        cards = nvml.decode_cards(probed.cards)
        health = gpu_health.health_of_all(cards, probed)
        told = {
            "gpus": [card.gpu._asdict() for card in cards],
            "slices": [[one.uuid for one in card.slices] for card in cards],
            "health": [
                {**one._asdict(), "gpu": one.gpu.number, "at_s": None} for one in health
            ],
            "loads": [
                gpu_load.told(one) for one in gpu_load.decode(probed.loads).values()
            ],
            "nvml": nvml.missing(probed),
            "took_s": took_s,
            "probes": len(self.devices.pids),
            "lates": self.lates,
        }
        print(json.dumps(told), flush=True)


def main():
    """Live through some attempts, and leave no process behind."""
    sickens, *more = sys.argv[1:]
    driver = Driver()
    for number in range(int(more[0]) if more else 1):
        driver.attempt(number, Path(sickens))
    driver.devices.stop()
    driver.turn_while(lambda: driver.aides.pids)
    assert not driver.aides.pids


if __name__ == "__main__":
    main()
