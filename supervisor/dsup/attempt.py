"""What the agent holds for one attempt: port, heartbeat page, TMPDIR, checkpoint."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from dsup import shortage
from dsup.core import environment
from dsup.core import events as ev
from dsup.core.enter import PREPARE_S
from dsup.core.errors import SpecError
from dsup.core.exits import WRONG_CALL
from dsup.core.job import Job
from dsup.core.plan import restarts_in_force
from dsup.edges import port, preparation
from dsup.edges.aide import Aides
from dsup.edges.group import NOTES_FD, PAGE_FD, STACKS_FD, Rank
from dsup.edges.heartbeats import Page
from dsup.edges.rank_cgroups import RankCgroups
from dsup.linux.guardian import Will
from dsup.pages import page_of
from dsup.report.console import View
from dsup.resumption import Resumption
from dsup_runtime import contract

REMOVE_S: Final = 5.0
OOM_SCORE: Final = "DSUP_RANK_OOM_SCORE"
"""The variable that says the ranks' oom_score_adj."""


class Desk(Protocol):
    """What an attempt needs of the recorder."""

    def warn(self, text: str) -> None:
        """Print a line of dsup's own that the quiet are to see, too."""

    def prepare_directories(self, attempt: int) -> None:
        """Have an attempt's directories made; answered by ``on_directories``."""

    def save(self, name: str, fd: int) -> None:
        """Copy a descriptor's content into the run directory."""

    def close_streams(self, attempt: int) -> None:
        """Let an attempt's pipes go."""

    will: Will
    """What the guard does if the agent is killed."""


