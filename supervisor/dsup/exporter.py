"""The exporter: a companion that asks the agent how it stands, and tells Prometheus.

It is a client of the control socket as any other, and the only part of dsup that
imports prometheus-client. A scrape asks once; the file is written every 15 s, and once
more when the run is over, from the document that the agent sends with its last word.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dsup import control_client
from dsup.core.address import Address
from dsup.core.errors import DsupError
from dsup.edges.companion import say
from dsup.report import metrics

ASK_S: Final = 5.0
EVERY_S: Final = 15.0
CONNECTIONS_MAX: Final = 16
REQUEST_S: Final = 5.0
"""What a client may take to ask, and again to take its answer."""

PREFIX: Final = "dsup_"
_LAST_MAX_BYTES: Final = 64 * 1024 * 1024


class Order(NamedTuple):
    """What is wanted of an exporter.

    Attributes:
        run: what the run is known by.
        control: path of the agent's control socket.
        listen: where to serve metrics; None for nowhere.
        file: path of the file to write; empty for none.
    """

    run: str
    control: str
    listen: Address | None
    file: str


class Current(Collector):
    """The metrics of this moment.

    Args:
        run: what the run is known by.
        ask: returns the status document, empty where the agent cannot be asked.
    """

    def __init__(self, run: str, ask: Callable[[], Mapping[str, Any]]) -> None:
        self._run = run
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        """Yield what prometheus-client writes down."""
        for family in metrics.families(self._ask(), self._run):
            labels = [name for name, _ in family.samples[0][0]]
            counts = family.kind == "counter"
            cls = CounterMetricFamily if counts else GaugeMetricFamily
            told = cls(f"{PREFIX}{family.name}", family.help, labels=labels)
            for values, value in family.samples:
                told.add_metric([label for _, label in values], value)
            yield told


def run(order: Order, pair: socket.socket) -> None:
    """Be the exporter until the agent says that the run is over, or is gone.

    Args:
        order: what is wanted.
        pair: the agent's other end is the only one that this listens to.
    """
    teller = _Teller(pair)
    registry = CollectorRegistry()
    registry.register(Current(order.run, lambda: _asked(order.control)))
    due_s, serving = time.monotonic(), order.listen is None
    # One that is started for the last word has it before anything else.
    said = _heard(pair, due_s)
    while said is None:
        if not serving and order.listen:
            serving = _serve(order.listen, registry, teller)
        if order.file:
            _write(order.file, registry, teller)
        due_s = max(due_s + EVERY_S, time.monotonic())
        said = _heard(pair, due_s if order.file or not serving else None)
    if order.file:
        last = CollectorRegistry()
        last.register(Current(order.run, lambda: said))
        _write(order.file, last, teller)


class _Teller:
    """Tells the agent of trouble, of each kind once."""

    def __init__(self, pair: socket.socket) -> None:
        self._pair = pair
        self._told: set[str] = set()

    def tell(self, text: str) -> None:
        """Have the agent warn of it, if that is new."""
        if text not in self._told:
            self._told.add(text)
            say(self._pair, text)


def _asked(control: str) -> Mapping[str, Any]:
    try:
        return control_client.ask(control, {"ask": "status"}, ASK_S)
    except DsupError:
        return {}


def _heard(pair: socket.socket, due_s: float | None) -> Mapping[str, Any] | None:
    """Wait until it is time; return the last document, None while there is more to do.

    Args:
        pair: where the agent's last word comes from.
        due_s: when it is time, agent clock, seconds; None for never.
    """
    wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
    if not select.select([pair], [], [], wait_s)[0]:
        return None
    message, fds, _, _ = socket.recv_fds(pair, 64, 1)
    if not message or not fds:
        return {}
    with contextlib.suppress(ValueError):
        told = json.loads(os.pread(fds[0], _LAST_MAX_BYTES, 0))
        return told if isinstance(told, dict) else {}
    return {}


class _Handler(WSGIRequestHandler):
    """One connection, quiet."""

    def parse_request(self) -> bool:
        """Note that the client has asked."""
        asked = super().parse_request()
        if asked and isinstance(self.server, _Server):
            self.server.has_asked(self.connection)
        return asked

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401
        """Say nothing: there is nobody to read it."""


class _Client(NamedTuple):
    until_s: float
    asked: bool


class _Server(ThreadingMixIn, WSGIServer):
    """Serves a few at a time, each with a deadline; no client keeps another one out."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, family: int, where: tuple[Any, ...]) -> None:
        self.address_family = family
        self._lock = threading.Lock()
        self._clients: dict[Any, _Client] = {}
        super().__init__(where[:2], _Handler)

    def server_bind(self) -> None:
        """Bind, without asking a name server who this is."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "dsup", self.server_address[1]
        self.setup_environ()

    def serve(self) -> None:
        """Serve whoever comes, for ever."""
        while True:
            with self._lock:
                dues = [client.until_s for client in self._clients.values()]
            now_s = time.monotonic()
            self.timeout = max(0.0, min(dues) - now_s) if dues else None
            self.handle_request()
            with self._lock:
                for request, client in tuple(self._clients.items()):
                    if time.monotonic() >= client.until_s:
                        self._hang_up(request)

    def has_asked(self, request: Any) -> None:  # noqa: ANN401
        """Give the answer its own time: the agent may take a while."""
        with self._lock:
            if request in self._clients:
                until_s = time.monotonic() + ASK_S + REQUEST_S
                self._clients[request] = _Client(until_s, asked=True)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve one more; if there are too many, the oldest that is silent goes."""
        with self._lock:
            if len(self._clients) >= CONNECTIONS_MAX:
                clients = self._clients.items()
                silent = (one for one, client in clients if not client.asked)
                self._hang_up(next(silent, request))
            until_s = time.monotonic() + REQUEST_S
            self._clients[request] = _Client(until_s, asked=False)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Close a connection, which means another one as soon as that is done."""
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def _hang_up(self, request: Any) -> None:  # noqa: ANN401
        """Let whoever reads from it, or writes, meet the end."""
        self._clients.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing: who hung up knows."""


def _serve(listen: Address, registry: CollectorRegistry, teller: _Teller) -> bool:
    """Begin to serve; return whether that went well."""
    try:
        flags, kind = socket.AI_PASSIVE, socket.SOCK_STREAM
        found = socket.getaddrinfo(listen.host, listen.port, type=kind, flags=flags)
        server = _Server(found[0][0], found[0][4])
    except OSError as error:
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        reason = str(error.strerror or error).lower()
        teller.tell(
            f"cannot serve metrics on {host}:{listen.port}, because {reason} (tried "
            f"again every {EVERY_S:.0f} s; the run goes on)"
        )
        return False
    server.set_app(make_wsgi_app(registry))
    threading.Thread(target=server.serve, daemon=True).start()
    return True


def _write(path: str, registry: CollectorRegistry, teller: _Teller) -> None:
    """Write the file so that who reads it sees all of it or what was there before."""
    directory, name = os.path.split(path)
    half = os.path.join(directory, f".{name}.{os.getpid()}")
    try:
        fd = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with open(fd, "wb") as file:
            os.fchmod(fd, 0o644)
            file.write(generate_latest(registry))
        os.replace(half, path)
    except OSError as error:
        reason = str(error.strerror or error).lower()
        teller.tell(f"cannot write metrics into {path}, because {reason}")
        with contextlib.suppress(OSError):
            os.unlink(half)
