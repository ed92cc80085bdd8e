"""What is known of a run that left its directory: a verdict for each failed attempt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dsup.cli.run_files import RunFiles, UnreadableRunError, read_file, read_run
from dsup.core.errors import JournalError
from dsup.core.verdict import Verdict
from dsup.report import account as accounts
from dsup.report import hindsight, verdict_file
from dsup.report.account import Account
from dsup.report.panel import Setting
from dsup_runtime import contract

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_CLOCK_MAX_S: Final = 1 << 40


class Case(NamedTuple):
    """One verdict, and what is needed to show it.

    Attributes:
        offset_s: CLOCK_REALTIME minus the verdict's clock, seconds.
        ended: exit code of the run and whose it is, where this attempt was its last.
        next_text: what followed.

    The others are as in ``Setting``.
    """

    verdict: Verdict
    node: str
    pids: dict[int, int]
    offset_s: float
    next_text: str
    logs: str
    ended: tuple[int, str] | None

    def fields(self) -> dict[str, Any]:
        """Return it as programs read it."""
        return verdict_file.fields(
            self.verdict, node=self.node, offset_s=self.offset_s, ended=self.ended
        )

    def setting(self, unicode: bool) -> Setting:
        """Return what its panel needs."""
        return Setting(
            run="",
            node=self.node,
            pids=self.pids,
            offset_s=self.offset_s,
            next_text=self.next_text,
            logs=self.logs,
            unicode=unicode,
        )


class Diagnosis(NamedTuple):
    """A run.

    Attributes:
        cases: a verdict for each attempt that failed, in order.
        remarks: what could not be read.
        outcome: what became of the run.
        started_s: CLOCK_REALTIME, seconds.
    """

    name: str
    node: str
    world_size: int
    started_s: float
    cases: tuple[Case, ...]
    remarks: tuple[str, ...]
    outcome: str


def diagnosis(path: str) -> Diagnosis:
    """Return what is known of a run.

    Raises:
        UnreadableRunError: the directory is no run's, or cannot be read.
    """
    files = read_run(path)
    try:
        told = accounts.account(files.lines)
    except JournalError as error:
        raise UnreadableRunError(f"cannot diagnose {path}: {error}") from None
    return _Reading(files, told).diagnosis()


class _Reading:
    """Puts a run's files together."""

    def __init__(self, files: RunFiles, told: Account) -> None:
        self._files = files
        self._told = told
        self._offset_s, self._started_s = _clocks(files, told)
        host = files.known.get("host")
        self._node = host if isinstance(host, str) else "an unknown node"

    def diagnosis(self) -> Diagnosis:
        """Return all of it."""
        files, told = self._files, self._told
        numbers = accounts.failed(told, files.verdicts)
        cases = [self._case(number) for number in numbers]
        if told.gone and files.alive is not True:
            cases += self._cut_short(numbers)
            cases.append(self._gone())
        return Diagnosis(
            name=os.path.basename(files.path),
            node=self._node,
            world_size=told.world_size,
            started_s=self._started_s,
            cases=tuple(cases),
            remarks=tuple(self._remarks()),
            outcome=accounts.outcome(told, files.alive),
        )

    def _case(self, number: int) -> Case:
        kept = self._files.verdicts.get(number)
        if kept is None:
            return self._made(hindsight.from_journal(self._told, number))
        node = kept.nodes[0] if kept.nodes else self._node
        case = self._made(kept.verdict)
        return case._replace(node=node, offset_s=0.0, ended=kept.ended or case.ended)

    def _cut_short(self, numbers: Sequence[int]) -> list[Case]:
        """Return the failure that dsup did not live to judge, if there is one."""
        number = self._told.attempt
        failed = accounts.first_failure(self._told.lives.get(number))
        return [self._case(number)] if failed and number not in numbers else []

    def _gone(self) -> Case:
        rebooted = not self._told.guard_lost and _rebooted(self._files)
        verdict = hindsight.agent_gone(self._told, node=self._node, rebooted=rebooted)
        return self._made(verdict)._replace(next_text="nothing: dsup itself is gone")

    def _made(self, verdict: Verdict) -> Case:
        told, number = self._told, verdict.attempt
        life = told.lives.get(number)
        last = number == told.attempt and told.end is not None
        return Case(
            verdict=verdict,
            node=self._node,
            pids=life.pids if life else {},
            offset_s=self._offset_s,
            next_text=accounts.sequel(told, number, self._offset_s, self._files.alive),
            logs=self._logs(verdict),
            ended=(told.end.code, told.end.origin) if told.end and last else None,
        )

    def _logs(self, verdict: Verdict) -> str:
        """Return the run directory, empty if its first rank left no log in it."""
        path = self._files.path
        place = contract.attempt_dir(path, verdict.attempt)
        if verdict.first_ranks:
            place = contract.rank_dir(path, verdict.attempt, verdict.first_ranks[0])
        return path if os.path.isdir(place) else ""

    def _remarks(self) -> list[str]:
        said = [
            f"{name} cannot be read; its verdict is made from the journal alone"
            for name in self._files.odd
        ]
        unread = self._told.unread
        if unread:
            lines = "1 line" if unread == 1 else f"{unread} lines"
            said.append(f"{lines} of the journal cannot be read")
        return said


def _clocks(files: RunFiles, told: Account) -> tuple[float, float]:
    """Return CLOCK_REALTIME minus the agent's clock, and when the run began."""
    clocks = files.known.get("clocks")
    if isinstance(clocks, dict):
        wall_ns, agent_ns = clocks.get("realtime_ns"), clocks.get("monotonic_ns")
        if type(wall_ns) is int and type(agent_ns) is int:
            offset_s, wall_s = (wall_ns - agent_ns) / 1e9, wall_ns / 1e9
            if 0 <= offset_s <= _CLOCK_MAX_S and wall_s <= _CLOCK_MAX_S:
                return offset_s, wall_s
    last_s = told.last.at_s if told.last else 0.0
    return files.written_s - last_s, files.written_s


def _rebooted(files: RunFiles) -> bool:
    """Return whether this is the run's node, and has been booted since."""
    then = files.known.get("boot_id")
    if files.known.get("host") != os.uname().nodename or not isinstance(then, str):
        return False
    now = read_file(_BOOT_ID, 64).decode().strip()
    return then.strip() != now
