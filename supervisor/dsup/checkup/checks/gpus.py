"""The GPUs, as NVML and the driver tell of them. Pure.

Sources: https://docs.nvidia.com/deploy/nvml-api/ and
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.checks.each_gpu import (
    HIDDEN,
    each_gpu,
    name_of,
    or_well,
    used_by,
)
from dsup.checkup.finding import Check, Said, State, silent
from dsup.checkup.readings import READER_S, Gpus, Readings
from dsup.facts import nvml
from dsup.facts.gpu_health import RECOVERY, THROTTLED
from dsup.facts.nvml import Reading

_BROKEN: Final = frozenset(
    {nvml.DRIVER_NOT_LOADED, nvml.LOST, nvml.VERSION_MISMATCH, nvml.UNKNOWN}
)
"""Codes of nvmlInit after which CUDA would not start either."""

_NOT_INSTALLED: Final = frozenset({nvml.NO_LIBRARY, nvml.NO_MODULE})

_DO: Final = {
    nvml.VERSION_MISMATCH: "rmmod nvidia_uvm nvidia && modprobe nvidia, or reboot",
    nvml.DRIVER_NOT_LOADED: "modprobe nvidia; dmesg | grep NVRM says why it fails",
    nvml.NO_LIBRARY: "install the driver's libraries; in a container, run it with "
    "--gpus all",
    nvml.NO_MODULE: "pip install nvidia-ml-py",
    nvml.UNKNOWN: "nvidia-smi; in a container, start it again",
}
_RESET: Final = "end what uses it, then nvidia-smi --gpu-reset -i {number}; else reboot"


def nvml_answers(readings: Readings) -> Iterator[Said]:
    """NVML must start and answer: what hangs here hangs a rank as well.

    Threshold: ten seconds to start, five for all GPUs to answer. Error 18: the driver
    was replaced while the old module stayed loaded.
    """
    gpus, driver = readings.gpus or Gpus(), readings.driver
    if gpus.why_not:
        yield _unanswered(readings, gpus)
    elif driver is None and not gpus.cards:
        yield silent("/proc/driver/nvidia", READER_S)
    elif gpus.failed is not None and not (driver and driver.present):
        yield _no_gpu(readings)
    elif gpus.failed is not None:
        yield _refused(readings, gpus.failed)
    else:
        count, used = len(gpus.cards), len(used_by(readings))
        version = gpus.versions.get("driver", "")
        shown = f", driver {version}" if version else ""
        ours = f", {used} for this job" if used < count else ""
        yield Said("ok", f"{count} GPU{'s' * (count != 1)}{ours}{shown}")


def _unanswered(readings: Readings, gpus: Gpus) -> Said:
    """Judge silence: bad where there is a GPU, and whoever asked for it stood still."""
    driver = readings.driver
    there = bool(gpus.cards) or "driver" in readings.silent
    there = there or bool(driver and (driver.present or driver.on_bus))
    if not there:
        return Said("unknown", gpus.why_not, "nvidia-smi; ulimit -a")
    return Said(
        "bad" if gpus.hung else "warn",
        gpus.why_not,
        "dmesg | grep -i xid; where nvidia-smi hangs as well: reboot; where it is only "
        "slow: nvidia-smi -pm 1",
    )


def _refused(readings: Readings, code: int) -> Said:
    """Judge a refusal; in a container the library is the container's."""
    state: State = "bad" if code in _BROKEN else "warn"
    ours = state == "bad" and _in_container(readings)
    return Said(state, nvml.why_not(code), _DO.get(code, "nvidia-smi"), ours)


def _in_container(readings: Readings) -> bool:
    return bool(readings.system and readings.system.container)


