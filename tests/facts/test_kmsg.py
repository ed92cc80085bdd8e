"""Kernel-log records: only the kernel's own, unescaped once, whatever the source."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.facts.kernel import Record
from dsup.facts.kmsg import is_kernel, parse, parse_journal

ENTRY = {
    "_TRANSPORT": "kernel",
    "SYSLOG_FACILITY": "0",
    "PRIORITY": "3",
    "SYSLOG_IDENTIFIER": "kernel",
    "__MONOTONIC_TIMESTAMP": "1200",
    "_SOURCE_MONOTONIC_TIMESTAMP": "1000",
    "MESSAGE": "Out of memory",
}


@pytest.mark.parametrize(
    ("raw", "record"),
    [
        pytest.param(
            b"6,339,5140900,-;NET: Registered\n",
            Record(339, 5140900, "NET: Registered"),
        ),
        pytest.param(b"6,339,51,-;cut off", Record(339, 51, "cut off")),
        pytest.param(b"0,1,2,-;a panic\n", Record(1, 2, "a panic")),
        pytest.param(b"7,1,2,c;a fragment\n", Record(1, 2, "a fragment")),
        pytest.param(b"4,1,2,+;its rest\n", Record(1, 2, "its rest", True)),
        pytest.param(b"4,1,2,-,caller=T41;text\n", Record(1, 2, "text")),
        pytest.param(b"4,1,2,c,1,-;text\n", Record(1, 2, "text")),
        pytest.param(b"4,1,2,-;a;b,c\n", Record(1, 2, "a;b,c")),
        pytest.param(b"4,1,2,-;\n", Record(1, 2, "")),
        pytest.param(
            b"3,1,2,-;nvme: x\n SUBSYSTEM=pci\n DEVICE=+pci:0000:02:00.0\n",
            Record(1, 2, "nvme: x"),
        ),
        pytest.param(
            rb"4,1,2,-;NVRM: a\x0aNVRM: b" + b"\n", Record(1, 2, "NVRM: a\nNVRM: b")
        ),
        pytest.param(rb"4,1,2,-;\x09tab", Record(1, 2, "\ttab")),
        pytest.param(rb"6,1,2,-;/a\x5cx2db", Record(1, 2, r"/a\x2db")),
        pytest.param(rb"6,1,2,-;/a\x5cx5cx2d", Record(1, 2, r"/a\x5cx2d")),
        pytest.param(rb"6,1,2,-;\xc3\xa9 \xff", Record(1, 2, r"é \xff")),
        pytest.param(rb"6,1,2,-;half \x4", Record(1, 2, r"half \x4")),
    ],
    ids=(
        "plain",
        "no line end",
        "level 0",
        "fragment",
        "its continuation",
        "caller field",
        "fields unknown to us",
        "separators in the text",
        "no text",
        "dictionary lines",
        "several lines",
        "a tab",
        "unescaped once: a dash of systemd's",
        "unescaped once: an escaped backslash",
        "bytes that are no UTF-8",
        "cut within an escape",
    ),
)
def test_a_record_of_the_kernel_is_read(raw, record):
    """What the kernel printed comes back exactly, without what was put around it."""
    assert parse(raw) == record


@pytest.mark.parametrize("facility", [1, 3, 17, 127])
@pytest.mark.parametrize("level", [0, 3, 7])
def test_what_a_process_wrote_is_no_record(facility, level):
    """A write to /dev/kmsg never gets facility 0, and so is never believed."""
    prio = facility * 8 + level

    assert not is_kernel(prio)
    assert parse(b"%d,1,2,-;Out of memory: Killed process 1 (x)\n" % prio) is None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"Out of memory: Killed process 1 (x)", id="bare text"),
        pytest.param(b"<3>Out of memory", id="syslog form"),
        pytest.param(b" DEVICE=+pci:0000:02:00.0\n", id="a dictionary line"),
        pytest.param(b"-3,1,2,-;text", id="a negative priority"),
        pytest.param(b"3,1,2;text", id="no flags"),
        pytest.param(b"3,1,2,-\n;text", id="text on the second line"),
        pytest.param(b"3," + b"9" * 9000 + b",2,-;text", id="an endless number"),
    ],
)
def test_what_is_no_record_is_none(raw):
    """Nothing is made of bytes that the kernel did not write so."""
    assert parse(raw) is None


@pytest.mark.parametrize(
    ("changed", "record"),
    [
        pytest.param({}, Record(None, 1000, "Out of memory"), id="plain"),
        pytest.param(
            {"_SOURCE_MONOTONIC_TIMESTAMP": None},
            Record(None, 1200, "Out of memory"),
            id="only journald's own time",
        ),
        pytest.param(
            {"_SOURCE_MONOTONIC_TIMESTAMP": "x", "__MONOTONIC_TIMESTAMP": ["1"]},
            Record(None, None, "Out of memory"),
            id="no time at all",
        ),
        pytest.param(
            {"MESSAGE": [97, 9, 0xC3, 0xA9, 0xFF]},
            Record(None, 1000, r"a" + "\té" + r"\xff"),
            id="a list of bytes",
        ),
        pytest.param({"MESSAGE": ""}, Record(None, 1000, ""), id="empty"),
        pytest.param({"SYSLOG_FACILITY": "1"}, None, id="written by a process"),
        pytest.param({"SYSLOG_FACILITY": None}, None, id="no facility"),
        pytest.param({"SYSLOG_FACILITY": 0}, None, id="a facility of another type"),
        pytest.param({"SYSLOG_FACILITY": ["0", "1"]}, None, id="two facilities"),
        pytest.param({"_TRANSPORT": "syslog"}, None, id="not from the kernel log"),
        pytest.param({"MESSAGE": None}, None, id="left out, too long"),
        pytest.param({"MESSAGE": ["Out of", "memory"]}, None, id="two messages"),
        pytest.param({"MESSAGE": [1, 256]}, None, id="no bytes"),
    ],
)
def test_a_line_of_the_journal_is_read(changed, record):
    """The journal's copy counts as the log itself does, only without numbers."""
    assert parse_journal(json.dumps(ENTRY | changed)) == record


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "null", "7", '"text"', "-- No entries --", "[" * 90_000],
    ids=["empty", "cut", "list", "null", "number", "text", "remark", "deep"],
)
def test_what_is_no_line_of_the_journal_is_none(line):
    """Nothing is made of text that is no entry of the journal."""
    assert parse_journal(line) is None


@given(st.text(), st.integers(0, 7), st.integers(0, 2**64 - 1))
def test_every_text_survives_the_kernels_escaping(text, level, number):
    """The kernel escapes control characters, non-ASCII and backslashes; no other."""
    escaped = b"".join(
        bytes([b]) if 0x20 <= b < 0x7F and b != 0x5C else b"\\x%02x" % b
        for b in text.encode(errors="ignore")
    )
    raw = b"%d,%d,%d,-;%s\n KEY=v\n" % (level, number, number, escaped)
    shown = text.encode(errors="ignore").decode()

    assert parse(raw[:16_384]) == Record(number, number, shown)


@given(st.binary() | st.from_regex(rb"\A\d{1,3},\d*,\d*,[-c+],?[^;]*;.*"))
def test_no_bytes_make_the_parser_fail(raw):
    """Whatever stands in a record, it is read or it is none."""
    record = parse(raw)

    assert record is None or isinstance(record.text, str)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(sorted(ENTRY)),
)
def test_no_value_makes_the_journals_parser_fail(value, key):
    """Whatever stands in a field, the entry is read or it is none."""
    for line in (json.dumps(value), json.dumps(ENTRY | {key: value})):
        record = parse_journal(line)
        assert record is None or isinstance(record.text, str)
