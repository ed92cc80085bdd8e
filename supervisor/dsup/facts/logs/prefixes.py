"""Prefixes of log lines: who wrote a line, when, and by which logger.

Each is taken off the front of the line, one after the other, as launchers, collectors
and viewers put them there. Forms that anybody may print, such as ``3: ``, count only
where what follows is known, or where the lines around have them too.

Sources: the launchers' own code (torchrun's ``tee``, ``srun --label``, Open MPI's and
MPICH's output prefixes, Horovod, pdsh, Ray, Determined, Composer, Lightning, submitit),
glog, Python's logging, rich, loguru; public failure reports.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs import stamps
from dsup.facts.logs.glued import has_source_column
from dsup.facts.logs.head import Head
from dsup.facts.logs.prefix_rules import Rules, rules_of

PREFIXES_MAX: Final = 10
_PID_MAX: Final = 4_194_304
"""The kernel's own limit: what is more is a thread's address or id."""

_LEVEL: Final = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_SOURCE: Final = r"[\w./<>-]{1,300}:\d{1,6}"

KNOWN: Final = re.compile(
    r"\[rank\d{1,6}\]:|\[rank: \d|Traceback \(most recent|  File \"|terminate called"
    r"|\[[EWIFCDV]\d{0,4} |[EWIFCDV]\d{4} \d\d:|\[?\d{4}-\d\d-\d\d[ T]\d\d:"
    rf"|(?:{_LEVEL}): ?[a-z]|\[default\d|\[\d{{1,5}}(?:,\d{{1,6}})?\]<std"
    r"|[\w.-]{1,128}:\d{1,9}:\d{1,9} \["
    r"|(?:\w{1,64}\.){0,6}\w{0,64}(?:Error|Exception|Interrupt)\b"
    r"|slurmstepd: |srun: |Exception raised from|frame #\d|\[\w[\w.-]{0,64}:\d+\]"
    r"|Fatal Python error|\*\*\*\* rank "
)
"""How lines begin that need no neighbours to be known as log lines."""

RICH: Final = re.compile(rf"\[(?:\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d\] (?:{_LEVEL}) {{2}}")
"""A line of rich's log handler: it prints a time once for all lines of that second."""


def _torch(found: re.Match[str], head: Head) -> bool:
    head.worker(int(found[1]))
    return True


def _own(found: re.Match[str], head: Head) -> bool:
    head.place = head.place._replace(rank=int(found[1]))
    return True


def _hccl(found: re.Match[str], head: Head) -> bool:
    head.process(found[1])
    head.place = head.place._replace(rank=int(found[2]))
    return True


def _named(found: re.Match[str], head: Head) -> bool:
    head.launcher(found[1] + found[2], local=int(found[2]))
    return True


def _node_local(found: re.Match[str], head: Head) -> bool:
    head.launcher(f"{found[1]}:{found[2]}", local=int(found[2]))
    head.place = head.place._replace(node=found[1])
    return True


def _mpi(found: re.Match[str], head: Head) -> bool:
    job, rank = found[1] or "", found[2]
    head.launcher(f"{job}{rank}", rank=int(rank))
    return True


def _node_pid(found: re.Match[str], head: Head) -> bool:
    head.process(found[2], found[1])
    return True


def _c10(found: re.Match[str], head: Head) -> bool:
    if found[2] and (at_s := stamps.glog(found[2], found[3], found[4])) is not None:
        head.time(at_s)
    head.level, head.logger = found[1], found[5]
    return True


def _glog(found: re.Match[str], head: Head) -> bool:
    at_s = stamps.glog(found[2], found[3], found[4])
    if at_s is None:
        return False
    head.time(at_s)
    head.level, head.logger = found[1], found[6]
    # A C++ logger prints its thread there, a Python logger its process.
    if ".py:" in found[6] and int(found[5]) <= _PID_MAX:
        head.process(found[5])
    return True


def _level(found: re.Match[str], head: Head) -> bool:
    head.level = found[1][0]
    return True


def _level_logger(found: re.Match[str], head: Head) -> bool:
    head.level, head.logger = found[1][0], found[2]
    return True


def _logger_level(found: re.Match[str], head: Head) -> bool:
    if not head.is_log:
        return False
    head.logger, head.level = found[1], found[2][0]
    return True


def _logger(found: re.Match[str], head: Head) -> bool:
    if not head.is_log or head.logger:
        return False
    head.logger = found[1]
    return True


def _source(found: re.Match[str], head: Head) -> bool:
    head.logger = found[1]
    return True


