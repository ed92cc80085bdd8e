"""Records of one fault put together, however far apart the log has them.

A driver tells of one fault in up to thousands of records, and those of several CPUs
come interleaved. So each record says by *keys* whose it is, and joins a fault that one
of them names, if that is recent; never just the fault of the record before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from dsup.facts.kernel import FAULTS_MAX, Candidate, KernelFault, Record, within

SECOND_US: Final = 1_000_000
LASTS_US: Final = 60 * SECOND_US
"""How long after its first record a fault may be told of: a later one is another."""

_KEYS_MAX: Final = 4096
"""So many faults are open at once, the latest; a log may name any number of things."""

_FIELDS: Final = (
    "pid",
    "comm",
    "xid",
    "pci",
    "cgroup",
    "severity",
    "device",
    "previous_xid",
)
"""What a later record may add."""

Key: TypeAlias = tuple[Hashable, ...]


class Said(NamedTuple):
    """What one record says of a fault.

    Attributes:
        fault: as far as this record tells.
        keys: the record joins the fault that the first fitting one of them names; with
            none it begins a fault, which the first of them names from then on.
        also: further keys that name the fault from now on.
        sure: there is a fault; else the record only adds to one that others make sure.
        fresh: it joins nothing that is there.
        decides: its kind counts, whatever the records before it made of it.
        lasts_us: how long after the first record it may still join, microseconds.
    """

    fault: KernelFault
    keys: tuple[Key, ...]
    also: tuple[Key, ...] = ()
    sure: bool = True
    fresh: bool = False
    decides: bool = False
    lasts_us: int = LASTS_US


Teller: TypeAlias = Callable[[Record], Said | None]


@dataclass(slots=True, eq=False)
class _Group:
    place: int
    record: Record
    fault: KernelFault
    sure: bool


class Groups:
    """Faults that are known by what their records name.

    Args:
        tellers: what reads a record; the first that has something to say is believed.
    """

    def __init__(self, tellers: tuple[Teller, ...]) -> None:
        self._tellers = tellers
        self._groups: list[_Group] = []
        self._named: dict[Key, _Group] = {}

    def take(self, place: int, record: Record) -> None:
        """Take one record in."""
        for teller in self._tellers:
            said = teller(record)
            if said is not None:
                self._add(place, record, said)
                return

    def found(self) -> Iterator[Candidate]:
        """Return the faults."""
        for group in self._groups:
            if group.sure:
                yield Candidate(group.place, group.fault)

    def _add(self, place: int, record: Record, said: Said) -> None:
        group = None if said.fresh else self._open(record, said)
        if group is None:
            group = _Group(place, record, said.fault, said.sure)
            if len(self._groups) <= FAULTS_MAX:
                self._groups.append(group)
        else:
            group.fault = _joined(group.fault, said)
            group.sure = group.sure or said.sure
        self._name(group, said)

    def _open(self, record: Record, said: Said) -> _Group | None:
        for key in said.keys:
            group = self._named.get(key)
            if (
                group is not None
                and within(said.lasts_us, group.record, record)
                and not _apart(group.fault, said.fault)
            ):
                return group
        return None

    def _name(self, group: _Group, said: Said) -> None:
        for key in (said.keys[0], *said.also):
            self._named.pop(key, None)
            self._named[key] = group
        while len(self._named) > _KEYS_MAX:
            del self._named[next(iter(self._named))]


def _apart(one: KernelFault, other: KernelFault) -> bool:
    """Return whether two accounts are of different tasks."""
    return None not in (one.pid, other.pid) and one.pid != other.pid


def _joined(fault: KernelFault, said: Said) -> KernelFault:
    """Return a fault with what a later record adds; what is known stays."""
    more = said.fault
    added = {
        name: getattr(more, name)
        for name in _FIELDS
        if getattr(fault, name) in (None, "") and getattr(more, name) not in (None, "")
    }
    if said.decides:
        added["kind"] = more.kind
    return fault._replace(**added) if added else fault
