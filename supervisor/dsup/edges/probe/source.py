"""NVML, as the probe asks it: identities, health, counters, events.

Every value is asked for by itself: one that a GPU does not have, or a driver does not
know, costs nothing but that value. A GPU that says that it is lost is asked no more.

Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from dsup.facts.nvml import HANDLE, LOST, PROCESS, RESET_REQUIRED
from dsup.linux import nvidia

Row: TypeAlias = dict[str, Any]

_UNCORRECTED: Final = 1
_VOLATILE: Final = 0
_AGGREGATE: Final = 1
_DOUBLE_BIT: Final = 1
_RECOVERY: Final = {"recovery": (230, 0)}
_BUS_ERRORS: Final = {"pcie_nonfatal": (179, 0), "pcie_fatal": (180, 0)}
_LINK_FIELDS: Final = (("receive", 208), ("integrity", 211), ("failed_recovery", 214))
_LINKS_MAX: Final = 18
_PROCESSES_MAX: Final = 64
_LINK_COUNTERS: Final = (("replay", 0), ("recovery", 1), ("crc", 2))
"""Up to NVLink 4; what came after has the fields above, by link."""

_SLOWED: Final = (("thermal", 1), ("board", 3), ("reliability", 5))
_SLICES_MAX: Final = 64
_EVENTS: Final = 0x2 | 0x8 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000
_FINAL: Final = frozenset({LOST, RESET_REQUIRED})


class Source:
    """NVML in this process; whatever is called may never return.

    Args:
        pynvml: the module.
    """

    def __init__(self, pynvml: Any) -> None:  # noqa: ANN401 (it has no types)
        self._nvml = pynvml
        self._handles: dict[int, Any] = {}
        self._broken: dict[int, int] = {}
        self._buses: dict[int, str] = {}
        self._lost: set[int] = set()
        self._events: Any = None

    def open(self) -> list[Row]:
        """Start NVML and return what GPUs there are.

        Raises:
            NVMLError: if it cannot be started.
        """
        self._nvml.nvmlInit()
        return [self._card(number) for number in range(self._nvml.nvmlDeviceGetCount())]

    def health(self) -> Iterator[Row]:
        """Yield, GPU by GPU, what may end a job."""
        self._lost = set()
        return self._readings(self._health)

    def rest(self) -> Iterator[Row]:
        """Yield, GPU by GPU, what may explain more."""
        return self._readings(self._rest)

    def fitness(self) -> Iterator[Row]:
        """Yield, GPU by GPU, what a job would meet that began now."""
        return self._readings(self._fitness)

    def versions(self) -> dict[str, str]:
        """Return the versions of the driver, of its library, and of CUDA."""
        nvml = self._nvml
        cuda = self._try(nvml.nvmlSystemGetCudaDriverVersion_v2) or 0
        found = {
            "driver": self._word(nvml.nvmlSystemGetDriverVersion),
            "library": self._word(nvml.nvmlSystemGetNVMLVersion),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        }
        return {name: version for name, version in found.items() if version}

    def load(self) -> Iterator[Row]:
        """Yield, GPU by GPU, what it does now."""
        return self._readings(self._load)

    def watch(self) -> bool:
        """Ask for events of all GPUs; return whether there can be any."""
        nvml, watched = self._nvml, False
        with contextlib.suppress(nvml.NVMLError):
            self._events = nvml.nvmlEventSetCreate()
            for handle in self._handles.values():
                with contextlib.suppress(nvml.NVMLError):
                    types = _EVENTS & nvml.nvmlDeviceGetSupportedEventTypes(handle)
                    nvml.nvmlDeviceRegisterEvents(handle, types, self._events)
                    watched = True
        return watched

    def wait(self, limit_s: float) -> Row | None:
        """Wait for an event; return None if there was none.

        Raises:
            NVMLError: if there can be no more.
        """
        nvml = self._nvml
        try:
            found = nvml.nvmlEventSetWait_v2(self._events, int(limit_s * 1000))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        return {
            "number": self._number(found.device),
            "type": found.eventType,
            "data": found.eventData,
            "at_s": time.monotonic(),
        }

    def _number(self, device: Any) -> int:  # noqa: ANN401 (a pointer)
        """Return which GPU a handle is; NVML may give another one for the same."""
        address = _address(device)
        for number, handle in self._handles.items():
            if _address(handle) == address:
                return number
        return int(self._nvml.nvmlDeviceGetIndex(device))

    def _card(self, number: int) -> Row:
        """Return a GPU's identity: it cannot be asked for once the GPU is lost."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
        except nvml.NVMLError as error:
            self._broken[number] = error.value
            return {"number": number}
        self._handles[number] = handle
        bus = self._word(lambda h: nvml.nvmlDeviceGetPciInfo(h).busId, handle)
        self._buses[number] = bus
        return {
            "number": number,
            "uuid": self._word(nvml.nvmlDeviceGetUUID, handle),
            "pci": bus,
            "minor": self._try(nvml.nvmlDeviceGetMinorNumber, handle),
            "serial": self._word(nvml.nvmlDeviceGetSerial, handle),
            "name": self._word(nvml.nvmlDeviceGetName, handle),
            "slices": list(self._slices(handle)),
        }

    def _slices(self, handle: Any) -> Iterator[list[Any]]:  # noqa: ANN401 (a pointer)
        nvml = self._nvml
        count = self._try(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        for index in range(min(count, _SLICES_MAX)):
            try:
                one = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except nvml.NVMLError:
                continue  # a place where none was made
            uuid = self._word(nvml.nvmlDeviceGetUUID, one)
            numbers = (
                self._try(nvml.nvmlDeviceGetGpuInstanceId, one),
                self._try(nvml.nvmlDeviceGetComputeInstanceId, one),
            )
            yield [uuid, *(-1 if n is None else n for n in numbers)]

    def _try(self, call: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None

    def _word(self, call: Callable[..., Any], *args: Any) -> str:  # noqa: ANN401
        told = self._try(call, *args) or ""
        return told.decode(errors="replace") if isinstance(told, bytes) else str(told)

    def _readings(self, read: Callable[[_Asker], None]) -> Iterator[Row]:
        for number in sorted({*self._handles, *self._broken}):
            bus = self._buses.get(number, "")
            asker = _Asker(self._nvml, self._handles.get(number), bus)
            if number in self._broken:
                asker.errors[HANDLE] = self._broken[number]
            elif number not in self._lost:
                read(asker)
            if asker.gone:
                self._lost.add(number)
            yield {
                "number": number,
                "values": asker.values,
                "errors": asker.errors,
                "at_s": time.monotonic(),
            }

    def _health(self, gpu: _Asker) -> None:
        nvml = self._nvml
        gpu.values["on_bus"] = int(nvidia.is_on_bus(gpu.bus))
        ecc = nvml.nvmlDeviceGetTotalEccErrors
        gpu.ask(("ecc_volatile",), ecc, _UNCORRECTED, _VOLATILE)
        gpu.ask(("ecc_aggregate",), ecc, _UNCORRECTED, _AGGREGATE)
        rows = ("remapped_corrected", "remapped", "remap_pending", "remap_failure")
        gpu.ask(rows, nvml.nvmlDeviceGetRemappedRows)
        gpu.ask_fields(_RECOVERY)
        gpu.ask(("retired",), self._retired, _DOUBLE_BIT)
        gpu.ask(("retire_pending",), nvml.nvmlDeviceGetRetiredPagesPendingStatus)

    def _rest(self, gpu: _Asker) -> None:
        nvml = self._nvml
        for link in range(_LINKS_MAX):
            if not gpu.ask((f"link{link}_up",), nvml.nvmlDeviceGetNvLinkState, link):
                break
            call = nvml.nvmlDeviceGetNvLinkErrorCounter
            counted = [
                gpu.ask((f"link{link}_{name}",), call, link, counter)
                for name, counter in _LINK_COUNTERS
            ]
            if not any(counted):
                gpu.ask_fields({f"link{link}_{n}": (f, link) for n, f in _LINK_FIELDS})
        gpu.ask_fields(_BUS_ERRORS)
        gpu.ask(("pcie_width",), nvml.nvmlDeviceGetCurrPcieLinkWidth)
        gpu.ask(("pcie_width_max",), nvml.nvmlDeviceGetMaxPcieLinkWidth)
        gpu.ask(("pcie_replays",), nvml.nvmlDeviceGetPcieReplayCounter)
        self._throttle(gpu)
        for name, policy in _SLOWED:
            gpu.ask((f"slow_{name}_ns",), self._slowed, policy)

    def _fitness(self, gpu: _Asker) -> None:
        nvml = self._nvml
        gpu.ask(("persistence",), nvml.nvmlDeviceGetPersistenceMode)
        gpu.ask(("memory_total", "memory_used"), self._memory)
        gpu.ask(("fabric_state", "fabric_status"), self._fabric)
        gpu.ask_many(self._processes)

    def _memory(self, handle: Any) -> tuple[int, int]:  # noqa: ANN401 (a pointer)
        found = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return found.total, found.used

    def _fabric(self, handle: Any) -> tuple[int, int]:  # noqa: ANN401 (a pointer)
        import ctypes

        found = self._nvml.c_nvmlGpuFabricInfo_t()
        self._nvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(found))
        return found.state, found.status

    def _processes(self, handle: Any) -> dict[str, int]:  # noqa: ANN401 (a pointer)
        """Return the memory that each process with a context holds, bytes."""
        found = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
        return {
            f"{PROCESS}{one.pid}": one.usedGpuMemory or 0
            for one in found[:_PROCESSES_MAX]
        }

    def _load(self, gpu: _Asker) -> None:
        gpu.ask(("busy", "memory"), self._used)
        gpu.ask(("milliwatts",), self._nvml.nvmlDeviceGetPowerUsage)
        gpu.ask(("level",), self._nvml.nvmlDeviceGetPerformanceState)
        self._throttle(gpu)

    def _throttle(self, gpu: _Asker) -> None:
        nvml = self._nvml
        if not gpu.ask(("throttle",), nvml.nvmlDeviceGetCurrentClocksThrottleReasons):
            gpu.ask(("throttle",), nvml.nvmlDeviceGetCurrentClocksEventReasons)

    def _used(self, handle: Any) -> tuple[int, int]:  # noqa: ANN401 (a pointer)
        found = self._nvml.nvmlDeviceGetUtilizationRates(handle)
        return int(found.gpu), int(found.memory)

    def _retired(self, handle: Any, cause: int) -> int:  # noqa: ANN401 (a pointer)
        return len(self._nvml.nvmlDeviceGetRetiredPages(handle, cause))

    def _slowed(self, handle: Any, policy: int) -> int:  # noqa: ANN401 (a pointer)
        found = self._nvml.nvmlDeviceGetViolationStatus(handle, policy)
        return int(found.violationTime)


class _Asker:
    """One GPU, what it has answered, and what it has refused."""

    def __init__(self, pynvml: Any, handle: Any, bus: str) -> None:  # noqa: ANN401
        self._nvml = pynvml
        self._handle = handle
        self.bus = bus
        self.values: dict[str, int] = {}
        self.errors: dict[str, int] = {}

    @property
    def gone(self) -> bool:
        """Whether the GPU has said that there is no use in asking it."""
        return bool(_FINAL & set(self.errors.values()))

    def ask(self, names: tuple[str, ...], call: Callable[..., Any], *args: Any) -> bool:  # noqa: ANN401
        """Ask for values by these names; return whether they were given."""
        if self.gone:
            return False
        try:
            found = call(self._handle, *args)
        except self._nvml.NVMLError as error:
            self.errors[names[0]] = error.value
            return False
        told = found if isinstance(found, tuple) else (found,)
        self.values |= {name: int(n) for name, n in zip(names, told, strict=True)}
        self.errors.pop(names[0], None)
        return True

    def ask_many(self, call: Callable[[Any], dict[str, int]]) -> None:
        """Ask for values that bring their names."""
        if not self.gone:
            with contextlib.suppress(self._nvml.NVMLError):
                self.values |= call(self._handle)

    def ask_fields(self, wanted: Mapping[str, tuple[int, int]]) -> None:
        """Ask for values by their fields' numbers and scopes, all at once."""
        if self.gone:
            return
        nvml = self._nvml
        try:
            told = nvml.nvmlDeviceGetFieldValues(self._handle, list(wanted.values()))
        except nvml.NVMLError as error:
            self.errors[next(iter(wanted))] = error.value
            return
        for name, found in zip(wanted, told, strict=True):
            if found.nvmlReturn:
                self.errors[name] = found.nvmlReturn
            else:
                self.values[name] = int(found.value.uiVal)


def without_nvml() -> list[Row]:
    """Return what GPUs the driver lists in /proc, in NVML's order."""
    return [
        {
            "number": number,
            "uuid": board.uuid,
            "pci": board.bus,
            "minor": board.minor,
            "name": board.model,
        }
        for number, board in enumerate(nvidia.boards())
    ]


def _address(handle: Any) -> int | None:  # noqa: ANN401 (a pointer)
    import ctypes

    return ctypes.cast(handle, ctypes.c_void_p).value
