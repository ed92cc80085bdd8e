"""Stacks of all ranks and their helpers, taken while they live: the work of an aide.

A rank that the bootstrap has prepared writes its Python stacks itself, from C, at a
signal: into a memory file that the agent has made, without the interpreter's lock. It
is signalled only if it is proven to have a handler and the very file; any other process
would die of the signal, or write into a file of its own. A frozen one, or one that
sleeps in the kernel, answers nobody: those, helpers, and whatever else did not answer,
are read from outside by py-spy. What they hold is a program's own words: capped here,
looked into only in this child, and shown escaped.

While a hang is only suspected it is the other way round. A signal cuts short what a
rank waits in, and the frames of its other threads are walked while they may run; py-spy
only reads, so it is asked first, and the ranks themselves where it is not there, or may
not look.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from dsup.attribution.collectives import all_inside, stuck
from dsup.attribution.standstill import (
    GUILTY,
    Standstill,
    inside,
    is_sure,
    standstill,
    to_blame,
)
from dsup.core.printable import printable
from dsup.facts import flight_recorder, flight_text, stacks
from dsup.facts.captured import (
    FACTS_MAX_BYTES,
    TEXTS_MAX_BYTES,
    TRACES_MAX_BYTES,
    Found,
    cut_text,
    decode,
    records,
)
from dsup.facts.stack_text import header, thread_lines
from dsup.facts.stacks import Form, Process, Taken, decode_processes, encode_process
from dsup.linux import alarm, proc, recorder_pipe, spy, stack_signal
from dsup.linux.stack_signal import DEAF, Target

__all__ = ["Found", "Order", "Target", "decode", "work"]

ANSWER_S: Final = 2.0
"""How long ranks get for their stacks; they take a millisecond unless starved."""

FINAL_ANSWER_S: Final = 5.0
SPY_S: Final = 2.0
"""What py-spy gets for one process."""

RECORDER_S: Final = 3.0
"""What flight recorders get: torch looks once a second whether it is asked. For its
first dump it imports modules of the compiler, so that one may come too late."""

FINAL_RECORDER_S: Final = 6.0

RECORDER_LEAST_S: Final = 0.2
"""What they get in any case, for stacks may have taken long."""

HELPERS_MAX: Final = 64
"""So many processes of a rank are looked at in all."""

ABSENT_HELPERS_MAX: Final = 4
"""So many helpers of a rank that did not come are read if nothing is ended for it."""

_NICE: Final = 5
_FROZEN_OR_ASLEEP: Final = frozenset("TtD")


class Patience(NamedTuple):
    """How long who has to answer gets for it, seconds.

    Attributes:
        answer: ranks, for their stacks.
        final_answer: ranks, before they are ended.
        spy: py-spy, for one process.
    """

    answer: float = ANSWER_S
    final_answer: float = FINAL_ANSWER_S
    spy: float = SPY_S


class Order(NamedTuple):
    """What is to be captured.

    Attributes:
        targets: the ranks.
        exited: ranks that have ended with exit code 0.
        number: where ranks have their memory file.
        out: the memory file for what is found.
        start: from which byte on it is free.
        until_s: when everything must be there, agent clock, seconds.
        final: the attempt is about to be ended.
        spy: where py-spy is; empty for nowhere.
        recorders: the ranks' flight recorders.
        patience: with each of them.
    """

    targets: tuple[Target, ...]
    exited: tuple[int, ...]
    number: int
    out: int
    start: int
    until_s: float
    final: bool
    spy: str
    recorders: tuple[recorder_pipe.Recorder, ...] = ()
    patience: Patience = Patience()


def work(order: Order) -> bytes:
    """Take the stacks, keep them in the file; return the answer for ``decode``."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)  # the ranks, and the agent, go first
    at_s = time.monotonic()
    most = flight_recorder.DUMP_MAX_BYTES
    asked = recorder_pipe.Answers(order.recorders, order.until_s, most)
    kin = {one.rank: _family(one.pid) for one in order.targets}
    read = {} if order.final else dict(_read(order, at_s))
    patience_s = order.patience.final_answer if order.final else order.patience.answer
    answers_s = min(time.monotonic() + patience_s, order.until_s)
    unread = [one for one in order.targets if one.rank not in read]
    dumps = stack_signal.told(unread, kin, order.number, answers_s)
    taken = {
        one.rank: read.get(one.rank) or _rank(one, order, at_s, dumps.get(one.rank))
        for one in order.targets
    }
    traces = _traces(order, at_s, asked, taken)
    shown, blamed = _standstill(order, taken, traces)
    helpers = list(_helpers(order, at_s, kin, taken, shown))
    first = shown.where.get(blamed[0]) if blamed else None
    place = first.place if first else ""
    kept = _keep(order, taken, helpers, traces)
    found = kept._replace(ranks=blamed, op=shown.op, place=place)
    return json.dumps(found._asdict()).encode()


