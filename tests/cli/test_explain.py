"""--explain-policy: the whole policy, without a script."""

import pytest

from dsup.core.exits import CAUSES
from dsup.core.plan import PLANS


@pytest.fixture
def policy(dsup):
    """Give what --explain-policy prints."""
    said = dsup("launch", "--explain-policy")
    assert (said.code, said.err) == (0, "")
    return said.out


def test_every_cause_is_listed_once(policy):
    """The first column lists the causes, in the order of the table."""
    causes = policy.partition("\n\n")[0].splitlines()[1:]

    assert [line.split()[0] for line in causes] == list(CAUSES)


@pytest.mark.parametrize(
    "line",
    [
        "python_exception user the rank's own, else 1",
        "user_interrupt stop 130",
        "preempted stop 143",
        "killed infrastructure 128+n, else 137",
        "unkillable infrastructure 193",
        "hang infrastructure 194",
        "node_lost infrastructure 195",
    ],
)
def test_a_cause_is_listed_with_family_and_code(policy, line):
    """Operators read what each cause is worth."""
    listed = [" ".join(row.split()) for row in policy.splitlines()]

    assert any(row.startswith(line + " ") for row in listed)


@pytest.mark.parametrize(
    "line",
    [
        "a rank is frozen (state T) 60 s",
        "phase init without a step 1800 s",
        "phase eval without a step 3600 s",
        "a script that tells no steps no limit (--hang-after SECONDS)",
    ],
)
def test_it_is_listed_when_a_hang_is_one(policy, line):
    """Operators read what is waited for before a hang is acted upon."""
    assert line in [" ".join(row.split()) for row in policy.splitlines()]


def test_every_rule_is_listed_in_order(policy):
    """The restart rules are listed as they are tried."""
    rules = policy.partition("the first row that applies:\n")[2].splitlines()

    assert [line.split(maxsplit=1)[0] for line in rules] == [
        "restart" if row.restart else "give" for row in PLANS
    ]
    assert all(row.reason in line for row, line in zip(PLANS, rules, strict=True))
