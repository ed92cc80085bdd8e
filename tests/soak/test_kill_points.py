"""Ranks are killed anywhere: no checkpoint is lost, and no sample is seen twice."""

import hashlib
import importlib.util
import json
from collections import Counter
from pathlib import Path

import pytest

from dsup_runtime.checkpoints import newest_valid

_HARNESS = Path(__file__).parent.parent / "runtime" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("runtime_harness", _HARNESS)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

world = _MODULE.world

pytestmark = [pytest.mark.slow, pytest.mark.torch]

LIVES = 10
"""Lives with a kill in each test."""

SAVES = """
import json, logging, signal, threading
from dsup_runtime import side_group
from dsup_runtime.checkpoints.directory import CheckpointDir
logging.disable()
checkpoints = CheckpointDir(args["root"], keep=2, commit=args["commit"])
log = os.open(args["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def write(folder):
    for name in (f"rank-{rank}.pt", f"__{rank}_0.distcp"):
        torch.save(torch.full((5_000,), float(step)), f"{folder}/{name}")

def note(*fields):
    os.write(log, (json.dumps([rank, *fields]) + "\\n").encode())

def die_within(seconds):
    kill = os.kill, (os.getpid(), signal.SIGKILL)
    threading.Timer(args["moment"] * seconds, *kill).start()

side_group.exchange("here", timeout_s=10)
if rank == args["victim"] and args["after_saves"] == 0:
    die_within(0.1)
found = checkpoints.load(lambda folder: None)
step = found.step if found else 0
note("loaded", step)
saves = 0
while True:
    step += 1
    begin_s = time.monotonic()
    note("saved" if checkpoints.save(step, write) else "not saved", step)
    saves += 1
    if rank == args["victim"] and saves == args["after_saves"]:
        die_within(1.2 * (time.monotonic() - begin_s))
"""


def draw(*words):
    """Return 0 <= x < 1 for some words; the same on every machine."""
    digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def some(count, plain):
    """Return seeds: the first few for every run of the tests, the others for hours."""
    return [
        pytest.param(n, id=f"seed {n}", marks=[pytest.mark.soak] if n >= plain else [])
        for n in range(count)
    ]


def notes(path):
    """Return what ranks noted, each as [rank, what, step]."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", some(20, plain=1))
def test_a_rank_killed_at_any_moment_of_a_save_costs_that_save_alone(
    world, tmp_path, seed
):
    """What was reported as saved is there, whole, and all ranks load the newest."""
    root, committed = tmp_path / "root", 0
    commit = "manifest" if seed % 4 == 3 else "rename"
    for life in range(LIVES):
        log = tmp_path / f"{life}.jsonl"
        log.touch()
        victim = int(2 * draw(seed, life, "victim"))
        args = {
            "root": str(root),
            "log": str(log),
            "commit": commit,
            "victim": victim,
            "after_saves": int(4 * draw(seed, life, "saves")),
            "moment": draw(seed, life, "moment"),
        }
        env = {"DSUP_ATTEMPT": str(life)}
        answers = world.run(SAVES, size=2, args=args, env=env)

        assert answers.pop(victim) is None
        assert [answer["error"] for answer in answers] == ["PeerError"]
        told = notes(log)
        loaded = {step for _, what, step in told if what == "loaded"}
        assert loaded <= {committed}
        assert not [each for each in told if each[1] == "not saved"]
        reported = [step for _, what, step in told if what == "saved"]
        newest = newest_valid(root, checksums=True).newest
        found = newest.step if newest else 0
        assert max(reported, default=committed) <= found
        assert found <= max(reported, default=committed) + 1
        assert found >= committed + args["after_saves"]
        committed = found


TRAINS = """
import json, logging, multiprocessing, signal
from torch.utils.data import DataLoader, Dataset
from dsup_runtime.checkpoints.directory import CheckpointDir
from dsup_runtime.progress import Progress
from dsup_runtime.resumable_sampler import ResumableSampler
logging.disable()

