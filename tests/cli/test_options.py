"""Where values come from, what the ranks' command is, and that a dry run is dry."""

import os
import sys

import pytest

from dsup.cli.values import rank_count
from dsup.core.errors import SpecError


@pytest.mark.parametrize(
    ("environment", "words", "expected"),
    [
        pytest.param({}, [], ("1", "default"), id="default"),
        pytest.param(
            {"PET_NPROC_PER_NODE": "3"}, [], ("3", "PET_NPROC_PER_NODE"), id="PET"
        ),
        pytest.param(
            {"PET_NPROC_PER_NODE": "3", "DSUP_NPROC": "4"},
            [],
            ("4", "DSUP_NPROC"),
            id="DSUP beats PET",
        ),
        pytest.param(
            {"PET_NPROC_PER_NODE": "3", "DSUP_NPROC": "4"},
            ["--nproc", "5"],
            ("5", "command line"),
            id="the command line beats both",
        ),
        pytest.param(
            {"PET_NPROC_PER_NODE": "3", "DSUP_NPROC": ""},
            [],
            ("3", "PET_NPROC_PER_NODE"),
            id="an empty variable is none",
        ),
    ],
)
def test_a_value_says_where_it_came_from(
    dry, monkeypatch, environment, words, expected
):
    """Command line, then DSUP_*, then PET_*, then the default."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    said = dry(*words, "train.py")

    assert said.options()["nproc"] == expected
    assert said.variables()["WORLD_SIZE"] == (expected[0], "dsup")


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        (["--nproc-per-node", "2"], "nproc", "2"),
        (["--nproc_per_node=2"], "nproc", "2"),
        (["--max_restarts", "3"], "max-restarts", "3"),
        (["--max-restarts=3"], "max-restarts", "3"),
        (["--log_dir", "/dev/null"], "log-dir", "/dev/null"),
        (["--no_python"], "no-python", "True"),
        (["--standalone"], "standalone", "True"),
        (["-m"], "module", "True"),
        (["--module"], "module", "True"),
        (["--comm-timeout", "inherit"], "comm-timeout", "inherit"),
        (["--backoff", "0"], "backoff", "0"),
    ],
)
def test_both_spellings_are_the_same_option(dry, words, option, value):
    """Torchrun's users write dashes or underscores."""
    assert dry(*words, "train.py").options()[option] == (value, "command line")


def test_several_pauses_are_kept_in_order(dry):
    """--backoff takes as many pauses as are wanted."""
    assert "  1 2.5 90 " in dry("--backoff", "1,2.5,90", "train.py").out


@pytest.mark.parametrize(
    ("value", "read"),
    [
        *((word, "True") for word in ("1", "true", "yes", "TRUE")),
        *((word, "False") for word in ("0", "false", "no")),
    ],
)
def test_a_flag_can_come_from_the_environment(dry, monkeypatch, value, read):
    """PET_* flags are 1 or 0 for torchrun; words do as well."""
    monkeypatch.setenv("PET_STANDALONE", value)

    assert dry("train.py").options()["standalone"] == (read, "PET_STANDALONE")


PYTHON = sys.executable


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("train.py", f"{PYTHON} -u train.py", id="script"),
        pytest.param("-m pkg.train", f"{PYTHON} -u -m pkg.train", id="module"),
        pytest.param("--no-python true", "true", id="program"),
        pytest.param(
            "train.py a$$b ${rank}",
            f"{PYTHON} -u train.py 'a$$b' '${{rank}}'",
            id="dollars",
        ),
        pytest.param(
            "train.py --nproc 8 --max_restarts=1 -- -m --help",
            f"{PYTHON} -u train.py --nproc 8 --max_restarts=1 -- -m --help",
            id="everything after the script is the script's",
        ),
    ],
)
def test_the_command_of_every_rank(dry, words, expected):
    """The command is the one that torchrun builds."""
    assert dry(*words.split()).command() == expected


def test_another_interpreter_is_asked_for_as_torchrun_does(dry, monkeypatch):
    """PYTHON_EXEC names the interpreter of the ranks."""
    monkeypatch.setenv("PYTHON_EXEC", "/opt/python")

    assert dry("train.py").command() == "/opt/python -u train.py"


def test_a_script_can_be_run_by_path(dry):
    """--run-path has the rank's interpreter run it, with its own arguments."""
    command = dry("--run-path", "--no-python", "train.py", "-x").command()

    assert command.startswith(f"{PYTHON} -u -c 'import runpy, sys;")
    assert command.endswith(" train.py -x")


def test_ranks_whose_commands_differ_are_listed_each(dry):
    """What is filled in is seen."""
    said = dry("--nproc", "2", "train.py", "--gpu=${local_rank}")

    assert f"  {PYTHON} -u train.py --gpu=0\n  {PYTHON} -u train.py --gpu=1\n" in (
        said.out
    )


