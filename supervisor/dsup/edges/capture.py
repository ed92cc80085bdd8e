"""Stacks of all ranks and their helpers, taken while they live: the work of an aide.

A rank that the bootstrap has prepared writes its Python stacks itself, from C, at a
signal: into a memory file that the agent has made, without the interpreter's lock. It
is signalled only if it is proven to have a handler and the very file; any other process
would die of the signal, or write into a file of its own. A frozen one, or one that
sleeps in the kernel, answers nobody: those, helpers, and whatever else did not answer,
are read from outside by py-spy. What they hold is a program's own words: capped here,
looked into only in this child, and shown escaped.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from dsup.attribution.standstill import Standstill, standstill
from dsup.core.printable import printable
from dsup.facts.stack_text import header, thread_lines
from dsup.facts.stacks import Form, Process, Taken, decode_processes, encode_process
from dsup.linux import proc, spy
from dsup_runtime import contract

ANSWER_S: Final = 2.0
"""How long ranks get for their stacks; they take a millisecond unless starved."""

FINAL_ANSWER_S: Final = 5.0
SPY_S: Final = 2.0
"""What py-spy gets for one process."""

HELPERS_MAX: Final = 64
"""So many processes of a rank are looked at in all."""

ABSENT_HELPERS_MAX: Final = 4
"""So many helpers of a rank that did not come are read if nothing is ended for it."""

FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""What all captures of an attempt may hold; later ones keep no text."""

_NICE: Final = 5
_LOOK_S: Final = 0.005
_DEAF: Final = frozenset("TtDZX")
_MAIN: Final = b"Current thread"
_FROZEN_OR_ASLEEP: Final = frozenset("TtD")
_GUILTY: Final = ("absent", "alone", "mismatch")


class Target(NamedTuple):
    """A rank that runs.

    Attributes:
        pid: of the process that was started for it.
        stacks: the memory file it writes into; -1 for none.
    """

    rank: int
    pid: int
    stacks: int


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
    """

    targets: tuple[Target, ...]
    exited: tuple[int, ...]
    number: int
    out: int
    start: int
    until_s: float
    final: bool
    spy: str


class Found(NamedTuple):
    """What a capture has shown.

    Attributes:
        ranks: who did not come where the others wait.
        op: the collective that they wait in.
        place: where the first of ``ranks`` is.
        facts: where in the file the records of ``encode_process`` are: start, length.
        texts: where the text of each rank is: rank, start, length.
    """

    ranks: tuple[int, ...] = ()
    op: str = ""
    place: str = ""
    facts: tuple[int, int] = (0, 0)
    texts: tuple[tuple[int, int, int], ...] = ()


def work(order: Order) -> bytes:
    """Take the stacks, keep them in the file; return the answer for ``decode``."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)  # the ranks, and the agent, go first
    at_s = time.monotonic()
    kin = {one.rank: _family(one.pid) for one in order.targets}
    dumps = _told(order, kin)
    taken = {
        one.rank: _rank(one, order, at_s, dumps.get(one.rank)) for one in order.targets
    }
    shown = _standstill(order, taken)
    helpers = list(_helpers(order, at_s, kin, taken, shown))
    return json.dumps(_keep(order, taken, helpers, shown)._asdict()).encode()


def decode(answer: bytes) -> Found:
    """Return what ``work`` has answered; nothing where it gave no answer."""
    try:
        fields = json.loads(answer)
    except ValueError:
        return Found()
    texts = tuple((int(r), int(start), int(n)) for r, start, n in fields["texts"])
    start, length = fields["facts"]
    ranks = tuple(map(int, fields["ranks"]))
    return Found(ranks, fields["op"], fields["place"], (start, length), texts)


def _family(pid: int) -> list[int]:
    """Return a rank's process and those below it, parents first."""
    return [pid, *proc.descendants(pid)][:HELPERS_MAX]


def _told(order: Order, kin: Mapping[int, list[int]]) -> dict[int, tuple[int, bytes]]:
    """Have ranks write their stacks; return the pid and the dump of each that did."""
    asked = {}
    for one in order.targets:
        pid = _listener(one, kin[one.rank], order.number)
        if pid and _ask(one, pid, order.number):
            asked[one] = pid
    patience_s = FINAL_ANSWER_S if order.final else ANSWER_S
    until_s = min(time.monotonic() + patience_s, order.until_s)
    dumps: dict[int, tuple[int, bytes]] = {}
    positions: dict[int, int] = {}
    while len(dumps) < len(asked) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        for one, pid in asked.items():
            dump = _written(one.stacks, positions)
            if one.rank not in dumps and dump:
                dumps[one.rank] = pid, dump
    return dumps


