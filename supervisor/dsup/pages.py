"""The heartbeat page of an attempt, and what carries it to ranks that inherit none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dsup.edges.heartbeats import Carrier, Page
from dsup_runtime import contract

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.core.job import Job
    from dsup.edges.aide import Watcher


def page_of(
    job: Job, attempt: int, watcher: Watcher, warn: Callable[[str], None]
) -> Page:
    """Make an attempt's page; where nothing can carry it, people are told.

    Args:
        job: says how heartbeats come.
        attempt: its number.
        watcher: of what comes over a port.
        warn: prints a line.
    """
    page = Page(attempt, job.spec.world_size)
    try:
        if job.heartbeat == "file":
            page.carry(partial(_file, job, attempt))
        elif job.heartbeat != "page":
            page.carry(partial(_port, watcher, warn))
    except OSError as error:
        reason = str(error.strerror).lower()
        warn(
            f"cannot have heartbeats by {job.heartbeat} in attempt {attempt}, because "
            f"{reason} (ranks that inherit descriptors report all the same)"
        )
    return page


def _file(job: Job, attempt: int, image: bytes) -> Carrier:
    from dsup.edges.heartbeat_file import FileCarrier

    attempt_dir = contract.attempt_dir(job.run_dir, attempt)
    path = f"{attempt_dir}/{contract.HEARTBEATS_FILE}"
    return FileCarrier(path, 0o600 if job.private else 0o666, image)


def _port(watcher: Watcher, warn: Callable[[str], None], image: bytes) -> Carrier:
    from dsup.edges.heartbeat_tcp import TcpCarrier

    return TcpCarrier(watcher, warn, image)
