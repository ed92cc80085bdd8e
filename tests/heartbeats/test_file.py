"""Heartbeats by a file: what others make of it harms neither the agent nor a worker."""

import errno
import os
import stat

import pytest

from dsup.edges.heartbeat_file import FileCarrier
from dsup.edges.heartbeats import Page
from dsup_runtime import contract

WAITING = """
import sys
from dsup_runtime import beat, phase, info, heartbeat
def pause(value="null"):
    print(value, flush=True)
    sys.stdin.readline()
"""
BEAT = "from dsup_runtime import beat, info; beat(7); print(info().supervised)"
SIZE = contract.page_bytes(2)
STEP_AT = (contract.slot_offset(0) + contract.SLOT_STEP) * contract.WORD_BYTES
NOBODY = 65534


@pytest.fixture
def agent(make_agent):
    """Give an agent whose page of two slots is in a file."""
    return make_agent("file")


def overwrite(path, data, offset=0):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def fill(disk):
    """Write to a disk until nothing more fits."""
    with (disk / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def replace_by_link(path):
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)


def replace_by_fifo(path):
    path.unlink()
    os.mkfifo(path)


def replace_by_directory(path):
    path.unlink()
    path.mkdir()


HARMS = {
    "emptied": lambda path: os.truncate(path, 0),
    "a word too short": lambda path: os.truncate(path, SIZE - 8),
    "a terabyte long": lambda path: os.truncate(path, 1 << 40),
    "noise": lambda path: overwrite(path, os.urandom(SIZE)),
    "zeros": lambda path: overwrite(path, bytes(SIZE)),
    "a header of another attempt": lambda path: overwrite(
        path, (6).to_bytes(8, "little"), contract.HEADER_ATTEMPT * 8
    ),
    "removed": lambda path: path.unlink(),
    "a link": replace_by_link,
    "a pipe": replace_by_fifo,
    "a directory": replace_by_directory,
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
def test_nothing_that_becomes_of_the_file_harms_anybody(agent, start, harm):
    """The agent keeps what it knew and works on; the worker trains on, as told 0."""
    script = """
beat(1)
page = heartbeat.own_page()
pause()
for step in range(2, 20):
    beat(step)
    page.exchange()
pause(page.header(3))
"""
    worker = start(agent, WAITING + script)
    worker.hear()
    assert agent.page.step() == 1
    harm(agent.path)
    agent.page.mark_dead(1)
    worker.go_on()

    assert worker.hear() == contract.NO_STEP
    assert agent.page.step() in {1, 19}
    assert os.fstat(agent.page.kept_fd).st_size == SIZE
    worker.go_on()
    assert worker.finish() == (0, "", "")


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
def test_a_file_that_is_no_page_is_left_alone(agent, start, harm):
    """A worker that finds anything else than its page does not write to it, or wait."""
    if harm is HARMS["a terabyte long"]:
        os.truncate(agent.path, SIZE + 8)
    else:
        harm(agent.path)
    sound = agent.path.is_file() and not agent.path.is_symlink()
    before = agent.path.read_bytes() if sound else None

    assert start(agent, BEAT).finish() == (0, "False\n", "")
    assert before is None or agent.path.read_bytes() == before


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="empty"),
        pytest.param("/", id="the root"),
        pytest.param("/dev/zero", id="a device without end"),
        pytest.param("/proc/self/mem", id="its own memory"),
        pytest.param("/a/b/c", id="not there"),
        pytest.param("/" + "x" * 5000, id="a name that is too long"),
    ],
)
def test_a_path_that_names_no_page_is_ignored(agent, start, path):
    """Nothing that the variable can hold stops the training script."""
    env = {contract.HEARTBEAT: f"file:{path}#0"}

    assert start(agent, BEAT, env=env).finish() == (0, "False\n", "")


@pytest.mark.root
def test_a_file_that_may_not_be_written_leaves_a_worker_unsupervised(agent, start):
    """A worker of another user, who may only read, trains on without heartbeats."""
    agent.path.chmod(0o444)
    for above in agent.path.parents:
        if not above.stat().st_mode & stat.S_IXOTH:  # pytest's own, below /tmp
            above.chmod(0o711)
    script = f"""
import os
from dsup_runtime import beat, info, page_carriers
os.setuid({NOBODY})
beat(7)
print(info().supervised, os.access({str(agent.path)!r}, os.R_OK))
"""
    assert start(agent, script).finish() == (0, "False True\n", "")
    assert agent.page.step() is None


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(lambda path: path.symlink_to(path.parent / "victim"), id="link"),
        pytest.param(
            lambda path: path.symlink_to(path.parent / "new"), id="dangling link"
        ),
        pytest.param(lambda path: path.write_text("mine"), id="file"),
        pytest.param(os.mkfifo, id="pipe"),
        pytest.param(os.mkdir, id="directory"),
    ],
)
def test_what_is_in_the_files_place_is_neither_followed_nor_used(tmp_path, plant):
    """The agent makes the file anew or not at all; the ranks inherit the page then."""
    path, victim = tmp_path / "heartbeats", tmp_path / "victim"
    victim.write_text("precious")
    plant(path)
    page = Page(0, 1)
    with pytest.raises(FileExistsError):
        page.carry(lambda image: FileCarrier(str(path), 0o600, image))

    assert page.fd == page.kept_fd
    assert victim.read_text() == "precious"
    assert not (tmp_path / "new").exists()
    page.close()


def test_only_the_owner_may_read_it_if_the_run_is_private(agent):
    """The file has the permissions that were asked for."""
    assert stat.S_IMODE(agent.path.stat().st_mode) == 0o600


@pytest.mark.root
def test_a_disk_that_has_become_full_costs_no_heartbeat(make_agent, start, small_disk):
    """The file has its room from the start, so no worker is killed for want of it."""
    agent = make_agent("file", small_disk / "heartbeats")
    worker = start(
        agent, WAITING + "beat(1); pause()\nbeat(2)\nwith phase('eval'): pause()"
    )
    worker.hear()
    with pytest.raises(OSError, match="No space left"):
        fill(small_disk)
    worker.go_on()
    worker.hear()
    agent.page.mark_dead(1)

    assert agent.page.step() == 2
    assert agent.slot(1)[contract.SLOT_DEAD] == 1


@pytest.mark.root
def test_a_full_disk_has_no_page_and_nothing_is_left_on_it(small_disk):
    """Without room the file is not made, rather than made in part."""
    with pytest.raises(OSError, match="No space left"):
        fill(small_disk)
    page = Page(0, 1)
    with pytest.raises(OSError, match="No space left") as refused:
        page.carry(lambda image: FileCarrier(f"{small_disk}/hb", 0o600, image))

    assert refused.value.errno == errno.ENOSPC
    assert os.listdir(small_disk) == ["fill"]
    page.close()


def test_a_worker_cut_off_by_a_file_size_limit_trains_on(agent, start):
    """A write that the system refuses is no error of the script's."""
    script = """
import resource
from dsup_runtime import beat, info
resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
for step in range(10): beat(step)
print(info().supervised)
"""
    status, _, error = start(agent, script).finish()

    assert (status, error) == (0, "")


def test_the_file_may_be_read_while_the_run_goes_on(agent, start):
    """What the run directory has is the page itself, for whoever looks in between."""
    worker = start(agent, WAITING + "beat(5); pause()")
    worker.hear()
    raw = agent.path.read_bytes()

    assert int.from_bytes(raw[STEP_AT : STEP_AT + 8], "little") == 5
