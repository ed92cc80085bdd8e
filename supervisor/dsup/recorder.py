"""What the agent keeps and says: the journal, the console, the ranks' output.

The recorder numbers and words; a scribe, started after the ranks, writes. Until then
everything waits here, so that nothing but the start of the ranks happens before it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dsup.core.commands import Command
from dsup.core.events import Event
from dsup.core.exits import signal_name
from dsup.core.job import Job
from dsup.core.output import Tone
from dsup.core.printable import printable
from dsup.core.state import NEVER, State
from dsup.edges.group import Rank
from dsup.edges.loop import Loop
from dsup.linux import proc
from dsup.linux.console import say as say_now
from dsup.linux.guardian import Will
from dsup.report import console, sentences, voice
from dsup.report.status import StatusText
from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.edges.scribe.link import Scribe
    from dsup.edges.scribe.reports import Report

_NOBODY: Final = "no descriptor is left for who writes"


class Recorder:
    """Everything that leaves the agent for a file or a terminal.

    Args:
        job: what to do.
        will: says which process the guard is to spare.
        loop: watches the scribe.

    Attributes:
        ended: the scribe has written everything and is gone.
        will: what the guard does if the agent is killed.
        control: where the control socket is; empty while there is none.
        on_directories: called with an attempt and an error, or None.
        on_tails: called with an attempt and a memory file that it closes.
    """

    def __init__(self, job: Job, will: Will, loop: Loop) -> None:
        self.ended = False
        self.control = ""
        self.on_directories: Callable[[int, str | None], None] = lambda *_: None
        self.on_tails: Callable[[int, int], None] = lambda _, fd: os.close(fd)
        self._job = job
        self.will = will
        self._loop = loop
        self._scribe: Scribe | None = None
        self._written = 0
        self._unwritten: list[Event | Command] = []
        self._unsaid: list[tuple[str, Tone]] = []
        self._status = StatusText()

    @property
    def pids(self) -> set[int]:
        """The scribe's pid, while there is one."""
        pid = self._scribe.pid if self._scribe else None
        return set() if pid is None else {pid}

    @property
    def rate(self) -> float | None:
        """Steps a second, over the last ten; None while that is not known."""
        return self._status.rate

    def start(self, attempt: int, ranks: Iterable[Rank]) -> None:
        """Have the output of an attempt's ranks read, by a new scribe if need be.

        Raises:
            OSError: no descriptor is left for a scribe.
        """
        scribe = self._scribe or self._make()
        for rank in ranks:
            scribe.open_streams(attempt, rank.rank, rank.out, rank.err)
        if self._scribe is None:
            self._loop.watch(scribe.fd, self._on_ready)
            self._scribe = scribe
            scribe.start()
            self._note_pid()
            self._write_head(scribe)
        self.flush()

    def record(self, event: Event, commands: Iterable[Command]) -> None:
        """Put an event and what it led to into the journal."""
        self._unwritten += (event, *commands)

    def narrate(
        self, before: State, event: Event, after: State, view: console.View
    ) -> None:
        """Say on the console what a person should know of an event."""
        said = console.lines(before, event, after, view)
        for line in said:
            self.say(line, console.tone(event, after))
        if not said and self._job.voice.level == "verbose":
            self.say(voice.detail(event))

    def say(self, text: str, tone: Tone = "plain") -> None:
        """Print a line of dsup's own."""
        how = self._job.voice
        if text and voice.is_said(tone, how.level):
            wall_s = time.clock_gettime(time.CLOCK_REALTIME)
            line = voice.worded(printable(text), tone, how, wall_s)
            self._unsaid.append((line, tone))

    def show(self, block: Iterable[tuple[str, Tone]]) -> None:
        """Print lines that stand for themselves, each with how grave it is."""
        self._unsaid += [(printable(line), tone) for line, tone in block]

    def enter(self, line: str, fields: str, tone: Tone) -> None:
        """Put a line with fields into systemd's journal, if the console leads there."""
        if self._scribe and self._job.environment.get("JOURNAL_STREAM"):
            self._scribe.enter(printable(line), fields, tone)

    def warn(self, text: str) -> None:
        """Print a line of dsup's own that the quiet are to see, too."""
        self.say(text, "warning")

    def show_status(self, state: State, step: int | None) -> str | None:
        """Have a terminal's status line tell how it stands, at most once a second.

        Args:
            state: how it stands.
            step: the last step that all ranks finished; None if they do not tell.

        Returns:
            What is new; None where nothing is.
        """
        text = self._status.news(state, step, time.monotonic())
        if text is not None and self._scribe and self._job.output.status:
            self._scribe.status(text)
        return text

    def say_deaf(self, ranks: list[int], signum: int) -> None:
        """Say to which ranks a signal was not passed on."""
        if ranks:
            name, who = signal_name(signum), sentences.ranks(ranks)
            self.warn(f"{name} not passed on to {who}: no handler, it would be deadly")

    def prepare_directories(self, attempt: int) -> None:
        """Have an attempt's directories made; ``on_directories`` gets the answer."""
        if self._scribe:
            self._scribe.prepare(attempt)
        else:
            self.on_directories(attempt, _NOBODY)

    def save(self, name: str, fd: int, *, keep: bool = False) -> None:
        """Copy a descriptor's content into the run directory, or keep what is there."""
        if self._scribe:
            self._scribe.save(name, fd, keep=keep)

    def keep_page(self, attempt: int, fd: int) -> None:
        """Have a heartbeat page's memory on disk, until its streams are closed."""
        if self._scribe:
            with suppress(OSError):  # then it is there at the attempt's end only
                self._scribe.keep_page(attempt, fd)

    def append(self, name: str, lines: bytes) -> None:
        """Append whole lines to a file of the run directory, if that can be."""
        if self._scribe:
            self._scribe.append(name, lines)

    def ask_tails(self, attempt: int) -> bool:
        """Ask for the ranks' last words; ``on_tails`` gets them.

        Returns:
            False if nobody can answer.
        """
        if self._scribe is None:
            return False
        try:
            self._scribe.tails(attempt)
        except OSError:
            return False
        return True

    def close_streams(self, attempt: int) -> None:
        """Let the pipes of an attempt go; its group must be proven empty."""
        if self._scribe:
            self._scribe.close_streams(attempt)

    def flush(self) -> None:
        """Hand over what waits, as soon as there is a scribe."""
        if self._scribe is None:
            return
        from dsup.core import journal

        for item in self._unwritten:
            self._written += 1
            self._scribe.journal(journal.encode(self._written, item))
        for line, tone in self._unsaid:
            self._scribe.say(line, tone)
        self._unwritten, self._unsaid = [], []

    def end(self) -> None:
        """Have everything written; ``ended`` becomes true within seconds."""
        if self._scribe is None:
            with suppress(OSError):
                self.start(0, ())
        self.flush()
        if self._scribe:
            self._scribe.end()
        else:
            self._end_unwritten()

    def _end_unwritten(self) -> None:
        """Say at least what would have been said: nobody can write it down."""
        self.warn(f"cannot keep the journal, because {_NOBODY}")
        for line, _ in self._unsaid:
            say_now(line)
        self.ended = True

    def deadline(self) -> float:
        """Return when ``on_tick`` is due, agent clock, seconds."""
        return self._scribe.deadline() if self._scribe else NEVER

    def on_tick(self) -> None:
        """Do what has become due."""
        if self._scribe and time.monotonic() >= self._scribe.deadline():
            self._take(self._scribe.on_tick())

    def _on_ready(self) -> None:
        if self._scribe:
            self._take(self._scribe.on_ready())

    def _take(self, reports: Iterable[Report]) -> None:
        for report in reports:
            match report.kind:
                case "prepared":
                    self.on_directories(report.attempt, report.error)
                case "scribe_ended":
                    self.ended = True
                    if self._scribe and not report.complete:
                        for line in self._scribe.unsaid():
                            say_now(line)
                case "tails":
                    self.on_tails(report.attempt, report.fd)
                case "scribe_lost":
                    continue  # another follows by itself
        self._note_pid()

    def _note_pid(self) -> None:
        """Tell the guard whom to spare: the scribe outlives a killed agent."""
        self.will.spared = next(iter(self.pids), 0)

    def _make(self) -> Scribe:
        from dsup.edges.scribe.link import Scribe
        from dsup.edges.scribe.protocol import Settings

        private = self._job.private
        settings = Settings(
            run_dir=self._job.run_dir,
            local_world_size=self._job.spec.world_size,
            output=self._job.output,
            rank_logs=self._job.rank_logs,
            file_mode=0o600 if private else 0o666,
            dir_mode=0o700 if private else 0o777,
            journal_stream=self._job.environment.get("JOURNAL_STREAM", ""),
            socket=self.control,
        )
        return Scribe(settings, time.monotonic)

    def _write_head(self, scribe: Scribe) -> None:
        from dsup import surroundings
        from dsup.core import journal
        from dsup.report.run_file import Agent, run_file

        for remark in surroundings.remarks():
            self.warn(remark)
        scribe.journal(journal.header(self._job.spec))
        own = proc.stat(os.getpid())
        agent = Agent(proc.boot_id(), os.getpid(), own.start if own else None)
        clocks = time.time_ns(), time.monotonic_ns()
        apart = os.path.dirname(self.control) != self._job.run_dir
        told = run_file(self._job, agent, *clocks, self.control if apart else "")
        try:
            with open(os.memfd_create("run.json", os.MFD_CLOEXEC), "wb") as file:
                file.write(told)
                file.flush()
                scribe.save(contract.RUN_FILE, file.fileno())
        except OSError:
            self.warn("cannot keep run.json, because no descriptor is left")
