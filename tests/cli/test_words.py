"""Abbreviations: what argparse's users type."""

import pytest

from dsup.cli.words import AmbiguousError, Spelling, spelled_out

KNOWN = {
    "-m": Spelling("module", False),
    "--module": Spelling("module", False),
    "-r": Spelling("redirects", True),
    "--redirects": Spelling("redirects", True),
    "--nproc": Spelling("nproc", True),
    "--nproc-per-node": Spelling("nproc", True),
    "--nnodes": Spelling("nnodes", True),
    "--master-addr": Spelling("master_addr", True),
    "--master-port": Spelling("master_port", True),
}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--redirect=3 x.py", "--redirects=3 x.py"),
        ("--red 3 x.py", "--redirects 3 x.py"),
        ("--nproc 2 x.py", "--nproc 2 x.py"),
        ("--nproc_per 2 x.py", "--nproc-per-node 2 x.py"),
        ("--np 2 x.py", "--nproc 2 x.py"),
        ("--master_p 1 x.py", "--master-port 1 x.py"),
        ("--mod x", "--module x"),
        ("-r=3 x.py", "-r3 x.py"),
        ("-r 0:1 x.py", "-r 0:1 x.py"),
        ("-mr=3 x.py", "-mr=3 x.py"),
        ("--unknown --red 3", "--unknown --redirects 3"),
    ],
)
def test_a_unique_beginning_is_the_option(line, expected):
    """Whatever follows its value is looked at in turn."""
    assert spelled_out(line.split(), KNOWN) == expected.split()


@pytest.mark.parametrize(
    "line",
    [
        "x.py --red 3",
        "-m x --red 3",
        "--nproc --red x.py",
        "-r --red x.py",
        "-mr --red x.py",
        "-- --red 3",
        "- --red 3",
        "--redirects",
        "",
    ],
)
def test_values_and_the_scripts_own_words_are_left_alone(line):
    """Only dsup's options are spelled out."""
    assert spelled_out(line.split(), KNOWN) == line.split()


@pytest.mark.parametrize(
    ("word", "candidates"),
    [
        ("--master", "--master-addr, --master-port"),
        ("--n", "--nnodes, --nproc, --nproc-per-node"),
        ("--m=1", "--master-addr, --master-port, --module"),
    ],
)
def test_what_may_be_several_options_is_refused(word, candidates):
    """The refusal names them."""
    with pytest.raises(AmbiguousError, match=candidates):
        spelled_out([word, "x.py"], KNOWN)
