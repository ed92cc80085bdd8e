"""Lines in which torch itself says which ranks did not come. Pure.

Source: ProcessGroupGloo.cpp's and ProcessGroupNCCL's monitored barrier, TraceUtils.h
(desync report), torch/distributed/flight_recorder (analyzer).
"""

from __future__ import annotations

import re
from typing import Final

_LIST: Final = r"[\[{(]? ?(\d{1,6}(?:, ?\d{1,6}){0,1000})"
_FORMS: Final = (
    re.compile(r"[Rr]anks? " + _LIST + r"[\]})]? failed to pass monitoredBarrier"),
    re.compile(r"[Pp]lease check rank " + _LIST + r" logs\b"),
    re.compile(r"[Cc]ulprit ranks?:? " + _LIST),
    re.compile(r"[Mm]issing ranks?(?: are)?:? " + _LIST),
    re.compile(r"[Rr]anks? " + _LIST + r"[\]})]? (?:haven't|have not|never) joined"),
    re.compile(r"\[" + _LIST + r"\] finished collective #\d{1,12}, but didn't join"),
    re.compile(r"ranks? \[" + _LIST + r"\] are the lagging ranks"),
)
_WORDS: Final = (
    "onitoredBarrier",
    "faulty rank",
    "ulprit rank",
    "issing rank",
    "joined",
    "didn't join",
    "lagging",
)
_ACCUSED_MAX: Final = 64


def accusations(text: str) -> tuple[int, ...] | None:
    """Return the ranks that a line calls missing or faulty; None if it names none."""
    if not any(word in text for word in _WORDS):
        return None
    for form in _FORMS:
        found = form.search(text)
        if found:
            listed = found[1].split(",")[:_ACCUSED_MAX]
            return tuple(int(part) for part in listed)
    return None
