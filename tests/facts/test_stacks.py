"""Stacks as faulthandler and py-spy print them, and how they travel to the judge."""

import faulthandler
import json
import tempfile
import threading

import pytest

from dsup.facts.stacks import (
    DUMP_MAX_BYTES,
    FRAMES_MAX,
    Capture,
    Frame,
    Process,
    Taken,
    decode_processes,
    encode_process,
    main_first,
    of_faulthandler,
    of_py_spy,
    shortened,
)

DUMP = b"""\
Thread 0x00007f0000000001 [prefetch] (most recent call first):
  File "/srv/pump.py", line 30 in fill
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f0000000002 (most recent call first):
  File "/srv/data set.py", line 88 in read
  File "/srv/train.py", line ??? in <module>
"""
SPIED = json.dumps(
    [
        {"thread_name": "pump", "os_thread_id": 8, "frames": []},
        {
            "thread_name": None,
            "os_thread_id": 7,
            "frames": [{"filename": "/srv/t.py", "line": 3, "name": "step"}, "odd"],
        },
    ]
).encode()


def test_a_dump_of_faulthandler():
    """The main thread comes first; a frame's line may be unknown."""
    main, other = of_faulthandler(DUMP)

    assert main.main
    assert main.frames == (
        Frame("/srv/data set.py", 88, "read"),
        Frame("/srv/train.py", 0, "<module>"),
    )
    assert (other.name, other.frames[0].place) == ("prefetch", "pump.py:30 in fill")


def test_what_this_interpreter_prints_is_understood():
    """Whatever its version says of its threads."""
    held = threading.Event()
    thread = threading.Thread(target=held.wait)
    thread.start()
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        held.set()
        thread.join()
        file.seek(0)
        threads = of_faulthandler(file.read())

    assert threads[0].main
    assert threads[0].frames[0].function == (
        "test_what_this_interpreter_prints_is_understood"
    )
    assert any(f.function == "wait" for one in threads[1:] for f in one.frames)


def test_a_dump_of_py_spy():
    """The main thread is the one whose id is the process's."""
    main, other = of_py_spy(SPIED, 7)

    assert (main.main, main.frames) == (True, (Frame("/srv/t.py", 3, "step"),))
    assert (other.name, other.main, other.frames) == ("pump", False, ())


@pytest.mark.parametrize(
    "dump",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff" * 4096, id="bytes that are no text"),
        pytest.param(b"[" * 100_000, id="deeply nested"),
        pytest.param(b'{"frames": 1}', id="no list"),
        pytest.param(b'[1, null, {"frames": {"a": 1}}]', id="odd items"),
        pytest.param(b'  File "' * 10_000, id="halves of frames"),
    ],
)
def test_garbage_costs_nothing(dump):
    """A rank writes what it likes there: no thread of it has a frame then."""
    assert [one for one in of_faulthandler(dump) if one.frames] == []
    assert [one for one in of_py_spy(dump, 1) if one.frames] == []


def test_a_dump_is_capped():
    """So many frames a thread, however deep a recursion has hung."""
    frame = b'  File "/srv/t.py", line 1 in f\n'
    head = b"Current thread 0x1 (most recent call first):\n"

    (thread,) = of_faulthandler(head + frame * 3 * FRAMES_MAX)

    assert len(thread.frames) == FRAMES_MAX


def test_what_is_shown_is_printable():
    """A name with an escape sequence does not reach a terminal."""
    dump = (
        b'Current thread 0x1 (most recent call first):\n  File "\x1b[2J", line 1 in x'
    )
    [frame] = of_faulthandler(dump)[0].frames

    assert "\x1b" not in frame.file


def test_captures_travel_as_bytes():
    """Processes of one moment come together, the oldest moment first."""
    rank = Process(2, 1002, state="S", wchan="futex_wait_queue")
    helper = Process(2, 1010, helper=True, state="D", missing="asleep")
    records = b"".join(
        (
            encode_process(Taken(20.0, rank, "faulthandler", DUMP)),
            encode_process(Taken(10.0, rank, "py-spy", SPIED)),
            encode_process(Taken(20.0, helper, "")),
        )
    )

    early, late = decode_processes(records)

    assert (early.at_s, late.at_s) == (10.0, 20.0)
    assert late.processes == (
        rank._replace(threads=of_faulthandler(DUMP)),
        helper,
    )


def test_a_dump_cannot_pretend_to_be_another_process():
    """What looks like a header inside of a dump is passed over."""
    forged = encode_process(Taken(1.0, Process(0, 1), ""))
    records = encode_process(Taken(1.0, Process(3, 1003), "faulthandler", forged))

    [capture] = decode_processes(records)

    assert [process.rank for process in capture.processes] == [3]


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(-1, id="without its end"),
        pytest.param(-40, id="inside of the dump"),
        pytest.param(30, id="inside of the header"),
    ],
)
def test_a_record_that_is_cut_is_none(cut):
    """What came before it stays."""
    whole = encode_process(Taken(1.0, Process(0, 1000), "faulthandler", DUMP))

    assert decode_processes(whole + whole[:cut]) == decode_processes(whole)
    assert decode_processes(whole[:cut]) == ()


def test_a_huge_dump_is_cut_where_it_is_written():
    """One rank's garbage leaves room for the others' stacks."""
    first = encode_process(Taken(1.0, Process(0, 1), "", b"x" * 3 * DUMP_MAX_BYTES))
    second = encode_process(Taken(1.0, Process(1, 2), ""))

    assert decode_processes(first + second) == (
        Capture(1.0, (Process(0, 1), Process(1, 2))),
    )


def test_a_main_thread_that_was_written_alone():
    """As it is asked for where there are more threads than faulthandler writes."""
    alone = b'Stack (most recent call first):\n  File "/srv/t.py", line 3 in step\n'
    many = DUMP.partition(b"\nCurrent")[0]

    main, other = of_faulthandler(alone + many)

    assert (main.main, main.frames) == (True, (Frame("/srv/t.py", 3, "step"),))
    assert not other.main


def test_the_main_thread_survives_a_cut():
    """It is written last, and turned to the front."""
    dump = main_first(DUMP)

    assert of_faulthandler(dump) == of_faulthandler(DUMP)
    assert of_faulthandler(dump[:150])[0].frames[0].function == "read"


def test_more_than_is_looked_at_is_left_out_of_what_py_spy_prints():
    """Many deep threads make megabytes; cut anywhere they could not be read."""
    frame = {"filename": "/srv/pool.py", "line": 9, "name": "Pool.deep"}
    deep = {"thread_name": "pool", "os_thread_id": 8, "frames": [frame] * 800}
    main = {**deep, "thread_name": None, "os_thread_id": 7}
    dump = json.dumps([*[deep] * 40, main]).encode()
    assert len(dump) > DUMP_MAX_BYTES

    short = shortened(dump, 7, 100_000)

    first, *rest = of_py_spy(short, 7)
    assert len(short) <= 100_000
    assert first.main
    assert len(first.frames) == FRAMES_MAX
    assert first.frames[0] == Frame("/srv/pool.py", 9, "deep")
    assert 0 < len(rest) < 40
    assert shortened(b"[" + b"{}," * 6_000_000 + b"{}]", 7) == b""
