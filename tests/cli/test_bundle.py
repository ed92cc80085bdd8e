"""dsup diagnose --bundle: what goes in, what never does, and what is read back."""

import gzip
import io
import json
import os
import tarfile

import pytest

from dsup.cli.bundle_files import (
    FOREIGN_BYTES,
    LOUD_BYTES,
    QUIET_BYTES,
    WHOLE_BYTES,
    of_logs,
)
from dsup.cli.unbundle import unpacked
from dsup.core.errors import DsupError
from dsup.linux import file_lock

SECRET = "s3cr3t-of-the-user"  # noqa: S105 (what must not be found)
LINE = b"step 12 of rank 0: all is well\n"
WORDS = f"""\
export WANDB_API_KEY={SECRET}
fetching https://me:{SECRET}@mirror.example/data.tar
Authorization: Bearer {SECRET}
config: {{'hf_token': '{SECRET}', 'lr': 0.1}}
-----BEGIN OPENSSH PRIVATE KEY-----
{SECRET.replace("-", "+")}
-----END OPENSSH PRIVATE KEY-----
ValueError: batch 812 has no labels
"""
KNOWN = {
    "argv": ["train.py", "--api-key", SECRET, f"--db-password={SECRET}"],
    "environment": {"MY_TOKEN": SECRET, "HOME": "/root"},
}


def members(path):
    """Return the content of each member of a bundle."""
    with tarfile.open(path) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in files.items()}


@pytest.fixture
def packed(dsup, home, failed_run):
    """Give ``packed(*words, **files)``: a failed run as a bundle, and its members."""

    def pack(*words, **files):
        failed_run(known=KNOWN, **files)
        said = dsup("diagnose", "--bundle", "out.tar.gz", *words)
        assert said.code == 0, said.err
        return said, members(home / "out.tar.gz")

    return pack


@pytest.mark.slow
def test_a_bundle_has_what_a_colleague_needs(packed, home):
    """The run's records, its ranks' words, and the answer in three forms."""
    said, found = packed(
        attempt_0__1__stderr_log=WORDS.encode(),
        attempt_0__1__error_json=b'{"message": "x"}',
        attempt_0__1__stacks_txt=b"Thread 0x1\n",
        attempt_0__samples_jsonl=b'{"at":1.0,"rss_kb":{"0":1}}\n',
        attempt_0__1__core_bin=b"\x00\x01",
    )

    assert set(found) == {
        "run/run.json",
        "run/events.jsonl",
        "run/attempt_0/samples.jsonl",
        "run/attempt_0/1/stderr.log",
        "run/attempt_0/1/error.json",
        "run/attempt_0/1/stacks.txt",
        "diagnosis.json",
        "panel.txt",
        "report.html",
        "dsup-bundle.json",
    }
    assert "1 file left out: attempt_0/1/core.bin (2 bytes)" in said.out
    assert (home / "out.tar.gz").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_no_secret_is_in_a_bundle(packed, home, monkeypatch):
    """Wherever it stood; how many there were is said, and the rest is as it was."""
    monkeypatch.setenv("OTHER_PASSWORD", "hunter2-hunter2")
    said, found = packed(
        attempt_0__1__stderr_log=f"{WORDS}plain hunter2-hunter2\n".encode()
    )
    everything = b"".join(found.values())
    log = found["run/attempt_0/1/stderr.log"].decode()

    assert SECRET.encode() not in everything
    assert SECRET.replace("-", "+").encode() not in everything
    assert b"hunter2" not in everything
    assert log.endswith("ValueError: batch 812 has no labels\nplain ***\n")
    assert json.loads(found["run/run.json"])["environment"]["HOME"] == "/root"
    assert " secrets masked" in said.out


@pytest.mark.slow
def test_a_bundle_tells_the_same_elsewhere(packed, dsup, home, failed_run):
    """Of first rank, cause and outcome; and that its files are in the bundle."""
    words = {"attempt_0__1__stderr_log": b"bye\n"}
    packed(**words)
    run = failed_run("20991130T022749Z-again-a0b409_gpu-a17", **words)
    here = json.loads(dsup("diagnose", "--json", str(run)).out)["verdicts"]
    there = json.loads(dsup("diagnose", "--json", "out.tar.gz").out)
    said = dsup("diagnose", "out.tar.gz")

    assert there["verdicts"] == here
    assert there["sources"][0]["name"] == "20991130T022748Z-train-a0b408_gpu-a17"
    assert "run/attempt_0/1/stderr.log in out.tar.gz" in said.out
    assert "/dsup-" not in said.out


