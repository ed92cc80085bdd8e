"""Kin: real trees of helpers and threads, and whose each of them is."""

import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from dsup.core.state import NEVER
from dsup.edges.kin import Kin

MISSING = 2**22 + 1
PRELUDE = """
import json, os, select, signal, subprocess, sys, time
from textwrap import dedent
from dsup.edges.kin import Kin
from dsup.linux import libc, proc
libc.become_subreaper()
DEVNULL = subprocess.DEVNULL

HELP = '''
import json, os, subprocess, sys, threading, time
from subprocess import DEVNULL
def tell(*facts):
    print(json.dumps(facts), flush=True)
def sleeper(**how):
    return subprocess.Popen(["sleep", "600"], **how).pid
'''

def start(code, **how):
    # A rank: in a session of its own, and its stdout a pipe, as the agent's are.
    how = {"stdout": subprocess.PIPE} | how
    code = HELP + dedent(code) + "\\nsys.stdin.read()"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                            start_new_session=True, **how)

def heard(rank):
    return json.loads(rank.stdout.readline())

def until(holds):
    for _ in range(120_000):
        if holds():
            return
        select.select([], [], [], 0.005)
    sys.exit("it did not become so")

def tell(**facts):
    print(json.dumps(facts))
    sys.stdout.flush()
    for pid in proc.descendants(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(0)

kin = Kin()
"""


