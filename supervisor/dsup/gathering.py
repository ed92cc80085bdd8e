"""What others know of a failed attempt, asked for before a judge is: nobody waits long.

The scribe has the ranks' last words; an aide looks at file systems and error files; the
devices may be answering already. Whoever has said nothing after ``WAIT_S`` is judged
without.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from dsup.core.state import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsup.casefile import CaseFile
    from dsup.core.job import Job
    from dsup.devices import Helpers

WAIT_S: Final = 0.1
SCENE_S: Final = 2.0
TAILS_MAX_BYTES: Final = 16 * 1024 * 1024


class Scribe(Protocol):
    """Who has the ranks' last words."""

    def ask_tails(self, attempt: int, /) -> bool:
        """Ask for the ranks' last words; return False if nobody can answer."""


class Gathering:
    """Asks, and fills the file of the attempt at hand.

    Args:
        job: what to do.
        aides: one of them looks at the scene.
        scribe: has the last words.
        ready: called when all have answered.
        file: of the attempt at hand.

    Attributes:
        due_s: when it is not waited for any longer, agent clock, seconds.
    """

    def __init__(
        self,
        job: Job,
        aides: Helpers,
        scribe: Scribe,
        ready: Callable[[], None],
        file: CaseFile,
    ) -> None:
        self.due_s = NEVER
        self._file = file
        self._job = job
        self._aides = aides
        self._scribe = scribe
        self._ready = ready
        self._tmp_dir = ""
        self._missing: set[str] = set()
        self._looking = False

    def begin(self, file: CaseFile, tmp_dir: str) -> None:
        """Begin with an attempt.

        Args:
            file: what is gathered about it.
            tmp_dir: its TMPDIR.
        """
        self._file, self._tmp_dir = file, tmp_dir
        self.end()

    def end(self) -> None:
        """Wait for nobody any longer."""
        self._missing, self.due_s = set(), NEVER

    @property
    def waits(self) -> bool:
        """Whether somebody has been asked who has not answered yet."""
        return bool(self._missing)

    def ask(self, *, devices: bool) -> None:
        """Ask all who may know something, unless they have just been asked.

        Args:
            devices: they are answering already.
        """
        if self._missing:
            return
        self.due_s = time.monotonic() + WAIT_S
        asked = self._scribe.ask_tails(self._file.attempt)
        self._missing = {"scene", *["tails"] * asked, *["devices"] * devices}
        if not self._looking:
            self._looking = True
            self._look_at_the_scene(self._file)

    def arrived(self, what: str) -> None:
        """Take note of an answer."""
        if what in self._missing:
            self._missing.discard(what)
            if not self._missing:
                self._ready()

    def on_tails(self, attempt: int, fd: int) -> None:
        """Take the ranks' last words from the scribe; the descriptor is closed here."""
        size = min(os.fstat(fd).st_size, TAILS_MAX_BYTES)
        if attempt == self._file.attempt:
            self._file.tails = os.pread(fd, size, 0)
            self.arrived("tails")
        os.close(fd)

    def _look_at_the_scene(self, file: CaseFile) -> None:
        from dsup import places
        from dsup.edges import scene

        there = places.file_systems(self._job, self._tmp_dir)
        files = places.error_files(self._job, file.attempt)
        work = partial(scene.look, there, files)
        done = partial(self._on_scene, file)
        self._aides.start(work, time.monotonic() + SCENE_S, done)

    def _on_scene(self, file: CaseFile, answer: bytes) -> None:
        from dsup.edges import scene

        self._looking = False
        if file is self._file:
            file.scene = scene.decode(answer)
            self.arrived("scene")
