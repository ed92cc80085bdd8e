"""The inquiry into an attempt: when the judge is asked, and what becomes of its answer.

The judge is an aide. It is asked when settling has ended, for the people who wait (what
else might block, files and the scribe's memory, has a tenth of a second for that); half
a second after a death by a signal, because the kernel may explain late; and when the
attempt is over, for the plan. One judge works at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from dsup import shortage
from dsup.casefile import CaseFile
from dsup.core import events as ev
from dsup.core.state import NEVER
from dsup.gathering import Gathering

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dsup.core.job import Job
    from dsup.core.state import State
    from dsup.core.verdict import Verdict
    from dsup.devices import Devices, Found, Helpers
    from dsup.edges.heartbeats import Page
    from dsup.edges.loop import Loop
    from dsup.judging import Case

JUDGE_S: Final = 5.0
LATE_KERNEL_S: Final = 0.5


class Desk(Protocol):
    """What an inquiry needs of the recorder."""

    def ask_tails(self, attempt: int, /) -> bool:
        """Ask for the ranks' last words; return False if nobody can answer."""

    def publish(self, verdict: Verdict) -> None:
        """Show and keep a verdict."""

    def keep_samples(self, attempt: int, lines: list[bytes]) -> None:
        """Write the samples of an attempt."""

    def keep_outcome(self, state: State, step: int | None) -> None:
        """Write the outcome of an attempt whose main rank was killed."""

    def seal(self, attempt: int, code: int, origin: str) -> None:
        """Write into a failed attempt's verdict that the run ends with it."""


