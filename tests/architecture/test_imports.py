"""The supervisor never carries torch, and a training script never carries the agent."""

import functools
import json
import subprocess
import sys

import pytest

# torch_aides exist to import torch, in processes of their own; a __main__ would run.
IMPORT = """
import importlib, json, pkgutil, sys
names = sys.argv[1:]
if names[0].endswith(".**"):
    names = [names[0].removesuffix(".**")]
    for module in pkgutil.walk_packages(importlib.import_module(names[0]).__path__,
                                        names[0] + "."):
        if not module.name.endswith("__main__") and "torch_aides." not in module.name:
            names.append(module.name)
for name in names:
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""

BEFORE_THE_FIRST_RANK = (
    "dsup.cli.entry",
    "dsup.cli.launch",
    "dsup.guard",
    "dsup.agent",
    "dsup.core.machine",
)


@functools.cache
def modules_after_importing(*names):
    """Return the modules that a fresh interpreter has after importing these."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("unwanted", ["torch", "numpy"])
def test_no_module_of_dsup_loads(unwanted):
    """Importing every module of dsup loads neither torch nor numpy."""
    assert unwanted not in modules_after_importing("dsup.**")


@pytest.mark.slow
def test_dsup_knows_only_the_contract_and_the_checkpoint_rules():
    """Of the runtime, dsup loads what crosses the boundary and nothing else."""
    loaded = modules_after_importing("dsup.**")
    runtime = {name for name in loaded if name.partition(".")[0] == "dsup_runtime"}

    assert runtime <= {
        "dsup_runtime",
        "dsup_runtime.checkpoints.manifest",
        "dsup_runtime.checkpoints",
        "dsup_runtime.contract",
        "dsup_runtime.disk",
        "dsup_runtime.checkpoints.foreign",
    }


@pytest.mark.slow
@pytest.mark.parametrize("unwanted", ["torch", "numpy", "dsup", "click"])
def test_no_module_of_the_runtime_loads(unwanted):
    """Importing every module of dsup_runtime needs the standard library alone."""
    assert unwanted not in modules_after_importing("dsup_runtime.**")


@pytest.mark.slow
@pytest.mark.parametrize(
    "unwanted",
    ["asyncio", "ctypes", "dataclasses", "logging", "pathlib", "subprocess"],
)
def test_the_way_to_the_first_rank_is_light(unwanted):
    """What launch imports before the first rank runs leaves out the costly modules."""
    assert unwanted not in modules_after_importing(*BEFORE_THE_FIRST_RANK)
