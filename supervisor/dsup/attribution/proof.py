"""What a verdict cites: each builder turns known facts into lines of evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsup.attribution.accounts import (
    KERNEL_CLOCK_S,
    OOM_KINDS,
    Account,
    fault_s,
    words,
)
from dsup.attribution.devices import users
from dsup.attribution.faults import CRASH_KINDS
from dsup.attribution.helpers import kin
from dsup.attribution.timeline import Counter, Space, Standing, Timeline
from dsup.attribution.wording import exception, gib, one_line, status_text
from dsup.core.verdict import LOOKED_AT, Evidence, Source
from dsup.facts.kernel import KernelFault
from dsup.facts.output import LastWords
from dsup.facts.raised import Raised

LAST_LINES: Final = 3
WORDINGS_MAX: Final = 4
LOOKED_AT_MAX: Final = 3
HANDED_MAX: Final = 2
FULL_PARTS: Final = 50
_NOT_OURS: Final = "no GPU of this run"


def of_end(account: Account) -> tuple[Evidence, ...]:
    """Return a rank's own wait status."""
    if account.end is None or not account.own:
        return ()
    text = f"rank {account.rank} ended with {status_text(account.end.status)}"
    return (Evidence("status", text, account.rank, account.end.at_s),)


def of_silence(timeline: Timeline, ranks: Iterable[int]) -> tuple[Evidence, ...]:
    """Return that dsup had sent these ranks no signal before they ended."""
    number = sorted(ranks)
    named = ", ".join(map(str, number))
    text = f"dsup had sent rank {named} no signal"
    if len(number) == timeline.world_size:
        text = "dsup had sent no signal"
    return (Evidence("dsup", text, number[0] if len(number) == 1 else None),)


def of_raised(timeline: Timeline, raised: Raised) -> tuple[Evidence, ...]:
    """Return an exception, as its source told it."""
    thread = f" in thread {raised.thread}" if raised.thread else ""
    text = one_line(f"{exception(raised)}{thread}")
    if raised.source == "note":
        return (Evidence("note", text, raised.rank, raised.caught_s),)
    if raised.source == "error_file":
        file = _path(timeline, raised.rank, "error.json")
        return (Evidence("error_file", text, raised.rank, raised.caught_s, file),)
    source: Source = "stdout" if raised.source == "stdout" else "stderr"
    file = _path(timeline, raised.rank, f"{source}.log")
    return (Evidence(source, text, raised.rank, None, file),)


def of_all_raised(
    timeline: Timeline, raised: Iterable[Raised], most: int = WORDINGS_MAX
) -> tuple[Evidence, ...]:
    """Return exceptions of several ranks: each wording once, with how many have it.

    Args:
        timeline: of the attempt.
        raised: an exception of each rank; that of the first stands for those alike.
        most: so many wordings are returned.
    """
    alike: dict[tuple[Source, str], list[Evidence]] = {}
    for one in raised:
        for line in of_raised(timeline, one):
            alike.setdefault((line.source, line.text), []).append(line)
    told = list(alike.values())[:most]
    return tuple(
        line._replace(text=f"{line.text} ({len(rest) + 1} ranks)") if rest else line
        for line, *rest in told
    )


def of_fault(fault: KernelFault, rank: int | None) -> tuple[Evidence, ...]:
    """Return a line of the kernel's."""
    numbered = f" [kmsg seq {fault.seq}]" if fault.seq is not None else ""
    text = f"{one_line(fault.text or fault.kind, 360)}{numbered}"
    return (Evidence("kernel", text, rank, fault_s(fault)),)


def of_counter(counter: Counter) -> tuple[Evidence, ...]:
    """Return how a counter of the kernel's rose."""
    text = f"{counter.name} {counter.before} -> {counter.after} in {counter.where}"
    return (Evidence("counters", one_line(text)),)


def of_quiet_kernel(timeline: Timeline) -> tuple[Evidence, ...]:
    """Return that counters and kernel log know of no OOM kill, or could not be read."""
    risen = any("oom_kill" in counter.name for counter in timeline.counters)
    counters = "the oom_kill counters did not rise" if not risen else ""
    if not timeline.counters_read:
        counters = "the oom_kill counters could not be read"
    log = "the kernel log names none of these ranks' processes"
    if timeline.kernel_log:
        log = f"kernel log: {one_line(timeline.kernel_log)}"
    told = (Evidence("counters", counters),) if counters else ()
    return (*told, Evidence("kernel", log))


def of_last_lines(timeline: Timeline, rank: int) -> tuple[Evidence, ...]:
    """Return the last lines of a rank's stderr."""
    last = words(timeline, rank)
    file = _path(timeline, rank, f"{last.stream}.log")
    lines = [line for line in last.lines[-LAST_LINES:] if line.strip()]
    lines = lines or [last.line] * bool(last.line)
    return tuple(
        Evidence(last.stream, one_line(line), rank, None, file, _number(last, line))
        for line in lines
    )


def of_crash(timeline: Timeline, rank: int) -> tuple[Evidence, ...]:
    """Return what faulthandler or the C++ run time wrote."""
    last = words(timeline, rank)
    if not last.crash:
        return ()
    where = f" at {last.frame}" if last.frame else ""
    file = _path(timeline, rank, f"{last.stream}.log")
    return (Evidence(last.stream, one_line(f"{last.crash}{where}"), rank, None, file),)


