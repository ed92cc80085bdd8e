"""The worker group: the ranks' processes, their pipes, and all that they started."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import signal
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dsup.core.errors import SpawnError, SpecError
from dsup.core.exits import CANNOT_EXECUTE, NOT_FOUND
from dsup.linux import heritage, memory_file, proc, tree
from dsup_runtime import contract

PAGE_FD: Final = 3
"""Where a rank finds the heartbeat page."""

NOTES_FD: Final = 4
"""Where a rank finds the socket that it tells of itself through."""

STACKS_FD: Final = 5
"""Where a rank finds the memory file that its stacks are written into."""

_PIPE_BYTES: Final = 262_144
_F_SETPIPE_SZ: Final = 1031
_NAMES_MAX: Final = 8
_STDERR: Final = 2
_HIGH_FD: Final = 64
_DESCRIPTORS: Final = 128
# The scribe has the most: two pipes, two files, and the index of each.
_DESCRIPTORS_A_RANK: Final = 6
# Python ignores these two for itself; the others a rank must be able to receive even
# if whoever started dsup ignored them.
_DEFAULTED: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGCHLD,
)


class Rank(NamedTuple):
    """A rank's process.

    Attributes:
        pidfd: readable once the process has ended.
        out: read end of its stdout; -1 where it has dsup's own.
        err: read end of its stderr; -1 where it has dsup's own.
        notes: what the rank tells of itself comes here, a datagram a note; whoever
            takes the rank closes it.
        stacks: the memory file that the rank's stacks are written into, of a fixed
            size; -1 for none; whoever takes the rank closes it.
    """

    rank: int
    pid: int
    pidfd: int
    out: int
    err: int
    notes: int
    stacks: int = -1


class Start(NamedTuple):
    """What to start for a rank.

    Attributes:
        argv: its command, looked up in PATH.
        environment: all of it.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]


class WorkerGroup:
    """The ranks of one attempt, from the first spawn to the proof that all are gone.

    Args:
        oom_score: oom_score_adj of the ranks; empty for what is usual.
    """

    def __init__(self, oom_score: str = "") -> None:
        self._oom_score = oom_score
        self._running: dict[int, Rank] = {}

    @property
    def pids(self) -> Collection[int]:
        """Pids of ranks that have not been reaped."""
        return {rank.pid for rank in self._running.values()}

    def spawn(
        self, starts: Iterable[Start], page_fd: int, *, inherit: bool = False
    ) -> Iterator[Rank]:
        """Start the ranks one by one; each is yielded as soon as it runs.

        Args:
            starts: what to start for each rank, in order.
            page_fd: the heartbeat page; -1 if the ranks are to inherit none.
            inherit: ranks write to dsup's own stdout and stderr, not into pipes.

        Raises:
            SpawnError: if a rank cannot be started; those before it run.
            BlockingIOError: if no process can be made.
        """
        with heritage.of_ranks(self._oom_score):
            for number, start in enumerate(starts):
                rank = _start(number, start, page_fd, inherit=inherit)
                self._running[number] = rank
                yield rank

    def signal(self, ranks: Iterable[int], signum: int) -> None:
        """Send a signal to ranks that still run; a stopped one is woken for SIGTERM."""
        for number in ranks:
            rank = self._running.get(number)
            if rank is None:
                continue
            try:
                signal.pidfd_send_signal(rank.pidfd, signum)
                if signum == signal.SIGTERM:
                    signal.pidfd_send_signal(rank.pidfd, signal.SIGCONT)
            except (ProcessLookupError, PermissionError):
                # It has ended, or taken another user's id: then it is found to be
                # unkillable when its time is up.
                continue

    def pass_on(self, ranks: Iterable[int], signum: int) -> list[int]:
        """Send a signal to those ranks that have a handler for it.

        Returns:
            The ranks that have none; to them it would be deadly.
        """
        deaf = []
        for number in ranks:
            rank = self._running.get(number)
            if rank is None:
                continue
            if proc.catches(rank.pid, signum):
                self.signal([number], signum)
            else:
                deaf.append(number)
        return deaf

    def reap(self, rank: Rank) -> int:
        """Collect an ended rank; return its exit code, or minus its signal number.

        A rank that a debugger traces is the debugger's to collect first: its status is
        read beside it, and whoever collects orphans gets it later.
        """
        found = os.waitid(os.P_PIDFD, rank.pidfd, os.WEXITED | os.WNOHANG)
        del self._running[rank.rank]
        os.close(rank.pidfd)
        if found is None:
            return os.waitstatus_to_exitcode(proc.wait_status(rank.pid))
        exited = found.si_code == os.CLD_EXITED
        return found.si_status if exited else -found.si_status

    def dying(self) -> tuple[int, ...]:
        """Return the ranks that the kernel is taking down at this moment."""
        return tuple(
            number for number, rank in self._running.items() if proc.is_dying(rank.pid)
        )


