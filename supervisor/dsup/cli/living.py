"""The ranks of a run that runs now, on this node: who they are, by its journal.

A pid in a journal proves nothing: the number may be another process's by now. So a
process counts as a rank only if it was made when the journal says that the rank was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from dsup.cli.asked import meant
from dsup.cli.run_files import RunFiles, read_run
from dsup.core import events as ev
from dsup.core.errors import JournalError, SpecError
from dsup.core.journal import decode
from dsup.linux import proc

_BEFORE_S: Final = 10.0
"""A rank is told of when it has been made; a busy node may take so long in between."""

_AFTER_S: Final = 0.1


class Living(NamedTuple):
    """The ranks of a run that have not ended.

    Attributes:
        path: the run directory.
        attempt: the one that runs.
        pids: of each rank.
    """

    path: str
    attempt: int
    pids: Mapping[int, int]

    def of(self, rank: int | None) -> Mapping[int, int]:
        """Return the pids of one rank, or of all.

        Raises:
            SpecError: that rank does not run.
        """
        if rank is None:
            return self.pids
        if rank not in self.pids:
            there = ", ".join(map(str, sorted(self.pids)))
            raise SpecError(
                f"cannot show rank {rank}, because it does not run (those that do: "
                f"{there})"
            )
        return {rank: self.pids[rank]}


def find(word: str | None, environment: Mapping[str, str]) -> Living:
    """Return the living ranks of the run that is meant.

    Raises:
        SpecError: there is no such run, or it does not run here, or is another user's.
        UnreadableRunError: it holds no journal that can be read.
    """
    item = meant([] if word is None else [word], environment).items[0]
    if item.kind != "run":
        raise SpecError(
            f"cannot show stacks of {word}, because it is no run directory of dsup's "
            "(give a run's name, or its directory)"
        )
    files = read_run(item.path)
    name = os.path.basename(files.path)
    _refuse_elsewhere(name, files)
    attempt, started = _started(files.lines)
    pids = {rank: one.pid for rank, one in started.items() if _is_still(one)}
    if files.alive is False or not started:
        raise SpecError(
            f"cannot show stacks of {name}, because it has ended or no rank of it runs "
            "(dsup diagnose says what became of it)"
        )
    if not pids:
        raise SpecError(
            f"cannot show stacks of {name}, because none of its ranks can be seen from "
            "here (run dsup stacks in the same container)"
        )
    refuse_strangers(name, pids, os.geteuid())
    return Living(files.path, attempt, pids)


def _refuse_elsewhere(name: str, files: RunFiles) -> None:
    """Refuse a run of another node, or from before the last boot.

    Raises:
        SpecError: it is one.
    """
    boot_id = proc.boot_id()
    if files.known.get("boot_id") in (None, boot_id):
        return
    host, here = files.known.get("host"), os.uname().nodename
    if host == here:
        raise SpecError(
            f"cannot show stacks of {name}, because {here} was booted since it ran "
            "(dsup diagnose says what became of it)"
        )
    raise SpecError(
        f"cannot show stacks of {name}, because it runs on {host}, and this is {here} "
        "(run dsup stacks there)"
    )


def refuse_strangers(name: str, pids: Mapping[int, int], user: int) -> None:
    """Refuse processes of another user.

    Args:
        name: of the run.
        pids: of its ranks.
        user: who wants to look.

    Raises:
        SpecError: there is one.
    """
    for pid in pids.values():
        with suppress(OSError):
            owner = os.stat(f"/proc/{pid}").st_uid
            if user not in (0, owner):
                raise SpecError(
                    f"cannot show stacks of {name}, because its ranks belong to user "
                    f"id {owner} (run dsup stacks as that user, or as root)"
                )


def _started(lines: list[str]) -> tuple[int, dict[int, ev.RankStarted]]:
    """Return the last attempt of a journal, and its ranks that have not ended."""
    attempt, started = 0, dict[int, ev.RankStarted]()
    for line in lines:
        if '"rank_started"' not in line and '"rank_exited"' not in line:
            continue
        with suppress(JournalError):  # it is being written
            event = decode(line).event
            if isinstance(event, ev.RankStarted):
                if event.attempt != attempt:
                    attempt, started = event.attempt, {}
                started[event.rank] = event
            elif isinstance(event, ev.RankExited):
                started.pop(event.rank, None)
    return attempt, started


def _is_still(one: ev.RankStarted) -> bool:
    """Return whether a pid is still that of the rank that had it.

    A process's start is counted by a clock that goes on while the machine sleeps.
    """
    found = proc.stat(one.pid)
    if found is None:
        return False
    asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    made_s = found.start * proc.TICK_S
    return one.at_s - _BEFORE_S <= made_s <= one.at_s + asleep_s + _AFTER_S