def _family(pid: int) -> list[int]:
    """Return a rank's process and those below it, parents first."""
    return [pid, *proc.descendants(pid)][:HELPERS_MAX]


def _read(order: Order, at_s: float) -> Iterator[tuple[int, Taken]]:
    """Yield the stacks of ranks that can be read from outside, in half of the time."""
    hurried = order._replace(until_s=(at_s + order.until_s) / 2)
    for one in order.targets if order.spy else ():
        taken = _from_outside(hurried, at_s, _about(one.rank, one.pid))
        if taken.form:
            yield one.rank, taken


def _rank(
    one: Target, order: Order, at_s: float, told: tuple[int, bytes] | None
) -> Taken:
    """Return the stacks of a rank's own process, from itself or from outside."""
    if told is None:
        return _from_outside(order, at_s, _about(one.rank, one.pid))
    pid, dump = told
    about = _about(one.rank, pid)
    own = Taken(at_s, about, "faulthandler", stacks.main_first(dump))
    if stack_signal.has_main(dump):
        return own
    seen = _from_outside(order, at_s, about)
    return seen if seen.form else own


def _from_outside(order: Order, at_s: float, about: Process) -> Taken:
    if not order.spy:
        return Taken(at_s, about._replace(missing=f"{spy.NAME} is not installed"), "")
    left_s = min(order.until_s - time.monotonic(), order.patience.spy)
    if left_s <= 0:
        return Taken(at_s, about._replace(missing="there was no time left"), "")
    dump, why_not = spy.dump(order.spy, about.pid, left_s)
    dump = stacks.shortened(dump, about.pid)
    seen = stacks.of_py_spy(dump, about.pid)
    why_not = why_not or ("" if seen else f"what {spy.NAME} says cannot be read")
    form: Form = "py-spy" if seen else ""
    return Taken(at_s, about._replace(missing=why_not), form, dump if seen else b"")


def _about(rank: int, pid: int, *, helper: bool = False) -> Process:
    found = proc.stat(pid)
    state = found.state if found else ""
    return Process(rank, pid, helper, state, proc.wchan(pid))


def _traces(
    order: Order, at_s: float, asked: recorder_pipe.Answers, taken: Mapping[int, Taken]
) -> dict[int, flight_recorder.Trace]:
    """Return the traces of ranks that give one; who cannot run is not awaited."""
    asked.deaf |= {rank for rank, one in taken.items() if one.about.state in DEAF}
    found: dict[int, flight_recorder.Trace] = {}

    def look(rank: int, dump: bytes) -> None:
        trace = flight_recorder.of_dump(dump, rank, at_s)
        found.update({rank: trace} if trace else {})

    def whole(rank: int, dump: bytes) -> bool:
        # To decode one may take long, and the stacks must not be lost over it.
        alarm.cut_at(order.until_s, lambda: look(rank, dump))
        return rank in found

    patience_s = FINAL_RECORDER_S if order.final else RECORDER_S
    until_s = max(at_s + patience_s, time.monotonic() + RECORDER_LEAST_S)
    asked.take(min(until_s, order.until_s), whole)
    return found


def _standstill(
    order: Order,
    taken: Mapping[int, Taken],
    traces: Mapping[int, flight_recorder.Trace],
) -> tuple[Standstill, tuple[int, ...]]:
    """Return who did not come, and who of them is to blame for sure.

    Where all that run are inside of a collective, it is those that have ended. Where
    stacks name nobody, for a device works behind them, recorders may.
    """
    (seen,) = decode_processes(b"".join(map(encode_process, taken.values()))) or (None,)
    processes = {one.rank: one for one in seen.processes} if seen else {}
    shown = standstill(processes, len(order.targets))
    held = stuck(traces, len(order.targets) + len(order.exited))
    op = f"{held.op} #{held.number}".strip()
    gone = shown._replace(kind="absent", ranks=order.exited)
    if order.exited and shown.kind == "everyone" and inside(shown):
        return gone, order.exited
    if order.exited and all_inside(held, [one.rank for one in order.targets]):
        return gone._replace(waiting=held.waiting, op=op), order.exited
    if held.kind not in GUILTY or not held.ranks or held.silent:
        return shown, to_blame(shown)
    if shown.kind in GUILTY and is_sure(shown):
        same = shown.ranks == held.ranks
        return (shown._replace(op=op) if same else shown), shown.ranks
    known = Standstill(held.kind, held.ranks, held.waiting, op, shown.where)
    return known, held.ranks


