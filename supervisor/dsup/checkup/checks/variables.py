"""Variables of NCCL, torch and CUDA that contradict each other or were left over. Pure.

Sources: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html and
https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from dsup.checkup.checks.each_gpu import HIDDEN
from dsup.checkup.finding import Check, Said, State
from dsup.checkup.readings import Gpus, Readings
from dsup.core.printable import printable
from dsup.facts.hardware import Access, visible_devices

_OFF: Final = frozenset({"", "0", "n", "no", "f", "false", "off"})
_ENDS: Final = frozenset({"", "-1"})
"""Entries with which a list ends on purpose."""

_VALUE_MAX_CHARS: Final = 60
_IB_EXPONENT_LONG: Final = 22
_TORCH_TIMEOUT_S: Final = 600.0
_HEARTBEAT: Final = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
_RENAMED: Final = ("ASYNC_ERROR_HANDLING", "BLOCKING_WAIT")


class _Costly(NamedTuple):
    """A variable for debugging, the values that cost something, and what."""

    name: str
    values: frozenset[str] | None
    cost: str


_COSTLY: Final = (
    _Costly("CUDA_LAUNCH_BLOCKING", None, "every kernel is waited for"),
    _Costly(
        "TORCH_DISTRIBUTED_DEBUG",
        frozenset({"detail"}),
        "every collective is checked by another one",
    ),
    _Costly("NCCL_DEBUG", frozenset({"trace"}), "every call is printed"),
    _Costly("NCCL_P2P_DISABLE", None, "GPUs of the node do not talk over NVLink"),
    _Costly("NCCL_SHM_DISABLE", None, "ranks of the node talk over the network"),
    _Costly("PYTORCH_NO_CUDA_MEMORY_CACHING", None, "every tensor asks the driver"),
)


def contradictions(readings: Readings) -> Iterator[Said]:
    """Pairs of which one makes the other void, and numbers that mean something else.

    Only the pairs that were met in the field are known here.
    """
    env = readings.asked.environment
    for tail in _RENAMED:
        old, new = (env.get(f"{head}{tail}") for head in ("NCCL_", "TORCH_NCCL_"))
        if old is not None and new is not None and old != new:
            yield Said(
                "warn",
                f"NCCL_{tail}={_shown(old)} is the old name of TORCH_NCCL_{tail}, "
                f"which is {_shown(new)}",
                f"unset NCCL_{tail}",
            )
    if _on(env, "TORCH_NCCL_BLOCKING_WAIT") and _on(
        env, "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    ):
        yield Said(
            "warn",
            "TORCH_NCCL_BLOCKING_WAIT and TORCH_NCCL_ASYNC_ERROR_HANDLING are both on: "
            "a time-out is raised, and not acted on by the watchdog",
            "unset TORCH_NCCL_BLOCKING_WAIT",
        )
    yield from _transports(env, ports=bool(readings.network and readings.network.ports))
    yield from _exponent(env)


def _transports(env: Mapping[str, str], *, ports: bool) -> Iterator[Said]:
    if _on(env, "NCCL_IB_DISABLE") and (
        env.get("NCCL_IB_HCA") or env.get("NCCL_NET", "").upper() == "IB"
    ):
        yield Said(
            "warn",
            "NCCL_IB_DISABLE is on, and NCCL_IB_HCA or NCCL_NET=IB asks for InfiniBand",
            "unset NCCL_IB_DISABLE",
        )
    elif ports and (
        _on(env, "NCCL_IB_DISABLE") or env.get("NCCL_NET", "").lower() == "socket"
    ):
        text = "NCCL_IB_DISABLE or NCCL_NET=Socket keeps NCCL from InfiniBand"
        yield Said("warn", text, "unset NCCL_IB_DISABLE NCCL_NET")
    if env.get("NCCL_P2P_LEVEL") and _on(env, "NCCL_P2P_DISABLE"):
        text = "NCCL_P2P_DISABLE makes NCCL_P2P_LEVEL void"
        yield Said("warn", text, "unset one of them")
    if env.get("NCCL_DEBUG_SUBSYS") and not env.get("NCCL_DEBUG"):
        text = "NCCL_DEBUG_SUBSYS says nothing without NCCL_DEBUG"
        yield Said("warn", text, "export NCCL_DEBUG=INFO, or unset NCCL_DEBUG_SUBSYS")


def _exponent(env: Mapping[str, str]) -> Iterator[Said]:
    number = _number(env.get("NCCL_IB_TIMEOUT", ""))
    if number is None or number <= _IB_EXPONENT_LONG:
        return
    meant = f"4.096 us x 2^{number:g}"
    text = f"NCCL_IB_TIMEOUT={number:g} is an exponent ({meant}), and no seconds"
    yield Said("warn", text, "unset NCCL_IB_TIMEOUT, or set 22")


def leftovers(readings: Readings) -> Iterator[Said]:
    """Switches for debugging that somebody forgot, each with its price."""
    env = readings.asked.environment
    for name, values, cost in _COSTLY:
        value = env.get(name, "")
        costly = value.lower() in values if values else _on(env, name)
        if costly:
            yield Said("warn", f"{name}={_shown(value)}: {cost}", f"unset {name}")


def timeouts(readings: Readings) -> Iterator[Said]:
    """Torch's own watchdog must wait longer than a collective may take.

    Else it aborts every rank before the time-out says which collective it was.
    """
    env, limit = readings.asked.environment, readings.asked.comm_timeout_s
    wait_s = _number(env.get(_HEARTBEAT, ""))
    longest_s = _TORCH_TIMEOUT_S if limit is None else limit
    monitored = env.get("TORCH_NCCL_ENABLE_MONITORING", "1").lower() not in _OFF
    if wait_s is not None and monitored and wait_s < longest_s:
        yield Said(
            "warn",
            f"{_HEARTBEAT}={wait_s:g} is less than the {longest_s:g} s that a "
            "collective may take",
            f"unset {_HEARTBEAT}: dsup sets it to --comm-timeout",
        )


def visible(readings: Readings) -> Iterator[Said]:
    """Which GPUs CUDA_VISIBLE_DEVICES leaves.

    A repeated entry makes CUDA refuse the list, an invalid one hides all that follow;
    -1 or nothing at the end is a habit. Bad is what leaves the ranks too few.
    """
    told = readings.asked.environment.get("CUDA_VISIBLE_DEVICES")
    gpus = readings.gpus or Gpus()
    if told is not None and gpus.cards:
        yield _shows(readings, gpus, told)


def _shows(readings: Readings, gpus: Gpus, told: str) -> Said:
    words = [entry.strip() for entry in told.split(",")]
    entries = list(takewhile(lambda word: word not in _ENDS, words))
    shown = f"CUDA_VISIBLE_DEVICES={_shown(told)}"
    order = "PCI_BUS_ID"  # how many there are does not hang on their order
    seen = visible_devices(gpus.cards, Access(0, told, order))
    if told.strip() in HIDDEN or not entries:
        return Said("warn", f"{shown} hides every GPU", "unset CUDA_VISIBLE_DEVICES")
    if len(set(entries)) < len(entries):
        fix = "name each GPU once; better by UUID: nvidia-smi -L"
        return Said("bad", f"{shown} names a GPU twice: CUDA shows none", fix)
    if not seen:
        fix = "unset CUDA_VISIBLE_DEVICES; nvidia-smi -L names them"
        return Said("bad", f"{shown} hides every GPU", fix)
    if len(seen) < len(entries) and not seen[0].mig:
        text = f"{shown}: entry {len(seen) + 1} is no GPU, and hides what follows"
        state: State = "bad" if len(seen) < (readings.asked.ranks or 0) else "warn"
        return Said(state, text, "nvidia-smi -L names them")
    if len(seen) < readings.ranks:
        text = f"{shown} shows {len(seen)} GPUs to {readings.ranks} ranks"
        return Said("warn", text, "start fewer ranks, or lengthen it")
    return Said("ok", f"{shown} shows {len(seen)} of {len(gpus.cards)} GPUs")


def gpus_and_ranks(readings: Readings) -> Iterator[Said]:
    """More ranks than GPUs: some share one, or find none."""
    count = len(readings.gpus.cards) if readings.gpus else 0
    if 0 < count < readings.ranks:
        text = f"{readings.ranks} ranks, and {count} GPU{'s' * (count != 1)}"
        yield Said("warn", text, f"--nproc {count}, or --nproc gpu")


def interfaces(readings: Readings) -> Iterator[Said]:
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME must name interfaces that there are.

    NCCL's are beginnings of names; ``=`` makes them whole names, ``^`` excludes. What
    begins with ``^`` can leave none but the loopback, and that is not looked at. Where
    the node has GPUs, NCCL's is needed, else Gloo's.
    """
    if readings.network is None or not readings.network.interfaces:
        return
    there = readings.network.interfaces
    cards = bool(readings.gpus and readings.gpus.cards)
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        told = readings.asked.environment.get(name, "")
        if not told or told.startswith("^"):
            continue
        exact = told.startswith("=") or name.startswith("GLOO")
        words = [w.strip().partition(":")[0] for w in told.lstrip("=").split(",")]
        found = [w for w in words if w and _is_there(w, there, exact=exact)]
        if not found:
            needed = cards == name.startswith("NCCL")
            yield Said(
                "bad" if needed else "warn",
                f"{name}={_shown(told)} names no interface of this node",
                f"unset {name}; it has {', '.join(there[:8])}",
            )


CHECKS: Final = (
    Check("gpus-and-ranks", "The job", gpus_and_ranks),
    Check("visible-devices", "The job", visible),
    Check("socket-interface", "The job", interfaces),
    Check("contradictions", "The job", contradictions),
    Check("debugging-left-on", "The job", leftovers),
    Check("timeouts", "The job", timeouts),
)


def _is_there(word: str, there: Sequence[str], *, exact: bool) -> bool:
    return any(name == word if exact else name.startswith(word) for name in there)


def _on(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").strip().lower() not in _OFF


def _shown(value: str) -> str:
    return printable(value)[:_VALUE_MAX_CHARS]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
