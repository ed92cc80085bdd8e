"""The journal: what is written can be read, what is damaged is refused, runs replay."""

import contextlib
import json
import types
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.core import events as ev
from dsup.core import journal
from dsup.core.commands import Command
from dsup.core.errors import JournalError
from dsup.core.events import Event
from dsup.core.plan import Policy
from dsup.core.state import Spec

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.jsonl"))
KINDS = [*typing.get_args(Event), *typing.get_args(Command)]

FINITE = st.floats(allow_nan=False, allow_infinity=False)
# What the kernel hands out as a name need not be text.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=50)
PLAIN = {int: st.integers(), float: FINITE, bool: st.booleans(), str: ANY_TEXT}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)

TICK = '{"n":1,"event":"tick","at_s":1.0}'
EXIT = '{"n":1,"command":"exit","code":0,"origin":"rank"}'


def of_type(hint):
    """Return a strategy for an annotation."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(of_type(args[0]), max_size=4).map(tuple)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([of_type(arg) for arg in args])
    if hint is Policy:
        return of_class(Policy)
    return st.none() if hint is type(None) else PLAIN[hint]


def of_class(cls):
    """Return a strategy for a NamedTuple, made from its annotations."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{name: of_type(hint) for name, hint in hints.items()})


@pytest.mark.parametrize("cls", KINDS, ids=[cls.__name__ for cls in KINDS])
@given(data=st.data(), n=st.integers(1))
def test_every_event_and_command_survives_its_line(cls, data, n):
    """What is encoded is decoded to the same value, in one line of ASCII."""
    item = data.draw(of_class(cls))

    line = journal.encode(n, item)

    entry = journal.decode(line)
    assert (entry.n, entry.event or entry.command) == (n, item)
    assert (entry.event is None) is (cls in typing.get_args(Command))
    assert line.isascii()
    assert "\n" not in line


@given(spec=of_class(Spec))
def test_the_header_survives_its_line(spec):
    """The rules of a run are read as they were written."""
    assert journal.decode_header(journal.header(spec)) == spec


def changed(line, **changes):
    """Return a line with fields replaced; Ellipsis takes one away."""
    fields = json.loads(line) | changes
    return json.dumps({k: v for k, v in fields.items() if v is not ...})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut short"),
        pytest.param("Traceback (most recent call last):", id="no JSON"),
        pytest.param("[1,2]", id="no object"),
        pytest.param("[" * 60_000, id="too deep"),
        pytest.param(changed(TICK, at_s="x" * 70_000), id="too long"),
        pytest.param(changed(TICK, event="eclipse"), id="unknown event"),
        pytest.param(changed(TICK, event=["tick"]), id="kind is no word"),
        pytest.param(changed(TICK, event=...), id="no kind"),
        pytest.param(changed(EXIT, command="reboot"), id="unknown command"),
        pytest.param(changed(TICK, n=...), id="no number"),
        pytest.param(changed(TICK, n="1"), id="number is text"),
        pytest.param(changed(TICK, n=True), id="number is true"),
        pytest.param(changed(TICK, n=1.5), id="number is broken"),
        pytest.param(changed(TICK, at_s=...), id="field missing"),
        pytest.param(changed(TICK, colour="red"), id="field too many"),
        pytest.param(changed(TICK, kind="launched"), id="two kinds"),
        pytest.param(changed(TICK, at_s="now"), id="text for a number"),
        pytest.param(changed(TICK, at_s=None), id="null for a number"),
        pytest.param(changed(TICK, at_s=True), id="true for a number"),
        pytest.param(changed(TICK, at_s=[1.0]), id="list for a number"),
        pytest.param(changed(TICK, at_s={}), id="object for a number"),
        pytest.param(TICK.replace("1.0", "NaN"), id="not a number"),
        pytest.param(TICK.replace("1.0", "-Infinity"), id="infinite"),
        pytest.param(changed(EXIT, code=0.5), id="fraction for a whole number"),
        pytest.param(changed(EXIT, origin="moon"), id="word that is not allowed"),
    ],
)
def test_a_line_that_is_none_is_refused(line):
    """A line that this version did not write is an error that says what is wrong."""
    with pytest.raises(JournalError, match=r"^cannot read the journal, because"):
        journal.decode(line)


@pytest.mark.parametrize("ranks", [[1, "2"], [1.5], [None], [[1]], "12", 1])
def test_a_tuple_holds_what_it_says(ranks):
    """A list of another type is refused, whatever stands in it."""
    line = {"n": 1, "command": "signal_ranks", "attempt": 0, "signum": 15}

    with pytest.raises(JournalError):
        journal.decode(json.dumps(line | {"ranks": ranks}))