def of_unlogged_fault() -> tuple[Evidence, ...]:
    """Return that the kernel would have told of a fault: so it may be a signal sent."""
    text = "no line of a fault of this rank's (x86 kernels write one)"
    return (Evidence("kernel", f"kernel log: {text}"),)


def of_standing(stood: Standing) -> tuple[Evidence, ...]:
    """Return what a rank did just before dsup's signal."""
    asleep = f", asleep in {stood.wchan}" if stood.wchan not in {"", "0"} else ""
    state = f"state {stood.state}{asleep}" if stood.state else "state unknown"
    text = one_line(f"rank {stood.rank} was alive, {state}, when the others had ended")
    return (Evidence("state", text, stood.rank),)


def of_beat(timeline: Timeline, rank: int) -> tuple[Evidence, ...]:
    """Return how far a rank had come, where it uses the runtime."""
    beat = timeline.beats.get(rank)
    if beat is None:
        return ()
    step = "no step finished" if beat.step is None else f"step {beat.step} finished"
    phase = f", phase {beat.phase}" if beat.phase else ""
    return (Evidence("heartbeat", f"{step}{phase}", rank, beat.progress_s),)


def of_victims(timeline: Timeline, victims: list[Account]) -> tuple[Evidence, ...]:
    """Return what a few victims said, the earliest first."""
    by_time = sorted(victims, key=lambda a: (a.until_s, a.rank))[:3]
    lines: list[Evidence] = []
    for account in by_time:
        if account.told is not None:
            lines += of_raised(timeline, account.told)
        else:
            said = words(timeline, account.rank).line
            text = one_line(said or f"rank {account.rank}: {account.how}")
            lines.append(Evidence("stderr", text, account.rank, account.until_s))
    return tuple(lines)


def of_full_spaces(timeline: Timeline) -> tuple[Evidence, ...]:
    """Return the file systems that have little or nothing left."""
    full = [s for s in timeline.spaces if is_full(s)]
    return tuple(
        Evidence("counters", one_line(f"{s.name} is full: {_left(s)} left ({s.path})"))
        for s in full
    )


def is_full(space: Space) -> bool:
    """Return whether a file system has less than a fiftieth left, or no inode."""
    no_inode = space.free_inodes is not None and space.free_inodes <= 0
    return no_inode or 0 <= FULL_PARTS * space.free_bytes < space.total_bytes


def of_handed(
    timeline: Timeline, first: Iterable[int], cited: Iterable[Evidence]
) -> tuple[Evidence, ...]:
    """Return what the first ranks showed by themselves, and went on: no proof."""
    named = set(first)
    known = {(line.rank, line.at_s) for line in cited if line.source == "note"}
    shown = [
        one
        for one in timeline.raised
        if one.handed and one.rank in named and (one.rank, one.caught_s) not in known
    ]
    lines = [line for one in shown[-HANDED_MAX:] for line in of_raised(timeline, one)]
    text = f"{LOOKED_AT}, shown by the program itself, which went on: "
    return tuple(line._replace(text=one_line(f"{text}{line.text}")) for line in lines)


def of_deafened(timeline: Timeline) -> tuple[Evidence, ...]:
    """Return which ranks told of so many exceptions that later ones were not read."""
    text = f"{LOOKED_AT} its first notes only: it sent more than are read"
    return tuple(Evidence("dsup", text, rank) for rank in timeline.deafened[:4])


def looked_at(timeline: Timeline, cited: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return kernel faults that explain nothing here, for those who wonder."""
    known = {evidence.text for evidence in cited}
    unused = []
    for fault in timeline.kernel:
        (line,) = of_fault(fault, None)
        if line.text not in known:
            why = _why_not(timeline, fault)
            text = one_line(f"{LOOKED_AT}, {why}: {line.text}")
            unused.append(line._replace(text=text))
    return tuple(unused[:LOOKED_AT_MAX])


def _left(space: Space) -> str:
    if space.free_inodes is not None and space.free_inodes <= 0:
        return "no inode"
    return gib(space.free_bytes // 1024)


def _why_not(timeline: Timeline, fault: KernelFault) -> str:
    at_s = fault_s(fault)
    if at_s is not None and at_s < timeline.started_s - KERNEL_CLOCK_S:
        return "older than this attempt"
    if fault.kind == "xid" and fault.pci and len(timeline.gpus) >= timeline.world_size:
        return "not what came first" if users(timeline, fault.pci) else _NOT_OURS
    if timeline.host_pids and fault.pid in kin(timeline):
        return "not what came first"
    if fault.kind in CRASH_KINDS and fault.pid is not None:
        return "no thread that was seen in this run"
    if fault.kind in OOM_KINDS or fault.pid is not None:
        return "no process of this run"
    return "names no process"


def _number(last: LastWords, line: str) -> int | None:
    return last.number if line == last.line else None


def _path(timeline: Timeline, rank: int, name: str) -> str:
    return f"attempt_{timeline.attempt}/{rank}/{name}"
