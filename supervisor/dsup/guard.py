"""The guard: the process the user starts, parent of the agent, last to go.

It does next to nothing, so next to nothing can go wrong with it: it passes signals on
to the agent, and to a service manager what the agent says; it collects what is orphaned
(as PID 1 of a container it is init), and when the agent has been killed it kills
everything the agent started. Both are subreapers,
so every process that a rank ever started, however detached, is a descendant, and
nothing has to be found by its name.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from dsup.core.exits import (
    BUG,
    CANNOT_EXECUTE,
    WRONG_CALL,
    signal_name,
    stop_code,
)
from dsup.edges import preparation, rank_cgroups
from dsup.linux import console, libc, proc, signals, tree
from dsup.linux.guardian import Guardian, Will

if TYPE_CHECKING:
    from dsup.linux.notify import Relay

_KILL_S: Final = 5.0
_LAST_WORDS_S: Final = 1.0
_REMOVE_S: Final = 1.0
_ROUND_S: Final = 0.02
_AGAIN_S: Final = 1.0


def guard(agent: Callable[[Guardian], int], notify_socket: str = "") -> int:
    """Fork, run the agent in the child, and stand guard in the parent.

    Args:
        agent: returns the exit code; never returns into the caller's code.
        notify_socket: the service manager's socket; empty for none.

    Returns:
        The exit code of the run, in the parent only.
    """
    _open_missing_standard_descriptors()
    if not proc.is_own():
        console.say(
            "dsup: cannot supervise, because /proc shows another pid namespace or "
            "nothing (mount a proc of its own: unshare --mount-proc)"
        )
        return WRONG_CALL
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc.become_subreaper()
    watched = signals.watched()
    signal.pthread_sigmask(signal.SIG_BLOCK, {*watched, signal.SIGABRT})
    will, relay = Will(), _relay(notify_socket)
    guard_pid = os.getpid()
    agent_pid = os.fork()
    if agent_pid == 0:
        _be_the_agent(agent, guard_pid, will, relay)
    return _watch(agent_pid, watched, will, relay)


def _relay(notify_socket: str) -> Relay | None:
    """Return what a service manager is told through; None where there is none."""
    if not notify_socket:
        return None
    from dsup.linux.notify import Relay

    try:
        return Relay(notify_socket)
    except OSError:
        return None


def _open_missing_standard_descriptors() -> None:
    """Put /dev/null where 0, 1 or 2 is closed, else our own files would land there."""
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:  # noqa: PLR2004
        os.set_inheritable(fd, True)
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)


def _be_the_agent(
    agent: Callable[[Guardian], int], guard_pid: int, will: Will, relay: Relay | None
) -> NoReturn:
    code = BUG
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGABRT})
        libc.become_subreaper()
        pidfd = _pidfd(guard_pid)
        if pidfd is None:
            code = CANNOT_EXECUTE
        elif os.getppid() == guard_pid:
            fd = relay.become_agents() if relay else None
            code = agent(Guardian(pidfd, will, fd))
    finally:
        os._exit(code)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        console.say(
            f"dsup: cannot supervise, because there is no pidfd: {error.strerror} "
            "(Linux 5.4 or newer is needed, and a container must allow pidfd_open)"
        )
        return None


def _watch(
    agent_pid: int, watched: set[signal.Signals], will: Will, relay: Relay | None
) -> int:
    awaited = {*watched, signal.SIGABRT}
    if relay:
        awaited.add(signal.SIGIO)
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        relay.become_guards()
    left = relay is not None and relay.pass_on()
    while True:
        again_s = _AGAIN_S if left else None
        info = _awaited(awaited, again_s)
        left = relay is not None and relay.pass_on()
        if info is None or info.si_signo == signal.SIGIO:
            continue
        if info.si_signo == signal.SIGABRT:
            return _give_up_on_the_agent(will)
        if info.si_signo != signal.SIGCHLD:
            os.kill(agent_pid, info.si_signo)
            continue
        status = _reap(agent_pid)
        if status is not None:
            return _after(os.waitstatus_to_exitcode(status), will)


def _awaited(
    signals: set[signal.Signals], limit_s: float | None
) -> signal.struct_siginfo | None:
    if limit_s is None:
        return signal.sigwaitinfo(signals)
    return signal.sigtimedwait(signals, limit_s)


def _reap(agent_pid: int) -> int | None:
    """Collect dead children; return the agent's wait status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == agent_pid:
            found = status


def _after(code: int, will: Will) -> int:
    if code >= 0 and code != BUG:
        if will.cgroup:
            rank_cgroups.leave(will.cgroup)
        return code
    killed = _clean_up(will)
    how = signal_name(-code) if code < 0 else f"exit code {code}"
    left = len(tree.alive())
    rest = (
        f"{left} processes can not be killed" if left else "nothing of the run is left"
    )
    console.say(f"dsup: the agent ended by {how}; {rest} (the guard killed {killed})")
    return 128 - code if code < 0 else code


def _give_up_on_the_agent(will: Will) -> int:
    """A service manager's watchdog has not heard of the agent for too long."""
    killed = _clean_up(will)
    console.say(
        "dsup: SIGABRT: the watchdog missed the agent's signs of life, so the guard "
        f"killed all of the run ({killed} processes)"
    )
    return stop_code(signal.SIGABRT)


def _clean_up(will: Will) -> int:
    """Kill every descendant but the scribe, then give that a second to finish."""
    spare = {will.spared}
    killed: set[int] = set()
    if will.cgroup:
        killed |= set(tree.alive(spare, owned=()))
        rank_cgroups.kill(will.cgroup)
    until = time.monotonic() + _KILL_S
    while tree.alive(spare, owned=()) and time.monotonic() < until:
        killed |= tree.kill(spare, owned=())
        _wait_for_a_child(_ROUND_S)
    until = time.monotonic() + _LAST_WORDS_S
    while any(map(proc.is_alive, spare - {0})) and time.monotonic() < until:
        _wait_for_a_child(_ROUND_S)
    tree.kill()
    if will.cgroup:
        rank_cgroups.leave(will.cgroup)
    if will.tmp_dir:
        _remove(will.tmp_dir)
    return len(killed)


def _remove(tmp_dir: str) -> None:
    """Remove the attempt's TMPDIR, in a child: a file system may hang."""
    pid = os.fork()
    if pid == 0:
        try:
            preparation.remove(tmp_dir)
        finally:
            os._exit(0)
    until = time.monotonic() + _REMOVE_S
    while proc.is_alive(pid) and time.monotonic() < until:
        _wait_for_a_child(_ROUND_S)
    tree.kill()


def _wait_for_a_child(limit_s: float) -> None:
    signal.sigtimedwait({signal.SIGCHLD}, limit_s)
    _reap(0)
