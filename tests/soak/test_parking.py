"""A hundred stops at drawn moments: one check for all ranks, and no signal."""

import importlib.util
import signal
from pathlib import Path

import pytest

_PARKING = Path(__file__).parents[1] / "parking" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("parking_harness", _PARKING)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

parked = _MODULE.parked
SEEDS = range(20, 120)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_stop_is_the_same_check_for_every_rank(run, proc, parked, seed):
    """Whenever it comes, and however long a step takes."""
    ranks, step_s, delay_s = parked.drawn(seed)
    parked.start(run, f"--nproc {ranks}", f"*:step={step_s}")
    run.wait_event("ready", ranks)
    end_s = run.elapsed_s() + delay_s
    proc.until(lambda: run.elapsed_s() > end_s, 2, "the clock stands")
    run.signal(signal.SIGTERM)

    assert run.ended(8) == 143, run.console()
    parked.left_together(run, ranks)
    assert run.events("got-TERM") == []
    assert parked.journal(run, "signal_ranks") == []
    run.nothing_left()
