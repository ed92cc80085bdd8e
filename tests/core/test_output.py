"""Where the ranks' output goes: torchrun's options, read as one table."""

import pytest

from dsup.core import streams
from dsup.core.appearance import appearance, level
from dsup.core.output import Route
from dsup.core.streams import Names, Streams, Wishes

NAMES = Names("default", "node7")


@pytest.mark.parametrize(
    ("text", "of_ranks"),
    [
        ("0", [0, 0, 0]),
        ("1", [1, 1, 1]),
        ("3", [3, 3, 3]),
        ("0:1,1:2", [1, 2, 0]),
        ("2:3", [0, 0, 3]),
        ("0:1,0:2", [2, 0, 0]),
    ],
)
def test_streams_are_named_as_for_torchrun(text, of_ranks):
    """A number is for every rank, a list for those it names."""
    parsed = streams.parse_streams(text)

    assert [parsed.of(rank) for rank in range(3)] == of_ranks
    assert parsed.none == (not any(of_ranks))


def test_a_rank_may_have_more_than_one_digit():
    """Torchrun's ranks end at 9."""
    assert streams.parse_streams("10:1,127:3").by_rank == {10: 1, 127: 3}


@pytest.mark.parametrize(
    "text", ["", "4", "33", "-1", "0:4", "0:", ":1", "0:1,", "a:1", "0:1;1:2", "0: 1"]
)
def test_what_names_no_streams_is_refused(text):
    """The refusal repeats the value and says what is allowed."""
    with pytest.raises(ValueError, match=r"0 \(none\), 1 \(stdout\)") as refused:
        streams.parse_streams(text)

    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("", None), (" ", None), ("0", {0}), ("0,12", {0, 12}), (" 1 , 1 ", {1})],
)
def test_a_filter_names_ranks(text, ranks):
    """Nothing named means every rank."""
    assert streams.parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["a", "1,", "-1", "1:2", "0-3"])
def test_what_is_no_rank_is_refused(text):
    """Ranges and words are not torchrun's either."""
    with pytest.raises(ValueError, match="is not a list of local ranks"):
        streams.parse_ranks(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("loss", ("loss",)),
        ("loss,Error:", ("loss", "Error:")),
        ("a,,b,c", ("a,b", "c")),
        (",a,", ("a",)),
    ],
)
def test_filters_are_separated_by_commas(text, expected):
    """A doubled comma is a comma of the text."""
    assert streams.parse_filters(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", None),
        ("4096", 4096),
        ("4k", 4096),
        ("64M", 64 << 20),
        ("1G", 1 << 30),
        ("1GiB", 1 << 30),
        ("2TB", 2 << 40),
    ],
)
def test_sizes(text, expected):
    """Powers of 1024, whatever the unit's spelling."""
    assert streams.parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "1", "4095", "1X", "-1G", "1.5G", "G"])
def test_what_is_no_size_of_a_file_is_refused(text):
    """A log of a few bytes would be rotated for ever."""
    with pytest.raises(ValueError, match="is not a size from 4K on"):
        streams.parse_size(text)


def consoles(wishes, ranks=3):
    """Return what the console shows of stdout and stderr of each rank."""
    found = streams.routes(wishes, NAMES, ranks)
    return [(rank.out.console, rank.err.console) for rank in found]


def test_by_default_everything_is_kept_and_shown_as_it_is():
    """Neither -r nor -t: a file for each stream, and the console raw."""
    (rank,) = streams.routes(Wishes(), NAMES, 1)

    assert rank == (Route(True, "raw"), Route(True, "raw"))


def test_a_prefix_ends_no_line_and_moves_no_cursor():
    """It comes from an option, and stands before every line on the console."""
    wishes = Wishes(
        redirects=streams.parse_streams("0"),
        tee=streams.parse_streams("3"),
        prefix="a\n\x1b[H${role_name}:",
    )
    (rank,) = streams.routes(wishes, Names("r\r", "host"), 1)

    assert rank.out.prefix == r"a\n\x1b[Hr\r:"


@pytest.mark.parametrize(
    ("redirects", "tee", "expected"),
    [
        ("3", None, [("none", "none")] * 3),
        ("1", None, [("none", "raw")] * 3),
        ("0", "3", [("prefixed", "prefixed")] * 3),
        ("0", "2", [("raw", "prefixed")] * 3),
        ("3", "1", [("prefixed", "none")] * 3),
        (
            "0:1,1:2",
            "2:3",
            [("none", "raw"), ("raw", "none"), ("prefixed", "prefixed")],
        ),
    ],
)
def test_what_the_console_shows(redirects, tee, expected):
    """Redirected is hidden, teed is prefixed, tee wins; the rest is raw."""
    wishes = Wishes(
        redirects=streams.parse_streams(redirects),
        tee=tee and streams.parse_streams(tee),
    )

    assert consoles(wishes) == expected


