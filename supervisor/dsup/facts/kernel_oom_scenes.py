"""Scenes of out-of-memory kills: what the kernel log tells without naming the victim.

One scene is open at a time, as a rule. With more of them no line tells whose it is, and
no victim which was its own: then all of it is given up rather than mixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dsup.facts.kernel import Candidate, KernelFault, Kind, Record, told, within

LASTS_US: Final = 60_000_000
"""How long one kill's records may take to print: a serial console is slow."""

_OPEN_MAX: Final = 8
_LIMITS_MAX: Final = 8
_FULL: Final = 0.98
"""A limit may be the one that was hit from this use of it on."""

_UNLIMITED_KB: Final = 1 << 52  # version 1 writes the highest multiple of a page


@dataclass(slots=True, eq=False)
class Scene:
    """What is told before it is told who dies.

    Attributes:
        usages: (used, limit) of each limit that is told, KiB.
        mute: its victim may have been told, so that it tells of none by itself.
        tangled: it may be mixed up with another one, and is nobody's.
    """

    place: int
    record: Record
    kind: Kind | None = None
    cgroup: str | None = None
    limit_cgroup: str | None = None
    usages: list[tuple[int, int]] = field(default_factory=list)
    mute: bool = False
    tangled: bool = False

    def limit_kb(self) -> int | None:
        """Return the limit that was hit: memory's own, unless only another is full."""
        told = self.usages[:_LIMITS_MAX]
        real = [(used, kb) for used, kb in told if 0 < kb < _UNLIMITED_KB]
        full = [kb for used, kb in real if used >= _FULL * kb]
        return next((kb for kb in (*full, *(kb for _, kb in real))), None)


class Scenes:
    """The scenes of a log, as far as it has been read."""

    def __init__(self) -> None:
        self._open: list[Scene] = []
        self._left: list[Scene] = []

    def leave(self, scene: Scene) -> None:
        """Add one that is over."""
        self._left.append(scene)

    def nameless(self) -> Iterator[Candidate]:
        """Return the faults that end without a victim's name."""
        for scene in (*self._left, *self._open):
            if not scene.mute:
                yield Candidate(scene.place, _nameless(scene))

    def begin(self, place: int, record: Record) -> Scene:
        """Open a scene."""
        scene = Scene(place, record)
        self._open.append(scene)
        if len(self._open) > _OPEN_MAX:
            self._left.append(self._open.pop(0))
        return scene

    def only(self, record: Record) -> Scene | None:
        """Return the scene that is open; None without one, or with several."""
        fresh = [s for s in self._open if near(LASTS_US, s.record, record)]
        self._left += [scene for scene in self._open if scene not in fresh]
        self._open = fresh
        return fresh[0] if len(fresh) == 1 else None

    def of_memcg(self, place: int, record: Record) -> Scene:
        """Return the scene that a line about a memory cgroup belongs to.

        With several open it is nobody's: then what is written there is lost.
        """
        scene = self.only(record)
        if scene is None:
            scene = Scene(place, record) if self._open else self.begin(place, record)
        scene.kind = "oom_memcg"
        return scene

    def claim(self, record: Record, kind: Kind | None) -> Scene | None:
        """End a scene that fits, and return it if it is the only one."""
        self.only(record)
        fits = [s for s in self._open if None in (s.kind, kind) or s.kind == kind]
        if kind == "oom_global":
            # Such a victim needs no scene, and one that may be another's stays open.
            for scene in fits:
                scene.mute = True
            fits = [scene for scene in fits if scene.kind]
        elif len(fits) > 1:
            for scene in fits:
                scene.mute = scene.tangled = True
        if not fits:
            return None
        self._open.remove(fits[0])
        return None if fits[0].tangled else fits[0]


def near(span_us: int, first: Record, then: Record) -> bool:
    """Return whether two records may belong together, as far as time tells."""
    return within(span_us, first, then)


def _nameless(scene: Scene) -> KernelFault:
    """Return a fault that is told up to the victim's name, which never came."""
    return told(scene.kind or "oom_global", scene.record)._replace(
        cgroup=scene.cgroup or scene.limit_cgroup,
        limit_kb=scene.limit_kb(),
        limit_cgroup=scene.limit_cgroup,
    )
