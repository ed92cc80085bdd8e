"""What the agent imports late is there before it is needed, whatever happens then."""

import ast
import json
import subprocess
import sys

import pytest

IN_TROUBLE = (
    *("captures", "casefile", "gathering", "hang_news", "hangs", "inquiry"),
    *("publisher", "recorder"),
    *("idling", "straggling", "takeover", "taking", "working"),
)
WITH_THE_FIRST_RANKS = {
    *("dsup.core.journal", "dsup.core.stragglers", "dsup.devices"),
    *("dsup.edges.counters", "dsup.edges.kin", "dsup.edges.sampler"),
    *("dsup.edges.scribe.link", "dsup.edges.scribe.protocol", "dsup.lookout"),
    *("dsup.report.run_file", "dsup.straggling", "dsup.surroundings"),
}
IN_AN_AIDE = {"dsup.facts.gpu_slow"}
"""An aide has closed what the agent has open."""

LAY_IN = """
import json, math, sys
import dsup.agent
from dsup.provision import Provision
laid = Provision()
laid.started(0.0)
while laid.due_s < math.inf:
    laid.look(laid.due_s)
print(json.dumps(sorted(sys.modules)))
"""


def late_imports(tree):
    """Yield the modules that functions of a module import."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module.count(".") == 0:
                yield from (f"{node.module}.{name.name}" for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module
                yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.slow
def test_what_trouble_needs_is_laid_in(sources):
    """With no descriptor left, no module could be opened any more."""
    done = subprocess.run(
        [sys.executable, "-c", LAY_IN], capture_output=True, text=True, check=True
    )
    laid_in = {*json.loads(done.stdout), *WITH_THE_FIRST_RANKS, *IN_AN_AIDE}
    modules = {path.removesuffix(".py").replace("/", ".") for path in sources}
    known = {name.partition(".")[2] for name in modules} | set(sys.stdlib_module_names)

    wanted = {
        name
        for part in IN_TROUBLE
        for name in late_imports(sources[f"supervisor/dsup/{part}.py"].tree)
    }

    assert wanted & known
    assert sorted((wanted & known) - laid_in) == []
