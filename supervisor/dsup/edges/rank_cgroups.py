"""A cgroup of its own for each rank, where dsup was given a cgroup to divide.

Then the kernel counts out-of-memory kills for each rank, which proves whose one was,
and the ranks are killed at a stroke, however fast they fork. Where nobody gave dsup a
cgroup, or others live in it, nothing is written.

The ranks are moved once they run, by an aide: to be moved a process waits for every
processor of the node, and nothing on the way to the first rank may wait. What a rank
starts meanwhile is looked for and moved along; a process whose parent has ended before
that stays beside the agent, and is found by its descent, as without any of this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from dsup.core.cgroups import AGENT, RANK_PREFIX, of_rank

if TYPE_CHECKING:
    from dsup.linux.guardian import Will

MOVE_S: Final = 10.0
"""A node with hundreds of busy processors takes its time."""

_ROUNDS: Final = 16
_NAMES_MAX: Final = 4
_REFUSED: Final = b"!"
How = Literal["auto", "on", "off"]
_Start = Callable[[Callable[[], bytes], float, Callable[[bytes], None]], None]


class Delegation(NamedTuple):
    """Whether a cgroup may be divided.

    Attributes:
        directory: where it is; empty where it may not.
        reason: why it may not; empty where it may.
        controllers: what can be counted apart in it.
    """

    directory: str = ""
    reason: str = ""
    controllers: tuple[str, ...] = ()


class RankCgroups:
    """The cgroups of the ranks of one run.

    Args:
        will: tells the guard where to clean up if the agent is killed.
        start: has an aide do what may take long: work, deadline, and who is answered.
        warn: prints a line.
        how: ``off`` leaves every cgroup alone; ``on`` takes the user's word that dsup
            was given its cgroup.
    """

    def __init__(
        self, will: Will, start: _Start, warn: Callable[[str], None], how: How
    ) -> None:
        self._will = will
        self._start = start
        self._warn = warn
        self._asked = how == "on"
        self._wanted = how != "off"

    def started(self, pids: Mapping[int, int]) -> None:
        """Have the ranks of an attempt moved, now that they run.

        Args:
            pids: pid of each rank.
        """
        if not self._wanted:
            return
        guard = os.getppid()
        if not self._will.cgroup:
            given = delegation(guard, trusted=self._asked)
            self._will.cgroup = given.directory
            if given.reason:
                self._give_up(given.reason, tell=self._asked)
                return
        work = partial(divide, self._will.cgroup, dict(pids), guard)
        self._start(work, time.monotonic() + MOVE_S, self._on_divided)

    def kill(self) -> None:
        """Kill all that lives in the ranks' cgroups, at a stroke."""
        if self._will.cgroup:
            kill(self._will.cgroup)

    def close(self) -> None:
        """Remove the ranks' cgroups, in which nobody lives any more."""
        if self._will.cgroup:
            remove(self._will.cgroup)

    def _on_divided(self, answer: bytes) -> None:
        """Take the aide's word; silence is that of a run which is over, most often."""
        if answer.startswith(_REFUSED):
            reason = answer.removeprefix(_REFUSED).decode(errors="replace")
            self._give_up(reason, tell=True)

    def _give_up(self, reason: str, *, tell: bool) -> None:
        self._wanted = False
        if tell:
            self._warn(
                f"cannot give each rank a cgroup of its own, because {reason} "
                "(--rank-cgroups off asks for none)"
            )


def delegation(main: int = 0, root: str = "", *, trusted: bool = False) -> Delegation:
    """Return whether the cgroup of this process may be divided.

    Args:
        main: the process that, with all that descends from it, may live in it; 0 for
            this process.
        root: stands for ``/`` wherever a path is read.
        trusted: the user says that it was handed over.
    """
    from dsup.linux import cgroup, divided, proc

    told = cgroup.membership(os.getpid(), root)
    found = cgroup.home("", told, cgroup.mounts(root))
    if found is None:
        return Delegation(reason="no hierarchy of cgroup version 2 is mounted")
    directory = found.chain[0]
    given = trusted or _is_given(directory, top=len(found.chain) == 1)
    reason = _refusal(directory, given=given, main=main or os.getpid())
    if reason:
        return Delegation(reason=reason)
    there = proc.read_bytes(f"{directory}/cgroup.controllers").decode().split()
    counted = tuple(name for name in divided.CONTROLLERS if name in there)
    return Delegation(directory, controllers=counted)


