"""Where a run directory is made."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from dsup.core.errors import SpecError
from dsup_runtime import contract

_PRIVATE: Final = 0o700
_FOR_ALL: Final = 0o777
_BLOCK_BYTES: Final = 4096


def make_run_dir(name: str, asked: str, environment: Mapping[str, str]) -> str:
    """Make a run directory and return its absolute path.

    Args:
        name: its name.
        asked: the parent the user asked for; empty for none.
        environment: names the default places.

    Raises:
        SpecError: if the parent that was asked for, or every default one, cannot be
            written.
    """
    if asked:
        try:
            return _make(os.path.abspath(asked), name, _FOR_ALL)
        except OSError as error:
            raise SpecError(
                f"cannot make a run directory in {asked}, because "
                f"{_reason(error)} (give another --log-dir)"
            ) from None
    said = []
    for parent in _defaults(environment):
        try:
            return _make(parent, name, _PRIVATE)
        except OSError as error:
            said.append(f"{parent}: {_reason(error)}")
            print(f"dsup: cannot keep runs in {said[-1]}", file=sys.stderr, flush=True)
    raise SpecError("cannot make a run directory anywhere (give a --log-dir)")


def first_choice(name: str, asked: str, environment: Mapping[str, str]) -> str:
    """Return where ``make_run_dir`` would try first; touch nothing."""
    return os.path.join(os.path.abspath(asked or next(_defaults(environment))), name)


def _defaults(environment: Mapping[str, str]) -> Iterator[str]:
    state = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    if state:
        yield os.path.join(state, "runs")
    home = environment.get("HOME", "")
    if os.path.isabs(home):
        yield os.path.join(home, ".local/state/dsup/runs")
    yield f"/var/tmp/dsup-{os.getuid()}"  # noqa: S108 (its owner is checked)


def _make(parent: str, name: str, mode: int) -> str:
    os.makedirs(parent, mode=mode, exist_ok=True)
    found = os.stat(parent)
    shared = stat.S_ISVTX & found.st_mode
    if mode == _PRIVATE and found.st_uid != os.getuid() and not shared:
        raise PermissionError(0, "it belongs to another user")
    path = os.path.join(parent, name)
    os.mkdir(path, mode)
    try:
        _prove_writable(os.path.join(path, contract.RUN_FILE))
    except OSError:
        os.rmdir(path)
        raise
    return path


def _prove_writable(path: str) -> None:
    """Write a block and take it back: on a full disk a directory can still be made."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b" " * _BLOCK_BYTES)
    finally:
        os.close(fd)
        os.unlink(path)


def _reason(error: OSError) -> str:
    return str(error.strerror).lower()
