"""Out-of-memory kills in the kernel log, one fault a victim, in every form there was.

A kill is told by up to hundreds of records: who asked for memory, which limit was hit,
who used how much, whom the kernel chose, whom it killed. What names a pid belongs to
that victim. What names none belongs to a *scene*, from the trigger to the victim. Newer
kernels finish one scene before the next; older ones play several at once, and then a
victim's limit stays unknown: a scene goes to the only victim it fits, or to none. Any
record may be missing, since all but the last are dropped when they become many.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dsup.facts import kernel_oom_forms as forms
from dsup.facts.kernel import (
    FAULTS_MAX,
    Candidate,
    KernelFault,
    Kind,
    Record,
    told,
)
from dsup.facts.kernel_oom_scenes import LASTS_US, Scene, Scenes, near

_GROUP_LASTS_US: Final = 1_000_000


@dataclass(slots=True, eq=False)
class _Victim:
    """A task that the kernel chose.

    Attributes:
        placed: its scene has been looked for.
        killed: its last record has been seen.
        spared: the kernel took a child of it instead.
    """

    place: int
    record: Record
    pid: int
    comm: str | None = None
    kind: Kind | None = None
    cgroup: str | None = None
    limit_cgroup: str | None = None
    anon_rss_kb: int | None = None
    scene: Scene | None = None
    placed: bool = False
    chosen: bool = False
    killed: bool = False
    spared: bool = False


class OutOfMemory:
    """The kills that the records so far tell of."""

    def __init__(self) -> None:
        self._scenes = Scenes()
        self._victims: list[_Victim] = []
        self._latest: dict[int, _Victim] = {}
        self._chosen: dict[int, _Victim] = {}
        self._group: Scene | None = None
        self._readers = (
            (forms.SUMMARY, self._on_summary),
            (forms.CHOSEN, self._on_chosen),
            (forms.KILLED, self._on_killed),
            (forms.EXITING, self._on_killed),
            (forms.REAPED, self._on_reaped),
            (forms.TRIGGER, self._on_trigger),
            (forms.STACK, self._on_stack),
            (forms.CALLER, self._on_caller),
            (forms.NODE, self._on_node),
            (forms.LIVED, self._on_lived),
            (forms.USAGE, self._on_usage),
            (forms.STATS, self._on_stats),
            (forms.GROUP, self._on_group),
            (forms.NOBODY, self._on_nobody),
            (forms.PANIC, self._on_nobody),
        )

    def take(self, place: int, record: Record) -> None:
        """Take one record in."""
        for pattern, reader in self._readers:
            found = pattern.match(record.text)
            if found:
                reader(place, record, found)
                return

    def found(self) -> Iterator[Candidate]:
        """Return the kills, and the scenes that end without a victim's name."""
        self._pair_children()
        for victim in self._victims:
            if not victim.spared:
                yield Candidate(victim.place, _fault(victim))
        yield from self._scenes.nameless()

    def _on_summary(self, place: int, record: Record, found: re.Match[str]) -> None:
        end = forms.SUMMARY_END.search(record.text, max(0, len(record.text) - 64))
        if not end:
            return
        victim = self._victim(place, record, int(end["pid"]))
        victim.kind = "oom_memcg" if found["kind"] == "MEMCG" else "oom_global"
        # Names may hold anything, so each is looked for from its own side.
        left, _, victim.comm = record.text[: end.start()].rpartition(",task=")
        left, _, path = left.rpartition(",task_memcg=")
        victim.cgroup = path or None
        victim.limit_cgroup = left.partition(",oom_memcg=")[2] or None
        self._put_in_scene(victim, record)

    def _on_chosen(self, place: int, record: Record, found: re.Match[str]) -> None:
        victim = self._victim(place, record, int(found["pid"]))
        victim.comm, victim.kind, victim.chosen = found["comm"], _kind(found), True
        self._put_in_scene(victim, record)
        self._chosen[victim.pid] = victim

    def _on_killed(self, place: int, record: Record, found: re.Match[str]) -> None:
        victim = self._victim(place, record, int(found["pid"]))
        if victim.killed:
            return
        victim.record, victim.killed, victim.comm = record, True, found["comm"]
        rss = forms.ANON.search(record.text, found.end())
        victim.anon_rss_kb = int(rss[1]) if rss else None
        victim.kind = _kind(found) or victim.kind
        self._chosen.pop(victim.pid, None)
        if victim.kind or not self._undecided(record):
            self._put_in_scene(victim, record)

    def _on_reaped(self, place: int, record: Record, found: re.Match[str]) -> None:
        victim = self._victim(place, record, int(found["pid"]))
        victim.comm = victim.comm or found["comm"]

    def _victim(self, place: int, record: Record, pid: int) -> _Victim:
        """Return the victim of this pid that is told of just now, a new one if none."""
        victim = self._latest.get(pid)
        if victim is None or not near(LASTS_US, victim.record, record):
            victim = _Victim(place, record, pid)
            if len(self._victims) <= FAULTS_MAX:
                self._victims.append(victim)
            self._latest[pid] = victim
        return victim

    def _on_trigger(self, place: int, record: Record, _found: re.Match[str]) -> None:
        self._group = None
        self._scenes.begin(place, record)

    def _on_stack(self, _place: int, record: Record, _found: re.Match[str]) -> None:
        scene = self._scenes.only(record)
        if scene:
            scene.kind = "oom_memcg"

    def _on_caller(self, _place: int, record: Record, found: re.Match[str]) -> None:
        scene = self._scenes.only(record)
        if scene:
            asked: Kind = "oom_memcg" if found["memcg"] else "oom_global"
            scene.kind = scene.kind or asked

    def _on_node(self, _place: int, record: Record, _found: re.Match[str]) -> None:
        scene = self._scenes.only(record)
        if scene:
            scene.kind = scene.kind or "oom_global"

    def _on_lived(self, place: int, record: Record, found: re.Match[str]) -> None:
        scene = self._scenes.only(record)
        if scene and scene.cgroup:
            scene = self._scenes.begin(place, record)
        scene = scene or self._scenes.of_memcg(place, record)
        scene.kind, scene.cgroup = "oom_memcg", found["path"]
        scene.limit_cgroup = found["limit"].rstrip()

    def _on_usage(self, place: int, record: Record, found: re.Match[str]) -> None:
        used_and_limit = int(found[1]), int(found[2])
        self._scenes.of_memcg(place, record).usages.append(used_and_limit)

    def _on_stats(self, place: int, record: Record, found: re.Match[str]) -> None:
        scene = self._scenes.of_memcg(place, record)
        # The cgroup whose limit was hit is told before those inside it.
        scene.limit_cgroup = scene.limit_cgroup or found["path"]

    def _on_group(self, place: int, record: Record, found: re.Match[str]) -> None:
        """Take in that a whole cgroup dies; its first victim has been told."""
        first = self._victims[-1] if self._victims else None
        if not first or not near(_GROUP_LASTS_US, first.record, record):
            self._scenes.of_memcg(place, record).cgroup = found["path"]
            return
        scene = first.scene or Scene(place, record)
        limit_cgroup = first.limit_cgroup or scene.limit_cgroup
        self._group = Scene(
            place, record, "oom_memcg", found["path"], limit_cgroup, scene.usages
        )

    def _on_nobody(self, place: int, record: Record, _found: re.Match[str]) -> None:
        self._scenes.leave(self._scenes.claim(record, None) or Scene(place, record))

    def _put_in_scene(self, victim: _Victim, record: Record) -> None:
        if not victim.placed:
            victim.placed = True
            victim.scene = self._scenes.claim(record, victim.kind) or self._group_of(
                victim
            )

    def _group_of(self, victim: _Victim) -> Scene | None:
        group = self._group
        if group is None or victim.kind != "oom_memcg":
            return None
        soon = near(_GROUP_LASTS_US, group.record, victim.record)
        return group if soon else None

    def _undecided(self, record: Record) -> bool:
        """Return whether a task was chosen just now, and nobody killed for it yet."""
        last = next(reversed(self._chosen.values()), None)
        return last is not None and near(LASTS_US, last.record, record)

    def _pair_children(self) -> None:
        """Give the children that were killed what is told of their chosen parents.

        Kernels before 5.0 preferred a child, and named the kind with the parent.
        """
        parents = deque(v for v in self._victims if v.chosen and not v.killed)
        for child in self._victims:
            if not child.killed or child.kind or child.scene:
                continue
            while parents and not near(LASTS_US, parents[0].record, child.record):
                parents.popleft()
            if parents and parents[0].place < child.place:
                parent = parents.popleft()
                parent.spared, child.kind = True, parent.kind
                if not parents or parents[0].place > child.place:
                    child.scene = parent.scene


def _kind(found: re.Match[str]) -> Kind | None:
    """Return what the words before ``Killed process`` mean; None without any."""
    scope = found["scope"]
    if scope is None:
        return None
    return "oom_memcg" if scope[:6].lower() == "memory" else "oom_global"


def _fault(victim: _Victim) -> KernelFault:
    scene = victim.scene or Scene(victim.place, victim.record)
    kind = victim.kind or scene.kind or "oom_global"
    return told(kind, victim.record)._replace(
        pid=victim.pid,
        comm=victim.comm,
        cgroup=victim.cgroup or scene.cgroup or scene.limit_cgroup,
        anon_rss_kb=victim.anon_rss_kb,
        limit_kb=scene.limit_kb() if kind == "oom_memcg" else None,
        limit_cgroup=victim.limit_cgroup or scene.limit_cgroup,
    )