def _is_given(directory: str, *, top: bool) -> bool:
    """Return whether something proves that a cgroup is dsup's to divide.

    The topmost one that a container's root sees is the container's own.
    """
    from dsup.linux import divided

    return divided.is_delegated(directory) or (top and os.geteuid() == 0)


def _refusal(directory: str, *, given: bool, main: int) -> str:
    """Return why a cgroup is not to be divided; empty if it may be."""
    from dsup.linux import divided

    if divided.is_root(directory):
        return "dsup lives in the node's root cgroup, which is everybody's"
    if not divided.is_writable(directory):
        return f"{directory} is not writable for dsup"
    if not given:
        return f"{directory} was not handed over to dsup (systemd: Delegate=yes)"
    others = [n for n in divided.parts(directory) if not _is_ours(n)]
    if others:
        return f"{directory} is divided already ({', '.join(others[:_NAMES_MAX])})"
    strangers = set(divided.pids(directory)) - _family(main)
    if strangers:
        some = ", ".join(map(str, sorted(strangers)[:_NAMES_MAX]))
        return f"processes that are not dsup's live in {directory} (pid {some})"
    return ""


def divide(directory: str, ranks: Mapping[int, int], main: int) -> bytes:
    """Move each rank, with what it has started, to its cgroup, all else to dsup's.

    Args:
        directory: the cgroup that is divided.
        ranks: pid of each rank.
        main: the guard, from whom all descend.

    Returns:
        ``!`` and the reason if it could not be done; else the controllers that count.
    """
    from dsup.linux import divided

    left = remove(directory)
    if left:
        return f"!processes of an earlier attempt live in {left[0]}".encode()
    names = [AGENT, *map(of_rank, ranks)]
    for name in names:
        try:
            os.mkdir(f"{directory}/{name}")
        except FileExistsError:
            continue
        except OSError as error:
            remove(directory)
            return f"!cannot make {directory}/{name}: {error.strerror}".encode()
    for _ in range(_ROUNDS):
        if not _move(directory, ranks, main):
            break
    if divided.pids(directory):
        return f"!not all processes could be moved out of {directory}".encode()
    return " ".join(divided.enable(directory)).encode()


def _move(directory: str, ranks: Mapping[int, int], main: int) -> bool:
    """Move whoever is in the wrong place; return whether there was anybody."""
    from dsup.linux import divided, proc

    here = {*divided.pids(directory), *divided.pids(f"{directory}/{AGENT}")}
    moved = False
    for rank, pid in ranks.items():
        place = f"{directory}/{of_rank(rank)}"
        for one in here.intersection((pid, *proc.descendants(pid))):
            moved = divided.enter(place, one) or moved
    ours = _family(main)
    for pid in set(divided.pids(directory)) & ours:
        moved = divided.enter(f"{directory}/{AGENT}", pid) or moved
    return moved


def kill(directory: str) -> None:
    """Kill all that lives in the ranks' cgroups below a divided one."""
    from dsup.linux import divided

    divided.kill(_of_ranks(directory))


def remove(directory: str) -> list[str]:
    """Remove the ranks' cgroups; return those in which somebody still lives."""
    from dsup.linux import divided

    return divided.remove(_of_ranks(directory))


def leave(directory: str) -> None:
    """Leave a divided cgroup so that somebody else may live in it."""
    from dsup.linux import divided

    remove(directory)
    divided.disable(directory)


def _of_ranks(directory: str) -> Collection[str]:
    from dsup.linux import divided

    names = divided.parts(directory)
    return [f"{directory}/{n}" for n in names if n.startswith(RANK_PREFIX)]


def _is_ours(name: str) -> bool:
    number = name.removeprefix(RANK_PREFIX)
    return name == AGENT or (number != name and number.isdecimal())


def _family(main: int) -> set[int]:
    from dsup.linux import proc

    return {main, *proc.descendants(main)}
