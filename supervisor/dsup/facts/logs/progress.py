"""How far each rank had come: its last step, and its last output.

Symptom: ``step 12``, ``iteration: 12/400``, ``Epoch: [3][200/7922]``, a bar's
``12/400 [``. Steps of different words are not compared: the last one counts.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from dsup.facts.logs.complaint_words import CODE
from dsup.facts.logs.line import LogLine
from dsup.facts.logs.said import Progress
from dsup.facts.logs.shown import shown

NOBODY: Final = -1
_RANKS_MAX: Final = 20_000
_LAST_MAX: Final = 12
_LOOKED_AT_CHARS: Final = 400
_RISES_MAX: Final = 4

_STEP: Final = re.compile(
    r"(?i)\b(?:global_?step|step|iter(?:ation)?|batch|num_updates|it)s?"
    r"(?:\b|(?=\d))[\]'\" ]{0,3}[:=#\[ ]{0,4}(\d{1,12})\b"
)
_BAR: Final = re.compile(r"\| ?(\d{1,12})/\d{1,12} ?\[")
_BRACKETS: Final = re.compile(r"\[ ?(\d{1,9})/\d{1,9}\]")
_EPOCH: Final = re.compile(r"(?i)\bepoch\b[\]'\" ]{0,3}[:=#\[ ]{0,4}(\d{1,9})\b")
_DONE: Final = re.compile(
    r"(?i)\b(?:training|train|run|job|rank \d{1,6}:?|worker) (?:is |has )?"
    r"(?:done|finished|complete[d]?|ended)\b|^(?:done|finished)[.!]?$"
    r"|\bdone training\b|\bfinished training\b|`max_\w{1,40}=\d{1,12}` reached"
)
_OTHERS: Final = (
    "frame #",
    "Exception raised from",
    "srun: ",
    "slurmstepd: ",
    "CUDA kernel errors",
    "For debugging consider",
    "Compile with `TORCH_USE",
    "Last error:",
    "To avoid data inconsistency",
    "Some NCCL operations have",
    "wandb: ",
)
"""How lines begin that a launcher or a library prints while a job ends."""

_SPEAKER: Final = re.compile(r"\[?(?:[Rr]ank|[Rr]|proc)[ _:=-]?(\d{1,6})\]?[ :|]")
_DEVICE: Final = re.compile(r"\bcuda:(\d{1,4})\b")


class Progresses:
    """The signs of progress of all ranks.

    Attributes:
        ranks: by global rank; -1 for nobody in particular.
        locals: by ``(node, local rank)``, for those whose rank is not known yet.
    """

    def __init__(self) -> None:
        self.ranks: dict[int, Progress] = {}
        self.locals: dict[tuple[str, int], Progress] = {}
        self._last: deque[str] = deque(maxlen=_LAST_MAX)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines of output."""
        return tuple(shown(text) for text in self._last)

    def feed(self, line: LogLine) -> None:
        """Take in a line that tells of no failure."""
        text = line.text
        if not any(map(str.isalnum, text)) or text.lstrip().startswith(_OTHERS):
            return
        if "raise " in text and CODE.search(text[:_LOOKED_AT_CHARS]):
            return
        self._last.append(text[:1000])
        device = _DEVICE.search(text) if "cuda:" in text else None
        local = line.place.local_rank
        if device and line.place.rank is None:
            local = int(device[1])
        if line.place.rank is None and local is not None:
            key = (line.place.node, local)
            before = self.locals.get(key)
            if before or len(self.locals) < _RANKS_MAX:
                self.locals[key] = _after(before, line)
            return
        rank = NOBODY if line.place.rank is None else line.place.rank
        spoke = _SPEAKER.match(text) if rank == NOBODY else None
        rank = int(spoke[1]) if spoke else rank
        known = self.ranks.get(rank)
        if known or len(self.ranks) < _RANKS_MAX:
            self.ranks[rank] = _after(known, line)


def _after(before: Progress | None, line: LogLine) -> Progress:
    text = line.text[:2000]
    done = _DONE.search(text) is not None
    step = step_of(text)
    kept = before.step if before else None
    told = Progress(
        line.order,
        line.at_s,
        kept if step is None else step,
        done or bool(before and before.done),
        before.rises if before else (),
        before.file if before else "",
        before.began if before else None,
    )
    if step is None or (kept is not None and step <= kept):
        return told
    same = told.rises if told.file == line.file else ()
    rises = (*same, line.order)[-_RISES_MAX:]
    began = line.order if told.began is None else told.began
    return told._replace(rises=rises, file=line.file, began=began)


def step_of(text: str) -> int | None:
    """Return the number of the step that a line tells of; None for none."""
    for form in (_BAR, _STEP, _BRACKETS, _EPOCH):
        found = form.search(text)
        if found:
            return int(found[1])
    return None
