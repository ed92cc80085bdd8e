"""``dsup launch --preflight``: the node is looked at before the first rank.

A child looks, and is gone before the agent begins: what it loads, and the processes
that hang for it, stay out of the agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final, NoReturn, TypeAlias

from dsup.core.errors import DsupError
from dsup.core.exits import NODE_UNFIT, signal_name, stop_code
from dsup.core.job import Job
from dsup.core.output import Tone
from dsup.core.printable import printable
from dsup.linux import tree
from dsup.report import voice

_LIMIT_S: Final = 15.0
_ROUND_MS: Final = 100
_STOPS: Final = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
"""They are blocked in the agent, and read once it runs."""

_REAP_S: Final = 1.0
_REAP_ROUND_S: Final = 0.01
_ANSWER_MAX_BYTES: Final = 1 << 20
_TONES: Final[dict[str, Tone]] = {"warn": "warning", "bad": "failure"}

_Row: TypeAlias = tuple[str, str, str, str]
"""Check, state, text and fix of a finding."""


class UnfitError(DsupError):
    """The node is not fit, or the job is not, and somebody asked to have it looked at.

    Args:
        message: what is bad.
        code: exit code of the launch.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def checked(job: Job, guard: int) -> Job:
    """Return a job with what was found of its node, if that is fit.

    Args:
        job: what is to be launched.
        guard: readable once the guard has gone.

    Raises:
        UnfitError: if it is not, or somebody wants the launch to stop.
    """
    code, found = _look(job, guard)
    if code is None:
        _say(job, "the check of this node gave no answer", "warning")
    for check, state, text, fix in found:
        if state in _TONES:
            more = f" ({fix})" if fix else ""
            _say(job, f"preflight: {check}: {text}{more}", _TONES[state])
    if code:
        with contextlib.suppress(OSError):
            os.rmdir(job.run_dir)
        _refuse(code, [row for row in found if row[1] == "bad"])
    return job._replace(preflight=tuple(row for row in found if row[1] != "ok"))


def _refuse(code: int, bad: Sequence[_Row]) -> NoReturn:
    who = "this node is not fit" if code == NODE_UNFIT else "the job is not fit"
    more = f", and {len(bad) - 1} more" if bad[1:] else ""
    raise UnfitError(
        f"cannot launch, because {who}: {bad[0][0]}: {bad[0][2]}{more} (dsup doctor "
        "says more; without --preflight nothing is looked at)",
        code,
    )


def _look(job: Job, guard: int) -> tuple[int | None, tuple[_Row, ...]]:
    """Return the doctor's exit code, None for no answer, and its findings."""
    answer = os.memfd_create("dsup-preflight", os.MFD_CLOEXEC)
    ancestor = os.getppid()
    pid = os.fork()
    if pid == 0:
        _be_the_doctor(job, answer, ancestor)
    try:
        _await(job, pid, guard)
        raw = os.pread(answer, _ANSWER_MAX_BYTES, 0)
        code, rows = json.loads(raw)
        return int(code), tuple((c, s, t, f) for c, s, t, f in rows)
    except (TypeError, ValueError):
        return None, ()
    finally:
        os.close(answer)
        tree.kill()  # no rank runs yet: all that descends from here is the child's
        _reap()


def _be_the_doctor(job: Job, answer: int, ancestor: int) -> None:
    try:
        os.write(answer, json.dumps(_answer(job, ancestor)).encode())
    finally:
        os._exit(0)


def _answer(job: Job, ancestor: int) -> tuple[int, list[_Row]]:
    from dsup.checkup.finding import exit_code
    from dsup.checkup.readings import Asked
    from dsup.cli.doctor import findings

    places = {"runs": job.run_dir, "TMPDIR": job.tmp_parent}
    if job.checkpoint_dir:
        places["checkpoints"] = job.checkpoint_dir
    asked = Asked(
        environment=job.environment,
        ranks=job.spec.world_size,
        python=job.store_python,
        places=places,
        master_port=job.master_port,
        comm_timeout_s=job.comm_timeout_s,
        ancestor=ancestor,
    )
    found = findings(asked)
    return exit_code(found), [(f.check, f.state, f.text, f.fix) for f in found]


def _await(job: Job, pid: int, guard: int) -> None:
    """Wait until the child has ended, or its time is over.

    Raises:
        UnfitError: if a signal came, which the agent would wait for, or the guard went.
    """
    until_s = time.monotonic() + _LIMIT_S
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(guard, select.POLLIN)
        while time.monotonic() < until_s:
            ready = {fd for fd, _ in poll.poll(_ROUND_MS)}
            stops = sorted(_STOPS & signal.sigpending())
            if stops or guard in ready:
                _stop(job, stops[0] if stops else signal.SIGKILL)
            if pidfd in ready:
                return
    finally:
        os.close(pidfd)


def _stop(job: Job, signum: int) -> NoReturn:
    with contextlib.suppress(OSError):
        os.rmdir(job.run_dir)
    name = signal_name(signum)
    raise UnfitError(f"stopped by {name} before any rank ran", stop_code(signum))


def _reap() -> None:
    """Collect the child and what it has left: nothing may look like a rank's helper."""
    until_s = time.monotonic() + _REAP_S
    while time.monotonic() < until_s:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            time.sleep(_REAP_ROUND_S)


def _say(job: Job, text: str, tone: Tone) -> None:
    wall_s = time.clock_gettime(time.CLOCK_REALTIME)
    line = voice.worded(printable(text), tone, job.voice, wall_s)
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)
