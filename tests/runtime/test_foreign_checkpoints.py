"""The newest complete checkpoint of a layout that dsup has not written."""

import os
import zipfile

import pytest

from dsup_runtime.checkpoints.foreign import newest_foreign, step_in

NOW_S = 2_000_000_000.0


def put(path, data=b"weights", *, age_s=60.0):
    """Write a file as one that was last written to some time ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))


def put_zip(path):
    """Write what torch.save writes: a zip archive."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"weights" * 1000)
    os.utime(path, (NOW_S - 60, NOW_S - 60))


def find(pattern, *, wait=None):
    """Look without waiting; what is not settled calls ``wait``, or fails the test."""

    def refuse(_interval_s):
        pytest.fail("looked twice at what is settled")

    return newest_foreign(str(pattern), wait=wait or refuse, now_s=lambda: NOW_S)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param("checkpoint-500", 500, id="Hugging Face"),
        pytest.param("step-1000", 1000, id="torchtitan"),
        pytest.param("global_step100", 100, id="DeepSpeed"),
        pytest.param("iter_0001000", 1000, id="Megatron"),
        pytest.param("iter_0001000/mp_rank_00/model.pt", 1000, id="file below it"),
        pytest.param("epoch=3-step=1000.ckpt", 1000, id="Lightning"),
        pytest.param("epoch=3-step=1000-v1.ckpt", 1000, id="Lightning, a second one"),
        pytest.param("epoch=2-val_loss=0.31.ckpt", 2, id="epoch and a metric"),
        pytest.param("ep3-ba1000-rank0.pt", 1000, id="Composer"),
        pytest.param("step_500_rank_3.pt", 500, id="step before rank"),
        pytest.param("writer5_700.pt", 700, id="a word that ends like iter"),
        pytest.param("model_700.h5", 700, id="digit in the extension"),
        pytest.param("model.700", 700, id="digits for extension"),
        pytest.param("best.pt", -1, id="no number"),
        pytest.param("best.h5", -1, id="number in the extension only"),
        pytest.param("x" + "9" * 40, 9999, id="too long for a number: its end"),
    ],
)
def test_step_is_read_from_the_name(name, step):
    """The number behind a word for steps wins over the last number of the name."""
    assert step_in(name) == step


def test_newest_is_by_step_then_by_age_and_names_without_number_come_last(tmp_path):
    """A file copied later is not newer, unless nothing tells its step."""
    for name, age_s in (("step-9", 20), ("step-10", 900), ("best", 30), ("last", 15)):
        put(tmp_path / name / "model.pt", age_s=age_s)
        os.utime(tmp_path / name, (NOW_S - age_s, NOW_S - age_s))

    assert find(tmp_path / "step-*").newest == (10, str(tmp_path / "step-10"))
    assert find(tmp_path / "*t").newest == (-1, str(tmp_path / "last"))
    assert find(tmp_path / "**/step-9/*.pt").newest.step == 9
    assert find(tmp_path / "nothing-*") == (None, ())


def test_digits_before_the_first_wildcard_are_no_step(tmp_path):
    """In runs/step-7/*.pt the 7 says nothing about the files."""
    put(tmp_path / "step-7/best.pt")

    assert find(tmp_path / "step-7/*.pt").newest.step == -1


def test_a_relative_pattern_gives_an_absolute_path(tmp_path):
    """A rank may have another working directory than the one who looks."""
    put(tmp_path / "step-1/model.pt")

    assert os.path.isabs(find(os.path.relpath(tmp_path / "step-*")).newest.path)


def cut_off(path):
    put_zip(path)
    os.truncate(path, 5000)
    os.utime(path, (NOW_S - 60, NOW_S - 60))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(os.listdir, "it is empty", id="empty directory"),
        pytest.param(
            lambda step: put(step / "model.pt", b""), "it is empty", id="empty file"
        ),
        pytest.param(
            lambda step: (step / "model.pt").symlink_to("/etc/passwd"),
            "it is empty",
            id="nothing but a link",
        ),
        pytest.param(
            lambda step: put(step / "__0_0.distcp"),
            "its .metadata is missing",
            id="distributed checkpoint without its mark",
        ),
        pytest.param(
            lambda step: put(step / "checkpoint-is-incomplete.txt"),
            "it says that it is unfinished",
            id="a file that says so",
        ),
        pytest.param(
            lambda step: (put(step / "a.pt"), put(step.parent / "latest", b"step-10")),
            "the file latest beside it names an older step",
            id="DeepSpeed's tracker",
        ),
        pytest.param(
            lambda step: (
                put(step / "a.pt"),
                put(step.parent / "latest_checkpointed_iteration.txt", b"10\n"),
            ),
            "the file latest_checkpointed_iteration.txt beside it names an older step",
            id="Megatron's tracker",
        ),
        pytest.param(
            lambda step: cut_off(step / "model.pt"),
            "model.pt ends too early",
            id="torch.save killed",
        ),
    ],
)
def test_what_is_incomplete_is_rejected_for_the_one_before(tmp_path, spoil, reason):
    """Each rule refutes the newest with its reason; the next older one is taken."""
    put(tmp_path / "step-10/model.pt")
    newer = tmp_path / "step-20"
    newer.mkdir()
    spoil(newer)

    assert find(tmp_path / "*") == (
        (10, str(tmp_path / "step-10")),
        ((str(newer), reason),),
    )


