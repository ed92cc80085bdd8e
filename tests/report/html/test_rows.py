"""Which rows of ranks are shown."""

from dsup.core.verdict import Victim
from dsup.report.html.lives import Role
from dsup.report.html.rows import ROWS_MAX, outcome, rows, said


def test_up_to_sixteen_ranks_all_are_shown(stories):
    """Sixteen ranks have sixteen rows, in rank order."""
    found = rows(stories.run(ranks=16).attempt)

    assert [row.ranks for row in found] == [(rank,) for rank in range(16)]
    assert [row.ranks for row in found if row.band] == [(5,)]


def test_of_many_ranks_those_that_matter(stories):
    """Of a thousand ranks the first, its victims and a typical one have rows."""
    found = rows(stories.run(ranks=1000).attempt)
    alone = [row.ranks[0] for row in found if not row.fold]

    assert alone == [0, 4, 5, 6]
    assert len(found) == 5
    assert found[-1].fold
    assert len(found[-1].ranks) == 996
    assert found[-1].label == "996 ranks"


def test_every_rank_has_a_row(stories):
    """No rank is in two rows, and none in no row."""
    attempt = stories.run(ranks=64).attempt
    ranks = [rank for row in rows(attempt) for rank in row.ranks]

    assert sorted(ranks) == list(range(64))


def test_a_rank_that_stood_elsewhere_is_shown(stories):
    """A rank whose last step differs has a row of its own."""
    attempt = stories.run(ranks=64).attempt
    lives = list(attempt.ranks)
    lives[40] = lives[40]._replace(step=7)

    found = rows(attempt._replace(ranks=tuple(lives)))

    assert (40,) in [row.ranks for row in found]


def test_many_first_ranks_leave_no_room(stories):
    """Never more than sixteen ranks have rows of their own."""
    attempt = stories.run(ranks=64).attempt
    verdict = attempt.verdict._replace(first_ranks=tuple(range(40)))

    found = rows(attempt._replace(verdict=verdict))

    assert sum(not row.fold for row in found) == ROWS_MAX


def test_rest_is_folded_by_node_and_outcome(stories):
    """Ranks of two nodes that ended alike are two rows."""
    attempt = stories.run(ranks=64).attempt
    lives = tuple(
        life._replace(node="gpu-a18" if life.rank > 31 else "gpu-a17")
        for life in attempt.ranks
    )

    folded = [row for row in rows(attempt._replace(ranks=lives)) if row.fold]

    assert [row.ranks[-1] for row in folded] == [31, 63]


def test_many_ways_to_end_become_few_rows(stories):
    """Twenty kinds of victims are one row, as victims."""
    attempt = stories.run(ranks=64).attempt
    victims = tuple(Victim(rank, 5, f"error {rank}") for rank in range(30, 60))
    verdict = attempt.verdict._replace(victims=victims)

    folded = [row for row in rows(attempt._replace(verdict=verdict)) if row.fold]

    assert len(folded) <= 4
    assert {row.role.kind for row in folded} == {"victim", "ended"}


def test_all_alike_none_stands_out(stories):
    """Where all ranks failed alike, no row is loud."""
    attempt = stories.run().attempt
    verdict = attempt.verdict._replace(first_ranks=tuple(range(8)), victims=())

    found = rows(attempt._replace(verdict=verdict))

    assert not any(row.band for row in found)
    assert {row.role.kind for row in found} == {"first"}


def test_outcomes(stories):
    """The end of a row says of whom a rank died, and how."""
    life = stories.run().attempt.ranks[4]

    victim = Role("victim", 5, "connection closed by peer, exit 1, +0.3 s")
    assert outcome(victim, life, "dsup") == "victim of rank 5 · exit 1"
    assert outcome(Role("ended"), life, "the launcher") == "ended by the launcher"
    assert outcome(Role("own"), life, "dsup") == "failed too · exit 1"
    assert outcome(Role("open"), life, "dsup") == ""
    assert said(victim) == "connection closed by peer, exit 1"
