"""Single lines of tracebacks, as they stand in the logs of others. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dsup.facts.tracebacks import Frame, frame_of, named_in, rich_frame, style_of

TEXT_MAX: Final = 2000
MORE_MAX: Final = 1500
FRAMES_MAX: Final = 40

_HEADER: Final = "Traceback (most recent call last)"
_NESTED: Final = "Original " + _HEADER
_FILE: Final = ' File "'
_CHILD: Final = re.compile(
    r"-- Process (\d{1,6}) terminated with the following error:?"
)
_RAY: Final = re.compile(
    r"ray::[\w.:\[\]]{1,200}\(\)(?:\[\d{1,2}m)? ?"
    r"\(pid=(\d{1,9}), ip=([\d.a-f:]{1,45})"
)
_RAY_TYPE: Final = re.compile(r"RayTaskError\(([A-Za-z_]\w{0,100})\)")
_OF_RANK: Final = re.compile(r"\(most recent call last\): \(RANK (\d{1,6})\)$")
_RAISE: Final = re.compile(r"raise ([\w.]{1,200})")
_GARBLED: Final = re.compile(
    r"([A-Z]\w{0,100}?(?:Error|Exception))[\w.]{0,200}:{1,2} ?(.*)"
)
_BORDER: Final = "╭─"
_ENDINGS: Final = (
    "Error",
    "Exception",
    "Interrupt",
    "Exit",
    "Iteration",
    "Failure",
    "Fault",
    "Timeout",
    "Group",
    "Closed",
    "Died",
    "Killed",
    "Traceback",
)
"""How the names of exceptions' types end; others count after a ``raise`` of theirs."""


_ALONE: Final = ("Error", "Exception", "Interrupt")
"""How they end where no traceback stands before them."""


class Head(NamedTuple):
    """How a traceback begins.

    Attributes:
        style: how it is drawn.
        nested: it stands in the text of the exception before it.
        child: index of the spawned process that it is of; None for this process.
        rank: of the process that it is of, where the head tells.
        begins: frames follow; False for a line that tells of a process only.
    """

    style: str
    nested: bool = False
    child: int | None = None
    begins: bool = True
    rank: int | None = None

    def inside(self, text: str) -> str:
        """Return a line without what is drawn around it."""
        stripped = text.strip()
        if self.style == "group":
            return stripped.removeprefix("|").removeprefix(" ")
        if self.style == "report":
            return text.removeprefix("  ")
        if self.style == "rich" and stripped[:1] in "│╭╰❱":
            return ""
        # One blank is what a launcher's prefix has left: code is indented by four.
        return text[1:] if text[:1] == " " != text[1:2] else text


class Told(NamedTuple):
    """Process of a Ray worker that a line names."""

    pid: int
    node: str
    type: str = ""


def head_of(text: str, before: str) -> Head | None:
    """Return how the traceback begins that a line is the head of; None for none."""
    child = _CHILD.search(text) if "-- Process " in text else None
    if child:
        return Head("plain", child=int(child[1]), begins=False)
    if _HEADER not in text:
        return None
    stripped = text.strip()
    of_rank = _OF_RANK.search(stripped)
    if of_rank:
        return Head("plain", rank=int(of_rank[1]))
    if _NESTED in text:
        return Head("plain", nested=True)
    if stripped.startswith("traceback : "):
        return Head("report")
    if stripped.startswith(_BORDER) or stripped.strip("─ ╮") == _HEADER:
        return Head("rich")
    style = style_of(text)
    if style:
        return Head(style)
    # A bar or another rank's words stand before it.
    glued = stripped.endswith(_HEADER + ":") and not before.startswith("Exception ign")
    return Head("plain") if glued else None


def frame_in(text: str, style: str) -> Frame | None:
    """Return the place that a line of a traceback names; None if it is no such line.

    Another rank's words may stand before it, and loguru's mark.
    """
    at = text.find(_FILE)
    if at >= 0:
        while at > 0 and text[at - 1] == " ":
            at -= 1
        return frame_of(text[at:]) or frame_of(text[text.find(_FILE) :])
    if style == "rich":
        return rich_frame(text.strip(" │"))
    return None


def told_by_ray(text: str) -> Told | None:
    """Return the worker whose exception follows a line of Ray's; None for none."""
    found = _RAY.search(text) if "ray::" in text else None
    if not found:
        return None
    kind = _RAY_TYPE.search(text)
    return Told(int(found[1]), found[2], kind[1] if kind else "")


def known(text: str, code: str) -> tuple[str, str] | None:
    """Return type and text of the exception that a line names; None for none.

    Args:
        text: the line.
        code: the line of code before it: what it raises is an exception's type.
    """
    named = named_in(text)
    if named is None:
        return None
    half = len(named[0]) // 2
    if half and named[0][:half] == named[0][half:]:  # two ranks wrote it at once
        named = (named[0][:half], named[1])
    last = named[0].rpartition(".")[2]
    if last.endswith(_ENDINGS if code else _ALONE) and (code or last not in _ALONE):
        return named
    raised = _RAISE.search(code)
    return named if raised and raised[1].rpartition(".")[2] == last else None


def fragment(text: str) -> tuple[str, str] | None:
    """Return what is left of an exception whose first line is cut; its type is empty.

    Symptom: torch's ``load_state_dict`` lists one parameter a line, by the hundred;
    DDP's error about unused parameters is a page long.
    """
    stripped = text.strip()
    told = stripped.startswith("size mismatch for ") and "copying a param" in stripped
    told = told or stripped.startswith("Expected to have finished reduction in the")
    return ("", stripped) if told else None


def garbled(text: str, code: str) -> tuple[str, str] | None:
    """Return type and text of an exception whose line two processes wrote at once.

    Examples: ``: it did not fit`` after ``raise ValueError(``, where the type was
    written into another line; ``aa.bbaa.bb.OddError.: OddErrorit did not fit``.
    """
    raised = _RAISE.search(code)
    if text.startswith(": ") and raised:
        return raised[1], text[2:]
    head = text[:400].partition(" ")[0]
    if not head.endswith(":") or ("Error" not in head and "Exception" not in head):
        return None
    found = _GARBLED.search(text[:400])
    return (found[1], text[len(head) :].strip()) if found else None
