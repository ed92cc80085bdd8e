"""Steps that all ranks take together, each of which may fail on any of them.

Whatever a rank meets in its own part, the others are told before anyone goes on: so all
of them take the same path, and none waits for one that has left it.

How long a part takes nobody can know: a terabyte is summed in many minutes. So a
rank works beside its main thread, which goes on answering the others every second: who
does not answer within the limit of a collective is frozen, and who answers is waited
for. Only while the caller's own ``write`` or ``read`` runs nobody answers. After them
the ranks may be ``APART`` times as far apart as in a collective.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from dsup_runtime import deferred, side_group, worker_info
from dsup_runtime.bounded import BoundedCall
from dsup_runtime.error_text import describe, text_of
from dsup_runtime.errors import CheckpointError, PeerError
from dsup_runtime.rank_log import log

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S: Final = 1800.0
"""How long a rank that answers may be at one part, seconds: a disk may hang for ever.

One that died is noticed at once.
"""

MEETING_S: Final = 300.0
"""How long ranks that come to a call may be apart, seconds, if nobody said it."""

APART: Final = 6
"""So many times longer they may be apart after the caller's own reading and writing.

Half an hour with dsup's own limit of a collective, as with gloo's.
"""

_ANSWER_S: Final = 1.0
_WORDS_MAX: Final = 2000


def together(
    where: str, work: Callable[[], Any], *, apart: bool = False
) -> list[Any] | None:
    """Do this rank's part of a phase, and learn how the others fared.

    An error waits: it is kept for the next agreed stop (see ``deferred``).

    Args:
        where: the phase, for messages.
        work: this rank's part; it must not wait for another rank.
        apart: whether the ranks come from the caller's own reading or writing.

    Returns:
        What each rank's part returned, by rank; None on all ranks if one failed.

    Raises:
        PeerError: if a rank does not take part.
    """

    def part() -> list[Any]:
        try:
            return [work(), None]
        except Exception as error:  # noqa: BLE001 (kept, and told to all)
            deferred.keep(error, where=where)
            return [None, _words(error)]

    answers = of_all(part, apart=apart)
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
    failures: list[Exception] = []

    def part() -> list[Any]:
        if side_group.rank() != 0:
            return []
        try:
            return [work(), None, False]
        except Exception as error:  # noqa: BLE001 (raised below, once all know)
            failures.append(error)
            return [None, _words(error), isinstance(error, CheckpointError)]

    value, words, ours = of_all(part)[0]
    if failures:
        raise failures[0]
    if words:
        raise CheckpointError(words) if ours else PeerError(words, ranks=(0,))
    return value


def meet(value: Any) -> list[Any]:  # noqa: ANN401 (JSON)
    """Come together at the beginning of a call, and return what every rank gave.

    Ranks come out of one step, so they are not far apart: who does not come within the
    limit of a collective never will.
    """
    return side_group.exchange(value, timeout_s=_limit_s())


def of_all(work: Callable[[], Any], *, apart: bool = False) -> list[Any]:
    """Have every rank do its part, and return what each part returned, by rank.

    Args:
        work: this rank's part; it must not wait for another rank.
        apart: whether the ranks come from the caller's own reading or writing.

    Raises:
        PeerError: if a rank does not take part, or is at it for too long.
        BaseException: what the part raised; the other ranks do not learn it.
    """
    limit_s = _limit_s()
    if side_group.size() == 1:
        return side_group.exchange(work(), timeout_s=limit_s)
    told: list[Any] = []
    part = BoundedCall(lambda: told.append(work()), name="dsup-checkpoint")
    end_s = time.monotonic() + PATIENCE_S
    within_s = APART * limit_s if apart else limit_s
    while True:
        if part.ended_within(min(_ANSWER_S, limit_s / 4)) and part.error is not None:
            raise part.error
        answers = side_group.exchange(list(told), timeout_s=within_s)
        if all(answers):
            return [value for (value,) in answers]
        within_s = limit_s
        if time.monotonic() > end_s:
            raise _too_slow([rank for rank, done in enumerate(answers) if not done])


def refuse_without_group(task: str) -> None:
    """Refuse what all ranks must do together where they cannot reach each other.

    Each would think that it is alone, and all would write the same files.

    Raises:
        CheckpointError: if the process group has not all ranks that were started.
    """
    started, joined = worker_info.read_count("WORLD_SIZE", 1), side_group.size()
    if joined < started:
        raise CheckpointError(
            f"cannot {task}, because the launcher started {started} ranks and there is"
            " no process group of them (call it after init_process_group, and before"
            " destroy_process_group)"
        )


def _limit_s() -> float:
    return worker_info.info().comm_timeout_s or MEETING_S


def _too_slow(ranks: list[int]) -> PeerError:
    listed = ", ".join(map(str, ranks))
    return PeerError(
        f"cannot go on with the checkpoint, because rank {listed} has been at its part"
        f" for {PATIENCE_S:.0f} s (see whether its disk answers)",
        ranks=ranks,
    )


def _words(error: Exception) -> str:
    ours = isinstance(error, CheckpointError)
    return (text_of(error) if ours else describe(error))[:_WORDS_MAX]
