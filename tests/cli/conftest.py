"""The command line in this process, with an environment of its own."""

import os
from typing import NamedTuple

import pytest

from dsup.cli.build import Call, build
from dsup.cli.launch import launch, origins
from dsup.cli.main import run
from dsup.cli.terminal import Terminal

OTHERS = (
    "CI",
    "CUDA_VISIBLE",
    "DSUP_",
    "FORCE_COLOR",
    "HIP_VISIBLE",
    "LOGLEVEL",
    "NO_COLOR",
    "OMP_",
    "PET_",
    "PYTHON_EXEC",
    "STATE_DIRECTORY",
    "TORCH_ELASTIC",
    "TORCHELASTIC",
)


class Said(NamedTuple):
    """What a call came to."""

    code: int
    out: str
    err: str

    def options(self):
        """Return (value, origin) of each option that a dry run lists."""
        section = self.out.partition("options\n")[2].partition("\n\n")[0]
        rows = (line.split(maxsplit=2) for line in section.splitlines())
        return {name: (value, origin) for name, value, origin in rows}

    def command(self):
        """Return the command of every rank that a dry run shows."""
        return self.out.partition("command of every rank\n  ")[2].splitlines()[0]

    def variables(self):
        """Return (value, origin) of each variable that a dry run lists."""
        section = self.out.partition("environment that dsup sets\n")[2]
        lines = (line.strip().rpartition("  (") for line in section.splitlines())
        named = ((*text.split("=", 1), origin[:-1]) for text, _, origin in lines)
        return {name: (value, origin) for name, value, origin in named}


@pytest.fixture
def home(monkeypatch, tmp_path):
    """Give the home of a user who set nothing, with a script in it to run."""
    for name in [name for name in os.environ if name.startswith(OTHERS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    return tmp_path


@pytest.fixture
def dsup(home, capsys):
    """Give ``dsup(*words)``: a call without a guard, so that nothing is started."""

    def call(*words):
        capsys.readouterr()
        code = run([*words], None)
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def dry(dsup):
    """Give ``dry(*words)``: a dry run of launch."""

    def call(*words):
        said = dsup("launch", "--dry-run", *words)
        assert said.code == 0, said.err
        return said

    return call


@pytest.fixture
def job(home):
    """Give ``job(*words, talks, shows)``: the job of a call, nothing of it made."""

    def make(*words, talks=False, shows=False):
        with launch.make_context("launch", [*words, "train.py"]) as context:
            terminal = Terminal(talks=talks, shows=shows)
            call = Call(context.params, origins(context), os.environ, terminal)
            return build(call, dry=True)

    return make
