"""A training log of gigabytes: how fast it is read, and in how much memory.

Run by hand: ``pytest -m soak -n 0 -s tests/soak/test_log_scan.py``.
"""

import os
import subprocess
import sys

import pytest

BYTES = 2_000_000_000

LINE = (
    b"[2024-05-08 08:47:31,261] [INFO] [logging.py:96:log_dist] [Rank 0] step=%07d, "
    b"skipped=0, lr=[0.0001], loss 2.1234 grad_norm 0.7123 tok/s 9123\n"
)
FAILURE = b"".join(
    b"[rank%d]: %s\n" % (rank, row)
    for rank in range(3)
    for row in (b"Traceback (most recent call last):", b"RuntimeError: found it")
)

READER = """
import sys, time
from dsup.edges.log_files import LogFiles
from dsup.facts.logs import attempts, streams

began = time.process_time()
files = LogFiles(sys.argv[1:])
found = 0
for batch in attempts.split(streams.lines(files.lines())):
    found += sum("found it" in line.text for line in batch.lines)
spent_s = time.process_time() - began
status = open("/proc/self/status").read()
peak_mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(found, files.bytes_read / spent_s / 1e6, peak_mib)
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_two_gigabytes_are_read_fast_and_in_little_memory(tmp_path):
    """Failures in the middle and at the end are found, at over 100 MB/s of CPU time."""
    path = tmp_path / "train.log"
    block = b"".join(LINE % step for step in range(100_000))
    with path.open("wb") as log:
        for i in range(BYTES // len(block)):
            log.write(block)
            if i == BYTES // len(block) // 2:
                log.write(FAILURE)
        log.write(FAILURE)
    told = subprocess.run(
        [sys.executable, "-c", READER, path],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    ).stdout
    found, megabytes_a_second, peak_mib = map(float, told.split())
    print(f"{megabytes_a_second:.0f} MB/s, {peak_mib:.0f} MiB")

    assert found == 6
    assert megabytes_a_second > 100
    assert peak_mib < 100
