"""The black-box harness, for the runs that take hours."""

import importlib.util
from pathlib import Path

_HARNESS = Path(__file__).parent.parent / "blackbox" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("blackbox_harness", _HARNESS)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

new_run = _MODULE.new_run
run = _MODULE.run
proc = _MODULE.proc
