"""Who is where while a run stands still, and so who did not come. Pure.

A collective returns only when every rank has come, so where one waits the question is
never who waits but who does not. What tells it are the stacks of all ranks at one
moment: the waiting ones are inside the communication library; whoever is elsewhere has
not come. Where no stack shows a collective, the one place where nearly all are may be
where they wait, or where they all hang: that is a guess, and nobody is ended for it.

Where one rank alone is in a collective it is the other way round: nobody else will
come, and the one that waits took a branch of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
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


GUILTY: Final = ("absent", "alone", "mismatch")
"""Kinds that may name a cause."""

FROZEN: Final = frozenset("Tt")
ASLEEP: Final = "D"

COLLECTIVES: Final = frozenset(
    [
        "_all_gather_base",
        "_reduce_scatter_base",
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
        "batch_isend_irecv",
        "wait_tensor",
    ]
)
"""Functions of ``torch.distributed`` that return when the others have come."""

FOREIGN: Final = frozenset(
    ["allgather", "allreduce", "alltoall", "meet", "synchronize"]
)
"""Those of Horovod, and of dsup's own drill, that have other names."""

PEER_TO_PEER: Final = frozenset({"irecv", "isend", "recv", "send"})
"""One rank's counterpart is another function here: that they differ means nothing."""

_DISTRIBUTED: Final = ("/torch/distributed/", "/deepspeed/comm/")
_HOROVOD: Final = "/horovod/"
_TORCH: Final = "/torch/"
_ON_DEVICE: Final = frozenset(
    ["cpu", "item", "numpy", "synchronize", "tolist", "wait", "wait_event"]
)
_DEVICES: Final = (
    "/torch/_tensor.py",
    "/torch/accelerator/",
    "/torch/cuda/",
    "/torch/futures/",
    "/torch/xpu/",
    "/torch_npu/",
)
"""Where functions are that may return only when a device has done its collectives."""

ON_DEVICE: Final = "waits for its device"
_OWN: Final = ("/dsup_runtime/barriers.py", "/job/group.py")
"""Where the runtime's ranks meet, and those of a drill, whose job is copied."""

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
    waiting = _waiting(seen, frozen) - frozen
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


def inside(shown: Standstill) -> bool:
    """Return whether all that wait are inside of a collective that is known as one."""
    waiting = [shown.where[rank] for rank in shown.waiting if rank in shown.where]
    return bool(waiting) and all(at.waits_in for at in waiting)


def is_sure(shown: Standstill) -> bool:
    """Return whether who is named is the one to blame, as far as stacks can tell.

    Those that wait must be inside of a collective, and nobody else may wait for a
    device, which may be in a collective itself. A frozen rank cannot come.
    """
    if shown.kind == "absent" and not shown.waiting:
        return True
    rest = [at for rank, at in shown.where.items() if rank not in shown.waiting]
    return inside(shown) and all(at.how != ON_DEVICE for at in rest)


def to_blame(shown: Standstill) -> tuple[int, ...]:
    """Return the ranks that stacks show to be the cause; none where that is a guess."""
    return shown.ranks if shown.kind in GUILTY and is_sure(shown) else ()


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


def _waiting(seen: Mapping[int, Where], frozen: Collection[int]) -> set[int]:
    """Return the ranks that wait: in a collective, or where nearly all are.

    A collective that was begun before and is waited for (``work.wait()``, a backward
    pass) is C++ below a line of the user's own: that a rank waits there may show by the
    others being at the same line. It does not where a rank is frozen, which explains
    itself, or where whoever is elsewhere may wait for its device.
    """
    called = {rank for rank, at in seen.items() if at.waits_in}
    if called or frozen:
        return called
    places = Counter(at.inner for at in seen.values())
    place, many = places.most_common(1)[0] if places else ("", 0)
    enough = many >= max(2, len(seen) - len(seen) // FEW_PART) and many < len(seen)
    there = {rank for rank, at in seen.items() if at.inner == place}
    on_device = [at.how == ON_DEVICE for r, at in seen.items() if r not in there]
    return there if enough and not any(on_device) else set()


def _all_wait(seen: Mapping[int, Where]) -> Standstill:
    """Return whether all wait in the same collective, at whatever lines.

    A script may call the same one in either branch: that the lines differ is no sign.
    """
    calls = Counter(at.waits_in for at in seen.values())
    told, ops = tuple(sorted(seen)), sorted(calls)
    if len(ops) == 1 or PEER_TO_PEER.intersection(ops):
        return Standstill("everyone", (), told, ", ".join(ops), seen)
    (usual, many), (_, second) = calls.most_common(2)
    odd = tuple(rank for rank in told if seen[rank].waits_in != usual)
    return Standstill("mismatch", odd if many > second else (), told, usual, seen)


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
    """Return the outermost collective that a rank is inside of.

    Code of the user's own that a collective calls, as where an object is pickled, has
    not entered it yet: only what is below that code counts.
    """
    inner = _below_own(frames)
    known = [name for frame in inner if (name := _collective(frame))]
    if known:
        return known[-1]
    return "DistributedDataParallel" if frames[0].file.endswith(_DDP) else ""


def _collective(frame: Frame) -> str:
    name = frame.function
    if any(part in frame.file for part in _DISTRIBUTED):
        return name if name in COLLECTIVES else ""
    if frame.file.endswith(_OWN):
        return name if name in {"barrier", "meet"} else ""
    return name if _HOROVOD in frame.file and name in FOREIGN | COLLECTIVES else ""


def _below_own(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the innermost calls, down from the last one of the user's own code."""
    own = (n for n, frame in enumerate(frames) if not _is_foreign(frame))
    return frames[: next(own, len(frames))]


def _is_foreign(frame: Frame) -> bool:
    """Return whether it is a library's call; torch may lie anywhere, built by hand."""
    library = is_library(frame) or frame.file.endswith(_OWN)
    return library or any(part in frame.file for part in (_TORCH, _HOROVOD))


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
    if any(_on_device(frame) for frame in _below_own(frames)):
        return ON_DEVICE
    if frames[0].file.endswith("/threading.py") or frames[0].function in _LOCKS:
        return "waits for a lock"
    return ""


def _on_device(frame: Frame) -> bool:
    known = any(part in frame.file for part in _DEVICES)
    return known and frame.function in _ON_DEVICE


def is_library(frame: Frame) -> bool:
    """Return whether a call is not the user's own, as far as its file tells."""
    frozen = frame.file.startswith("<frozen ")
    at = frame.file
    return frozen or _RUNTIME in at or any(part in at for part in _LIBRARIES)
