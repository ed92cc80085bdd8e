"""Refusals and failures of dsup, each with its exit code.

    DsupError              70  a bug in dsup, unless a subclass says otherwise
    ├── SpecError           2  the call asks for something that can not be
    ├── SpawnError    126/127  a program can not be started
    └── JournalError        2  a journal can not be read

Messages are lower case, "cannot …, because …", then what to do.
"""

from __future__ import annotations

from dsup.core.exits import BUG, CANNOT_EXECUTE, WRONG_CALL


class DsupError(Exception):
    """Base of all errors that dsup raises on purpose."""

    exit_code: int = BUG


class SpecError(DsupError):
    """What was asked for can not be."""

    exit_code = WRONG_CALL


class SpawnError(DsupError):
    """A program can not be started.

    Args:
        message: what can not be started, and why.
        exit_code: 127 if it is not there, 126 if it can not be executed.
    """

    def __init__(self, message: str, exit_code: int = CANNOT_EXECUTE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class JournalError(DsupError):
    """A journal can not be read."""

    exit_code = WRONG_CALL
