"""The vigil: what one look a second sees of real processes."""

import os
import select
import signal
import struct
import subprocess
import sys
import time

import pytest

from dsup.core.limits import Limits
from dsup.edges.vigil import Vigil
from dsup_runtime import contract

SLEEPS = "import time; print(flush=True); time.sleep(600)"
TALKS = "import sys\nprint(flush=True)\nfor line in sys.stdin: print(line, flush=True)"
SLEEPS_IN_THE_KERNEL = """
import ctypes, mmap, threading
def burn():
    while True: pass
threading.Thread(target=burn, daemon=True).start()
libc, size = ctypes.CDLL(None), 1 << 16
stack = ctypes.c_char.from_buffer(mmap.mmap(-1, size))
top = ctypes.c_void_p(ctypes.addressof(stack) + size - 64)
print(flush=True)
libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), top, 0x4100, ctypes.c_void_p(600))
"""
"""As a parent of vfork does until its child executes a program."""

LIMIT_S = 600


@pytest.fixture
def ranks():
    """Give a maker of processes that stand for ranks; it returns them by rank."""
    made = []

    def start(*scripts):
        for script in scripts:
            command = [sys.executable, "-c", script]
            pipe = subprocess.PIPE
            made.append(subprocess.Popen(command, stdin=pipe, stdout=pipe))
            made[-1].stdout.readline()
            until_state(made[-1], "SD")  # it has done all that it does by itself
        return dict(enumerate(made))

    yield start
    for one in made:
        one.kill()
        one.communicate()


@pytest.fixture
def vigil(tmp_path):
    """Give a maker of vigils over processes, on a node that is never overloaded."""
    made = []

    def over(ranks, limits=None):
        pids = {rank: process.pid for rank, process in ranks.items()}
        made.append(Vigil(limits or Limits(), pids, str(tmp_path)))
        return made[-1]

    yield over
    for one in made:
        one.close()


