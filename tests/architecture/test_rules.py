"""Rules of this project that no linter knows."""

import ast
import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "docs",
    "examples",
    "pyproject.toml",
    "supervisor",
    "systemd",
    "tests",
    "worker_runtime",
}


def uses(tree, owner, attribute):
    """Return the lines of a tree that use owner.attribute."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.value, ast.Name)
        and node.value.id == owner
    ]


def test_no_test_patches_an_object(tests):
    """Tests change what they hand in, never what is there."""
    found = {path: uses(tree, "monkeypatch", "setattr") for path, tree in tests.items()}

    assert {path: lines for path, lines in found.items() if lines} == {}


def test_no_pattern_repeats_a_group_possessively():
    """Python before 3.11.5 matches it wrongly (gh-106052); an atomic group serves."""
    possessive = re.compile(r"\)(?:\{[0-9,]+\}|[*+?])\+")
    files = chain(ROOT.glob("supervisor/**/*.py"), ROOT.glob("worker_runtime/**/*.py"))
    found = [str(path) for path in files if possessive.search(path.read_text())]

    assert found == []


def test_every_test_file_says_what_it_specifies(tests):
    """A test function has a docstring: the requirement it holds."""
    mute = [
        f"{path}:{node.lineno}"
        for path, tree in tests.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and ast.get_docstring(node) is None
    ]

    assert mute == []


def test_only_the_edges_of_both_programs_read_the_environment(sources):
    """os.environ is read in cli/, contract.py and the bootstrap, and nowhere else."""
    readers = [
        path
        for path, source in sources.items()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute | ast.alias)
        and getattr(node, "attr", getattr(node, "name", ""))
        in ("environ", "environb", "getenv")
    ]
    allowed = ("/cli/", "/contract.py", "/bootstrap/sitecustomize.py")

    assert [path for path in readers if not any(part in path for part in allowed)] == []


def test_the_top_level_stays_small():
    """Only the agreed names and dotfiles are kept at the top of the repository."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
    ).stdout.splitlines()
    top = {name.partition("/")[0] for name in tracked}

    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def test_every_ignored_lint_rule_states_its_reason():
    """Each rule that pyproject.toml tells ruff to ignore has a comment beside it."""
    text = (ROOT / "pyproject.toml").read_text()
    lint = tomllib.loads(text)["tool"]["ruff"]["lint"]
    codes = {*lint["ignore"], *chain(*lint["per-file-ignores"].values())}
    bare = [
        line.strip()
        for line in text.splitlines()
        if line.strip().strip('",') in codes and "#" not in line
    ]

    assert bare == []
