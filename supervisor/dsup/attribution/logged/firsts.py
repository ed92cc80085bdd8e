"""Rules about the first own sign: what a rank did that no other's end leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dsup.attribution.logged.memory import memory_heavy, oom_told
from dsup.attribution.logged.owners import owners
from dsup.attribution.logged.places import Fact
from dsup.attribution.logged.saying import (
    Finding,
    exception,
    memory_asked,
    message,
    verdict,
    who,
)
from dsup.attribution.logged.signs import Reading, Sign
from dsup.attribution.wording import alike, one_line, status_text, was
from dsup.core.exits import SIGKILL
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.logs.said import Complaint, Error

_CITED: Final = 6
_LAST_WORDS: Final = frozenset({"glibc", "crash"})
_DONE: Final = {
    "cuda_oom": "ran out of GPU memory",
    "cuda_error": "met a CUDA error",
    "device_assert": "failed a device-side assertion",
    "host_oom": "ran out of host memory",
    "sigbus": "got a bus error",
    "disk_full": "could not write: the disk or quota is full",
    "storage_io": "could not reach its storage",
    "port_in_use": "could not listen on its port",
    "dataloader_worker": "lost a DataLoader worker",
    "numeric_divergence": "met a value that is no number",
    "config_error": "refused its arguments",
    "checkpoint_error": "could not load its checkpoint",
    "abort": "aborted",
    "killed": "was killed from outside",
    "segfault": "crashed with a segmentation fault",
    "nccl_network": "could not use its network device",
}


def hardware(log: Reading) -> Verdict | None:
    """Name the rank whose GPU or driver spoke first, whatever it raised afterwards.

    Symptom: uncorrectable ECC, a lost GPU, an Xid; by time, then by order. A traceback
    that follows on that rank is the fault seen from above. A kernel's line bears no
    rank: it is likely that of the only rank that met a CUDA error.
    """
    found = [s for s in log.signs if s.cause == "gpu_hardware"]
    if not found:
        return None
    ranks = owners(log, found[:1])
    above = {s.rank for s in log.signs if s.cause == "cuda_error"}
    if not ranks and len(above) == 1:
        ranks = tuple(rank for rank in above if rank is not None)
    text = f"{who(ranks, log.attempt)} met a GPU fault: {_told(found[0])}"
    return _verdict(log, "hardware", found[:1], (ranks, text))


def network_device(log: Reading) -> Verdict | None:
    """Name the node whose own network port spoke before anything else failed.

    Symptom: ``Got async event : port error`` or ``local catastrophic error``: the
    speaker's own NIC. The ranks that say so are named where their lines bear one.
    """
    ports = [s for s in log.signs if _is_nic(s)]
    rest = [s for s in log.signs if not _is_nic(s)]
    if not ports or (rest and rest[0].order < ports[0].order):
        return None
    ranks = tuple(sorted({s.rank for s in ports if s.rank is not None}))
    node = ports[0].fact.place.node
    where = f"node {one_line(node, 60)}" if node else "one node"
    text = f"The network port of {where} failed: {_told(ports[0])}"
    return _verdict(log, "network_device", ports, (ranks, text))


def all_alike(log: Reading) -> Verdict | None:
    """Blame no single rank where every rank raised the same exception.

    Symptom: equal type and text, but for numbers, on all ranks of the world, at least
    two: a missing module, a bad argument. Which one printed first says nothing.
    """
    ranks = {sign.rank for sign in log.leaders} - {None}
    world = log.attempt.world_size
    if len(ranks) < 2 or (world is not None and len(ranks) < world):  # noqa: PLR2004
        return None
    return _raised(log, "all_alike")


def raised(log: Reading) -> Verdict | None:
    """Name the rank that raised an exception of its own before any other own sign.

    Symptom: a traceback of a type that has nothing to do with communication, by its
    time stamp, else by its place. Several ranks where text and second are the same.
    """
    return _raised(log, "raised")


def killed(log: Reading) -> Verdict | None:
    """Name the rank that SIGKILL ended first.

    Symptom: ``exitcode: -9``, 137, ``Killed``, which the launcher had not brought about
    itself. It is memory where a kernel or scheduler says so, or, as a guess, where the
    last output is of work that fills the host's memory; else the sender is unknown.
    """
    group = log.leaders
    if not group or group[0].cause != "killed":
        return None
    ranks = owners(log, group)
    done = f"{who(ranks, log.attempt, _processes(group))} {was(ranks or (0,))}"
    told = oom_told(log.attempt)
    phase = memory_heavy(log.attempt)
    if told is not None:
        text = f"{done} killed, out of host memory: {told.text}"
    elif phase:
        text = f"{done} likely killed, out of host memory: SIGKILL {phase}"
    elif isinstance(group[0].fact, Error):
        text = f"{done} gone, likely killed from outside: {_told(group[0])}"
        return _verdict(log, "killed", group, (ranks, text), "guess")
    else:
        text = f"{done} killed by SIGKILL from outside: not by the launcher"
        return _verdict(log, "killed", group, (ranks, text), "likely")
    found = Finding("killed", "host_oom", ranks, "guess", group[0].fact, text)
    if told is not None:
        found = found._replace(certainty="proven", rest=(told,))
    return verdict(log.attempt, found._replace(status=-SIGKILL, signature="oom"))


def crashed(log: Reading) -> Verdict | None:
    """Name the rank that a signal of its own making ended first.

    Symptom: SIGSEGV, SIGBUS, SIGILL, SIGFPE or an unexplained SIGABRT. Source: the wait
    status, as the launcher tells it; why, from the process's own last words.
    """
    group = log.leaders
    if not group or group[0].sort not in {"signal", "abort"}:
        return None
    ranks = owners(log, group)
    why = _why(log, ranks)
    done = _DONE.get(group[0].cause, "was ended")
    reason = f": {one_line(why.text, 160)}" if why is not None else ""
    by = status_text(group[0].status)
    text = f"{who(ranks, log.attempt, _processes(group))} {done} ({by}){reason}"
    return _verdict(log, "crashed", group, (ranks, text))


def said(log: Reading) -> Verdict | None:
    """Name the rank whose words, though no traceback, tell of a fault of its own.

    Symptom: a CUDA error inside a watchdog's or NCCL's line (what follows
    ``exception:`` counts, never the words before it), glibc's last words, a full disk,
    a lost DataLoader worker. A wrong set-up is all ranks' alike: none is named.
    """
    group = log.leaders
    if not group or group[0].sort != "words":
        return None
    refused = group[0].cause in {"config_error", "collective_mismatch"}
    ranks = () if refused else owners(log, group)
    done = _DONE.get(group[0].cause, "failed")
    text = f"{who(ranks, log.attempt, _processes(group))} {done}: {_told(group[0])}"
    return _verdict(log, "said", group, (ranks, text))


def _raised(log: Reading, rule: str) -> Verdict | None:
    group = log.leaders
    first = group[0].fact if group else None
    if not isinstance(first, Error) or group[0].sort != "exception":
        return None
    cause = group[0].cause
    ranks = owners(log, group)
    subject = who(ranks, log.attempt, _processes(group))
    text = f"{subject} raised {exception(first)}"
    if cause in {"cuda_oom", "dataloader_worker"}:
        told = memory_asked(first) if cause == "cuda_oom" else message(first)
        text = ": ".join(part for part in (f"{subject} {_DONE[cause]}", told) if part)
    certainty: Certainty = "proven" if group[0].rank is not None else "likely"
    found = _verdict(log, rule, group, (ranks, text), certainty)
    mark = f"{one_line(first.type, 80)}: {alike(message(first))}"
    return found._replace(signature=mark)


def _verdict(
    log: Reading,
    rule: str,
    group: Sequence[Sign],
    said: tuple[tuple[int, ...], str],
    certainty: Certainty = "proven",
) -> Verdict:
    """Return what a rule says of these signs: of which ranks, in which words."""
    ranks, text = said
    first = group[0]
    if not ranks and certainty == "proven":
        certainty = "likely"
    more = [sign.fact for sign in group[1:_CITED]]
    found = Finding(rule, first.cause, ranks, certainty, first.fact, text)
    return verdict(
        log.attempt,
        found._replace(
            rest=(*more, *_also(log, ranks, (first.fact, *more))),
            status=first.status,
            signature=first.cause,
        ),
    )


def _also(
    log: Reading, ranks: tuple[int, ...], cited: tuple[Fact, ...]
) -> tuple[Fact, ...]:
    """Return what else is known of these ranks: last words, and the launcher's."""
    why = _why(log, ranks)
    known: list[Fact] = [why] if why is not None else []
    known += [e for e in log.attempt.ends if e.place.rank in ranks]
    numbers = {fact.order for fact in cited}
    return tuple(f for f in known[:3] if f.order not in numbers)


def _processes(group: Sequence[Sign]) -> int:
    """Return how many processes are known to have said the same.

    Without a prefix they may be one process's lines, printed over and over.
    """
    return max(1, len({s.fact.place for s in group}))


def _told(sign: Sign) -> str:
    text = sign.fact.text
    if isinstance(sign.fact, Error):
        text = message(sign.fact)
    _, found, what = text.partition("terminated with exception: ")
    return one_line(what if found else text, 160)


def _why(log: Reading, ranks: tuple[int, ...]) -> Complaint | None:
    """Return what a crashed process said itself: glibc's words, a fault handler's."""
    for complaint in log.attempt.complaints:
        rank = complaint.place.rank
        if complaint.kind in _LAST_WORDS and (rank is None or rank in ranks):
            return complaint
    return None


def _is_nic(sign: Sign) -> bool:
    return isinstance(sign.fact, Complaint) and sign.fact.kind == "nic"