@pytest.mark.parametrize(
    "name", ["tmp-checkpoint-20", "step-20.tmp", "step-20.dirty", "step-20.partial"]
)
def test_a_name_that_says_unfinished_is_believed(tmp_path, name):
    """Such names are renamed by their writer once all is there."""
    put(tmp_path / "step-10/model.pt")
    put(tmp_path / name / "model.pt")

    found = find(tmp_path / "*")
    assert found.newest.step == 10
    assert found.rejected == ((str(tmp_path / name), "it says that it is unfinished"),)


@pytest.mark.parametrize(
    ("tracker", "text"),
    [
        pytest.param("latest", b"step-20", id="names this step"),
        pytest.param("latest", b"step-30", id="names a later one"),
        pytest.param("latest", b"\xff\x00", id="garbage"),
        pytest.param("latest_checkpointed_iteration.txt", b"release", id="no number"),
    ],
)
def test_a_tracker_refutes_newer_steps_only(tmp_path, tracker, text):
    """It is never a candidate itself, nor a proof."""
    put(tmp_path / "step-20/model.pt")
    put(tmp_path / tracker, text)

    assert find(tmp_path / "*") == ((20, str(tmp_path / "step-20")), ())


def test_metadata_proves_a_distributed_checkpoint_however_young(tmp_path):
    """It is written last, so there is nothing to wait for."""
    put(tmp_path / "step-20/__0_0.distcp", age_s=0)
    put(tmp_path / "step-20/.metadata", age_s=0)

    assert find(tmp_path / "*").newest.step == 20


def test_a_whole_archive_is_complete(tmp_path):
    """What torch.save finished is taken, also as a file and behind a link."""
    put_zip(tmp_path / "step-20.pt")
    (tmp_path / "last.pt").symlink_to("step-20.pt")
    (tmp_path / "gone.pt").symlink_to("step-99.pt")

    assert find(tmp_path / "*.pt") == ((20, str(tmp_path / "step-20.pt")), ())
    assert find(tmp_path / "last.pt").newest == (-1, str(tmp_path / "last.pt"))


@pytest.mark.parametrize(
    ("change", "step"),
    [
        pytest.param(os.listdir, 20, id="unchanged: complete"),
        pytest.param(
            lambda newer: put(newer / "model.pt", b"weights and more", age_s=1),
            10,
            id="a file grew",
        ),
        pytest.param(
            lambda newer: put(newer / "optimizer.pt"), 10, id="a file came along"
        ),
        pytest.param(
            lambda newer: put(newer / "model.pt", age_s=0.5),
            10,
            id="rewritten in place",
        ),
        pytest.param(lambda newer: (newer / "model.pt").unlink(), 10, id="a file left"),
    ],
)
def test_what_is_not_settled_is_looked_at_twice(tmp_path, change, step):
    """Without a mark, complete means that nothing changed for a while."""
    put(tmp_path / "step-10/model.pt")
    put(tmp_path / "step-20/model.pt", age_s=1)
    waits_s = []

    def wait(interval_s):
        waits_s.append(interval_s)
        change(tmp_path / "step-20")

    found = find(tmp_path / "*", wait=wait)

    assert (found.newest.step, waits_s) == (step, [2.0])
    assert [reason for _, reason in found.rejected] == ["it is still changing"] * (
        step == 10
    )


def test_times_from_the_future_are_not_settled(tmp_path):
    """A file server's clock may run ahead."""
    put(tmp_path / "step-20/model.pt", age_s=-500)
    looked_twice: list[bool] = []

    found = find(tmp_path / "*", wait=lambda _: looked_twice.append(True))

    assert found.newest.step == 20
    assert looked_twice
