"""Verdicts made public: the panel on the console, and verdict.json."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from dsup.core.job import Job
from dsup.core.output import Tone
from dsup.core.state import State
from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.core.verdict import Verdict
    from dsup.report.console import View

KEPT_MAX: Final = 10
"""So many verdicts are kept for whoever asks how the run stands."""


class Desk(Protocol):
    """What a publisher needs of the recorder."""

    def say(self, text: str, tone: Tone = "plain") -> None:
        """Print a line of dsup's own."""

    def enter(self, line: str, fields: str, tone: Tone) -> None:
        """Put a line with fields into systemd's journal."""

    def show(self, block: Iterable[tuple[str, Tone]]) -> None:
        """Print lines that stand for themselves."""

    def save(self, name: str, fd: int, *, keep: bool = False) -> None:
        """Copy a descriptor's content into the run directory, or keep what is there."""

    def ask_tails(self, attempt: int) -> bool:
        """Ask for the ranks' last words."""


class Publisher:
    """Publishes verdicts.

    Args:
        job: what was asked for.
        desk: prints and writes.
        situation: returns the state, and what lines need beside it.

    Attributes:
        verdicts: the last ones, by attempt.
        ended: exit code of the run and whose it is; None while it goes on.
    """

    def __init__(
        self, job: Job, desk: Desk, situation: Callable[[], tuple[State, View]]
    ) -> None:
        self._job = job
        self._desk = desk
        self._situation = situation
        self._last: Verdict | None = None
        self.verdicts: dict[int, Verdict] = {}
        self.ended: tuple[int, str] | None = None

    def ask_tails(self, attempt: int) -> bool:
        """Ask for the ranks' last words; return False if nobody can answer."""
        return self._desk.ask_tails(attempt)

    def publish(self, verdict: Verdict) -> None:
        """Show and keep a verdict; a later one of the same attempt amends it."""
        before, self._last = self._last, verdict
        self.verdicts[verdict.attempt] = verdict
        if len(self.verdicts) > KEPT_MAX:
            del self.verdicts[min(self.verdicts)]
        self._keep(verdict)
        if before is None or before.attempt != verdict.attempt:
            self._show(verdict)
            return
        from dsup.report.journal_entry import amendment
        from dsup.report.panel import amended

        self._desk.enter(*amendment(before, verdict))
        self._desk.say(amended(before, verdict), "failure")

    def keep_samples(self, attempt: int, lines: list[bytes]) -> None:
        """Write how memory and progress of an attempt's ranks went; nothing if none.

        Args:
            attempt: its number.
            lines: one each.
        """
        if lines:
            self._save(attempt, contract.SAMPLES_FILE, b"".join(lines))

    def keep_stacks(self, attempt: int, rank: int, text: bytes) -> None:
        """Write where a rank and its helpers were whenever it seemed to hang."""
        self._save(attempt, f"{rank}/{contract.STACKS_FILE}", text)

    def keep_outcome(self, state: State, step: int | None) -> None:
        """Write the outcome of an attempt whose main rank was killed by a signal.

        One that is there is the rank's own, and stays.

        Args:
            state: its ranks' ends.
            step: the last step that the main rank told of.
        """
        from dsup.report.outcome_file import of_killed

        last = self._last
        known = last is not None and last.attempt == state.attempt
        data = of_killed(state, step, last.summary if last and known else "")
        if data is not None:
            self._save(state.attempt, contract.OUTCOME_FILE, data, keep=True)

    def seal(self, attempt: int, code: int, origin: str) -> None:
        """Write into a failed attempt's verdict that the run ends with it.

        Args:
            attempt: the last one.
            code: exit code of the run.
            origin: ``rank`` or ``dsup``: whose code that is.
        """
        self.ended = (code, origin)
        if self._last is not None and self._last.attempt == attempt:
            self._keep(self._last)

    def _show(self, verdict: Verdict) -> None:
        from dsup.report import panel
        from dsup.report.journal_entry import entry
        from dsup.report.outlook import after_verdict, outlook

        state, view = self._situation()
        job = self._job
        located = bool(job.checkpoint_dir or job.checkpoint_glob)
        known = after_verdict(state, verdict)
        following = outlook(known, _offset_s(), located=located)
        self._desk.enter(*entry(verdict, following))
        if job.voice.json:
            self._desk.say(panel.one_line(verdict, following), "failure")
            return
        setting = panel.Setting(
            run=os.path.basename(job.run_dir) if job.private else job.run_dir,
            node=os.uname().nodename,
            pids=view.pids,
            offset_s=_offset_s(),
            next_text=following,
            logs=job.run_dir if job.rank_logs and not job.output.inherit else "",
            unicode=job.output.unicode,
            steps=view.steps,
        )
        self._desk.show(panel.toned(verdict, setting))

    def _keep(self, verdict: Verdict) -> None:
        from dsup.report import verdict_file

        data = verdict_file.encode(
            verdict, node=os.uname().nodename, offset_s=_offset_s(), ended=self.ended
        )
        self._save(verdict.attempt, contract.VERDICT_FILE, data)

    def _save(
        self, attempt: int, file: str, data: bytes, *, keep: bool = False
    ) -> None:
        name = f"{contract.attempt_dir('', attempt)}/{file}"
        try:
            fd = os.memfd_create(os.path.basename(file), os.MFD_CLOEXEC)
            try:
                os.write(fd, data)
                self._desk.save(name, fd, keep=keep)
            finally:
                os.close(fd)
        except OSError as error:
            reason = str(error.strerror).lower()
            self._desk.say(f"cannot keep {name}, because {reason}", "warning")


def _offset_s() -> float:
    """Return CLOCK_REALTIME minus the agent's clock, seconds."""
    return time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
