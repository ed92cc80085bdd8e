"""Steps that all ranks take together, each of which may fail on any of them.

Whatever a rank meets in its own part, the others are told before anyone goes on: so all
of them take the same path, and none waits for one that has left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dsup_runtime import deferred, side_group, worker_info
from dsup_runtime.errors import CheckpointError, PeerError
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S: Final = 1800.0
"""How long ranks wait for one that writes, sums or reads, seconds: gloo's own limit.

One that died is noticed at once.
"""

MEETING_S: Final = 300.0
"""How long ranks that come to a call may be apart, seconds, if nobody said it."""


def together(where: str, work: Callable[[], Any]) -> list[Any] | None:
    """Do this rank's part of a phase, and learn how the others fared.

    An error waits: it is kept for the next agreed stop (see ``deferred``).

    Args:
        where: the phase, for messages.
        work: this rank's part; it must not wait for another rank.

    Returns:
        What each rank's part returned, by rank; None on all ranks if one failed.

    Raises:
        PeerError: if a rank does not take part.
    """
    value, failure = None, None
    try:
        value = work()
    except Exception as error:  # noqa: BLE001 (kept, and told to all)
        deferred.keep(error, where=where)
        failure = _words(error)
    answers = side_group.exchange([value, failure], timeout_s=PATIENCE_S)
    failures = {rank: words for rank, (_, words) in enumerate(answers) if words}
    for rank, words in failures.items():
        if rank != side_group.rank():
            log.error("%s failed on rank %d: %s", where, rank, words)
    return None if failures else [value for value, _ in answers]


def told_by_main(work: Callable[[], Any]) -> Any:  # noqa: ANN401 (JSON)
    """Have rank 0 do something, and return its result on all ranks.

    Raises:
        CheckpointError: on all ranks, if rank 0 raised it.
        PeerError: on the others, if rank 0 raised something else.
    """
    value, failure = None, None
    if side_group.rank() == 0:
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 (raised below, once all know)
            failure = error
    answer = side_group.exchange(
        [value, failure and _words(failure), isinstance(failure, CheckpointError)],
        timeout_s=PATIENCE_S,
    )[0]
    if failure is not None:
        raise failure
    value, words, ours = answer
    if words:
        raise CheckpointError(words) if ours else PeerError(words, ranks=(0,))
    return value


def meet(value: Any) -> list[Any]:  # noqa: ANN401 (JSON)
    """Come together at the beginning of a call, and return what every rank gave.

    Ranks come out of one step, so they are not far apart: who does not come within the
    limit of a collective never will.
    """
    limit_s = worker_info.info().comm_timeout_s or MEETING_S
    return side_group.exchange(value, timeout_s=limit_s)


def of_all(value: Any) -> list[Any]:  # noqa: ANN401 (JSON)
    """Return what every rank gave, by rank."""
    return side_group.exchange(value, timeout_s=PATIENCE_S)


def _words(error: Exception) -> str:
    if isinstance(error, CheckpointError):
        return str(error)[:2000]
    return f"{type(error).__name__}: {error}"[:2000]
