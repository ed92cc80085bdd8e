"""dsup diagnose: a run of which not all was written, or not all is left."""

import json

import pytest

ERROR = b"ValueError: batch 812 has no labels\n"


def spoil(path, how):
    """Take a file away, empty it, or cut it in the middle."""
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:60] if how == "cut" else b"")


@pytest.mark.parametrize(
    ("how", "why"),
    [("gone", "is missing"), ("empty", "is empty"), ("cut", "is cut off or damaged")],
)
def test_without_run_json_the_journal_and_the_runs_name_tell(
    dsup, failed_run, how, why
):
    """The node and the second of the launch are in the name of its directory."""
    run = failed_run()
    whole = json.loads(dsup("diagnose", "--json", str(run)).out)
    spoil(run / "run.json", how)
    said = json.loads(dsup("diagnose", "--json", str(run)).out)

    assert said["remarks"][0].startswith(f"run.json {why}; times are told from the ")
    assert said["sources"] == whole["sources"]
    for one, other in zip(said["verdicts"], whole["verdicts"], strict=True):
        assert (one["cause"], one["first_ranks"]) == (
            other["cause"],
            other["first_ranks"],
        )
        assert one["first_nodes"] == ["gpu-a17"]


def test_times_of_a_run_without_run_json_are_those_of_its_verdicts(dsup, failed_run):
    """A rank's end is in the verdict by the time of day, in the journal by a clock."""
    from dsup.core.verdict import Evidence, Verdict
    from dsup.report.verdict_file import encode

    status = Evidence("status", "rank 1 ended with SIGKILL", 1, 3.0)
    kept = Verdict(0, "killed", (1,), "proven", 3.0, "Rank 1.", "killed", (status,))
    raw = encode(kept, node="gpu-a17", offset_s=1e9, ended=(137, "rank"))
    run = failed_run(attempt_0__verdict_json=raw)
    spoil(run / "run.json", "gone")
    said = json.loads(dsup("diagnose", "--json", str(run)).out)

    assert said["remarks"] == ["run.json is missing; times are told from its verdicts"]


@pytest.mark.parametrize("named", [True, False])
def test_a_run_without_journal_and_run_json_is_a_run_all_the_same(
    dsup, failed_run, named
):
    """By its name, or by what no other launcher leaves in an attempt's directory."""
    run = failed_run(attempt_0__1__stderr_log=ERROR)
    for name in ("events.jsonl", "run.json"):
        spoil(run / name, "gone")
    if not named:
        run = run.rename(run.parent / "copied")
        (run / "attempt_0" / "samples.jsonl").touch()
    said = json.loads(dsup("diagnose", "--json", str(run)).out)

    [source], [verdict] = said["sources"], said["verdicts"]
    assert source["launcher"] == "dsup"
    assert source["node"] == ("gpu-a17" if named else None)
    assert (verdict["cause"], verdict["first_ranks"]) == ("python_exception", [1])
    assert said["remarks"][0] == (
        "events.jsonl is missing and run.json is missing; the ranks' logs were read"
    )


def test_a_directory_in_which_nothing_was_written_is_no_run(dsup, failed_run):
    """An agent that was killed at once has left no more than directories."""
    run = failed_run(attempt_0__1__stderr_log=b"")
    for name in ("events.jsonl", "run.json"):
        spoil(run / name, "gone")
    said = dsup("diagnose", str(run))

    assert said.code == 1
    assert "because it holds no events.jsonl: it is no run directory" in said.err
