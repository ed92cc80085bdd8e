"""Who wrote a log, as the name of its file tells.

============================================  ==================================
``rank_3.log``, ``rank3/stderr``, ``r.3``     global rank 3: that is what people,
                                              DeepSpeed and Open MPI call rank
``local_rank_3.log``                          local rank 3
``…/attempt_0/3/stderr.log``                  local rank 3: torchrun's ``--log-dir``
``slurm-4711-3.out``, ``4711_3_log.err``      Slurm task 3: its rank, unless a
                                              launcher runs below ``srun``
``worker-0.log``, ``node1/…``, ``host-a.log``  a node, whatever its number: a pod
                                              ``worker-0`` is often rank 1, after
                                              ``master-0``
============================================  ==================================
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.logs.line import Place

_ATTEMPT: Final = re.compile(r"(?:^|/)attempt_(\d{1,6})/(\d{1,6})/")
_ATTEMPT_DIR: Final = re.compile(r"(?:^|[/_.-])attempt[_-]?(\d{1,6})(?:[/_.-]|$)")
_TORCHRUN: Final = re.compile(
    r"(?:^|/)([^/]{1,200}_[a-z0-9_]{8})/attempt_\d{1,6}/\d{1,6}/std(?:err|out)\.log"
)
_OWN_RUN: Final = re.compile(r"\d{8}T\d{6}Z-")
_PLAIN: Final = re.compile(
    r"(?:log|logs|std(?:out|err)|out|err|output|error|console|worker|train|training"
    r"|trainer|job|run|slurm|rank|r|node|host|global|local|txt|\d{1,20}|[a-z]\d{1,4})$"
)
"""Words that stand beside a rank in the name of a rank's log. A name with others, such
as ``oom-on-rank-1.log``, tells of a failure and not of who wrote it."""

_SPLIT: Final = re.compile(r"[._+-]+|(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")
_PARTS_MAX: Final = 3
_PART_MAX_CHARS: Final = 200

_TASK: Final = re.compile(
    r"(?:^|/)(?:slurm-\d{1,12}-(\d{1,6})\.|\d{1,12}_(\d{1,6})_log\.)"
)
_NODES: Final = frozenset(("node", "worker", "host", "master", "replica", "pod"))


def place_of(name: str) -> Place:
    """Return what the name of a file tells of who wrote it."""
    parts = [part[:_PART_MAX_CHARS] for part in name.lower().split("/")[-_PARTS_MAX:]]
    node = next(filter(None, map(_node, reversed(parts))), "")
    if found := _ATTEMPT.search(name):
        label = f"attempt_{found[1]}/{found[2]}"
        return Place(local_rank=int(found[2]), node=node, label=label)
    if found := _TASK.search(name):
        task = int(found[1] or found[2])
        return Place(rank=task, node=node, label=f"{task}:")
    for part in reversed(parts):
        if (told := _ranked(part)) is not None:
            return told._replace(node=node)
    return Place(node=node)


def is_torchruns(name: str) -> bool:
    """Return whether a file lies where torchrun's ``--log-dir`` puts it.

    ``RUN_x1y2z3ab/attempt_0/3/stderr.log``: Python's ``mkdtemp`` makes up the last
    eight characters. dsup's run directories begin with the time of their start.
    """
    found = _TORCHRUN.search(name)
    return found is not None and _OWN_RUN.match(found[1]) is None


def _ranked(part: str) -> Place | None:
    words = [word for word in _SPLIT.split(part) if word]
    if words.count("rank") + words.count("r") != 1:
        return None
    at = words.index("rank" if "rank" in words else "r")
    number = "".join(words[at + 1 : at + 2])
    others = words[:at] + words[at + 2 :]
    if not number.isdigit() or not all(map(_PLAIN.match, others)):
        return None
    if "local" in words[:at] or "localrank" in words:
        return Place(local_rank=int(number), label=part)
    return Place(rank=int(number))


def _node(part: str) -> str:
    """Return the node that a part of a path names: its word and number as printed."""
    words = [word for word in _SPLIT.split(part) if word]
    at = next((i for i, word in enumerate(words) if word in _NODES), len(words))
    number = "".join(words[at + 1 : at + 2])
    if not number.isdigit() or not all(map(_PLAIN.match, words[:at] + words[at + 2 :])):
        return ""
    return f"{words[at]}-{number}"


def attempt_of(name: str) -> int | None:
    """Return the attempt that the name of a file tells; None where it tells none."""
    found = _ATTEMPT_DIR.search(name)
    return int(found[1]) if found else None
