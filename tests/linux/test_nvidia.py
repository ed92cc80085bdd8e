"""What NVIDIA's driver tells in /proc, and which of its device nodes are open."""

import os

import pytest

from dsup.linux import nvidia

INFORMATION = (
    "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 212\nGPU UUID: \t {uuid}\n"
    "Bus Location: \t 0000:9b:00.0\nDevice Minor: \t 5\n"
)


def listed(tmp_path, uuid):
    """Return the root of a machine whose driver lists one GPU."""
    directory = tmp_path / "proc/driver/nvidia/gpus/0000:9b:00.0"
    directory.mkdir(parents=True)
    (directory / "information").write_text(INFORMATION.format(uuid=uuid))
    return str(tmp_path)


def test_the_driver_lists_its_gpus(tmp_path):
    """Address, UUID, minor and model are known without NVML."""
    root = listed(tmp_path, "GPU-9b-77")

    assert nvidia.boards(root) == [
        nvidia.Board("0000:9b:00.0", "GPU-9b-77", 5, "NVIDIA H100 80GB HBM3")
    ]
    assert nvidia.is_present(root)


def test_a_gpu_that_was_never_used_has_no_uuid_yet(tmp_path):
    """The driver shows question marks for what it has not read."""
    (board,) = nvidia.boards(listed(tmp_path, "GPU-????????-????"))

    assert board.uuid == ""


def test_a_machine_without_the_driver_has_none(tmp_path):
    """Nothing is listed, and nothing fails."""
    assert nvidia.boards(str(tmp_path)) == []
    assert not nvidia.is_present(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "there"),
    [(b"\xde\x10\x30\x23" + bytes(60), True), (b"\xff" * 64, False), (b"", False)],
)
def test_a_device_that_fell_off_the_bus_reads_as_all_ones(tmp_path, config, there):
    """Its place in sysfs may outlive it."""
    directory = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    directory.mkdir(parents=True)
    (directory / "config").write_bytes(config)

    assert nvidia.is_on_bus("00000000:3B:00.0", str(tmp_path)) is there
    assert not nvidia.is_on_bus("00000000:3C:00.0", str(tmp_path))


def test_open_nodes_are_known_by_their_minor(tmp_path):
    """Of all that a process has open, only /dev/nvidiaN counts."""
    directory = tmp_path / "proc/77/fd"
    directory.mkdir(parents=True)
    targets = ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "pipe:[1]"]
    for number, target in enumerate([*targets, "/dev/nvidia3", "/dev/nvidia12"]):
        (directory / str(number)).symlink_to(target)

    assert nvidia.open_minors(77, str(tmp_path)) == {3, 12}


def test_of_a_process_that_has_gone_nothing_is_open(tmp_path):
    """It has no descriptors, and this one has no GPU's."""
    assert nvidia.open_minors(77, str(tmp_path)) == frozenset()
    assert nvidia.open_minors(os.getpid()) == frozenset()
