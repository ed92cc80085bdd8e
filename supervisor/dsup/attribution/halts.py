"""Rules for hangs that the state of processes tells: frozen, asleep, or gone with 0.

No rank has failed by itself; dsup ended the attempt. What the kernel says of a process
goes before what stacks say: the others wait for whoever cannot run.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution import proof, whereabouts
from dsup.attribution.collectives import all_inside, stuck
from dsup.attribution.hang_scene import (
    and_rest,
    at_places,
    goes_on,
    gone,
    hung,
    named,
    of_progress,
    of_waiting,
    same_twice,
    shown_by,
    verdict_of,
)
from dsup.attribution.standstill import ASLEEP, FROZEN, Standstill, inside
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import others, sentence, subject, was
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.stacks import Process

_STORAGE: Final = (
    "afs_",
    "blk_",
    "ceph_",
    "cifs_",
    "ext4_",
    "fuse_",
    "io_schedule",
    "jbd2_",
    "ll_",
    "nfs",
    "request_wait_answer",
    "rpc_",
    "wait_on_page",
    "folio_wait",
    "xfs_",
)
"""How names of kernel functions begin in which a process waits for a file system."""

_STATES: Final = frozenset({*FROZEN, ASLEEP})


def froze(timeline: Timeline) -> Verdict | None:
    """Name ranks that stood in state T or t when the hang was confirmed.

    Symptom: SIGSTOP, a debugger; the kernel's own word. It goes before all that stacks
    say: the others wait for a rank that cannot come.
    """
    ranks = _in_state(timeline, FROZEN)
    if timeline.hang is None or not ranks:
        return None
    states = {_state(timeline, rank) for rank in ranks}
    text = "stopped by a debugger (state t)"
    if states != {"t"}:
        text = "stopped by SIGSTOP (state T)"
    it = "it" if len(ranks) == 1 else "they"
    at = at_places(timeline, ranks)
    said = f"{subject(ranks, timeline.world_size)} hung{at}: {it} {was(ranks)} {text}"
    return verdict_of(
        timeline, "froze", ranks, "proven", f"{said}{and_rest(timeline, ranks)}"
    )


def left_others_waiting(timeline: Timeline) -> Verdict | None:
    """Name ranks that had ended with exit 0 while the others still needed them.

    Symptom: exit 0, and all that are left are inside of a collective, by their stacks
    or their flight recorders: else nobody waits for whoever has left, which may just
    have been ready. Where more ranks have left than are there, whoever is there does
    something that the others never do: ``came_alone``.
    """
    early = gone(timeline)
    left = timeline.world_size - len(early)
    if timeline.hang is None or not early or len(early) > max(left, 1):
        return None
    shown = shown_by(timeline)
    ranks = tuple(a.rank for a in early)
    op = _waits_for_the_gone(timeline, shown, ranks)
    if not op:
        return None
    rest = f"{others(left)} wait{'' if left > 1 else 's'} in {op}"
    return Verdict(
        timeline.attempt,
        "early_exit",
        ranks,
        "proven" if same_twice(timeline, shown) else "likely",
        min(a.until_s for a in early),
        sentence(f"{subject(ranks)} ended with exit 0, while {rest}"),
        "left_others_waiting",
        (
            *(line for a in early for line in proof.of_end(a)),
            *proof.of_silence(timeline, ranks),
            *of_waiting(timeline, shown),
            *(line for rank in ranks for line in proof.of_beat(timeline, rank)),
            *of_progress(timeline, timeline.hang, ()),
        ),
        status=0,
        signature="exit 0",
    )


def storage_is_silent(timeline: Timeline) -> Verdict | None:
    """Name no rank where all of them sleep in the kernel at the same place.

    Symptom: state D of each rank or of a helper of it, in the same kernel function, as
    when a file server does not answer. It is ``storage_io`` where that function waits
    for a file system.
    """
    if timeline.hang is None or timeline.world_size < 2:  # noqa: PLR2004
        return None
    asleep = _asleep_by_rank(timeline)
    names = {name for name, _ in asleep.values()}
    if len(asleep) < timeline.world_size or len(names) != 1 or names <= {"", "0"}:
        return None
    (name,) = names
    storage = name.startswith(_STORAGE)
    why = ": the storage does not answer" if storage else ""
    helpers = any(process.helper for _, process in asleep.values())
    who = f"All {timeline.world_size} ranks{' or their helpers' if helpers else ''}"
    return verdict_of(
        timeline,
        "storage_is_silent",
        (),
        "proven" if storage else "likely",
        f"{who} sleep in the kernel ({name}){why}",
        cause="storage_io" if storage else "hang",
        key=name,
    )


def slept(timeline: Timeline) -> Verdict | None:
    """Name ranks that slept uninterruptibly until the hang was confirmed.

    Symptom: state D for a minute without any processor time, and where in the kernel: a
    file server, a driver, a child that never comes to execute its program. Proven where
    that alone confirmed the hang; likely where stacks or a limit did. A rank that went
    on making steps was met in that state for a moment.
    """
    hang = timeline.hang
    asleep = _in_state(timeline, frozenset(ASLEEP))
    ranks = tuple(rank for rank in asleep if not goes_on(timeline, rank))
    if hang is None or not ranks:
        return None
    shown = shown_by(timeline)
    waits = shown.kind == "absent" and not set(ranks) <= set(shown.ranks)
    if waits and hang.why != "asleep":
        return None
    if hang.why == "asleep":
        ranks = tuple(sorted(set(ranks) & set(hang.ranks))) or ranks
    functions = sorted({_wchan(timeline, rank) for rank in ranks} - {"", "0"})
    where = f", {', '.join(functions)}" if functions else ""
    it = "it was" if len(ranks) == 1 else "they were"
    sure: Certainty = "proven" if hang.why == "asleep" else "likely"
    at = at_places(timeline, ranks)
    who = f"{subject(ranks, timeline.world_size)} {hung(sure)}{at}"
    text = f"{who}: {it} asleep in the kernel (state D{where})"
    key = " ".join(functions)
    rest = and_rest(timeline, ranks)
    return verdict_of(timeline, "slept", ranks, sure, f"{text}{rest}", key=key)


def _waits_for_the_gone(
    timeline: Timeline, shown: Standstill, ended: tuple[int, ...]
) -> str:
    """Return the collective that all that are left are in; empty if they are not."""
    if shown.kind == "everyone" and inside(shown):
        return named(shown.op)
    if shown.kind in {"absent", "mismatch"} and shown.ranks and inside(shown):
        return ""
    left = set(range(timeline.world_size)) - set(ended)
    held = stuck(timeline.traces, timeline.world_size)
    return f"{held.op} #{held.number}".strip() if all_inside(held, left) else ""


def _in_state(timeline: Timeline, states: frozenset[str]) -> tuple[int, ...]:
    """Return the ranks in such a state when stacks were taken, else before TERM."""
    taken = {p.rank: p.state for p in timeline.stacks if not p.helper}
    stood = {s.rank: s.state for s in timeline.standing}
    known = {**stood, **{rank: state for rank, state in taken.items() if state}}
    return tuple(sorted(rank for rank, state in known.items() if state in states))


def _state(timeline: Timeline, rank: int) -> str:
    process = whereabouts.process_of(timeline.stacks, rank)
    if process is not None and process.state in _STATES:
        return process.state
    return next((s.state for s in timeline.standing if s.rank == rank), "")


def _wchan(timeline: Timeline, rank: int) -> str:
    process = whereabouts.process_of(timeline.stacks, rank)
    if process is not None and process.wchan:
        return process.wchan
    return next((s.wchan for s in timeline.standing if s.rank == rank), "")


def _asleep_by_rank(timeline: Timeline) -> dict[int, tuple[str, Process]]:
    """Return where each rank sleeps: itself, else a helper of it."""
    asleep = [one for one in timeline.stacks if one.state == ASLEEP]
    own_last = sorted(asleep, key=lambda one: not one.helper)
    return {one.rank: (one.wchan, one) for one in own_last}
