"""What a word means that dsup prints, or that a driver prints for dsup: pure.

The texts are those of the tables that dsup judges by; there is no second copy here, but
for exit codes that no cause has.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from dsup.attribution.advice import ADVICE
from dsup.attribution.logged.rules import RULES as LOG_RULES
from dsup.attribution.rules import RULES
from dsup.core.errors import SpecError
from dsup.core.exits import (
    BUG,
    CANNOT_EXECUTE,
    CAUSES,
    NOT_FOUND,
    OK,
    REPEATED,
    SIGHUP,
    SIGINT,
    SIGNALLED,
    SIGQUIT,
    SIGTERM,
    WRONG_CALL,
    is_decisive,
    signal_name,
    stop_code,
)
from dsup.core.printable import printable
from dsup.facts import sxids, xids

RUNBOOK: Final = "docs/runbook.md of dsup's source"
CODE_MAX: Final = 255
_SIGNAL_MAX: Final = 64
_NUMBERED: Final = re.compile(
    r"(sxid|xid|exit|code|rc|signal|sig|-)?[ :=#]{0,4}(\d{1,9})", re.ASCII
)
_CODES: Final[Mapping[int, str]] = {
    OK: "every rank ended with 0",
    REPEATED: "a user cause without a usable code of its own, or a repeated failure",
    WRONG_CALL: "a wrong call of dsup: nothing was started",
    BUG: "a bug in dsup",
    CANNOT_EXECUTE: "the program is there and cannot be executed",
    NOT_FOUND: "the program is not there",
}
_OF_NUMBERS: Final[Mapping[str, int]] = {
    "xid": 79,
    "sxid": 20034,
    "exit": 193,
    "code": 193,
    "signal": 9,
}
"""Words that mean something only with a number behind them, and an example."""

_GUESSES_MAX: Final = 4
_STOPS: Final = frozenset(stop_code(n) for n in (SIGHUP, SIGINT, SIGQUIT, SIGTERM))
_GRAVITY: Final[Mapping[sxids.Gravity, str]] = {
    "always": "fatal, unless its line says otherwise",
    "if_said": "fatal if its line says so",
    "never": "not fatal by itself",
    "unknown": "not known: its line says it",
}


class Meaning(NamedTuple):
    """One meaning of a word.

    Attributes:
        kind: ``xid``, ``sxid``, ``exit_code``, ``signal``, ``cause`` or ``rule``.
        name: the word as dsup writes it.
        text: what it means, one sentence.
        rows: what else there is to say, each under a label.
    """

    kind: str
    name: str
    text: str
    rows: tuple[tuple[str, str], ...]


def meanings(word: str) -> tuple[Meaning, ...]:
    """Return every meaning of a word; a bare number may have several.

    Args:
        word: such as ``79``, ``sxid 10003``, ``exit 193``, ``SIGKILL``, ``host_oom``.

    Raises:
        SpecError: if it has none; names what is spelled like it.
    """
    said = " ".join(word.lower().split()).replace("exit code", "code")
    found = tuple(_numbered(said)) or tuple(_named(said.replace("-", "_")))
    if found:
        return found
    raise SpecError(
        f"cannot explain {printable(word[:60])!r}, because dsup has no such word "
        f"({_hint(said)})"
    )


def _numbered(said: str) -> Iterator[Meaning]:
    found = _NUMBERED.fullmatch(said)
    if not found:
        return
    prefix, number = found[1] or "", int(found[2])
    code = prefix in {"", "exit", "code", "rc"} and number <= CODE_MAX
    # Few Xids are as high, and none of them as common as a death by a signal.
    if code and number >= SIGNALLED:
        yield _code(number)
    if prefix == "xid" or (not prefix and _may_be_xid(number)):
        yield _xid(number)
    if prefix == "sxid" or (not prefix and number in sxids.SXIDS):
        yield _sxid(number)
    if code and number < SIGNALLED:
        yield _code(number)
    if prefix in {"signal", "sig", "-"} and 0 < number <= _SIGNAL_MAX:
        yield _signal(number)


def _may_be_xid(number: int) -> bool:
    """Return whether a bare number is worth to be told of as an Xid."""
    return number < SIGNALLED or number in xids.XIDS or number > CODE_MAX


def _named(said: str) -> Iterator[Meaning]:
    if said in CAUSES:
        yield _cause(said)
    for rule in _rules():
        if rule.__name__ == said:
            yield _rule(rule)
    number = _signals().get(said)
    if number is not None:
        yield _signal(number)


def _xid(number: int) -> Meaning:
    xid = xids.catalogued(number)
    role = "a remark that names nobody"
    if xid.klass == "application":
        role = (
            "it bears out a cuda_error or device_assert of the rank; no GPU is blamed"
        )
    elif xids.is_device(number):
        role = "on a rank's GPU, before that rank ended, it is the cause gpu_hardware"
    return Meaning(
        "xid",
        f"Xid {number}",
        xid.meaning,
        (
            ("class", xid.klass),
            ("ends", xids.DIES[xid.dies]),
            ("at fault", xid.blames),
            ("to do", xid.advice),
            ("for dsup", role),
            ("runbook", f"{RUNBOOK}, section Xid"),
        ),
    )


def _sxid(number: int) -> Meaning:
    sxid = sxids.catalogued(number)
    rows = (("gravity", _GRAVITY[sxid.gravity]), ("to do", sxid.advice))
    return Meaning(
        "sxid", f"SXid {number:05d}", f"of an NVSwitch: {sxid.meaning}", rows
    )


def _code(number: int) -> Meaning:
    causes = [name for name, row in CAUSES.items() if row.code == number]
    by_signal = number > SIGNALLED and number - SIGNALLED <= _SIGNAL_MAX
    text = _CODES.get(number, "")
    if not text and by_signal:
        name = signal_name(number - SIGNALLED)
        stopped = f"the run was stopped by {name}, or " if number in _STOPS else ""
        text = f"{stopped}the first rank died of {name}"
    if not text and causes:
        text = CAUSES[causes[0]].meaning if len(causes) == 1 else "one of these causes"
    if not text:
        text = "the first rank's own exit code" if number < SIGNALLED else "not dsup's"
    again = "trying again gives the same"
    if number >= SIGNALLED:
        again = "another try is worth it"
    rows = [("try again", again if number else "nothing is left to do")]
    rows += [("cause", f"{name}: {CAUSES[name].meaning}") for name in causes[:12]]
    rows.append(("runbook", f"{RUNBOOK}, section Exit codes"))
    return Meaning("exit_code", f"exit code {number}", text, tuple(rows))


def _signal(number: int) -> Meaning:
    own = "no other rank's end brings it about: the rank itself was first"
    sent = "another rank, a launcher or a user may have brought it about"
    causes = [
        f"{name}: {row.meaning}"
        for name, row in CAUSES.items()
        if row.code == SIGNALLED + number
    ]
    return Meaning(
        "signal",
        signal_name(number),
        f"signal {number}; a rank that dies of it has status {-number}",
        (
            ("decisive", own if is_decisive(-number) else sent),
            ("exit code", f"{SIGNALLED + number} (128+{number})"),
            *(("cause", text) for text in causes),
        ),
    )


def _cause(name: str) -> Meaning:
    row, advice = CAUSES[name], ADVICE.get(name)
    code = f"{row.code}, or 128+n for signal n" if row.by_signal else str(row.code)
    if row.family == "user":
        code = f"the first rank's own, else {row.code}"
    to_do = (("to do", advice.text),) if advice else ()
    return Meaning(
        "cause",
        name,
        row.meaning,
        (
            ("family", row.family),
            ("exit code", code),
            *to_do,
            ("runbook", f"{RUNBOOK}, section Causes, `{name}`"),
        ),
    )


def _rule(rule: Callable[..., object]) -> Meaning:
    first, _, rest = (inspect.getdoc(rule) or "").partition("\n\n")
    paragraphs = [" ".join(part.split()) for part in rest.split("\n\n") if part.strip()]
    of = "what a log says" if rule in LOG_RULES else "a run of dsup's own"
    rows = (("judges", of), *(("how", text) for text in paragraphs))
    return Meaning("rule", rule.__name__, " ".join(first.split()), rows)


def _rules() -> tuple[Callable[..., object], ...]:
    return (*RULES, *LOG_RULES)


def _signals() -> dict[str, int]:
    """Return the numbers of signals, by their names with and without SIG."""
    names = {signal_name(n).lower(): n for n in range(1, _SIGNAL_MAX + 1)}
    return names | {name.removeprefix("sig"): n for name, n in names.items()}


def _hint(said: str) -> str:
    rules = (rule.__name__ for rule in _rules())
    known = sorted({*CAUSES, *rules, *_signals()})
    if said in _OF_NUMBERS:
        return f"give its number: dsup explain {said} {_OF_NUMBERS[said]}"
    word = said.replace("-", "_")[:60]
    parts = [one for one in known if word in one.split("_")]
    near = parts[:_GUESSES_MAX] or difflib.get_close_matches(word, known, 3, 0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "give an Xid, an exit code, a signal, a cause or a rule"
