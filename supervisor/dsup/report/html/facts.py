"""The strip of facts below the verdict: cause, certainty, rank, time, what followed."""

from __future__ import annotations

from typing import Final

from dsup.core.exits import CAUSES
from dsup.core.verdict import LOOKED_AT, Verdict
from dsup.report.html import phrases, words
from dsup.report.html.values import Story
from dsup.report.sentences import spans

_SLOW_MAX: Final = 3


def facts(story: Story) -> list[tuple[str, str, str]]:
    """Return the strip below the verdict: key, value, and a quiet line."""
    main = story.main
    if main is None:
        return _slow(story)
    verdict = main.verdict
    found = [
        ("cause", verdict.cause, CAUSES[verdict.cause].meaning),
        ("certainty", verdict.certainty, _rests_on(verdict)),
        _first(story),
    ]
    at_s = phrases.died_s(story)
    if at_s is not None:
        word = "began" if verdict.cause == "hang" else "died"
        found.append((word, story.at(at_s), _where_in_run(story)))
    elif verdict.evidence and verdict.evidence[0].file:
        one = verdict.evidence[0]
        line = "" if one.line is None else f"line {one.line}"
        found.append(("told in", one.file, line))
    found += _slow(story)
    found += _sequel(story)
    return found


def _slow(story: Story) -> list[tuple[str, str, str]]:
    """Return who was slower than its peers in any attempt, at most a few."""
    lags = [lag for attempt in story.attempts for lag in attempt.slow]
    worst = sorted(lags, key=lambda lag: -lag[1])[:_SLOW_MAX]
    return [
        ("straggler", f"rank {rank}: {times:.2g} times its peers' step", why)
        for rank, times, why in worst
    ]


def _first(story: Story) -> tuple[str, str, str]:
    main, attempt = story.main, story.attempt
    if main is None or not main.verdict.first_ranks:
        return "first rank", "none named", ""
    ranks = main.verdict.first_ranks
    node = f" on {main.node}" if main.node else ""
    if len(ranks) > 1:
        return "first ranks", f"{spans(ranks)}{node}", words.count(len(ranks), "rank")
    lives = attempt.ranks if attempt else ()
    life = next((one for one in lives if one.rank == ranks[0]), None)
    pid = f"pid {life.pid}" if life and life.pid is not None else ""
    status = words.ended(life.status) if life else ""
    return "first rank", f"{ranks[0]}{node}", " · ".join(filter(None, (pid, status)))


def _rests_on(verdict: Verdict) -> str:
    if verdict.certainty == "unknown":
        return "see what is missing" if verdict.would_change else "no rule could tell"
    whose = {None, *verdict.first_ranks}
    proofs = [
        (number, one.rank)
        for number, one in enumerate(verdict.evidence, 1)
        if not one.text.startswith(LOOKED_AT)
    ]
    # Of one that was silent only others tell.
    cited = [n for n, rank in proofs if rank in whose] or [n for n, _ in proofs]
    if not cited:
        return f"rule {verdict.rule}"
    joined = spans(cited).replace("-", " to E").replace(", ", ", E")
    return f"rests on E{joined}"


def _where_in_run(story: Story) -> str:
    attempt = story.attempt
    if attempt is None or (story.launcher != "dsup" and len(story.told) == 1):
        return ""
    step = attempt.stepped[1][1] if attempt.stepped else None
    first = story.main.verdict.first_ranks if story.main else ()
    own = [life.step for life in attempt.ranks if life.rank in first]
    step = next((one for one in own if one is not None), step)
    return f"attempt {attempt.number}" + ("" if step is None else f", step {step}")


def _sequel(story: Story) -> list[tuple[str, str, str]]:
    main = story.main
    if main is None or story.launcher != "dsup":
        return [("launcher", story.launcher, "")] if story.launcher != "dsup" else []
    if main.ended is None:
        said = main.next_text
        return [("then dsup", _act(said), said)] if said else []
    code, origin = main.ended
    act, _, why = story.outcome.partition(": ")
    gave_up = "given up" in act
    then = ("then dsup", "gave up" if gave_up else "ended", why or act)
    whose = "the rank's own" if origin == "rank" else "dsup's own"
    made_of = words.code_words(code) or whose
    return [then, ("exit code", str(code), made_of)]


def _act(text: str) -> str:
    words = ("was started", "is to start")
    again = text.startswith("restart") or any(word in text for word in words)
    return "started again" if again else "ended"
