"""Rules for logs in which ranks only lost each other, and for bare summaries.

A communication error is never a cause while another rank's end is unexplained. So these
rules come last; they say who is missing, and call it the network only where its own
words say so or where every rank is accounted for.
"""

from __future__ import annotations

from typing import Final

from dsup.attribution.logged.owners import ended_first
from dsup.attribution.logged.places import Fact, contradict
from dsup.attribution.logged.saying import Finding, verdict, who
from dsup.attribution.logged.signs import Reading, how_lost
from dsup.attribution.wording import one_line, others, status_text, subject
from dsup.core.exits import SIGTERM, WRONG_CALL
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.logs.said import Complaint, End, Error

_CITED: Final = 5
_UNREACHABLE: Final = (
    "no route to host",
    "network is unreachable",
    "connectfullmesh failed",
    "software caused connection abort",
    "got completion from peer",
    "net/ofi request",
)
_RENDEZVOUS: Final = ("rendezvous", "keep-alive", "tcpstore", "etcd")


def early_exit(log: Reading) -> Verdict | None:
    """Name ranks that had finished before the others lost them.

    Symptom: exit code 0, or words like "training done" of a rank, and then closed
    connections of ranks that still trained. Not where most had finished.
    """
    if not log.lost:
        return None
    limit = log.lost[0].order
    gone = {r for r, p in log.attempt.progress.items() if r >= 0 and p.done}
    gone = {r for r in gone if log.attempt.progress[r].order < limit}
    gone |= {
        e.place.rank
        for e in log.attempt.ends
        if e.status == 0 and e.place.rank is not None and not e.by_launcher
    }
    ranks = tuple(sorted(gone - {f.place.rank for f in log.lost}))
    speakers = {f.place.rank for f in log.lost}
    if not ranks or len(ranks) > len(speakers):
        return None
    text = f"{subject(ranks)} ended while {others(len(speakers))} still trained"
    found = Finding("early_exit", "early_exit", ranks, "likely", log.lost[0], text)
    return verdict(log.attempt, found._replace(rest=log.lost[1:_CITED], status=0))


def port_failed(log: Reading) -> Verdict | None:
    """Name no rank where the network itself says that it does not reach a peer.

    Symptom: ``Got completion from peer … with error 12`` (retries used up), ``No route
    to host``, a mesh of connections that cannot be made: the peer's node, a link or a
    switch between. It names the peer, not who is at fault.
    """
    told = [f for f in log.lost if _kind(f) == "completion" or _unreachable(f)]
    if not told:
        return None
    text = f"The network between nodes failed: {told[0].text}"
    found = Finding("port_failed", "nccl_network", (), "likely", told[0], text)
    return verdict(log.attempt, found._replace(rest=tuple(told[1:_CITED])))


def store_gone(log: Reading) -> Verdict | None:
    """Name the store's host where the store, or its rendezvous, is what ranks miss.

    Symptom: ``failed to recv, got 0 bytes``, a keep-alive that fails, a rendezvous that
    cannot be reached. Rank 0 hosts the store: it is named only if every other rank of a
    known world speaks; why it went is not in these lines.
    """
    told = [f for f in log.lost if how_lost(f) == "store lost"]
    nodes = [c for c in log.attempt.complaints if c.kind == "node"]
    rendezvous = [c for c in nodes if _says(c, _RENDEZVOUS)]
    others_lost = [f for f in log.lost if how_lost(f) != "store lost"]
    first = next(iter((*told, *rendezvous)), None)
    if first is None or any(f.order < first.order for f in others_lost):
        return None
    speakers = {f.place.rank for f in log.lost if f.place.rank is not None}
    world = log.attempt.world_size
    alone = world is not None and speakers == set(range(1, world))
    ranks = (0,) if alone else ()
    text = f"The store went away, and why is not in this log: {first.text}"
    if ranks:
        text = f"Rank 0, the host of the store, went first: {first.text}"
    certainty: Certainty = "guess" if ranks else "likely"
    found = Finding("store_gone", "store_lost", ranks, certainty, first, text)
    return verdict(log.attempt, found._replace(rest=tuple(told[1:_CITED])))


def node_gone(log: Reading) -> Verdict | None:
    """Name no rank where a node or pod went away.

    Symptom: a scheduler's or launcher's line that a node failed, a pod was lost.
    """
    told = next((c for c in log.attempt.complaints if c.kind == "node"), None)
    if told is None:
        return None
    text = f"A node went away: {told.text}"
    found = Finding("node_gone", "node_lost", (), "likely", told, text)
    return verdict(log.attempt, found)


