"""Logs told in words: each builder adds a statement, in the order of the lines."""

import math
from typing import Any

import pytest

from dsup.attribution.logged.judge import judge_log
from dsup.facts.logs.line import Place
from dsup.facts.logs.said import (
    Collective,
    Complaint,
    End,
    Error,
    LoggedAttempt,
    Progress,
    Stop,
)

REMOTE = (
    "NCCL error: remote process exited or there was a network error, NCCL version 2.19"
)


class Log:
    """The log of a failed attempt; a number as a place is a global rank."""

    def __init__(self, **fields):
        self.facts = LoggedAttempt(0, **fields)
        self._order = 0

    def _told(self, name, make, at, place, **fields):
        self._order += 1
        known: Any = {
            "file": "job.log",
            "number": self._order,
            "order": self._order,
            "at_s": at,
            **fields,
        }
        if place is not self:
            known["place"] = placed(place)
        facts = (*getattr(self.facts, name), make(**known))
        more: Any = {name: facts}
        self.facts = self.facts._replace(**more)
        return self

    def raised(self, place, type_name, text="", at=None, **fields):
        """Let a rank print a traceback that ends with this exception."""
        known = {"type": type_name, "text": text, **fields}
        return self._told("errors", Error, at, place, **known)

    def ended(self, place, status, source="report", at=None, **fields):
        """Let the launcher tell of a worker's end."""
        text = f"exitcode : {status}"
        known = {"status": status, "source": source, "text": text, **fields}
        return self._told("ends", End, at, place, **known)

    def timed_out(self, *ranks, seq=812, op="ALLREDUCE", at=None, **fields):
        """Let the watchdogs of ranks report a time-out."""
        for rank in ranks:
            text = f"Watchdog caught collective operation timeout: SeqNum={seq} {op}"
            known = {"kind": "timeout", "text": text, "seq": seq, "op": op, **fields}
            self._told("collectives", Collective, at, rank, **known)
        return self

    def called(self, rank, op, seq=41, kind="mismatch", **fields):
        """Let a rank be shown in a collective."""
        known = {"kind": kind, "text": f"{op} {seq}", "seq": seq, "op": op, **fields}
        return self._told("collectives", Collective, None, rank, **known)

    def missed(self, rank, *missing):
        """Let a monitored barrier on a rank name those that did not come."""
        text = f"Rank {missing} failed to pass monitoredBarrier in 30000 ms"
        known = {"kind": "barrier", "text": text, "accused": missing}
        return self._told("collectives", Collective, None, rank, **known)

    def watchdog(self, rank, text, **fields):
        """Let a watchdog end of a CUDA error."""
        known = {"kind": "device_error", "text": text, **fields}
        return self._told("collectives", Collective, None, rank, **known)

    def said(self, place, kind, text, at=None, **fields):
        """Let a process write a telling line."""
        known = {"kind": kind, "text": text, **fields}
        return self._told("complaints", Complaint, at, place, **known)

    def lost(self, *ranks, at=None):
        """Let ranks lose their peers."""
        for rank in ranks:
            self.raised(rank, "torch.distributed.DistBackendError", REMOTE, at)
        return self

    def stopped(self, cause, text, at=None, **fields):
        """Let the launcher or scheduler tell that the job was stopped."""
        known = {"cause": cause, "text": text, **fields}
        return self._told("stops", Stop, at, self, **known)

    def moved(self, rank, step=None, at=None, *, done=False, **fields):
        """Let a rank print a step."""
        self._order += 1
        progress = {
            **self.facts.progress,
            rank: Progress(self._order, at, step, done=done, **fields),
        }
        self.facts = self.facts._replace(progress=progress)
        return self

    def printed(self, *lines):
        """Let these be the last lines."""
        self.facts = self.facts._replace(last_lines=lines)
        return self

    @property
    def verdict(self):
        """What the rules say."""
        return judge_log(self.facts)

    @property
    def answer(self):
        """Rule, cause and first ranks."""
        verdict = self.verdict
        assert verdict.at_s is not None
        return verdict.rule, verdict.cause, verdict.first_ranks

    @property
    def began_s(self):
        """When it began; None where the log has no time."""
        at_s = self.verdict.at_s
        return None if math.isnan(at_s) else at_s


def placed(place):
    """Return a place; a number is a global rank."""
    if place is None:
        return Place()
    return place if isinstance(place, Place) else Place(place)


@pytest.fixture
def log():
    """Return what makes a new log."""
    return Log
