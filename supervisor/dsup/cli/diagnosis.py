"""What is known of a run that left its directory: a verdict for each failed attempt."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dsup.cli.answer import Case, Diagnosis, RunBasis
from dsup.cli.foreign import kept_case, of_logs
from dsup.cli.run_clocks import clocks
from dsup.cli.run_files import (
    RunFiles,
    UnreadableRunError,
    closed_by,
    page_of,
    read_run,
    read_verdicts,
    run_file,
    why_unknown,
)
from dsup.cli.safe_files import files_below, tail_below
from dsup.core.errors import JournalError
from dsup.core.verdict import Verdict
from dsup.edges.scribe.retention import NAME
from dsup.facts.lines import TAIL_BYTES
from dsup.linux import proc
from dsup.report import account as accounts
from dsup.report import hindsight
from dsup.report.account import Account
from dsup.report.life import first_failure
from dsup_runtime import contract

_RANKS_MAX: Final = 1 << 24
_EMPTY: Final = "because it is empty"
"""How what is said of a log ends that nobody wrote to: most ranks have one."""

_RANK_LOGS: Final = (contract.STDOUT_FILE, contract.STDERR_FILE)


class Seen(NamedTuple):
    """What could be seen of a run on its own node, while it is read on another.

    Attributes:
        alive: a scribe held the journal; None where that could not be found out.
        rebooted: the node had been booted since.
    """

    alive: bool | None
    rebooted: bool


def diagnosis(path: str, seen: Seen | None = None) -> Diagnosis:
    """Return what is known of a run.

    Args:
        path: its directory.
        seen: what a bundle knows; None where this is the run's own directory.

    Raises:
        UnreadableRunError: the directory is no run's, or cannot be read.
    """
    try:
        files = read_run(path)
        told = accounts.account(files.lines)
    except JournalError as error:
        return _without_journal(path, f"cannot diagnose {path}: {error}")
    except UnreadableRunError as error:
        return _without_journal(path, str(error))
    if seen is not None:
        files = files._replace(alive=seen.alive)
    booted = rebooted(files) if seen is None else seen.rebooted
    return _Reading(files, told, rebooted=booted).diagnosis()


def _without_journal(path: str, refusal: str) -> Diagnosis:
    """Return what verdicts, else what the ranks' logs say of a run.

    Raises:
        UnreadableRunError: there are neither.
    """
    verdicts, odd = read_verdicts(path)
    known = run_file(path)
    node, missing = _host(path, known), " and ".join(_missing(path, known, refusal))
    name = os.path.basename(os.path.abspath(path))
    if verdicts:
        said = [f"{missing}; kept verdicts are shown"]
        cases = tuple(kept_case(kept, node) for _, kept in sorted(verdicts.items()))
        size = known.get("world_size")
        world_size = size if type(size) is int and 0 < size <= _RANKS_MAX else 0
        return Diagnosis(
            kind="run",
            name=name,
            paths=(path,),
            node=node,
            world_size=world_size,
            started_s=None,
            cases=cases,
            remarks=(*said, *map(_unread_verdict, odd)),
            outcome="what became of the run is not known",
        )
    if not any(_is_rank_log(below, found) for below, found in files_below(path)):
        raise UnreadableRunError(refusal)
    logs = of_logs([path])
    remarks = (one for one in logs.remarks if not one.endswith(_EMPTY))
    return logs._replace(
        name=name,
        paths=(path,),
        node=logs.node or node,
        cases=tuple(
            one._replace(node=one.node or node, launcher="") for one in logs.cases
        ),
        remarks=(f"{missing}; the ranks' logs were read", *remarks),
        launcher="dsup",
    )


def _missing(path: str, known: dict[str, object], refusal: str) -> Iterator[str]:
    """Yield what cannot be read of a run whose journal cannot be."""
    journal = contract.JOURNAL_FILE
    if os.path.lexists(os.path.join(path, journal)):
        yield f"the journal cannot be read ({refusal.rpartition('because ')[2]})"
    else:
        yield f"{journal} is missing"
    if not known:
        yield why_unknown(path)


def _host(path: str, known: dict[str, object]) -> str:
    """Return the name of a run's node, its directory's if need be; may be empty."""
    host = known.get("host")
    named = NAME.fullmatch(os.path.basename(os.path.abspath(path)))
    return host if isinstance(host, str) else named["host"] if named else ""


def _is_rank_log(below: str, found: os.stat_result) -> bool:
    return os.path.basename(below) in _RANK_LOGS and found.st_size > 0


def _unread_verdict(name: str) -> str:
    return f"{name} cannot be read"


class _Reading:
    """Puts a run's files together."""

    def __init__(self, files: RunFiles, told: Account, *, rebooted: bool) -> None:
        kept = files.verdicts.get(told.attempt)
        unwritten = told.gone and files.alive is not True
        closing = kept and unwritten and kept.verdict.rule == hindsight.GONE_RULE
        # Who closed the run wrote it; dsup had not lived to judge that attempt.
        self._closing = kept if closing else None
        if closing:
            rest = {n: one for n, one in files.verdicts.items() if n != told.attempt}
            files = files._replace(verdicts=rest)
        self._files = files
        self._told = told
        self._rebooted = rebooted
        self._clocks = clocks(files, told)
        self._offset_s, self._started_s = self._clocks[:2]
        self._node = _host(files.path, files.known) or "an unknown node"

    def diagnosis(self) -> Diagnosis:
        """Return all of it."""
        files, told = self._files, self._told
        numbers = accounts.failed(told, files.verdicts)
        cases = [self._case(number) for number in numbers]
        if told.gone and files.alive is not True:
            cases += self._cut_short(numbers)
            cases.append(self._gone())
        return Diagnosis(
            kind="run",
            name=os.path.basename(os.path.abspath(files.path)),
            paths=(files.path,),
            node=self._node,
            world_size=told.world_size,
            started_s=self._started_s,
            cases=tuple(cases),
            remarks=tuple(self._remarks()),
            outcome=accounts.outcome(told, files.alive),
            state=accounts.state(told, files.alive),
            basis=RunBasis(files, told, self._offset_s, self._rebooted),
        )

    def _case(self, number: int) -> Case:
        kept = self._files.verdicts.get(number)
        if kept is None:
            tails = self._tails(number)
            return self._made(hindsight.from_journal(self._told, number, tails))
        node = kept.nodes[0] if kept.nodes else self._node
        case = self._made(kept.verdict)
        return case._replace(node=node, offset_s=0.0, ended=kept.ended or case.ended)

    def _tails(self, number: int) -> dict[int, tuple[bytes, bytes]]:
        """Return the end of each rank's stderr and stdout, as far as they are kept."""
        life = self._told.lives.get(number)
        found = {}
        for rank in life.pids if life else ():
            directory = contract.rank_dir("", number, rank)
            err, out = (
                tail_below(self._files.path, f"{directory}/{name}", TAIL_BYTES)
                for name in (contract.STDERR_FILE, contract.STDOUT_FILE)
            )
            found[rank] = err, out
        return found

    def _cut_short(self, numbers: Sequence[int]) -> list[Case]:
        """Return the failure that dsup did not live to judge, if there is one."""
        number = self._told.attempt
        failed = first_failure(self._told.lives.get(number))
        return [self._case(number)] if failed and number not in numbers else []

    def _gone(self) -> Case:
        rebooted = not self._told.guard_lost and self._rebooted
        page = page_of(self._files.path, self._told.attempt)
        verdict = hindsight.agent_gone(
            self._told, node=self._node, rebooted=rebooted, page=page
        )
        by = closed_by(self._files.path)
        said = "nothing: dsup itself is gone"
        said = f"run {by} took its count of failures over" if by else said
        if self._closing is None:
            return self._made(verdict)._replace(next_text=said)
        case = self._made(self._closing.verdict)
        return case._replace(next_text=said, offset_s=0.0)

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
            log=self._log(verdict),
            ended=(told.end.code, told.end.origin) if told.end and last else None,
        )

    def _logs(self, verdict: Verdict) -> str:
        """Return the run directory, empty if its first rank left no log in it."""
        path = self._files.path
        place = contract.attempt_dir(path, verdict.attempt)
        if verdict.first_ranks:
            place = contract.rank_dir(path, verdict.attempt, verdict.first_ranks[0])
        return path if os.path.isdir(place) else ""

    def _log(self, verdict: Verdict) -> str:
        """Return the first rank's log that has its last words; empty for none."""
        if not verdict.first_ranks:
            return ""
        attempt, rank = verdict.attempt, verdict.first_ranks[0]
        place = contract.rank_dir(self._files.path, attempt, rank)
        return next((name for name in _RANK_LOGS[::-1] if _says(place, name)), "")

    def _remarks(self) -> list[str]:
        files, source = self._files, self._clocks.source
        said = []
        if source != contract.RUN_FILE:
            why = f"{contract.RUN_FILE} tells no times"
            why = why if files.known else why_unknown(files.path)
            said.append(f"{why}; times are told from {source}")
        said += [
            f"{_unread_verdict(name)}; its verdict is made from the journal alone"
            for name in files.odd
        ]
        unread = self._told.unread
        if unread:
            lines = "1 line" if unread == 1 else f"{unread} lines"
            said.append(f"{lines} of the journal cannot be read")
        return said


def _says(directory: str, name: str) -> bool:
    try:
        found = os.lstat(os.path.join(directory, name))
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def rebooted(files: RunFiles) -> bool:
    """Return whether this is the run's node, and has been booted since."""
    then = files.known.get("boot_id")
    if files.known.get("host") != os.uname().nodename or not isinstance(then, str):
        return False
    return then.strip() != proc.boot_id()