@pytest.fixture
def drive():
    """Run a piece of Python that adopts and kills; return the facts it tells."""

    def run(code, *wrap):
        done = subprocess.run(
            [*wrap, sys.executable, "-c", PRELUDE + dedent(code)],
            capture_output=True,
            check=False,
            text=True,
            timeout=600,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_a_quick_look_sees_helpers_and_threads(drive):
    """Children of main threads, theirs in turn, and threads of the rank are known."""
    facts = drive(
        """
        rank = start('''
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        middle = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"],
                                  stdout=subprocess.PIPE)
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        tell(middle.pid, int(middle.stdout.readline()), *threads)
        ''')
        kin.add(3, rank.pid)
        ids = heard(rank)
        kin.look(0.0)
        tell(ids=len(set(ids)), ranks=[kin.pids().get(pid) for pid in ids])
        """
    )

    assert facts == {"ids": 4, "ranks": [3, 3, 3, 3]}


def test_a_close_look_sees_children_and_threads_of_all(drive):
    """A helper that a second thread forked, and the helper's own threads."""
    facts = drive(
        """
        rank = start('''
        def fork():
            code = "import os, threading, time;"
            code += "threading.Thread(target=time.sleep, args=(600,)).start();"
            code += "print(*os.listdir('/proc/self/task'), flush=True)"
            child = subprocess.Popen([sys.executable, "-c", code],
                                     stdout=subprocess.PIPE)
            tell(*map(int, child.stdout.readline().split()))
            time.sleep(600)
        threading.Thread(target=fork, daemon=True).start()
        ''')
        kin.add(3, rank.pid)
        ids = heard(rank)
        kin.look(0.0)
        quick = [kin.pids().get(pid) for pid in ids]
        kin.look_closely()
        tell(quick=quick, closely=[kin.pids().get(pid) for pid in ids])
        """
    )

    assert facts == {"quick": [None, None], "closely": [3, 3]}


def test_a_close_look_sees_the_dead(drive):
    """A helper that was killed and not collected yet is still its rank's."""
    facts = drive(
        """
        rank = start("tell(sleeper())")
        kin.add(3, rank.pid)
        (pid,) = heard(rank)
        os.kill(pid, signal.SIGKILL)
        until(lambda: proc.stat(pid).state == "Z")
        kin.look_closely()
        tell(rank=kin.pids().get(pid))
        """
    )

    assert facts == {"rank": 3}


ORPHANS = {
    "it has the rank's session": (
        "stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL",
        False,
        3,
    ),
    "it writes to the rank's pipe": ("stdin=DEVNULL, start_new_session=True", False, 3),
    "it was seen before": (
        "stdout=DEVNULL, stderr=DEVNULL, start_new_session=True",
        True,
        3,
    ),
    "nothing tells": (
        "stdout=DEVNULL, stderr=DEVNULL, start_new_session=True",
        False,
        None,
    ),
}


@pytest.mark.parametrize(("how", "seen", "rank"), ORPHANS.values(), ids=ORPHANS.keys())
@pytest.mark.parametrize("alive", [True, False], ids=["rank lives", "rank died"])
def test_an_orphan_is_known_again(drive, how, seen, rank, alive):
    """A helper that the agent has adopted belongs to its rank, or to nobody known."""
    facts = drive(
        f"""
        code = '''
        def fork_twice():
            told, tell_it = os.pipe()
            middle = os.fork()
            if middle == 0:
                os.write(tell_it, b"%d" % sleeper({how}))
                sys.stdin.readline()
                os._exit(0)
            tell(int(os.read(told, 20)))
            os.waitpid(middle, 0)
            tell("orphaned")
        fork_twice()
        '''
        rank = start(code)
        kin.add(3, rank.pid)
        (pid,) = heard(rank)
        if {seen}:
            kin.look(0.0)
        rank.stdin.write(b"\\n")
        rank.stdin.flush()
        heard(rank)
        adopted = proc.stat(pid).ppid == os.getpid()
        if not {alive}:
            rank.kill()
            rank.wait()
        kin.look_closely()
        tell(adopted=adopted, rank=kin.pids().get(pid), root=kin.pids()[rank.pid])
        """
    )

    assert facts == {"adopted": True, "rank": rank, "root": 3}


@pytest.mark.parametrize(
    ("ranks", "stream"),
    [
        pytest.param(2, "write", id="of two ranks"),
        pytest.param(1, "None", id="of dsup's own"),
    ],
)
def test_a_shared_pipe_tells_nothing(drive, ranks, stream):
    """A stream that is not one rank's alone does not make an orphan that rank's."""
    facts = drive(
        f"""
        read, write = os.pipe()
        for number in range({ranks}):
            rank = start("", stdout={stream}, stderr=DEVNULL)
            kin.add(number, rank.pid)
        stranger = subprocess.Popen(["sleep", "600"], stdout={stream})
        kin.look_closely()
        tell(rank=kin.pids().get(stranger.pid), known=len(kin.pids()))
        """
    )

    assert facts == {"rank": None, "known": ranks}


def test_what_is_no_ranks_is_nobodys(drive):
    """Other children of the agent, such as its scribe, belong to no rank."""
    facts = drive(
        """
        rank = start("")
        kin.add(0, rank.pid)
        other = subprocess.Popen(["sh", "-c", "sleep 600 & echo; wait"],
                                 stdout=subprocess.PIPE)
        other.stdout.readline()
        kin.look_closely()
        (below,) = proc.children(other.pid)
        tell(other=[pid in kin.pids() for pid in (other.pid, below)])
        """
    )

    assert facts == {"other": [False, False]}


REUSED = """
def take_over(pid, parent):
    # Have the next process get a number that was another's, in a later tick.
    select.select([], [], [], 0.03)
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
    return parent()

owner = start('''
child = subprocess.Popen(["sleep", "600"])
tell(child.pid)
sys.stdin.readline()
child.kill()
child.wait()
tell("gone")
''')
kin.add(0, owner.pid)
(pid,) = heard(owner)
kin.look(0.0)
before = kin.pids()[pid]
owner.stdin.write(b"\\n")
owner.stdin.flush()
heard(owner)
"""

AFTERWARDS = {
    "nobody's": ("stranger = take_over(pid, lambda: start('').pid)", None),
    "another rank's": (
        "stranger = take_over(pid, lambda: start('').pid); kin.add(1, stranger)",
        1,
    ),
    "still free": ("stranger = pid", 0),
}


@pytest.mark.root
@pytest.mark.parametrize(("code", "after"), AFTERWARDS.values(), ids=AFTERWARDS.keys())
def test_a_number_may_become_anothers(drive, code, after):
    """A pid that was given to another process does not belong to the rank any more."""
    facts = drive(
        REUSED
        + code
        + "\nkin.look_closely()\n"
        + "tell(same=stranger == pid, before=before, after=kin.pids().get(pid))",
        *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    )

    assert facts == {"same": True, "before": 0, "after": after}


@pytest.mark.root
def test_the_number_of_a_rank_that_has_gone_is_not_followed(drive):
    """What lives below a stranger that has a dead rank's pid is not the rank's."""
    facts = drive(
        """
        rank = start("tell()")
        kin.add(0, rank.pid)
        heard(rank)
        rank.kill()
        rank.wait()
        select.select([], [], [], 0.03)
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(rank.pid - 1))
        stranger = start("tell(sleeper())")
        (child,) = heard(stranger)
        kin.look(0.0)
        kin.look_closely()
        same = stranger.pid == rank.pid
        tell(same=same, child=kin.pids().get(child), rank=kin.pids()[rank.pid])
        """,
        *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    )

    assert facts == {"same": True, "child": None, "rank": 0}


def test_memory_is_bounded(drive):
    """What was not met for longest goes first; the ranks themselves stay."""
    facts = drive(
        """
        kin = Kin(entries_max=6)
        first, second = (start(f"tell(*[sleeper() for _ in range(4)])")
                         for _ in range(2))
        kin.add(0, first.pid)
        heard(first)
        kin.look(0.0)
        one = len(kin.pids())
        kin.add(1, second.pid)
        ids = heard(second)
        first.kill()
        first.wait()
        kin.look(1.0)
        known = kin.pids()
        tell(one=one, known=len(known), newest=[known.get(pid) for pid in ids],
             ranks=[known.get(rank.pid) for rank in (first, second)])
        """
    )

    assert facts == {"one": 5, "known": 6, "newest": [1] * 4, "ranks": [0, 1]}


def test_looks_come_every_two_seconds():
    """The first one sooner; without a rank never."""
    kin = Kin()
    assert kin.due_s == NEVER
    kin.add(0, os.getpid())
    now_s, looks = 1000.0, []
    assert kin.due_s <= now_s
    for _ in range(7):
        kin.look(now_s)
        now_s = kin.due_s
        looks.append(now_s - 1000.0)

    assert looks == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0]


