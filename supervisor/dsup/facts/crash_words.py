"""What a process writes when it crashes: faulthandler, C++ run time, C library.

Source: CPython's Modules/faulthandler.c, libstdc++'s vterminate.cc, glibc's malloc.c,
assert.c and stack_chk_fail.c, glog's signalhandler.cc.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.lines import Line
from dsup.facts.tracebacks import Frame, frame_of

CRASH_MAX_CHARS: Final = 600

_FATAL: Final = "Fatal Python error: "
_TERMINATE: Final = "terminate called "
_SIGNALS: Final = (
    "Segmentation fault",
    "Aborted",
    "Bus error",
    "Illegal instruction",
    "Floating point exception",
    "Floating-point exception",
)
_REASONS: Final = (
    "double free or corruption",
    "corrupted double-linked list",
    "corrupted size vs. prev_size",
    "free(): ",
    "malloc(): ",
    "malloc_consolidate(): ",
    "munmap_chunk(): ",
    "realloc(): ",
    "*** stack smashing detected ***",
    "*** buffer overflow detected ***",
    "*** Error in `",
    "*** SIG",
    "Fatal glibc error: ",
    "libc++abi: terminating ",
    "ERROR: Unexpected bus error encountered in worker",
    "ERROR: Unexpected segmentation fault encountered in worker",
)
"""How such a line begins; the last two are DataLoader workers'."""

_SHELL: Final = re.compile(
    r"[^ ]{1,255}: (?:line )?\d{1,9}: +\d{1,9} (" + "|".join(_SIGNALS) + r")\b"
)
"""Example: ``run.sh: line 3: 19106 Segmentation fault      python train.py``."""

_CHECK: Final = re.compile(r"F\d{4,8} \d\d:\d\d:\d\d[^\]]{0,200}\] (.+)")
"""Example: ``F0512 09:14:02.184216 4711 mapper.cc:88] Check failed: a == b``."""

_REPORT: Final = (
    "Python runtime state:",
    "Thread 0x",
    "<no Python frame>",
    "  ",
    "Extension modules:",
)
"""What else stands in a report of faulthandler's; it says nothing to a reader."""

_CURRENT: Final = ("Current thread 0x", "Stack (most recent call first)")


class Crashes:
    """The last crash that a stream tells of.

    Attributes:
        said: what it says; empty for none.
        frame: where it was, of the user's code if possible.
        at: number of the line that says so.
    """

    def __init__(self) -> None:
        self.said = ""
        self.frame: Frame | None = None
        self.at = 0
        self._thrown = False
        self._in_report = False
        self._current = False

    def feed(self, line: Line) -> bool | None:
        """Take in a line.

        Returns:
            Whether it says something to a reader; None if it is of no crash.
        """
        if self._thrown:
            self._thrown = False
            if self._what(line.text):
                return True
        reason = _reason(line.text)
        if reason:
            return self._begin(line, reason)
        if self._in_report:
            self._in_report = self._report(line.text)
            return False if self._in_report else None
        return None

    def _begin(self, line: Line, reason: str) -> bool:
        """Take in what a crash is called; return whether that says something new."""
        fatal = line.text.startswith(_FATAL)
        echo = reason in _SIGNALS and not fatal
        if echo and self.said:  # a shell's word for the crash of its child
            return False
        # The handler of SIGABRT speaks last; why it was raised has just been said.
        if not (fatal and reason == "Aborted" and self.said):
            self.said = reason[:CRASH_MAX_CHARS]
        self.frame, self.at = None, line.number
        self._in_report, self._current = fatal, False
        self._thrown = reason.startswith(_TERMINATE)
        return True

    def _what(self, text: str) -> bool:
        what = text.strip().removeprefix("what():").strip()
        found = text.lstrip().startswith("what():")
        if found:
            self.said = f"{self.said}: {what}"[:CRASH_MAX_CHARS]
        return found

    def _report(self, text: str) -> bool:
        """Take in a line after ``Fatal Python error``; return whether it belongs."""
        if text.startswith(_CURRENT):
            self._current = True
            return True
        if text.startswith("Thread 0x"):
            self._current = False
        found = frame_of(text)
        if found and self._current and not (self.frame and self.frame.user):
            # Innermost first: the first of the user's counts.
            self.frame = found if found.user or self.frame is None else self.frame
        return not text or text.startswith(_REPORT)


def _reason(text: str) -> str:
    """Return what a line says of a crash; empty if nothing."""
    if text.startswith(_FATAL):
        fatal = text.removeprefix(_FATAL)
        return fatal if fatal in _SIGNALS else text
    if text.startswith(_REASONS):
        return text
    word = text.removesuffix(" (core dumped)")
    if word in _SIGNALS:
        return word
    if _TERMINATE in text:  # a bar may stand before it
        return text[text.index(_TERMINATE) :]
    # The quotes tell it from an assertion on a device, of which the host lives on.
    if "Assertion `" in text and text.endswith("' failed."):
        return text
    shell, check = _SHELL.match(text), _CHECK.match(text)
    return shell[1] if shell else check[1] if check else ""
