"""The control socket: one request, one answer, and nobody is waited for.

A request is a datagram. The answer is a short one, and what does not fit into it comes
as a sealed memory file, so that the agent never has the half of an answer left to
write. Who connects is known by the kernel's word: only the user who runs dsup, and
root, are answered.

Where the run directory lies on a network, or cannot hold a socket, another place on
this node is found for it. A path too long for a socket is reached through a descriptor
of its directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

from dsup.core.state import NEVER
from dsup.linux import proc
from dsup_runtime import contract

REQUEST_MAX_BYTES: Final = 4096
REQUESTS_MAX: Final = 16
"""So many who connect are met in one turn of the loop."""

SILENT_MAX: Final = 8
"""So many may have connected and not asked; one more takes the oldest's place."""

SILENT_S: Final = 2.0
ELSEWHERE: Final = ("/run/user/{}", "/var/tmp/dsup-{}")  # noqa: S108 (own ones only)
"""Where a socket is made that its run directory cannot hold, by user id."""

_MADE_BY_DSUP: Final = "/var/tmp/"  # noqa: S108 (its owner is checked)
_BACKLOG: Final = 64
_RETRY_S: Final = 1.0
_PATH_MAX_BYTES: Final = 107
_NAME_MAX_BYTES: Final = 200
_PEER: Final = struct.Struct("=iii")
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_REMOTE: Final = frozenset(
    "9p afs beegfs ceph cifs davfs gfs2 glusterfs gpfs lustre nfs nfs4 ocfs2 orangefs "  # noqa: SIM905
    "panfs pvfs2 smb3 virtiofs wekafs".split()
)


class Watcher(Protocol):
    """What is needed of the agent's loop."""

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call the handler whenever the descriptor is ready."""

    def unwatch(self, fd: int) -> None:
        """Forget the descriptor."""


class Peer(NamedTuple):
    """Who asks."""

    pid: int
    uid: int


class Reply(NamedTuple):
    """An answer.

    Attributes:
        head: the datagram.
        fd: a file that goes with it, and stays the answerer's; -1 for none.
    """

    head: bytes
    fd: int = -1


class _Silent(NamedTuple):
    """One who has connected and has not asked yet."""

    connection: socket.socket
    peer: Peer
    since_s: float


class Listener:
    """Listens for those who ask.

    Args:
        watcher: calls back when somebody connects, or speaks.
        answer: returns the answer to a request.
        silent_s: so long one who has connected may take to ask, seconds.

    Attributes:
        where: path of the socket; empty while there is none.
    """

    def __init__(
        self,
        watcher: Watcher,
        answer: Callable[[bytes, Peer], Reply],
        silent_s: float = SILENT_S,
    ) -> None:
        self.where = ""
        self._silent_s = silent_s
        self._watcher = watcher
        self._answer = answer
        self._socket: socket.socket | None = None
        self._retry_s = NEVER
        self._silent: dict[int, _Silent] = {}

    @property
    def due_s(self) -> float:
        """When ``expire`` is due, agent clock, seconds."""
        first_s = min((one.since_s for one in self._silent.values()), default=NEVER)
        return min(first_s + self._silent_s, self._retry_s)

    def open(self, run_dir: str, elsewhere: Iterable[str] = ELSEWHERE) -> str:
        """Begin to listen; return why that is not possible, empty if it is.

        Args:
            run_dir: the run directory.
            elsewhere: directories where it may be that a run directory cannot hold it.
        """
        reason = "there is no directory for it"
        for directory, name in _places(run_dir, elsewhere):
            try:
                self._socket = _listening(directory, name)
            except OSError as error:
                reason = str(error.strerror or error).lower()
                continue
            self.where = os.path.join(directory, name)
            self._watcher.watch(self._socket.fileno(), self._accept)
            return ""
        return reason

    def expire(self, now_s: float) -> None:
        """Hang up on those who do not speak, and listen again after a shortage.

        Args:
            now_s: agent clock, seconds.
        """
        for one in tuple(self._silent.values()):
            if one.since_s + self._silent_s <= now_s:
                self._drop(one)
        if self._retry_s <= now_s and self._socket:
            self._retry_s = NEVER
            self._watcher.watch(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Hang up on everybody; the socket's name stays, for the scribe to remove."""
        for one in tuple(self._silent.values()):
            self._drop(one)
        if self._socket:
            self._watcher.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _accept(self) -> None:
        for _ in range(REQUESTS_MAX):
            if self._socket is None:
                return
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if error.errno in _NO_ROOM:
                    # It stays ready, and the loop would turn without an end.
                    self._watcher.unwatch(self._socket.fileno())
                    self._retry_s = time.monotonic() + _RETRY_S
                return
            connection.setblocking(False)
            self._meet(connection)

    def _meet(self, connection: socket.socket) -> None:
        level, option = socket.SOL_SOCKET, socket.SO_PEERCRED
        pid, uid, _ = _PEER.unpack(connection.getsockopt(level, option, _PEER.size))
        one = _Silent(connection, Peer(pid, uid), time.monotonic())
        if uid not in (0, os.geteuid()):
            with contextlib.suppress(OSError):  # unread, it would be a reset there
                connection.recv(REQUEST_MAX_BYTES)
            _send(
                connection,
                refusal(
                    f"this run is of user id "
                    f"{os.geteuid()} (ask as that user, or as root)"
                ),
            )
            connection.close()
        elif not self._hear(one):
            if len(self._silent) >= SILENT_MAX:
                self._drop(next(iter(self._silent.values())))
            fd = connection.fileno()
            self._silent[fd] = one
            self._watcher.watch(fd, partial(self._hear_again, one))

    def _hear_again(self, one: _Silent) -> None:
        self._hear(one)

    def _hear(self, one: _Silent) -> bool:
        """Answer one who has asked; return whether there is nothing left to be done."""
        try:
            request = one.connection.recv(REQUEST_MAX_BYTES + 1)
        except BlockingIOError:
            return False
        except OSError:
            request = b""
        if len(request) > REQUEST_MAX_BYTES:
            _send(one.connection, refusal("it is too long"))
        elif request:
            _send(one.connection, self._answer(request, one.peer))
        self._drop(one)
        return True

    def _drop(self, one: _Silent) -> None:
        fd = one.connection.fileno()
        if self._silent.pop(fd, None):
            self._watcher.unwatch(fd)
        one.connection.close()


