"""What a check finds, and what all findings together mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from dsup.core.exits import NODE_UNFIT, OK, WRONG_CALL

if TYPE_CHECKING:
    from dsup.checkup.readings import Readings

State: TypeAlias = Literal["ok", "warn", "bad", "unknown"]
"""``bad``: a run would fail here, or not be worth its time; ``warn``: it runs, and
something costs it or blinds dsup; ``unknown``: that could not be found out."""

Group: TypeAlias = Literal[
    "Node", "GPUs", "Network", "Storage", "Limits", "The job", "What dsup will see"
]

GROUPS: Final[tuple[Group, ...]] = (
    "Node",
    "GPUs",
    "Network",
    "Storage",
    "Limits",
    "The job",
    "What dsup will see",
)
"""In the order in which they are shown."""

OF_THE_JOB: Final = "The job"
"""What is bad there another node would not cure."""


class Said(NamedTuple):
    """What a check says.

    Attributes:
        state: how it stands.
        text: what was found, one clause that begins with a small letter.
        fix: what to type, or to do; empty where nothing is to be done.
        job: it is the job's own doing, whatever the check looks at.
    """

    state: State
    text: str
    fix: str = ""
    job: bool = False


class Check(NamedTuple):
    """A check.

    Attributes:
        name: as in the runbook, where it has a section.
        group: where it is shown.
        judge: says how it stands; nothing where it does not apply.
    """

    name: str
    group: Group
    judge: Callable[[Readings], Iterable[Said]]


class Finding(NamedTuple):
    """What a check said, with its name."""

    check: str
    group: Group
    state: State
    text: str
    fix: str


def judged(checks: Sequence[Check], readings: Readings) -> Iterator[Finding]:
    """Yield all that the checks say, group by group."""
    found = [
        Finding(
            check.name,
            OF_THE_JOB if said.job else check.group,
            said.state,
            said.text,
            said.fix,
        )
        for check in checks
        for said in check.judge(readings)
    ]
    for group in GROUPS:
        yield from (finding for finding in found if finding.group == group)


def verdict(findings: Sequence[Finding]) -> Said:
    """Return what it all means: fit unless something is bad."""
    bad = _named(findings, "bad")
    ours = [f for f in findings if f.group != OF_THE_JOB and f.state == "bad"]
    warned, unknown = _named(findings, "warn"), _named(findings, "unknown")
    rest = [
        f"{len(names)} {what}"
        for names, what in ((warned, "to look at"), (unknown, "not known"))
        if names
    ]
    more = f" ({', '.join(rest)})" if rest else ""
    if ours:
        return Said("bad", f"this node is not fit: {', '.join(bad)}{more}")
    if bad:
        return Said("bad", f"this node is fit, the job is not: {', '.join(bad)}{more}")
    return Said("warn" if rest else "ok", f"this node is fit{more}")


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 193 for a bad node, 2 where only the job's own settings are bad, else 0.

    A scheduler takes a node out for the first, and no node cures the second.
    """
    groups = {finding.group for finding in findings if finding.state == "bad"}
    if groups - {OF_THE_JOB}:
        return NODE_UNFIT
    return WRONG_CALL if groups else OK


def silent(who: str, limit_s: float) -> Said:
    """Return what is said of something that did not answer."""
    return Said("unknown", f"{who} did not answer within {limit_s:g} s")


def _named(findings: Iterable[Finding], state: State) -> list[str]:
    """Return the checks in a state, each once."""
    return list(dict.fromkeys(f.check for f in findings if f.state == state))
