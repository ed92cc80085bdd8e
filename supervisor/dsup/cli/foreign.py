"""What logs of another launcher, or what dsup itself has said, come to."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dsup.cli.answer import Case, Diagnosis
from dsup.cli.run_files import UnreadableRunError
from dsup.cli.safe_files import read_whole
from dsup.core.errors import DsupError
from dsup.core.printable import printable
from dsup.core.verdict import Verdict
from dsup.report.verdict_file import FILE_MAX_BYTES, Kept, decode

if TYPE_CHECKING:
    from dsup.postmortem import LogFinding

STRANGER: Final = "an unknown launcher"
STDIN: Final = "-"

_PLACES_MAX: Final = 2
_ANSWER: Final = "dsup.diagnosis/"
_PIPES: Final = ("/dev/fd/", "/proc/")


def of_logs(paths: Sequence[str]) -> Diagnosis:
    """Return what logs say.

    Args:
        paths: files, directories, FIFOs; ``-`` is standard input.

    Raises:
        UnreadableRunError: none of them can be read.
    """
    from dsup.postmortem import NO_FAILURE, diagnose_logs

    said = _of_answer(paths[0]) if len(paths) == 1 else None
    if said is not None:
        return said
    try:
        found = diagnose_logs(paths)
    except DsupError as error:
        raise UnreadableRunError(str(error)) from None
    calm = f"{_name(paths)} tells of no failure"
    remarks = (calm if one == NO_FAILURE else one for one in found.remarks)
    nodes = dict.fromkeys(node for one in found.findings for node in one.nodes)
    return Diagnosis(
        kind="logs",
        name=_name(paths),
        paths=tuple(paths),
        node=next(iter(nodes), "") if len(nodes) == 1 else "",
        world_size=found.world_size or 0,
        started_s=None,
        cases=tuple(map(_case, found.findings)),
        remarks=tuple(remarks),
        outcome="",
        launcher=found.launcher,
        findings=found.findings,
    )


def of_verdict(path: str) -> Diagnosis:
    """Return what a verdict.json says.

    Raises:
        UnreadableRunError: it is none.
    """
    try:
        raw = read_whole(path, FILE_MAX_BYTES)
        kept = decode(raw or b"")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UnreadableRunError(
            f"cannot diagnose {path}, because it cannot be read: {reason}"
        ) from None
    except ValueError:
        raise UnreadableRunError(
            f"cannot diagnose {path}, because it is no verdict of dsup's (give the run "
            "directory)"
        ) from None
    case = kept_case(kept, "")
    node = case.node
    return Diagnosis(
        "verdict", os.path.basename(path), (path,), node, 0, None, (case,), (), ""
    )


def _of_answer(path: str) -> Diagnosis | None:
    """Return what ``dsup diagnose --json`` said; None where it did not."""
    if not os.path.isfile(path):
        return None
    try:
        told = json.loads(read_whole(path, FILE_MAX_BYTES) or b"")
        if not str(told["schema"]).startswith(_ANSWER):
            return None
        kept = [decode(json.dumps(one).encode()) for one in told["verdicts"]]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    cases = tuple(kept_case(one, "") for one in kept)
    remarks = () if cases else (f"{_name((path,))} tells of no failure",)
    node = cases[0].node if cases else ""
    return Diagnosis(
        "verdict", os.path.basename(path), (path,), node, 0, None, cases, remarks, ""
    )


def kept_case(kept: Kept, node: str) -> Case:
    """Return the case of a verdict.json, of which nothing else is known."""
    return Case(
        verdict=kept.verdict,
        node=kept.nodes[0] if kept.nodes else node,
        pids={},
        offset_s=0.0,
        next_text="",
        logs="",
        ended=kept.ended,
    )


def _case(found: LogFinding) -> Case:
    return Case(
        verdict=found.verdict,
        node="",
        pids={},
        offset_s=0.0,
        next_text="",
        logs="",
        ended=None,
        nodes=found.nodes,
        launcher=found.launcher or STRANGER,
        more=_places(found.verdict, found.directory),
        zone="UTC" if found.zoned else "",
    )


def _places(verdict: Verdict, directory: str) -> str:
    """Return where the proof stands, as an editor takes it; first dsup's own run."""
    ask = (f"dsup diagnose {shlex.quote(directory)}",) if directory else ()
    places = dict.fromkeys(ask)
    places |= dict.fromkeys(
        one.file if one.line is None else f"{one.file}:{one.line}"
        for one in verdict.evidence
        if one.file
    )
    return " · ".join(list(places)[:_PLACES_MAX])


def _name(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return printable(f"{_known_as(paths[0])}{more}")


def _known_as(path: str) -> str:
    if path == STDIN or path.startswith(_PIPES):
        return "standard input" if path == STDIN else path
    return os.path.basename(os.path.abspath(path)) or path