def test_a_late_look_is_not_made_up_for():
    """After a standstill the next look is due at the next time, not at once."""
    kin = Kin()
    kin.add(0, os.getpid())
    kin.look(1000.0)
    kin.look(1005.5)

    assert kin.due_s == 1007.5


def test_a_rank_that_is_gone_at_once_is_still_known():
    """Its number is kept even if nothing of it could be seen."""
    kin = Kin()
    kin.add(5, MISSING)
    kin.look(0.0)
    kin.look_closely()

    assert kin.pids()[MISSING] == 5


BUSY = """
for _ in range(29):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
helpers = [sleeper() for _ in range(4)]
tell("ready")
"""


@pytest.mark.slow
def test_looking_is_cheap(drive):
    """A look reads a few files for each process, and none for each of its threads."""
    facts = drive(
        f"""
        ranks = [start({BUSY!r}) for _ in range(8)]
        for number, rank in enumerate(ranks):
            heard(rank)
            kin.add(number, rank.pid)
        kin.look(0.0)
        opened, calls = [], []
        sys.addaudithook(lambda event, _: event == "open" and opened.append(event))
        sys.setprofile(lambda _, event, __: calls.append(event))
        kin.look(1.0)
        sys.setprofile(None)
        tell(known=len(kin.pids()), opened=len(opened), calls=len(calls))
        """
    )
    processes = 8 * 5

    assert facts["known"] == 8 * 34
    assert facts["opened"] <= 2 * processes
    assert facts["calls"] <= 100 * processes
