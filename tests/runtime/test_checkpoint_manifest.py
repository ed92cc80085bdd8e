"""What a manifest does not vouch for is not loaded."""

import json
import os

import pytest

from dsup_runtime.checkpoints import begin, commit, newest_valid, verify


def write(root, step, *, attempt=0, meta=None):
    """Commit a checkpoint of two files, one of them in a directory of its own."""
    tmp = begin(root, step, attempt=attempt)
    for name in ("state.pt", "dcp/__0_0.distcp"):
        path = os.path.join(tmp, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(bytes(500))
    return commit(tmp, step, meta=meta)


def edit_manifest(path, **changes):
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


def flip_a_bit(step):
    with open(step / "state.pt", "r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


def replace(path, make):
    path.unlink()
    make(path)


def shard(step):
    return step / "dcp/__0_0.distcp"


def swap_folder_for_link(step):
    (step / "dcp").rename(step.parent / "elsewhere")
    (step / "dcp").symlink_to(step.parent / "elsewhere")


def file_entry(name):
    return [{"name": name, "bytes": 500, "crc32": "0"}]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(
            lambda step: os.truncate(step / "state.pt", 499),
            "state.pt has 499 bytes instead of 500",
            id="truncated file",
        ),
        pytest.param(
            lambda step: shard(step).unlink(),
            "dcp/__0_0.distcp is missing",
            id="deleted shard",
        ),
        pytest.param(
            lambda step: replace(
                shard(step), lambda path: path.symlink_to(step / "state.pt")
            ),
            "dcp/__0_0.distcp is not a regular file",
            id="link instead of a file",
        ),
        pytest.param(
            swap_folder_for_link, "dcp is not a directory", id="link to a directory"
        ),
        pytest.param(
            lambda step: (step / "manifest.json").unlink(),
            "manifest.json is missing",
            id="deleted manifest",
        ),
        pytest.param(
            lambda step: replace(step / "manifest.json", os.mkfifo),
            "manifest.json cannot be read: not a regular file",
            id="pipe instead of a manifest",
        ),
        pytest.param(
            lambda step: os.truncate(step / "manifest.json", (16 << 20) + 1),
            "manifest.json cannot be read: larger than 16777216 bytes",
            id="huge manifest",
        ),
        pytest.param(
            lambda step: os.truncate(step / "manifest.json", 40),
            "manifest.json is not JSON",
            id="truncated manifest",
        ),
        pytest.param(
            lambda step: (step / "manifest.json").write_text("[" * 100_000),
            "manifest.json cannot be read: it is nested too deeply",
            id="manifest nested without end",
        ),
        pytest.param(
            lambda step: (step / "manifest.json").write_text("[1, 2]"),
            "manifest.json is not dsup's",
            id="somebody else's manifest",
        ),
        pytest.param(
            lambda step: edit_manifest(step, format=2, files={}),
            "format 2 is newer than this dsup reads (1)",
            id="newer format",
        ),
        pytest.param(
            lambda step: edit_manifest(step, files=[]),
            "manifest.json is incomplete",
            id="no files named",
        ),
        pytest.param(
            lambda step: edit_manifest(step, checksum="crc64"),
            "manifest.json names no checksum that dsup knows",
            id="unknown checksum",
        ),
        pytest.param(
            lambda step: edit_manifest(step, step=5),
            "manifest.json is that of step 5",
            id="directory renamed",
        ),
        *(
            pytest.param(
                lambda step, name=name: edit_manifest(step, files=file_entry(name)),
                "manifest.json has an entry that names no file in the checkpoint",
                id=f"file name {name!r}",
            )
            for name in ("../latest", "/etc/passwd", "", "a\0b", "\ud800", None)
        ),
    ],
)
def test_what_is_damaged_is_rejected_with_the_reason_for_the_one_before(
    root, damage, reason
):
    """One that is not what its manifest says is passed over."""
    older, newer = write(root, 1), write(root, 2)
    damage(root / "step-00000002")

    assert newest_valid(root) == (older, ((newer.path, reason),))


def test_a_flipped_bit_is_found_by_checksums_only(root):
    """Sizes do not show it, and reading everything is left to those who load it."""
    older, newer = write(root, 1), write(root, 2)
    flip_a_bit(root / "step-00000002")

    assert newest_valid(root).newest == newer
    reason = "state.pt does not match its checksum"
    assert verify(newer.path, checksums=True) == reason
    assert newest_valid(root, checksums=True) == (older, ((newer.path, reason),))
