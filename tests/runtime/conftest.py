"""Real workers and real heartbeat pages for the tests of the runtime."""

import contextlib
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import dsup_runtime
from dsup_runtime import contract

PACKAGES = str(Path(dsup_runtime.__file__).parents[1])
PATIENCE_S = 600.0
"""For what is to come soon: no machine is so busy that it comes later."""
INHERITED = {
    name: value
    for name, value in os.environ.items()
    if name == "PATH" or name.startswith("COVERAGE_")
}
"""All that workers get of the tests' own environment."""


class Page:
    """A heartbeat page as the agent makes it, except for what a test spoils."""

    def __init__(self, *, attempt=0, slots=1, magic=contract.MAGIC, size=None):
        self.fd = os.memfd_create("heartbeats", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, contract.page_bytes(slots))
        header = {
            contract.HEADER_MAGIC: magic,
            contract.HEADER_ATTEMPT: attempt,
            contract.HEADER_SLOTS: slots,
        }
        for word, value in header.items():
            os.pwrite(self.fd, struct.pack("=q", value), word * contract.WORD_BYTES)
        if size is not None:
            os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.words = memoryview(mmap.mmap(self.fd, 0)).cast("q")

    def slot(self, index=0):
        """Return the words of one slot; they are its worker's own memory."""
        first = contract.slot_offset(index)
        return self.words[first : first + contract.SLOT_WORDS]

    def renew(self):
        """Make it anew: that of a group of ranks which is about to start."""
        kept = (contract.HEADER_MAGIC, contract.HEADER_ATTEMPT, contract.HEADER_SLOTS)
        for word in range(len(self.words)):
            if word not in kept:
                self.words[word] = 0
        self.words[contract.HEADER_STOP_STEP] = contract.NO_STEP

    def environment(self, slot=0, attempt=0):
        """Return the variables by which a worker finds its slot."""
        return {
            contract.HEARTBEAT: contract.format_heartbeat(self.fd, slot),
            contract.ATTEMPT: str(attempt),
        }


class Worker(subprocess.Popen):
    """A process that runs a script (or a whole command) and is talked to by lines."""

    def __init__(self, script, *, env=None, page=None, pass_fds=(), **popen):
        command = [sys.executable, "-c", script] if isinstance(script, str) else script
        super().__init__(
            command,
            env={
                **INHERITED,
                "PYTHONPATH": PACKAGES,
                **(page.environment() if page else {}),
                **(env or {}),
            },
            pass_fds=((page.fd,) if page else ()) + pass_fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )

    def hear(self):
        """Return the next line that the worker prints, decoded from JSON."""
        return json.loads(self.stdout.readline())

    def go_on(self):
        """Let the worker pass the place where it reads a line."""
        self.stdin.write("\n")
        self.stdin.flush()

    def finish(self):
        """Return (exit status, stdout, stderr) once it has ended."""
        stdout, stderr = self.communicate(timeout=PATIENCE_S)
        return self.returncode, stdout, stderr


FORGE = """
import ctypes, json, os, select, sys, time
import torch, torch.distributed as dist
import dsup_runtime.agreement, dsup_runtime.stop

torch.set_num_threads(1)

def meet_all(size):
    # Who leaves or freezes while others still join would have them join for ever.
    store = dist.distributed_c10d._get_default_store()
    store.add("joined", 1)
    while store.add("joined", 0) < size:
        time.sleep(0.01)

def be_rank(rank, trial, answers, over):
    ctypes.CDLL(None).prctl(1, 9)  # no rank outlives this process
    size = trial["size"]
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size}
    os.environ.update({name: str(place) for name, place in places.items()})
    os.environ.update(trial["env"][rank])
    names = {"rank": rank, "size": size, "args": trial["args"], "told": None}
    names.update(os=os, time=time, torch=torch, dist=dist)
    try:
        if trial["meet"]:
            dist.init_process_group(
                "gloo", init_method=trial["meet"], rank=rank, world_size=size
            )
            meet_all(size)
        exec(trial["code"], names)
        answer = {"told": names["told"]}
    except BaseException as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    os.write(answers, json.dumps(answer).encode())
    os.read(over, 1)  # whoever leaves first would be gone for the others
    os._exit(0)

def hold(trial):
    if "optim" in trial["code"] or "Parallel" in trial["code"]:
        import torch._dynamo  # here, or each rank would import it for seconds
    over, end = os.pipe()
    pids, pipes = [], []
    for rank in range(trial["size"]):
        answer, answers = os.pipe()
        if not (pid := os.fork()):
            os.close(end)
            be_rank(rank, trial, answers, over)
        os.close(answers)
        pids.append(pid)
        pipes.append(answer)
    os.close(over)
    until = time.monotonic() + trial["limit_s"]
    found = [None] * len(pids)
    for rank in sorted(range(len(pids)), key=trial["frozen"].__contains__):
        pipe = pipes[rank]
        left = max(until - time.monotonic(), 0) if rank not in trial["frozen"] else 0
        if select.select([pipe], [], [], left)[0]:
            found[rank] = json.loads(os.read(pipe, 1 << 16) or "null")
        if found[rank] is None:
            os.kill(pids[rank], 9)
        os.close(pipe)
    os.close(end)
    for pid in pids:
        os.waitpid(pid, 0)
    return found

for line in sys.stdin:
    print(json.dumps(hold(json.loads(line))), flush=True)
"""
"""Has torch, and forks ranks that would take seconds each to import it."""


