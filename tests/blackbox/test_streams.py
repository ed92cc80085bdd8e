"""What ranks print arrives, whatever becomes of the disk, the console and the pipes."""

import os
import re
import subprocess

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes mounts")


@pytest.fixture
def full_disk(run, mount):
    """Give a directory on a file system of 2 MiB."""
    where = run.base / "small"
    where.mkdir()
    mount("tmpfs", where, "size=2m")
    return where


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("left_kib", [1600, 0], ids=["fills up", "full at the start"])
def test_disk_full_while_logging(run, full_disk, left_kib):
    """No print of a rank fails; the console has it all; one line says what is lost."""
    (full_disk / "filler").write_bytes(bytes((2048 - left_kib) << 10))
    run.start(f"--nproc 2 --log-dir {full_disk}", "*:lines=20000,emit=done", logs=False)

    code = run.ended()
    if left_kib == 0:
        assert code == 2, run.console()[-2000:]
        assert len(run.said()) == 1
        return
    assert code == 0, run.console()[-2000:]
    assert len(run.events("done")) == 2
    assert run.console().count("of the output, whole\n") == 40000
    told = [line for line in run.said() if re.search("(?i)no space|full", line)]
    assert len(told) == 1, run.said()


@pytest.mark.parametrize(
    "where",
    ["/proc/dsup", "/dev/null/runs", "/etc/passwd"],
    ids=["read-only", "below a file", "a file"],
)
def test_a_log_directory_that_cannot_be_written(run, where):
    """What was asked for and can not be had is a wrong call: 2, and one clear line."""
    run.start(f"--nproc 2 --log-dir {where}", "*:emit=started", logs=False)

    assert run.ended() == 2, run.console()
    assert not run.events("started")
    assert where in run.console()
    assert len(run.console().splitlines()) == 1


@pytest.mark.root
@needs_root
def test_a_read_only_file_system(run, full_disk):
    """A run directory on a read-only file system is refused before any rank runs."""
    subprocess.run(["mount", "-o", "remount,ro", full_disk], check=True)
    run.start(f"--nproc 2 --log-dir {full_disk}/x", "*:emit=started", logs=False)

    assert run.ended() == 2, run.console()
    assert not run.events("started")
    assert "ead-only" in run.console()


def test_an_unreadable_script(run):
    """A script that can't be opened: python's own words and code, the rank named."""
    script = run.files / "train.py"
    script.mkdir()
    run.start("--nproc 2", script=script)

    assert run.ended() in (1, 2), run.console()
    assert "train.py" in run.console()
    assert not re.search("(?s)Traceback.*/dsup/", run.console())


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_closed_at_the_start(run, stream):
    """A closed stream is as good as /dev/null: no rank gets a stray descriptor."""
    run.start(
        "--nproc 2",
        "*:say=to-out,warn=to-err,emit=done",
        wrap=["sh", "-c", f'exec "$@" {stream}', "sh"],
    )

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 2
    for rank in "01":
        logs = run.run_dir() / "attempt_0" / rank
        assert (logs / "stdout.log").read_text() == "to-out\n"
        assert (logs / "stderr.log").read_text() == "to-err\n"


@pytest.mark.parametrize("target", ["> {0}", ">> {0}", "> {0} 2>&1"])
def test_output_into_a_file(run, target):
    """Redirected into a file, all lines are there, and what was there stays."""
    path = run.files / "out"
    path.write_text("from before\n")
    first = "" if ">>" in target else "echo from before; "
    text = f'({first}exec "$@") {target.format(path)}'
    run.start("--nproc 2", "*:lines=300", wrap=["sh", "-c", text, "sh"])

    assert run.ended() == 0, run.console()
    lines = path.read_text().splitlines()
    assert lines[0] == "from before"
    assert len([line for line in lines if line.endswith("whole")]) == 600


def test_a_reader_that_went_away(run):
    """`dsup launch | head -1`: the console is gone, the run is not."""
    reader, writer = os.pipe()
    run.start("--nproc 2", "*:lines=2000,emit=done", stdout=writer)
    os.close(writer)
    os.close(reader)

    assert run.ended() == 0, run.console()
    assert len(run.events("done")) == 2


def test_a_console_that_nobody_reads(run):
    """A stopped terminal costs lines of the console, never time, never a log line."""
    reader, writer = os.pipe()
    run.start("--nproc 2", "*:lines=5000,emit=done", stdout=writer)
    os.close(writer)
    try:
        assert run.ended() == 0, run.console()
    finally:
        os.close(reader)
    log = (run.run_dir() / "attempt_0" / "1" / "stdout.log").read_text()
    assert log.count("whole\n") == 5000
