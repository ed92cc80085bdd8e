"""Every file of a checkpoint has one rank that answers for it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsup_runtime.checkpoints.files import Storage
from dsup_runtime.checkpoints.shares import (
    owner,
    rank_file,
    read_shares,
    wait_until_there,
    write_share,
)
from dsup_runtime.errors import CheckpointError


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("dcp/__3_0.distcp", 3),
        ("dcp/__11_2.distcp", 11),
        ("dcp/.metadata", 0),
        ("mp_rank_03_model_states.pt", 3),
        ("iter_0000500/mp_rank_02/model_rng.pt", 2),
        ("rank-7.pt", 7),
        ("rank7.pt", 7),
        ("random_states_1.pkl", 1),
        ("checkpoint-500/rng_state_1.pth", 1),
        ("rng_state_11.pth", 11),
        ("rng_state.pth", 0),
        ("optimizer_1.bin", 0),
        ("model_1.safetensors", 0),
        ("model-00002-of-00004.safetensors", 0),
        ("state.pt", 0),
    ],
)
def test_the_number_in_a_name_tells_whose_file_it_is(name, rank):
    """DCP's shards and those of other frameworks go to the rank that wrote them."""
    assert owner(name, 16) == rank


@given(st.text(), st.integers(1, 5000))
def test_whatever_a_file_is_called_it_has_an_owner(name, ranks):
    """With fewer ranks than wrote them, too."""
    assert 0 <= owner(name, ranks) < ranks


def fill(folder, *, ranks=2):
    for rank in range(ranks):
        Path(folder, f"rank-{rank}.pt").write_bytes(b"%d" % rank * 50)
    for rank in range(ranks):
        write_share(str(folder), rank, ranks, Storage())


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        pytest.param(
            lambda folder: (folder / rank_file(1)).unlink(),
            "cannot see .*rank-00001.json from here",
            id="a rank's file is missing",
        ),
        pytest.param(
            lambda folder: (folder / rank_file(1)).write_text("{"),
            "rank-00001.json is not what rank 1 of 2 writes",
            id="it is no JSON",
        ),
        pytest.param(
            lambda folder: edit(folder / rank_file(1), world_size=3),
            "rank-00001.json is not what rank 1 of 2 writes",
            id="it is of another run",
        ),
        pytest.param(
            lambda folder: edit(folder / rank_file(1), files=[1]),
            "rank-00001.json is not what rank 1 of 2 writes",
            id="it names no files",
        ),
        pytest.param(
            lambda folder: (folder / "rank-1.pt").write_bytes(b"longer" * 99),
            "rank-1.pt is not what its rank wrote",
            id="a file grew",
        ),
        pytest.param(
            lambda folder: (folder / "rank-1.pt").unlink(),
            "rank-1.pt is not what its rank wrote",
            id="a file is gone",
        ),
        pytest.param(
            lambda folder: (folder / "late.pt").touch(),
            "late.pt is not what its rank wrote",
            id="a file came late",
        ),
    ],
)
def test_no_manifest_is_made_of_what_does_not_fit(tmp_path, spoil, because):
    """What the ranks say must be what is there, all of it and nothing else."""
    fill(tmp_path)
    assert len(read_shares(str(tmp_path), 2, visible_within_s=0)) == 2
    spoil(tmp_path)

    with pytest.raises(CheckpointError, match=because):
        read_shares(str(tmp_path), 2, visible_within_s=0)


def test_what_appears_late_is_waited_for(tmp_path):
    """A directory that a network file system hides for a while is found in time."""
    now_s = iter(range(100))

    def wait(_seconds):
        waits.append(_seconds)
        if len(waits) == 20:
            (tmp_path / "new").mkdir()

    waits: list[float] = []
    wait_until_there(
        str(tmp_path / "new"), 60, now_s=lambda: float(next(now_s)), wait=wait
    )
    assert len(waits) == 20


def test_what_never_appears_is_given_up(tmp_path):
    """After the time is over the error names what is not there, and what to do."""
    now_s = iter(range(100))

    with pytest.raises(CheckpointError, match=r"cannot see .*gone .*\(choose a dir"):
        wait_until_there(
            str(tmp_path / "gone"),
            60,
            now_s=lambda: float(next(now_s)),
            wait=lambda _: None,
        )
    assert next(now_s) == 61