class Inquiry:
    """The inquiry into the attempt at hand.

    Args:
        job: what to do.
        aides: do what may block.
        desk: has the last words, and takes verdicts.
        loop: watches the notes.
        post: takes the events that come of it.

    Attributes:
        file: what is gathered about the attempt.
        gathering: what others know of it.
    """

    def __init__(
        self,
        job: Job,
        aides: Helpers,
        desk: Desk,
        loop: Loop,
        post: Callable[[ev.Event], None],
    ) -> None:
        self._job = job
        self._aides = aides
        self._desk = desk
        self._loop = loop
        self._post = post
        self.file = self._open(0)
        self.gathering = Gathering(job, aides, desk, self._ask, self.file)
        self._verdict: Verdict | None = None
        self._devices: Devices | None = None
        self._late_at = NEVER
        self._working = False
        self._again = False
        self._final = False

    def begin(self, attempt: int, tmp_dir: str) -> None:
        """Open the file of an attempt that is about to be prepared.

        Args:
            attempt: its number.
            tmp_dir: its TMPDIR.
        """
        self.file.close()
        self.file = self._open(attempt)
        self.gathering.begin(self.file, tmp_dir)
        self._verdict = None
        self._final = self._again = False
        self._late_at = NEVER

    def _open(self, attempt: int) -> CaseFile:
        size = self._job.spec.world_size
        return CaseFile(attempt, size, self._loop, self._post)

    @property
    def busy(self) -> bool:
        """Whether a verdict is still being made, or is to be made again."""
        due = min(self.gathering.due_s, self._late_at) < NEVER
        return self._working or due or bool(self._devices and self._devices.awaited)

    @property
    def helpers(self) -> set[int]:
        """Pids of processes of dsup's own that serve it, beside aides."""
        return self._devices.pids if self._devices else set()

    @property
    def found(self) -> Found | None:
        """What is known of the devices; None while nobody was asked."""
        return self._devices.found if self._devices else None

    def started(self, environments: Iterable[Mapping[str, str]]) -> None:
        """Begin to look: every rank runs now.

        Args:
            environments: of each rank, in their order.
        """
        from dsup.devices import Devices

        self.file.started()
        self._devices = self._devices or Devices(self._aides, self._on_devices)
        self._devices.started(self.file.attempt, self.file.pids, environments)

    def look(self, now_s: float, page: Page | None) -> None:
        """Look at what changes while the ranks run, now and then."""
        self.file.look(now_s, page)
        if self._devices:
            self._devices.look(now_s)

    def ended(self, event: ev.RankExited) -> None:
        """Take in a rank's end; the first that failed has the GPUs asked at once."""
        self.file.ended(event)
        if event.status and self._devices and not self.file.signalled:
            self._devices.died()

    def glance(self) -> None:
        """Have the GPUs asked what they do at this moment."""
        if self._devices:
            self._devices.glance()

    def stop(self) -> None:
        """Let the devices go: the run is over, and the last verdict is made."""
        if self._devices:
            self._devices.stop()

    def judge(self, *, final: bool) -> None:
        """Have the attempt judged by what is known so far.

        Args:
            final: it is over; the answer is then the event ``Judged`` that says so.
        """
        waits = self.gathering.waits
        first = not self._final and self._verdict is None and not waits
        self._final = self._final or final
        if self._devices:
            self._devices.ended(self.file.living())
        if first and self.file.by_signal:
            self._late_at = time.monotonic() + LATE_KERNEL_S
        self._gather()

    def end(self, code: int, origin: str) -> None:
        """Close the inquiry: the run is over, and whoever waits for its error gets it.

        Args:
            code: exit code of the run.
            origin: ``rank`` or ``dsup``: whose code that is.
        """
        self._desk.seal(self.file.attempt, code, origin)
        if code and self._verdict is not None:
            from dsup import outer

            outer.hand_on(self._job, self._verdict, self._aides)

    def close(self, state: State, page: Page | None) -> None:
        """Look once more at an attempt that is over; say how it ended for who cannot.

        Args:
            state: its ranks' ends.
            page: its heartbeat page; None if it never had one.
        """
        from dsup.report.outcome_file import MAIN_RANK

        self.file.look_closely(page)
        self._desk.keep_samples(self.file.attempt, self.file.samples)
        if MAIN_RANK not in self.file.outcomes:
            self._desk.keep_outcome(state, self.file.last_step(MAIN_RANK))

    def deadline(self) -> float:
        """Return when ``on_tick`` is due, agent clock, seconds."""
        asked = self._devices.deadline() if self._devices else NEVER
        return min(self.gathering.due_s, self._late_at, asked)

    def on_tick(self) -> None:
        """Do what has become due."""
        now_s = time.monotonic()
        if self._devices:
            self._devices.on_tick()
        if now_s >= self._late_at:
            self._late_at = NEVER
            self._gather()
        elif now_s >= self.gathering.due_s:
            self._ask()

    def _gather(self) -> None:
        """Ask for what others know; the judge is asked when they have answered."""
        awaited = bool(self._devices and self._devices.awaited)
        self.gathering.ask(devices=awaited)

    def _on_devices(self) -> None:
        """Have a verdict made again that did not know what the devices now say."""
        self.gathering.arrived("devices")
        if not self.gathering.waits and (self._working or self._verdict):
            self._ask()

    def _ask(self) -> None:
        """Put the case to a judge, after the one who is at work, if any."""
        self.gathering.end()
        if self._working:
            self._again = True
            return
        from dsup import judging

        self._working, self._again = True, False
        case = self.file.case()
        if self._devices:
            case = case._replace(devices=self._devices.found)
        done = partial(self._on_answer, case, self._final)
        work = partial(judging.work, case)
        self._aides.start(work, time.monotonic() + JUDGE_S, done)

    def _on_answer(self, case: Case, final: bool, answer: bytes) -> None:
        self._working = False
        if case.known.attempt != self.file.attempt:
            return
        verdict = _read(answer)
        if verdict is not None or self._verdict is None:
            from dsup.core.verdict import with_ends

            told = verdict or self._unjudged(case)
            # Ranks have ended since the judge was asked.
            told = with_ends(told, self.file.statuses())
            self._verdict = told
            self._desk.publish(told)
        self._post(_judged(case.known.attempt, verdict, final=final))
        if self._again:
            self._ask()

    def _unjudged(self, case: Case) -> Verdict:
        """Return what can be said without a judge, and why there is none."""
        from dsup.judging import without_judge

        error = self._aides.refusal
        if error is None:
            return without_judge(case.known)
        why = f"the judge could not be started: {shortage.reason(error)}"
        return without_judge(case.known, why)


def _read(answer: bytes) -> Verdict | None:
    """Return the judge's answer; None where it was given up, or makes no sense."""
    from dsup.report.verdict_file import from_wire

    try:
        return from_wire(answer)
    except ValueError:
        return None


def _judged(attempt: int, verdict: Verdict | None, *, final: bool) -> ev.Judged:
    now_s = time.monotonic()
    if verdict is None:
        return ev.Judged("judged", now_s, attempt, "", (), 1, "", final)
    return ev.Judged(
        "judged",
        now_s,
        attempt,
        verdict.cause,
        verdict.first_ranks,
        verdict.status,
        verdict.signature,
        final,
    )
