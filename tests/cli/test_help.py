"""What dsup says of itself: help, version, completion, man pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsup.cli.launch import launch
from dsup.cli.man import pages

MAN = Path(__file__).parents[2] / "docs" / "man"


def test_the_version_names_what_a_report_needs(dsup):
    """dsup, Python and the kernel."""
    said = dsup("--version")

    python = ".".join(map(str, sys.version_info[:3]))
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(
        rf"dsup \d+\.\d+\.\d+ \(Python {python}, Linux {os.uname().release}\)\n",
        said.out,
    )


def test_the_short_help_is_short(dsup):
    """What there is, on one screen."""
    assert len(dsup("--help").out.splitlines()) <= 24


def test_the_help_of_launch_is_in_sections(dsup):
    """What people look for first comes first; every option is in one section."""
    out = dsup("launch", "--help").out
    titles = re.findall(r"(?m)^(\S.*):$", out)

    assert titles[:4] == [
        "What to run",
        "How many ranks, and where",
        "Restarts",
        "Hangs",
    ]
    assert titles[-3:] == ["For torchrun's sake", "Help", "Examples"]
    listed = re.findall(r"(?m)^  (-.*?)(?:  |$)", out)
    assert len(listed) == len(launch.get_params(launch.make_context("x", ["x"]))) - 2


@pytest.mark.parametrize(
    "said",
    ["[default: 25]", "[default: 1G]", "dsup launch --nproc 8 train.py --lr 0.1"],
)
def test_the_help_has_defaults_and_examples(dsup, said):
    """Nobody has to look elsewhere for them."""
    assert said in dsup("launch", "--help").out


def test_no_line_of_the_help_is_too_wide(dsup):
    """It fits a terminal of 80 columns."""
    out = dsup("launch", "--help").out

    assert [line for line in out.splitlines() if len(line) > 82] == []


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["launch", "--help"], ["--version"]])
def test_help_is_at_hand_at_once(cost, words):
    """A tenth of a second's work, wherever that takes a tenth of a second."""
    calls, modules = cost(*words)

    assert calls < 200_000
    assert modules < 230


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_code_for_the_shell(dsup, shell):
    """Both ways to ask for it give the same."""
    said = dsup("completion", shell)

    assert said.code == 0
    assert "_DSUP_COMPLETE" in said.out
    assert dsup("launch", "--print-completion", shell).out == said.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dsup la", ["plain,launch"]),
        ("dsup launch --max", ["plain,--max-restarts"]),
        ("dsup launch --store ", ["plain,rank0", "plain,agent"]),
        ("dsup launch tr", ["file,tr"]),
    ],
)
def test_words_are_completed(line, expected):
    """Commands, options, their values and the script."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "dsup"],
        env=os.environ | words | {"_DSUP_COMPLETE": "bash_complete"},
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.stdout.splitlines() == expected, done.stderr


def test_the_man_pages_are_those_of_the_commands():
    """Made anew with: python -m dsup.cli.man docs/man."""
    written = {path.name: path.read_text() for path in MAN.iterdir()}

    assert written == pages()


def test_a_man_page_names_every_option_and_variable():
    """The page of launch is complete."""
    page = pages()["dsup-launch.1"].replace("\\-", "-")
    variables = [name for param in launch.params for name in param.envvar or ()]

    assert [name for name in variables if name not in page] == []
    names = [name for p in launch.params for name in p.opts if name.startswith("-")]
    assert [name for name in names if name not in page] == []


def test_no_text_of_a_man_page_is_taken_for_a_request():
    """A line that begins with a dot is one of roff's own."""
    requests = {"TH", "SH", "B", "TP", "PP", "nf", "fi"}
    found = {
        line[1:].split(" ")[0]
        for page in pages().values()
        for line in page.splitlines()
        if line.startswith(".")
    }

    assert found <= requests


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dsup launch --log-dir /t", "dir,/t"),
        ("dsup launch --config job", "file,job"),
        ("dsup launch --checkpoint-glob ckpt/", "file,ckpt/"),
        ("dsup launch --store a", "plain,agent"),
    ],
)
def test_the_shell_completes_values(words, offered):
    """Paths by the shell itself, words by what is allowed."""
    asked = {
        "_DSUP_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    said = subprocess.run(
        [sys.executable, "-m", "dsup"],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.stdout.splitlines() == [offered]


@pytest.mark.parametrize("name", ["explain", "kernel-log", "completion", "diagnose"])
def test_a_page_tells_the_codes_of_its_own_command(name):
    """Those of a launch are a launch's alone."""
    assert "every rank ended with 0" not in pages()[f"dsup-{name}.1"]
