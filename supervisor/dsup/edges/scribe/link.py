"""The agent's side of the scribe: what is to be written is handed over, not waited for.

The agent keeps the read ends of all rank pipes, so a scribe that dies or falls silent
is replaced by another that inherits them: no rank sees EPIPE. Two never run at once. A
scribe that cannot even be killed hangs on the disk, as a second one would; until it
ends, and when scribes die faster than they may be started, the ranks' output is
thrown away, so that no rank waits.
"""

from __future__ import annotations

import fcntl
import os
import select
from math import inf
from typing import TYPE_CHECKING

from dsup.edges.scribe.child import FIRST_FREE_FD, Child
from dsup.edges.scribe.held import Held
from dsup.edges.scribe.outbox import Budget, Outbox
from dsup.edges.scribe.protocol import KEEP, TEXT_MAX_BYTES, Message, fitting
from dsup.edges.scribe.reports import Ended, Lost, Prepared, Report, Tails
from dsup.edges.scribe.spill import Spill, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.core.output import Tone
    from dsup.edges.scribe.protocol import Settings

SILENCE_S = 5.0
PING_S = 5.0
LOOK_S = 1.0
"""How often pipes are looked at: where something waits, the scribe must answer."""
PATIENCE_S = 1.0
"""How long it may not answer before pipes that are nearly full are given room."""
RELIEF_S = 0.05
DYING_S = 1.0
"""How long a killed scribe may take to end before output is thrown away."""
REPLACEMENTS = 5
PERIOD_S = 60.0
FORK_RETRY_S = 1.0
END_S = 10.0
NOT_AGAIN = ("open", "page", "append", "ping", "status")


