"""Where a process of a run stands still, in words, and the lines that prove it. Pure.

What a rank does is not always told by its own stack: it may wait for a DataLoader's
worker, whose stack tells, or for a lock that another of its threads holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dsup.attribution.standstill import ASLEEP, FROZEN, is_library
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import one_line
from dsup.core.verdict import Evidence
from dsup.facts.stacks import Frame, Process, Thread
from dsup_runtime import contract

CHAIN_MAX: Final = 4
"""So many calls of a stack are quoted."""

HELPERS_MAX: Final = 3

_LOADER: Final = "/torch/utils/data/dataloader.py"
_WORKER: Final = "/torch/utils/data/_utils/worker.py"
_CHILD: Final = "/multiprocessing/process.py"
_THREADING: Final = "/threading.py"
_LOCK_CALLS: Final = frozenset(
    {"acquire", "__enter__", "_acquire_restore", "wait_for", "wait", "join"}
)
_FUTEX: Final = "futex"
_NO_WCHAN: Final = frozenset({"", "0"})


class Whereabouts(NamedTuple):
    """Where a rank is, and what it does there.

    Attributes:
        place: ``dataset.py:88``; empty where no stack was taken.
        said: ``at dataset.py:88``, with what is done there; empty if nothing is known.
        key: the place and what is done there, for a signature.
        tells: it says more than a place: why the rank does not go on.
        sure: nothing in it is inferred.
    """

    place: str = ""
    said: str = ""
    key: str = ""
    tells: bool = False
    sure: bool = True


def of_rank(timeline: Timeline, rank: int) -> Whereabouts:
    """Return where a rank is, by the last stacks of it and its helpers."""
    process = process_of(timeline.stacks, rank)
    if process is None or not process.main:
        return Whereabouts()
    frame = own_frame(process.main)
    place = _place(frame)
    at = Whereabouts(place, f"at {place}", _key(frame))
    if process.state in {*FROZEN, ASLEEP}:
        return at._replace(tells=True)
    if _in_loader(process):
        return _at_loader(timeline, rank, at)
    return _in_deadlock(process, at) or at


def of_stacks(timeline: Timeline, ranks: Iterable[int]) -> tuple[Evidence, ...]:
    """Return the stacks of ranks, of the threads that tell, and of their helpers."""
    lines: list[Evidence] = []
    for rank in ranks:
        process = process_of(timeline.stacks, rank)
        helpers = _of_helpers(timeline, rank)
        loader = process is not None and _in_loader(process)
        lines += helpers if loader else []
        if process is not None and process.main:
            same = _same_before(timeline, process)
            lines.append(_line(timeline, rank, f"{chain(process.main)}{same}"))
        elif process is not None and process.missing:
            lines.append(_line(timeline, rank, f"no stack: {process.missing}"))
        if process is not None:
            lines += [
                _line(timeline, rank, f"thread {one.name or '?'}: {chain(one.frames)}")
                for one in _other_threads(process)[:HELPERS_MAX]
            ]
        lines += [] if loader else helpers
    return tuple(lines)


def of_states(timeline: Timeline, ranks: Iterable[int]) -> tuple[Evidence, ...]:
    """Return the states of ranks that the kernel stops or lets sleep."""
    found = []
    for rank in ranks:
        process = process_of(timeline.stacks, rank)
        if process is not None and process.state in {*FROZEN, ASLEEP}:
            what = "frozen" if process.state in FROZEN else asleep_in(process)
            text = f"rank {rank} (pid {process.pid}): state {process.state}, {what}"
            found.append(Evidence("state", one_line(text), rank, timeline.stacks_s))
    return tuple(found)


def process_of(processes: Iterable[Process], rank: int) -> Process | None:
    """Return the process of a rank itself; None if it was not looked at."""
    return next((p for p in processes if p.rank == rank and not p.helper), None)


def own_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """Return the innermost call that is the user's own, else the outermost."""
    own = next((frame for frame in frames if not is_library(frame)), None)
    return own or (frames[-1] if frames else None)


def helper_frame(process: Process) -> Frame | None:
    """Return the innermost call of a helper's own work; None while it has none.

    A forked helper's stack goes down to where its rank started it, which says nothing.
    """
    inner: list[Frame] = []
    for frame in process.main:
        if frame.file.endswith((_WORKER, _CHILD)):
            break
        inner.append(frame)
    return next((frame for frame in inner if not is_library(frame)), None)


def asleep_in(process: Process) -> str:
    """Return ``asleep in the kernel (nfs_wait_bit_killable)``."""
    known = process.wchan not in _NO_WCHAN
    return f"asleep in the kernel{f' ({process.wchan})' if known else ''}"