@given(fields=st.dictionaries(st.sampled_from("n event at_s".split()), ANY_JSON))
def test_no_json_object_breaks_the_reader(fields):
    """Whatever stands in a line, it is read or refused, never a bug."""
    with contextlib.suppress(JournalError):
        assert journal.decode(json.dumps(fields)).event is not None


def test_a_whole_number_stands_for_a_time():
    """JSON written by others has no fraction where there is none."""
    assert journal.decode(changed(TICK, at_s=7)).event.at_s == 7


def test_text_is_no_list_of_texts():
    """A word where a list of words belongs is refused, not read as its letters."""
    line = (
        '{"n":1,"event":"helpers_left","at_s":1.0,"attempt":0,"names":"sh","total":1}'
    )

    with pytest.raises(JournalError, match="'sh' is no tuple"):
        journal.decode(line)


def test_an_error_message_stays_short():
    """A hostile line does not fill the terminal."""
    with pytest.raises(JournalError) as caught:
        journal.decode('"' + "\x1b" * 60_000 + '"')

    assert len(str(caught.value)) < 200
    assert "\x1b" not in str(caught.value)


HEADER = journal.header(
    Spec(
        2, 2.0, 25.0, keep_helpers=False, policy=Policy(None, (10.0,), 1.0, True, True)
    )
)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        pytest.param("", "no JSON object", id="empty file"),
        pytest.param(TICK, "version is 'none'", id="no header"),
        pytest.param(changed(HEADER, journal=2), "version is 2, not 1", id="newer"),
        pytest.param(changed(HEADER, spec=...), "no spec", id="no spec"),
        pytest.param(changed(HEADER, spec=[]), "no spec", id="spec is no object"),
        pytest.param(changed(HEADER, spec={}), "no spec", id="no policy"),
        pytest.param(
            changed(HEADER, spec={"policy": {}}), "Policy has other", id="empty policy"
        ),
        pytest.param(
            HEADER.replace('"world_size":2', '"world_size":"2"'), "'2'", id="text"
        ),
        pytest.param(
            HEADER.replace("[10.0]", '["10"]'), "is no tuple", id="pauses as text"
        ),
    ],
)
def test_a_header_that_is_none_is_refused(line, why):
    """A journal of another version, or of none, is refused with the reason."""
    with pytest.raises(JournalError, match=why):
        journal.decode_header(line)


def test_a_line_that_came_twice_counts_once():
    """A replaced scribe may write lines again: each number counts once, in order."""
    lines = [changed(TICK, n=n) for n in (1, 2, 1, 2, 3, 3)]

    assert [entry.n for entry in journal.entries(lines)] == [1, 2, 3]


def test_there_are_recordings():
    """Recorded runs exist, so that the next test means something."""
    assert len(RECORDINGS) >= 9


@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_a_recorded_run_replays(path):
    """The machine gives for each recorded run the commands that were given then."""
    recorded, given_now = journal.replay(path.read_text().splitlines())

    assert given_now == recorded
    assert recorded[-1].kind == "exit"


@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_a_recording_names_no_machine(path):
    """Recordings are published: no absolute path is in them."""
    assert '"/' not in path.read_text()


def test_replay_shows_where_machine_and_journal_differ():
    """A journal of another machine's making does not replay."""
    lines = RECORDINGS[0].read_text().splitlines()
    without = [line for line in lines if '"command":"kill_all"' not in line]

    recorded, given_now = journal.replay(without)

    assert recorded != given_now


@pytest.mark.parametrize(
    "event",
    [
        ev.Tick("tick", 38206.0),
        ev.Tick("tick", -1e-07),
        ev.Progressed("progressed", 5.25, 3, 17),
    ],
)
def test_what_fills_a_journal_is_read_the_short_way_alike(event):
    """Without JSON, and with the same result."""
    line = journal.encode(7, event)

    assert journal.often(line) == event == journal.decode(line).event


@pytest.mark.parametrize(
    "line",
    [
        '{"n":1,"event":"tick","at_s":NaN}',
        '{"n":1,"event":"tick","at_s":1.0',
        '{"n":1,"event":"tick","at_s":1.0,"attempt":0,"step":1}',
        '{"n":1,"event":"progressed","at_s":1.0}',
        '{"n": 1, "event": "tick", "at_s": 1.0}',
        '{"n":1,"event":"launched","at_s":1.0}',
        "",
    ],
)
def test_any_other_line_is_not_read_the_short_way(line):
    """It is left to the reader that says what is wrong with it."""
    assert journal.often(line) is None