class Scribe:
    """Gets things written by a process of its own.

    The agent watches ``fd`` for reading and calls ``on_ready``, and calls ``on_tick``
    at ``deadline()``; both return what is news. All else may be called at any time,
    also before ``start``, and never blocks.

    Attributes:
        fd: one descriptor for the agent's epoll, the same for the whole run.
    """

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        self._outbox = Outbox()
        self._budget = Budget(1 + REPLACEMENTS, PERIOD_S)
        self._held = Held()
        self._spill = Spill(self._epoll)
        self._child: Child | None = None
        self._heard_at = inf
        self._look_at = inf
        self._start_at = inf
        self._killed_at = inf
        self._end_by = inf
        self._reports: list[Report] = []

    @property
    def pid(self) -> int | None:
        """Return the scribe's process id, None while there is none.

        It is this object that reaps it; a status taken elsewhere is not missed.
        """
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Fork the scribe; if that fails, ``on_tick`` tries again."""
        now_s = self._now()
        try:
            self._child = Child(self._settings, self._held, self._now, self._epoll)
        except OSError:
            self._start_at = now_s + FORK_RETRY_S
            self._spill.begin(self._held.read_ends())
            return
        self._budget.spend(now_s)
        self._heard_at, self._start_at, self._killed_at = now_s, inf, inf
        self._look_at = now_s + LOOK_S
        refused = self._outbox.refused
        # What is held is inherited; only what happens to it later has to be told.
        self._outbox.restart(lambda message: message.kind in NOT_AGAIN, now_s)
        self._own_up(refused, self._spill.end())
        self._flush()

    def open_streams(
        self, attempt: int, local_rank: int, out_fd: int, err_fd: int
    ) -> None:
        """Have a rank's output read; the read ends are this object's from now on."""
        for fd in (out_fd, err_fd):
            os.set_blocking(fd, False)
        self._held.streams[attempt, local_rank] = (out_fd, err_fd)
        if self._spill.active:
            self._spill.begin((out_fd, err_fd))
        if self._child:
            self._put(Message("open", attempt, local_rank, fds=(out_fd, err_fd)))

    def keep_page(self, attempt: int, fd: int) -> None:
        """Have an attempt's heartbeat page on disk, whatever becomes of the agent.

        Args:
            attempt: whose page it is; with its streams it is let go.
            fd: the page's memory; the caller may close it at once.

        Raises:
            OSError: there is no descriptor left to keep it by.
        """
        kept = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
        self._held.pages[attempt] = kept
        if self._child:
            self._put(Message("page", attempt, fds=(kept,)))

    def close_streams(self, attempt: int) -> None:
        """Let an attempt's pipes go once the scribe has read what they hold.

        A process that still holds a write end gets EPIPE from then on: to be called
        when the attempt's group is proven empty.
        """
        self._put(Message("close", attempt))

    def journal(self, line: str) -> None:
        """Append a line to the journal.

        A replaced scribe may write it twice: its own number tells. One of more than
        128 KiB is cut, and is then no JSON any more.
        """
        self._put(Message("journal", text=fitting(line)))

    def say(self, text: str, tone: Tone = "plain") -> None:
        """Print dsup's own words, after all that the ranks have written so far."""
        self._put(Message("say", name=tone, text=fitting(text)))

    def enter(self, line: str, fields: str, tone: Tone) -> None:
        """Put a line with fields into systemd's journal, if the console leads there.

        Args:
            line: what a person reads.
            fields: the others, a JSON object.
            tone: how grave it is.
        """
        self._put(Message("entry", name=tone, text=fitting(f"{line}\n{fields}")))

    def status(self, text: str) -> None:
        """Have a text in the status line, where there is one; empty for none."""
        self._put(Message("status", text=fitting(text)))

    def tails(self, attempt: int) -> None:
        """Ask for the last 64 KiB of each stream; the answer is ``Tails``.

        Raises:
            OSError: there is no descriptor or no memory left.
        """
        fd = os.memfd_create("dsup-tails", os.MFD_CLOEXEC)
        if not self._put(Message("tails", attempt, fds=(fd,))):
            os.close(fd)

    def prepare(self, attempt: int) -> None:
        """Make an attempt's directories; the answer is ``Prepared``."""
        self._put(Message("prepare", attempt))

    def save(self, name: str, fd: int, *, keep: bool = False) -> None:
        """Copy what a descriptor holds to a file of the run directory.

        Args:
            name: relative to the run directory.
            fd: a regular file or memfd; the caller may close it at once.
            keep: a file of that name stays as it is.

        Raises:
            OSError: there is no descriptor left to keep it by.
        """
        kept = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
        how = KEEP if keep else b""
        if not self._put(Message("save", name=name, text=how, fds=(kept,))):
            os.close(kept)

    def append(self, name: str, lines: bytes) -> None:
        """Append whole lines to a file of the run directory.

        They are lost where the disk does not take them, or the scribe dies over them.

        Args:
            name: relative to the run directory.
            lines: too long ones are not written at all.
        """
        if len(lines) <= TEXT_MAX_BYTES:
            self._put(Message("append", name=name, text=lines))

    def end(self) -> None:
        """Have everything written and the scribe end; ``Ended`` comes within 10 s."""
        self._end_by = self._now() + END_S
        self._put(Message("end"))
        if self._child is None:
            self.start()  # once more, whatever was spent: these are the last words

    def unsaid(self) -> list[str]:
        """Return what was to be said and may never have been, for the agent to say."""
        return [text.decode(errors="replace") for text in self._outbox.texts("say")]

    def deadline(self) -> float:
        """Return when ``on_tick`` is due; agent clock, seconds."""
        if self._child is None:
            return min(self._start_at, self._end_by)
        if self._spill.active:
            return self._end_by
        limit = self._outbox.waiting_since + SILENCE_S
        if self._killed_at < inf:
            limit = self._killed_at + DYING_S
        return min(limit, self._look_at, self._end_by)

    def on_ready(self) -> list[Report]:
        """Read answers, send what waits, replace a scribe that has died."""
        self._spill.read()
        if self._child:
            self._hear(self._child)
            self._flush()
            status = self._child.reap()
            if status is not None:
                self._on_death(self._child, status)
        return self._take_reports()

    def on_tick(self) -> list[Report]:
        """Do what has become due: ping, kill a silent scribe, start another."""
        now_s = self._now()
        if now_s >= self._end_by:
            self._abandon()
        elif self._child is None:
            if now_s >= self._start_at:
                self.start()
        elif now_s >= self._killed_at + DYING_S:
            self._spill.begin(self._held.read_ends())
        else:
            self._check(self._child, now_s)
        return self._take_reports()

    def _check(self, child: Child, now_s: float) -> None:
        silence_s = now_s - self._outbox.waiting_since
        if silence_s >= SILENCE_S and self._killed_at == inf:
            self._kill(child)
        if now_s < self._look_at:
            return
        self._look_at = now_s + LOOK_S
        if silence_s >= PATIENCE_S:
            self._look_at = now_s + RELIEF_S
            self._spill.relieve(self._held.read_ends())
        elif not self._outbox and self._is_due(now_s):
            self._put(Message("ping"))

    def _is_due(self, now_s: float) -> bool:
        """Return whether the scribe has something to answer for."""
        quiet = now_s < self._heard_at + PING_S
        return not quiet or any(map(waiting, self._held.read_ends()))

    def _kill(self, child: Child) -> None:
        self._killed_at = min(self._killed_at, self._now())
        child.kill()

    def _hear(self, child: Child) -> None:
        for answer in child.answers():
            self._heard_at = self._now()
            for message in self._outbox.ack(answer.ack, self._heard_at):
                self._done(message)
            for attempt, error in answer.prepared:
                self._reports.append(Prepared("prepared", attempt, error))
        if child.hung_up:
            self._kill(child)
        elif not self._outbox and not self._spill.active:
            self._own_up(0, self._spill.end())

    def _done(self, message: Message) -> None:
        if message.kind == "save":
            os.close(message.fds[0])
        elif message.kind == "tails":
            tails = Tails("tails", message.attempt, message.fds[0])
            self._reports.append(tails)
        elif message.kind == "close":
            for fds in self._held.release(message.attempt):
                self._spill.forget(fds)

    def _on_death(self, child: Child, status: int) -> None:
        self._hear(child)
        child.close()
        self._child = None
        if status == 0 and self._end_by < inf and not self._outbox:
            self._finish(complete=True)
            return
        self._reports.append(Lost("scribe_lost", child.pid, status))
        self._start_at = max(self._now(), self._budget.free_at())
        if self._start_at > self._now():
            self._spill.begin(self._held.read_ends())
        else:
            self.start()

    def _abandon(self) -> None:
        if self._child:
            self._child.kill()
            self._child.close()
            self._child = None
        self._own_up(self._outbox.refused, self._spill.end())
        self._finish(complete=False)

    def _finish(self, *, complete: bool) -> None:
        self._end_by = self._start_at = inf
        self._reports.append(Ended("scribe_ended", complete))

    def _own_up(self, refused: int, spilt: int) -> None:
        if refused or spilt:
            self.say(
                f"dsup: {spilt:,} bytes of the ranks' output and {refused:,} messages "
                "of dsup's own are lost, because nothing could be written"
            )

    def _put(self, message: Message) -> bool:
        taken = self._outbox.put(message, self._now())
        self._flush()
        return taken

    def _flush(self) -> None:
        if self._child is None:
            return
        waiting = self._outbox.unsent()
        while waiting and self._child.send(*waiting):
            self._outbox.mark_sent()
            waiting = self._outbox.unsent()
        self._child.want_write(wanted=waiting is not None)

    def _take_reports(self) -> list[Report]:
        reports, self._reports = self._reports, []
        return reports
