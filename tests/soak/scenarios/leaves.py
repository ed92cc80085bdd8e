"""Ways to end: by oneself, by another's hand, too early, too late."""

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

rest = threading.Event().wait


def leave_group():
    """Leave it, if there is one.

    Else gloo's threads may abort a rank on its way out: another death than was meant.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def quietly():
    """End with 0, as if all the work were done."""
    leave_group()
    sys.exit(0)


def without_words():
    """End with a code of one's own, and say nothing."""
    leave_group()
    sys.exit(3)


def ask():
    """Have the test do something to this process."""
    line = json.dumps({"name": "here", "rank": os.environ["RANK"], "pid": os.getpid()})
    with Path(os.environ["DSUP_TEST_EVENTS"]).open("a") as file:
        file.write(f"{line}\n")
    rest(600)


def report_and_leave():
    """Print what went wrong, as scripts with a catch-all do, and end with a code."""
    try:
        raise_alone()
    except ValueError:
        traceback.print_exc()
        sys.exit(3)


def sleep_in_the_kernel():
    """Wait in state D: for a child that opens a FIFO before it becomes a program."""
    fifo = Path(os.environ["SCENARIO_DIR"]) / "fifo"
    os.mkfifo(fifo)
    opened = [(os.POSIX_SPAWN_OPEN, 0, str(fifo), os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=opened)


def freeze():
    """Stop as a debugger, or Ctrl-Z, stops a process."""
    os.kill(os.getpid(), signal.SIGSTOP)


def come_late():
    """Come to the collective when the others have given up, and not much later."""
    rest(float(os.environ["TEAM_WAIT_S"]) + 2)


def raise_together():
    """Raise at the same instant as the other one: clocks agree within microseconds."""
    meeting = Path(os.environ["SCENARIO_DIR"])
    (meeting / f"raises.{os.environ['RANK']}").write_text(str(time.monotonic()))
    while len(ready := list(meeting.glob("raises.*"))) < 2:
        rest(0.001)
    at_s = max(float(file.read_text() or "inf") for file in ready) + 0.5
    while time.monotonic() < at_s:
        pass
    raise ValueError("shard 7 holds no samples")


def need_a_module():
    """Import what is not installed."""
    __import__("flash_attn_that_nobody_installed")


def call_another_collective():
    """Call a broadcast where the others call an all_reduce."""
    import torch
    import torch.distributed as dist

    dist.broadcast(torch.ones(4), src=int(os.environ["RANK"]))


def bind_the_port():
    """Serve on a port that another process of this node has."""
    from torch._C._distributed_c10d import TCPStore

    port = int(os.environ["SCENARIO_PORT"])
    TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)


def be_slow_on_cpu():
    """Use up the processor time that ``ulimit -t`` allows."""
    import resource

    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used, used + 5))
    while True:
        pass


def raise_alone():
    """Raise what is nobody else's fault."""
    raise ValueError("bad batch 17")
