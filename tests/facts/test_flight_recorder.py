"""Flight recorders' dumps: torch's own form, JSON, and what only looks like one."""

import json
import pickle

import pytest

from dsup.facts import flight_recorder, flight_text
from dsup.facts.flight_recorder import Group, of_dump
from dsup.facts.stacks import Frame

DUMPED_S = 7.5


def entry(number, op="nccl:all_reduce", state="completed", **more):
    """Return an entry as torch writes it."""
    return {
        "frames": [{"name": "step", "filename": "/srv/train.py", "line": 52}],
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": op,
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [[4, 8]],
        "input_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        "is_p2p": False,
        **more,
    }


def dump(*entries, **more):
    """Return the data of a dump with these entries."""
    return {
        "version": "2.10",
        "entries": list(entries),
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
        "pg_status": {"0": {"last_enqueued_collective": 99}},
        **more,
    }


def dumped(*entries, **more):
    """Return a dump with these entries."""
    return pickle.dumps(dump(*entries, **more), 2)


def trace_of(raw, rank=0, at_s=None):
    """Return the trace in a dump that has one."""
    trace = of_dump(raw, rank, at_s)
    assert trace is not None
    return trace


def test_a_dump_tells_how_far_a_rank_has_come():
    """What was called, what is finished, where, and with which tensors."""
    trace = trace_of(dumped(entry(7), entry(8, state="started")), 1, DUMPED_S)

    assert trace.rank == 1
    assert trace.groups == {"0": Group("default_pg", 8, 8, 7, (0, 1, 2))}
    call = trace.calls[-1]
    assert (call.number, call.op, call.state) == (8, "all_reduce", "started")
    assert call.sizes == "[4, 8] Float"
    assert call.frames == (Frame("/srv/train.py", 52, "step"),)
    assert list(flight_text.lines(trace)) == [
        "flight recorder of rank 1, group 0 (default_pg): #8 called, #7 finished",
        "  #7 all_reduce [4, 8] Float, group 0, completed, at train.py:52 in step",
        "  #8 all_reduce [4, 8] Float, group 0, started, at train.py:52 in step",
    ]


def test_json_says_the_same():
    """It has texts for numbers, lists for pairs, and no frames."""
    told = dump(entry(7), entry(8, state="started"))
    trace = trace_of(json.dumps(told).encode(), 1)

    assert trace.groups["0"][1:4] == (8, 8, 7)


def test_gloo_takes_what_is_done_off_its_list():
    """Its entries stay ``scheduled``; one that is retired is done."""
    done = entry(1, "gloo:barrier", "scheduled", retired=True)
    waits = entry(2, "gloo:barrier", "scheduled", retired=False)
    trace = trace_of(dumped(done, waits), 0)

    assert trace.groups["0"][1:4] == (2, 1, 1)


def test_an_earlier_call_that_is_open_counts():
    """On several streams a later one may be done before it."""
    trace = trace_of(dumped(entry(6), entry(7, state="started"), entry(8)), 0)

    assert trace.groups["0"].completed == 6


def test_messages_count_for_no_collective():
    """A message has the number of the collective before it."""
    message = entry(3, "nccl:send 0->1", "scheduled", is_p2p=True)
    trace = trace_of(dumped(entry(3), message), 0)

    assert trace.groups["0"][1:4] == (3, 3, 3)
    assert trace.calls[-1].message
    assert trace.calls[-1].op == "send 0->1"


def test_where_only_open_calls_are_dumped_torchs_count_serves():
    """TORCH_INCLUDE_ONLY_ACTIVE leaves nothing of a rank that waits for nothing."""
    status = {"last_enqueued_collective": 40, "last_completed_collective": "40"}
    trace = trace_of(dumped(pg_status={"0": status}), 0)

    assert trace.groups["0"] == Group("default_pg", 40, -1, 40, (0, 1, 2))


def test_traces_survive_the_way_to_the_judge():
    """As lines of JSON; a line that is none costs nothing but itself."""
    trace = trace_of(dumped(entry(7), entry(8)), 1, DUMPED_S)
    raw = flight_recorder.encode([trace])

    assert flight_recorder.decode(raw + b"{]\n[1]\n" + raw) == (trace, trace)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(dumped(entry(1))[:-40], id="cut"),
        pytest.param(b"{}", id="no entries"),
        pytest.param(b'{"entries": 7, "version": "2"}', id="entries of another kind"),
        pytest.param(b"{" + b'"a":{' * 100_000, id="deep JSON"),
        pytest.param(pickle.dumps(["entries", "version"]), id="a list"),
        pytest.param(b"\x80\x02cposix\nsystem\n.", id="a program"),
    ],
)
def test_what_is_no_trace_is_none(raw):
    """Whoever wrote the file may be anybody."""
    assert of_dump(raw, 0) is None


@pytest.mark.parametrize(
    "more",
    [
        {"collective_seq_id": -4},
        {"collective_seq_id": "8"},
        {"profiling_name": None},
        {"process_group": 7},
        {"frames": "none"},
        {"frames": [7, {"line": -1}]},
        {"input_sizes": [7, ["x"]]},
        {"input_dtypes": {}},
        {"state": []},
        {"time_created_ns": 1 << 80},
    ],
)
def test_a_field_that_is_garbage_costs_itself_at_most(more):
    """The entries beside it are read."""
    trace = trace_of(dumped(entry(7), entry(8, **more)), 0)

    assert [call.number for call in trace.calls][:1] == [7]


def test_no_control_character_gets_through():
    """A name of the program's own can not move a terminal's cursor."""
    trace = trace_of(dumped(entry(1, "nccl:\x1b[2J", input_dtypes=["\x1b[1A"])), 0)

    assert "\x1b" not in "\n".join(flight_text.lines(trace))


def test_a_small_dump_cannot_make_a_large_trace():
    """In a pickle one long name may stand for thousands; the last calls are kept."""
    wide = "\U0001f600"
    frame = {"name": wide * 200, "filename": wide * 500, "line": 1}
    entries = [entry(n, frames=[frame] * 16) for n in range(1, 301)]
    raw = pickle.dumps(dump(*entries), 2)
    assert len(raw) < 100_000

    trace = of_dump(raw, 0)
    assert trace is not None
    encoded = flight_recorder.encode([trace])

    assert len(encoded) <= flight_recorder.ENCODED_MAX_BYTES
    (kept,) = flight_recorder.decode(encoded)
    assert kept.groups == trace.groups
    assert kept.calls == trace.calls[-len(kept.calls) :]
    assert kept.calls[-1].number == 300


def test_json_of_too_many_parts_is_not_read():
    """Each takes far more memory than the two bytes that ask for it."""
    whole = json.dumps(dump(entry(1))).encode()

    assert of_dump(whole, 0) is not None
    assert of_dump(whole[:-1] + b', "x": [' + b"[]," * 600_000 + b"[]]}", 0) is None
