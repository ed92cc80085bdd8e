"""run.json: enough to repeat a run, and no secret."""

import json

import pytest

from dsup.core.job import Option
from dsup.report.run_file import Agent, run_file
from dsup.report.secret_names import is_secret

NOBODY = Agent("", 0, None)
SECRETS = {
    "WANDB_API_KEY": "k1",
    "HF_TOKEN": "t2",
    "aws_secret_access": "s3",
    "MY_PASSWORD_FILE": "p4",
}


def test_the_file_says_what_was_asked_for_and_from_where(job):
    """Arguments, options with their origin, and paired clocks are kept."""
    found = json.loads(run_file(job, Agent("b1", 7, 9), wall_ns=5, monotonic_ns=7))

    assert found["schema"] == "dsup.run/1"
    assert found["run_id"] == "r1"
    assert found["argv"] == ["python", "-u", "train.py"]
    assert found["world_size"] == 4
    assert found["options"] == {"nproc": {"value": "4", "origin": "command line"}}
    assert (found["boot_id"], found["agent"]) == ("b1", {"pid": 7, "start": 9})
    assert found["clocks"] == {"realtime_ns": 5, "monotonic_ns": 7}
    assert found["environment"] == {"OMP_NUM_THREADS": "8"}


def test_secrets_are_masked(job):
    """Values of variables that are called secrets are nowhere in the file."""
    written = run_file(
        job._replace(environment=SECRETS | {"HOME": "/root"}), NOBODY, 0, 0
    )

    assert json.loads(written)["environment"] == {
        **dict.fromkeys(SECRETS, "***"),
        "HOME": "/root",
    }
    assert not any(value.encode() in written for value in SECRETS.values())


@pytest.mark.parametrize("name", ["HOME", "PATH", "RANK", "NCCL_DEBUG"])
def test_what_is_no_secret_is_kept(name):
    """Only names that say so are masked."""
    assert not is_secret(name)


def test_bytes_that_are_no_text_do_not_lose_the_file(job):
    """An environment that is not UTF-8 is written all the same."""
    written = run_file(job._replace(environment={"BAD": "a\udcffb"}), NOBODY, 0, 0)

    assert json.loads(written)["environment"] == {"BAD": "a\udcffb"}


def test_secret_arguments_are_masked(job):
    """What is handed to the script by name is kept, but for what is secret by name."""
    words = "--api-key s3cret --hf_token=t4 --tokenizer bert --max-tokens 7".split()
    options = (Option("args", " ".join(words), "command line"),)
    argv = ("python", "train.py", *words)

    found = json.loads(run_file(job._replace(argv=argv, options=options), NOBODY, 0, 0))

    kept = "--api-key *** --hf_token=*** --tokenizer bert --max-tokens 7"
    assert found["options"]["args"]["value"] == kept
    assert found["argv"][2:] == kept.split()


def test_secrets_are_masked_by_their_form_as_well(job):
    """In the command, in any option and in any variable; the rest is kept."""
    options = (
        Option("log-dir", "s3://u:s3cret@h/runs", "command line"),
        Option("args", '{"password": "s3cret w"} X_TOKEN=s3cret', "command line"),
    )
    argv = ("python", "-u", "train.py", '{"password": "s3cret"}', "+a.api_key=s3cret")
    environment = {"DATABASE": "postgres://me:s3cret@h/d", "PLAIN": "a://h/d"}
    changed = job._replace(argv=argv, options=options, environment=environment)

    written = run_file(changed, NOBODY, 0, 0)

    found = json.loads(written)
    assert b"s3cret" not in written
    assert found["argv"][:3] == ["python", "-u", "train.py"]
    assert found["argv"][4] == "+a.api_key=***"
    assert found["options"]["log-dir"]["value"] == "s3://***@h/runs"
    assert found["environment"]["PLAIN"] == "a://h/d"
