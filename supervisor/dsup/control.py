"""What is done for those who ask through the control socket: the status, and a stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dsup.core import events as ev
from dsup.core.exits import SIGINT
from dsup.edges import control as edge

if TYPE_CHECKING:
    from dsup.present import Present


class Control:
    """Answers requests.

    Args:
        watcher: calls back when somebody asks.
        present: knows how the run stands.
        post: takes the event that a stop is.
    """

    def __init__(
        self,
        watcher: edge.Watcher,
        present: Present,
        post: Callable[[ev.Event], None],
    ) -> None:
        self._present = present
        self._post = post
        self._told: Mapping[str, Any] | None = None
        self._reply = edge.Reply(b"")
        self._listener = edge.Listener(watcher, self._answer)

    @property
    def where(self) -> str:
        """Path of the socket; empty for none."""
        return self._listener.where

    @property
    def due_s(self) -> float:
        """When ``look`` is due, agent clock, seconds."""
        return self._listener.due_s

    def open(self, run_dir: str) -> str:
        """Begin to listen; return why that is not possible, empty if it is."""
        return self._listener.open(run_dir)

    def look(self, now_s: float) -> None:
        """Do what has become due.

        Args:
            now_s: agent clock, seconds.
        """
        self._listener.expire(now_s)

    def _answer(self, request: bytes, peer: edge.Peer) -> edge.Reply:
        import json

        try:
            asked = json.loads(request)
        except (ValueError, RecursionError):
            return edge.refusal("it is no JSON")
        match asked:
            case {"ask": "status"}:
                return self._status()
            case {"ask": "stop", "now": bool(now)}:
                return self._stop(peer, now=now)
            case {"ask": "stop", **rest} if "now" not in rest:
                return self._stop(peer, now=False)
            case _:
                return edge.refusal('it asks neither for "status" nor for "stop"')

    def _status(self) -> edge.Reply:
        """Return the status, the same memory file to all who ask within a moment."""
        told = self._present.document()
        if told is not self._told:
            self._forget()
            import json

            data = json.dumps(told, allow_nan=False).encode()
            try:
                fd = edge.sealed(data)
            except OSError:
                return edge.refusal("no memory or no descriptor is left for it")
            head = json.dumps({"ok": True, "bytes": len(data)}).encode()
            self._told, self._reply = told, edge.Reply(head, fd)
        return self._reply

    def _forget(self) -> None:
        if self._reply.fd >= 0:
            os.close(self._reply.fd)
        self._told, self._reply = None, edge.Reply(b"")

    def _stop(self, peer: edge.Peer, *, now: bool) -> edge.Reply:
        now_s = time.monotonic()
        self._post(
            ev.Signalled("signalled", now_s, SIGINT, peer.pid, peer.uid, now=now)
        )
        return edge.Reply(b'{"ok": true, "bytes": 0}')
