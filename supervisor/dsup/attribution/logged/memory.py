"""Whether a log tells that the host's memory was what ran out."""

from __future__ import annotations

from typing import Final

from dsup.facts.logs.said import Complaint, LoggedAttempt

_FILLS_MEMORY: Final = (
    "loading checkpoint shard",
    "loading shard",
    "loading model",
    "loading weights",
    "loading state",
    "loading dataset",
    "loading data",
    "loading pipeline",
    "loading extension module cpu_adam",
    "cpu_adam",
    "offload",
    "from_pretrained",
    "state_dict",
    "safetensors",
    "saving model",
    "saving checkpoint",
    "tokeniz",
    "generating train split",
    "examples/s]",
    "preprocess",
    "caching",
    "gathering",
    "merging",
    "semaphore objects to clean up",
)
"""Work that fills the host's memory: models and data sets are read, moved or written
whole. The last entry: worker processes that left their semaphores behind were taken
along, as an OOM kill of a whole group does."""


def oom_told(attempt: LoggedAttempt) -> Complaint | None:
    """Return the line in which a kernel, Slurm or Kubernetes tells of an OOM kill."""
    return next((c for c in attempt.complaints if c.kind == "oom_host"), None)


def memory_heavy(attempt: LoggedAttempt) -> str:
    """Return ``soon after …`` if the last output is of work that fills memory."""
    for line in reversed(attempt.last_lines):
        lowered = line[:2048].lower()
        if any(words in lowered for words in _FILLS_MEMORY):
            return f"soon after it printed {line.strip()[:80]!r}"
    return ""