@pytest.mark.parametrize("tee", [None, Streams(3)])
def test_other_ranks_than_those_filtered_for_are_not_shown(tee):
    """Their output is in their files all the same."""
    wishes = Wishes(tee=tee, shown=frozenset({1}))
    shown = "prefixed" if tee else "raw"

    assert consoles(wishes) == [("none",) * 2, (shown,) * 2, ("none",) * 2]
    assert all(rank.out.file for rank in streams.routes(wishes, NAMES, 3))


@pytest.mark.parametrize(
    ("template", "prefix"),
    [
        (streams.PREFIX, "[trainer11]:"),
        ("[${role_name} g${rank}] ", "[trainer g11] "),
        ("$hostname|$local_rank|", "node7|11|"),
        ("${unknown}", "${unknown}"),
    ],
)
def test_the_prefix_of_a_rank(template, prefix):
    """Role, rank and host are filled in; what is unknown stays, as with torchrun."""
    wishes = Wishes(tee=Streams(1), prefix=template)
    rank = streams.routes(wishes, Names("trainer", "node7"), 12)[11]

    assert (rank.out.prefix, rank.err.prefix) == (prefix, "")


@pytest.mark.parametrize(
    ("tee", "shown", "expected"),
    [
        pytest.param(None, None, [True, True], id="of every rank"),
        pytest.param(Streams(0, {1: 1}), None, [False, True], id="of teed ranks"),
        pytest.param(None, frozenset({0}), [True, False], id="of shown ranks"),
    ],
)
def test_whose_lines_are_filtered(tee, shown, expected):
    """With --tee those of teed ranks, as with torchrun; without it those shown."""
    wishes = Wishes(tee=tee, shown=shown, filters=(("loss",), ("Error",)))
    found = streams.routes(wishes, NAMES, 2)

    assert [rank.out.filters == ("loss",) for rank in found] == expected


def test_each_stream_has_its_own_filters():
    """What is looked for in stdout is not looked for in stderr."""
    (rank,) = streams.routes(Wishes(filters=(("a",), ("b",))), NAMES, 1)

    assert (rank.out.filters, rank.err.filters) == (("a",), ("b",))


def test_without_rank_logs_there_are_no_files():
    """--log-dir /dev/null leaves the console."""
    (rank,) = streams.routes(Wishes(files=False), NAMES, 1)

    assert (rank.out.file, rank.out.console) == (False, "raw")


@pytest.mark.parametrize(
    ("environment", "terminal", "colour", "status"),
    [
        pytest.param({"TERM": "xterm"}, True, True, True, id="a terminal"),
        pytest.param({"TERM": "xterm"}, False, False, False, id="a pipe"),
        pytest.param({"TERM": "dumb"}, True, False, False, id="TERM=dumb"),
        pytest.param({"CI": "true"}, True, False, False, id="CI"),
        pytest.param({"NO_COLOR": "1"}, True, False, True, id="NO_COLOR"),
        pytest.param({"NO_COLOR": ""}, True, True, True, id="NO_COLOR is empty"),
        pytest.param({"FORCE_COLOR": "1"}, False, True, False, id="FORCE_COLOR"),
        pytest.param({"FORCE_COLOR": "0"}, False, False, False, id="FORCE_COLOR=0"),
        pytest.param(
            {"FORCE_COLOR": "1", "TERM": "dumb"}, True, True, False, id="forced, dumb"
        ),
        pytest.param(
            {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False, True, id="NO_COLOR wins"
        ),
    ],
)
def test_what_the_console_is_good_for(environment, terminal, colour, status):
    """Colours are a wish that can be stated; a redrawn line needs a real terminal."""
    assert appearance(environment, terminal=terminal) == (colour, status)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("DEBUG", "verbose"),
        ("info", "verbose"),
        ("WARNING", "normal"),
        ("", "normal"),
        ("ERROR", "quiet"),
        ("critical", "quiet"),
        ("trace", "normal"),
    ],
)
def test_loglevel_says_how_much(value, expected):
    """Torchrun's variable, with logging's names; an unknown one changes nothing."""
    assert level({"LOGLEVEL": value}) == expected
