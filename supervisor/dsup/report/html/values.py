"""The values of everything that the page shows, and what they are made from.

Texts are as they were recorded; the page escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dsup.core.ledger import Balance
from dsup.core.verdict import Verdict
from dsup.facts.samples import Sample
from dsup.report.html.lives import Attempt
from dsup.report.html.words import clock


class Told(NamedTuple):
    """A verdict, and what followed.

    Attributes:
        verdict: its times are CLOCK_REALTIME, seconds.
        node: where its first ranks ran.
        next_text: what dsup did next; empty for nothing.
        ended: exit code of the run and whose it is, where this attempt was its last.
    """

    verdict: Verdict
    node: str = ""
    next_text: str = ""
    ended: tuple[int, str] | None = None


class Todo(NamedTuple):
    """One thing to do, with at most one command."""

    text: str
    command: str = ""


class Stack(NamedTuple):
    """The stack of a rank, as it was taken."""

    rank: int
    text: str


class Story(NamedTuple):
    """What the page tells.

    Attributes:
        name: what the run is known by.
        program: the script's name; empty if unknown.
        nodes: where it ran.
        world_size: how many ranks it had; 0 if unknown.
        attempts: in order; those of which nothing is known are left out.
        told: verdicts, in order; the last one is the page's. Empty for a run that did
            not fail.
        outcome: what became of the run, one sentence without a full stop.
        clock: the times are real; else they only tell the order.
        launcher: who started the ranks.
        panel: the last verdict as a terminal shows it.
        todo: what to do, at most three.
        resume: newest valid checkpoint: step and path; None for none.
        output_place: where ``output`` stands.
        output: the last lines of the first rank.
        stacks: of ranks, the first rank's among them.
        kernel: lines of the kernel log around the death.
        command: what was launched, secrets masked.
        versions: names and versions.
        options: name, value, origin.
        environment: names and values that bear on the ranks, secrets masked.
        remarks: what could not be read.
        directory: the run directory, or where the logs are; of a bundle its name.
        bundle: the bundle that all of it was in; empty for none.
        zone: of the times; empty where a log does not tell it.
        running: the run goes on.
        made_s: when the page was made, CLOCK_REALTIME.
        spent: where the time went; None where nothing tells.
    """

    name: str
    attempts: tuple[Attempt, ...]
    told: tuple[Told, ...]
    made_s: float
    program: str = ""
    nodes: tuple[str, ...] = ()
    world_size: int = 0
    outcome: str = ""
    clock: bool = True
    launcher: str = "dsup"
    panel: tuple[str, ...] = ()
    todo: tuple[Todo, ...] = ()
    resume: tuple[int, str] | None = None
    output_place: str = ""
    output: tuple[str, ...] = ()
    stacks: tuple[Stack, ...] = ()
    kernel: tuple[str, ...] = ()
    command: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    directory: str = ""
    bundle: str = ""
    zone: str = "UTC"
    running: bool = False
    spent: Balance | None = None

    def at(self, wall_s: float) -> str:
        """Return a time of day, as exact as it was told, and of which zone it is."""
        zone = f" {self.zone}" if self.zone else ""
        coarse = self.launcher != "dsup" and wall_s == round(wall_s)
        return f"{clock(wall_s, 0 if coarse else 3)}{zone}"

    @property
    def main(self) -> Told | None:
        """The verdict that the page is about."""
        return self.told[-1] if self.told else None

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that the page is about."""
        if self.main is None:
            return self.attempts[-1] if self.attempts else None
        number = self.main.verdict.attempt
        return next((a for a in self.attempts if a.number == number), None)


class Run(NamedTuple):
    """A run directory, read.

    Attributes:
        path: where it is.
        known: run.json; empty if it cannot be read.
        lines: the journal.
        offset_s: CLOCK_REALTIME minus the agent's clock, seconds.
        told: verdicts, in order, times as in ``Told``.
        outcome: what became of the run.
        made_s: when the page is made, CLOCK_REALTIME.
        dsup: its version.
        samples: of each attempt, agent clock.
        panel, output_place, output, stacks, kernel, remarks, bundle, running: as in
            ``Story``.
    """

    path: str
    known: Mapping[str, object]
    lines: Sequence[str]
    offset_s: float
    told: Sequence[Told]
    outcome: str
    made_s: float
    dsup: str = ""
    samples: Mapping[int, Sequence[Sample]] = {}
    panel: Sequence[str] = ()
    output_place: str = ""
    output: Sequence[str] = ()
    stacks: Sequence[Stack] = ()
    kernel: Sequence[str] = ()
    remarks: Sequence[str] = ()
    bundle: str = ""
    running: bool = False


class Frame(NamedTuple):
    """What is said around what logs tell.

    Attributes:
        name: what the logs are known by: a file or a directory.
        made_s: when the page is made, CLOCK_REALTIME.
        output: lines of the log around the proof.

    The others are as in ``Story``.
    """

    name: str
    made_s: float
    panel: Sequence[str] = ()
    remarks: Sequence[str] = ()
    output_place: str = ""
    output: Sequence[str] = ()
    bundle: str = ""
    zone: str = "UTC"


class Finding(Protocol):
    """One attempt that logs tell of: a ``postmortem.LogFinding``."""

    @property
    def verdict(self) -> Verdict:
        """Its times are CLOCK_REALTIME, NaN where the log has none."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where its first ranks ran."""

    @property
    def launcher(self) -> str:
        """Empty if unknown."""

    @property
    def world_size(self) -> int | None:
        """None if unknown."""

    @property
    def spans(self) -> tuple[tuple[int, float, float], ...]:
        """Rank, first and last line of its own, seconds."""


def shifted(verdict: Verdict, offset_s: float) -> Verdict:
    """Return a verdict whose times are later by so many seconds."""
    evidence = tuple(
        one if one.at_s is None else one._replace(at_s=one.at_s + offset_s)
        for one in verdict.evidence
    )
    return verdict._replace(at_s=verdict.at_s + offset_s, evidence=evidence)
