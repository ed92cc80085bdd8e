"""Who is where while a run stands still, and so who did not come. Pure.

A collective returns only when every rank has come, so where one waits the question is
never who waits but who does not. What tells it are the stacks of all ranks at one
moment: the waiting ones are inside the communication library, or at the one place where
nearly all are; whoever is elsewhere has not come.

Where one rank alone is in a collective it is the other way round: nobody else will
come, and the one that waits took a branch of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from dsup.facts.stacks import Frame, Process

Kind: TypeAlias = Literal[
    "absent",  # these ranks did not come; all others wait
    "alone",  # this rank waits in a collective that no other rank takes part in
    "mismatch",  # ranks wait in different collectives
    "everyone",  # all ranks wait, none is missing: nobody is guilty
    "asleep",  # all that did not come sleep in the kernel, at the same place
    "apart",  # nobody waits for anybody: no hang that stacks could show
    "unknown",  # too few stacks
]


class Where(NamedTuple):
    """Where a rank is.

    Attributes:
        waits_in: the collective it is inside of, such as ``all_reduce``; empty if none.
        place: its innermost frame that is its own code: ``dataset.py:88 in read``.
        inner: its innermost frame of all.
        how: what it does there, in a few words; empty if that is not known.
    """

    waits_in: str
    place: str
    inner: str
    how: str = ""


class Standstill(NamedTuple):
    """What stacks show.

    Attributes:
        ranks: who is the cause; empty where nobody can be named.
        waiting: who waits.
        op: the collective that they wait in.
        where: of each rank that was seen.
    """

    kind: Kind
    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    op: str = ""
    where: Mapping[int, Where] = {}


FROZEN: Final = frozenset("Tt")
ASLEEP: Final = "D"

COLLECTIVES: Final = frozenset(
    [
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "irecv",
        "isend",
        "monitored_barrier",
        "recv",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
        "send",
        "init_process_group",
        "new_group",
        "destroy_process_group",
        "_store_based_barrier",
    ]
)
"""Functions of ``torch.distributed`` that return when the others have come."""

PEER_TO_PEER: Final = frozenset({"irecv", "isend", "recv", "send"})
"""One rank's counterpart is another function here: that they differ means nothing."""

_DISTRIBUTED: Final = "/torch/distributed/"
_BARRIERS: Final = "/dsup_runtime/barriers.py"
_DDP: Final = "/torch/nn/parallel/distributed.py"
FEW_PART: Final = 3
"""Where no stack shows a collective, at most a third of the ranks may be elsewhere."""

_LOADER: Final = "/torch/utils/data/dataloader.py"
_RUNTIME: Final = "/dsup_runtime/"
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python3")
_LOCKS: Final = frozenset(
    {"acquire", "wait", "join", "__enter__", "_wait_for_tstate_lock"}
)


def where(process: Process) -> Where:
    """Return where a rank is, by the stack of its main thread."""
    frames = process.main
    if not frames:
        return Where("", "", "")
    own = next((f for f in frames if not is_library(f)), frames[-1])
    return Where(_waits_in(frames), own.place, frames[0].place, _how(frames, process))


def standstill(processes: Mapping[int, Process], world_size: int) -> Standstill:
    """Return what the stacks of all ranks at one moment show.

    Args:
        processes: the rank's own process, by rank; helpers are not looked at here.
        world_size: ranks of the run.
    """
    seen = {rank: where(one) for rank, one in sorted(processes.items())}
    seen = {rank: at for rank, at in seen.items() if at.inner}
    frozen = {rank for rank, one in processes.items() if one.state in FROZEN}
    still = frozen | {rank for rank, one in processes.items() if one.state == ASLEEP}
    waiting = _waiting(seen) - frozen
    away = tuple(rank for rank in sorted(processes) if rank not in waiting)
    unseen = [rank for rank in processes if rank not in seen and rank not in still]
    if len(processes) < world_size or unseen:
        found = _despite(away, waiting, seen, still)
        missing = world_size - len(processes)
        if not waiting or len(found) != 1 or missing > len(waiting):
            return Standstill("unknown", where=seen)
        away = found
    if not waiting:
        return _nobody_waits(processes, seen)
    if not away:
        return _all_wait(seen)
    told = tuple(sorted(waiting))
    op = _op(told, seen)
    if len(waiting) == 1 and len(away) > 1 and not frozen:
        return Standstill("alone", told, told, op, seen)
    return Standstill("absent", away, told, op, seen)


