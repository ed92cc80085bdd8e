"""What network drivers say: links that go down, adapters that give up.

A number in ``(pid 41)`` is the kernel context a driver happened to run in, and nobody's
who is to blame. InfiniBand ports often go down without a word here; their counters in
sysfs tell of it.

Source: Linux drivers/net/ethernet (mlx4, mlx5, intel, broadcom), drivers/infiniband,
net/sched/sch_generic.c, drivers/net/bonding.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.hardware import pci_address
from dsup.facts.kernel import Record, told
from dsup.facts.kernel_groups import Said

_DRIVERS = (
    "mlx4_core|mlx4_en|mlx4_ib|mlx5_core|mlx5_ib|mlx5e|infiniband|bnxt_en|bnxt_re|i40e"
    "|ice|ixgbe|igb|igc|irdma|e1000e|tg3|be2net|hfi1|efa|ena|cxgb4|qede|qedr"
    "|bnx2|bnx2x|ixgbevf|iavf|vmxnet3|gve|mana|ionic|enic|sfc|hns3|qlcnic"
)
_BDF = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]"
_PORT = r"(?:mlx[45]_|hfi1_|bnxt_re|irdma|ib|bond)\d{1,4}"

_ABOUT: Final = re.compile(
    rf"(?:(?:{_DRIVERS}):? (?:(?:probe of )?{_BDF}:? )?(?:(?P<port>[\w.-]{{1,24}}):? )?"
    r"|mlx5_\w{1,40}:\d{1,6}:(?=\(pid \d)"
    rf"|{_BDF.replace('pci', 'bare')}:? |(?P<alone>{_PORT})[:(])(?P<rest>.{{1,500}})",
    re.DOTALL,
)
"""Examples: ``mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 41): Detected …``;
``infiniband mlx5_0: dump_cqe:272:(pid 41): dump error cqe``; ``mlx5_5: Port: 1 Link
DOWN``."""

_TROUBLE: Final = re.compile(
    r"health compromised|Fatal error|fatal error|health recovery flow aborted"
    r"|starting health recovery|health recovery failed|recovery failed"
    r"|[Dd]river is in error state|in error state|internal error"
    r"|timeout\. Will cause a leak|TX timeout|tx_timeout recovery"
    r"|[Tt]ransmit (?:queue \d{1,5} )?timed out"
    r"|Port module event\[error\]|Cable (?:error|unplugged)|High [Tt]emperature"
    r"|Detected insufficient power|assert_var\[|assert_exit_ptr|device lost"
    r"|(?:error|Error) cqe|failed reclaiming pages|FW fatal|firmware (?:fatal|hang)"
    r"|Internal error detected|command [^\n]{0,60}timed out|Initialization failed"
    r"|[Ll]ink (?:is )?(?:down|DOWN|Down)\b|Link DOWN|Link status definitely down"
    r"|PCI slot is unavailable|pci reads [^\n]{0,20}not working|PCIe? error"
    r"|Detected (?:Hardware|Tx) Unit Hang|CQ error on CQN|transmit timeout"
    r"|mlx5_(?:load|init)_one failed"
    r"|probe (?:of [0-9a-f:.]{7,16}|with driver \w{1,16}) failed with error -"
    r"|wait_func_handle_exec_timeout|Unhealthy|unhealthy|reset (?:request|needed)"
)
"""Told of an adapter after its name; what is told when a link comes up has none of
these words, nor has a command that the firmware refused."""

_INTERFACE: Final = re.compile(r"(?!mlx\d_[a-z])[a-z]{2,8}[a-z0-9_.]{0,4}\d[\w.]{0,12}")

_WATCHDOG: Final = re.compile(
    r"NETDEV WATCHDOG: (?:CPU: \d{1,6}: )?(?P<port>[\w.-]{1,16})?"
    r"(?: \([^)\n]{1,32}\))?:? ?transmit queue (?:\d{1,6} )?timed out"
)
_WATCHED: Final = re.compile(
    rf"[\w-]{{1,32}} (?:{_BDF}|[\w.:-]{{1,32}}) (?P<port>[\w.-]{{1,16}})"
    r"(?: \(\w{1,32}\))?: NETDEV WATCHDOG: CPU: \d{1,6}: transmit queue \d{1,6} timed"
)
"""Since 6.8 any driver's: ``r8125 0000:22:04.0 eth4: NETDEV WATCHDOG: CPU: 3: transmit
queue 0 timed out 5010 ms``."""
_BONDED: Final = re.compile(
    r"(?:bonding: )?(?P<bond>[\w.-]{1,16}): (?:\(slave (?P<slave>[\w.-]{1,16})\): )?"
    r"link status definitely down(?: for interface (?P<of>[\w.-]{1,16}))?"
)


def said(record: Record) -> Said | None:
    """Return what a record says of a network adapter or link."""
    text = record.text
    if found := _WATCHDOG.match(text) or _BONDED.match(text) or _WATCHED.match(text):
        return _named(record, found.groupdict())
    about = _ABOUT.match(text)
    # What stands where a name may is else the first word of the sentence.
    if not about or not _TROUBLE.search(text, 0, about.end("rest")):
        return None
    pci = pci_address(about["pci"] or about["bare"] or "") or None
    port = _name(about["port"]) or about["alone"] or ""
    fault = told("ib_link", record)._replace(device=port, pci=pci)
    return Said(fault, (("link", pci or port),))


def _named(record: Record, fields: dict[str, str | None]) -> Said:
    """Return what is said of an interface by its name."""
    names = ("port", "slave", "of", "bond")
    device = next((fields[name] for name in names if fields.get(name)), None) or ""
    pci = pci_address(fields.get("pci") or "") or None
    fault = told("ib_link", record)._replace(device=device, pci=pci)
    return Said(fault, (("link", pci or device),))


def _name(word: str | None) -> str:
    """Return the word after a driver's name if it is an interface's."""
    return word if word and _INTERFACE.fullmatch(word) else ""
