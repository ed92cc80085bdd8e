"""The command of every rank."""

from types import SimpleNamespace

import pytest

from dsup.core.job import command

ARGV = ("python", "train.py")


def job(resume_arg):
    """Return as much of a job as a command is made of."""
    return SimpleNamespace(argv=ARGV, resume_arg=resume_arg)


@pytest.mark.parametrize(
    ("resume_arg", "resume_from", "expected"),
    [
        pytest.param("", "/ckpt/7", ARGV, id="not asked for"),
        pytest.param("--resume={path}", "", ARGV, id="no checkpoint yet"),
        pytest.param(
            "--resume={path}", "/ckpt/7", (*ARGV, "--resume=/ckpt/7"), id="both"
        ),
        pytest.param("{path}", "/a b", (*ARGV, "/a b"), id="one argument, spaces kept"),
        pytest.param(
            "{path}:{path}", "{path}", (*ARGV, "{path}:{path}"), id="filled in once"
        ),
        pytest.param("{path}{0}", "/c", (*ARGV, "/c{0}"), id="no other braces"),
    ],
)
def test_the_checkpoint_is_handed_over_where_asked(resume_arg, resume_from, expected):
    """--resume-arg adds one argument, when there is a checkpoint."""
    assert command(job(resume_arg), resume_from) == expected