class World(Worker):
    """Ranks that run a piece of code together, as often as a test wants."""

    def __init__(self, directory, page):
        super().__init__(FORGE, pass_fds=(page.fd,))
        self.directory = directory
        self.page = page
        self.trials = 0

    def begin(self, code, size=4, **trial):
        """Let ranks run some code; what it leaves in ``told`` is their answer.

        The code sees rank, size, args, os, time, torch and dist, whose group is made.
        """
        self.trials += 1
        page = self.page if trial.pop("supervised", False) else None
        if page:
            page.renew()
        more = trial.pop("env", {})
        env = [{**(page.environment(slot) if page else {}), **more}
               for slot in range(size)]  # fmt: skip
        meet = f"file://{self.directory}/{self.trials}"
        trial = {
            "args": None,
            "frozen": [],
            "limit_s": PATIENCE_S,
            "meet": meet,
            **trial,
        }
        self.stdin.write(json.dumps({"code": code, "size": size, "env": env, **trial}))
        self.go_on()

    def run(self, code, size=4, **trial):
        """Return what each rank told, by rank: ``told``, or ``error`` and ``text``.

        A rank that is frozen, or that did not end in time, tells None.
        """
        self.begin(code, size, **trial)
        return self.hear()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world of ranks with torch and gloo, and a page with four slots."""
    page = Page(slots=4)
    ranks = World(tmp_path_factory.mktemp("world"), page)
    yield ranks
    ranks.kill()
    ranks.communicate(timeout=PATIENCE_S)
    os.close(page.fd)


BARE = os.path.realpath(sys.executable)
"""Outside of any virtual environment, for there is no user's own site within one."""


def run_python(script, environment, fds=(), cwd=None, python=sys.executable):
    """Run a script to its end; its output is text."""
    return subprocess.run(
        [python, "-c", script],
        env={"PATH": os.environ["PATH"], **environment},
        pass_fds=fds,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def run_rank(script, *, bootstrap="0", more=(), **where):
    """Run a script as a rank; return its result and the notes that it sent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        environment = {
            "PYTHONPATH": contract.BOOTSTRAP_DIR,
            contract.BOOTSTRAP: bootstrap,
            contract.NOTES: contract.format_notes(theirs.fileno()),
            **dict(more),
        }
        result = run_python(script, environment, [theirs.fileno()], **where)
        ours.setblocking(False)
        notes = []
        with contextlib.suppress(BlockingIOError):
            while True:
                notes.append(json.loads(ours.recv(contract.NOTE_MAX_BYTES)))
        return result, notes


@pytest.fixture
def make_page():
    """Make heartbeat pages; they go with the test."""
    pages = []

    def make(**spoiled):
        pages.append(Page(**spoiled))
        return pages[-1]

    yield make
    for page in pages:
        os.close(page.fd)


@pytest.fixture
def page(make_page):
    """A sound page of attempt 0 with one slot."""
    return make_page()


@pytest.fixture
def start():
    """Start workers; none outlives the test."""
    workers = []

    def start_worker(script, **options):
        workers.append(Worker(script, **options))
        return workers[-1]

    yield start_worker
    for worker in workers:
        worker.kill()
        worker.communicate(timeout=PATIENCE_S)


@pytest.fixture
def run(start):
    """Run a worker to its end: (exit status, stdout, stderr)."""

    def run_worker(script, **options):
        return start(script, **options).finish()

    return run_worker


@pytest.fixture
def alone():
    """Run a script as Python alone does, with the given variables."""
    return run_python


@pytest.fixture
def told():
    """Run a script as a rank; return its result and the notes that it sent."""
    return run_rank


@pytest.fixture
def bare():
    """Return a Python outside of virtual environments: these have no user site."""
    return BARE


@pytest.fixture
def early(tmp_path):
    """Have code run before the bootstrap; return the variables that see to it."""

    def write(code):
        site = tmp_path / "lib/python{}.{}/site-packages".format(*sys.version_info)
        site.mkdir(parents=True)
        (site / "early.py").write_text(code)
        (site / "early.pth").write_text("import early\n")
        return {"PYTHONUSERBASE": str(tmp_path)}

    return write