def chain(frames: tuple[Frame, ...]) -> str:
    """Return ``recv (connection.py:414) < read (dataset.py:88) < main (train.py:9)``.

    The innermost call and where the user's own code begins; of what a library does
    between them only what the user has called.
    """
    own = next((n for n, frame in enumerate(frames) if not is_library(frame)), 0)
    shown = frames[:CHAIN_MAX]
    if own > 1:
        shown = (frames[0], *frames[own - 1 : own + CHAIN_MAX - 2])
    return " < ".join(f"{f.function or '?'} ({_at(f)})" for f in shown)


def _in_loader(process: Process) -> bool:
    return any(frame.file.endswith(_LOADER) for frame in process.main)


def _at_loader(timeline: Timeline, rank: int, at: Whereabouts) -> Whereabouts:
    """Return where the worker is that a rank's DataLoader waits for."""
    for helper in _helpers(timeline, rank):
        frame = helper_frame(helper)
        if frame is None and helper.state not in {*FROZEN, ASLEEP}:
            continue
        where = f"at {_place(frame)}" if frame is not None else ""
        state = "frozen" if helper.state in FROZEN else ""
        state = asleep_in(helper) if helper.state == ASLEEP else state
        told = ", ".join(filter(None, (state, where)))
        said = f"in its DataLoader (a worker is {told})"
        key = f"DataLoader {_key(frame)}".strip()
        return Whereabouts(_place(frame) or at.place, said, key, tells=True)
    return at._replace(said=f"{at.said}, in its DataLoader", tells=True)


def _in_deadlock(process: Process, at: Whereabouts) -> Whereabouts | None:
    """Return that threads wait for each other, where it looks so; else None.

    A lock is taken in C: the innermost call is the user's own line. So the sign is a
    main thread that sleeps for a lock, and another thread of the program's own that
    stands in a line of its own as well.
    """
    others = _other_threads(process)
    if not others:
        return None
    frame = own_frame(others[0].frames)
    said = f"{at.said} (it looks like a deadlock with its thread at {_place(frame)})"
    key = f"deadlock {at.key} {_key(frame)}"
    return Whereabouts(at.place, said, key, tells=True, sure=False)


def _may_wait_for_lock(process: Process) -> bool:
    inner = process.main[0] if process.main else None
    if inner is None or process.state == "R":
        return False
    if inner.file.endswith(_THREADING) and inner.function in _LOCK_CALLS:
        return True
    known = process.wchan not in _NO_WCHAN
    return not is_library(inner) and (process.wchan.startswith(_FUTEX) or not known)


def _other_threads(process: Process) -> list[Thread]:
    """Return the threads at a line of the program's own, where the main one waits."""
    if not _may_wait_for_lock(process):
        return []
    return [
        one
        for one in process.threads
        if not one.main and one.frames and not is_library(one.frames[0])
    ]


def _of_helpers(timeline: Timeline, rank: int) -> list[Evidence]:
    lines = []
    for helper in _helpers(timeline, rank)[:HELPERS_MAX]:
        state = f", state {helper.state}, {asleep_in(helper)}"
        state = state if helper.state == ASLEEP else ""
        state = ", frozen" if helper.state in FROZEN else state
        told = chain(helper.main) if helper_frame(helper) else "idle"
        told = told if helper.main else f"no stack: {helper.missing or 'none taken'}"
        text = f"helper {helper.pid}{state}: {told}"
        lines.append(_line(timeline, rank, text))
    return lines


def _helpers(timeline: Timeline, rank: int) -> list[Process]:
    """Return the helpers of a rank, those first whose state or stack tells most."""
    mine = [one for one in timeline.stacks if one.helper and one.rank == rank]

    def idle(one: Process) -> tuple[bool, bool]:
        return one.state not in {*FROZEN, ASLEEP}, helper_frame(one) is None

    return sorted(mine, key=idle)


def _same_before(timeline: Timeline, process: Process) -> str:
    before = process_of(timeline.stacks_before, process.rank)
    if before is None or not before.main:
        return ""
    if own_frame(before.main) == own_frame(process.main):
        return "; the same when it was first suspected"
    frame = own_frame(before.main)
    return f"; {_at(frame) if frame else 'elsewhere'} when it was first suspected"


def _line(timeline: Timeline, rank: int, text: str) -> Evidence:
    directory = contract.rank_dir("", timeline.attempt, rank)
    file = f"{directory}/{contract.STACKS_FILE}"
    return Evidence("stack", one_line(text), rank, timeline.stacks_s, file)


def _place(frame: Frame | None) -> str:
    return "" if frame is None else _at(frame)


def _key(frame: Frame | None) -> str:
    """Return a place that is the same in another attempt, also of another version."""
    if frame is None:
        return ""
    if is_library(frame):
        return f"{frame.file.rpartition('/')[2]} {frame.function}"
    return _at(frame)


def _at(frame: Frame) -> str:
    return one_line(f"{frame.file.rpartition('/')[2]}:{frame.line}", 60)
