"""dsup diagnose --json: the schema that it keeps, and the one that the docs hold."""

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from dsup.report.schema import schema

DOCS = Path(__file__).parents[2] / "docs" / "diagnosis.schema.json"
LOG = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 3, in <module>
[rank1]: ValueError: batch 812 has no labels
"""


@pytest.fixture
def valid():
    """Give ``valid(text)``: what JSON says, if the schema allows it."""
    jsonschema.Draft202012Validator.check_schema(schema())
    checks = jsonschema.Draft202012Validator(schema())

    def check(text):
        found = json.loads(text)
        checks.validate(found)
        return found

    return check


def test_the_schema_of_the_docs_is_the_one_that_is_printed(dsup):
    """Made anew with: dsup diagnose --json-schema >docs/diagnosis.schema.json."""
    assert dsup("diagnose", "--json-schema").out == DOCS.read_text()


def test_a_runs_answer_keeps_the_schema(dsup, failed_run, valid):
    """With a verdict that was made from the journal."""
    failed_run()

    assert valid(dsup("diagnose", "--json").out)["verdicts"][0]["first_ranks"] == [1]


def test_a_judged_runs_answer_keeps_the_schema(dsup, failed_run, valid):
    """With all that a judge tells, rules included."""
    from dsup.attribution.judge import judge
    from dsup.attribution.timeline import End, Timeline
    from dsup.report.verdict_file import encode

    ends = (End(1, 101, -9, 3.0), End(0, 100, -15, 3.5))
    timeline = Timeline(0, 2, "gpu-a17", 1.0, ends=ends, signalled={0: 3.1})
    raw = encode(judge(timeline), node="gpu-a17", offset_s=1e9, ended=(137, "rank"))
    failed_run(attempt_0__verdict_json=raw)
    (found,) = valid(dsup("diagnose", "--json").out)["verdicts"]

    assert found["cause"] == "killed"
    assert {one["rule"] for one in found["looked"]} >= {"obstacle", found["rule"]}


def test_a_logs_answer_keeps_the_schema(dsup, home, valid):
    """Without times, nodes and exit: what it does not tell is null."""
    (home / "train.log").write_text(LOG)
    found = valid(dsup("diagnose", "--json", "train.log").out)
    (verdict,) = found["verdicts"]

    assert (verdict["at"], verdict["exit"], verdict["first_nodes"]) == (None, None, [])
    assert found["sources"][0]["kind"] == "logs"


@pytest.mark.parametrize("spoil", ["schema", "cause", "first_ranks", "looked"])
def test_the_schema_knows_another_answer_when_it_sees_one(dsup, failed_run, spoil):
    """It is no schema that allows everything."""
    failed_run()
    found = json.loads(dsup("diagnose", "--json").out)
    place = found if spoil in found else found["verdicts"][0]
    place[spoil] = "something else"

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema())


def test_fields_of_later_versions_are_allowed(dsup, failed_run, valid):
    """Readers pass over what they do not know."""
    failed_run()
    found = json.loads(dsup("diagnose", "--json").out)
    found["verdicts"][0]["weather"] = "rain"

    assert valid(json.dumps(found))


def test_why_prints_how_it_came_about(dsup, home):
    """Below the panel; the same is in the JSON always."""
    (home / "train.log").write_text(LOG)
    plain, asked = dsup("diagnose", "train.log"), dsup("diagnose", "--why", "train.log")
    added = asked.out.removeprefix(plain.out.rstrip("\n"))

    assert "spoke: python_exception of rank 1" in added
    assert "\n before   asked before it, and silent: " in added
