"""The page: a story as one self-contained HTML file.

It loads nothing: its style and its one script are inside, and its own security policy
lets no other script run, whatever a rank may have printed. It is complete without the
script, which copies texts, changes the theme and opens what is folded before printing.
"""

from __future__ import annotations

import functools
import hashlib
from base64 import b64encode
from importlib import resources
from typing import Any, Final

import jinja2
from markupsafe import Markup

from dsup.core.exits import CAUSES
from dsup.report.html import (
    attempts,
    facts,
    last_seconds,
    phrases,
    stacks,
    svg,
    tables,
    timeline,
    words,
)
from dsup.report.html.chart import WIDTH, Chart
from dsup.report.html.lives import Attempt, roles
from dsup.report.html.rows import ROWS_MAX
from dsup.report.html.spent import spent
from dsup.report.html.values import Story

OUTPUT_MAX_CHARS: Final = 64 * 1024
"""Of the first rank's output the end is shown."""

KERNEL_MAX_LINES: Final = 200
STACKS_MAX_CHARS: Final = 64 * 1024
RULES_MAX: Final = 100
OPTIONS_MAX: Final = 200

_MARK: Final = b'<meta name="generator" content="dsup">'
"""It stands in the first lines of the template."""

_KEY: Final = (
    ("start", "start-up"),
    ("run", "training"),
    ("gap", "checkpoint"),
    ("still", "seemed to hang"),
    ("died", "died first"),
    ("victim", "victim"),
    ("own", "failed too"),
    ("stop", "ended by dsup"),
)


def render(story: Story) -> str:
    """Return the page.

    Args:
        story: what it tells; its texts may hold anything.
    """
    return _template().render(_values(story))


def is_page(head: bytes) -> bool:
    """Return whether a file that begins so is a page of dsup's, or empty."""
    return not head or _MARK in head


@functools.cache
def _template() -> jinja2.Template:
    made = jinja2.Environment(
        autoescape=True,
        finalize=words.shown,
        loader=jinja2.FunctionLoader(_read),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "cites": words.cites,
        "number": svg.number,
        "pieces": words.pieces,
    }
    return made.get_template("page.html.j2")


def policy(script: str) -> str:
    """Return the page's security policy: nothing but its own script and style."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    return resources.files(__package__ or "").joinpath(name).read_text("utf-8")


def _values(story: Story) -> dict[str, Any]:
    script = _read("script.js")
    main, attempt = story.main, story.attempt
    charts = _charts(story, attempt)
    kernel = story.kernel[-KERNEL_MAX_LINES:]
    numbers, compared = attempts.compared(story)
    proofs = tables.evidence(story)
    return {
        **charts,
        "story": story,
        "main": main,
        "verdict": main.verdict if main else None,
        "style": Markup(_read("style.css")),  # noqa: S704 (our own file)
        "script": Markup(script),  # noqa: S704 (our own file)
        "policy": policy(script),
        "title": phrases.title(story),
        "period": _period(story),
        "heading": _heading(story),
        "reasons": phrases.reasons(story),
        "facts": facts.facts(story),
        "width": WIDTH,
        "evidence": proofs,
        "timed": any(one.when for one in proofs),
        "zero": _zero(story),
        "quiet": tables.quiet(story),
        "would": main.verdict.would_change if main else (),
        "ends": tables.ends(story),
        "numbers": numbers,
        "compared": compared,
        "spent": spent(story.spent),
        "output": _output(story),
        "stacks": stacks.marked(story, STACKS_MAX_CHARS),
        "kernel": [words.capped(one, 1000) for one in kernel],
        "ranks": _ranks(story, attempt),
        "rules": main.verdict.looked[:RULES_MAX] if main else (),
        "silent": tables.silent(story),
        "open_output": _opens(story),
        "given": [o for o in story.options if o[2] != "default"][:OPTIONS_MAX],
        "unasked": [o[0] for o in story.options if o[2] == "default"][:OPTIONS_MAX],
        "made": f"{words.date(story.made_s)} {words.clock(story.made_s)}",
        "svg": svg,
    }


def _heading(story: Story) -> tuple[str, str]:
    main = story.main
    if main is None:
        return "", f"{story.outcome[:1].upper()}{story.outcome[1:]}" or story.name
    subject, rest = phrases.subject(main.verdict.summary)
    # The loud colour is the first rank's: where none is named, nobody gets it.
    return (subject, rest) if main.verdict.first_ranks else ("", f"{subject}{rest}")


def _period(story: Story) -> tuple[str, str, str] | None:
    """Return when the run was, in words and for a program; None if no clock tells."""
    if not story.clock or not story.attempts:
        return None
    first_s, last_s = story.attempts[0].start_s, story.attempts[-1].end_s
    when = words.period(first_s, last_s)
    zone = f"{words.NBSP}{story.zone}" if story.zone else ""
    return f"{when}{zone}", words.iso(first_s), words.iso(last_s)


def _zero(story: Story) -> str:
    at_s = phrases.died_s(story)
    return story.at(at_s) if at_s is not None else ""


def _charts(story: Story, attempt: Attempt | None) -> dict[str, Any]:
    whole, last = timeline.whole_run(story), last_seconds.last_seconds(story)
    zero_s = phrases.died_s(story)
    recent = timeline.shown(story) if whole else ()
    many = attempt is not None and len(attempt.ranks) > ROWS_MAX
    return {
        "whole": whole,
        "last": last,
        "strip": last_seconds.strip(story) if many else None,
        "key": key(whole, story),
        "whole_caption": phrases.caption(
            story, shown=len(recent), blocks=timeline.in_blocks(recent)
        ),
        "last_caption": last_seconds.caption(story, zero_s, attempt)
        if last and attempt and zero_s is not None
        else "",
    }


def key(chart: Chart | None, story: Story) -> list[tuple[str, str]]:
    """Return what the shapes of a chart mean, those that occur."""
    kinds = chart.kinds if chart else frozenset()
    attempt = story.attempt
    ready = attempt and any(life.ready_s is not None for life in attempt.ranks)
    hung = story.main is not None and story.main.verdict.cause == "hang"
    words_of = {
        "run": "training" if ready else "running",
        "died": "hangs first" if hung else "died first",
        "stop": f"ended by {phrases.ender(story)}",
    }
    return [(k, words_of.get(k, meaning)) for k, meaning in _KEY if k in kinds]


def _opens(story: Story) -> bool:
    """Return whether the output is what a person wants to read first."""
    if story.main is None or story.launcher != "dsup":
        return True
    return CAUSES[story.main.verdict.cause].family == "user"


def _output(story: Story) -> list[str]:
    kept: list[str] = []
    room = OUTPUT_MAX_CHARS
    for line in map(words.capped, reversed(story.output)):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]


def _ranks(story: Story, attempt: Attempt | None) -> list[tuple[str, ...]]:
    """Return every rank as a row, where there are more than the charts show."""
    if attempt is None or len(attempt.ranks) <= ROWS_MAX:
        return []
    found = roles(attempt)
    zero_s = phrases.died_s(story)
    rows: list[tuple[str, ...]] = []
    for life in attempt.ranks:
        role = found[life.rank]
        late = ""
        if life.end_s is not None and zero_s is not None:
            late = words.later(life.end_s - zero_s)
        pid = "" if life.pid is None else str(life.pid)
        kind = {
            "ended": f"ended by {phrases.ender(story)}",
            "told": f"told to end by {phrases.ender(story)}",
            "open": "unknown",
        }
        rows.append(
            (
                str(life.rank),
                pid,
                kind.get(role.kind, role.kind),
                words.ended(life.status),
                late,
            )
        )
    return rows