def _ray_log(found: re.Match[str], head: Head) -> bool:
    if told := stamps.stamp(f"[{found[1]}]"):
        head.time(told.at_s, zoned=told.zoned)
    head.level, head.logger = found[2], found[4]
    head.process(found[3])
    return True


def _ray_daemon(found: re.Match[str], head: Head) -> bool:
    head.launcher(found[1])
    return True


def _determined(found: re.Match[str], head: Head) -> bool:
    if not head.is_log:
        return False
    head.launcher(found[1], rank=int(found[2]) if found[2] else None)
    return True


def _pod(found: re.Match[str], head: Head) -> bool:
    head.launcher(found[1])
    head.place = head.place._replace(node=found[1])
    return True


def _ray(found: re.Match[str], head: Head) -> bool:
    head.launcher(f"{found[1]}pid={found[2]}")
    head.process(found[2], found[3] or "")
    return True


def _composer(found: re.Match[str], head: Head) -> bool:
    head.launcher(found[1], local=int(found[2]))
    return True


def _composer_log(found: re.Match[str], head: Head) -> bool:
    if not head.is_log:
        return False
    head.place = head.place._replace(rank=int(found[1]), pid=int(found[2]))
    head.level, head.logger = found[3][0], found[4]
    return True


def _submitit(found: re.Match[str], head: Head) -> bool:
    if told := stamps.stamp(f"[{found[2]}]"):
        head.time(told.at_s, zoned=told.zoned)
    head.level, head.logger = found[1][0], "submitit"
    return True


def _syslog(found: re.Match[str], head: Head) -> bool:
    if head.at_s is None:
        return False
    # The pid is that of the process which opened the stream: all its ranks have it.
    head.logger = found[2]
    head.place = head.place._replace(node=found[1])
    return True


def _rich(found: re.Match[str], head: Head) -> bool:
    if found[1] and not (head.is_rich or has_source_column(found.string)):
        return False
    head.level, head.column = found[2][0], found.end()
    return True


def _nothing(_found: re.Match[str], _head: Head) -> bool:
    return True


_BRACKET: Final = rules_of(
    (r"\[rank: (\d{1,6})\] ", _torch),
    (
        (
            r"\[([EWIFCDV])(?:(\d{1,2})(\d\d) (\d\d:\d\d:\d\d\.\d{1,9}))? "
            r"([\w./-]{1,200}\.\w{1,4}:\d{1,6})\](?: |$)"
        ),
        _c10,
    ),
    (r"\[([A-Za-z_][\w.-]{0,40}?)(\d{1,4})\]:", _named),
    (r"\[([A-Za-z][\w.-]{0,64}):(\d{1,3})\]:", _node_local),
    (r"\[(?:[\w.-]{1,80}@)?(\d{1,9},)?(\d{1,6})\]<std(?:err|out|diag)>:", _mpi),
    (
        r"\[([\w.-]{1,64}):(\d{1,7})\] (?=\*\*\* |Signal|Failing|\[ ?\d{1,3}\])",
        _node_pid,
    ),
    (r"\[([\w.-]{1,64}):(\d{1,7}) {0,6}:\d{1,7}:\d{1,7}\] ", _node_pid),
    (rf"\[({_LEVEL})\|([\w./-]{{1,120}}:\d{{1,6}})\] ", _level_logger),
    (r"\[[Rr][Aa][Nn][Kk][ :=_-]?(\d{1,6})\] (?=\[?\d{4}-\d\d-)", _own),
    (rf"\[({_LEVEL})\](?:: | {{1,8}}|$)", _level),
    (rf"\[([\w./-]{{1,120}})\]\[({_LEVEL})\] ?(?:- )?", _logger_level),
    (r"\[([\w./-]{1,120}\.\w{1,4}:\d{1,6}(?::[\w<>.]{1,64})?)\] {0,9}", _logger),
    (
        (
            r"\[(\d{4}-\d\d-\d\d [\d:,]{8,15}) ([A-Z]) (\d{1,7}) \d{1,10}\] {1,4}"
            r"(?:\(\w{1,40}\) )?([\w./-]{1,100}\.cc:\d{1,6}): "
        ),
        _ray_log,
    ),
    (r"\[pod/([\w./-]{1,200})\] ", _pod),
)
_PARENTHESIS: Final = rules_of(
    (r"\(PID:(\d{1,7}), Device:-?\d{1,4}, RankID:(\d{1,6})\) ", _hccl),
    (r"\((raylet|autoscaler|gcs_server|pid=gcs_server)\)(?: |$)", _ray_daemon),
    (
        (
            r"\(([A-Za-z_][\w.:<>()-]{0,80} |)pid=(\d{1,9})(?:, ip=([\w.:-]{1,64}))?\)"
            r"(?: |$)"
        ),
        _ray,
    ),
)
_CUT_C10: Final = (r" ?([A-Za-z]\w{0,64}\.(?:cpp|cu|h):\d{1,6})\] ", _source)
"""What is left of a c10 line's prefix where a copy begins behind it."""