class Numbers(Dataset):
    def __len__(self):
        return args["length"]

    def __getitem__(self, index):
        return index

checkpoints, progress = CheckpointDir(args["root"], every=3), Progress()
sampler = ResumableSampler(args["length"], args["seed"])
loader = DataLoader(
    Numbers(), args["batch"], sampler=sampler, num_workers=args["workers"]
)
log = os.open(args["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(*fields):
    os.write(log, (json.dumps([rank, *fields]) + "\\n").encode())

def write(folder):
    if rank == 0:
        torch.save(progress.state_dict(), f"{folder}/progress.pt")

def read(folder):
    progress.load_state_dict(torch.load(f"{folder}/progress.pt", weights_only=True))
    return progress.step

def end(how):
    for child in multiprocessing.active_children():
        child.kill()
    how()

def train():
    steps = 0
    for progress.epoch in range(progress.epoch, 2):
        for batch in progress.skip(loader):
            progress.advance(samples=len(batch))
            samples = [[progress.epoch, number] for number in batch.tolist()]
            note("consumed", progress.step, samples)
            dist.all_reduce(torch.ones(1))
            steps += 1
            if steps == args["dies_after"] and rank == args["victim"]:
                end(lambda: os.kill(os.getpid(), signal.SIGKILL))
            if checkpoints.due(progress.step):
                assert checkpoints.save(progress.step, write, meta=progress)

checkpoints.load(read)
note("loaded", progress.step, [])
try:
    train()
except Exception as error:
    note(type(error).__name__, progress.step, [])
    end(lambda: os._exit(1))
told = progress.step
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("workers", "lives"),
    [
        pytest.param(
            0, [4, 2], id="no workers, 4 then 2 ranks", marks=pytest.mark.soak
        ),
        pytest.param(2, [2, 4], id="2 workers, 2 then 4 ranks"),
        pytest.param(0, [2] * 20, id="no workers, 20 kills", marks=pytest.mark.soak),
        pytest.param(2, [2] * 20, id="2 workers, 20 kills", marks=pytest.mark.soak),
        pytest.param(
            0, [4, 2, 1, 2, 4] * 4, id="4, 2 and 1 ranks, 20 kills",
            marks=pytest.mark.soak,
        ),
    ],
)  # fmt: skip
def test_a_run_killed_at_any_step_consumes_each_sample_once(
    world, tmp_path, workers, lives
):
    """Of two epochs every sample counts once, whatever was lost and repeated."""
    log, root = tmp_path / "log.jsonl", tmp_path / "root"
    kept: list = []
    length = 96 if len(lives) < 5 else 480
    for life, ranks in enumerate([*lives, 2]):
        log.write_text("")
        victim = int(ranks * draw(life, workers, "victim")) if life < len(lives) else -1
        args = {
            "root": str(root),
            "log": str(log),
            "length": length,
            "batch": 2 + life % 2,
            "seed": 5,
            "workers": workers,
            "victim": victim,
            "dies_after": 1 + int(11 * draw(life, workers, "step")),
        }
        env = {"DSUP_ATTEMPT": str(life)}
        answers = world.run(TRAINS, size=ranks, args=args, env=env, limit_s=60)
        told = notes_of_data(log)
        if victim >= 0:
            assert answers == [None] * ranks
        else:
            assert answers == [{"told": told[-1][1]}] * ranks
        ended = {what for what, _, _ in told} - {"loaded", "consumed"}
        assert ended <= {"PeerError", "RuntimeError"}  # gloo's own is the latter
        (loaded,) = {step for what, step, _ in told if what == "loaded"}
        kept = [each for each in kept if each[1] <= loaded]
        kept += [each for each in told if each[0] == "consumed"]

    counts = Counter(tuple(sample) for _, _, samples in kept for sample in samples)
    assert set(counts.values()) == {1}
    assert len(counts) == 2 * length


def notes_of_data(path):
    """Return what ranks noted of their data, each as [what, step, samples]."""
    return [note[1:] for note in notes(path)]
