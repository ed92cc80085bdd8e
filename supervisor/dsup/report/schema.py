"""The JSON Schema of ``dsup diagnose --json``, made from the types it is made from.

Fields may be added in later versions, so readers are to pass over what they do not
know; none is taken away, and none changes its meaning, while the name stays
``dsup.diagnosis/1``.
"""

from __future__ import annotations

from typing import Any, Final, get_args

from dsup.core.exits import CAUSES
from dsup.core.verdict import Certainty, Source
from dsup.report.account import State

NAME: Final = "dsup.diagnosis/1"

_Schema = dict[str, Any]

_RANK: Final[_Schema] = {"type": "integer", "minimum": 0}
_TEXT: Final[_Schema] = {"type": "string"}
_TIME: Final[_Schema] = {
    "description": "ISO 8601, UTC, microseconds; null where nothing tells it.",
    "type": ["string", "null"],
    "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$",
}


def schema() -> _Schema:
    """Return the schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{NAME.replace('/', ':')}",
        "title": "What dsup diagnose --json prints",
        **_object(
            {
                "schema": {"const": NAME},
                "verdicts": {
                    "description": "One for each attempt or run that failed, in order.",
                    **_list({"$ref": "#/$defs/verdict"}),
                },
                "sources": {
                    "description": "What was read, in the order of the verdicts.",
                    **_list({"$ref": "#/$defs/source"}),
                },
                "remarks": {
                    "description": "What could not be read, or was chosen, and why.",
                    **_list(_TEXT),
                },
            }
        ),
        "$defs": {
            "verdict": _verdict(),
            "evidence": _evidence(),
            "source": _source(),
        },
    }


def _verdict() -> _Schema:
    known = {
        "attempt": {"type": "integer", "minimum": 0},
        "cause": {"enum": sorted(CAUSES)},
        "first_ranks": {
            "description": "Global ranks; empty where none can be named.",
            **_list(_RANK),
        },
        "first_nodes": _list(_TEXT),
        "certainty": {"enum": list(get_args(Certainty))},
        "at": _TIME,
        "summary": {"description": "One sentence.", **_TEXT},
        "rule": {"description": "The rule that spoke.", **_TEXT},
        "evidence": {
            "description": "What it rests on, the proof first.",
            **_list({"$ref": "#/$defs/evidence"}),
        },
        "victims": _list(_object({"rank": _RANK, "of": _or_null(_RANK), "how": _TEXT})),
        "ended_by_dsup": {
            "description": "Ranks that the launcher signalled while they still ran.",
            **_list(_RANK),
        },
        "advice": _or_null(_object({"action": _TEXT, "text": _TEXT})),
        "exit": {
            "description": "Of the run; null where it went on, or is not dsup's.",
            **_or_null(_object({"code": {"type": "integer"}, "origin": _TEXT})),
        },
        "status": {
            "description": "The first rank's exit code, or minus its signal.",
            "type": "integer",
        },
        "signature": {
            "description": "The same for the same failure in another attempt.",
            **_TEXT,
        },
        "looked": {
            "description": "Every rule that was tried; an empty cause is silence.",
            **_list(
                _object({"rule": _TEXT, "cause": _TEXT, "first_ranks": _list(_RANK)})
            ),
        },
        "would_change": {
            "description": "Missing evidence that could change the answer.",
            **_list(_TEXT),
        },
    }
    told = {
        "left_with_0": {
            "description": "Those of ended_by_dsup that then ended with 0.",
            **_list(_RANK),
        },
        "source": {"description": "Its number in sources.", **_RANK},
    }
    return _object({**known, **told}, free=tuple(told))


def _evidence() -> _Schema:
    known = {
        "source": {"enum": list(get_args(Source))},
        "rank": _or_null(_RANK),
        "node": _or_null(_TEXT),
        "at": _TIME,
        "text": _TEXT,
        "file": {"description": "Empty for none.", **_TEXT},
        "line": _or_null({"type": "integer", "minimum": 1}),
    }
    added = {
        "dismissed": {
            "description": "It was looked at, and is no proof.",
            "type": "boolean",
        }
    }
    return _object({**known, **added}, free=tuple(added))


def _source() -> _Schema:
    return _object(
        {
            "kind": {"enum": ["run", "logs", "verdict"]},
            "name": _TEXT,
            "launcher": {"description": "Null where nothing tells.", **_or_null(_TEXT)},
            "node": _or_null(_TEXT),
            "world_size": _or_null({"type": "integer", "minimum": 1}),
            "outcome": {"description": "What became of it.", **_or_null(_TEXT)},
            "state": {
                "description": "The same in one word; null where nothing tells. A gone "
                "run's agent or guard was killed.",
                "enum": [*get_args(State), None],
            },
            "compared": {
                "description": "Which attempts died as the last one did; null where "
                "there are not two.",
                **_or_null(_compared()),
            },
        }
    )


def _compared() -> _Schema:
    return _object(
        {
            "signature": _TEXT,
            "attempts": _list({"type": "integer", "minimum": 0}),
            "same_ranks": {"type": "boolean"},
        }
    )


def _object(known: _Schema, free: tuple[str, ...] = ()) -> _Schema:
    """Return an object that has these fields, and may have more."""
    required = [name for name in known if name not in free]
    return {"type": "object", "properties": known, "required": required}


def _list(of: _Schema) -> _Schema:
    return {"type": "array", "items": of}


def _or_null(of: _Schema) -> _Schema:
    return {"anyOf": [of, {"type": "null"}]}
