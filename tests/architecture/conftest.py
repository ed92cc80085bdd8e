"""The sources and the docs, as the architecture tests read them."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "supervisor/dsup", ROOT / "worker_runtime/dsup_runtime")


@pytest.fixture(scope="package")
def sources():
    """Return the path, relative to the repository, and syntax tree of each module."""
    paths = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    assert paths
    return {
        str(path.relative_to(ROOT)): SimpleNamespace(
            text=path.read_text(), tree=ast.parse(path.read_text())
        )
        for path in paths
    }


@pytest.fixture(scope="package")
def tests():
    """Return the path and syntax tree of each file under tests/."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


@pytest.fixture(scope="session")
def docs():
    """Return a function that reads one section of a page of docs/."""

    def section(page, title):
        text = (ROOT / "docs" / page).read_text()
        found = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert found, f"docs/{page} has no section {title!r}"
        return found

    return section
