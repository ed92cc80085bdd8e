"""What a console is shown: text as it is, everything else spelled out."""

import re
import sys
import time
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dsup.edges.scribe import text

HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param(b"plain\ttext\n", b"plain\ttext\n", id="plain text and tabs"),
        pytest.param("grün 漢字 🙂\n".encode(), "grün 漢字 🙂\n".encode(), id="UTF-8"),
        pytest.param(b"caf\xe9\n", b"caf\\xe9\n", id="a byte of another encoding"),
        pytest.param(b"\x1b[2J\x1b[H\n", b"\\x1b[2J\\x1b[H\n", id="cursor and screen"),
        pytest.param(b"\x1b]0;title\x07\n", b"\\x1b]0;title\\x07\n", id="title"),
        pytest.param(b"a\x08b\x00c\x7f\n", b"a\\x08b\\x00c\\x7f\n", id="controls"),
        pytest.param(b"\xc2\x9b2J\n", b"\\x9b2J\n", id="C1, in UTF-8"),
        pytest.param(b"\x9b2J\n", b"\\x9b2J\n", id="C1, as a byte"),
        pytest.param(b"\x1b[31mred\x1b[0m\n", b"red\n", id="colours"),
        pytest.param("a\u202eb\n".encode(), b"a\\u202eb\n", id="right to left"),
        pytest.param("a\u2028b\n".encode(), b"a\\u2028b\n", id="another line"),
        pytest.param("\ufeffa\u200bb\n".encode(), b"\\ufeffa\\u200bb\n", id="no width"),
        pytest.param("\U000e0041\n".encode(), b"\\U000e0041\n", id="a tag"),
        pytest.param("\xad\xa0\n".encode(), b"\\xad\xc2\xa0\n", id="a soft hyphen"),
    ],
)
def test_a_console_is_shown_text(written, shown):
    """Nothing a rank prints moves a cursor; colours are left out of plain consoles."""
    assert text.clean(written, colour=False) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param(b"\x1b[1;31mred\x1b[0m\n", b"\x1b[1;31mred\x1b[0m\n", id="pass"),
        pytest.param(b"\x1b[31mred\n", b"\x1b[31mred\x1b[0m\n", id="end with the line"),
        pytest.param(b"\x1b[31m\x1b[A\n", b"\x1b[31m\\x1b[A\x1b[0m\n", id="no more"),
    ],
)
def test_colours_on_a_terminal(written, shown):
    """A terminal gets colours, and nothing else; none runs into another's line."""
    assert text.clean(written, colour=True) == shown


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_harm_a_terminal(written, colour):
    """Whatever is written, what is shown is UTF-8 without controls."""
    shown = text.clean(written, colour=colour)

    assert not HARMFUL.search(COLOUR.sub(b"", shown).decode())
    assert shown.count(b"\n") == written.count(b"\n")


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf", "Zl", "Zp"])))
def test_text_passes_unchanged(written):
    """Clean text costs nothing, and is the same object."""
    block = written.encode()
    assume(not any("\u2060" <= c <= "\u206f" or c >= "\U000e0000" for c in written))

    assert text.clean(block, colour=False) is block


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("שלום, שלב 12: הפסד 0.31", id="Hebrew"),
        pytest.param("الخطوة ١٢: الخسارة ٠٫٣١", id="Arabic"),  # noqa: RUF001 (a language)
        pytest.param("می\u200cخواهم", id="Persian"),  # noqa: RUF001 (a language)
        pytest.param(
            "👩\u200d💻 👨\u200d👩\u200d👧 ❤\ufe0f", id="emoji made of several"
        ),
    ],
)
def test_other_scripts_stay_readable(written):
    """What words and emoji are made with passes."""
    block = written.encode()

    assert text.clean(block, colour=False) is block


def test_every_character_that_is_not_seen_is_spelled_out():
    """Format characters and line separators, but for joiners and visible signs."""
    every = map(chr, range(0x80, sys.maxunicode + 1))
    unseen = [c for c in every if unicodedata.category(c) in {"Cf", "Zl", "Zp"}]
    passed = [c for c in unseen if text.clean(c.encode(), colour=False) == c.encode()]
    joiners = {"\u200c", "\u200d"}

    assert joiners < set(passed)
    assert all(
        "ARABIC" in name or "SYRIAC" in name or "KAITHI" in name
        for name in map(unicodedata.name, set(passed) - joiners)
    )