def _no_gpu(readings: Readings) -> Said:
    there = readings.driver.on_bus if readings.driver else 0
    if not there:
        return Said("ok", "this node has no NVIDIA GPU")
    if _in_container(readings):
        return Said(
            "warn",
            f"{there} NVIDIA GPUs are on the bus, and none is given to this container",
            "run the container with --gpus all, or request nvidia.com/gpu",
        )
    missing = readings.gpus is None or readings.gpus.failed in _NOT_INSTALLED
    return Said(
        "warn" if missing or not _wants_gpus(readings) else "bad",
        f"{there} NVIDIA GPUs are on the bus, and no driver is loaded",
        "modprobe nvidia; dmesg | grep NVRM says why it fails",
    )


def _wants_gpus(readings: Readings) -> bool:
    told = readings.asked.environment.get("CUDA_VISIBLE_DEVICES")
    return told is None or told.strip() not in HIDDEN


def driver_versions(readings: Readings) -> Iterator[Said]:
    """The loaded module and the library should be of one version.

    Where they must be, NVML does not start, which is bad enough.
    Source: CUDA's errors 803 (driver and library differ) and 804. torch's CUDA may be
    newer than the driver's only within one major version, or with its cuda-compat.
    """
    gpus, driver = readings.gpus, readings.driver
    loaded = driver.version if driver else ""
    told = gpus.versions.get("driver", "") if gpus else ""
    if loaded and told and loaded != told:
        yield Said(
            "warn",
            f"the loaded driver is {loaded}, its library {told}",
            _DO[nvml.VERSION_MISMATCH],
        )
    cuda = gpus.versions.get("cuda", "") if gpus else ""
    python = readings.interpreter
    built = python.cuda if python else ""
    if cuda and built and _major(built) > _major(cuda):
        yield Said(
            "warn",
            f"torch is built for CUDA {built}, the driver knows {cuda}",
            "update the driver, or install a torch for its CUDA",
        )
    elif cuda and python and python.torch and not built:
        yield Said(
            "warn",
            f"torch {python.torch} is built without CUDA",
            "pip install torch, from the index for CUDA",
        )


def gpu_refuses(readings: Readings) -> Iterator[Said]:
    """A GPU that NVML calls lost, or in want of a reset, runs nothing.

    Codes 15 and 16; 999 to most questions is a lost GPU, too, or a device node that was
    taken away, which a container has to be started anew for.
    """
    for card, reading in each_gpu(readings):
        codes = set(reading.errors.values())
        name, fix = name_of(card), _RESET.format(number=card.gpu.number)
        if nvml.LOST in codes:
            yield Said("bad", f"{name} is lost", "reboot; if it stays so, replace it")
        elif nvml.RESET_REQUIRED in codes:
            yield Said("bad", f"{name} wants a reset (NVML error 16)", fix)
        elif nvml.UNKNOWN in codes:
            lost = list(reading.errors.values()).count(nvml.UNKNOWN)
            state: State = "bad" if lost > len(reading.values) else "warn"
            text = f"{name} answers with unknown error (999)"
            ours = state == "bad" and _in_container(readings)
            yield Said(state, text, _DO[nvml.UNKNOWN], ours)


def ecc(readings: Readings) -> Iterator[Said]:
    """Uncorrectable memory errors since the driver was loaded, or the GPU reset.

    The counter is the volatile one: what is older was dealt with by a reset. Where NVML
    itself says that the GPU wants nothing, the driver has dealt with it.
    """
    for card, reading in each_gpu(readings):
        count = reading.values.get("ecc_volatile", 0)
        if count:
            yield Said(
                "warn" if reading.values.get("recovery") == 0 else "bad",
                f"{name_of(card)} had {count} uncorrectable memory "
                f"error{'s' * (count != 1)} since its last reset",
                _RESET.format(number=card.gpu.number),
            )


