"""A rank that does what no rank should: ``hostile.py DEED[=VALUE]`` on rank 0.

Rank 0 does the deed in attempt 0 and ends as ``DEED`` says; any other rank waits to be
ended, and in a later attempt every rank just ends.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys

from act import ATTEMPT, RANK, emit, wait

PTRACE_SEIZE = 0x4206
PR_SET_PTRACER = 0x59616D61
ANY_TRACER = ctypes.c_ulong(-1)


def traced(end):
    """Be held by a tracer that never looks, and end."""
    libc, rank = ctypes.CDLL(None, use_errno=True), os.getpid()
    libc.prctl(PR_SET_PTRACER, ANY_TRACER, 0, 0, 0)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_long]
    if os.fork() == 0:
        assert libc.ptrace(PTRACE_SEIZE, rank, None, 0) == 0
        emit("held")
        signal.pause()
    wait("held")
    finish(end)


def shared_memory(end):
    """Make shared memory as multiprocessing does, which another process removes."""
    from multiprocessing.shared_memory import SharedMemory

    emit("memory", memory=SharedMemory(create=True, size=4096).name)
    wait("memory*2")
    finish(end)


def crowd(count):
    """Fill TMPDIR with directories."""
    for number in range(int(count)):
        os.mkdir(f"{os.environ['TMPDIR']}/{number}")
    finish("0")


def remove_logs(end):
    """Remove the run directory."""
    while os.path.exists(os.environ["DSUP_RUN_DIR"]):  # it is still written into
        shutil.rmtree(os.environ["DSUP_RUN_DIR"], ignore_errors=True)
    finish(end)


def run_on(program):
    """Start a program in a session of its own, and fail."""
    null = subprocess.DEVNULL
    subprocess.Popen(
        [program], start_new_session=True, stdin=null, stdout=null, stderr=null
    )
    wait("go")
    finish("3")


def finish(end):
    """End with a code, by a signal, or not at all."""
    emit("done")
    if end == "KILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "never":
        signal.pause()
    os._exit(int(end))


DEEDS = {
    "traced": traced,
    "memory": shared_memory,
    "crowd": crowd,
    "remove-logs": remove_logs,
    "run-on": run_on,
}


def main():
    """Do the deed, if it is this rank's."""
    deed, _, value = sys.argv[1].partition("=")
    if ATTEMPT != "0":
        emit("again")
    elif RANK == "0":
        DEEDS[deed](value)
    elif deed == "memory":
        shared_memory("never")
    else:
        signal.pause()


if __name__ == "__main__":
    main()
