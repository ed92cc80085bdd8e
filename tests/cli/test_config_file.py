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
        'tee = "0:1"\nmax-restarts = 4\nsignals-to-handle = ["SIGTERM"]\n'
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
        ("nprocs = 2", "job.toml:1: unknown key 'nprocs': did you mean 'nproc'?"),
        ("\n# x\nzzz = 2", "job.toml:3: unknown key 'zzz': keys are names of options"),
        ("dry-run = true", "job.toml:1: unknown key 'dry-run'"),
        ('config = "other"', "job.toml:1: unknown key 'config'"),
        ("settle = 1\n[launch]\nnproc = 2", "job.toml:2: unknown key 'launch'"),
        ('settle = 1\n"nproc" = {a = 1}', "job.toml:2: a dict for 'nproc' is not"),
        ("settle = 1\n\nnproc = 0", "job.toml:3: nproc: '0' is not a number from 1"),
        ("nproc = true", "job.toml:1: nproc is N|cpu|gpu|auto, not true"),
        ("standalone = 3", "job.toml:1: standalone is true or false, not 3"),
        ('restart_on = "usr"', "job.toml:1: restart_on: 'usr' is not one of"),
        ('script = ["a.py"]', "job.toml:1: script is one word, not a list"),
        ("settle = [1, 2]", "job.toml:1: settle is one word, not a list"),
        ('args = [["--lr"]]', "job.toml:1: a list for 'args' is not a value"),
        (
            "nproc = 2\n# x\nnproc-per-node = 3",
            "job.toml:3: nproc-per-node is nproc of line 1 again (keep one of them)",
        ),
        ('args = "--lr 1"', "job.toml:1: args is a list of words"),
        pytest.param("a = " + "[" * 3000, "it is no TOML", id="too deep"),
        pytest.param("#" * (1 << 20 | 1), "it has more than 1048576 bytes", id="big"),
        ('log-dir = "a\\u0000b"', "a NUL for 'log-dir' is not a value"),
        ("nproc = '\ud800'", "job.toml:1:10: byte 0xed is not UTF-8"),
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
    ("text", "said"),
    [
        ("nproc =", "1:8: nproc: it has no value (give one, or leave the line out)"),
        ("\nstandalone = True", "2:14: standalone: 'True' is no value of TOML's"),
        ("nproc = None", "1:9: nproc: TOML has no word for nothing"),
        ("tee = abc # d", 'tee: a text stands in quotes (write tee = "abc")'),
        ("settle = 5s", 'settle: a text stands in quotes (write settle = "5s")'),
        ("log-dir = “x”", "log-dir: those are no quotes for TOML"),
        ("nproc = 02", "nproc: a number does not begin with 0 (write 2)"),
        ("nproc = 2,", "nproc: a line does not end with ',' (leave it out)"),
        ("nproc = 2 3", "nproc: '3' stands behind the value (leave it out)"),
        ("nproc = 2 v = 1", "nproc: a second key stands there (one to a line)"),
        ("nproc = 2\n\nnproc = 3", "3:10: nproc: line 1 sets it, too (keep one"),
        ("nproc: 2", "1:6: TOML has no ':' (write nproc = …)"),
        ("export nproc=2", "a line does not begin with 'export'"),
        ("log dir = 'x'", "a key is one word of letters, digits"),
        ("nproc 2", "a '=' is missing (write nproc = 2)"),
        ("= 2", "1:1: a key is missing before it"),
        ("backoff = [1,\n 2\nnproc = 2", "1:11: backoff: the list has no closing ']'"),
        ("backoff = [1, 2", "1:11: backoff: the list has no closing ']'"),
        ("args = ['a' 'b']", "args: a ',' is missing before \"'b']\""),
        ("backoff = [1}", "backoff: the list ends with '}' (end it with a ']')"),
        ("a = {b = 1", "a: no option takes a table in braces"),
        ("[launch\nnproc = 2", "1:8: the section has no closing ']'"),
        ('log-dir = "a\nnproc = 2', "1:13: log-dir: the text has no closing quote"),
        ("log-dir = 'a\nnproc = 2", "1:11: log-dir: the text has no closing quote"),
        ('log-dir = "C:\\Users"', r"use single ones: log-dir = 'C:\Users')"),
        ('log-dir = "C:\\data"', "log-dir: a backslash between double quotes begins"),
        ('log-dir = "\x1b[2J"', "a control character stands there"),
    ],
)
def test_a_slip_in_toml_is_told_in_words(dsup, home, text, said):
    """Line, column, key, what is wrong, how it is written, and the line itself."""
    (home / "job.toml").write_text(text)

    found = dsup("launch", "--dry-run", "--config", "job.toml", "train.py")

    assert (found.code, found.out) == (2, "")
    assert "job.toml:" in found.err
    assert said in found.err
    assert ", in: " in found.err
    assert found.err.rstrip("\n").isprintable()


def test_of_a_long_line_the_part_that_matters_is_shown(dsup, home):
    """And no secret of its."""
    text = "args = ['--api-key=sk-verysecretword', " + "'x', " * 100 + "True]"
    (home / "job.toml").write_text(text)

    said = dsup("launch", "--dry-run", "--config", "job.toml", "train.py")

    assert "'x', True] (see dsup launch --help)" in said.err
    assert len(said.err) < 250
    assert "verysecret" not in said.err


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
    assert "unknown key 'v'" in said.stderr


def test_a_byte_order_mark_is_no_part_of_the_text(dry, home):
    """Some editors begin every file with one."""
    (home / "job.toml").write_bytes(b"\xef\xbb\xbfnproc = 2\n")

    options = dry("--config", "job.toml", "train.py").options()
    assert options["nproc"] == ("2", "job.toml")


def test_a_file_may_say_what_runs(dry, config):
    """Script and arguments, too, so that one file is the whole job."""
    config('script = "train.py"\nargs = ["--lr", "0.1", "--name", "a b"]\n')

    said = dry("--config", "job.toml")

    assert "train.py --lr 0.1 --name 'a b'" in said.out


def test_a_script_that_is_given_takes_no_arguments_out_of_a_file(dry, config):
    """They were meant for another script."""
    config('script = "other.py"\nargs = ["--lr", "0.1"]\n')

    said = dry("--config", "job.toml", "train.py", "-x")
    bare = dry("--config", "job.toml", "train.py")

    assert "train.py -x" in said.out
    assert "--lr" not in said.out + bare.out


def test_a_value_is_checked_even_if_something_above_it_wins(dsup, config):
    """A file that is wrong is found before the night in which it counts."""
    config("nproc = 0\n")

    said = dsup(
        "launch", "--dry-run", "--config", "job.toml", "--nproc", "2", "train.py"
    )

    assert said.code == 2
    assert "job.toml:1: nproc: '0' is not a number" in said.err
