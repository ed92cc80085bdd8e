"""``dsup doctor``: is this node fit, and will dsup see what it needs to see."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from dsup.checkup.finding import Finding
    from dsup.checkup.readings import Asked

_STOPS: Final = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)

_EXAMPLES: Final = """\b
Examples:
  dsup doctor                              what is wrong with this node, and the fix
  dsup doctor --nproc 8 --checkpoint-dir /data/ckpt
                                           judged for a job
  dsup doctor --verbose                    what is well, too
  dsup doctor --json                       for programs
"""


@click.command(short_help="Look whether this node is fit to train.", epilog=_EXAMPLES)
@click.option(
    "--nproc",
    metavar="N",
    type=click.IntRange(min=1),
    help="Judge for so many ranks; else for one a GPU.",
)
@click.option(
    "--checkpoint-dir",
    default="",
    metavar="DIR",
    help="Where checkpoints would be written.",
)
@click.option(
    "--log-dir", default="", metavar="DIR", help="Where run directories would be kept."
)
@click.option("-v", "--verbose", is_flag=True, help="Print what is well, too.")
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def doctor(
    nproc: int | None,
    checkpoint_dir: str,
    log_dir: str,
    *,
    verbose: bool,
    machine: bool,
) -> int:
    """Look whether this node is fit to train, and whether dsup will see what it needs.

    Nothing is changed. Each finding is ok, warn, bad or unknown, and says what to type.
    Whatever hangs is given up after some seconds, and that is a finding, too.
    """
    from dsup.checkup.finding import exit_code

    asked = wishes(os.environ, nproc, checkpoint_dir, log_dir)
    with _nobody_left():
        found = findings(asked)
    if sys.stdout:  # else whoever closed it wants the exit code only
        click.echo(_json(found) if machine else _text(found, everything=verbose))
    return exit_code(found)


@contextlib.contextmanager
def _nobody_left() -> Iterator[None]:
    """End all that was started here, however this ends; what hangs is not waited for.

    A reader may have started others: they become children of this process then.
    """
    from dsup.core.exits import stop_code
    from dsup.linux import libc, proc, tree

    def stop(signum: int, _: object) -> None:
        raise SystemExit(stop_code(signum))

    strangers = proc.children(os.getpid())  # of a shell that became this process
    libc.become_subreaper()
    before = {number: signal.getsignal(number) for number in _STOPS}
    before = {n: was for n, was in before.items() if was != signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        tree.kill(strangers)
        for number, handler in before.items():
            signal.signal(number, handler)


def wishes(
    environment: Mapping[str, str],
    ranks: int | None,
    checkpoint_dir: str,
    log_dir: str,
) -> Asked:
    """Return what a node is to be judged against where no job is given."""
    from dsup.checkup.readings import Asked
    from dsup.cli.run_dir import first_choice

    places = {
        "runs": os.path.dirname(first_choice("run", log_dir, environment)),
        "TMPDIR": environment.get("TMPDIR") or "/tmp",  # noqa: S108 (as mktemp does)
    }
    if checkpoint_dir:
        places["checkpoints"] = os.path.abspath(checkpoint_dir)
    return Asked(
        environment=dict(environment),
        ranks=ranks,
        python=environment.get("PYTHON_EXEC") or sys.executable,
        places=places,
        comm_timeout_s=None,
    )


def findings(asked: Asked) -> tuple[Finding, ...]:
    """Return everything that is found of this node."""
    from dsup.checkup.checks.catalogue import CHECKS
    from dsup.checkup.finding import judged
    from dsup.checkup.gather import gather

    return tuple(judged(CHECKS, gather(asked)))


def _json(found: Sequence[Finding]) -> str:
    import json
    from datetime import UTC, datetime

    from dsup.checkup.shown import document

    at = datetime.now(UTC).isoformat(timespec="microseconds")
    return json.dumps(document(found, os.uname().nodename, at), indent=1)


def _text(found: Sequence[Finding], *, everything: bool) -> str:
    import shutil

    from dsup.checkup.shown import lines
    from dsup.cli.diagnose import painted, speaks_unicode_here

    shows = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if shows else None
    rows = lines(found, width, everything=everything, unicode=speaks_unicode_here())
    return "\n".join(painted(rows))
