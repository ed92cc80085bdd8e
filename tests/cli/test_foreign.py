"""What logs, and what dsup has said before, come to as an answer."""

import json

from dsup.cli.foreign import STRANGER, of_logs
from dsup.core.verdict import Verdict
from dsup.report import verdict_file

RAISED = """\
{stamp} [rank1]: Traceback (most recent call last):
{stamp} [rank1]:   File "/app/train.py", line 7, in <module>
{stamp} [rank1]: ValueError: no labels
"""


def test_a_log_of_no_failure_has_no_case(tmp_path):
    """What is said of it names it."""
    path = tmp_path / "fine.log"
    path.write_text("[rank0]: training finished\n")
    found = of_logs([str(path)])

    assert found.cases == ()
    assert found.remarks == ("fine.log tells of no failure",)


def test_an_answer_of_dsup_is_no_log(tmp_path):
    """The verdicts of ``--json`` are shown again, whatever its file is called."""
    verdict = Verdict(0, "hang", (2,), "likely", 1e9, "Rank 2 did not come.", "silent")
    kept = verdict_file.fields(verdict, node="n7", offset_s=0.0, ended=None)
    path = tmp_path / "saved.txt"
    path.write_text(json.dumps({"schema": "dsup.diagnosis/1", "verdicts": [kept]}))
    found = of_logs([str(path)])

    (case,) = found.cases
    assert found.kind == "verdict"
    assert (case.verdict.cause, case.verdict.first_ranks) == ("hang", (2,))


def test_a_document_that_only_looks_like_an_answer(tmp_path):
    """Broken or foreign JSON is text like any other."""
    path = tmp_path / "odd.json"
    for text in ('{"schema": "dsup.diagnosis/1", "verdicts": [7]}', '{"schema": []}'):
        path.write_text(text)
        assert of_logs([str(path)]).kind == "logs"


def test_the_zone_of_a_log_s_times(tmp_path):
    """UTC only where the log tells it."""
    path = tmp_path / "job.log"
    zones = []
    for stamp in ("2026-07-02T10:00:00Z", "2026-07-02 10:00:00,120"):
        path.write_text(RAISED.format(stamp=stamp))
        zones.append(of_logs([str(path)]).cases[0].zone)

    assert zones == ["UTC", ""]


def test_one_word_for_a_launcher_that_nothing_tells(tmp_path):
    """The panel calls it as the head does."""
    path = tmp_path / "job.log"
    path.write_text(RAISED.format(stamp="2026-07-02 10:00:00,120"))
    found = of_logs([str(path)])

    assert found.launcher == ""
    assert found.cases[0].launcher == STRANGER


def test_the_run_that_dsup_named_in_its_console_is_where_to_look(tmp_path):
    """Its directory comes before the lines of the log; odd characters are quoted."""
    path = tmp_path / "slurm-1.out"
    path.write_text(
        "dsup: 2 ranks of train; logs in /runs/my run_n7\n"
        "━━ dsup ━ attempt 0 failed ━━\nRank 1 raised KeyError.\n\n"
        " cause    python_exception, proven\n first    rank 1\n━━━━\n"
    )
    (case,) = of_logs([str(path)]).cases

    assert case.more.startswith("dsup diagnose '/runs/my run_n7'")
