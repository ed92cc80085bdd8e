"""All that crosses the boundary between dsup's agent and a training worker.

Two programs that may be of different versions meet here: the agent imports this
module, and so does ``dsup_runtime`` inside the worker. It holds names, numbers and
pure parsing only, needs nothing but the standard library, and opens nothing.

The heartbeat page is an array of native 8-byte integers. The first 16 words are the
header, written by the agent; then follow 16 words a slot, one slot a local rank,
written by its worker, except for the word ``DEAD``, which is the agent's. A store is
one aligned 8-byte store through ``memoryview.cast("q")``: a reader never sees half a
number (``struct.pack_into`` on a mapping is torn).
"""

from __future__ import annotations

import os
import struct
import sys

MAGIC = int.from_bytes(b"dsuphb\x00\x01", sys.byteorder)
"""Header word 0: the layout's name and, in its last byte, its version."""

WORD_BYTES = 8
HEADER_WORDS = 16
SLOT_WORDS = 16
SLOT_BYTES = SLOT_WORDS * WORD_BYTES
SLOTS_MAX = 4096

HELLO = struct.Struct("=8sqq32s")
"""What a worker says first where it reaches its page over TCP: HELLO_MAGIC, attempt,
slot, token. The agent answers with the whole page, and again whenever a word of its own
has changed; the worker sends its slot, as it is in the page."""

HELLO_MAGIC = b"dsuphi\x00\x01"

# Header words.
HEADER_MAGIC = 0
HEADER_ATTEMPT = 1
HEADER_FREEZE = 2
HEADER_STOP_STEP = 3
HEADER_SLOTS = 4
HEADER_STOP_KIND = 5
HEADER_STOP_RANK = 6
HEADER_STOP_DEADLINE_NS = 7
"""When ranks that have not left get SIGTERM, at half the grace."""

HEADER_STOP_REASON = 8
"""First of 8 words that hold the reason: UTF-8, cut at 64 bytes, padded with zeros."""

# Words of a slot. Times are CLOCK_MONOTONIC, nanoseconds; 0 is "never".
SLOT_PID = 0
SLOT_HEARTBEAT_NS = 1
SLOT_PROGRESS_NS = 2
SLOT_STEP = 3
SLOT_PHASE = 4
SLOT_PHASE_LIMIT_NS = 5
SLOT_FLAGS = 6
SLOT_SAMPLES_DROPPED = 7
SLOT_SEQUENCE = 8
SLOT_DEAD = 9
SLOT_WANTED = 10
SLOT_SAVED_STEP = 11
SLOT_SAVED_NS = 12
"""When the rank's last checkpoint, of that step, was published."""

FLAG_STOPS_ITSELF = 1
"""In ``SLOT_FLAGS``: this rank's loop asks at every step whether to stop."""

FLAG_FAILED = 2
"""In ``SLOT_FLAGS``: this rank ends of an error of its own."""

FLAG_LOST = 4
"""In ``SLOT_FLAGS``: this rank ends because it has lost another."""

STOP_KINDS = ("none", "user", "limit", "preempt", "peer", "error")
"""``HEADER_STOP_KIND`` and ``SLOT_WANTED`` are indices into this; the greatest wins.

    user     of a rank: the training code has enough, and exit 0 is a success
             of nobody (rank -1): a person stopped dsup: resumable, 143
    limit    a time limit (--stop-after): resumable, 143
    preempt  SIGTERM, to a rank or to dsup: resumable, 143
    peer     a rank failed where others could not tell why
    error    a rank has a deferred error: the attempt fails
"""

NO_STEP = -1
"""What ``SLOT_STEP`` and ``HEADER_STOP_STEP`` hold until there is a step."""

AT_ONCE = 0
"""What ``HEADER_STOP_STEP`` holds once dsup ends the ranks of an attempt that has
failed: checks count from 1, so nobody waits for one that cannot be agreed any more."""

PHASES = ("init", "train", "eval", "checkpoint", "finish")
"""``SLOT_PHASE`` is an index into this."""

# Variables dsup adds to torchrun's in a worker's environment.
RUN_DIR = "DSUP_RUN_DIR"
ATTEMPT = "DSUP_ATTEMPT"
HEARTBEAT = "DSUP_HEARTBEAT"
HEARTBEAT_TOKEN = "DSUP_HEARTBEAT_TOKEN"  # noqa: S105 (a variable's name)
RESUME_FROM = "DSUP_RESUME_FROM"
GRACE_S = "DSUP_GRACE_S"
COMM_TIMEOUT_S = "DSUP_COMM_TIMEOUT_S"
NOTES = "DSUP_NOTES"
FAULT = "DSUP_FAULT"
DEBUG = "DSUP_DEBUG"
"""1: look for mistakes that cost time to look for. Set by the user, not by dsup."""