def _listener(one: Target, family: list[int], number: int) -> int:
    """Return the process that can write a rank's stacks now; 0 for none.

    Whoever started a script through a shell, or another program, has it as the first
    process below that one that has the handler. A forked helper has it as well: so the
    first one is asked, or nobody.
    """
    if one.stacks < 0:
        return 0
    file = os.fstat(one.stacks)
    for pid in family:
        if proc.catches(pid, contract.STACKS_SIGNAL) and proc.holds(pid, number, file):
            found = proc.stat(pid)
            ready = found is not None and found.state not in _DEAF
            return pid if ready and proc.takes(pid, contract.STACKS_SIGNAL) else 0
    return 0


def _ask(one: Target, pid: int, number: int) -> bool:
    """Send the signal; return whether it was sent to whom it was meant for."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Once more, now that the number cannot become another process's.
        if not proc.holds(pid, number, os.fstat(one.stacks)):
            return False
        os.lseek(one.stacks, 0, os.SEEK_SET)
        signal.pidfd_send_signal(pidfd, contract.STACKS_SIGNAL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _written(fd: int, positions: dict[int, int]) -> bytes:
    """Return a dump that has not grown since the last look; nothing before that.

    Args:
        fd: the memory file; its position is where the rank writes on.
        positions: as it was at the last look.
    """
    size = min(os.lseek(fd, 0, os.SEEK_CUR), contract.STACKS_MAX_BYTES)
    before, positions[fd] = positions.get(fd), size
    if size <= 0 or size != before:
        return b""
    dump = os.pread(fd, size, 0)
    return dump if _MAIN in dump else b""


def _rank(
    one: Target, order: Order, at_s: float, told: tuple[int, bytes] | None
) -> Taken:
    """Return the stacks of a rank's own process, from itself or from outside."""
    if told is not None:
        pid, dump = told
        return Taken(at_s, _about(one.rank, pid), "faulthandler", dump)
    return _from_outside(order, at_s, _about(one.rank, one.pid))


def _from_outside(order: Order, at_s: float, about: Process) -> Taken:
    if not order.spy:
        return Taken(at_s, about._replace(missing=f"{spy.NAME} is not installed"), "")
    left_s = min(order.until_s - time.monotonic(), SPY_S)
    if left_s <= 0:
        return Taken(at_s, about._replace(missing="there was no time left"), "")
    dump, why_not = spy.dump(order.spy, about.pid, left_s)
    form: Form = "py-spy" if dump else ""
    return Taken(at_s, about._replace(missing=why_not), form, dump)


def _about(rank: int, pid: int, *, helper: bool = False) -> Process:
    found = proc.stat(pid)
    state = found.state if found else ""
    return Process(rank, pid, helper, state, proc.wchan(pid))


def _standstill(order: Order, taken: Mapping[int, Taken]) -> Standstill:
    """Return who did not come; where all that run wait, those that have ended."""
    (seen,) = decode_processes(b"".join(map(encode_process, taken.values()))) or (None,)
    processes = {one.rank: one for one in seen.processes} if seen else {}
    shown = standstill(processes, len(order.targets))
    if shown.kind == "everyone" and order.exited:
        return shown._replace(kind="absent", ranks=order.exited)
    return shown


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
    shown: Standstill,
) -> Found:
    """Write everything into the file; return where it is, and what it shows."""
    facts = b"".join(map(encode_process, (*taken.values(), *helpers)))
    end = order.start + _write(order.out, facts, order.start)
    texts = []
    for rank, own in taken.items():
        if end - order.start > FILE_MAX_BYTES or order.start > FILE_MAX_BYTES:
            break
        parts = [own, *(one for one in helpers if one.about.rank == rank)]
        length = _write(order.out, _text(parts), end)
        texts.append((rank, end, length))
        end += length
    ranks = shown.ranks if shown.kind in _GUILTY else ()
    first = shown.where.get(ranks[0]) if ranks else None
    place = first.place if first else ""
    return Found(ranks, shown.op, place, (order.start, len(facts)), tuple(texts))


def _write(fd: int, data: bytes, at: int) -> int:
    """Write at a place of a memory file; return how many bytes were taken."""
    done = 0
    with contextlib.suppress(OSError):  # no memory is left
        while done < len(data):
            done += os.pwrite(fd, memoryview(data)[done:], at + done)
    return done


def _text(parts: Collection[Taken]) -> bytes:
    """Return what was taken of a rank and its helpers for people."""
    wall_s = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
    lines = [line for one in parts for line in _lines(one, wall_s + one.at_s)]
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
