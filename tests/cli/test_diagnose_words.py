"""dsup diagnose: what its words may be, and what is done with each kind of thing."""

import json
import os
import signal
import subprocess
import sys
import tarfile

import pytest

ERROR = "[rank1]: ValueError: batch 812 has no labels\n"
OTHER = "20991130T022748Z-train-a0b408_gpu-b02"


@pytest.fixture
def log(home):
    """Give a log of no launcher that is known, in the current directory."""
    path = home / "train.log"
    path.write_text(ERROR)
    return path


def verdicts(said):
    """Return cause and first ranks of each verdict."""
    assert said.code == 0, said.err
    return [(v["cause"], v["first_ranks"]) for v in json.loads(said.out)["verdicts"]]


RAISED = ("python_exception", [1])
GUESSED = ("killed", [1])


@pytest.mark.parametrize("word", ["train.log", "./train.log", "{home}/train.log"])
def test_a_file_is_a_log(dsup, log, home, word):
    """Whatever wrote it."""
    assert verdicts(dsup("diagnose", "--json", word.format(home=home))) == [RAISED]


def test_a_directory_without_runs_is_one_of_logs(dsup, home):
    """As torchrun --log-dir leaves them."""
    place = home / "logs" / "none_abc" / "attempt_0" / "1"
    place.mkdir(parents=True)
    (place / "stderr.log").write_text("ValueError: batch 812 has no labels\n")

    assert verdicts(dsup("diagnose", "--json", "logs"))[0][0] == "python_exception"


def test_several_logs_are_read_together(dsup, home):
    """Two nodes' logs are one story."""
    (home / "n0.log").write_text(ERROR)
    (home / "n1.log").write_text("[rank2]: RuntimeError: Connection closed by peer\n")
    said = json.loads(dsup("diagnose", "--json", "n0.log", "n1.log").out)

    assert [one["name"] for one in said["sources"]] == ["n0.log and 1 more"]


def test_a_file_goes_before_a_part_of_a_runs_name(dsup, home, failed_run):
    """And that it does is said."""
    run = failed_run()
    (home / "train").write_text(ERROR)
    said = json.loads(dsup("diagnose", "--json", "train").out)

    assert said["sources"][0]["kind"] == "logs"
    assert said["remarks"][-1] == f"train is read as a file, not as run {run.name}"


def test_the_runs_of_two_nodes_are_one_answer(dsup, failed_run):
    """Each has its verdicts, in the order of the words."""
    one, two = failed_run(), failed_run(OTHER, known={"host": "gpu-b02"})
    said = json.loads(dsup("diagnose", "--json", str(two), str(one)).out)

    assert [one["node"] for one in said["sources"]] == ["gpu-b02", "gpu-a17"]
    assert [one["source"] for one in said["verdicts"]] == [0, 1]
    assert dsup("diagnose", str(two), str(one)).out.count(" failed ━") == 2


def test_of_several_runs_in_a_directory_the_newest_is_shown_and_that_is_said(
    dsup, failed_run
):
    """Beside them may lie logs that nobody asked for."""
    failed_run()
    newest = failed_run("20991231T022748Z-train-a0b408_gpu-a17")
    (newest.parent / "slurm-17.out").write_text(ERROR)
    out = dsup("diagnose", str(newest.parent)).out

    assert out.startswith(f"{newest.name}: ")
    assert "holds 2 runs; the newest is shown" in out
    assert "holds a log beside its runs, not read" in out


@pytest.mark.parametrize("part", ["attempt_0", "events.jsonl"])
def test_a_part_of_a_run_stands_for_it(dsup, failed_run, part):
    """Its attempt's directory, or its journal."""
    run = failed_run()

    assert dsup("diagnose", str(run / part)).out.startswith(f"{run.name}: ")


def test_a_verdict_alone_is_enough(dsup, home, failed_run):
    """Somebody sent nothing else."""
    from dsup.core.verdict import Verdict
    from dsup.report.verdict_file import encode

    kept = Verdict(2, "killed", (1,), "proven", 3.0, "Rank 1 was killed.", "killed")
    raw = encode(kept, node="gpu-a17", offset_s=1e9, ended=None)
    (home / "verdict.json").write_bytes(raw)
    said = json.loads(dsup("diagnose", "--json", "verdict.json").out)

    assert verdicts(dsup("diagnose", "--json", "verdict.json")) == [("killed", [1])]
    assert said["sources"][0]["kind"] == "verdict"
    assert "attempt 2 failed" in dsup("diagnose", "verdict.json").out