def helpers_left(
    spare: Collection[int], owned: Collection[int]
) -> tuple[tuple[str, ...], int]:
    """Return ``comm (pid)`` of at most eight living descendants, and their number.

    Args:
        spare: children that do not count.
        owned: children that must not be collected here.
    """
    pids = tree.alive(spare, owned=owned)
    names = []
    for pid in pids[:_NAMES_MAX]:
        found = proc.stat(pid)
        names.append(f"{found.comm if found else '?'} ({pid})")
    return tuple(names), len(pids)


def terminate_helpers(spare: Collection[int]) -> None:
    """Send SIGTERM to every living descendant."""
    for pid in tree.alive(spare):
        tree.send(pid, signal.SIGTERM)


def demand_descriptors(ranks: int) -> None:
    """Have as many descriptors as so many ranks need; nothing works without.

    The soft limit is raised where that helps. The ranks inherit it, so it is left alone
    as long as it suffices.

    Raises:
        SpecError: if the hard limit is too low.
    """
    needed = _DESCRIPTORS + _DESCRIPTORS_A_RANK * ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SpecError(
            f"cannot supervise {ranks} ranks, because only {hard} descriptors may be "
            f"open (raise ulimit -n to {needed})"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def close_inherited(kept: Collection[int]) -> None:
    """Close every descriptor above stderr that whoever started dsup left open.

    posix_spawn would pass them on to the ranks, and they count against the limit.

    Args:
        kept: descriptors of dsup's own.
    """
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > _STDERR and fd not in kept:
            with contextlib.suppress(OSError):
                os.close(fd)


def _start(number: int, start: Start, page_fd: int, *, inherit: bool) -> Rank:
    """Start a rank, with pipes for its output or on dsup's own streams.

    There it has a session of its own all the same. A terminal that is not its
    controlling one can be read, and set to raw, by whoever holds a descriptor of it,
    and Ctrl-C reaches the rank once, through dsup.
    """
    with _Ends() as ends:
        out, out_end = (-1, -1) if inherit else ends.add(*_pipe())
        err, err_end = (-1, -1) if inherit else ends.add(*_pipe())
        notes, notes_end = ends.add(*_socket_pair())
        stacks = ends.keep(_stacks_file(start))
        actions = [
            *_given(out_end, 1),
            *_given(err_end, 2),
            *_given(page_fd, PAGE_FD),
            *_given(notes_end, NOTES_FD),
            *_given(stacks, STACKS_FD),
        ]
        pid = _spawn(start, actions)
        return ends.of(Rank(number, pid, os.pidfd_open(pid), out, err, notes, stacks))


class _Ends(contextlib.ExitStack):
    """The descriptors of a rank that is being started.

    The rank's ends are closed here in any case, ours if it cannot be started.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ours = self.enter_context(contextlib.ExitStack())

    def add(self, ours: int, theirs: int) -> tuple[int, int]:
        """Take in a pair."""
        self.callback(os.close, theirs)
        return self.keep(ours), theirs

    def keep(self, fd: int) -> int:
        """Take in an end that is ours; -1 for none."""
        if fd >= 0:
            self._ours.callback(os.close, fd)
        return fd

    def of(self, rank: Rank) -> Rank:
        """Return a rank that runs: our ends are its from now on."""
        self._ours.pop_all()
        return rank


def _given(fd: int, at: int) -> list[tuple[int, int, int]]:
    """Return what has a rank find a descriptor, which may be none, at a number."""
    return [] if fd < 0 else [(os.POSIX_SPAWN_DUP2, fd, at)]


def _stacks_file(start: Start) -> int:
    """Return a memory file for a rank's stacks; -1 where it is told of none.

    Both ends share one position: what the agent sets it to, the rank writes from.
    """
    if contract.STACKS not in start.environment:
        return -1
    # Where there are no memory files, others can read the stacks from outside.
    size = contract.STACKS_MAX_BYTES
    return memory_file.sealed(contract.STACKS_NAME, size, above=_HIGH_FD)


def _spawn(start: Start, actions: list[tuple[int, int, int]]) -> int:
    try:
        return os.posix_spawnp(
            start.argv[0],
            tuple(start.argv),
            start.environment,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=_DEFAULTED,
        )
    except BlockingIOError:
        raise
    except (OSError, ValueError) as error:
        raise _refusal(start.argv[0], error) from None


def _socket_pair() -> tuple[int, int]:
    """Return our end and the rank's, above every number a rank could find them at."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.setblocking(False)
        high = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
        return ours.detach(), high


def _pipe() -> tuple[int, int]:
    out, into = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(into, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        return out, into  # over the user's limit of pipe pages: the default size serves
    return out, into


def _refusal(program: str, error: OSError | ValueError) -> SpawnError:
    code = error.errno if isinstance(error, OSError) else errno.EINVAL
    reason = os.strerror(code or errno.EINVAL).lower()
    missing = code == errno.ENOENT
    hint = "check the name and PATH" if missing else "check its mode and format"
    message = f"cannot start {program}, because {reason} ({hint})"
    return SpawnError(message, NOT_FOUND if missing else CANNOT_EXECUTE)
