"""The words of ``dsup drill``."""

import json

import pytest

from dsup.drill.scenarios import SCENARIOS


def test_the_list_tells_all_there_is(dsup):
    """What is done, what must come of it, and what it needs; nothing is started."""
    said = dsup("drill", "--list")

    assert said.code == 0
    for scenario in SCENARIOS:
        assert scenario.injected in said.out
        assert scenario.needs in said.out
    assert "expected: host_oom, rank 1, restarted" in said.out


def test_the_list_for_programs(dsup):
    """Of those that are named alone."""
    listed = json.loads(dsup("drill", "--list", "--json", "oom", "kill", "oom").out)

    assert [row["name"] for row in listed] == ["oom", "kill"]
    assert listed[1]["expected"]["cause"] == "killed"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["nope"],
            "dsup: cannot drill nope, because there is no such scenario (there are",
        ),
        (
            ["kill", "--nproc", "1"],
            "dsup: cannot run dsup drill, because invalid value",
        ),
    ],
)
def test_what_cannot_be_drilled(dsup, words, told):
    """A wrong call is one line, and starts nothing."""
    said = dsup("drill", *words)

    assert said.code == 2
    assert said.err.startswith(told)