def test_a_symlinked_run_directory_is_followed_at_the_top_alone(dsup, home, failed_run):
    """What a link inside leads to was not written by dsup."""
    run = failed_run()
    elsewhere = home / "elsewhere"
    (run / "attempt_0").rename(elsewhere)
    (elsewhere / "verdict.json").write_text("not even looked at")
    (run / "attempt_0").symlink_to(elsewhere)
    (home / "link").symlink_to(run)
    said = dsup("diagnose", "--json", "link")

    assert verdicts(said) == [GUESSED]
    assert json.loads(said.out)["remarks"] == []


def spoiled(run):
    """Make a run's journal one of a later version."""
    (run / "events.jsonl").write_text('{"journal": 9}\n')
    return run


def test_without_a_journal_the_verdicts_speak(dsup, failed_run):
    """They are kept by an agent that a later dsup may have been."""
    from dsup.core.verdict import Verdict
    from dsup.report.verdict_file import encode

    kept = Verdict(0, "killed", (1,), "proven", 3.0, "Rank 1 was killed.", "killed")
    raw = encode(kept, node="gpu-a17", offset_s=1e9, ended=(137, "rank"))
    run = spoiled(failed_run(attempt_0__verdict_json=raw))
    said = json.loads(dsup("diagnose", "--json", str(run)).out)

    assert [v["cause"] for v in said["verdicts"]] == ["killed"]
    assert "its version is 9, not 1" in said["remarks"][0]
    assert "kept verdicts are shown" in said["remarks"][0]


def test_without_journal_and_verdicts_the_ranks_logs_speak(dsup, failed_run):
    """As logs of any launcher, but that it was dsup is known."""
    run = spoiled(failed_run(attempt_0__1__stderr_log=b"ValueError: no labels\n"))
    said = json.loads(dsup("diagnose", "--json", str(run)).out)

    assert [v["cause"] for v in said["verdicts"]] == ["python_exception"]
    assert "the ranks' logs were read" in said["remarks"][0]


def test_standard_input_is_a_log(home):
    """For kubectl logs and its like."""
    argv = [sys.executable, "-m", "dsup", "diagnose", "-", "--json"]
    done = subprocess.run(argv, input=ERROR.encode(), capture_output=True, check=True)

    assert json.loads(done.stdout)["sources"][0]["name"] == "standard input"


@pytest.mark.slow
def test_a_fifo_is_waited_for(home):
    """Its writer may come late; the answer is about what he wrote."""
    os.mkfifo(home / "pipe")
    argv = [sys.executable, "-m", "dsup", "diagnose", "pipe", "--json"]
    asked = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=home)
    with open(home / "pipe", "w") as pipe:
        pipe.write(ERROR)
    out, _ = asked.communicate(timeout=600)

    assert json.loads(out)["verdicts"][0]["first_ranks"] == [1]


@pytest.mark.slow
def test_on_a_terminal_it_is_said_what_is_waited_for(home):
    """A FIFO may never have a writer; Ctrl-C ends the waiting."""
    os.mkfifo(home / "pipe")
    ours, theirs = os.openpty()
    argv = [sys.executable, "-m", "dsup", "diagnose", "pipe"]
    asked = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs, cwd=home)
    os.close(theirs)
    said = os.read(ours, 1000)
    asked.send_signal(signal.SIGINT)
    code = asked.wait(timeout=600)
    os.close(ours)

    assert b"waiting for whoever writes to 'pipe'" in said
    assert code in {130, -signal.SIGINT}


@pytest.mark.parametrize(
    ("word", "code", "reason"),
    [
        pytest.param("/dev/zero", 2, "because it is a device", id="endless"),
        pytest.param("/dev/kmsg", 2, "dsup kernel-log --live", id="kernel log"),
        pytest.param("/proc/kmsg", 2, "dsup kernel-log --live", id="old kernel log"),
        pytest.param("gone", 1, "because it is a link to nothing", id="dead link"),
        pytest.param("hollow", 1, "because it is empty", id="empty directory"),
        pytest.param("report.html", 1, "open it in a browser", id="a page"),
        pytest.param("socket", 2, "because it is a socket", id="a socket"),
        pytest.param("verdict.json", 1, "no verdict of dsup's", id="no verdict"),
        pytest.param("empty.log", 1, "empty", id="an empty file"),
        pytest.param("no/such.log", 2, "no such file or directory", id="nothing"),
    ],
)
def test_what_cannot_be_diagnosed_is_said_so(dsup, home, word, code, reason):
    """One line, with a way out where there is one."""
    import socket

    (home / "gone").symlink_to("nowhere")
    (home / "hollow").mkdir()
    for name, text in (("report.html", "x"), ("verdict.json", "{}"), ("empty.log", "")):
        (home / name).write_text(text)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        said = dsup("diagnose", word)

    assert (said.code, said.out) == (code, "")
    assert reason in said.err
    assert said.err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", ["secret.log", "secret"])