@pytest.mark.parametrize(
    ("written", "begins", "shown"),
    [
        pytest.param(b"dsup: ok\n", True, b"(rank) dsup: ok\n", id="a line of dsup's"),
        pytest.param(b"a\ndsup: ok\n", False, b"a\n(rank) dsup: ok\n", id="further on"),
        pytest.param(b"dsup: ok\n", False, b"dsup: ok\n", id="the rest of a line"),
        pytest.param(
            "━━ dsup ━ attempt\n".encode(),
            True,
            "(rank) ━━ dsup ━ attempt\n".encode(),
            id="a panel",
        ),
        pytest.param(b"== dsup = a\n", True, b"(rank) == dsup = a\n", id="in ASCII"),
        pytest.param(
            b"\x1b[1mdsup: ok\n", True, b"(rank) \x1b[1mdsup: ok\n", id="in colour"
        ),
        pytest.param(b"the dsup: x\n", True, b"the dsup: x\n", id="in a line"),
    ],
)
def test_no_rank_speaks_as_dsup(written, begins, shown):
    """A line or a panel that begins as dsup's own do gets a mark."""
    assert text.own_up(written, begins=begins) == shown


@pytest.mark.parametrize(
    ("block", "binary"),
    [
        pytest.param(b"\x00\x01" * 4000, True, id="NULs"),
        pytest.param(bytes(range(256)) * 32, True, id="random bytes"),
        pytest.param(b"\x00\x01" * 100, False, id="too few to hide"),
        pytest.param(b"caf\xe9 au lait\n" * 1000, False, id="another encoding"),
        pytest.param(b"\x1b[31mred\x1b[0m\n" * 1000, False, id="colours"),
        pytest.param(b"\r 10%" * 1000, False, id="a bar"),
    ],
)
def test_data_is_told_from_text(block, binary):
    """Large blocks full of bytes that no text has are data."""
    assert text.is_binary(block) == binary


def test_last_words_after_data():
    """The clean lines at the end of a block are its last words."""
    assert text.last_words(b"\x00\n\x01\nlast\nwords\n") == b"last\nwords\n"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param(b"1%\r2%\r3%\n", b"3%\n", id="overwritten"),
        pytest.param(b"\r1%\r2%\r\n", b"2%\n", id="return before the end"),
        pytest.param(b"dos\r\nline\r\n", b"dos\nline\n", id="CRLF"),
        pytest.param(b"plain\n\r1%\r2%\nplain\n", b"plain\n2%\nplain\n", id="between"),
        pytest.param(b"a\r\r\nb\n", b"a\nb\n", id="two returns"),
    ],
)
def test_overwritten_lines_show_their_last_state(written, shown):
    """What a terminal would have shown in the end is what is shown."""
    assert text.final_states(written) == shown


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        pytest.param(b"\r1%\r2%", b"\r2%", id="returns before"),
        pytest.param(b"1%\r2%\r", b"\r2%\r", id="returns behind"),
        pytest.param(b"50%\r", b"50%\r", id="nothing overwritten"),
        pytest.param(b"50%\r\r\r", b"50%\r", id="more returns"),
        pytest.param(b"\r\r", b"\r", id="nothing but returns"),
    ],
)
def test_an_unfinished_line_keeps_its_last_state_only(written, kept):
    """A bar that runs for an hour takes no memory."""
    assert text.last_state(written) == kept


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\r" * 2_000_000 + b"x\n", id="returns"),
        pytest.param(b"x" * 2_000_000 + b"\n", id="one line"),
        pytest.param(b"x\r" * 1_000_000 + b"\n", id="states"),
        pytest.param(b"\n" * 2_000_000, id="lines"),
    ],
)
def test_no_input_is_slow(block):
    """Time grows with the input: with its square these would take an hour."""
    started = time.process_time()
    text.final_states(block)

    assert time.process_time() - started < 60


@pytest.mark.parametrize("character", ["é", "漢", "🙂"])
def test_characters_are_not_cut(character):
    """A piece ends before a character that is not all there."""
    whole = character.encode()

    for cut in range(1, len(whole)):
        assert text.whole_characters(b"ab" + whole[:cut]) == 2
    assert text.whole_characters(b"ab" + whole) == 2 + len(whole)
    assert text.whole_characters(b"ab\xff\xff") == 4


@pytest.mark.parametrize(
    ("block", "begins", "shown"),
    [
        pytest.param(b"a\nb\n", True, b">a\n>b\n", id="lines"),
        pytest.param(b"rest\nb\n", False, b"rest\n>b\n", id="the rest of one"),
        pytest.param(b"a\nb", True, b">a\n>b", id="an unfinished one"),
        pytest.param(b"\n\n", True, b">\n>\n", id="empty ones"),
    ],
)
def test_each_line_gets_its_mark_once(block, begins, shown):
    """A prefix stands before each line and nowhere else."""
    assert text.lead(block, b">", begins=begins) == shown


def test_times_are_iso_8601_in_utc_to_the_millisecond():
    """A log is compared with others': the format every tool knows."""
    assert text.stamp(1_700_000_000_012_999_999) == b"2023-11-14T22:13:20.012Z "
