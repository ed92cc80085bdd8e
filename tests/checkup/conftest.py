"""A node looked at for real, beside an NVML of the tests' own."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent
DRIVER = HERE / "doctor_driver.py"


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
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        code, rows = json.loads(done.stdout)
        by_check = defaultdict(list)
        for row in rows:
            by_check[row["check"]].append(row)
        return SimpleNamespace(code=code, rows=rows, by_check=by_check)

    return look
