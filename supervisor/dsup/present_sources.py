"""What ``present`` needs of those who know a part of how the run stands; types only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dsup.core.verdict import Verdict
    from dsup.devices import Found
    from dsup.edges.heartbeats import Page


class File(Protocol):
    """What this needs of the file of an attempt."""

    @property
    def samples(self) -> list[bytes]:
        """Return the samples that were taken, one line each."""

    @property
    def asked(self) -> Collection[int]:
        """Ranks that dsup has told to end."""


class Inquiry(Protocol):
    """What this needs of the inquiry."""

    @property
    def file(self) -> File:
        """What is gathered about the attempt."""

    @property
    def found(self) -> Found | None:
        """What is known of the devices."""


class Attempt(Protocol):
    """What this needs of the attempt at hand.

    Attributes:
        page: the heartbeat page; None while there is none.
        last_page: what the one before it held at its end.
    """

    page: Page | None
    last_page: bytes


class Publisher(Protocol):
    """What this needs of the publisher."""

    @property
    def verdicts(self) -> Mapping[int, Verdict]:
        """The last ones, by attempt."""

    @property
    def ended(self) -> tuple[int, str] | None:
        """Exit code of the run and whose it is; None while it goes on."""


class Hangs(Protocol):
    """What this needs of those who look for hangs."""

    def limits_s(self) -> Mapping[int, float]:
        """Return how long each rank that has a limit may make no progress, seconds."""

    def steps_s(self) -> Mapping[int, float]:
        """Return the usual step time of each rank that has one, seconds."""


class Recorder(Protocol):
    """What this needs of the recorder.

    Attributes:
        control: where the control socket is; empty while there is none.
    """

    control: str

    @property
    def rate(self) -> float | None:
        """Steps a second."""

    def keep_page(self, attempt: int, fd: int) -> None:
        """Have a page's memory copied to disk until the attempt is closed."""

    def append(self, name: str, lines: bytes) -> None:
        """Append whole lines to a file of the run directory."""

    def save(self, name: str, fd: int, *, keep: bool = False) -> None:
        """Copy a descriptor's content into the run directory."""

    def say(self, text: str) -> None:
        """Print a line of dsup's own."""

    def warn(self, text: str) -> None:
        """Print a line of dsup's own that the quiet are to see, too."""
