"""The command of every rank."""

from types import SimpleNamespace

import pytest

from dsup.core.job import command

ARGV = ("python", "train.py")


def job(resume_arg="", argv=ARGV, bindings=()):
    """Return as much of a job as a command is made of."""
    return SimpleNamespace(argv=argv, resume_arg=resume_arg, bindings=bindings)


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
    assert command(job(resume_arg), 0, resume_from) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("${local_rank}", "7"),
        ("$local_rank", "7"),
        ("gpu${local_rank}-$local_rank.log", "gpu7-7.log"),
        ("a$$b", "a$$b"),
        ("$$", "$$"),
        ("$${local_rank}", "$${local_rank}"),
        ("$local_ranks", "$local_ranks"),
        ("${rank} $HOME ${", "${rank} $HOME ${"),
    ],
)
def test_the_local_rank_is_filled_in_and_no_other_dollar_is_touched(word, expected):
    """Torchrun's macro works; what torchrun does to $$ does not happen."""
    assert command(job(argv=("python", word)), 7, "") == ("python", expected)


def test_the_program_itself_is_not_filled_in():
    """As with torchrun, only arguments are."""
    assert command(job(argv=("$local_rank", "x")), 7, "") == ("$local_rank", "x")


def test_each_rank_has_its_own_binding():
    """What binds a rank to its processors goes before its command."""
    bound = job(bindings=(("numactl", "-C0"), ("numactl", "-C1")))

    assert command(bound, 1, "") == ("numactl", "-C1", *ARGV)
