"""Signals: blocked from the start, read from a descriptor, none lost."""

import pytest

WATCH = """
signal.pthread_sigmask(signal.SIG_BLOCK, signals.watched())
fd = signals.descriptor()
"""


def test_signals_are_read_in_the_order_they_came(drive):
    """What is read between two signals keeps their order and tells the sender."""
    facts = drive(
        WATCH
        + """
order = [signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]
seen = []
for number in order:
    os.kill(os.getpid(), number)
    seen += signals.read(fd)
tell(order=[s.signum for s in seen] == order,
     senders={s.sender_pid for s in seen} == {os.getpid()})
"""
    )

    assert facts == {"order": True, "senders": True}


def test_all_that_waits_is_read_at_once(drive):
    """Signals that came while nobody looked are all there, each once."""
    facts = drive(
        WATCH
        + """
for number in [*signals.FORWARDED, *signals.FORWARDED]:
    os.kill(os.getpid(), number)
seen = [info.signum for info in signals.read(fd)]
tell(all=sorted(seen) == sorted(signals.FORWARDED), rest=signals.read(fd))
"""
    )

    assert facts == {"all": True, "rest": []}


def test_the_sender_is_the_process_that_sent_it(drive):
    """A stop request names who asked for it."""
    facts = drive(
        WATCH
        + """
sender = subprocess.Popen(["sh", "-c", "kill -TERM $PPID; exec sleep 600"])
select.select([fd], [], [], 600)
(info,) = signals.read(fd)
sender.kill()
tell(same=info == (signal.SIGTERM, sender.pid))
"""
    )

    assert facts == {"same": True}


def test_a_child_that_ends_is_told(drive):
    """SIGCHLD is among the watched, with the child as its sender."""
    facts = drive(
        WATCH
        + """
child = subprocess.Popen(["true"])
select.select([fd], [], [], 600)
(info,) = signals.read(fd)
tell(same=info == (signal.SIGCHLD, child.pid))
"""
    )

    assert facts == {"same": True}


@pytest.mark.parametrize(
    ("wrap", "seen"),
    [
        pytest.param([], [1], id="default"),
        pytest.param(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"], [], id="ignored"),
    ],
)
def test_a_hangup_that_was_ignored_stays_ignored(drive, wrap, seen):
    """Under nohup a hang-up is nothing to dsup, and it lives on."""
    facts = drive(
        WATCH
        + """
os.kill(os.getpid(), signal.SIGHUP)
tell(seen=[info.signum for info in signals.read(fd)])
""",
        wrap=wrap,
    )

    assert facts == {"seen": seen}


def test_the_descriptor_is_not_inherited(drive):
    """No rank can take dsup's signals away."""
    facts = drive(WATCH + "tell(inheritable=os.get_inheritable(fd))")

    assert facts == {"inheritable": False}


def test_no_descriptor_left_is_an_error(drive):
    """It is raised, not returned as a number that reads nothing."""
    facts = drive(
        """
        libc.call("getpid")  # what that imports needs descriptors, too
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        try:
            signals.descriptor()
        except OSError as error:
            tell(error=str(error))
        """,
        poor=True,
    )

    assert facts["error"].startswith("cannot open a signal descriptor, because ")
