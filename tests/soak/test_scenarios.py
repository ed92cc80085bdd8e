"""Real deaths of real ranks, one scenario each: who was first, why, and by what sign.

Each is a launch with real processes, gloo groups and this kernel; ``scenarios.toml``
says of each what is expected and why. The verdict must name the rank and the cause, be
as sure as stated, and rest on the evidence that tells; and the run directory alone,
moved elsewhere, must tell the same.
"""

import tomllib
from pathlib import Path

import pytest

from dsup.core.verdict import LOOKED_AT
from dsup_runtime import oom

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.timeout(150),
]

SURE = ["proven", "likely", "guess", "unknown"]
SCENARIOS = tomllib.loads(Path(__file__).with_name("scenarios.toml").read_text())
THROWER = """
#include <stdexcept>
extern "C" void throw_it() noexcept
{
    throw std::runtime_error("no bucket of that size");
}
"""


def told(verdict, words):
    """Return whether a piece of evidence has these words, from the source before.

    What was only looked at proves nothing, so it does not count.
    """
    source, _, text = words.rpartition(": ")
    return any(
        source in ("", line["source"]) and text in line["text"]
        for line in verdict["evidence"]
        if not line["text"].startswith(LOOKED_AT)
    )


@pytest.fixture
def around(run, request):
    """Give ``around(case)``: variables, and a shell line, of what a scenario needs."""

    def prepared(case):
        env, stage = dict(case.get("env", {})), []
        ask = request.getfixturevalue
        if "small" in case:
            place = f'"{case["small"]}"'
            stage.append(f"mkdir -p {place}")
            stage.append(f"mount -t tmpfs -o size=8m dsup-test {place}")
        if "memory" in case:
            group = ask("cgroup")("memory", case["memory"])
            stage.append(f"echo $$ > {group}/cgroup.procs")
        if "pids" in case:
            env["SCENARIO_CGROUP"] = str(ask("cgroup")("pids", case["pids"]))
        if case["act"] == "crashes:throw":
            ask("built")("thrower.so", THROWER, "-x", "c++")
        if case["act"] == "leaves:bind_the_port":
            env["SCENARIO_PORT"] = str(ask("holder"))
        return {"env": env, "stage": "\n".join(stage)}

    yield prepared
    oom.remove_dead_groups()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.root] if "root" in case else [])
        for name, case in SCENARIOS.items()
    ],
)
def test_the_first_rank_and_the_cause_are_right(case, launch, verdict, around):
    """They are sure enough, and rest on what tells; no culprit is called a victim."""
    why = case["why"]
    before = ["-"] if case.get("before") else []
    how = {key: case[key] for key in ("nproc", "options") if key in case}
    launch(case["act"], case["ranks"], *before, **how, **around(case))
    found = verdict()

    assert found["cause"] in case["causes"], (why, found)
    assert found["first_ranks"] in case.get("firsts", [case["ranks"]]), (why, found)
    least = SURE.index(case.get("certainty", "likely"))
    assert SURE.index(found["certainty"]) <= least, (why, found)
    assert told(found, case["words"]), (why, found["evidence"])
    assert case.get("never", "\n") not in found["summary"], (why, found)
    victims = {victim["rank"] for victim in found["victims"]}
    assert not victims & set(case["ranks"]), (why, found)
