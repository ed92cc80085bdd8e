"""The scene: free space and error files, whatever state the file systems are in."""

import base64
import json
import os
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup.edges import aide
from dsup.edges.scene import FILE_MAX_BYTES, Scene, decode, look

LIMIT_S = 600.0

TRACEBACK = "".join(
    f'  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module_{n}.py", '
    f"line {n * 37}, in _call_impl\n    return forward_call(*args, **kwargs)\n"
    for n in range(20)
)


def report(rank):
    """Return what torch writes when a rank raises."""
    info = {"py_callstack": TRACEBACK, "timestamp": str(1_790_000_000 + rank)}
    message = {"message": f"ValueError: bad batch on rank {rank}", "extraInfo": info}
    return json.dumps({"message": message}).encode()


def seen(places=(), files=()):
    """Return the scene as the agent hears of it."""
    return decode(look(dict(places), dict(files), LIMIT_S))


def test_space_is_told_by_name(tmp_path):
    """Of a place that exists it is known how full it is; of another, nothing."""
    found = seen({"run directory": str(tmp_path), "checkpoints": str(tmp_path / "no")})

    (space,) = found.spaces
    actual = os.statvfs(tmp_path)
    assert (space.name, space.path) == ("run directory", str(tmp_path))
    assert space.total_bytes == actual.f_blocks * actual.f_frsize
    assert 0 <= space.free_bytes <= space.total_bytes
    assert found.silent == ()


def test_the_same_device_is_told_once(tmp_path):
    """Two places of one file system are one fact, told of the first."""
    (tmp_path / "below").mkdir()
    places = {"run directory": str(tmp_path / "below"), "TMPDIR": str(tmp_path)}

    assert [space.name for space in seen(places).spaces] == ["run directory"]


def test_a_path_is_safe_to_show(tmp_path):
    """A path is shown printable and not at any length."""
    odd = tmp_path / "a\nb\udcff" / ("x" * 250)
    odd.mkdir(parents=True)

    (space,) = seen({"TMPDIR": str(odd)}).spaces

    assert r"a\nb\udcff" in space.path
    assert len(space.path) == 256


@pytest.fixture
def tmpfs(tmp_path):
    """Mount a small file system in memory; return where."""
    mounted: list[Path] = []

    def mount(options):
        where = tmp_path / f"disk{len(mounted)}"
        where.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        mounted.append(where)
        return where

    yield mount
    for where in mounted:
        subprocess.run(["umount", str(where)], check=True)


@pytest.mark.root
def test_a_full_disk_is_seen(tmpfs):
    """Nothing free, to the byte; inodes are left."""
    where = tmpfs("size=1M")
    with (where / "big").open("wb", buffering=0) as file, pytest.raises(OSError):  # noqa: PT011, PT012 (any of the writes)
        while True:
            file.write(b"x" * 4096)

    (space,) = seen({"checkpoints": str(where)}).spaces

    assert (space.free_bytes, space.total_bytes) == (0, 1 << 20)
    assert space.free_inodes > 0


@pytest.mark.root
def test_a_disk_without_inodes_is_seen(tmpfs):
    """Bytes are free, and yet no file can be made."""
    where = tmpfs("size=1M,nr_inodes=2")
    (where / "last").touch()

    (space,) = seen({"TMPDIR": str(where)}).spaces

    assert space.free_inodes == 0
    assert space.free_bytes > 0


@pytest.mark.root
def test_no_limit_is_not_full(tmpfs):
    """A file system in memory may have no size at all: of it nothing is told."""
    assert seen({"TMPDIR": str(tmpfs("size=0"))}).spaces == ()


def test_an_error_file_comes_as_it_was(tmp_path):
    """Every byte of what a rank wrote, whatever it is, by rank."""
    contents = {0: report(0), 3: bytes(range(256))}
    files = {}
    for rank, content in contents.items():
        files[rank] = str(tmp_path / f"{rank}.json")
        Path(files[rank]).write_bytes(content)

    assert seen(files=files).error_files == contents


def fifo(path):
    """Make a FIFO that nobody writes to."""
    os.mkfifo(path)


def link(path):
    """Make a symlink to a file that could be read."""
    path.with_name("other").write_bytes(report(0))
    path.symlink_to("other")


def device(path):
    """Make a device that gives bytes for ever."""
    os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 5))


def huge(path):
    """Make a file of 1 GB, most of which is a hole."""
    path.write_bytes(report(0))
    os.truncate(path, 10**9)


