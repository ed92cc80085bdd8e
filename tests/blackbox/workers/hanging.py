"""Ranks that add up numbers over gloo, until one of them hangs in the way of KIND.

``hanging.py KIND RANK [tell [SECONDS]]``: with ``tell`` the ranks use the runtime, and
so tell their steps; the others have words printed until they are ready, however long
their imports take. ``barrier`` has the others wait at one of its barriers so long.
With RECORDING in the environment their flight recorders can be asked for traces.
"""

import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading
from datetime import timedelta

WORDS = ["sh", "-c", "while echo 'getting ready'; do sleep 0.5; done"]
TELLS = sys.argv[3:4] == ["tell"]
words = None if TELLS else subprocess.Popen(WORDS)

import act  # noqa: E402 (once there are words)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

import dsup_runtime as rt  # noqa: E402

KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS = 40 if TELLS else 8
CLONE_VFORK = 0x4000
CLONE = {"x86_64": 56, "aarch64": 220}

for_ever = threading.Event().wait
silence, _unused = os.pipe()
number = torch.ones(1)


class Slow(Dataset[int]):
    """One item never comes."""

    def __len__(self):
        """Return how many items there are."""
        return 4

    def __getitem__(self, index):
        """Return an item."""
        return read(index)


def read(index):
    """Never return the last item."""
    if index == 3:
        os.read(silence, 1)  # as storage does
    return index


def stuck():
    """Do something else while the others wait."""
    os.read(silence, 1)  # as in a call that never returns


def locked():
    """Take a lock and wait for a second one, whose owner waits for the first."""
    first, second = threading.Lock(), threading.Lock()
    meet = threading.Barrier(2)

    def take():
        with second:
            meet.wait()
            with first:  # the second one
                pass

    threading.Thread(target=take, name="pump", daemon=True).start()
    with first:
        meet.wait()
        with second:
            pass


def loaded():
    """Wait for a batch that never comes."""
    for number, _ in enumerate(DataLoader(Slow(), num_workers=2)):
        if number == 2:  # however long the workers took to start
            be_quiet()


def asleep():
    """Wait in the kernel for a child that executes no program."""
    libc = ctypes.PyDLL(None)
    call = CLONE[platform.machine()]
    if libc.syscall(call, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        while True:
            signal.pause()


def branch():
    """Call what nobody else calls."""
    dist.broadcast(number, src=0)


HANG = {
    "before": stuck,
    "locks": locked,
    "loader": loaded,
    "asleep": asleep,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "branch": branch,
    "leave": lambda: os._exit(0),
}


def be_quiet():
    """Have no words printed any more."""
    if words:
        words.kill()
        words.wait()


def step():
    """Meet the others."""
    dist.all_reduce(number)  # a step


def train():
    """Take steps, and then hang."""
    for done in range(STEPS):
        step()
        if TELLS:
            rt.beat(done + 1)
        act.pause(0.05)
    if not (KIND == "loader" and RANK == CULPRIT):
        be_quiet()
    if KIND == "extra":
        extra()
    elif RANK == CULPRIT:
        HANG.get(KIND, stuck)()
    elif KIND == "barrier":
        rt.barrier("epoch", timeout_s=float(sys.argv[4]))
    while True:
        step()


def extra():
    """Have one rank alone take part in a collective."""
    if RANK == CULPRIT:
        dist.all_reduce(number)
    for_ever()


def main():
    """Join the others and train with them."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    if "RECORDING" in os.environ:
        step()
        import recording

        recording.start()
    train()


if __name__ == "__main__":
    main()
