"""The rule about ranks that called different collectives."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

from dsup.attribution import proof
from dsup.attribution.accounts import Account, accounts, leaders, words
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import one_line, others, sentence, subject
from dsup.core.verdict import Evidence, Verdict
from dsup.facts.raised import Raised

_PRINT: Final = re.compile(
    r"Rank (\d{1,7}) is running collective: CollectiveFingerPrint\("
    r"SequenceNumber=(\d{1,19}), OpType=(\w{1,40})(?:, TensorShape=\[([\d, ]{0,80})\])?"
)
_SIZES: Final = re.compile(
    r"op\.preamble\.length <= op\.nbytes\. (?P<sent>\d{1,18}) vs (?P<waited>\d{1,18})"
)
_LOOKED_AT_CHARS: Final = 8192
_NAMES: Final = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "ALLTOALL": "all_to_all",
    "_ALLGATHER_BASE": "all_gather_into_tensor",
}


class Call(NamedTuple):
    """What a rank called, as its fingerprint tells."""

    number: str
    op: str
    shape: str

    @property
    def name(self) -> str:
        """The function's name, such as ``all_reduce``."""
        return _NAMES.get(self.op, self.op.lower())


def mismatched(timeline: Timeline) -> Verdict | None:
    """Name the ranks that called another collective than most.

    Symptom: ``Detected mismatch between collectives``, which the process group's
    wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL raises on every rank with the
    fingerprints of two of them.
    """
    first = next(iter(leaders(timeline)), None)
    if first is None or first.told is None or not _PRINT.search(_text(first.told)):
        return None
    told = [a.told for a in accounts(timeline) if a.told is not None]
    calls = _calls(told)
    counted = Counter(calls[rank] for rank in sorted(calls)).most_common(2)
    if len(counted) < 2:  # noqa: PLR2004
        return None
    (usual, many), (_, fewer) = counted
    clear = fewer < many
    odd = tuple(sorted(r for r, call in calls.items() if call != usual or not clear))
    evidence = (
        *proof.of_all_raised(timeline, told),
        *proof.of_end(first),
    )
    return Verdict(
        timeline.attempt,
        "collective_mismatch",
        odd,
        "proven",
        first.from_s,
        _sentence(timeline, odd, calls, usual),
        "mismatched",
        evidence,
        status=first.status,
        signature=f"{calls[odd[0]].name} {usual.name}",
    )


def sizes_differ(timeline: Timeline) -> Verdict | None:
    """Name no rank where one was sent another amount of data than it waited for.

    Symptom: gloo's ``op.preamble.length <= op.nbytes. 8 vs 4``, which ends the process
    that receives: as an abort, for its thread throws. Who of the two called something
    else cannot be known. Source: gloo/transport/tcp/pair.cc.
    """
    told = [(a, found) for a in leaders(timeline) if (found := _sizes(timeline, a))]
    if not told:
        return None
    account, sizes = told[0]
    text = (
        f"The ranks called different collectives: rank {account.rank} was sent "
        f"{sizes['sent']} bytes where it waited for {sizes['waited']}"
    )
    evidence = (
        *(line for a, found in told[:4] for line in _of_sizes(a, found)),
        *proof.of_end(account),
    )
    return Verdict(
        timeline.attempt,
        "collective_mismatch",
        (),
        "proven",
        account.from_s,
        sentence(text),
        "sizes_differ",
        evidence,
        status=account.status,
        signature="sizes of a collective",
    )


def _sizes(timeline: Timeline, account: Account) -> re.Match[str] | None:
    last = words(timeline, account.rank)
    raised = (_text(account.told),) if account.told else ()
    said = (*raised, last.crash, *last.lines, last.line)
    return next((found for text in said if (found := _SIZES.search(text))), None)


def _of_sizes(account: Account, found: re.Match[str]) -> tuple[Evidence, ...]:
    text = one_line(found.string[found.start() :])
    return (Evidence("stderr", text, account.rank, account.until_s),)


def _calls(told: list[Raised]) -> dict[int, Call]:
    return {
        int(match[1]): Call(match[2], match[3], match[4] or "")
        for raised in told
        for match in _PRINT.finditer(_text(raised))
    }


def _text(raised: Raised) -> str:
    return raised.text[:_LOOKED_AT_CHARS]


def _sentence(
    timeline: Timeline, odd: tuple[int, ...], calls: dict[int, Call], usual: Call
) -> str:
    if len(odd) == len(calls):
        each = (f"rank {r} called {_described(calls[r], usual)}" for r in odd[:4])
        return sentence(f"The ranks called different collectives: {', '.join(each)}")
    one = calls[odd[0]]
    rest = others(timeline.world_size - len(odd))
    called = f"{subject(odd)} called {_described(one, usual)} as #{one.number}"
    return sentence(f"{called} where {rest} called {_described(usual, one)}")


def _described(call: Call, other: Call) -> str:
    """Return what tells a call from the other: its name, else its shape."""
    if call.op != other.op or call.shape == other.shape:
        return call.name
    return f"{call.name} of shape [{call.shape}]"