def test_virtual_local_ranks_see_one_gpu_each(dry, monkeypatch):
    """Every rank is the first on the node, with its own entry of the parent's list."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5")

    variables = dry("--nproc", "2", "--virtual-local-rank", "train.py").variables()

    assert variables["LOCAL_RANK"] == ("0", "dsup")
    assert variables["CUDA_VISIBLE_DEVICES"] == ("4 ... 5", "dsup")
    assert variables["RANK"] == ("0 ... 1", "dsup")


def test_virtual_local_ranks_without_a_list_are_numbered(dry):
    """Where the parent hides no GPU, the local rank is the GPU."""
    variables = dry("--nproc", "2", "--virtual-local-rank", "train.py").variables()

    assert variables["CUDA_VISIBLE_DEVICES"] == ("0 ... 1", "dsup")


def test_a_dry_run_shows_the_command_of_a_restart(dry, home):
    """What a start would resume from is looked for, and handed over as it would be."""
    (home / "step-10.pt").write_bytes(b"x")
    os.utime(home / "step-10.pt", (0, 0))
    resume = ("--checkpoint-glob", "*.pt", "--resume-arg", "--resume={path}")
    said = dry(*resume, "train.py")

    assert f"newest checkpoint: {home}/step-10.pt\n" in said.out
    assert said.command().endswith(f"train.py --resume={home}/step-10.pt")
    assert said.variables()["DSUP_RESUME_FROM"] == (f"{home}/step-10.pt", "dsup")


def test_a_dry_run_says_what_is_in_force_where_nothing_was_given(dry, home):
    """A default that is worked out is shown as it comes out."""
    said = dry("train.py")

    assert "by the cause (--explain-policy)" in said.out
    assert f"{home}" in next(
        line for line in said.out.splitlines() if line.startswith("  log-dir ")
    )


def test_a_dry_run_makes_nothing(dry, home):
    """A dry run leaves the disk as it was."""
    dry("--log-dir", "logs", "train.py")

    assert [path.name for path in home.iterdir()] == ["train.py"]


def test_a_dry_run_says_whose_a_variable_is(dry, monkeypatch):
    """A value of the user's that dsup respects is told as the user's."""
    monkeypatch.setenv("OMP_NUM_THREADS", "6")

    variables = dry("--nproc", "2", "train.py").variables()

    assert variables["OMP_NUM_THREADS"] == ("6", "your environment")
    assert variables["RANK"] == ("0 ... 1", "dsup")


def test_a_dry_run_tells_no_secret(dry, monkeypatch):
    """What a user keeps in the environment is not printed."""
    monkeypatch.setenv("WANDB_API_KEY", "very-secret")

    assert "very-secret" not in dry("train.py").out


@pytest.mark.parametrize(
    ("value", "visible", "count"),
    [
        pytest.param("3", None, 3, id="a number"),
        pytest.param("cpu", None, os.cpu_count(), id="cpu"),
        pytest.param("gpu", "0,1,2", 3, id="gpu: as many as are visible"),
        pytest.param("auto", "0,1", 2, id="auto: GPUs first"),
        pytest.param("auto", "", os.cpu_count(), id="auto: hidden GPUs, so CPUs"),
        pytest.param("auto", "-1", os.cpu_count(), id="auto: hidden by -1"),
        pytest.param("gpu", "0,-1,1", 1, id="gpu: the list ends at -1, as for CUDA"),
        pytest.param("gpu", " 0 , 1 ", 2, id="gpu: spaces"),
        pytest.param("gpu", "GPU-1a2b-11,GPU-3c-1d", 2, id="gpu: UUIDs with -1"),
        pytest.param("gpu", "MIG-GPU-15/1/0", 1, id="gpu: a MIG instance"),
    ],
)
def test_how_many_ranks_a_word_stands_for(value, visible, count):
    """--nproc takes a number, or a word for what this node has."""
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert rank_count(value, environment) == count


def test_hip_has_a_list_of_its_own(tmp_path):
    """On AMD's GPUs HIP_VISIBLE_DEVICES counts where CUDA's variable is not set."""
    assert rank_count("gpu", {"HIP_VISIBLE_DEVICES": "0,1,2"}, str(tmp_path)) == 3
    both = {"HIP_VISIBLE_DEVICES": "0,1,2", "CUDA_VISIBLE_DEVICES": "0"}
    assert rank_count("gpu", both, str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("files", "count"),
    [
        pytest.param(
            {
                "dev/nvidia0": "",
                "dev/nvidia11": "",
                "dev/nvidiactl": "",
                "dev/nvidia-uvm": "",
            },
            2,
            id="NVIDIA",
        ),
        pytest.param(
            {
                "sys/class/kfd/kfd/topology/nodes/0/properties": "simd_count 0\n",
                "sys/class/kfd/kfd/topology/nodes/1/properties": "a 1\nsimd_count 304",
                "sys/class/kfd/kfd/topology/nodes/2/properties": "simd_count 304\n",
            },
            2,
            id="AMD, the processor left out",
        ),
    ],
)
def test_gpus_are_counted_without_any_library(tmp_path, files, count):
    """Where no list hides them, the drivers' device files are counted."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert rank_count("auto", {}, str(tmp_path)) == count


@pytest.mark.parametrize("visible", ["", "-1", " , "])
def test_one_rank_per_gpu_needs_a_gpu(visible):
    """--nproc gpu without a GPU is refused with what to look at."""
    with pytest.raises(SpecError, match="because no GPU is visible"):
        rank_count("gpu", {"CUDA_VISIBLE_DEVICES": visible})


def test_options_of_torchrun_have_variables_of_dsups_too(dry, monkeypatch):
    """A DSUP_ variable goes before a PET_ variable for every option."""
    monkeypatch.setenv("PET_RDZV_ID", "theirs")
    monkeypatch.setenv("DSUP_RDZV_ID", "ours")

    variables = dry("train.py").variables()

    assert variables["TORCHELASTIC_RUN_ID"] == ("ours", "dsup")
