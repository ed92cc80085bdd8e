"""MASTER_PORT of an attempt: bound and held, so that nobody else can be given it."""

from __future__ import annotations

import errno
import os
import socket

from dsup.core.errors import SpecError
from dsup.linux import proc


def hold(port: int = 0) -> socket.socket:
    """Return a socket bound to a port, not listening.

    With SO_REUSEADDR on both sides rank 0's store can still listen on it.

    Args:
        port: 0 lets the kernel choose.

    Raises:
        SpecError: if the port is taken; names the holder where that can be seen.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("", port))
    except OSError as error:
        held.close()
        taken = error.errno == errno.EADDRINUSE and port
        reason = f"{_holder(port)} holds it" if taken else str(error.strerror).lower()
        message = f"cannot use port {port} for the ranks, because {reason}"
        raise SpecError(f"{message} (give another --master-port, or none)") from None
    return held


def number(held: socket.socket) -> int:
    """Return the port a socket is bound to."""
    return int(held.getsockname()[1])


def _holder(port: int) -> str:
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted & _sockets(int(name)):
            found = proc.stat(int(name))
            return f"{found.comm if found else 'a process'} (pid {name})"
    return "a process of another user or container"


def _inodes(port: int) -> list[str]:
    """Return the inodes of the sockets bound to a port that the tables list."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in proc.read_text(table).splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                found.append(fields[9])
    return found


def _sockets(pid: int) -> set[str]:
    links = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            links.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        return links
    return links
