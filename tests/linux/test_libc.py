"""libc, reached by Python's private interface where there is one, and without."""

import importlib.util
import os

import pytest

SHIM = """
import importlib.machinery, importlib.util, sys
path = {path!r}
loader = importlib.machinery.ExtensionFileLoader("_ctypes", path)
spec = importlib.util.spec_from_file_location("_ctypes", path, loader=loader)
real = importlib.util.module_from_spec(spec)
loader.exec_module(real)
{change}
sys.modules["_ctypes"] = real
"""

CHANGES = {
    "as it is": "",
    "renamed": "del real.call_function",
    "other arguments": "real.call_function = lambda address: 0",
    "another way to open": "real.dlsym = None",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_call_does_not_depend_on_private_names(drive, tmp_path, change):
    """Where _ctypes is no longer what it was, ctypes does the same."""
    spec = importlib.util.find_spec("_ctypes")
    if not spec or not spec.has_location:
        pytest.skip("_ctypes is built into this interpreter")
    shim = SHIM.format(path=spec.origin, change=change)
    (tmp_path / "_ctypes.py").write_text(shim)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    facts = drive(
        """
        import _ctypes
        tell(
            pid=libc.call("getpid") == os.getpid(),
            bytes=libc.call("strlen", b"12345"),
            negative=libc.call("close", -1),
            subreaper=libc.become_subreaper(),
        )
        """,
        env=os.environ | {"PYTHONPATH": paths},
    )

    assert facts == {"pid": True, "bytes": 5, "negative": -1, "subreaper": True}


def test_a_subreaper_gets_the_orphans(drive):
    """An orphan's new parent is the nearest subreaper above it."""
    facts = drive(
        """
        libc.become_subreaper()
        pid, _ = start("sh", "-c", "(sh -c 'echo $$; exec sleep 600' &)")
        until(lambda: proc.stat(pid).ppid == os.getpid())
        tell(child=pid in proc.children(os.getpid()))
        tree.kill()
        """
    )

    assert facts == {"child": True}
