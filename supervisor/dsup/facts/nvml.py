"""What NVML said of GPUs, before and after a death: frames of the probe, and values.

Nothing in a frame is believed but its shape: a driver that is out of order may answer
anything. What the values mean is in ``gpu_health``.

Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from dsup.core.printable import printable
from dsup.facts.hardware import Card, Gpu, Slice, pci_address

NO_GPU: Final = "this node has no NVIDIA GPU (there is no /dev/nvidiactl)"
"""Why NVML says nothing where there is nothing to say."""

NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
DRIVER_NOT_LOADED: Final = 9
FUNCTION_NOT_FOUND: Final = 13
LOST: Final = 15
RESET_REQUIRED: Final = 16
BLOCKED: Final = 17
VERSION_MISMATCH: Final = 18
UNKNOWN: Final = 999

NO_LIBRARY: Final = -1
NO_MODULE: Final = -2
"""Codes of the probe's own, beside those of NVML."""

HANDLE: Final = "handle"
"""Name of the value that a GPU fails to give which cannot be asked at all."""

PROCESS: Final = "process_"
"""Beginning of the name of a value that is the memory of a process; its pid follows."""

_CARDS_MAX: Final = 64
_SLICES_MAX: Final = 64
_VERSIONS_MAX: Final = 8
_VALUES_MAX: Final = 512
_TEXT_MAX_CHARS: Final = 120
_CODE_MAX_DIGITS: Final = 6

_WHY_NOT: Final[Mapping[int, str]] = {
    NO_LIBRARY: "libnvidia-ml.so.1 is not there (install the driver's library)",
    NO_MODULE: "its Python module is not there (install nvidia-ml-py)",
    NO_PERMISSION: "permission was denied (see the modes of /dev/nvidia*)",
    DRIVER_NOT_LOADED: "the driver is not loaded (modprobe nvidia)",
    FUNCTION_NOT_FOUND: "the driver is too old",
    LOST: "it says that a GPU is lost (see nvidia-smi)",
    BLOCKED: "the system blocks it (see the device cgroup of the container)",
    VERSION_MISMATCH: "the driver was changed while it ran (reboot, or reload it)",
    UNKNOWN: "it says unknown error (has the container lost /dev/nvidia*?)",
}


class Reading(NamedTuple):
    """What one GPU answered.

    Attributes:
        values: by name; what could not be read is absent.
        errors: NVML's error of each name that could not be read.
        at_s: agent clock, seconds; None if unknown.
    """

    values: Mapping[str, int] = {}
    errors: Mapping[str, int] = {}
    at_s: float | None = None


class Event(NamedTuple):
    """An event that NVML told of.

    Attributes:
        number: NVML's index of the GPU.
        type: a bit of ``nvmlEventType``.
        data: the Xid, where it is one.
        at_s: agent clock, seconds; None if unknown.
    """

    number: int
    type: int
    data: int
    at_s: float | None = None


class Probed(NamedTuple):
    """What the probe has said about an attempt: bodies of its frames, as they came.

    Attributes:
        cards: which GPUs there are; empty if it never said.
        before: readings after the ranks had started.
        after: readings after the first death.
        events: events since the attempt began.
        loads: what GPUs did when stacks were last taken.
        failed: why NVML cannot be asked at all, a code for ``why_not``; empty if
            it can.
        asked: whether it was asked after the death.
        why_not: why it gave no answer; empty if it did.
        present: the node looks as if it had a GPU.
    """

    cards: bytes = b""
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()
    events: tuple[bytes, ...] = ()
    failed: bytes = b""
    asked: bool = False
    why_not: str = ""
    present: bool = False
    loads: tuple[bytes, ...] = ()


def missing(probed: Probed) -> str:
    """Return why NVML says nothing of the GPUs, or not all; empty if it has said it."""
    if not probed.failed:
        return probed.why_not or ("" if probed.asked else "NVML was not asked")
    try:
        code = int(probed.failed[:_CODE_MAX_DIGITS])
    except ValueError:
        code = UNKNOWN
    if code == NO_LIBRARY and not probed.present:
        return NO_GPU
    return why_not(code)


def why_not(code: int) -> str:
    """Return why NVML cannot be asked, as a sentence.

    Args:
        code: what ``nvmlInit`` answered, or a code of the probe's own.
    """
    reason = _WHY_NOT.get(code, f"it fails with error {code} (see nvidia-smi)")
    return f"cannot ask NVML, because {reason}"


def decode_cards(body: bytes) -> tuple[Card, ...]:
    """Return the GPUs that a frame lists; those that make no sense are left out."""
    told = _object(body).get("cards")
    rows = told[:_CARDS_MAX] if isinstance(told, list) else []
    found = (_card(row) for row in rows if isinstance(row, dict))
    return tuple(card for card in found if card)


def decode_versions(body: bytes) -> dict[str, str]:
    """Return the versions that the frame of the GPUs names."""
    told = _object(body).get("versions")
    pairs = list(told.items())[:_VERSIONS_MAX] if isinstance(told, dict) else []
    return {name: _text(value) for name, value in pairs}


def decode_readings(bodies: Iterable[bytes]) -> dict[int, Reading]:
    """Return the readings of each GPU, by NVML's index; several are put together."""
    found: dict[int, Reading] = {}
    for body in bodies:
        told = _object(body)
        number = _whole_number(told.get("number"))
        if number is None:
            continue
        known = found.get(number, Reading())
        found[number] = Reading(
            {**known.values, **_numbers(told.get("values"))},
            {**known.errors, **_numbers(told.get("errors"))},
            known.at_s if known.at_s is not None else _moment(told.get("at_s")),
        )
    return found


def decode_events(bodies: Iterable[bytes]) -> tuple[Event, ...]:
    """Return events in the order in which they came."""
    return tuple(event for body in bodies for event in _event(_object(body)))


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except (RecursionError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _card(row: dict[str, Any]) -> Card | None:
    number = _whole_number(row.get("number"))
    if number is None:
        return None
    gpu = Gpu(
        number=number,
        uuid=_text(row.get("uuid")),
        pci=pci_address(_text(row.get("pci"))),
        minor=_whole_number(row.get("minor")),
        serial=_text(row.get("serial")),
        name=_text(row.get("name")),
    )
    told = row.get("slices")
    return Card(gpu, tuple(_slices(told[:_SLICES_MAX] if told else [])))


def _slices(rows: Any) -> Iterator[Slice]:  # noqa: ANN401 (checked here)
    for row in rows if isinstance(rows, list) else []:
        match row:
            case [str(uuid), int(gpu_instance), int(compute_instance)]:
                yield Slice(_text(uuid), gpu_instance, compute_instance)
            case _:
                continue


def _event(told: dict[str, Any]) -> Iterator[Event]:
    number, kind, data = (
        _whole_number(told.get(name)) for name in ("number", "type", "data")
    )
    if number is not None and kind is not None and data is not None:
        yield Event(number, kind, data, _moment(told.get("at_s")))


def _text(told: Any) -> str:  # noqa: ANN401 (checked here)
    return printable(told[:_TEXT_MAX_CHARS]) if isinstance(told, str) else ""


def _whole_number(told: Any) -> int | None:  # noqa: ANN401 (checked here)
    return told if isinstance(told, int) and told >= 0 else None


def _moment(told: Any) -> float | None:  # noqa: ANN401 (checked here)
    return told if isinstance(told, float) else None


def _numbers(told: Any) -> dict[str, int]:  # noqa: ANN401 (checked here)
    pairs = list(told.items())[:_VALUES_MAX] if isinstance(told, dict) else []
    return {name: value for name, value in pairs if isinstance(value, int)}
