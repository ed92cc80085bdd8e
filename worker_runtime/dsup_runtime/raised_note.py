"""Telling the agent of the exception that ends a run, while the run is being ended.

The bootstrap's hook would tell it too, but only once nobody has caught it: after the
groups are destroyed and the tracker has finished, when the peers have long died of it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from time import monotonic_ns
from typing import TYPE_CHECKING

from dsup_runtime import contract, notes

if TYPE_CHECKING:
    from types import ModuleType


def tell(error: Exception) -> None:
    """Send the note that the bootstrap's hook would send, in its place; never raise."""
    if not contract.variable(contract.NOTES):
        return
    with suppress(Exception):  # whatever is wrong with it, the hook is still there
        note = _hooks().describe((type(error), error, error.__traceback__))
        told = {name: note[name] for name in note.keys() - {"v", "kind"}}
        if notes.send(note["kind"], **told, at_ns=monotonic_ns(), thread=""):
            vars(error)["__dsup_told__"] = True


def _hooks() -> ModuleType:
    """Load the bootstrap's own module: it has left sys.modules and sys.path."""
    path = os.path.join(contract.BOOTSTRAP_DIR, "_dsup_notes.py")
    spec = spec_from_file_location("_dsup_notes", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
