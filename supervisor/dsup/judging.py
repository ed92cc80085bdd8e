"""The judge: raw evidence of one attempt becomes typed facts, and these a verdict.

It runs in a forked child with limits of its own: a hostile log line, or a matcher's
bug, costs a verdict and never the supervisor.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Final, NamedTuple

from dsup.attribution.judge import judge
from dsup.attribution.timeline import (
    Beat,
    Hang,
    Timeline,
)
from dsup.attribution.wording import status_text
from dsup.core.verdict import Evidence, Verdict
from dsup.devices import Found
from dsup.edges import kernel_log, ports
from dsup.edges.scribe.protocol import decode_tails
from dsup.facts import (
    audit,
    flight_recorder,
    gpu_health,
    gpu_load,
    kernel,
    kmsg,
    nvml,
    samples,
)
from dsup.facts.flight_recorder import Trace
from dsup.facts.gpu_load import Load
from dsup.facts.hardware import Gpu, gpu_of
from dsup.facts.note import decode_error_file, decode_note
from dsup.facts.output import LastWords, last_words
from dsup.facts.raised import Raised
from dsup.facts.stacks import decode_processes
from dsup.linux import proc
from dsup.report.verdict_file import to_wire
from dsup_runtime import contract

MEMORY_BYTES: Final = 512 * 1024 * 1024
"""What a judge may have beyond what it was born with."""

CPU_S: Final = 5
JOURNAL_S: Final = 2.0
_SAME_S: Final = 1e-3
"""Times of one capture are the same, but for how they are written down."""


class Case(NamedTuple):
    """All that was gathered about an attempt, as it came in.

    Attributes:
        known: what needs no interpretation.
        notes: ``(rank, datagram)`` in the order of arrival.
        error_files: error.json of each rank that wrote one.
        kernel_records: of /dev/kmsg, since the attempt began.
        kernel_error: why the kernel log cannot be read; empty if it can.
        kernel_lost: how many of its records were overwritten before they were read.
        samples: of memory and progress, one line each.
        tails: a memory file of the scribe's, as bytes; see ``decode_tails``.
        page: the heartbeat page.
        devices: what GPUs and network ports said.
        stacks: of the last captures; see ``decode_processes``.
        traces: of flight recorders, of the same; see ``flight_recorder.decode``.
    """

    known: Timeline
    notes: tuple[tuple[int, bytes], ...] = ()
    error_files: Mapping[int, bytes] = {}
    kernel_records: tuple[bytes, ...] = ()
    kernel_error: str = ""
    kernel_lost: int = 0
    samples: tuple[bytes, ...] = ()
    tails: bytes = b""
    page: bytes = b""
    devices: Found = Found()
    stacks: bytes = b""
    traces: bytes = b""


def work(case: Case) -> bytes:
    """Judge a case; in a child. Returns the verdict for ``from_wire``."""
    limit_oneself()
    return to_wire(judge(timeline(case)))


def timeline(case: Case) -> Timeline:
    """Return what a case's raw evidence says."""
    records, missing = _kernel_records(case)
    known = _with_stacks(_with_devices(case), case.stacks)
    return _with_traces(known, case.traces)._replace(
        raised=_raised(case),
        kernel=tuple(kernel.match(records)),
        kernel_log=missing,
        abends=tuple(audit.match(records)),
        words=_words(case),
        samples=samples.decode_all(case.samples),
        beats=_beats(case.page, case.known.world_size),
    )


def without_judge(known: Timeline, why: str = "the judge gave no answer") -> Verdict:
    """Return what is left to say where nobody judges: wait statuses.

    Args:
        known: what the judge would have been told.
        why: nobody does.
    """
    told = tuple(
        Evidence(
            "status", f"rank {end.rank}: {status_text(end.status)}", end.rank, end.at_s
        )
        for end in known.ends
        if end.status != 0
    )
    first = told[0] if told else None
    if known.hang is not None:
        return _hang_without_judge(known, known.hang, told, why)
    seen = f"first seen to end: {first.text}" if first else "no rank had failed"
    return Verdict(
        attempt=known.attempt,
        cause="unknown",
        first_ranks=(),
        certainty="unknown",
        at_s=first.at_s if first and first.at_s else known.started_s,
        summary=f"The cause is unknown, because {why}; {seen}.",
        rule="no_judge",
        evidence=told,
        ended_by_dsup=tuple(sorted(known.signalled)),
    )


def _hang_without_judge(
    known: Timeline, hang: Hang, told: tuple[Evidence, ...], why: str
) -> Verdict:
    # Several that outlast a limit wait for one of them, or for none.
    ranks = () if hang.why == "limit" and len(hang.ranks) > 1 else hang.ranks
    who = f" of rank {', '.join(map(str, ranks))}" if ranks else ""
    text = f"A hang{who} was confirmed by dsup; {why}."
    return Verdict(
        attempt=known.attempt,
        cause="hang",
        first_ranks=ranks,
        certainty="likely" if ranks else "guess",
        at_s=hang.at_s,
        summary=text,
        rule="no_judge",
        evidence=told,
        ended_by_dsup=tuple(sorted(known.signalled)),
    )