def page(*slots):
    """Return a heartbeat page with such slots: words by their place."""
    words = [0] * (contract.page_bytes(len(slots)) // contract.WORD_BYTES)
    for number, slot in enumerate(slots):
        for word, value in slot.items():
            words[contract.slot_offset(number) + word] = value
    return struct.pack(f"={len(words)}q", *words)


def beat(at_s, step, phase="train"):
    """Return the slot of a rank that has just finished a step."""
    return {
        contract.SLOT_HEARTBEAT_NS: int(at_s * 1e9),
        contract.SLOT_PROGRESS_NS: int(at_s * 1e9),
        contract.SLOT_STEP: step,
        contract.SLOT_PHASE: contract.PHASES.index(phase),
    }


def until_state(process, letters):
    """Wait until the kernel shows a process in one of these states."""
    end_s = time.monotonic() + LIMIT_S
    path = f"/proc/{process.pid}/stat"
    while True:
        with open(path, "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0].decode()
        if state in letters:
            return
        assert time.monotonic() < end_s, f"still in state {state}"
        select.select([], [], [], 0.005)


def talk(process):
    """Have a process write a line; by then the kernel has counted it, too."""
    process.stdin.write(b"on\n")
    process.stdin.flush()
    process.stdout.readline()
    until_state(process, "S")


def until_busier(pid):
    """Wait until a process has used more processor time."""

    def used():
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[11])

    before, end_s = used(), time.monotonic() + LIMIT_S
    while used() <= before:
        assert time.monotonic() < end_s, "no other thread runs"
        select.select([], [], [], 0.005)


def test_a_frozen_rank_is_named_at_the_next_look(ranks, vigil):
    """SIGSTOP needs no runtime to be seen: the kernel says it."""
    there = ranks(SLEEPS, SLEEPS)
    watch = vigil(there)
    assert not watch.look(1.0, there, b"")

    there[1].send_signal(signal.SIGSTOP)
    until_state(there[1], "T")

    (found,) = watch.look(2.0, there, b"")
    assert (found.kind, found.ranks, found.why) == ("suspected", (1,), "frozen")


def test_a_rank_that_goes_on_is_cleared(ranks, vigil):
    """Whoever froze it, to look at it or by mistake, has let it go."""
    there = ranks(SLEEPS)
    watch = vigil(there)
    there[0].send_signal(signal.SIGSTOP)
    until_state(there[0], "T")
    watch.look(1.0, there, b"")

    there[0].send_signal(signal.SIGCONT)
    until_state(there[0], "SR")

    assert [one.kind for one in watch.look(2.0, there, b"")] == ["cleared"]


def test_steps_on_the_page_are_learned_and_missed(ranks, vigil):
    """Three usual steps without one, two seconds at least."""
    there = ranks(SLEEPS, SLEEPS)
    watch = vigil(there)
    for now in range(1, 11):
        assert not watch.look(now, there, page(beat(now, now), beat(now, now)))

    stands = page(beat(10, 10), beat(10, 10))

    assert not watch.look(12.0, there, stands)
    assert [one.ranks for one in watch.look(13.5, there, stands)] == [(0, 1)]


def test_a_limit_that_passes_between_two_looks_is_not_waited_for(ranks, vigil):
    """The next look is when it passes; while all make steps it is a second later."""
    there = ranks(SLEEPS)
    watch = vigil(there)
    for now in range(1, 11):
        watch.look(now, there, page(beat(now - 0.5, now)))
        assert (watch.due_s, watch.wake_s) == (now + 1, float("inf"))

    watch.look(11.0, there, page(beat(9.5, 10)))
    assert 12 <= watch.due_s <= 13
    watch.look(12.0, there, page(beat(9.5, 10)))
    assert watch.due_s == watch.wake_s
    found = watch.look(watch.wake_s, there, page(beat(9.5, 10)))

    assert [one.kind for one in found] == ["suspected"]


def test_a_rank_is_not_asleep_that_runs_now_and_then(ranks, vigil):
    """Of one that writes to a slow disk each look may see state D."""
    there = ranks(SLEEPS)
    watch = vigil(there)
    watch.look(1.0, there, b"")

    assert watch.watch.pulses[0].look.state == "S"


def test_a_main_thread_asleep_in_the_kernel_is_seen_beside_busy_ones(ranks, vigil):
    """Watchdogs and loaders go on; the training loop does not."""
    there = ranks(SLEEPS_IN_THE_KERNEL)
    pid = there[0].pid
    until_state(there[0], "D")
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        (child,) = map(int, file.read().split())
    watch = vigil(there)

    watch.look(1.0, there, b"")
    until_busier(pid)
    found = watch.look(12.0, there, b"")
    os.kill(child, signal.SIGKILL)

    assert [(one.kind, one.why) for one in found] == [("suspected", "asleep")]


def test_nothing_is_folded_where_nothing_changes(ranks, vigil):
    """Until a limit comes, however far away it is."""
    there = ranks(SLEEPS)
    watch = vigil(there)
    for now in range(1, 4):
        watch.look(now, there, page(beat(1, 1, "init")))
    remembered = watch.watch

    for now in range(4, 1800):
        assert not watch.look(now, there, page(beat(1, 1, "init")))

    assert watch.watch is remembered
    found = watch.look(1805.0, there, page(beat(1, 1, "init")))
    assert [one.kind for one in found] == ["suspected", "confirmed"]


def test_a_rank_that_has_gone_is_looked_at_no_more(ranks, vigil):
    """Dead but not collected, and collected: neither is a hang."""
    there = ranks(SLEEPS, SLEEPS)
    watch = vigil(there)
    there[0].kill()
    os.waitid(os.P_PID, there[0].pid, os.WEXITED | os.WNOWAIT)
    assert not watch.look(1.0, there, b"")
    assert set(watch.watch.pulses) == {1}

    there[0].wait()

    assert not watch.look(2.0, there, b"")
    assert set(watch.watch.pulses) == {1}


def test_silence_of_a_rank_without_the_runtime_counts_if_asked_for(ranks, vigil):
    """Output is the only progress it shows, and each line of it counts."""
    there = ranks(TALKS)
    watch = vigil(there, Limits(unseen_s=30.0))
    assert not watch.look(1.0, there, b"")
    talk(there[0])

    assert not watch.look(25.0, there, b"")
    assert not watch.look(50.0, there, b"")
    assert [one.kind for one in watch.look(56.0, there, b"")] == [
        "suspected",
        "confirmed",
    ]


def test_silence_of_a_rank_without_the_runtime_is_nothing_otherwise(ranks, vigil):
    """Nobody knows how long its steps are."""
    there = ranks(SLEEPS)
    watch = vigil(there)

    assert not [watch.look(float(now), there, b"") for now in range(1, 9999, 100)][-1]


def test_the_time_of_a_rest_does_not_count(ranks, vigil):
    """A stopped agent, or a suspended machine, has not looked."""
    there = ranks(SLEEPS)
    watch = vigil(there)
    for now in range(1, 11):
        watch.look(now, there, page(beat(now, now)))

    watch.rest(3990.0)

    assert not watch.look(4001.0, there, page(beat(10, 10)))


@pytest.mark.parametrize(
    "slot",
    [
        pytest.param(dict.fromkeys(range(16), -(1 << 63)), id="least"),
        pytest.param(dict.fromkeys(range(16), (1 << 63) - 1), id="greatest"),
        pytest.param(dict.fromkeys(range(16), 77), id="no phase"),
    ],
)
def test_a_page_full_of_nonsense_is_survived(ranks, vigil, slot):
    """A rank's slot is a rank's own memory."""
    there = ranks(SLEEPS)
    watch = vigil(there)

    for now in range(1, 100):
        watch.look(float(now), there, page(slot))


def test_a_page_that_is_too_short_has_no_news(ranks, vigil):
    """As one that was never made."""
    there = ranks(SLEEPS, SLEEPS)

    assert not vigil(there).look(1.0, there, page())


def test_what_a_rank_is_asked_to_write_is_no_life(ranks, vigil):
    """Its stacks, of a rank that tells nothing else."""
    there = ranks(TALKS)
    watch = vigil(there, Limits(unseen_s=30.0))
    watch.look(1.0, there, b"")

    watch.deafen(deaf=True)
    talk(there[0])
    watch.look(20.0, there, b"")
    watch.deafen(deaf=False)

    found = watch.look(32.0, there, b"")
    assert [one.kind for one in found] == ["suspected", "confirmed"]
