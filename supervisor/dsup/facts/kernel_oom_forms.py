"""The records of an out-of-memory kill, as kernels from 2.6.18 to 6.18 write them.

Each pattern is tried at the start of a record. None can take more than linear time.

Source: Linux mm/oom_kill.c and mm/memcontrol.c.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.kernel_words import COMM

_FLAGS: Final = re.IGNORECASE | re.DOTALL
_PREFIX = (
    r"(?:(?P<scope>memory cgroup out of memory|out of memory)"
    r"(?: \(oom_kill_allocating_task\))?: )"
)
_TASK = r"(?P<pid>\d{1,10})(?:,? uid \d{1,10},?)? \((?P<comm>.{0,60})\)"

SUMMARY: Final = re.compile(r"oom-kill:constraint=CONSTRAINT_(?P<kind>[A-Z_]{1,20}),")
SUMMARY_END: Final = re.compile(r",pid=(?P<pid>\d{1,10}),uid=\d{1,10}\s*\Z")
"""Example: ``oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,
mems_allowed=0,oom_memcg=/job,task_memcg=/job/a,task=python,pid=41,uid=0``."""

CHOSEN: Final = re.compile(rf"{_PREFIX}kill process {_TASK} score ", _FLAGS)
"""Example: ``Out of memory: Kill process 41 (python) score 9 or sacrifice child``."""

KILLED: Final = re.compile(rf"{_PREFIX}?killed process {_TASK}(?=[ ,.]|\Z)", _FLAGS)
"""Examples: ``Memory cgroup out of memory: Killed process 41 (python) total-vm:…``;
after a ``CHOSEN`` line ``Killed process 41 (python), UID 0, total-vm:…``."""

EXITING: Final = re.compile(rf"{_PREFIX}oom victim {_TASK} is already exit", _FLAGS)
REAPED: Final = re.compile(
    r"oom_reaper: (?:reaped process |unable to reap pid:)"
    r"(?P<pid>\d{1,10}) \((?P<comm>.{0,60})\)",
    re.DOTALL,
)
ANON: Final = re.compile(r"[ ,]anon-rss:(\d{1,18})kB")

TRIGGER: Final = re.compile(rf"{COMM}{{1,15}} invoked oom-killer: ", re.DOTALL)
STACK: Final = re.compile(r"[ \[].{0,60}mem_cgroup_out_of_memory\+")
CALLER: Final = re.compile(
    r"\s{0,8}(?:\[<[0-9a-f]{1,16}>\]\s{1,8})?(?:"
    r"(?P<memcg>(?:\w{0,8}try_charge|charge_memcg|\w{0,16}mem_cgroup_(?:\w{0,24}_)?charge"
    r"|obj_cgroup_charge|mem_cgroup_oom)\w{0,24})"
    r"|__alloc_(?:pages|frozen_pages)\w{0,24})(?:\.\w{1,20}){0,3}\+0x"
)
"""Who asked for the memory, in the trigger's stack: the innermost of these tells whose
limit it was, as charging a cgroup and taking a page each end here. A function after
``?`` is what an older call left there, and tells nothing."""

NODE: Final = re.compile(r"Mem-Info:\s*\Z")
LIVED: Final = re.compile(
    r"Task in (?P<path>/.*) killed as a result of limit of (?P<limit>/.*)", re.DOTALL
)
USAGE: Final = re.compile(
    r"(?:memory|memory\+swap|kmem): usage (\d{1,18})kB, limit (\d{1,18})kB"
)
STATS: Final = re.compile(
    r"Memory cgroup stats for (?P<path>/.*?):(?: [a-z_]+:\d+KB|\s*\Z)", re.DOTALL
)
GROUP: Final = re.compile(
    r"Tasks in (?P<path>/.*) are going to be killed due to memory\.oom\.group set",
    re.DOTALL,
)
NOBODY: Final = re.compile(r"Out of memory and no killable processes")

PANIC: Final = re.compile(
    r"Kernel panic - not syncing: (?:Out of memory|System is deadlocked on memory)"
)
"""The kernel stops itself instead: told to by ``panic_on_oom``, or with nobody left."""
