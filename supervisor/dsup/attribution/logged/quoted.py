"""What dsup itself has printed into a log: quoted, as anybody may have printed it."""

from __future__ import annotations

import math

from dsup.attribution.logged.signs import Reading
from dsup.attribution.wording import one_line, sentence
from dsup.core.exits import CAUSES
from dsup.core.verdict import Evidence, Verdict


def quoted(log: Reading) -> Verdict | None:
    """Repeat what dsup's own panel says.

    Symptom: the panel of a failed attempt. Source: the console of a job that dsup
    launched, which saw more than a log shows; but a rank can print the same lines, so
    they prove nothing.
    """
    if not log.attempt.panels:
        return None
    panel = log.attempt.panels[-1]
    cause = panel.cause if panel.cause in CAUSES else "unknown"
    return Verdict(
        log.attempt.number,
        cause,
        panel.ranks,
        "unknown" if cause == "unknown" else "likely",
        math.nan if panel.at_s is None else panel.at_s,
        sentence(f"The log says, in dsup's words: {panel.text}"),
        "quoted",
        (Evidence("log", one_line(panel.text), None, None, panel.file, panel.number),),
        signature=f"quoted {cause}",
    )
