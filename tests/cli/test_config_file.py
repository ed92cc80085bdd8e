"""--config: options from a file, below the command line and the variables."""

import subprocess
import sys

import pytest


@pytest.fixture
def config(home):
    """Give ``config(text)``, which writes job.toml."""
    return (home / "job.toml").write_text


@pytest.fixture
def call_of_two(dry, config, monkeypatch):
    """Give a dry run where job.toml, named by a variable, asks for two ranks."""

    def call(variables, words):
        config("nproc = 2\n")
        for pair in ["DSUP_CONFIG=job.toml", *variables.split()]:
            monkeypatch.setenv(*pair.split("="))
        return dry(*words.split(), "train.py")

    return call


def test_keys_are_names_of_options(dry, config):
    """Numbers, truth values, texts and lists are what the command line would say."""
    config(
        "nproc_per_node = 2\nstandalone = true\nbackoff = [1, 2.5]\n"
        'tee = "0:1"\nmax-restarts = 4\n'
    )

    said = dry("--config", "job.toml", "train.py")
    options = said.options()

    assert options["nproc"] == ("2", "job.toml")
    assert options["standalone"] == ("True", "job.toml")
    assert options["tee"] == ("0:1", "job.toml")
    assert options["max-restarts"] == ("4", "job.toml")
    assert "  1 2.5 " in said.out


@pytest.mark.parametrize(
    ("variables", "words", "expected"),
    [
        ("", "", ("2", "job.toml")),
        ("PET_NPROC_PER_NODE=3", "", ("3", "PET_NPROC_PER_NODE")),
        ("PET_NPROC_PER_NODE=3 DSUP_NPROC=4", "", ("4", "DSUP_NPROC")),
        ("DSUP_NPROC=4", "--nproc 5", ("5", "command line")),
    ],
    ids=["file", "PET beats file", "DSUP beats PET", "the command line beats all"],
)
def test_a_file_beats_the_defaults_alone(call_of_two, variables, words, expected):
    """Flag, then DSUP_*, then PET_*, then the file, then the default."""
    options = call_of_two(variables, words).options()

    assert options["nproc"] == expected
    assert options["config"] == ("job.toml", "DSUP_CONFIG")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nprocs = 2", "has the unknown key 'nprocs': did you mean 'nproc'?"),
        ("zzz = 2", "has the unknown key 'zzz': keys are names of options"),
        ("dry-run = true", "has the unknown key 'dry-run'"),
        ('config = "other"', "has the unknown key 'config'"),
        ("[launch]\nnproc = 2", "has the unknown key 'launch'"),
        ("nproc = {a = 1}", "has a dict for 'nproc', not a value"),
        ("nproc = 0", "'0' is not a number from 1 to 4096"),
        ("standalone = 3", "'3' is not a valid boolean"),
        ("nproc = ", "it is no TOML"),
        pytest.param("a = " + "[" * 3000, "it is no TOML", id="too deep"),
        pytest.param("#" * (1 << 20 | 1), "it has more than 1048576 bytes", id="big"),
        ('log-dir = "a\\u0000b"', "has a NUL for 'log-dir', not a value"),
        ("nproc = '\ud800'", "it is no TOML"),
    ],
)
def test_a_file_is_checked_as_the_command_line_is(dsup, home, text, why):
    """One line, exit code 2, and the key or the value."""
    (home / "job.toml").write_bytes(text.encode(errors="surrogatepass"))

    said = dsup("launch", "--dry-run", "--config", "job.toml", "train.py")

    assert (said.code, said.out) == (2, "")
    assert why in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "why"), [("nosuch.toml", "no such file"), (".", "is a directory")]
)
def test_a_file_that_cannot_be_read_is_refused(dsup, path, why):
    """The file is named."""
    said = dsup("launch", "--config", path, "train.py")

    assert said.code == 2
    assert f"the file {path} cannot be read: {why}" in said.err


def test_a_file_may_come_through_a_pipe_that_is_slow(home):
    """It is read to its end, however late that comes."""
    said = subprocess.run(
        [
            *(
                "bash",
                "-c",
                '"$@" --config <(sleep .3; echo nproc=2; sleep .3; echo v=1)',
            ),
            *("bash", sys.executable, "-m", "dsup", "launch"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 2
    assert "has the unknown key 'v'" in said.stderr
