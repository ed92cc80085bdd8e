"""``dsup runs``: the runs that are kept, and which of them go on."""

import json

from dsup_runtime import contract

OLDER = "20991130T012748Z-train-b0b408_gpu-a17"


def test_a_run_without_a_verdict_is_a_row_like_any_other(dsup, failed_run):
    """Newest first; what nobody knows is a dash, or null."""
    failed_run(OLDER)
    newest = failed_run()
    (newest / contract.JOURNAL_FILE).write_text("garbage\n")
    table, told = dsup("runs"), json.loads(dsup("runs", "--json").out)

    assert [row["run"] for row in told["runs"]] == [newest.name, OLDER]
    broken, kept = told["runs"]
    assert (broken["outcome"], kept["outcome"]) == (None, "failed")
    assert "its journal cannot be read" in broken["error"]
    assert (kept["attempts"], kept["lasted_s"], kept["step"]) == (1, 2.5, None)
    head, first, second = table.out.splitlines()
    assert head.split() == "run state attempts step began lasted verdict".split()
    assert first.split()[1] == "?"
    assert second.split()[1:] == [
        "failed",
        "1",
        "-",
        "2099-11-30",
        "01:27",
        "2",
        "s",
        "-",
    ]


def test_where_several_nodes_keep_runs_each_row_names_its_own(dsup, failed_run):
    """One directory may be shared by hundreds of nodes."""
    failed_run()
    failed_run(OLDER, {"host": "gpu-b02"})

    assert [line.split()[1] for line in dsup("runs").out.splitlines()] == [
        "node",
        "gpu-a17",
        "gpu-b02",
    ]


def test_the_newest_are_shown_unless_all_are_asked_for(dsup, failed_run):
    """And how many are left out is said."""
    for n in range(23):
        failed_run(f"209911{n + 1:02}T012748Z-train-b0b408_gpu-a17")

    said = dsup("runs")
    assert len(said.out.splitlines()) == 21
    assert "3 older ones are not shown" in said.err
    assert len(dsup("runs", "--all").out.splitlines()) == 24


def test_no_runs_are_no_rows(dsup):
    """Nothing is kept yet: that is no error, and is said, with where it would be."""
    said = dsup("runs")

    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("dsup: no run is kept in ")
    assert said.err.count("\n") == 1