def _despite(
    away: tuple[int, ...],
    waiting: set[int],
    seen: Mapping[int, Where],
    still: set[int],
) -> tuple[int, ...]:
    """Return who did not come, though not all stacks could be taken.

    Whoever was seen elsewhere did not. Where nobody was, the one rank that no stack
    could be taken of is it, if all others wait.
    """
    known = tuple(rank for rank in away if rank in seen or rank in still)
    return known if known or len(waiting) <= 1 else away


def _op(waiting: tuple[int, ...], seen: Mapping[int, Where]) -> str:
    """Return what most of the waiting ranks wait in: a collective, else a place."""
    ops = Counter(seen[rank].waits_in or seen[rank].place for rank in waiting)
    return ops.most_common(1)[0][0]


def _waiting(seen: Mapping[int, Where]) -> set[int]:
    """Return the ranks that wait: in a collective, or where nearly all are.

    A collective that was begun before and is waited for (``work.wait()``, a backward
    pass) is C++ below a line of the user's own: that a rank waits there shows only by
    the others being at the same line.
    """
    inside = {rank for rank, at in seen.items() if at.waits_in}
    if inside:
        return inside
    places = Counter(at.inner for at in seen.values())
    place, many = places.most_common(1)[0] if places else ("", 0)
    enough = many >= max(2, len(seen) - len(seen) // FEW_PART) and many < len(seen)
    return {rank for rank, at in seen.items() if at.inner == place} if enough else set()


def _all_wait(seen: Mapping[int, Where]) -> Standstill:
    """Return whether all wait in the same collective, called at the same line."""
    calls = Counter((at.waits_in, at.place) for at in seen.values())
    told = tuple(sorted(seen))
    ops = sorted({op for op, _ in calls})
    if len(calls) == 1 or PEER_TO_PEER.intersection(ops):
        return Standstill("everyone", (), told, ", ".join(ops), seen)
    (usual, many), (_, second) = calls.most_common(2)
    odd = tuple(r for r in told if (seen[r].waits_in, seen[r].place) != usual)
    guilty = odd if many > second else ()
    return Standstill("mismatch", guilty, told, usual[0], seen)


def _nobody_waits(
    processes: Mapping[int, Process], seen: Mapping[int, Where]
) -> Standstill:
    asleep = {rank: one.wchan for rank, one in processes.items() if one.state == ASLEEP}
    if asleep and len(set(asleep.values())) == 1 and len(asleep) == len(processes):
        return Standstill("asleep", (), (), asleep[min(asleep)], seen)
    frozen = tuple(r for r, one in sorted(processes.items()) if one.state in FROZEN)
    if frozen:
        return Standstill("absent", frozen, (), "", seen)
    places = {at.inner for at in seen.values()}
    if len(seen) > 1 and len(places) == 1 and not asleep:
        told = tuple(sorted(seen))
        return Standstill("everyone", (), told, _op(told, seen), seen)
    return Standstill("apart", (), (), "", seen)


def _waits_in(frames: tuple[Frame, ...]) -> str:
    """Return the outermost function of torch.distributed's that a rank is inside of."""
    calls = [frame.function for frame in frames if _DISTRIBUTED in frame.file]
    known = [name for name in calls if name in COLLECTIVES]
    if known:
        return known[-1]
    if any(f.file.endswith(_BARRIERS) and f.function == "barrier" for f in frames):
        return "barrier"
    return "DistributedDataParallel" if frames[0].file.endswith(_DDP) else ""


def _how(frames: tuple[Frame, ...], process: Process) -> str:
    if process.state in FROZEN:
        return "frozen"
    if process.state == ASLEEP:
        return (
            f"asleep in the kernel ({process.wchan})"
            if process.wchan
            else "asleep in the kernel"
        )
    if any(f.file.endswith(_LOADER) for f in frames):
        return "waits for its DataLoader"
    if frames[0].file.endswith("/threading.py") or frames[0].function in _LOCKS:
        return "waits for a lock"
    return ""


def is_library(frame: Frame) -> bool:
    """Return whether a call is not the user's own, as far as its file tells."""
    frozen = frame.file.startswith("<frozen ")
    at = frame.file
    return frozen or _RUNTIME in at or any(part in at for part in _LIBRARIES)
