"""What ``dsup diagnose`` has to say of one run, or of one pile of logs. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from dsup.core.verdict import Verdict
from dsup.report import verdict_file
from dsup.report.compared import comparison
from dsup.report.panel import Setting
from dsup_runtime import contract

if TYPE_CHECKING:
    from dsup.cli.run_files import RunFiles
    from dsup.postmortem import LogFinding
    from dsup.report.account import Account, State

Kind: TypeAlias = Literal["run", "logs", "verdict"]


class Case(NamedTuple):
    """One verdict, and what is needed to show it.

    Attributes:
        node: name of the node; empty if unknown.
        offset_s: CLOCK_REALTIME minus the verdict's clock, seconds.
        ended: exit code of the run and whose it is, where this attempt was its last.
        next_text: what followed.
        nodes: where its first ranks ran, if that is not ``node`` alone.
        zone: of the times that are shown: ``UTC``, or empty where a log has none.

    The others are as in ``Setting``.
    """

    verdict: Verdict
    node: str
    pids: dict[int, int]
    offset_s: float
    next_text: str
    logs: str
    ended: tuple[int, str] | None
    nodes: tuple[str, ...] = ()
    launcher: str = ""
    more: str = ""
    log: str = contract.STDERR_FILE
    zone: str = "UTC"

    def fields(self) -> dict[str, Any]:
        """Return it as programs read it."""
        known = verdict_file.fields(
            self.verdict, node=self.node, offset_s=self.offset_s, ended=self.ended
        )
        return {**known, "first_nodes": list(self.nodes)} if self.nodes else known

    def setting(self, unicode: bool, again: str = "") -> Setting:
        """Return what its panel needs.

        Args:
            unicode: the stream shows more than ASCII.
            again: as in ``Setting``.
        """
        return Setting(
            run="",
            node=", ".join(self.nodes) or self.node,
            pids=self.pids,
            offset_s=self.offset_s,
            next_text=self.next_text,
            logs=self.logs,
            unicode=unicode,
            launcher=self.launcher,
            more=self.more,
            log=self.log,
            again=again,
            roomy=True,
            zone=self.zone,
        )


class RunBasis(NamedTuple):
    """What a run's diagnosis was made from.

    Attributes:
        told: what its journal tells.
        offset_s: CLOCK_REALTIME minus the agent's clock, seconds.
        rebooted: its node has been booted since.
    """

    files: RunFiles
    told: Account
    offset_s: float
    rebooted: bool


class Diagnosis(NamedTuple):
    """A run, or logs.

    Attributes:
        kind: a run directory, another launcher's logs, or a verdict.json alone.
        name: what people know it by.
        paths: where it is; only logs may be in several places.
        node: empty if unknown.
        world_size: 0 if unknown.
        started_s: CLOCK_REALTIME, seconds; None if unknown.
        cases: a verdict for each attempt that failed, in order.
        remarks: what could not be read.
        outcome: what became of it; empty if unknown.
        state: the same in one word; None if unknown.
        bundle: the bundle that it was in; then ``paths`` are soon gone.
        launcher: who started the ranks; empty if unknown.
        basis: of a run.
        findings: of logs.
    """

    kind: Kind
    name: str
    paths: tuple[str, ...]
    node: str
    world_size: int
    started_s: float | None
    cases: tuple[Case, ...]
    remarks: tuple[str, ...]
    outcome: str
    launcher: str = "dsup"
    basis: RunBasis | None = None
    findings: tuple[LogFinding, ...] = ()
    state: State | None = None
    bundle: str = ""

    @property
    def path(self) -> str:
        """Where it is: of a run, its directory."""
        return self.paths[0]

    @property
    def verdicts(self) -> list[Verdict]:
        """Of each attempt that failed, in order."""
        return [case.verdict for case in self.cases]

    def source(self) -> dict[str, Any]:
        """Return what it is made from, as programs read it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "launcher": self.launcher or None,
            "node": self.node or None,
            "world_size": self.world_size or None,
            "outcome": self.outcome or None,
            "state": self.state,
            "compared": comparison(self.verdicts),
        }