@pytest.mark.slow
def test_a_run_that_was_alive_when_it_was_packed_was_not_killed(dsup, home, failed_run):
    """The lock that shows it is not in the bundle; the manifest says it."""
    run = failed_run()
    journal = run / "events.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:5]))
    with journal.open() as held:
        file_lock.share(held.fileno())
        dsup("diagnose", "--bundle", "out.tar.gz")

    assert "the run goes on" in dsup("diagnose", "out.tar.gz").out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "most"), [(1, LOUD_BYTES), (0, QUIET_BYTES)], ids=["first rank", "another"]
)
def test_of_long_logs_the_end_is_taken(packed, rank, most):
    """More of it where it matters; whole lines, so that no secret is cut in two."""
    raw = LINE * (2 * LOUD_BYTES // len(LINE))
    _, found = packed(**{f"attempt_0__{rank}__stdout_log": raw})
    kept = found[f"run/attempt_0/{rank}/stdout.log"]

    assert most - len(LINE) <= len(kept) <= most
    assert raw.endswith(kept)
    assert kept.startswith(LINE)
    ends = json.loads(found["dsup-bundle.json"])["ends_only"]
    assert ends == [f"run/attempt_0/{rank}/stdout.log"]


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "kept"), [("all", True), ("none", False)])
def test_the_user_says_how_much_of_the_logs_is_taken(packed, asked, kept):
    """All of them, or none."""
    raw = LINE * (LOUD_BYTES // len(LINE) + 9)
    _, found = packed("--bundle-logs", asked, attempt_0__0__stdout_log=raw)

    assert (found.get("run/attempt_0/0/stdout.log") == raw) is kept
    assert ("run/attempt_0/0/stdout.log" in found) is kept


@pytest.mark.slow
def test_a_link_in_a_run_directory_is_not_followed(dsup, home, failed_run):
    """A rank may have made it, to have somebody pack what it cannot read."""
    run = failed_run()
    (home / "shadow").write_text("root:x")
    (run / "attempt_0" / "1" / "stderr.log").symlink_to(home / "shadow")
    dsup("diagnose", "--bundle", "out.tar.gz")

    assert b"root:x" not in b"".join(members(home / "out.tar.gz").values())


@pytest.mark.slow
def test_logs_of_other_launchers_are_packed_and_read_back(dsup, home):
    """The files that were named, with what is below a directory."""
    place = home / "logs" / "none_abc" / "attempt_0" / "1"
    place.mkdir(parents=True)
    (place / "stderr.log").write_text("[rank1]: ValueError: no labels\n")
    assert dsup("diagnose", "logs", "--bundle", "o.tgz").code == 0
    here = json.loads(dsup("diagnose", "--json", "logs").out)["verdicts"]
    there = json.loads(dsup("diagnose", "--json", "o.tgz").out)["verdicts"]

    assert "logs/0/none_abc/attempt_0/1/stderr.log" in members(home / "o.tgz")
    assert [(v["cause"], v["first_ranks"]) for v in there] == [
        (v["cause"], v["first_ranks"]) for v in here
    ]
    assert there[0]["evidence"][0]["file"] == "none_abc/attempt_0/1/stderr.log"


def test_of_a_huge_foreign_log_the_end_is_packed(home):
    """A gigabyte is no attachment, unless it is asked for."""
    (home / "a.log").write_bytes(LINE)
    tail, whole = (of_logs(["a.log"], logs).parts for logs in ("tail", "all"))

    assert [part.most for part in (*tail, *whole)] == [FOREIGN_BYTES, WHOLE_BYTES]


def test_what_is_no_text_is_left_out(home):
    """A folder of logs may hold checkpoints."""
    (home / "logs").mkdir()
    (home / "logs" / "rank0.log").write_bytes(LINE)
    (home / "logs" / "step_5.pt").write_bytes(b"PK\0\0" * 9)
    chosen = of_logs(["logs"], "tail")

    assert [part.below for part in chosen.parts] == ["rank0.log"]
    assert chosen.left_out == ("step_5.pt (36 bytes)",)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(["--bundle", "out.zip"], "does not end in .tar.gz", id="a name"),
        pytest.param(["--bundle", "no/out.tgz"], "cannot write the bundle", id="place"),
        pytest.param(["--bundle-logs", "some"], "bundle-logs", id="how much"),
    ],
)
def test_a_bundle_that_cannot_be_is_refused(dsup, failed_run, words, reason):
    """In one line, and nothing is left behind."""
    failed_run()
    said = dsup("diagnose", *words)

    assert said.code != 0
    assert reason in said.err


