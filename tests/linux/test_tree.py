"""Descendants: all are found, all are ended, and nobody else is ever touched."""

import subprocess

import pytest

SLEEP = "echo $$; exec sleep 600"

DETACHED = {
    "a plain child": ["sh", "-c", SLEEP],
    "a session of its own": ["setsid", "sh", "-c", SLEEP],
    "forked twice": ["sh", "-c", f"(setsid sh -c '{SLEEP}' &)"],
    "environment cleared": ["env", "-i", "sh", "-c", SLEEP],
    "all of that": ["env", "-i", "setsid", "-f", "sh", "-c", f"(sh -c '{SLEEP}' &)"],
    "frozen": ["sh", "-c", "echo $$; kill -STOP $$; exec sleep 600"],
    "deaf to signals": ["sh", "-c", "trap '' TERM INT HUP; " + SLEEP],
}


@pytest.mark.parametrize("argv", DETACHED.values(), ids=DETACHED.keys())
def test_every_descendant_is_found_and_killed(drive, argv):
    """However a process detached itself, a subreaper finds it below itself."""
    facts = drive(
        """
        libc.become_subreaper()
        pid, pipe = start(*sys.argv[1:])
        until(lambda: pid in tree.alive())
        killed = tree.kill()
        until(lambda: tree.alive() == [])
        tell(killed=pid in killed, ended=ended(pipe))
        """,
        *argv,
    )

    assert facts == {"killed": True, "ended": True}


def test_only_those_count_that_are_asked_for(drive):
    """Others may live on, and the answer is empty all the same."""
    facts = drive(
        """
        child, other = [os.fork() or signal.pause() for _ in range(2)]
        both = sorted(tree.alive())
        one = tree.alive(which=lambda pid: pid == child)
        os.kill(child, signal.SIGKILL)
        until(lambda: tree.alive(which=lambda pid: pid == child) == [])
        tell(both=both == sorted([child, other]), one=one == [child],
             left=tree.alive() == [other])
        tree.kill()
        """,
    )

    assert facts == {"both": True, "one": True, "left": True}


def test_a_process_lives_on_without_its_main_thread(drive):
    """It looks like a zombie then, yet it runs: it is found and killed all the same."""
    facts = drive(
        """
        lives, write = os.pipe()
        if os.fork() == 0:
            threading.Thread(target=signal.pause).start()
            libc.call("syscall", 60, 0)  # exit, of the calling thread alone
        os.close(write)
        until(lambda: [proc.stat(c).state for c in proc.children(os.getpid())] == ["Z"])
        found, killed = len(tree.alive()), len(tree.kill())
        until(lambda: tree.alive() == [])
        tell(found=found, killed=killed, ended=ended(lives))
        """,
    )

    assert facts == {"found": 1, "killed": 1, "ended": True}


def test_who_can_open_nothing_has_not_proven_that_nothing_lives(drive):
    """A look without descriptors sees nobody, and is no empty answer."""
    facts = drive(
        """
        child = os.fork() or signal.pause()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        blind, killed = tree.alive(), tree.kill()
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        seen = tree.alive()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        tell(
            blind=blind == [tree.UNSEEN],
            killed=list(killed),
            seen=seen == [child],
            left=tree.alive(),
        )
        """,
        poor=True,
    )

    assert facts == {"blind": True, "killed": [], "seen": True, "left": []}


@pytest.mark.root
@pytest.mark.slow
def test_a_fork_bomb_is_ended(drive):
    """What forks faster than it is found is stopped first, so that none escapes."""
    facts = drive(
        """
        libc.become_subreaper()
        os.setuid(50_000 + os.getpid() % 10_000)  # root has no limit of processes
        resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
        end_s = time.monotonic() + 60  # of the bomb, if this test fails
        if os.fork() == 0:
            while time.monotonic() < end_s:
                try:
                    os.fork()
                except BlockingIOError:
                    continue
            os._exit(1)
        until(lambda: len(tree.alive()) >= 40)
        rounds = 0
        while tree.alive() and rounds < 40:
            tree.kill()
            tree.reap_adopted(())
            rounds += 1
        tell(rounds=rounds, left=tree.alive())
        """,
        poor=True,
    )

    assert facts["left"] == []
    assert facts["rounds"] < 40


@pytest.mark.slow
@pytest.mark.parametrize("owned", [None, ()], ids=["the dead stay", "dead cleared"])
def test_what_forks_and_ends_all_the_time_is_never_taken_for_nothing(drive, owned):
    """A look that passed it between two lives is no proof, however often it looks."""
    facts = drive(
        f"""
        libc.become_subreaper()
        end_s = time.monotonic() + 60  # of the process, if this test fails
        if os.fork() == 0:
            while time.monotonic() < end_s:
                if os.fork():
                    os._exit(0)
            os._exit(1)
        empty = 0
        for _ in range(30):
            empty += not tree.alive(owned={owned!r})
            tree.reap_adopted(())
        rounds = 0
        while tree.alive(owned=()) and rounds < 400:
            tree.kill(owned=())
            rounds += 1
        tell(empty=empty, left=tree.alive())
        """,
    )

    assert (facts["empty"], facts["left"]) == (0, [])