BOOTSTRAP = "DSUP_BOOTSTRAP"
"""``PID`` or ``PID:no-faulthandler``: the agent's pid, and what the bootstrap is not to
do; read and removed by it before any user code runs."""

STACKS = "DSUP_STACKS"
"""``fd:N``: a memory file into which ``STACKS_SIGNAL`` makes this process write where
each of its Python threads is."""

STACKS_SIGNAL = 39
"""A real-time signal that glibc and musl leave alone and hardly anybody uses."""

MAIN_STACK_SIGNAL = 40
"""The next one: for the main thread alone, which faulthandler names last and leaves out
where there are more than a hundred."""

STACKS_MAX_BYTES = 1 << 20
STACKS_NAME = "dsup-stacks"
"""What the kernel calls the memory file, by which it is known again."""

NOTE_MAX_BYTES = 65_536
"""One note is one datagram of at most so much: a JSON object."""

# Names in the run directory.
RUN_FILE = "run.json"
JOURNAL_FILE = "events.jsonl"
CLOSED_FILE = "closed.json"
"""Written by the launch that found the run cut off, and took over its count."""

CONTROL_SOCKET = "control.sock"
HEARTBEATS_FILE = "heartbeats"
STDOUT_FILE = "stdout.log"
STDERR_FILE = "stderr.log"
ERROR_FILE = "error.json"
SAMPLES_FILE = "samples.jsonl"
STACKS_FILE = "stacks.txt"
"""In a rank's directory: where it and its helpers were whenever it seemed to hang."""

VERDICT_FILE = "verdict.json"
OUTCOME_FILE = "outcome.json"
"""How the attempt ended, in the words of its main rank, or of the agent for it."""

FILTERED_PREFIX = "filtered_"
"""With a log's name: lines of all ranks that matched, in the attempt's directory."""

INDEX_SUFFIX = ".index"
"""With a log's name: when which byte of it was read, as records of INDEX_RECORD."""

ROTATED_SUFFIX = ".1"
"""With a log's name: what it held before it grew past its limit."""

INDEX_RECORD = struct.Struct("<qq")
"""CLOCK_REALTIME in nanoseconds, and the offset of what was read then, bytes."""

BOOTSTRAP_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")
"""Holds the private ``sitecustomize.py`` that is put first on PYTHONPATH."""


def attempt_dir(run_dir: str, attempt: int) -> str:
    """Return the directory of one attempt (torchrun's name for it)."""
    return os.path.join(run_dir, f"attempt_{attempt}")


def rank_dir(run_dir: str, attempt: int, local_rank: int) -> str:
    """Return the directory of one rank's logs in one attempt."""
    return os.path.join(attempt_dir(run_dir, attempt), str(local_rank))


def page_bytes(slots: int) -> int:
    """Return the size of a heartbeat page for that many local ranks, bytes."""
    return (HEADER_WORDS + slots * SLOT_WORDS) * WORD_BYTES


def slot_offset(slot: int) -> int:
    """Return the index of a slot's first word."""
    return HEADER_WORDS + slot * SLOT_WORDS


def format_heartbeat(fd: int, slot: int) -> str:
    """Return the value of ``DSUP_HEARTBEAT`` for an inherited page."""
    return f"fd:{fd}#{slot}"


def parse_heartbeat(value: str) -> tuple[str, str, int] | None:
    """Return ``(kind, where, slot)`` of a ``DSUP_HEARTBEAT`` value; None if none.

    Kinds are fd (where: a number), file (an absolute path) and tcp (``ADDRESS:PORT``).
    """
    place, _, slot = value.rpartition("#")
    kind, _, where = place.partition(":")
    if kind not in {"fd", "file", "tcp"} or not where:
        return None
    if not (slot.isascii() and slot.isdigit()):
        return None
    return kind, where, int(slot)


def format_notes(fd: int) -> str:
    """Return the value of ``DSUP_NOTES`` for an inherited socket."""
    return f"fd:{fd}"


def format_stacks(fd: int) -> str:
    """Return the value of ``DSUP_STACKS`` for an inherited memory file."""
    return f"fd:{fd}"


def parse_notes(value: str) -> int | None:
    """Return the descriptor of a ``DSUP_NOTES`` value; None if it is not one."""
    kind, _, fd = value.partition(":")
    return int(fd) if kind == "fd" and fd.isascii() and fd.isdigit() else None


def variable(name: str) -> str:
    """Return a variable of this worker's environment, "" when it is unset.

    Nothing else in the runtime reads the environment.
    """
    return os.environ.get(name, "")
