"""A cgroup a rank: only where it is dsup's to divide, complete, and gone in the end."""

import os
import secrets
import subprocess
import sys

import pytest

from dsup.edges.rank_cgroups import RankCgroups, delegation
from dsup.linux.guardian import Will

pytestmark = [pytest.mark.root, pytest.mark.slow]

# Runs in a cgroup and a mount namespace of its own, with cgroup v2 where it always is.
APART = """
set -eu
mount -t cgroup2 cgroup2 /mnt
mkdir "/mnt/$1"
echo 0 >"/mnt/$1/cgroup.procs"
umount /mnt
exec unshare --cgroup sh -euc '
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec "$@"' sh "$2" -c "$3"
"""
CLEAN = """
mount -t cgroup2 cgroup2 /mnt
find "/mnt/$1" -depth -type d -exec rmdir {} ';'
"""
BEGIN = """
import os, signal, subprocess, sys
from dsup.edges import rank_cgroups
from dsup.linux import divided
top = "/sys/fs/cgroup"
def sleepers(count):
    return [subprocess.Popen(["sleep", "100"]).pid for _ in range(count)]
"""


def apart(script):
    """Run a script in a cgroup of its own; return what it prints, evaluated."""
    name = f"dsup-test-{secrets.token_hex(4)}"
    spaces = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    try:
        done = subprocess.run(
            [*spaces, APART, "sh", name, sys.executable, BEGIN + script],
            capture_output=True,
            check=False,
            text=True,
            timeout=600,
        )
    finally:
        left = subprocess.run(
            [*spaces, CLEAN, "sh", name], capture_output=True, check=False, timeout=600
        )
    assert done.returncode == 0, done.stderr
    assert left.returncode == 0, left.stderr
    return done.stdout.split()


def test_ranks_and_all_they_started_are_moved():
    """Each to its own; who is no rank's goes to the agent's; nobody is left between."""
    script = """
ranks = dict(enumerate(sleepers(2)))
(other,) = sleepers(1)
shell = subprocess.Popen("sleep 100 & echo $!; wait", shell=True, stdout=-1, text=True)
ranks[2] = shell.pid
helper = int(shell.stdout.readline())
assert not rank_cgroups.divide(top, ranks, os.getpid()).startswith(b"!")
for rank, pid in ranks.items():
    mine = {pid, helper} if rank == 2 else {pid}
    assert set(divided.pids(f"{top}/rank_{rank}")) == mine
assert {os.getpid(), other} <= set(divided.pids(f"{top}/agent"))
assert divided.pids(top) == []
rank_cgroups.kill(top)
assert [os.waitpid(pid, 0)[1] for pid in list(ranks.values())[:2]] == [9, 9]
shell.wait()
while divided.pids(f"{top}/rank_2"):
    pass
os.kill(other, 9)
rank_cgroups.leave(top)
print(*divided.parts(top))
"""
    assert apart(script) == ["agent"]


def test_what_an_earlier_attempt_left_empty_is_used_again():
    """Empty cgroups go first: their counters would tell of others."""
    script = """
os.mkdir(f"{top}/rank_0")
os.mkdir(f"{top}/rank_7")
(pid,) = sleepers(1)
assert not rank_cgroups.divide(top, {0: pid}, os.getpid()).startswith(b"!")
print(*sorted(divided.parts(top)))
os.kill(pid, 9)
os.waitpid(pid, 0)
rank_cgroups.leave(top)
"""
    assert apart(script) == ["agent", "rank_0"]


def test_where_somebody_of_an_earlier_attempt_lives_nothing_is_moved():
    """A counter that others may raise proves nothing."""
    script = """
os.mkdir(f"{top}/rank_0")
old, new = sleepers(2)
divided.enter(f"{top}/rank_0", old)
answer = rank_cgroups.divide(top, {0: new}, os.getpid())
assert answer.startswith(b"!processes of an earlier attempt"), answer
print(new in divided.pids(top), divided.parts(top))
for pid in (old, new):
    os.kill(pid, 9)
    os.waitpid(pid, 0)
rank_cgroups.leave(top)
"""
    assert apart(script) == ["True", "['rank_0']"]


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        pytest.param("", "", id="a container's own, and all are ours"),
        pytest.param(
            "subprocess.Popen('setsid sleep 100 & ', shell=True).wait()",
            "processes that are not dsup's",
            id="a process that is no descendant",
        ),
        pytest.param("os.mkdir(f'{top}/other')", "divided already", id="other parts"),
        pytest.param(
            "os.mkdir(f'{top}/x'); divided.enter(f'{top}/x', os.getpid())",
            "was not handed over",
            id="below the container's own",
        ),
        pytest.param(
            "os.mkdir(f'{top}/x'); os.setxattr(f'{top}/x', 'trusted.delegate', b'1');"
            "divided.enter(f'{top}/x', os.getpid())",
            "",
            id="systemd says it is given",
        ),
        pytest.param(
            "subprocess.run(['mount', '-o', 'remount,bind,ro', top], check=True)",
            "not writable",
            id="read-only",
        ),
    ],
)
def test_a_cgroup_is_divided_only_where_it_is_dsup_s(before, reason):
    """Who else lives there, or who owns it, decides; the reason is said."""
    script = f"""
{before}
print(rank_cgroups.delegation().reason or "may")
if {before!r}.startswith("subprocess.Popen"):
    for pid in set(divided.pids(top)) - {{os.getpid()}}:
        os.kill(pid, 9)
    while len(divided.pids(top)) > 1:
        pass
"""
    told = " ".join(apart(script))

    assert told == "may" if not reason else reason in told


def test_the_node_s_root_cgroup_is_everybody_s():
    """No right whatever makes it dsup's."""
    # Where the tests themselves live in a cgroup below it, it is not handed over.
    assert delegation().directory == ""


@pytest.mark.parametrize(
    ("how", "lines"),
    [
        pytest.param("off", 0, id="off"),
        pytest.param("auto", 0, id="auto: it was a wish"),
        pytest.param("on", 1, id="on: it was asked for"),
    ],
)
def test_a_refusal_is_said_to_who_asked(how, lines):
    """Nothing is written anywhere, no aide is started, and the run goes on."""
    said: list[str] = []
    started: list[object] = []
    will = Will()
    made = RankCgroups(will, lambda *work: started.append(work), said.append, how)
    made.started({0: os.getpid()})
    made.kill()
    made.close()

    assert (len(said), started, will.cgroup) == (lines, [], "")