def test_what_can_be_read_once_only_is_no_bundle(dsup, home, monkeypatch):
    """Standard input is gone when it has been diagnosed."""
    (home / "a.log").write_text("[rank1]: ValueError: no labels\n")
    with open(home / "a.log") as log:
        before = os.dup(0)
        os.dup2(log.fileno(), 0)
        try:
            said = dsup("diagnose", "-", "--bundle", "out.tar.gz")
        finally:
            os.dup2(before, 0)
            os.close(before)

    assert said.code == 2
    assert "can be read only once" in said.err


def tarred(path, *entries):
    """Write a tar.gz of ``(name, kind, content)``."""
    with tarfile.open(path, "w:gz") as tar:
        for name, kind, content in entries:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


FILE = tarfile.REGTYPE


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param(("../evil", FILE, b"x"), "leads out of it", id="upwards"),
        pytest.param(("run/../../evil", FILE, b"x"), "leads out", id="hidden upwards"),
        pytest.param(("/tmp/evil", FILE, b"x"), "leads out of it", id="absolute"),  # noqa: S108 (that is the point)
        pytest.param(("a/" * 40 + "b", FILE, b"x"), "leads out of it", id="deep"),
        pytest.param(("x" * 4000, FILE, b"x"), "leads out of it", id="long"),
        pytest.param(("l", tarfile.SYMTYPE, b""), "is a link", id="symbolic link"),
        pytest.param(("l", tarfile.LNKTYPE, b""), "is a link", id="hard link"),
        pytest.param(("d", tarfile.CHRTYPE, b""), "no regular file", id="device"),
        pytest.param(("p", tarfile.FIFOTYPE, b""), "no regular file", id="FIFO"),
    ],
)
def test_what_dsup_would_not_pack_is_refused(dsup, home, entry, reason):
    """Nothing of it is believed, and nothing is left behind."""
    tarred(home / "evil.tgz", entry)
    before = set(home.parent.iterdir())
    said = dsup("diagnose", "evil.tgz")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("dsup: cannot read bundle evil.tgz, because ")
    assert reason in said.err
    assert set(home.parent.iterdir()) == before


def bomb(path, most=100 << 20):
    """Write a tar.gz of a file that is all zeros."""
    with gzip.open(path, "wb", 9) as zipped:
        member = tarfile.TarInfo("zeros.log")
        member.size = most
        zipped.write(member.tobuf())
        for _ in range(most >> 20):
            zipped.write(bytes(1 << 20))


def endless_header(path):
    """Write a tar.gz whose first header says that a name of a gigabyte follows."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    path.write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))


def cut(path):
    """Write the first half of a tar.gz."""
    tarred(path, ("a.log", FILE, os.urandom(100_000)))
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(bomb, "MiB come out of it", id="a bomb"),
        pytest.param(endless_header, "far too long", id="an endless header"),
        pytest.param(cut, "no whole tar.gz", id="cut"),
        pytest.param(lambda p: p.write_bytes(b""), "no whole tar.gz", id="empty"),
        pytest.param(lambda p: p.write_bytes(b"hi" * 99), "no gzip file", id="text"),
        pytest.param(lambda p: p.mkdir(), "it is empty", id="a directory"),
    ],
)
def test_what_is_no_bundle_is_said_so(dsup, home, make, reason):
    """Before it fills memory or disk."""
    make(home / "b.tar.gz")
    said = dsup("diagnose", "b.tar.gz")

    assert (said.code, said.out) == (1, "")
    assert reason in said.err


def test_too_many_files_are_refused(home):
    """A bundle has a file or two for each rank."""
    tarred(home / "b.tgz", *((f"{number}.log", FILE, b"x") for number in range(4)))

    with (
        pytest.raises(DsupError, match="more than 3 files"),
        unpacked(str(home / "b.tgz"), members=3),
    ):
        pass


def test_a_manifest_of_garbage_is_no_manifest(dsup, home):
    """The rest is read as logs."""
    tarred(
        home / "b.tgz",
        ("dsup-bundle.json", FILE, b'{"schema": "dsup.bundle/1", "kind": 7}'),
        ("logs/0/a.log", FILE, b"[rank1]: ValueError: no labels\n"),
    )
    (found,) = json.loads(dsup("diagnose", "--json", "b.tgz").out)["verdicts"]

    assert (found["cause"], found["first_ranks"]) == ("python_exception", [1])
