"""A node looked at for real, beside an NVML of the tests' own."""

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent
FAKE = HERE.parent / "edges/fake_nvml.c"
DRIVER = HERE / "doctor_driver.py"


@pytest.fixture(scope="session")
def nvml(tmp_path_factory):
    """Give a maker of the directory of a libnvidia-ml.so.1, with compiler's options."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    made = {}

    def build(*options):
        if options not in made:
            directory = tmp_path_factory.mktemp("nvml")
            output = directory / "libnvidia-ml.so.1"
            command = [compiler, "-shared", "-fPIC", *options, "-o", output, FAKE]
            subprocess.run(command, check=True)
            made[options] = str(directory)
        return made[options]

    return build


@pytest.fixture
def looked_at(nvml):
    """Give ``looked_at(options, wishes, limits, **fake)``: what the doctor finds."""

    def look(*options, wishes=None, limits=None, environment=None, **fake):
        settings = {f"FAKE_NVML_{name.upper()}": str(v) for name, v in fake.items()}
        library = {"LD_LIBRARY_PATH": nvml(*options)} if fake else {}
        done = subprocess.run(
            [sys.executable, DRIVER, json.dumps([limits or {}, wishes or {}])],
            env={**os.environ, **library, **settings, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        code, rows = json.loads(done.stdout)
        by_check = defaultdict(list)
        for row in rows:
            by_check[row["check"]].append(row)
        return SimpleNamespace(code=code, rows=rows, by_check=by_check)

    return look
