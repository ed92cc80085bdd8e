"""torchrun's options that one node needs little of: checked, and refused if not so."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

from dsup.core.environment import MASTER_ADDR, SIGNALS, Choices
from dsup.core.errors import SpecError
from dsup.linux import signals

_HEALTH_PORT: Final = "TORCHELASTIC_HEALTH_CHECK_PORT"
_ENDPOINT: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+)(:[0-9]{1,5})?")
_PAIRS: Final = re.compile(r"[^=,\s]+=[^=,]*(,[^=,\s]+=[^=,]*)*,?")

_ONLY: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "start_method": (
        ("spawn",),
        "every rank is a fresh process (a script may fork its own helpers)",
    ),
    "event_log_handler": (
        ("null",),
        "events are in events.jsonl of the run directory (read that)",
    ),
    "logs_specs": (
        ("default",),
        "dsup loads no plugins (use --redirects, --tee and --log-dir)",
    ),
    "rdzv_backend": (
        ("static", "c10d"),
        "one node needs no rendezvous (use static or c10d)",
    ),
}
"""Options with the values they may have, and what holds instead of the others."""


def check(options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Refuse what dsup does not do.

    Raises:
        SpecError: if the call asks for it; says what to use.
    """
    for name, (allowed, instead) in _ONLY.items():
        if options[name] not in allowed:
            spelled = "--" + name.replace("_", "-")
            raise SpecError(
                f"cannot use {spelled} {options[name]!r}, because only "
                f"{' or '.join(allowed)} is possible: {instead}"
            )
    if environment.get(_HEALTH_PORT):
        raise SpecError(
            f"cannot open {_HEALTH_PORT}={environment[_HEALTH_PORT]}, because dsup "
            "has no such server, and torchrun's never opened a port (unset it; events."
            "jsonl and the exit code tell how a run is)"
        )
    _check_nodes(options["nnodes"], options["node_rank"])
    _check_form("--rdzv-endpoint", options["rdzv_endpoint"], _ENDPOINT, "HOST[:PORT]")
    _check_form("--rdzv-conf", options["rdzv_conf"], _PAIRS, "KEY=VALUE,...")


def choices(options: Mapping[str, Any]) -> Choices:
    """Return what was chosen of torchrun's variables."""
    return Choices(
        role=options["role"],
        master_addr=options["master_addr"] or options["local_addr"] or MASTER_ADDR,
        signals=options["signals_to_handle"],
        virtual_local_rank=options["virtual_local_rank"],
    )


def also_stop(names: str) -> tuple[int, ...]:
    """Return the signals beyond the usual four that are to stop the run.

    The four always do: without a handler they would end torchrun as well. What cannot
    be done is said, and is no reason to refuse, as with torchrun.
    """
    wanted = {name.strip() for name in names.split(",")} - {""}
    able = {signum.name: signum for signum in signals.FORWARDED}
    for name in sorted(wanted - set(able)):
        why = "dsup does not watch it" if hasattr(signal, name) else "there is none"
        print(
            f"dsup: cannot handle {name!r}, because {why} (possible: "
            f"{', '.join(able)})",
            file=sys.stderr,
            flush=True,
        )
    usual = set(SIGNALS.split(","))
    return tuple(sorted(able[name] for name in wanted & set(able) - usual))


def _check_nodes(nnodes: str, node_rank: int) -> None:
    numbers = [int(n) if n.isascii() and n.isdigit() else 0 for n in nnodes.split(":")]
    least, most = numbers[0], numbers[-1]
    if len(numbers) > 2 or not 1 <= least <= most:  # noqa: PLR2004 (N or MIN:MAX)
        raise SpecError(
            f"cannot use --nnodes {nnodes!r}, because it is neither N nor MIN:MAX with "
            "1 <= MIN <= MAX"
        )
    if most > 1:
        raise SpecError(
            f"cannot run with --nnodes {nnodes}, because dsup does one node so far "
            "(give --nnodes 1, or keep torchrun for jobs of several nodes)"
        )
    if node_rank:
        raise SpecError(
            f"cannot be node {node_rank}, because of --nnodes 1 there is only node 0 "
            "(give --node-rank 0)"
        )


def _check_form(name: str, value: str, form: re.Pattern[str], said: str) -> None:
    if value and not form.fullmatch(value):
        raise SpecError(f"cannot use {name} {value!r}, because it is not {said}")
