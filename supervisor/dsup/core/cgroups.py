"""How a cgroup that was given to dsup is divided: its parts, by name."""

from __future__ import annotations

from typing import Final

AGENT: Final = "agent"
"""Where agent, guard and aides live."""

RANK_PREFIX: Final = "rank_"


def of_rank(local_rank: int) -> str:
    """Return the name of a rank's cgroup."""
    return f"{RANK_PREFIX}{local_rank}"
