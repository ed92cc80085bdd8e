"""The scenarios of a drill, as data: what is done, and what dsup must say of it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.core.verdict import Certainty

Harmed: TypeAlias = Literal["rank", "agent", "guard"]


class Expected(NamedTuple):
    """What must come of a scenario.

    Attributes:
        cause: of the verdict.
        rank: the first rank; None where none is to be named.
        certainty: how sure the verdict must be at least.
        resumes: from the newest checkpoint there was, or from one before it.
    """

    cause: str
    rank: int | None = 1
    certainty: Certainty = "likely"
    resumes: Literal["newest", "before"] = "newest"


class Scenario(NamedTuple):
    """One way to break a job.

    Attributes:
        name: on the command line.
        injected: what is done, one line.
        expected: what must come of it.
        harmed: to whom it is done.
        needs: what it needs beside the job; empty for nothing.
        hang_after_s: after how long without a step a rank hangs, seconds.
    """

    name: str
    injected: str
    expected: Expected
    harmed: Harmed = "rank"
    needs: str = ""
    hang_after_s: int = 60

    @property
    def victim(self) -> int:
        """The rank it is done to."""
        return self.expected.rank or 0


_HANG_S: Final = 3

SCENARIOS: Final = (
    Scenario("kill", "SIGKILL of a rank", Expected("killed")),
    Scenario(
        "raise",
        "an exception in a rank",
        Expected("python_exception", certainty="proven"),
    ),
    Scenario(
        "slow-exit",
        "an exception in a rank that ends a second after those that lose it",
        Expected("python_exception", certainty="proven"),
    ),
    Scenario(
        "exit-code",
        "a rank ends with exit code 7 and says nothing",
        Expected("python_exception"),
    ),
    Scenario("segfault", "a read of address 0 in a rank", Expected("segfault")),
    Scenario(
        "early-exit",
        "a rank ends with exit code 0 while the others need it",
        Expected("early_exit"),
    ),
    Scenario(
        "oom",
        "the kernel kills a rank that outgrows its memory cgroup",
        Expected("host_oom", certainty="proven"),
        needs="to make a memory cgroup, and to read the kernel log",
    ),
    Scenario(
        "disk-full",
        "a rank writes to a full file system, a tmpfs that it alone sees",
        Expected("disk_full", certainty="proven"),
        needs="to mount a tmpfs in a namespace of its own: root, or user namespaces",
    ),
    Scenario(
        "torn-checkpoint",
        "the newest checkpoint is cut in half, and rank 0 killed",
        Expected("killed", 0, resumes="before"),
    ),
    Scenario("stop", "SIGSTOP of a rank", Expected("hang"), hang_after_s=_HANG_S),
    Scenario(
        "hang",
        "a rank waits for a lock that it holds itself",
        Expected("hang"),
        hang_after_s=_HANG_S,
    ),
    Scenario(
        "silence",
        "a rank works on, but tells no more steps",
        Expected("hang"),
        hang_after_s=_HANG_S,
    ),
    Scenario(
        "agent-killed",
        "SIGKILL of dsup's agent; the job is launched again",
        Expected("agent_killed", None),
        harmed="agent",
    ),
    Scenario(
        "guard-killed",
        "SIGKILL of dsup's guard; the job is launched again",
        Expected("agent_killed", None),
        harmed="guard",
    ),
)

BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
