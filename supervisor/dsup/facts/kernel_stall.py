"""What the kernel's watchdogs say of tasks and processors that do not move on.

In virtual machines a stalled processor is often just one that the host took away: it
tells that the node stood still, not why a process died.

Source: Linux kernel/hung_task.c, kernel/watchdog*.c, kernel/rcu, kernel/workqueue.c,
arch/powerpc/kernel/watchdog.c, and Lustre's lnet (service threads).
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.kernel import Record, told
from dsup.facts.kernel_groups import SECOND_US, Said
from dsup.facts.kernel_words import COMM

_STILL_US: Final = 900 * SECOND_US
"""The same task is told of again every two minutes or so, and is one fault."""

# The name of a worker holds colons and slashes.
_HUNG: Final = re.compile(
    rf"(?:INFO: )?task (?P<comm>{COMM}{{1,15}}):(?P<pid>\d{{1,10}}) blocked"
    r"(?: in [^\n]{1,40}?)?(?: for more than|(?: for)?(?: more)?\s*\Z)",
    re.DOTALL,
)
"""Example: ``INFO: task kworker/u8:1:41 blocked for more than 122 seconds.``"""

_SERVICE: Final = re.compile(
    r"(?:LNet: )?(?:Service thread pid|.{1,60}?: [Ss]ervice thread pid) "
    r"(?P<pid>\d{1,10}) was inactive "
)
_SERVICE_TASK: Final = re.compile(
    r"Pid: (?P<pid>\d{1,10}), comm: (?P<comm>[^\n]{1,60})"
)
_VERSION: Final = re.compile(r"\s+(?:Not tainted|Tainted: |\d+\.\d+\.\d+)")

_SOFT: Final = re.compile(
    r"(?:NMI )?(?:watchdog: )?BUG: soft lockup (?:- CPU#(?P<cpu>\d{1,6}) stuck for "
    r"\d{1,9}s?!?(?: \[(?P<comm>.{1,60}):(?P<pid>\d{1,10})\])?|detected on CPU)",
    re.DOTALL,
)
"""Example: ``watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [python:41]``."""

_HARD: Final = re.compile(
    r"(?:NMI )?(?:[Ww]atchdog:? )?"
    r"(?:(?:CPU\d{1,6}: )?Watchdog detected hard LOCKUP on cpu ?\d"
    r"|(?:CPU[: ]\d{1,6} )?(?:self-detected )?[Hh]ard LOCKUP"
    r"|CPU \d{1,6} detected hard LOCKUP|BUG: workqueue lockup)"
)
_RCU: Final = re.compile(
    r"(?:rcu: )?INFO: rcu\w{0,20} "
    r"(?:self-detected (?:expedited )?stall|detected (?:expedited )?stalls?)"
)


def said(record: Record) -> Said | None:
    """Return what a record says of something that does not move on."""
    text = record.text
    if found := _HUNG.match(text):
        return _hung(record, found)
    if found := _SOFT.match(text):
        return _soft(record, found)
    if _HARD.match(text):
        return Said(told("lockup", record), (("hard lockup",),))
    if _RCU.match(text):
        return Said(told("lockup", record), (("rcu",),), lasts_us=_STILL_US)
    if found := _SERVICE.match(text):
        pid = int(found["pid"])
        fault = told("hung_task", record)._replace(pid=pid)
        return Said(fault, (("hung", pid),), lasts_us=_STILL_US)
    if found := _SERVICE_TASK.match(text):
        return _service_task(record, found)
    return None


def _hung(record: Record, found: re.Match[str]) -> Said:
    pid = int(found["pid"])
    fault = told("hung_task", record)._replace(pid=pid, comm=found["comm"])
    return Said(fault, (("hung", pid, found["comm"]),), lasts_us=_STILL_US)


def _service_task(record: Record, found: re.Match[str]) -> Said:
    pid = int(found["pid"])
    comm = _VERSION.split(found["comm"], maxsplit=1)[0].rstrip()
    fault = told("hung_task", record)._replace(pid=pid, comm=comm or None)
    return Said(fault, (("hung", pid),), sure=False)


def _soft(record: Record, found: re.Match[str]) -> Said:
    pid = int(found["pid"]) if found["pid"] else None
    fault = told("lockup", record)._replace(pid=pid, comm=found["comm"])
    key = ("soft lockup", found["cpu"], pid)
    return Said(fault, (key,), lasts_us=_STILL_US)