def row_remap(readings: Readings) -> Iterator[Said]:
    """Bad rows of memory are replaced by spare ones at the next reset.

    Pending: jobs may run on. Failure: there is no spare left, and the GPU is replaced.
    """
    for card, reading in each_gpu(readings):
        values, name = reading.values, name_of(card)
        if values.get("remap_failure"):
            text = f"{name} could not remap a bad row of its memory"
            yield Said("bad", text, "replace it: nvidia-smi -q -d ROW_REMAPPER")
        elif values.get("remap_pending") or values.get("retire_pending"):
            text = f"{name} sets a bad part of its memory aside at its next reset"
            yield Said("warn", text, _RESET.format(number=card.gpu.number))


def recovery_action(readings: Readings) -> Iterator[Said]:
    """NVML's own word on what a GPU wants: field 230, from driver 570 on; 0 is none."""
    for card, reading in each_gpu(readings):
        action = reading.values.get("recovery", 0)
        if action > 0:
            wants = RECOVERY.get(action, f"recovery action {action}")
            fix = _RESET.format(number=card.gpu.number)
            yield Said("bad", f"{name_of(card)} wants {wants}", fix)


def throttled(readings: Readings) -> Iterator[Said]:
    """Clocks that the hardware holds down now, while nothing should be running.

    Heat, a power brake (the rack's or the power supply's), or hardware slowdown.
    """
    for card, reading in each_gpu(readings):
        bits = reading.values.get("throttle", 0)
        why = [name for bit, name in THROTTLED.items() if bits & bit]
        if why:
            yield Said(
                "warn",
                f"{name_of(card)} is slowed down now: {', '.join(why)}",
                "nvidia-smi -q -d PERFORMANCE,TEMPERATURE; look at fans and power",
            )


def nvlinks(readings: Readings) -> Iterator[Said]:
    """NVLinks of a GPU that are down while its peers have more up.

    Without NVSwitches a GPU may have none, as one without a bridge has, and so may one
    that is cut into MIG devices. A run works, and more slowly; what does not, the
    fabric tells.
    """
    up = {card: _links_up(reading) for card, reading in each_gpu(readings)}
    most = max((n for n in up.values() if n is not None), default=0)
    switches = bool(readings.driver and readings.driver.switches)
    for card, count in up.items():
        if count is None or (not count and (not switches or card.slices)):
            continue
        if count < most:
            yield Said(
                "warn",
                f"{name_of(card)} has {count} of {most} NVLinks up",
                f"nvidia-smi nvlink -s -i {card.gpu.number}; reset the GPUs, or have "
                "the board looked at",
            )


def pcie_width(readings: Readings) -> Iterator[Said]:
    """A PCIe link with fewer lanes than GPU and slot could have.

    The generation is no sign: it drops while a GPU is idle. Fewer lanes are slow, and
    may be how the slot is wired.
    """
    for card, reading in each_gpu(readings):
        width, most = (reading.values.get(f"pcie_width{m}", 0) for m in ("", "_max"))
        if 0 < width < most:
            yield Said(
                "warn",
                f"{name_of(card)} has {width} of {most} PCIe lanes",
                "seat the board again; lspci -vv shows LnkSta",
            )


CHECKS: Final = (
    Check("nvml", "GPUs", nvml_answers),
    Check("driver-version", "GPUs", driver_versions),
    Check("gpu-lost", "GPUs", gpu_refuses),
    Check("ecc", "GPUs", or_well(ecc, "ecc_volatile")),
    Check("row-remap", "GPUs", or_well(row_remap, "remap_failure")),
    Check("recovery-action", "GPUs", or_well(recovery_action, "recovery")),
    Check("throttling", "GPUs", or_well(throttled, "throttle")),
    Check("nvlink", "GPUs", or_well(nvlinks, "link0_up")),
    Check("pcie-width", "GPUs", or_well(pcie_width, "pcie_width")),
)


def _links_up(reading: Reading) -> int | None:
    """Return how many NVLinks are up; None where they are not told."""
    states = [
        up
        for name, up in reading.values.items()
        if name.startswith("link") and name.endswith("_up")
    ]
    return sum(states) if states else None


def _major(version: str) -> int:
    return int(version.partition(".")[0] or 0)