class Attempt:
    """The resources of the attempt at hand; prepared, used, closed, prepared again.

    Args:
        job: what to do.
        aides: do what may block.
        desk: gets things written.
        post: takes the events that come of it.

    Attributes:
        page: the heartbeat page; None before it is prepared and after it is closed.
        last_page: the page that was closed last, as it was; empty before.
        tmp_dir: its TMPDIR; empty before it is prepared and after it is closed.
        cgroups: those of the ranks.
    """

    def __init__(
        self, job: Job, aides: Aides, desk: Desk, post: Callable[[ev.Event], None]
    ) -> None:
        self._job = job
        self._aides = aides
        self._desk = desk
        self._post = post
        self._resumption = Resumption(job, aides, desk.warn)
        self._number = 0
        self._awaited: set[str] = set()
        self.tmp_dir = ""
        self._held: socket.socket | None = None
        self._store_pid = 0
        self._pids: dict[int, int] = {}
        self.page: Page | None = None
        self.last_page = b""
        self.cgroups = RankCgroups(desk.will, aides.start, desk.warn, job.rank_cgroups)

    @property
    def helpers(self) -> set[int]:
        """Pids of processes of dsup's own that serve the attempt."""
        return {self._store_pid} - {0}

    def view(self) -> View:
        """Return what the console's lines need to know."""
        return View(self._job, self._pids, self._resumption.found.path)

    def add(self, rank: Rank) -> None:
        """Note a rank that has been started."""
        self._pids[rank.rank] = rank.pid

    def prepare(self, number: int) -> None:
        """Get an attempt ready; ``Prepared`` or ``Cannot`` follows."""
        self._number = number
        self._pids = {}
        self.tmp_dir = preparation.temporary_name(self._job.tmp_parent)
        self._desk.will.tmp_dir = self.tmp_dir
        if number == 0:
            self._prepare_first()
            return
        self._awaited = {"directories", "disk"}
        self._desk.prepare_directories(number)
        work = partial(preparation.prepare, self._job.argv[0], self.tmp_dir)
        self._aides.start(work, _soon(PREPARE_S), partial(self._on_disk, number))

    def on_directories(self, number: int, error: str | None) -> None:
        """Take the scribe's word on an attempt's directories; logs are no condition."""
        if error:
            self._desk.warn(
                f"cannot keep the logs of attempt {number}, because {error}"
            )
        self._arrived(number, "directories", "")

    def scan(self) -> None:
        """Look for the newest valid checkpoint; ``Scanned`` follows."""
        self._resumption.search(self._on_scanned)

    def environments(self) -> Iterator[dict[str, str]]:
        """Yield the environment of each rank."""
        shared = self._shared()
        for rank in range(self._job.spec.world_size):
            yield environment.for_rank(self._job.environment, shared, rank)

    def start_store(self) -> None:
        """Start the store aide, if the job wants one; it ends with the attempt.

        Raises:
            OSError: if it cannot be started.
        """
        if self._job.agent_store and self._held:
            from dsup.edges import store

            job = self._job
            self._store_pid = store.start(
                job.store_python, self._held, job.environment, job.spec.world_size
            )

    def store_ended(self) -> bool:
        """Return whether the store aide has ended by itself."""
        if not self._store_pid:
            return False
        pid, _ = os.waitpid(self._store_pid, os.WNOHANG)
        if pid:
            self._store_pid = 0
        return bool(pid)

    def step(self) -> int | None:
        """Return the last step that all ranks finished, as far as they tell."""
        return self.page.step() if self.page else None

    def close(self, *, keep_tmp: bool) -> None:
        """Keep the heartbeat page and let everything else go.

        Args:
            keep_tmp: helpers that were spared may still use the TMPDIR.
        """
        self._awaited = set()
        if self.page:
            self.last_page = self.page.copy()
            self._keep(self.page)
            self.page.close()
            self.page = None
        if self._held:
            self._held.close()
            self._held = None
        if self._store_pid:
            self._aides.bury(self._store_pid)
            self._store_pid = 0
        if self.tmp_dir and not keep_tmp:
            work = partial(preparation.remove, self.tmp_dir)
            done = partial(self._on_removed, self.tmp_dir)
            self._aides.start(work, _soon(REMOVE_S), done, lasting=True)
        self.tmp_dir = ""
        self._desk.will.tmp_dir = ""
        self.cgroups.close()
        self._desk.close_streams(self._number)

    def _keep(self, page: Page) -> None:
        """Have a heartbeat page on disk."""
        attempt_dir = contract.attempt_dir("", self._number)
        name = f"{attempt_dir}/{contract.HEARTBEATS_FILE}"
        try:
            self._desk.save(name, page.kept_fd)
        except OSError as error:
            reason = str(error.strerror).lower()
            self._desk.warn(f"cannot keep {name}, because {reason}")

    def _prepare_first(self) -> None:
        """Prepare attempt 0: no rank runs yet, so the agent may touch the disk."""
        size = self._job.spec.world_size
        try:
            preparation.make_directories(self._job.run_dir, 0, size)
            os.mkdir(self.tmp_dir, 0o700)
        except OSError as error:
            self._cannot("storage_io", f"cannot make directories, because {error}")
            return
        self._awaited = {"checkpoint"}
        self._resumption.search(partial(self._arrived, 0, "checkpoint", ""))

    def _on_disk(self, number: int, answer: bytes) -> None:
        if error := self._aides.refusal:
            self._refused(error)
            return
        self._arrived(number, "disk", preparation.decode(answer).error)

    def _on_removed(self, tmp_dir: str, answer: bytes) -> None:
        if answer != preparation.REMOVED:
            error = self._aides.refusal
            why = f", because {str(error.strerror).lower()}" if error else " in time"
            self._desk.warn(f"cannot remove all of {tmp_dir}{why}: remove it by hand")

    def _on_scanned(self) -> None:
        now_s, found = time.monotonic(), self._resumption.found
        known = self._number, found.step, found.path, found.error
        self._post(ev.Scanned("scanned", now_s, *known))

    def _arrived(self, number: int, what: str, error: str) -> None:
        if number != self._number or what not in self._awaited:
            return  # of an attempt that was stopped meanwhile
        self._awaited.discard(what)
        if error:
            self._awaited = set()
            self._cannot("storage_io", f"cannot prepare the attempt, because {error}")
        elif not self._awaited:
            self._ready()

    def _ready(self) -> None:
        found, obstacle = self._resumption.found, self._resumption.obstacle
        if obstacle and found.refused and self._number == 0:
            self._cannot("config_error", obstacle, WRONG_CALL)
            return
        if obstacle:
            self._cannot(self._resumption.cause, obstacle)
            return
        known = self._job, self._number
        try:
            self._held = port.hold(self._job.master_port)
            self.page = page_of(*known, self._aides.watcher, self._desk.warn)
        except SpecError as error:
            self._cannot("port_in_use", str(error))
            return
        except OSError as error:
            self._refused(error)
            return
        now_s, chosen = time.monotonic(), port.number(self._held)
        self._post(ev.Prepared("prepared", now_s, self._number, chosen, found.path))

    def _refused(self, error: OSError) -> None:
        """Give the attempt up: the kernel has not what it needs."""
        self._awaited = set()
        self._cannot(*shortage.told("prepare the attempt", error))

    def _cannot(self, cause: str, reason: str, code: int = 1) -> None:
        now_s = time.monotonic()
        self._post(ev.Cannot("cannot", now_s, self._number, cause, code, reason))

    def _shared(self) -> environment.Shared:
        job = self._job
        carrier = self.page.carrier if self.page else None
        return environment.Shared(
            run_id=job.run_id,
            run_dir=job.run_dir,
            attempt=self._number,
            world_size=job.spec.world_size,
            max_restarts=restarts_in_force(job.spec.policy),
            port=port.number(self._held) if self._held else 0,
            agent_store=job.agent_store,
            tmp_dir=self.tmp_dir,
            inductor_cache=job.inductor_cache,
            heartbeat=carrier.where if carrier else f"fd:{PAGE_FD}",
            notes_fd=NOTES_FD,
            agent_pid=os.getpid(),
            resume_from=self._resumption.found.path,
            grace_s=job.spec.grace_s,
            comm_timeout_s=job.comm_timeout_s,
            error_files=job.rank_logs,
            faulthandler=job.faulthandler,
            choices=job.choices,
            heartbeat_token=carrier.token if carrier else "",
            stacks_fd=STACKS_FD,
        )


def _soon(limit_s: float) -> float:
    return time.monotonic() + limit_s
