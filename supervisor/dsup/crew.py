"""The ranks of the attempt at hand: started all at once, and taken in as they end."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from dsup import shortage
from dsup.core import events as ev
from dsup.core.errors import DsupError, SpawnError
from dsup.core.job import command
from dsup.edges.group import Rank, Start
from dsup.linux import priority

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dsup.parts import Parts


def start(parts: Parts) -> None:
    """Start the ranks, and only then what reads their output and looks at them."""
    os.setpriority(os.PRIO_PROCESS, 0, parts.nice)
    started = _started(parts)
    number, attempt, inquiry = parts.state.attempt, parts.attempt, parts.inquiry
    _listen(parts, () if parts.job.output.inherit else started)
    environments = tuple(attempt.environments())
    inquiry.started(environments)
    parts.hangs.started(number, inquiry.file.ranks, environments)
    attempt.cgroups.started(inquiry.file.pids)
    parts.onlookers.started()
    parts.provision.started(time.monotonic())
    priority.be_quick(parts.nice)


def _listen(parts: Parts, ranks: Iterable[Rank]) -> None:
    """Have the ranks' output read."""
    try:
        parts.recorder.start(parts.state.attempt, ranks)
    except OSError as error:
        cause, reason = shortage.told("read the output of the ranks", error)
        parts.cannot(cause, 1, reason)


def _started(parts: Parts) -> list[Rank]:
    """Start what can be started; whatever is in the way of the rest is told."""
    started: list[Rank] = []
    try:
        for rank in _start_ranks(parts):
            started.append(rank)
            _take(parts, rank)
        parts.attempt.start_store()
    except SpawnError as error:
        parts.cannot("spawn_error", error.exit_code, str(error))
    except OSError as error:
        cause, reason = shortage.told(f"start rank {len(started)}", error)
        parts.cannot(cause, 1, reason)
    return started


def _start_ranks(parts: Parts) -> Iterator[Rank]:
    job, attempt = parts.job, parts.attempt
    if attempt.page is None:
        raise DsupError("cannot start ranks, because nothing was prepared")
    resume_from = attempt.view().resume_from
    starts = (
        Start(command(job, rank, resume_from), environment)
        for rank, environment in enumerate(attempt.environments())
    )
    return parts.group.spawn(starts, attempt.page.fd, inherit=job.output.inherit)


def _take(parts: Parts, rank: Rank) -> None:
    """Take in a rank that runs."""
    parts.attempt.add(rank)
    parts.inquiry.file.add(rank)
    parts.loop.watch(rank.pidfd, partial(_ended, parts, rank))
    now_s, number = time.monotonic(), parts.state.attempt
    parts.post(ev.RankStarted("rank_started", now_s, number, rank.rank, rank.pid))


def _ended(parts: Parts, rank: Rank) -> None:
    """Collect a rank that has ended, and look at the others if it failed first."""
    parts.provision.spend()
    inquiry, state = parts.inquiry, parts.state
    parts.loop.unwatch(rank.pidfd)
    inquiry.file.before_reap(rank)
    status = parts.group.reap(rank)
    now_s, late_s = time.monotonic(), parts.loop.late_s
    first = status != 0 and state.failed is None
    dying = parts.group.dying() if first else ()
    parts.steps.ended(state)
    known = state.attempt, rank.rank, status, dying
    ended = ev.RankExited("rank_exited", now_s, late_s, *known)
    inquiry.ended(ended)
    if parts.attempt.page:
        parts.attempt.page.mark_dead(rank.rank)
    parts.post(ended)
