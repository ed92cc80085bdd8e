"""A rank that acts as the command line says, so that a test reads as a table.

Each argument is a clause ``WHO[@ATTEMPT]:VERB[=VALUE],VERB[=VALUE],...``. WHO is a rank
or ``*``; the first clause that fits this rank and attempt is carried out from left to
right, and the rank then ends with exit code 0. Signals are named without SIG. Every
event is one JSON line, appended in one write to the file named by ``DSUP_TEST_EVENTS``.
"""

import json
import os
import select
import signal
import sys

RANK = os.environ.get("RANK", "-1")
ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
EVENTS = os.environ["DSUP_TEST_EVENTS"]
FOREVER_S = f"1000.{os.environ['DSUP_TEST_MARK']}"


def emit(name, **fields):
    """Tell the test that something happened."""
    fields |= {"name": name, "rank": int(RANK), "attempt": int(ATTEMPT)}
    line = json.dumps(fields | {"pid": os.getpid()}) + "\n"
    fd = os.open(EVENTS, os.O_WRONLY | os.O_APPEND)
    os.write(fd, line.encode())
    os.close(fd)


def report_descriptors(_):
    """Tell which descriptors are open here, the one for listing them left out."""
    listed = os.listdir("/proc/self/fd")
    emit("fds", fds=[fd for fd in map(int, listed) if os.path.exists(f"/dev/fd/{fd}")])


def pause(seconds):
    """Sleep; a handled signal does not shorten it."""
    select.select([], [], [], float(seconds))


def wait(value):
    """Wait until there are N events of that name (``name*N``), some minutes at most."""
    name, _, count = value.partition("*")
    wanted = f'"name": "{name}"'.encode()
    for _ in range(30_000):
        with open(EVENTS, "rb") as file:
            if file.read().count(wanted) >= int(count or 1):
                return
        pause(0.01)
    sys.exit(f"no {value} within minutes")


def hang(_):
    """Do nothing any more; a signal just before a sleep is handled after it."""
    while True:
        pause(5)


def signal_of(name):
    """Return the signal called NAME."""
    return signal.Signals[f"SIG{name}"]


def trap(value):
    """On SIGNAL/CODE/SECONDS: work that long, then exit with that code."""
    name, code, seconds = [*value.split("/"), "0", "0"][:3]

    def on_signal(number, _frame):
        emit(f"got-{signal.Signals(number).name[3:]}")
        pause(seconds)
        emit("saved")
        os._exit(int(code))

    signal.signal(signal_of(name), on_signal)


def note(name):
    """Report that signal and carry on."""
    signal.signal(signal_of(name), lambda *_: emit(f"got-{name}"))


DEAF = """echo '{"name": "deaf", "rank": -1, "pid": 0}' >>"$DSUP_TEST_EVENTS\""""
HELPERS = {
    "plain": 'exec sleep "$0"',
    "setsid": 'exec setsid sleep "$0"',
    "double": 'setsid sleep "$0" & exit 0',
    "clear": 'exec env -i setsid sleep "$0"',
    "stubborn": f"trap '' TERM INT; {DEAF}; exec sleep \"$0\"",
    "short": "sleep 0.05 & exit 0",
}


def helper(kind):
    """Start a process of the rank's own that would live for a thousand seconds."""
    argv = ["sh", "-c", HELPERS[kind], FOREVER_S]
    quiet = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in range(3)]
    os.posix_spawnp("sh", argv, os.environ, file_actions=quiet)


def fork_until_refused(limit):
    """Fork children that wait for ever; let the refusal through."""
    for _ in range(int(limit)):
        if os.fork() == 0:
            signal.pause()


def lines(count):
    """Print that many lines that can be told apart, each in two writes."""
    for number in range(int(count)):
        os.write(1, b"rank %s line " % RANK.encode())
        os.write(1, b"%06d of the output, whole\n" % number)


def fail(text):
    """Raise an exception of the user's."""
    raise ValueError(text)


VERBS = {
    "touch": lambda where: open(os.path.join(where, RANK), "x").close(),
    "env": lambda _: emit("env", env=dict(os.environ)),
    "argv": lambda _: emit("argv", argv=sys.argv),
    "fds": report_descriptors,
    "emit": emit,
    "wait": wait,
    "say": lambda text: print(text, flush=True),
    "warn": lambda text: print(text, file=sys.stderr, flush=True),
    "lines": lines,
    "close": lambda fd: os.close(int(fd)),
    "exit": lambda code: sys.exit(int(code)),
    "quit": lambda code: os._exit(int(code)),
    "raise": fail,
    "die": lambda name: os.kill(os.getpid(), signal_of(name)),
    "default": lambda name: signal.signal(signal_of(name), signal.SIG_DFL),
    "ignore": lambda name: signal.signal(signal_of(name), signal.SIG_IGN),
    "trap": trap,
    "note": note,
    "helper": helper,
    "forks": fork_until_refused,
    "stat": os.stat,
    "work": pause,
    "hang": hang,
}


def main():
    """Carry out this rank's clause."""
    for clause in sys.argv[1:]:
        who, _, acts = clause.partition(":")
        rank, _, attempt = who.partition("@")
        if rank in (RANK, "*") and attempt in ("", ATTEMPT):
            break
    else:
        acts = ""
    for act in filter(None, acts.split(",")):
        verb, _, value = act.partition("=")
        VERBS[verb](value)


if __name__ == "__main__":
    main()