def test_a_deep_family_is_ended_though_not_all_of_it_is_seen_at_once(drive):
    """A look has an end, whatever forks meanwhile: the deep ones come up in time."""
    facts = drive(
        """
        libc.become_subreaper()
        born, last = os.pipe()
        if os.fork() == 0:
            for _ in range(99):
                if os.fork():
                    signal.pause()
            os.write(last, b"x")
            signal.pause()
        os.close(last)
        os.read(born, 1)
        seen, rounds = len(proc.descendants(os.getpid())), 0
        while tree.alive() and rounds < 40:
            tree.kill()
            tree.reap_adopted(())
            rounds += 1
        tell(seen=seen, ended=ended(born))
        """,
    )

    assert facts == {"seen": 64, "ended": True}


def test_what_is_spared_survives_with_all_below_it(drive):
    """Nothing of a spared child's branch is counted or killed, and all else is."""
    facts = drive(
        """
        libc.become_subreaper()
        inner = "echo $$; (sleep 600; true) & exec sleep 600"
        spared, spared_pipe = start("sh", "-c", inner)
        killed, killed_pipe = start("sh", "-c", inner)
        until(lambda: len(proc.descendants(os.getpid())) == 6)
        below = proc.descendants(spared)
        counted = tree.alive([spared])
        tree.kill([spared])
        tell(
            spared_counted=[pid for pid in counted if pid in (spared, *below)],
            spared_alive=[proc.is_alive(pid) for pid in (spared, *below)],
            killed=ended(killed_pipe),
        )
        tree.kill()
        """,
    )

    assert facts["spared_counted"] == []
    assert facts["spared_alive"] == [True, True, True]
    assert facts["killed"]


STRANGERS = {
    "a neighbour": "int(sys.argv[1])",
    "the parent": "os.getppid()",
    "itself": "os.getpid()",
    "init": "1",
    "nobody": "2**22 + 1",
}


@pytest.mark.parametrize("pid", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_stranger_is_never_signalled(drive, pid):
    """Only what is proven to be a descendant gets a signal."""
    with subprocess.Popen(["sleep", "600"]) as neighbour:
        facts = drive(
            f"tell(sent=tree.send({pid}, signal.SIGTERM))",
            neighbour.pid,
        )
        ended = neighbour.poll()
        neighbour.kill()

    assert facts == {"sent": False}
    assert ended is None


def test_a_grandchild_may_be_signalled(drive):
    """Descendants are ours at any depth."""
    facts = drive(
        """
        deep = "sh -c 'echo $$; exec sleep 600'; true"
        pid, pipe = start("sh", "-c", deep)
        sent = tree.send(pid, signal.SIGTERM)
        tell(child=pid in proc.children(os.getpid()), sent=sent, ended=ended(pipe))
        """,
    )

    assert facts == {"child": False, "sent": True, "ended": True}


def test_adopted_children_are_collected_and_owned_ones_left_alone(drive):
    """An owner finds its child's exit status; no zombie of anybody else stays."""
    facts = drive(
        """
        libc.become_subreaper()
        owned = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
        running = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
        # Kept: a Popen that nobody holds any more collects its child, if it can.
        kept = subprocess.Popen(["sh", "-c", "(sleep 0.2 &); (sleep 0.2 &); exit 0"])
        me = os.getpid()
        dead = lambda: sum(proc.stat(pid).state == "Z" for pid in proc.children(me))
        until(lambda: dead() == 4)
        seen = tree.has_dead_child()
        tree.reap_adopted([owned])
        left = proc.children(me)
        status = os.waitstatus_to_exitcode(os.waitpid(owned, 0)[1])
        known = seen, tree.has_dead_child()
        tell(left=left == [owned, running], status=status, known=known)
        tree.kill()
        """,
    )

    assert facts == {"left": True, "status": 7, "known": [True, False]}


def test_the_living_are_listed_parents_first(drive):
    """Zombies do not count as living."""
    facts = drive(
        """
        zombie = os.posix_spawn("/bin/true", ["true"], {})
        deep = "sh -c 'echo $$; exec sleep 600'; true"
        pid, _ = start("sh", "-c", deep)
        until(lambda: proc.stat(zombie).state == "Z")
        parent = proc.stat(pid).ppid
        tell(alive=tree.alive() == [parent, pid])
        tree.kill()
        """,
    )

    assert facts == {"alive": True}
