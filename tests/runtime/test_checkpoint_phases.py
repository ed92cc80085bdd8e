"""Ranks that save together learn of each other what they must, in bounded time."""

import pytest

from dsup_runtime import contract
from dsup_runtime.checkpoints import newest_valid

pytestmark = [pytest.mark.slow, pytest.mark.torch]

SETUP = """
import logging, signal, zlib
from dsup_runtime import deferred, side_group
from dsup_runtime.checkpoints.directory import CheckpointDir
from dsup_runtime.checkpoints.phases import of_all
logging.disable()

def write(folder):
    with open(f"{folder}/rank-{rank}.bin", "wb") as file:
        file.write(bytes([rank]) * 1000)

def kept():
    return [str(each.error) for each in deferred.all_kept()]

class Ended:
    def __init__(self, end):
        self.result = end

    def done(self):
        return True

def freeze():
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)

def caught(call):
    begin_s = time.monotonic()
    try:
        return call()
    except Exception as error:
        took_s = time.monotonic() - begin_s
        return [type(error).__name__, str(error), took_s]
"""
SHORT_S = 1.5
SHORT = {contract.COMM_TIMEOUT_S: str(SHORT_S)}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


@pytest.mark.parametrize(
    ("code", "limit_s"),
    [
        pytest.param(
            "told = caught(lambda: CheckpointDir(args).save(1, lambda _: freeze()))",
            6 * SHORT_S,
            id="in its write",
        ),
        pytest.param(
            "told = caught(lambda: of_all(freeze))", SHORT_S, id="in its part"
        ),
    ],
)
def test_a_rank_that_freezes_is_noticed_by_the_limit_of_a_collective(
    world, root, code, limit_s
):
    """Within six times of it after the caller's write, and else within it."""
    ready = "side_group.exchange('here', timeout_s=60)\n"
    answers = world.run(
        SETUP + ready + code, size=2, args=str(root), env=SHORT, frozen=[1]
    )

    assert answers[1] is None
    error, _, took_s = answers[0]["told"]
    assert error == "PeerError"
    assert took_s > limit_s - 0.5


def test_a_rank_that_works_for_longer_than_a_collective_is_waited_for(world):
    """As long as it answers, nobody takes it for frozen.

    Where the machine itself stands still for as long as that, nobody answers.
    """
    code = """
def work():
    end_s = time.monotonic() + 2 * args * rank
    while time.monotonic() < end_s:
        zlib.crc32(bytes(1 << 20))
    return rank

side_group.exchange('here', timeout_s=60)
told = of_all(work)
"""

    def answers(limit_s):
        env = {contract.COMM_TIMEOUT_S: str(limit_s)}
        return world.run(SETUP + code, size=2, args=limit_s, env=env)

    waited_for = [{"told": [0, 1]}] * 2
    assert waited_for in (answers(limit_s) for limit_s in (SHORT_S, 10 * SHORT_S))


def test_an_error_that_has_no_words_is_told_all_the_same(world, root):
    """A __str__ that raises costs the save, and keeps nobody waiting."""
    code = """
class Mute(Exception):
    def __str__(self):
        raise ValueError

def fail():
    if rank == 1:
        raise Mute

def begin(folder):
    write(folder)
    return Ended(fail)

saved = CheckpointDir(args).save(1, begin)
told = [saved, len(deferred.all_kept())]
"""
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert answers == [{"told": [False, 0]}, {"told": [False, 1]}]


def test_a_wrong_meta_of_one_rank_costs_all_the_save_before_the_write(world, root):
    """The rank that gave it keeps the error, and the next save is as any other."""
    code = """
checkpoints = CheckpointDir(args)
saved = checkpoints.save(1, lambda _: 1 / 0, meta=5 if rank == 0 else None)
errors = kept()
told = [saved, checkpoints.save(2, write), errors]
"""
    main, other = world.run(SETUP + code, size=2, args=str(root))

    assert main["told"][:2] == other["told"][:2] == [False, True]
    assert ["int is neither a mapping nor" in words for words in main["told"][2]] == [
        True
    ]
    assert other["told"][2] == []


def test_without_a_process_group_of_all_ranks_none_writes(world, root):
    """Each would be rank 0 of 1, and all would write the same files."""
    code = """
checkpoints = CheckpointDir(args)
told = [caught(lambda: checkpoints.save(1, write))[:2],
        caught(lambda: checkpoints.load(print))[:2]]
"""
    answers = world.run(SETUP + code, size=2, args=str(root), meet="")

    for answer in answers:
        for kind, words in answer["told"]:
            assert kind == "CheckpointError"
            assert "launcher started 2 ranks and there is no process group" in words
    assert not root.exists()


def test_after_the_process_group_is_gone_none_writes(world, root):
    """Neither what was begun before is published by one, nor anything begun."""
    code = """
checkpoints = CheckpointDir(args)
checkpoints.save(1, write)
checkpoints.save(2, write, wait=False)
dist.barrier()
dist.destroy_process_group()
told = [caught(call)[0] for call in (checkpoints.finish,
        lambda: checkpoints.save(3, write), lambda: checkpoints.load(print))]
"""
    answers = world.run(SETUP + code, size=2, args=str(root))

    assert answers == [{"told": ["CheckpointError"] * 3}] * 2
    assert newest_valid(root).newest.step == 1
