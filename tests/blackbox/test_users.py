"""dsup as an ordinary user, and ranks and files that are another user's."""

import os
import signal
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.dsup_only,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user"),
]

PAUSE = "emit=ready,hang"
NOBODY = 65534


def reachable_by_all(prefix):
    """Return a shell text that opens the way to the interpreter, in a namespace."""
    closed = [p for p in reversed(Path(prefix).parents) if not p.stat().st_mode & 0o001]
    if not closed:
        return ""
    return (
        f"mkdir -p /mnt/dsup-test && mount -t tmpfs tmpfs /mnt && mkdir /mnt/p && "
        f"mount --bind {prefix} /mnt/p && mount -t tmpfs -o mode=755 tmpfs {closed[0]}"
        f" && mkdir -p {prefix} && mount --bind /mnt/p {prefix} && "
    )


@pytest.fixture
def as_nobody(run):
    """Give a maker of the words that start a run as an ordinary user; needs root."""
    run.base.chmod(0o777)
    way = reachable_by_all(sys.base_prefix)
    user = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"

    def words(*, no_new_privs=True):
        asked = user + " --no-new-privs" * no_new_privs
        return ["unshare", "--mount", "sh", "-c", f'{way}exec {asked} "$@"', "sh"]

    return words


@pytest.mark.parametrize(
    "who", ["agent", "guard", ""], ids=["agent -9", "guard -9", "ok"]
)
def test_an_ordinary_user(run, proc, who, as_nobody):
    """All of it works without any right: restart, cleaning up, kill -9 of dsup."""
    run.start(
        "--nproc 2 --max-restarts 1",
        "1@0:helper=setsid,helper=clear,emit=ready,wait=ready*2,die=KILL",
        f"*@0:helper=setsid,helper=clear,{PAUSE}",
        "*:emit=again,wait=go",
        wrap=as_nobody(),
    )
    run.wait_event("again", 2)
    agent = proc.children_of(run.process.pid)[0]
    if who:
        os.kill({"agent": agent, "guard": run.process.pid}[who], signal.SIGKILL)
    else:
        run.emit("go")

    assert run.ended() == (137 if who else 0), run.console()
    proc.until(lambda: not run.processes(), 600, run.processes)


BECOMES_ROOT = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    FILE *events = fopen(getenv("DSUP_TEST_EVENTS"), "a");
    if (setresuid(0, 0, 0)) return 9;
    fputs("{\\"name\\": \\"root\\", \\"rank\\": 0, \\"pid\\": 0}\\n", events);
    fclose(events);
    sleep(600);
}
"""


def test_a_rank_that_became_another_user(run, compiled, as_nobody):
    """It cannot be signalled, so the node is said to be unfit, and who must act."""
    program = compiled(BECOMES_ROOT)
    program.chmod(0o4755)
    run.start(
        "--nproc 2 --shutdown-timeout 0.5 --no-python",
        script=program,
        wrap=as_nobody(no_new_privs=False),
    )
    run.wait_event("root", 2)
    run.signal(signal.SIGTERM)

    assert run.ended() == 193, run.console()
    (line,) = (line for line in run.said() if "cannot end" in line)
    assert "ranks" in line or "rank 0 (pid " in line
    assert "another user's must be ended by that user" in line
    assert "bug" not in run.console()


def test_a_checkpoint_directory_of_somebody_else(run, as_nobody):
    """Nor would it be allowed the next time."""
    closed = run.files / "closed"
    closed.mkdir(mode=0o700)
    run.start(
        f"--nproc 2 --checkpoint-dir {closed}/deep",
        "*:emit=started",
        wrap=as_nobody(),
    )

    assert run.ended() == 2, run.console()
    assert not run.events("started")
    assert any("permission denied" in line.lower() for line in run.said()), (
        run.console()
    )
