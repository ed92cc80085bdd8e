"""The black-box harness, with ranks that stop by dsup's page."""

import hashlib
import importlib.util
import json
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_BLACKBOX = HERE.parent / "blackbox"
_SPEC = importlib.util.spec_from_file_location("harness", _BLACKBOX / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

new_run = _MODULE.new_run
run = _MODULE.run
proc = _MODULE.proc
WORKERS = HERE / "workers"


class Parked:
    """Starts runs whose ranks stop by themselves, and reads how they left."""

    @staticmethod
    def start(run, options, *words, worker="parking.py"):
        """Start ranks that do as the worker's docstring says."""
        # The worker reports as the harness's own does.
        path = os.pathsep.join((*_MODULE.SOURCES, str(_MODULE.WORKERS)))
        run.start(options, *words, script=WORKERS / worker, env={"PYTHONPATH": path})

    @staticmethod
    def left_together(run, ranks):
        """Return what the ranks say of the stop, once all left at the same check."""
        left = run.events("left")
        assert len(left) == ranks, run.console()
        assert {event.check for event in left} == {left[0].check}
        return left[0]

    @staticmethod
    def journal(run, kind):
        """Return the journal's events, or commands, of that kind."""
        lines = (run.run_dir() / "events.jsonl").read_text().splitlines()
        entries = map(json.loads, lines)
        return [e for e in entries if kind in (e.get("event"), e.get("command"))]

    @staticmethod
    def drawn(seed):
        """Return ranks, step time and delay, seconds, of a seed: the same anywhere."""
        numbers = hashlib.sha256(f"parking {seed}".encode()).digest()
        step_s = (0.0, 0.0002, 0.001, 0.005, 0.02)[numbers[1] % 5]
        return 2 + numbers[0] % 3, step_s, numbers[2] / 1000


@pytest.fixture
def parked():
    """Give what starts runs that are parked, and reads how they left."""
    return Parked
