"""Directories that a run writes to, and shared memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsup.checkup.finding import Check, Said, State
from dsup.checkup.readings import PATIENT_S, Readings, Space

SHM: Final = "/dev/shm"  # noqa: S108 (it is judged)

_MIB: Final = 1 << 20
_FULL_BYTES: Final = 100 * _MIB
_SCARCE_BYTES: Final = 5 << 30
_INODES_FULL: Final = 1_000
_INODES_SCARCE: Final = 20_000
_TENTH: Final = 10
_SLOW_MS: Final = 1_000.0
_SHARED: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "ceph", "gpfs", "wekafs", "9p"}
)
_DOCKER_BYTES: Final = 64 * _MIB
_SHM_EACH_BYTES: Final = 256 * _MIB
_SHM_FULL_BYTES: Final = 4 * _MIB


def disk(readings: Readings) -> Iterator[Said]:
    """Room and inodes where runs, temporary files and checkpoints are written.

    Thresholds: bad below 100 MiB or 1,000 inodes, where that is less than a tenth of
    all; to look at below 5 GiB or 20,000. A file system that does not answer would hang
    the ranks as well. What any node would meet there is the job's.
    """
    for name, place in _places(readings):
        path = readings.asked.places.get(name, "")
        if place is None:
            yield Said("unknown", f"{_what(name)} {path}: nobody could look at it")
        elif place.silent:
            text = f"{_what(name)} {path} did not answer within {PATIENT_S:g} s"
            yield Said("bad", text, f"mount | grep {path}; stat -f {path}")
        else:
            yield _room(_what(name), place)


def _room(what: str, place: Space) -> Said:
    where = f"{what} {place.path}"
    if place.error:
        fix = f"ls -ld {place.looked_at}; df -h {place.looked_at}"
        text = f"{where} cannot be written: {place.error}"
        if place.whose == "nobody":
            return Said("unknown", f"{where} could not be tried: {place.error}", fix)
        ours = place.whose == "job"
        ours = ours or (place.whose == "full" and _is_shared(place.kind))
        return Said("bad", text, fix, ours)
    kind = f" ({place.kind})" if place.kind else ""
    if place.free is None:
        return Said("unknown", f"{where}{kind} does not tell its size")
    text = f"{where}{kind} has {_size(place.free)} free"
    state = _fullness(place.free, place.total, _FULL_BYTES, _SCARCE_BYTES)
    few: State = "ok"
    if place.inodes is not None:
        total = place.inodes_total
        few = _fullness(place.inodes, total, _INODES_FULL, _INODES_SCARCE)
    if few == "bad" or (few == "warn" and state == "ok"):
        text, state = f"{where} has {place.inodes} inodes free", few
    fix = "" if state == "ok" else _full(place)
    return Said(state, text, fix, state == "bad" and _is_shared(place.kind))


def _fullness(free: int, total: int | None, full: int, scarce: int) -> State:
    """Judge what is left; of a small file system little is left when it is empty."""
    if free >= scarce:
        return "ok"
    small = total is not None and free * _TENTH >= total
    return "bad" if free < full and not small else "warn"


def _is_shared(kind: str) -> bool:
    """Return whether all nodes have that file system: no other one cures it."""
    return kind in _SHARED or kind.startswith("fuse.")


def _full(place: Space) -> str:
    return f"du -xh --max-depth=2 {place.looked_at} | sort -h | tail; --keep-runs"


def sync(readings: Readings) -> Iterator[Said]:
    """How long 1 MiB takes to be safe on disk: the middle of three, or a slow one.

    Threshold: one second. A checkpoint waits that long for each of its files. A disk
    that is busy takes many seconds and is well, so nothing of it is bad.
    """
    for name, place in _places(readings):
        fix = "iostat -x 1; nfsiostat; put checkpoints on another file system"
        if place and place.syncing:
            where = f"{_what(name)} {place.path}"
            text = f"{where}: 1 MiB is not safe after {PATIENT_S:g} s"
            yield Said("warn", text, fix)
        if place is None or place.sync_ms is None:
            continue
        text = f"{_what(name)} {place.path}: 1 MiB is safe after {place.sync_ms:.0f} ms"
        if place.sync_ms > _SLOW_MS:
            yield Said("warn", text, fix)
        else:
            yield Said("ok", text)


def shared_memory(readings: Readings) -> Iterator[Said]:
    """Shared memory, where DataLoader's workers and NCCL put their buffers.

    A full one ends a rank with SIGBUS. 64 MiB is what Docker gives. Thresholds: 256 MiB
    a rank; bad below 4 MiB free, unless somebody made it that small.
    """
    place = readings.spaces.get(SHM)
    if place is None or place.silent or (place.free is None and not place.error):
        yield Said("unknown", f"{SHM} does not tell its size")
        return
    free, ranks = place.free or 0, readings.ranks
    text = f"{SHM} has {_size(free)} of {_size(place.total)} free"
    fix = f"mount -o remount,size=50% {SHM}; ls -l {SHM}"
    if readings.system and readings.system.container:
        fix = "docker run --shm-size=16g, or --ipc=host; in Kubernetes an emptyDir of "
        fix += "medium: Memory there"
    if place.error:
        yield Said("warn", f"{SHM} cannot be used: {place.error}", fix)
    elif free < _SHM_FULL_BYTES and place.total > _DOCKER_BYTES:
        yield Said("bad", text, fix)
    elif place.total <= _DOCKER_BYTES:
        yield Said("warn", f"{text}: Docker's default", fix)
    elif free < ranks * _SHM_EACH_BYTES:
        yield Said("warn", f"{text}, for {ranks} rank{'s' * (ranks != 1)}", fix)
    else:
        yield Said("ok", text)


CHECKS: Final = (
    Check("disk", "Storage", disk),
    Check("sync", "Storage", sync),
    Check("shared-memory", "Storage", shared_memory),
)


def _places(readings: Readings) -> Iterator[tuple[str, Space | None]]:
    for name, place in readings.spaces.items():
        if name != SHM:
            yield name, place


def _what(name: str) -> str:
    return {"runs": "the run directory", "checkpoints": "the checkpoint directory"}.get(
        name, name
    )


def _size(size: int) -> str:
    if size >= 1 << 30:
        return f"{size / (1 << 30):.1f} GiB"
    return f"{size / _MIB:.0f} MiB"