HOSTILE = {
    "missing": lambda _: None,
    "empty": Path.touch,
    "a FIFO": fifo,
    "a symlink": link,
    "a dangling symlink": lambda path: path.symlink_to("nowhere"),
    "a symlink to itself": lambda path: path.symlink_to(path.name),
    "a directory": Path.mkdir,
    "1 GB": huge,
    "one byte too many": lambda path: path.write_bytes(b"x" * (FILE_MAX_BYTES + 1)),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_error_file_is_left_out(tmp_path, make):
    """Nothing blocks, nothing is read that is not a small regular file."""
    make(tmp_path / "0.json")
    (tmp_path / "1.json").write_bytes(report(1))
    found = seen(files={rank: str(tmp_path / f"{rank}.json") for rank in (0, 1)})

    assert found == Scene(error_files={1: report(1)})


@pytest.mark.root
def test_a_device_is_left_out(tmp_path):
    """A device is not even opened."""
    device(tmp_path / "0.json")

    assert seen(files={0: str(tmp_path / "0.json")}) == Scene()


def sizes(tmp_path, contents):
    """Write error files, the last rank's first; return them by rank."""
    files = {}
    for rank, content in enumerate(contents):
        path = tmp_path / f"{rank}.json"
        path.write_bytes(content)
        os.utime(path, ns=(0, (len(contents) - rank) * 10**9))
        files[rank] = str(path)
    return files


@pytest.mark.parametrize(
    ("ranks", "least"), [pytest.param(3, 3, id="three"), pytest.param(64, 3, id="64")]
)
def test_the_earliest_three_of_any_content_fit(tmp_path, ranks, least):
    """However large and dense the files, the answer has room for three."""
    contents = [os.urandom(FILE_MAX_BYTES) for _ in range(ranks)]
    files = sizes(tmp_path, contents)
    names = "run directory", "checkpoints", "TMPDIR", "shared memory"
    places = dict.fromkeys(names, str(tmp_path))
    answer = look(places, files, LIMIT_S)

    assert len(answer) < aide.ANSWER_MAX_BYTES
    found = decode(answer).error_files
    assert sorted(found) == list(range(ranks))[-least:]
    assert all(found[rank] == contents[rank] for rank in found)


def test_common_tracebacks_of_many_ranks_fit(tmp_path):
    """Of 64 ranks that all raise, every report of a usual size arrives."""
    files = sizes(tmp_path, [report(rank) for rank in range(64)])
    answer = look({}, files, LIMIT_S)

    assert len(answer) < aide.ANSWER_MAX_BYTES
    assert decode(answer).error_files == {rank: report(rank) for rank in range(64)}


DRIVER = """
import base64, ctypes, json, os, resource, struct, sys, threading, zlib
from dsup.attribution import timeline
from dsup.edges import scene
where, other = sys.argv[1:3]
def show(limit_s=600.0):
    found = scene.decode(scene.look({"TMPDIR": where}, {0: other}, limit_s))
    names = [space.name for space in found.spaces]
    print(json.dumps([names, sorted(found.error_files), found.silent]))
    sys.stdout.flush()
    os._exit(0)
"""

REACHABLE = """
os.chdir(os.path.dirname(other))
os.chmod(".", 0o755)
where, other = "place", "0.json"
"""

DEAD_DISK = """
mount = ctypes.CDLL(None, use_errno=True).mount
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
if mount(b"dead", where.encode(), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
unique = struct.unpack_from("=IIQ", os.read(fuse, 1 << 20))[2]
answer = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0)
os.write(fuse, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
"""


@pytest.fixture
def drive(tmp_path):
    """Look from a process of its own, at an empty place and one error file."""
    (tmp_path / "place").mkdir()
    (tmp_path / "0.json").write_bytes(report(0))
    (tmp_path / "0.json").chmod(0o600)

    def run(code, *wrap):
        places = str(tmp_path / "place"), str(tmp_path / "0.json")
        command = [*wrap, sys.executable, "-c", DRIVER + code, *places]
        done = subprocess.run(
            command, capture_output=True, check=False, text=True, timeout=600
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


@pytest.mark.root
@pytest.mark.slow
def test_a_dead_disk_is_named_and_hides_nothing_else(drive):
    """A file system that never answers costs its own answer, and is told of."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse here")
    facts = drive(DEAD_DISK + "show(3.0)", "unshare", "--mount")

    assert facts == [[], [0], ["TMPDIR"]]


@pytest.mark.root
def test_without_a_single_thread_more_it_is_looked_all_the_same(drive):
    """Where nothing more can be started, which may be the fault, all is still told."""
    code = """
os.chown(other, 65534, 0)
os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    show()
"""

    assert drive(REACHABLE + code) == [["TMPDIR"], [0], []]


@pytest.mark.root
def test_a_file_that_may_not_be_read_is_left_out(drive):
    """Without permission there is no content, and no error."""
    assert drive(f"{REACHABLE}os.setuid(65534); show()") == [["TMPDIR"], [], []]


GARBAGE = {
    "silence": b"",
    "cut": look({"TMPDIR": "/"}, {}, LIMIT_S)[:-1],
    "another form": b'{"a": 1}',
    "rows of another form": b"[[1], [], {}]",
    "files of another form": b"[[], [], []]",
    "not encoded": '[[], [], {"0": "ü"}]'.encode(),
    "not compressed": b'[[], [], {"0": "abcde"}]',
    "no rank": b'[[], [], {"x": ""}]',
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_answer_that_is_none_is_an_empty_scene(answer):
    """Whatever an aide says or leaves unsaid, there is a scene."""
    assert decode(answer) == Scene()


@given(st.binary())
def test_no_bytes_make_decode_fail(answer):
    """No answer whatever raises."""
    assert isinstance(decode(answer), Scene)


def test_a_bomb_unfolds_to_the_limit_only():
    """No answer can fill the agent's memory."""
    bomb = base64.b85encode(zlib.compress(b"\0" * (64 << 20))).decode()
    answer = json.dumps([[], [], {0: bomb}]).encode()

    assert len(decode(answer).error_files[0]) == FILE_MAX_BYTES
