"""From options and terminal to where the ranks' output goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dsup.cli.terminal import Terminal
from dsup.core import streams
from dsup.core.appearance import appearance, level, speaks_unicode
from dsup.core.errors import SpecError
from dsup.core.job import Voice
from dsup.core.output import Output

_ABOUT_LOGS: Final = (
    "redirects",
    "tee",
    "local_ranks_filter",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
    "log_timestamps",
    "log_dir",
)
"""Whoever gives one of these wants pipes, even for one rank on a terminal."""


class Setting(NamedTuple):
    """What decides beside the options.

    Attributes:
        given: options that are not at their defaults.
        ranks: of this node.
        terminal: what dsup's streams are.
        environment: may ask for colours, or none.
        rank_logs: the ranks' output is kept.
    """

    given: frozenset[str]
    ranks: int
    terminal: Terminal
    environment: Mapping[str, str]
    rank_logs: bool


def output(options: Mapping[str, Any], setting: Setting) -> Output:
    """Return what becomes of the ranks' output.

    Raises:
        SpecError: if two options contradict each other.
    """
    inherit = _inherits(options, setting)
    looks = appearance(setting.environment, terminal=setting.terminal.shows)
    plain = options["log_format"] == "json"
    _tell_of_strangers(options, setting.ranks)
    return Output(
        ranks=streams.routes(
            _wishes(options, setting),
            streams.Names(options["role"], os.uname().nodename),
            setting.ranks,
        ),
        inherit=inherit,
        timestamps=options["log_timestamps"],
        max_bytes=options["log_max_size"],
        colour=looks.colour and not plain,
        status=looks.status and not (plain or inherit or options["quiet"]),
        unicode=speaks_unicode(setting.environment),
        keep_runs=options["keep_runs"] or None,
    )


def voice(options: Mapping[str, Any], environment: Mapping[str, str]) -> Voice:
    """Return how dsup's own lines read: -q and -v, else LOGLEVEL.

    Raises:
        SpecError: if it is to be quiet and verbose.
    """
    json = options["log_format"] == "json"
    if options["quiet"] and options["verbose"]:
        raise SpecError("cannot use -q with -v, because they are opposites (drop one)")
    if options["quiet"]:
        return Voice("quiet", json)
    return Voice("verbose" if options["verbose"] else level(environment), json)


def _inherits(options: Mapping[str, Any], setting: Setting) -> bool:
    redirects, tee = options["redirects"], options["tee"]
    if options["stdio"] == "inherit":
        for name, asked in (("redirects", redirects), ("tee", tee)):
            if not asked.none:
                raise SpecError(
                    f"cannot use --stdio inherit with --{name}, because inherited "
                    "streams do not pass through dsup (drop one of them)"
                )
        return True
    if options["stdio"] == "pipe":
        return False
    if setting.given >= {"redirects", "tee"} and redirects.none and tee.none:
        return True
    return (
        setting.ranks == 1
        and setting.terminal.talks
        and setting.given.isdisjoint(_ABOUT_LOGS)
    )


def _wishes(options: Mapping[str, Any], setting: Setting) -> streams.Wishes:
    return streams.Wishes(
        redirects=options["redirects"],
        tee=options["tee"] if "tee" in setting.given else None,
        shown=options["local_ranks_filter"],
        filters=(
            options["duplicate_stdout_filters"],
            options["duplicate_stderr_filters"],
        ),
        prefix=options["log_line_prefix_template"],
        files=setting.rank_logs,
    )


def _tell_of_strangers(options: Mapping[str, Any], ranks: int) -> None:
    """Say which named ranks there are not; torchrun passes over them in silence."""
    named = {
        "redirects": options["redirects"].by_rank,
        "tee": options["tee"].by_rank,
        "local-ranks-filter": options["local_ranks_filter"] or (),
    }
    for name, mentioned in named.items():
        strange = sorted(rank for rank in mentioned if rank >= ranks)
        if strange:
            print(
                f"dsup: --{name} names local rank {strange[0]}, but the last one is "
                f"{ranks - 1}",
                file=sys.stderr,
                flush=True,
            )