def refusal(reason: str) -> Reply:
    """Return the answer to a request that cannot be granted."""
    import json

    told = {"error": f"cannot answer the request, because {reason}"}
    return Reply(json.dumps(told).encode())


def sealed(data: bytes) -> int:
    """Return a descriptor of a memory file that nobody can change.

    Raises:
        OSError: there is no memory, or no descriptor, left.
    """
    import fcntl

    fd = os.memfd_create("dsup-answer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(fd, data)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_WRITE)
    except OSError:
        os.close(fd)
        raise
    return fd


def _send(connection: socket.socket, reply: Reply) -> None:
    """Send an answer; one who does not take it goes without."""
    passed = []
    if reply.fd >= 0:
        passed.append(
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", reply.fd))
        )
    with contextlib.suppress(OSError):
        connection.sendmsg([reply.head], passed, _SEND)


def _listening(directory: str, name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    held = -1
    try:
        path = os.path.join(directory, name)
        if len(os.fsencode(path)) > _PATH_MAX_BYTES:
            held = os.open(directory, _DIRECTORY)
            path = f"/proc/self/fd/{held}/{name}"
        made.bind(path)
        made.setblocking(False)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    finally:
        if held >= 0:
            os.close(held)
    return made


def _places(run_dir: str, elsewhere: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield directories for the socket, and its name there, the best first."""
    if not _is_remote(run_dir):
        yield run_dir, contract.CONTROL_SOCKET
    user = os.geteuid()
    name = os.fsdecode(os.fsencode(os.path.basename(run_dir))[:_NAME_MAX_BYTES])
    for place in elsewhere:
        directory = place.format(user)
        if place.startswith(_MADE_BY_DSUP):
            with contextlib.suppress(OSError):
                os.mkdir(directory, 0o700)
        if _is_own(directory, user):
            yield directory, f"dsup-{name}.sock"


def _is_own(directory: str, user: int) -> bool:
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user


def _is_remote(path: str) -> bool:
    """Return whether a path is on a file system that other nodes see, too."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return True  # it is not there, or not to be had
    if os.major(device):
        return False  # a disk of this node
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in proc.read_text("/proc/self/mountinfo").splitlines():
        fields = line.split()
        if fields[2] == wanted and "-" in fields:
            kind = fields[fields.index("-") + 1]
            return kind in _REMOTE or kind.startswith("fuse")
    return False
