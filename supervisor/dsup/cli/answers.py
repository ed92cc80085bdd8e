"""From words to answers: each thing that is meant is read as what it is."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from dsup.cli.answer import Diagnosis
from dsup.cli.asked import Item, meant
from dsup.cli.diagnosis import diagnosis
from dsup.cli.foreign import STDIN, of_logs, of_verdict
from dsup.core.errors import DsupError

_LOOKED_MAX: Final = 8
_KERNEL_LOG_MAX_BYTES: Final = 64 << 20


def answers(
    words: Sequence[str], environment: Mapping[str, str], stack: ExitStack
) -> tuple[tuple[Diagnosis, ...], tuple[str, ...]]:
    """Return what there is to say, and what was chosen where there was a choice.

    Args:
        words: of the command line; runs and bundles are answers of their own, in their
            order, and all logs together are the last one.
        environment: names the places where runs are kept.
        stack: keeps what is unpacked until the answers are used.

    Raises:
        DsupError: something cannot be found, or cannot be read.
    """
    known = meant(words, environment)
    logs = [item.path for item in known.items if item.kind == "logs"]
    found = [_answer(item, stack) for item in known.items if item.kind != "logs"]
    if logs:
        for path in logs:
            _tell_of_waiting(path)
        told = of_logs(logs)
        hints = tuple(_of_kernel(logs, told))
        found.append(told._replace(remarks=(*told.remarks, *hints)))
    return tuple(found), known.remarks


def _answer(item: Item, stack: ExitStack) -> Diagnosis:
    if item.kind == "bundle":
        from dsup.cli.unbundle import of_bundle, unpacked

        return of_bundle(item.path, stack.enter_context(unpacked(item.path)))
    if item.kind == "verdict":
        return of_verdict(item.path)
    return diagnosis(item.path)


def _of_kernel(paths: Sequence[str], told: Diagnosis) -> Iterator[str]:
    """Yield that a file is a kernel's log, of which no rank's end can be told."""
    if any(case.verdict.first_ranks for case in told.cases):
        return
    from dsup.cli.kernel_log_files import saved

    for path in paths[:_LOOKED_MAX]:
        if not os.path.isfile(path) or os.path.getsize(path) > _KERNEL_LOG_MAX_BYTES:
            continue
        try:
            faults = len(saved(path).faults())
        except DsupError:
            continue
        if faults:
            many = "a fault" if faults == 1 else f"{faults} faults"
            yield (
                f"{path} reads as a kernel's log, with {many}: dsup kernel-log "
                f"{shlex.quote(path)} prints what they mean"
            )


def _tell_of_waiting(path: str) -> None:
    """Say on a terminal what dsup waits for, where nothing may ever come."""
    if not sys.stderr.isatty():
        return
    if path == STDIN:
        if os.isatty(0):
            print("dsup: reading what you type (Ctrl-D ends it)", file=sys.stderr)
        return
    if stat.S_ISFIFO(os.stat(path).st_mode):
        print(f"dsup: waiting for whoever writes to {path!a}", file=sys.stderr)
