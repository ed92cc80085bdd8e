"""How stacks of living processes are read by hand: by py-spy, else by the rank."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from dsup.core.errors import DsupError
from dsup.edges import rank_stacks
from dsup.edges.group import STACKS_FD
from dsup.facts.stacks import (
    Process,
    Taken,
    decode_processes,
    encode_process,
    shortened,
)
from dsup.linux import proc, spy

SPY_S: Final = 10.0
RANK_S: Final = 2.0
HELPERS_MAX: Final = 32
"""So many helpers of each rank are shown."""


class NoStacksError(DsupError):
    """Nobody can tell where any rank is."""

    exit_code = 1


def taken(
    pids: Mapping[int, int], environment: Mapping[str, str], *, native: bool
) -> Iterator[Process]:
    """Yield the ranks and their helpers with their stacks, as far as they have any.

    Args:
        pids: of each rank.
        environment: says where programs are.
        native: frames of C code, too.

    Raises:
        NoStacksError: there are none of any rank; says what to do.
    """
    program = spy.find(environment.get("PATH", ""))
    if native and not program:
        raise NoStacksError(
            "cannot show frames of C code, because py-spy is not installed "
            f"({spy.INSTALL})"
        )
    ranks = {
        rank: _rank(rank, pid, program, native=native) for rank, pid in pids.items()
    }
    if not any(one.threads for one in ranks.values()):
        raise NoStacksError(_refusal(program, ranks))
    for rank, one in sorted(ranks.items()):
        yield one
        if program:
            yield from _helpers(rank, one.pid, program, native=native)


def _rank(rank: int, pid: int, program: str, *, native: bool) -> Process:
    seen = _spied(_about(rank, pid), program, native=native)
    if seen.threads or native:
        return seen
    dump = rank_stacks.ask(pid, STACKS_FD, RANK_S)
    return _read(Taken(time.monotonic(), _about(rank, pid), "faulthandler", dump), seen)


def _helpers(rank: int, pid: int, program: str, *, native: bool) -> Iterator[Process]:
    """Yield the helpers that run Python."""
    for helper in proc.descendants(pid)[:HELPERS_MAX]:
        about = _about(rank, helper)._replace(helper=True)
        seen = _spied(about, program, native=native)
        if seen.threads:
            yield seen


def _spied(about: Process, program: str, *, native: bool) -> Process:
    if not program:
        return about._replace(missing=f"{spy.NAME} is not installed")
    dump, why_not = spy.dump(program, about.pid, SPY_S, native=native)
    lacking = about._replace(missing=why_not)
    dump = shortened(dump, about.pid)
    return _read(Taken(time.monotonic(), about, "py-spy", dump), lacking)


def _read(one: Taken, otherwise: Process) -> Process:
    """Return a process with the threads of a dump; else what is known without it."""
    for capture in decode_processes(encode_process(one)):
        for process in capture.processes:
            if process.threads:
                return process
    return otherwise


def _about(rank: int, pid: int) -> Process:
    found = proc.stat(pid)
    return Process(rank, pid, False, found.state if found else "", proc.wchan(pid))


def _refusal(program: str, ranks: Mapping[int, Process]) -> str:
    if not program:
        return (
            "cannot show any stack, because py-spy is not installed, and no rank "
            f"answers by itself ({spy.INSTALL})"
        )
    why = next((one.missing for one in ranks.values() if one.missing), "no reason")
    return (
        f"cannot show any stack, because py-spy cannot read one: {why} (root may; or "
        "echo 0 > /proc/sys/kernel/yama/ptrace_scope)"
    )
