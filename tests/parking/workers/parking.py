"""Ranks that step together and stop by dsup's page, every word of it stored by hand.

Each argument is a clause ``WHO[@ATTEMPT]:WORD[=VALUE],...``; the first one that fits
this rank and attempt counts:

    step=S        seconds of work a step
    late=S        seconds before the first step
    plain         never looks whether to stop, as a script without the runtime
    deaf=N        looks no more from check N on, and steps alone
    wish=KIND@N   wants such a stop at check N, with a note that says why
    silent        ... without the note
    say=WORD@N    sends a note at check N that is none
    leave=CODE    its exit code, else what the kind of the stop stands for
    last=N        has done all its work at check N
    die=N         kills itself at check N
"""

import json
import mmap
import os
import signal
import socket
import sys
import time

from act import ATTEMPT, RANK, emit, pause

from dsup_runtime import contract

CODES = {"user": 0, "limit": 143, "preempt": 143, "peer": 1, "error": 1}
GARBAGE = {
    "nothing": b"",
    "noise": b"\xff\x00\x1b[2J",
    "kind": b'{"v":1,"kind":"stop","stop":"party","reason":"x"}',
    "none": b'{"v":1,"kind":"stop","stop":"none"}',
    "list": b'{"v":1,"kind":"stop","stop":["user"],"step":"17"}',
    "version": b'{"v":2,"kind":"stop","stop":"error"}',
    "long": b'{"v":1,"kind":"stop","stop":"' + b"x" * 60_000 + b'"}',
}
TOGETHER_MAX_S = 240.0


class Rank:
    """One rank's slot, its socket, and what it is to do."""

    def __init__(self, words):
        self.words = words
        fd, slot = os.environ["DSUP_HEARTBEAT"].removeprefix("fd:").split("#")
        self.page = memoryview(mmap.mmap(int(fd), 0)).cast("q")
        first = contract.slot_offset(int(slot))
        self.slot = self.page[first : first + contract.SLOT_WORDS]
        notes = int(os.environ["DSUP_NOTES"].removeprefix("fd:"))
        self.notes = socket.socket(fileno=os.dup(notes))
        signal.signal(signal.SIGTERM, self.on_term)

    def on_term(self, *_):
        """Prove that a signal came."""
        emit("got-TERM")
        os._exit(0)

    def at(self, word, check):
        """Return the value of ``word=VALUE@CHECK`` at that check, else None."""
        value, _, when = self.words.get(word, "").rpartition("@")
        return value if when == str(check) else None

    def step_together(self, check):
        """Wait for the other ranks, as a collective does."""
        self.slot[contract.SLOT_SAMPLES_DROPPED] = check
        mine = contract.slot_offset(0) + contract.SLOT_SAMPLES_DROPPED
        column = self.page[mine :: contract.SLOT_WORDS]
        end_s = time.monotonic() + TOGETHER_MAX_S
        while min(column.tolist()) < check:
            if time.monotonic() > end_s:
                sys.exit("the others did not come")
            pause(0.0002)

    def wish(self, check):
        """Want what is to be wanted at this check."""
        kind = self.at("wish", check)
        if kind:
            self.slot[contract.SLOT_WANTED] = contract.STOP_KINDS.index(kind)
            note = {"v": 1, "kind": "stop", "stop": kind, "reason": "enough", "step": 7}
            if "silent" not in self.words:
                self.notes.send(json.dumps(note).encode())
        garbage = self.at("say", check)
        if garbage:
            self.notes.send(GARBAGE[garbage])

    def check(self, check):
        """Return whether all ranks leave here."""
        self.slot[contract.SLOT_FLAGS] = contract.FLAG_STOPS_ITSELF
        self.slot[contract.SLOT_STEP] = check + 100
        self.slot[contract.SLOT_SEQUENCE] = check
        if not self.page[contract.HEADER_FREEZE]:
            return False
        while self.page[contract.HEADER_STOP_STEP] < 0:
            pause(0.0003)
        return check >= self.page[contract.HEADER_STOP_STEP]

    def leave(self, check):
        """Say how it went, and end as one does that was stopped."""
        kind = contract.STOP_KINDS[self.page[contract.HEADER_STOP_KIND]]
        first = contract.HEADER_STOP_REASON
        reason = self.page[first : first + 8].tobytes().rstrip(b"\0").decode()
        emit(
            "left",
            check=check,
            kind=kind,
            of=self.page[contract.HEADER_STOP_RANK],
            reason=reason,
            left_s=self.page[contract.HEADER_STOP_DEADLINE_NS] / 1e9 - time.monotonic(),
        )
        sys.exit(int(self.words.get("leave", CODES[kind])))

    def train(self):
        """Step, wish and look until it is over."""
        emit("here")
        pause(float(self.words.get("late", 0)))
        deaf = int(self.words.get("deaf", 0))
        for check in range(1, int(self.words.get("last", 1_000_000))):
            if not deaf or check < deaf:
                self.step_together(check)
            pause(float(self.words.get("step", 0.002)))
            if self.words.get("die") == str(check):
                os.kill(os.getpid(), signal.SIGKILL)
            self.wish(check)
            looks = "plain" not in self.words and (not deaf or check < deaf)
            if looks and self.check(check):
                self.leave(check)
            if check == 2:
                emit("ready")
        emit("done")


def main():
    """Train as this rank's clause says."""
    words = {}
    for clause in sys.argv[1:]:
        who, _, acts = clause.partition(":")
        rank, _, attempt = who.partition("@")
        if rank in (RANK, "*") and attempt in ("", ATTEMPT):
            pairs = (act.partition("=") for act in acts.split(","))
            words = {name: value for name, _, value in pairs}
            break
    Rank(words).train()


main()
