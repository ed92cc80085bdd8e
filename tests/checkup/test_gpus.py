"""GPUs as a real NVML library tells of them: a C one, with a fault a GPU."""

import subprocess

import pytest

SLOW = pytest.mark.slow


def not_well(found):
    """Return check, state and GPU of everything that is not well with a GPU."""
    return {
        (row["check"], row["state"], row["text"].split()[1])
        for row in found.rows
        if row["text"].startswith("GPU ") and row["state"] != "ok"
    }


@SLOW
def test_every_fault_is_told_of_its_own_gpu_and_says_what_to_do(looked_at):
    """Eight GPUs, five ways to be bad, warnings, and one that is well.

    NVML wants nothing of the one with a memory error, so the driver has dealt with it.
    """
    found = looked_at(
        each="healthy,ecc,remap,pending,recovery,lost,reset,unknown", gpus=8
    )

    assert not_well(found) == {
        ("ecc", "warn", "1"),
        ("throttling", "warn", "1"),
        ("row-remap", "bad", "2"),
        ("row-remap", "warn", "3"),
        ("recovery-action", "bad", "4"),
        ("gpu-lost", "bad", "5"),
        ("gpu-lost", "bad", "6"),
        ("gpu-lost", "bad", "7"),
    }
    assert all(row["fix"] for row in found.rows if row["state"] in {"bad", "warn"})
    assert "nvidia-smi --gpu-reset -i 1" in found.by_check["ecc"][0]["fix"]
    assert found.code == 193


@SLOW
def test_what_a_new_job_would_meet_is_told(looked_at):
    """Lanes and links that are missing, the fabric, and memory that others hold."""
    found = looked_at(
        each="narrow,links,fabric,busy,leak,healthy", gpus=6, persistence=0
    )

    told = not_well(found)
    assert told >= {
        ("pcie-width", "warn", "0"),
        ("nvlink", "warn", "1"),
        ("fabric", "bad", "2"),
    }
    assert "has 4 of 16 PCIe lanes" in found.by_check["pcie-width"][0]["text"]
    held = [row["text"] for row in found.by_check["gpu-memory"]]
    assert held == [
        "pid 1 holds 39.0 GiB of GPU 3 (0000:4b:00)",
        "40.0 GiB of GPU 4 (0000:5b:00) are held, and by no process that is to be seen",
    ]
    assert found.by_check["persistence"][0]["state"] == "warn"


@SLOW
def test_an_old_driver_is_judged_by_what_it_tells(looked_at):
    """What it does not know is not told: no finding is made of a missing function."""
    found = looked_at("-DOLD_DRIVER", mode="healthy")

    assert not_well(found) == set()
    assert "recovery-action" not in found.by_check
    assert "2 GPUs, driver 570.86.15" in found.by_check["nvml"][0]["text"]
    assert found.by_check["ecc"][0] == {
        "check": "ecc",
        "group": "GPUs",
        "state": "ok",
        "text": "nothing on 2 GPUs",
        "fix": "",
    }


@pytest.fixture
def frozen(tmp_path):
    """Mount a file system on which whoever writes hangs in the kernel; return where."""
    image, where = tmp_path / "image", tmp_path / "frozen"
    image.write_bytes(b"\0" * (1 << 20))
    where.mkdir()
    for command in (
        ["mkfs.ext2", "-q", image],
        ["mount", "-o", "loop", image, where],
        ["fsfreeze", "-f", where],
    ):
        if subprocess.run(command, check=False, capture_output=True).returncode:
            subprocess.run(["umount", "-q", where], check=False)
            pytest.skip(f"cannot {command[0]} here")
    yield str(where)
    subprocess.run(["fsfreeze", "-u", where], check=True)
    # Whoever hung there is gone a moment later.
    subprocess.run(["umount", "--lazy", where], check=True)


@SLOW
@pytest.mark.root
def test_whatever_hangs_is_a_finding_and_costs_the_doctor_seconds(
    looked_at, frozen, tmp_path
):
    """A driver, an interpreter and a file system that never answer are all named.

    Everything else is judged all the same.
    """
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000\n")
    python.chmod(0o700)

    places = {"checkpoints": frozen}
    found = looked_at(mode="hang", wishes={"python": str(python), "places": places})

    assert found.by_check["nvml"][0]["state"] == "bad"
    assert "no answer on GPU 1" in found.by_check["nvml"][0]["text"]
    assert "did not answer" in found.by_check["python"][0]["text"]
    assert f"{frozen} did not answer within 10 s" in found.by_check["disk"][0]["text"]
    assert found.by_check["memory"]
    assert found.code == 193


@SLOW
@pytest.mark.parametrize(
    ("code", "state", "words"),
    [(18, "bad", "driver was changed"), (77, "warn", "error 77")],
)
def test_a_driver_that_refuses_is_judged_by_its_reason(
    looked_at, tmp_path, code, state, words
):
    """A library of another version than the loaded module keeps CUDA away as well."""
    (tmp_path / "proc/driver/nvidia/gpus").mkdir(parents=True)

    found = looked_at(mode="init", code=code, wishes={"root": str(tmp_path)})

    assert found.by_check["nvml"][0]["state"] == state
    assert words in found.by_check["nvml"][0]["text"]
