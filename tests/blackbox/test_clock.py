"""Pauses and graces, while somebody sets the wall clock."""

import shutil
import signal
import struct
import subprocess

import pytest

pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]

PAUSE = "emit=ready,hang"
SHIFTED_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *shift;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    int fd = open(getenv("SHIFTED_CLOCK"), O_RDONLY | O_CLOEXEC);
    shift = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}
int clock_gettime(clockid_t id, struct timespec *ts) {
    int failed = real(id, ts);
    if (!failed && id == CLOCK_REALTIME) ts->tv_sec += *shift;
    return failed;
}
int gettimeofday(struct timeval *tv, void *zone) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}
"""


@pytest.fixture
def clock(run):
    """Give the environment of a wall clock that can be moved, and its mover."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source, library = run.files / "clock.c", run.files / "clock.so"
    source.write_text(SHIFTED_CLOCK)
    build = [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
    subprocess.run(build, check=True)
    shift = run.files / "shift"
    shift.write_bytes(bytes(4096))

    def move(seconds):
        with shift.open("r+b") as file:
            file.write(struct.pack("l", seconds))

    return {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(shift)}, move


@pytest.mark.parametrize("seconds", [3600, -3600], ids=["forward", "back"])
def test_the_wall_clock_moves_by_an_hour(run, proc, clock, seconds):
    """Pause and grace are measured by a clock that does not jump."""
    env, move = clock
    run.start(
        "--nproc 2 --max-restarts 2 --backoff 1 --shutdown-timeout 1",
        "1@0:emit=ready,wait=go,exit=3",
        f"*@0:{PAUSE}",
        f"*:ignore=TERM,emit=again,{PAUSE}",
        env=env,
    )
    run.wait_event("ready", 2)
    move(seconds)
    run.emit("go")
    proc.until(lambda: run.journal("propose"), 600, run.console)
    move(-seconds)
    run.wait_event("again", 2)
    begun_s = run.elapsed_s()
    run.signal(signal.SIGTERM)
    move(seconds)

    assert run.ended() == 143, run.console()
    assert run.elapsed_s() - begun_s > 0.9
    (died, *_) = run.journal("rank_exited")
    begun = [one.at_s for one in run.journal("rank_started") if one.attempt == 1]
    assert begun[0] - died.at_s >= 1