_LETTER: Final = rules_of(
    _CUT_C10,
    (r"(?:stderr|stdout):(?: |$)", _nothing),
    (
        (
            r"([EWIFCDV])(\d\d)(\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,9})?) {1,6}(\d{1,20}) "
            rf"({_SOURCE})\](?: |$)"
        ),
        _glog,
    ),
    (rf"({_LEVEL}):([A-Za-z_][\w.]{{0,120}}):", _level_logger),
    (rf"({_LEVEL}): ([A-Za-z_]\w{{0,64}}(?:\.\w{{1,64}}){{1,8}}):", _level_logger),
    (rf"submitit ({_LEVEL}) \((\d{{4}}-[\d :,-]{{12,22}})\) - ", _submitit),
    (
        r"rank(\d{1,6})\[(\d{1,7})\]\[\w{1,64}\]: (\w{1,16}): ([\w.]{1,120}): ",
        _composer_log,
    ),
    (
        rf"({_LEVEL}) {{0,9}}\| ([\w.<>]{{1,120}}:[\w.<>]{{1,64}}:\d{{1,6}}) - ",
        _level_logger,
    ),
    (rf"()({_LEVEL}) {{2,9}}(?=[^ |])", _rich),
    (rf"([A-Za-z_][\w./-]{{0,120}}): \[({_LEVEL})\] ", _logger_level),
    (r"([a-z]\w{0,40}): (?=failed \(|\[\w{1,40}\] )", _logger),
    (r"([\w.-]{1,64}) ([\w.-]{1,64})\[(\d{1,7})\]: ", _syslog),
)
_WORD: Final = rules_of(
    (r"([\w.-]{1,128}):(\d{1,9}):\d{1,9} (?=\[-?\d{1,9}\] |NCCL )", _node_pid),
    (r"([\w-]{1,80}) (?:\[rank=(\d{1,6})\] )?\|\| ?", _determined),
    (r"()(?:stdout|stderr) [FP](?: |$)", _nothing),
)
_OTHER: Final = rules_of(
    _CUT_C10,
    (r"\^(?:[Z\\]|C(?:$|(?=\^)|.{0,200}[$#%] ?$))", _nothing),
    (rf"( {{8,30}})({_LEVEL}) {{1,9}}(?=\S)", _rich),
    (rf"\| ({_LEVEL}) {{0,9}}\| ", _level),
    (rf" {{2,4}}({_LEVEL}) (\w{{1,64}}\.py:\d{{1,6}}) -- ", _level_logger),
    (r" {0,8}\| (?=\d{4}-\d\d-\d\dT)", _nothing),
    (rf"- ([\w.-]{{1,120}}) - ({_LEVEL}) - ", _logger_level),
    (rf"- ({_LEVEL}) - ", _level),
)
_AFTER_STAMP: Final = rules_of(
    (rf"({_LEVEL})(?:: | )", _level),
    (r"\[[\w.-]{1,64}\](?=\[)", _nothing),
    (r">> ", _nothing),
    (r"##\[\w{1,16}\] ?", _nothing),
)


def peel(text: str, head: Head) -> str:
    """Take one prefix off a text; the same text comes back where there is none."""
    if not text:
        return text
    for rules in _begun_by(text[0]):
        if (rest := rules.peel(text, head)) is not None:
            return rest
    if told := _stamp(text):
        head.time(told.at_s, zoned=told.zoned)
        return text[told.end :]
    rest = _AFTER_STAMP.peel(text, head) if head.at_s is not None else None
    return text if rest is None else rest


def _stamp(text: str) -> stamps.Stamp | None:
    first = text[0]
    if not (first.isdigit() or first == "[" or first in "MTWFSJAOND"):
        return None
    return stamps.stamp(text)


def _begun_by(first: str) -> tuple[Rules, ...]:
    if first == "[":
        return (_BRACKET,)
    if first == "(":
        return (_PARENTHESIS,)
    if first.isdigit():
        return (_WORD,)
    if first.isalpha():
        return _LETTER, _WORD
    return (_OTHER,)
