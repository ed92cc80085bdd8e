"""Which rows of ranks are shown. Pure.

Up to ``ROWS_MAX`` ranks all are, in rank order, never sorted otherwise. Of more ranks
those are that matter; the rest is folded into rows by node and outcome.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dsup.report.html.lives import Attempt, Kind, RankLife, Role, named, roles
from dsup.report.html.words import ended
from dsup.report.sentences import spans

ROWS_MAX: Final = 16
FOLDED_MAX: Final = 4
VICTIMS_MAX: Final = 3
"""So many victims have a row of their own where ranks are many: the earliest."""

_DELAY: Final = re.compile(r",? *\+\d{1,9}(?:\.\d{1,9})? s$")
_HOW_MAX: Final = 200


class Row(NamedTuple):
    """One row: a rank, or ranks that ended alike.

    Attributes:
        ranks: whose row it is.
        role: how they ended.
        band: it stands out: the death began there.
        fold: it stands for several ranks.
        label: ``rank 5``, ``ranks 8-15`` or ``984 ranks``.
    """

    ranks: tuple[int, ...]
    role: Role
    band: bool = False
    fold: bool = False

    @property
    def label(self) -> str:
        """What stands before it."""
        if not self.fold:
            return f"rank {self.ranks[0]}"
        listed = spans(self.ranks)
        short = len(listed) <= 7  # noqa: PLR2004 (what fits before a row)
        return listed if short else f"{len(self.ranks):,} ranks"


def rows(attempt: Attempt) -> tuple[Row, ...]:
    """Return the rows of an attempt."""
    found, stand_out = roles(attempt), named(attempt)
    if len(attempt.ranks) <= ROWS_MAX:
        alone = [life.rank for life in attempt.ranks]
    else:
        alone = _telling(attempt, found)
    shown = [Row((rank,), found[rank], rank in stand_out) for rank in alone]
    rest = [life for life in attempt.ranks if life.rank not in set(alone)]
    return (*shown, *_folded(rest, found))


def said(role: Role) -> str:
    """Return how a rank ended, without how much later that was."""
    how = role.how[:_HOW_MAX].strip()
    delay = _DELAY.search(how)
    return how[: delay.start()] if delay else how


def outcome(role: Role, life: RankLife | None, ender: str) -> str:
    """Return how a rank ended, for the end of its row.

    Args:
        role: what its end means.
        life: it; None where the row stands for several.
        ender: who ended ranks: dsup, or the launcher.
    """
    status = ended(life.status) if life else ""
    match role.kind:
        case "victim":
            of = "" if role.of is None else f" of rank {role.of}"
            how = said(role)
            words = status if status and status in how else how or status
            return f"victim{of} · {words}" if words else f"victim{of}"
        case "ended":
            return f"ended by {ender}"
        case "told":
            return f"told to end by {ender}"
        case "own":
            return f"failed too · {status}"
        case "done":
            return "ended with 0"
        case _:
            return ""


def _telling(attempt: Attempt, found: dict[int, Role]) -> list[int]:
    """Return the ranks that matter, at most ``ROWS_MAX``, in rank order."""
    lives = attempt.ranks
    steps = Counter(life.step for life in lives if life.step is not None)
    usual = steps.most_common(1)[0][0] if steps else None
    kinds = Counter(role.kind for role in found.values() if role.kind != "first")
    typical = kinds.most_common(1)[0][0] if kinds else None
    victims = sorted(_of(lives, found, "victim"), key=lambda life: life.end_s or 0.0)
    wanted: list[Iterable[RankLife]] = [
        _of(lives, found, "first"),
        _of(lives, found, "own"),
        (life for life in lives if life.step not in {None, usual}),
        [*_of(lives, found, typical)][:1],
        victims[:VICTIMS_MAX],
    ]
    chosen = dict.fromkeys(life.rank for some in wanted for life in some)
    return sorted([*chosen][:ROWS_MAX])


def _of(
    lives: Iterable[RankLife], found: dict[int, Role], kind: Kind | None
) -> Iterator[RankLife]:
    return (life for life in lives if found[life.rank].kind == kind)


def _folded(rest: list[RankLife], found: dict[int, Role]) -> list[Row]:
    """Return rows of ranks that ended alike; less is told apart where they are many."""
    groups: dict[tuple[object, ...], list[RankLife]] = {}
    by_how = True
    for by_node, by_how in ((True, True), (True, False), (False, False)):
        groups = {}
        for life in rest:
            role = found[life.rank]
            key = (role.kind, life.node if by_node else "", *_detail(role, by_how))
            groups.setdefault(key, []).append(life)
        if len(groups) <= FOLDED_MAX:
            break
    rows = []
    for group in groups.values():
        one = found[group[0].rank]
        role = one if by_how else Role(one.kind)
        ranks = tuple(life.rank for life in group)
        rows.append(Row(ranks, role._replace(how=said(role)), fold=True))
    return rows


def _detail(role: Role, by_how: bool) -> tuple[object, ...]:
    return (role.of, said(role)) if by_how else ()
