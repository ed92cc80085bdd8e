"""Audit's record of a death by a signal that dumps core."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.audit import Abend, match
from dsup.facts.kernel import Record

IDS = "auid=1000 uid=1000 gid=1000 ses=2"
BODY = (
    f'{IDS} subj=unconfined pid=4177 comm="python3" exe="/usr/bin/python3" sig=6 res=1'
)


@pytest.mark.parametrize(
    "head",
    [
        "audit: type=1701 audit(1700000000.123:45): ",
        "type=1701 audit(1700000000.123:45): ",
        "type=ANOM_ABEND msg=audit(1700000000.123:45): ",
        "ANOM_ABEND ",
        "audit: ANOM_ABEND ",
        "audit[4177]: ANOM_ABEND ",
    ],
)
def test_a_death_is_told_in_both_forms(head):
    """The kernel prints it as a number, the journal by name."""
    text = head + BODY
    (abend,) = match([Record(1, 77, text)])

    assert abend == Abend(4177, "python3", "/usr/bin/python3", 6, 77, text)


def test_an_odd_name_is_decoded():
    """A name that holds blanks or quotes is written in hexadecimal."""
    text = f"audit: type=1701 audit(1.2:3): {IDS} pid=9 comm=6120622063 exe=2F78 sig=11"
    (abend,) = match([Record(None, None, text)])

    assert (abend.comm, abend.exe, abend.signum) == ("a b c", "/x", 11)


def test_a_name_cannot_give_itself_a_pid():
    """Fields are audit's own only outside the quotes, and each counts once."""
    text = (
        f'audit: type=1701 audit(1.2:3): {IDS} pid=9 comm="x pid=1 sig=9" sig=11 pid=2'
    )
    (abend,) = match([Record(None, None, text)])

    assert (abend.pid, abend.signum) == (9, 11)


def test_a_death_that_is_told_twice_is_one():
    """Kernel log and journal may both have it."""
    first = Record(1, 77, f"audit: type=1701 audit(1.2:3): {BODY}")

    assert len(match([first, Record(None, 80, f"ANOM_ABEND {BODY}")])) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"audit: type=1400 audit(1.2:3): {BODY}",
        f"the log said audit: type=1701 audit(1.2:3): {BODY}",
        "audit: type=1701 audit(1.2:3): pid=9 comm=x",
        "audit: type=1701 audit(1.2:3): comm=x sig=11",
        "audit: type=1701 audit(1.2:3): pid=9 sig=0",
        "audit: type=1701 audit(1.2:3): pid=99999999999 sig=11",
    ],
    ids=["another type", "quoted", "no signal", "no pid", "signal 0", "no such pid"],
)
def test_what_is_no_such_record_is_none(text):
    """Other records of audit's, and broken ones, tell of no death."""
    assert match([Record(None, None, text)]) == []


@given(st.text() | st.text().map(lambda text: f"ANOM_ABEND pid=9 sig=11 comm={text}"))
def test_no_text_makes_it_fail(text):
    """Whatever stands there, a death is told or it is not."""
    assert all(isinstance(abend, Abend) for abend in match([Record(None, None, text)]))
