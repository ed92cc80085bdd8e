"""The global stop, often: real gloo ranks at a random pace, stopped at random steps."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.torch, pytest.mark.timeout(1800)]

RUNTIME_TESTS = Path(__file__).parents[1] / "runtime"


def load(name):
    """Return a module of the runtime's tests."""
    spec = importlib.util.spec_from_file_location(
        f"runtime_{name}", RUNTIME_TESTS / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


world = load("conftest").world
ranks = load("test_stop_ranks")


def test_a_hundred_deferred_errors_stop_all_ranks_at_one_step(world):
    """Without dsup: rank 3 defers at step 17, and all leave one step later, always."""
    for seed in range(100):
        ranks.test_a_deferred_error_of_one_rank_stops_all_at_one_step(world, seed)


def test_sixty_frozen_pages_stop_all_ranks_at_one_step(world):
    """Under dsup: whenever the page is frozen, all ranks do the same steps, always."""
    for number in range(60):
        ranks.test_a_frozen_page_stops_all_ranks_at_one_step(world, number % 30)
