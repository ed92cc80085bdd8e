"""dsup explain: one word in, its meanings out."""

import json

import pytest

from dsup.attribution.rules import RULES
from dsup.core.exits import CAUSES
from dsup.facts.xids import XIDS


def kinds(said):
    """Return the kind and name of each meaning that --json prints."""
    return [(one["kind"], one["name"]) for one in json.loads(said.out)["meanings"]]


def test_a_bare_number_is_an_xid_and_an_exit_code(dsup):
    """Both are told, apart from each other, the Xid first."""
    said = dsup("explain", "79")
    xid, code = said.out.split("\n\n")

    assert (said.code, said.err) == (0, "")
    assert xid.startswith("Xid 79: the GPU has fallen off the bus\n")
    assert "reboot the node" in xid
    assert code.startswith("exit code 79: the first rank's own exit code\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["xid", "79"], [("xid", "Xid 79")]),
        (["Xid:119"], [("xid", "Xid 119")]),
        (["xid", "99999"], [("xid", "Xid 99999")]),
        (["sxid", "10003"], [("sxid", "SXid 10003")]),
        (["SXid:20034"], [("sxid", "SXid 20034")]),
        (["20034"], [("xid", "Xid 20034"), ("sxid", "SXid 20034")]),
        (["exit", "193"], [("exit_code", "exit code 193")]),
        (["exit code 0"], [("exit_code", "exit code 0")]),
        (["code", "137"], [("exit_code", "exit code 137")]),
        (["SIGKILL"], [("signal", "SIGKILL")]),
        (["kill"], [("signal", "SIGKILL")]),
        (["-9"], [("signal", "SIGKILL")]),
        (["signal", "15"], [("signal", "SIGTERM")]),
        (["host_oom"], [("cause", "host_oom")]),
        (["host-oom"], [("cause", "host_oom")]),
        (["gpu_failed"], [("rule", "gpu_failed")]),
    ],
)
def test_what_a_word_stands_for(dsup, words, expected):
    """Words are taken as people copy them from a log or from dsup's own lines."""
    assert kinds(dsup("explain", *words, "--json")) == expected


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_every_cause_says_where_the_runbook_has_it(dsup, docs_of_causes, cause):
    """The heading that is named is there."""
    said = dsup("explain", cause)

    assert f"{cause}: {CAUSES[cause].meaning}" in said.out
    assert f"section Causes, `{cause}`" in said.out
    assert f"### `{cause}`\n" in docs_of_causes


def test_every_rule_has_its_meaning(dsup):
    """What --why prints can be looked up, with its symptom."""
    for rule in RULES:
        said = dsup("explain", rule.__name__)
        assert said.code == 0
        assert "Symptom:" in said.out


def test_every_xid_and_every_exit_code_has_a_meaning(dsup):
    """No number of the catalogue, and none that a process can end with, fails."""
    assert [n for n in XIDS if dsup("explain", "xid", str(n)).code] == []
    assert [n for n in range(256) if dsup("explain", "exit", str(n)).code] == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "nothing is left to do"),
        (1, "trying again gives the same"),
        (70, "a bug in dsup"),
        (130, "the run was stopped by SIGINT"),
        (137, "cause     host_oom"),
        (193, "cause     gpu_hardware"),
        (194, "a rank hangs"),
        (195, "another try is worth it"),
        (250, "not dsup's"),
    ],
)
def test_exit_codes(dsup, number, words):
    """An exit code says whether another try is worth it, and what may be behind."""
    assert words in dsup("explain", "exit", str(number)).out


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("host_om", "did you mean host_oom?"),
        ("gpu_hardwear", "gpu_hardware"),
        ("segfalt", "segfault"),
        ("zzzzzz", "give an Xid, an exit code, a signal, a cause or a rule"),
        ("exit 999", "give an Xid"),
        ("9" * 40, "give an Xid"),
        ("\x1b[31mred", "no such word"),
    ],
)
def test_an_unknown_word_is_refused_with_what_is_spelled_like_it(dsup, word, hint):
    """One line, exit code 2, and nothing moves the cursor."""
    said = dsup("explain", word)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("dsup: cannot explain '")
    assert hint in said.err
    assert "\x1b" not in said.err


@pytest.fixture(scope="module")
def docs_of_causes():
    """Return the runbook."""
    from pathlib import Path

    return (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()


def test_from_128_on_a_number_is_an_exit_code_first(dsup):
    """A rank that was killed is asked about more often than a rare Xid."""
    assert kinds(dsup("explain", "137", "--json"))[0] == ("exit_code", "exit code 137")
    assert kinds(dsup("explain", "194", "--json")) == [("exit_code", "exit code 194")]


@pytest.mark.parametrize(
    ("word", "guess"),
    [
        ("oom", "cuda_oom"),
        ("oom", "host_oom"),
        ("GPU", "gpu_hardware"),
        ("killd", "killed"),
        ("SXid", "dsup explain sxid 20034"),
        ("xid", "dsup explain xid 79"),
    ],
)
def test_a_part_of_a_word_leads_to_the_word(dsup, word, guess):
    """What people type is often the telling half of a name."""
    said = dsup("explain", word)

    assert said.code == 2
    assert guess in said.err


def test_what_to_do_is_said_in_words_alone(dsup):
    """The word for programs stands in the JSON of a diagnosis."""
    assert "use_less_memory" not in dsup("explain", "host_oom").out