def limit_oneself() -> None:
    """Bound memory and processor time of this process, for good."""
    pages = int(proc.read_text("/proc/self/statm").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def _with_devices(case: Case) -> Timeline:
    """Return what is known, with what the devices said."""
    found = case.devices
    cards = nvml.decode_cards(found.probed.cards)
    used = {rank: gpu_of(cards, access) for rank, access in found.access.items()}
    return case.known._replace(
        gpus={rank: gpu for rank, gpu in used.items() if gpu},
        gpu_health=gpu_health.health_of_all(cards, found.probed),
        nvml=nvml.missing(found.probed),
        loads=_loads(found.probed, used),
        ports=ports.changes(
            ports.decode(found.ports_before), ports.decode(found.ports_after)
        ),
    )


def _with_stacks(known: Timeline, raw: bytes) -> Timeline:
    """Return what is known, with the last stacks and, of the same wait, those before.

    Stacks from before the last sign of progress show another moment of the run.
    """
    taken = decode_processes(raw)
    if not taken:
        return known
    since_s = known.hang.since_s if known.hang else known.started_s
    before = [one.processes for one in taken[:-1] if one.at_s >= since_s]
    return known._replace(
        stacks=taken[-1].processes,
        stacks_s=taken[-1].at_s,
        stacks_before=before[-1] if before else (),
    )


def _with_traces(known: Timeline, raw: bytes) -> Timeline:
    """Return what is known, with the traces taken with the last stacks, and before."""
    by_time: dict[float, dict[int, Trace]] = {}
    for trace in flight_recorder.decode(raw):
        by_time.setdefault(trace.at_s or 0.0, {})[trace.rank] = trace
    last_s = known.stacks_s or 0.0
    since_s = known.hang.since_s if known.hang else known.started_s
    before = [at_s for at_s in by_time if since_s <= at_s < last_s - _SAME_S]
    now = [at_s for at_s in by_time if abs(at_s - last_s) <= _SAME_S]
    return known._replace(
        traces=by_time[now[-1]] if now else {},
        traces_before=by_time[before[-1]] if before else {},
    )


def _loads(probed: nvml.Probed, used: Mapping[int, Gpu | None]) -> dict[int, Load]:
    found = gpu_load.decode(probed.loads)
    return {
        r: found[gpu.number] for r, gpu in used.items() if gpu and gpu.number in found
    }


def _kernel_records(case: Case) -> tuple[list[kernel.Record], str]:
    """Return the kernel's records and what is missing of them."""
    if not case.kernel_error:
        parsed = map(kmsg.parse, case.kernel_records)
        lost = (
            f"{case.kernel_lost} records were overwritten" if case.kernel_lost else ""
        )
        return [record for record in parsed if record], lost
    since_us = int(case.known.started_s * 1e6)
    lines, error = kernel_log.from_journal(since_us, JOURNAL_S)
    if error:
        return [], case.kernel_error
    parsed = map(kmsg.parse_journal, lines)
    return [record for record in parsed if record], ""


def _raised(case: Case) -> tuple[Raised, ...]:
    told = [decode_note(rank, raw) for rank, raw in case.notes]
    noted = {one.rank for one in told if one and not one.handed and not one.thread}
    told += [
        decode_error_file(rank, raw)
        for rank, raw in sorted(case.error_files.items())
        if rank not in noted
    ]
    found = [raised for raised in told if raised]
    return tuple(sorted(found, key=lambda r: (r.caught_s is None, r.caught_s or 0.0)))


def _words(case: Case) -> dict[int, LastWords]:
    tails = decode_tails(case.tails)
    ranks = sorted({rank for rank, _ in tails})
    return {
        rank: last_words(
            tails.get((rank, 1), b""), tails.get((rank, 0), b""), rank=rank
        )
        for rank in ranks
    }


def _beats(page: bytes, slots: int) -> dict[int, Beat]:
    """Return the slots of ranks that ever gave a sign of life."""
    words = memoryview(page).cast("q") if page else memoryview(b"").cast("q")
    beats = {}
    for slot in range(slots):
        first = contract.slot_offset(slot)
        values = words[first : first + contract.SLOT_WORDS].tolist()
        if values and values[contract.SLOT_HEARTBEAT_NS] > 0:
            beats[slot] = _beat(values)
    return beats


def _beat(values: list[int]) -> Beat:
    step, phase = values[contract.SLOT_STEP], values[contract.SLOT_PHASE]
    progress_ns = values[contract.SLOT_PROGRESS_NS]
    return Beat(
        step=step if step >= 0 else None,
        phase=contract.PHASES[phase] if 0 <= phase < len(contract.PHASES) else "",
        heartbeat_s=values[contract.SLOT_HEARTBEAT_NS] / 1e9,
        progress_s=progress_ns / 1e9 if progress_ns > 0 else None,
    )