def test_what_may_not_be_read_is_said_so(dsup, home, name):
    """A file or a directory of somebody else's."""
    (home / "secret").mkdir(mode=0)
    (home / "secret.log").touch(mode=0)
    said = dsup("diagnose", name)

    assert (said.code, said.out) == (1, "")
    assert "permission denied" in said.err


def test_a_file_that_is_gone_before_it_is_read_is_said_so(home):
    """One line, as for any other that cannot be read."""
    from dsup.cli.foreign import of_logs
    from dsup.core.errors import DsupError

    with pytest.raises(DsupError, match=r"gone\.log"):
        of_logs([str(home / "gone.log")])


def test_a_name_that_is_no_text_moves_no_cursor(dsup, home):
    """Bytes of a file's name are shown as what they are."""
    name = os.fsdecode(b"bad\xff\x1b[2J.log")
    (home / name).write_text(ERROR)
    said = dsup("diagnose", name)

    assert said.code == 0
    assert [line for line in said.out.splitlines() if not line.isprintable()] == []
    assert dsup("diagnose", "--json", name).code == 0


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\x1b[2J\x1b]0;owned\x07" + ERROR, id="escapes"),
        pytest.param("━━ dsup ━ attempt 0 failed ━━\n" + ERROR, id="a panel"),
        pytest.param("\u202e" + ERROR, id="written backwards"),
    ],
)
def test_a_log_writes_nothing_but_its_own_lines(dsup, log, text):
    """A rule in column 1 is dsup's alone; no escape reaches the terminal."""
    log.write_text(text)
    said = dsup("diagnose", "train.log")

    assert said.code == 0
    assert [line for line in said.out.splitlines() if not line.isprintable()] == []
    assert sum(line.startswith("━━") for line in said.out.splitlines()) == 2


@pytest.mark.slow
def test_a_sparse_file_of_gigabytes_is_refused_at_once(dsup, home):
    """Its bytes are no text; nobody reads five gigabytes of them."""
    with open(home / "sparse.log", "wb") as file:
        file.truncate(5 << 30)
    said = dsup("diagnose", "sparse.log")

    assert (said.code, said.out) == (1, "")
    assert "no text" in said.err


def test_a_page_and_json_cannot_share_standard_output(dsup, log):
    """One of them has to name a file."""
    assert dsup("diagnose", "--json", "--html", "-", "train.log").code == 2


def test_several_runs_are_no_page(dsup, failed_run):
    """A page is about one run."""
    names = [str(failed_run()), str(failed_run(OTHER))]
    said = dsup("diagnose", "--html", "x.html", *names)

    assert said.code == 2
    assert "of 2 runs" in said.err


@pytest.mark.slow
def test_a_page_is_written_whole_and_for_its_owner_alone(dsup, home, failed_run):
    """In the place of what was there, and where that was a link, of the link."""
    failed_run(attempt_0__1__stderr_log=b"HF_TOKEN=very-secret\nValueError: x\n")
    (home / "aim").write_text("left alone")
    (home / "report.html").symlink_to("aim")
    said = dsup("diagnose", "--html", "report.html")
    text = (home / "report.html").read_text()

    assert said.out.splitlines()[-1] == "the report is in report.html"
    assert (home / "aim").read_text() == "left alone"
    assert (home / "report.html").stat().st_mode & 0o777 == 0o600
    assert "very-secret" not in text
    assert "HF_TOKEN=***" in text
    assert [p.name for p in home.iterdir() if ".tmp-" in p.name] == []
    assert dsup("diagnose", "--html", "-").out.startswith("<!")


@pytest.mark.slow
@pytest.mark.parametrize(("option", "name"), [("--html", "d"), ("--bundle", "d.tgz")])
def test_a_directory_is_never_overwritten(dsup, home, failed_run, option, name):
    """Nor anything else that is no file."""
    failed_run()
    (home / name).mkdir()
    said = dsup("diagnose", option, name)

    assert said.code == 2
    assert "because it is a directory" in said.err


def test_a_tar_of_logs_is_read_too(dsup, home, log):
    """A colleague packed it without dsup."""
    with tarfile.open(home / "logs.tgz", "w:gz") as tar:
        tar.add("train.log")

    assert verdicts(dsup("diagnose", "--json", "logs.tgz")) == [RAISED]
