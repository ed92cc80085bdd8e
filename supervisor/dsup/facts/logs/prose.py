"""Lines that speak of failures without telling of one.

Symptom: advice (``hint:``, ``if you see …``), a word about an earlier run, a sample of
the data, the name of a test. Such a line quotes the very words of a failure.
"""

from __future__ import annotations

import re
from typing import Final

_LOOKED_AT_CHARS: Final = 400

_BEGIN: Final = re.compile(
    r"(?i)[^a-z]{0,8}(?:hint|note|tip|docs?|faq|example|readme|sample)s?:"
    r"|[^a-z]{0,8}(?:if|in case|when) (?:you|rank|a rank|this|the) "
)
_QUOTING: Final = (
    "if you see",
    "if you get",
    "from last run",
    "from the last run",
    "from a previous run",
    "of the last run",
    "of the previous job",
    "of the previous run",
    " docs: ",
    "dataset sample",
    "sample: '",
    'sample: "',
    "loading readme",
    "::test_",
)


def is_prose(text: str) -> bool:
    """Return whether a line speaks of failures only in general."""
    begin = text[:_LOOKED_AT_CHARS]
    if _BEGIN.match(begin):
        return True
    lowered = begin.lower()
    return any(words in lowered for words in _QUOTING)
