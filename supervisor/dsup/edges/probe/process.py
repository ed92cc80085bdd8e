"""The probe's side: a child of the agent's that asks NVML and never returns."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from dsup.edges.probe import protocol
from dsup.edges.probe.protocol import Frame
from dsup.facts.nvml import NO_LIBRARY, NO_MODULE
from dsup.linux import child, nvidia

LIBRARY: Final = "libnvidia-ml.so.1"
WAIT_S: Final = 1.0
"""What a wait for events takes at most."""

EVENTS_MAX: Final = 256
ALIKE_MAX: Final = 4
"""So many events, and so many of one kind of one GPU: some come by thousands."""


def run(control: socket.socket) -> NoReturn:
    """Be the probe; never return into the agent's code this process was forked from.

    Args:
        control: its end of the pair, the only way to the agent.
    """
    try:
        child.drop_descriptors({control.fileno()})
        # The agent's signals are blocked, and its garbage holds descriptors whose
        # numbers mean others here.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.freeze()
        if _has_library() or nvidia.is_present():
            _serve(control)
        else:
            nothing = Frame(protocol.FAILED, 0, b"%d" % NO_LIBRARY)
            control.send(protocol.encode(nothing))
    finally:
        os._exit(0)


def _serve(control: socket.socket) -> None:
    import json

    def send(kind: bytes, ident: int, told: Any = None) -> None:  # noqa: ANN401
        body = b"" if told is None else json.dumps(told).encode()
        control.send(protocol.encode(Frame(kind, ident, body)))

    source = _opened(send)
    while source and (raw := control.recv(protocol.FRAME_MAX_BYTES)):
        request = protocol.decode(raw)
        if request is not None:
            _answer(request, source, send)


def _opened(send: Callable[..., None]) -> Any:  # noqa: ANN401 (a Source)
    """Start NVML and tell of the GPUs; None where it cannot be asked."""
    from dsup.edges.probe.source import Source, without_nvml

    boards = without_nvml()
    if boards:
        send(protocol.BOARDS, 0, {"cards": boards})
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        send(protocol.FAILED, 0, NO_MODULE)
        return None
    source = Source(pynvml)
    try:
        cards = source.open()
    except pynvml.NVMLError as error:
        missing = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        send(protocol.FAILED, 0, NO_LIBRARY if missing else error.value)
        return None
    send(protocol.CARDS, 0, {"cards": cards, "versions": source.versions()})
    if source.watch():
        import threading

        threading.Thread(target=_tell_events, args=(source, send), daemon=True).start()
    return source


def _has_library() -> bool:
    """Return whether NVML is there; the module that calls it takes long to load."""
    load: Callable[..., object]
    try:
        import _ctypes

        load = _ctypes.dlopen
    except (AttributeError, ImportError):  # it is private, and may be gone one day
        import ctypes

        load = ctypes.CDLL
    try:
        load(LIBRARY, 0)
    except OSError:
        return False
    return True


def _answer(request: Frame, source: Any, send: Callable[..., None]) -> None:  # noqa: ANN401
    rows: Iterable[Any] = ()
    if request.kind == protocol.HEALTH:
        rows = source.health()
    elif request.kind == protocol.REST:
        rows = source.rest()
    elif request.kind == protocol.FITNESS:
        rows = source.fitness()
    elif request.kind == protocol.LOAD:
        rows = source.load()
    for row in rows:
        send(protocol.READING, request.ident, row)
    send(protocol.DONE, request.ident)


def _tell_events(source: Any, send: Callable[..., None]) -> None:  # noqa: ANN401
    """Tell of events as they come, until there can be no more."""
    seen: Counter[tuple[int, int, int]] = Counter()
    while seen.total() < EVENTS_MAX:
        try:
            event = source.wait(WAIT_S)
        except Exception:  # noqa: BLE001 (NVML's; the readings say what is wrong)
            return
        if event is None:
            continue
        kind = (event["number"], event["type"], event["data"])
        seen[kind] += 1
        if seen[kind] <= ALIKE_MAX:
            send(protocol.EVENT, 0, event)