def _helpers(
    order: Order,
    at_s: float,
    kin: Mapping[int, list[int]],
    taken: Mapping[int, Taken],
    shown: Standstill,
) -> Iterator[Taken]:
    """Yield the stacks of helpers, those first whose rank did not come."""
    absent = [rank for rank in shown.ranks if rank in kin]
    others = [rank for rank in kin if rank not in absent] if order.final else []
    most = HELPERS_MAX if order.final else ABSENT_HELPERS_MAX
    for rank in (*absent, *others):
        pids = [pid for pid in kin[rank] if pid != taken[rank].about.pid]
        for pid in pids[:most]:
            if time.monotonic() < order.until_s:
                about = _about(rank, pid, helper=True)
                yield _from_outside(order, at_s, about)


def _keep(
    order: Order,
    taken: Mapping[int, Taken],
    helpers: Collection[Taken],
    traces: Mapping[int, flight_recorder.Trace],
) -> Found:
    """Write everything into the file, the texts first; return where it is.

    A process of a rank whose text found no room is no fact either: what a verdict says
    of it could not be looked up.
    """
    texts = tuple(_texts(order, taken, helpers, traces))
    told = {rank for rank, _, _ in texts}
    own = [one for rank, one in taken.items() if rank in told]
    more = [one for one in helpers if one.about.rank in told]
    facts = records(own, more)
    facts_at = order.start + TEXTS_MAX_BYTES
    traces_at = facts_at + FACTS_MAX_BYTES
    share = TRACES_MAX_BYTES // max(len(traces), 1)
    encoded = flight_recorder.encode(
        traces.values(), min(share, flight_recorder.ENCODED_MAX_BYTES)
    )
    return Found(
        facts=(facts_at, _write(order.out, facts, facts_at)),
        texts=texts,
        traces=(traces_at, _write(order.out, encoded, traces_at)),
    )


def _texts(
    order: Order,
    taken: Mapping[int, Taken],
    helpers: Collection[Taken],
    traces: Mapping[int, flight_recorder.Trace],
) -> Iterator[tuple[int, int, int]]:
    """Write the text of each rank; yield where each is that could be written."""
    at, share = order.start, TEXTS_MAX_BYTES // max(len(taken), 1)
    for rank, own in taken.items():
        parts = [own, *(one for one in helpers if one.about.rank == rank)]
        text = cut_text(_text(parts, traces.get(rank)), share)
        length = _write(order.out, text, at)
        if length == len(text):
            yield rank, at, length
        at += length


def _write(fd: int, data: bytes, at: int) -> int:
    """Write at a place of a memory file; return how many bytes were taken."""
    done = 0
    with contextlib.suppress(OSError):  # no memory is left
        while done < len(data):
            done += os.pwrite(fd, memoryview(data)[done:], at + done)
    return done


def _text(
    parts: Collection[Taken], trace: flight_recorder.Trace | None = None
) -> bytes:
    """Return what was taken of a rank and its helpers for people."""
    wall_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
    lines = [line for one in parts for line in _lines(one, wall_s + one.at_s)]
    lines += flight_text.lines(trace) if trace else ()
    return "".join(f"{line}\n" for line in (*lines, "")).encode(errors="replace")


def _lines(one: Taken, wall_s: float) -> Iterator[str]:
    about = one.about
    yield header(about, wall_s)
    if about.state in _FROZEN_OR_ASLEEP and (call := proc.system_call(about.pid)):
        yield f"  system call: {printable(call)}"
    for place in proc.kernel_stack(about.pid) if about.state == "D" else ():
        yield f"  kernel: {printable(place)}"
    if one.form == "faulthandler":
        for line in one.dump.decode(errors="backslashreplace").splitlines():
            yield f"  {printable(line)}"
    for seen in decode_processes(encode_process(one)) if one.form == "py-spy" else ():
        yield from thread_lines(seen.processes[0])
