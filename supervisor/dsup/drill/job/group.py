"""Ranks that meet at every step, over connections of this machine.

As with any collective, whoever loses one of the others fails: rank 0 keeps the roll, so
a rank that ends takes rank 0 along, and rank 0 all that are left.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup_runtime.worker_info import Info

GO_ON: Final = b"."
FINISH: Final = b"!"

_HOST: Final = "127.0.0.1"
_AGAIN_S: Final = 0.01


class Group:
    """All ranks of the drill, as one of them sees them.

    Args:
        own: who this rank is.
    """

    def __init__(self, own: Info) -> None:
        self._rank = own.rank
        self._peers: dict[int, socket.socket] = {}
        place = _HOST, int(contract.variable("MASTER_PORT"))
        if own.rank:
            self._peers[0] = _joined(place, own.rank)
        else:
            self._gather(place, own.world_size)

    def meet(self, word: bytes) -> bytes:
        """Wait for all others; return the word of rank 0.

        Raises:
            ConnectionError: another rank has gone.
        """
        if self._rank:
            self._send(0, GO_ON)
            return self._hear(0)
        for rank in self._peers:
            self._hear(rank)
        for rank in self._peers:
            self._send(rank, word)
        return word

    def _gather(self, place: tuple[str, int], size: int) -> None:
        with socket.create_server(place, backlog=size) as listener:
            while len(self._peers) < size - 1:
                peer = listener.accept()[0]
                self._peers[int.from_bytes(peer.recv(2), "big")] = peer

    def _send(self, rank: int, word: bytes) -> None:
        try:
            self._peers[rank].sendall(word)
        except OSError as error:
            raise self._lost(rank) from error

    def _hear(self, rank: int) -> bytes:
        try:
            word = self._peers[rank].recv(1)
        except OSError as error:
            raise self._lost(rank) from error
        if not word:
            raise self._lost(rank)
        return word

    def _lost(self, rank: int) -> ConnectionError:
        return ConnectionResetError(
            f"rank {self._rank} cannot go on, because rank {rank} closed the connection"
        )


def _joined(place: tuple[str, int], rank: int) -> socket.socket:
    """Return the connection to rank 0, which may not listen yet."""
    pause = threading.Event()
    while True:
        try:
            peer = socket.create_connection(place)
        except ConnectionRefusedError:
            pause.wait(_AGAIN_S)
        else:
            peer.sendall(rank.to_bytes(2, "big"))
            return peer
