"""Ranks that need each other at every step, as in a collective, and one that fails.

``ring.py KIND RANK [STEPS [gloo]]``: that rank fails in the way of KIND after so many
steps; the others raise what gloo raises when a peer has gone or does not come. With
``gloo`` the group is a real one.
"""

import atexit
import ctypes
import faulthandler
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

from dsup_runtime import oom

KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = "127.0.0.1", int(os.environ["MASTER_PORT"])
STEPS = int(sys.argv[3]) if sys.argv[3:] else 5
REAL = sys.argv[4:] == ["gloo"]
STAYS = {"sleep", "slow_exit", "stop", "thread"}
"""Kinds of which the others hear nothing for long: they give up on their own."""

WAIT_S = 6.0 if REAL else 2.0 if KIND in STAYS else 120.0

rest = threading.Event().wait


class Group:
    """Every rank waits at each step for every other: rank 0 keeps the roll."""

    def __init__(self):
        if RANK == 0:
            with socket.create_server(PLACE, backlog=SIZE) as listener:
                self.peers = [listener.accept()[0] for _ in range(SIZE - 1)]
        else:
            self.peers = [self.join()]
        self.step()  # however long each takes to start
        for peer in self.peers:
            peer.settimeout(WAIT_S)

    def join(self):
        """Find rank 0."""
        while True:
            try:
                return socket.create_connection(PLACE)
            except ConnectionRefusedError:
                rest(0.01)

    def step(self):
        """Meet the others."""
        if RANK:
            self.peers[0].sendall(b".")
        for peer in self.peers:
            self.hear(peer)
        if RANK == 0:
            for peer in self.peers:
                peer.sendall(b".")

    def hear(self, peer):
        """Wait for a peer's sign."""
        try:
            if peer.recv(1):
                return
        except TimeoutError:
            text = "[unbound_buffer.cc:78] Timed out waiting 1000ms for recv operation"
            raise RuntimeError(f"{text} to complete") from None
        raise RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:7")

    def leave(self):
        """Have the others lose this rank."""
        for peer in self.peers:
            peer.close()


class GlooGroup:
    """The same with torch: an all_reduce is a step."""

    def __init__(self):
        import torch
        import torch.distributed

        self.torch = torch.distributed
        self.torch.init_process_group("gloo")
        self.torch.barrier()  # who leaves while others join has them join for ever
        self.group = self.torch.new_group(timeout=timedelta(seconds=WAIT_S))
        self.number = torch.ones(1)

    def step(self):
        """Meet the others."""
        self.torch.all_reduce(self.number, group=self.group)

    def leave(self):
        """Have the others lose this rank."""
        self.torch.destroy_process_group()


def in_thread():
    """Die in a thread that the main thread waits for."""

    def work():
        raise RuntimeError("prefetch died")

    thread = threading.Thread(target=work, name="prefetch")
    thread.start()
    thread.join()
    rest(600)


def slow_exit():
    """Raise, and take long to end."""
    atexit.register(rest, 4)
    raise ValueError("loss is NaN")


def slow_finally():
    """Leave the group before the exception is seen."""
    try:
        raise ValueError("loss is NaN")
    finally:
        group.leave()
        rest(0.5)


def out_of_memory():
    """Have the kernel kill this process."""
    oom.die()


def helper_out_of_memory():
    """Have the kernel kill a helper of this process."""
    # It lives long enough to have been seen below its rank.
    code = "import time; time.sleep(2.2); from dsup_runtime import oom; oom.die()"
    helper = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    if helper.wait():
        raise RuntimeError(f"the tokenizer ended with {helper.returncode}")


def crash_silently():
    """Read address 0 with nobody to report it but the kernel."""
    faulthandler.disable()
    ctypes.string_at(0)


def large():
    """Die with a large memory."""
    held = [bytes([1]) * (64 << 20) for _ in range(16)]
    os.kill(os.getpid(), len(held) and signal.SIGKILL)


def ask(name):
    """Have the test do something to this process."""
    line = json.dumps({"name": name, "rank": RANK, "pid": os.getpid()})
    with Path(os.environ["DSUP_TEST_EVENTS"]).open("a") as file:
        file.write(f"{line}\n")
    rest(600)


def raising(error):
    """Return what raises an error."""

    def act():
        raise error

    return act


def refuse():
    """Say what argparse says."""
    print("usage: ring.py\nring.py: error: no --lr", file=sys.stderr)
    sys.exit(2)


def send(signum):
    """Return what sends this process a signal."""
    return lambda: os.kill(os.getpid(), signum)


def load():
    """Import what is not there."""
    importlib.import_module("module_that_is_not_there")


FAIL = {
    "raise": raising(ValueError("bad batch 17")),
    "memory": raising(MemoryError("cannot allocate 4 GiB")),
    "import": load,
    "disk": raising(OSError(28, "No space left on device", "ckpt/step_9.tmp")),
    "thread": in_thread,
    "slow_exit": slow_exit,
    "slow_finally": slow_finally,
    "exit": lambda: sys.exit(3),
    "os_exit": lambda: os._exit(7),
    "usage": refuse,
    "early": lambda: sys.exit(0),
    "kill": send(signal.SIGKILL),
    "large": large,
    "abort": os.abort,
    "segv": lambda: ctypes.string_at(0),
    "segv_silent": crash_silently,
    "bus": send(signal.SIGBUS),
    "oom": out_of_memory,
    "helper_oom": helper_out_of_memory,
    "stop": send(signal.SIGSTOP),
    "sleep": lambda: rest(600),
    "term": lambda: ask("term"),
}

if KIND == "alike":
    raise FileNotFoundError(2, "No such file or directory", "conf/7b.yaml")
if KIND == "first_line" and RANK == CULPRIT:
    os.kill(os.getpid(), signal.SIGSEGV)
group = GlooGroup() if REAL else Group()
for _ in range(STEPS):
    group.step()
if RANK == CULPRIT:
    FAIL[KIND]()
while True:
    group.step()
    rest(0.01)