def peer_gone(log: Reading) -> Verdict | None:
    """Name the one rank that all others of a known world lost.

    Symptom: closed connections of every rank but one, which says nothing. Why it went
    is not known: the cause is unknown.
    """
    speakers = {fact.place.rank for fact in log.lost}
    world = log.attempt.world_size
    if not log.lost or world is None or None in speakers or log.timeouts:
        return None
    missing = set(range(world)) - {rank for rank in speakers if rank is not None}
    if len(missing) != 1:
        return None
    ranks = tuple(missing)
    text = f"{subject(ranks)} went first, and why is not in this log"
    found = Finding("peer_gone", "unknown", ranks, "guess", log.lost[0], text)
    return verdict(log.attempt, found._replace(rest=log.lost[1:_CITED]))


def only_victims(log: Reading) -> Verdict | None:
    """Say who is missing where all that speak lost their peers.

    Symptom: communication errors alone. Every rank of the world accounted for: the
    network between them may have failed. Otherwise the cause is unknown.
    """
    if not log.lost:
        return None
    speakers = {f.place.rank for f in log.lost if f.place.rank is not None}
    kinds = ", ".join(sorted({how_lost(fact) for fact in log.lost}))
    world, first = log.attempt.world_size, log.lost[0]
    rest = log.lost[1:_CITED]
    if world is not None and len(speakers) == world > 1:
        text = (
            f"All {world} ranks lost each other ({kinds}): the network may have failed"
        )
        found = Finding("only_victims", "nccl_network", (), "guess", first, text, rest)
        return verdict(log.attempt, found)
    subj = subject(speakers) if speakers else "Ranks"
    peer = next((f.peer for f in log.lost if isinstance(f, Complaint) and f.peer), "")
    whom = f"{one_line(peer, 60)}" if peer else "others"
    text = f"{subj} lost {whom} ({kinds}); why these went is not in this log"
    found = Finding("only_victims", "unknown", (), "unknown", first, text, rest)
    return verdict(log.attempt, found)


def summary(log: Reading) -> Verdict | None:
    """Name the rank that a launcher saw end first, where no stream says anything.

    Symptom: ``failed (exitcode: 1)``, a failure summary, ``exits with return code``. A
    summary's root cause is the lowest index among failures of one look: where several
    have the same second, all of them are named. Exit code 2 of all: refused arguments.
    """
    ends = [end for end in log.ends if not _lost_it(log, end)]
    told = [e for e in ends if e.status is not None and e.status != -SIGTERM]
    told = told or [e for e in ends if e.status == -SIGTERM]
    if not told:
        return None
    ranked = [e for e in told if e.place.rank is not None]
    first = ended_first(ranked) if ranked else tuple(told[:1])
    ranks = tuple(e.place.rank for e in first if e.place.rank is not None)
    status = first[0].status or 1
    codes = {e.status for e in told}
    if codes == {WRONG_CALL}:
        text = f"The script refused its arguments: {status_text(WRONG_CALL)} of all"
        found = Finding("summary", "config_error", (), "likely", first[0], text)
        return verdict(log.attempt, found._replace(status=WRONG_CALL))
    cause = "killed" if status < 0 else "python_exception"
    whose = "their" if len(ranks) > 1 else "its"
    text = (
        f"{who(ranks, log.attempt)} ended with {status_text(status)}; {whose} output "
        "is not in this log"
    )
    certainty: Certainty = "likely" if len(ranks) == 1 else "guess"
    found = Finding(
        "summary", cause, ranks, certainty, first[0], text, tuple(first[1:])
    )
    return verdict(
        log.attempt,
        found._replace(status=status, signature=status_text(status)),
    )


def ended_by_launcher(log: Reading) -> Verdict | None:
    """Name no rank where a launcher ended its processes and does not say why.

    Symptom: ``Killing subprocess 6193`` and its like, alone. Source: a launcher ends
    the others once one has failed; the failed one's words, or the launcher's word of
    how it ended, are missing: SIGKILL leaves none.
    """
    ends = [end for end in log.attempt.ends if end.by_launcher]
    if not ends or log.ends or log.lost or log.signs:
        return None
    by = log.attempt.launcher or "its launcher"
    text = f"One rank ended without a word in this log, and {by} ended the others"
    found = Finding("ended_by_launcher", "unknown", (), "unknown", ends[0], text)
    return verdict(log.attempt, found._replace(rest=tuple(ends[1:_CITED])))


def _lost_it(log: Reading, end: End) -> bool:
    """Return whether this may be the end of a rank that lost its peers."""
    if log.lost and end.place.rank is None:
        return True
    # mpirun tells of the first process that it saw fail, and of no other.
    told = [f for f in log.lost if end.source != "mpirun" or f.place.rank is not None]
    return any(not contradict(fact.place, end.place) for fact in told)


def _kind(fact: Fact) -> str:
    return fact.kind if not isinstance(fact, Error | End) else ""


def _unreachable(fact: Fact) -> bool:
    lowered = fact.text[:2048].lower()
    return any(words in lowered for words in _UNREACHABLE)


def _says(complaint: Complaint, words: tuple[str, ...]) -> bool:
    lowered = complaint.text[:2048].lower()
    return any(word in lowered for word in words)
