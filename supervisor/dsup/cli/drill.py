"""``dsup drill``: breaks a small job for real, and looks whether dsup sees it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from dsup.core.exits import stop_code

if TYPE_CHECKING:
    from dsup.drill.drill import Asked, Result
    from dsup.drill.scenarios import Scenario

_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RANKS_MAX: Final = 64
_FAILED: Final = 1
_EXAMPLES: Final = """\b
Examples:
  dsup drill                    all scenarios
  dsup drill kill hang          some
  dsup drill --list             what is done in each, and what must come of it
  dsup drill --keep oom         keep the run directory to look at
"""


@click.command(
    short_help="Break a small job for real, and see what dsup says.", epilog=_EXAMPLES
)
@click.argument("scenario", nargs=-1, metavar="[SCENARIO]...")
@click.option(
    "--list", "catalogue", is_flag=True, help="Print the scenarios, and exit."
)
@click.option(
    "--nproc",
    metavar="N",
    type=click.IntRange(2, _RANKS_MAX),
    default=3,
    show_default=True,
    help="Ranks of each job.",
)
@click.option("--keep", is_flag=True, help="Keep the directories of all scenarios.")
@click.option("--json", "machine", is_flag=True, help="Print JSON for programs.")
def drill(
    scenario: tuple[str, ...],
    *,
    catalogue: bool,
    nproc: int,
    keep: bool,
    machine: bool,
) -> int:
    """Break a small job for real, and see whether dsup says of it what it must.

    Each scenario launches a job of its own on this node, harms a rank of it, the agent
    or the guard, and compares: the cause, the first rank, that nothing is left behind,
    and that training goes on from the right checkpoint. No GPU and no torch are needed.
    What this node or user does not allow is skipped, with the reason. The directory of
    a scenario that fails is kept. The exit code is 1 if one does.

    noticed is how long dsup took to see it, gone from then until nothing of the attempt
    was left, back from then until the next first step.
    """
    from dsup.drill.drill import Asked

    scenarios = _chosen(scenario)
    if catalogue:
        _list(scenarios, machine=machine)
        return 0
    asked = Asked(scenarios, nproc, keep, dict(os.environ))
    with _noted() as signals:
        code = _drill(asked, signals, machine=machine)
    return stop_code(signals[0]) if signals else code


def _chosen(names: tuple[str, ...]) -> Sequence[Scenario]:
    """Return the scenarios that are meant, each once; all where none is named.

    Raises:
        SpecError: there is none of a name.
    """
    from dsup.core.errors import SpecError
    from dsup.drill.scenarios import BY_NAME, SCENARIOS

    for name in names:
        if name not in BY_NAME:
            raise SpecError(
                f"cannot drill {name}, because there is no such scenario (there are "
                f"{', '.join(BY_NAME)})"
            )
    return [BY_NAME[name] for name in dict.fromkeys(names)] or SCENARIOS


def _list(scenarios: Sequence[Scenario], *, machine: bool) -> None:
    import json

    from dsup.drill import shown

    if machine:
        click.echo(json.dumps(shown.catalogue(scenarios), indent=1))
        return
    for line in shown.listed(scenarios):
        click.echo(line)


def _drill(asked: Asked, signals: Sequence[int], *, machine: bool) -> int:
    """Drill, and print it as it comes; return the exit code.

    Args:
        asked: what is to be played.
        signals: once there are any, it is over.
        machine: print JSON.
    """
    import json
    import time

    from dsup.drill import shown
    from dsup.drill.drill import drill as begun

    began_s = time.monotonic()
    results: list[Result] = []
    if not machine:
        click.echo(shown.head())
    with begun(asked, lambda: bool(signals)) as coming:
        for result in coming:
            results.append(result)
            for line in () if machine else shown.rows(result):
                click.echo(line)
    if signals:
        return _FAILED
    took_s = time.monotonic() - began_s
    if machine:
        click.echo(json.dumps(shown.document(results, took_s), indent=1))
    else:
        click.echo(shown.sentence(results, took_s))
    failed = any(result.outcome == "failed" for result in results)
    return _FAILED if failed else 0


@contextmanager
def _noted() -> Iterator[Sequence[int]]:
    """Give the numbers of the signals that ask the block to end, as they come.

    One that is ignored, as under nohup, still is.
    """
    came: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        came.append(signum)

    heeded = [n for n in _STOPS if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
