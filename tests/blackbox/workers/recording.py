"""A thread that plays the part of NCCL's monitor: gloo records, but answers no pipe."""

import os
import threading
from pathlib import Path

from torch._C import _distributed_c10d as c10d

RANK = os.environ["RANK"]
PIPE = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{RANK}.pipe"
DUMP = f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{RANK}"


trace = getattr(c10d, "_dump_fr_trace")  # noqa: B009 (it is private)


def answer(pipe):
    """Dump the trace whenever somebody has written into the pipe."""
    while os.read(pipe, 128):
        Path(DUMP).write_bytes(trace())


def start():
    """Answer from now on; the first trace takes seconds, for what torch imports."""
    trace()
    os.mkfifo(PIPE)
    pipe = os.open(PIPE, os.O_RDWR)
    threading.Thread(target=answer, args=(pipe,), daemon=True).start()
