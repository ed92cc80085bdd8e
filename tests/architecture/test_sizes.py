"""Files hold one idea and functions fit on a screen."""

import ast

import pytest

MAX_LINES = 350


def lines_of_code(function):
    """Return how many lines a function has, its docstring left out."""
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    return lines - (docstring.end_lineno - docstring.lineno + 1)


@pytest.fixture(scope="module")
def function_lines(sources):
    """Return the length of every function of both packages, ascending."""
    functions = (
        node
        for source in sources.values()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return sorted(lines_of_code(function) for function in functions)


def test_no_file_is_too_long(sources):
    """A module past 350 lines has two ideas in it."""
    lines = {path: len(source.text.splitlines()) for path, source in sources.items()}

    assert {path: n for path, n in lines.items() if n > MAX_LINES} == {}


@pytest.mark.parametrize(
    ("share", "limit"),
    [
        pytest.param(0.5, 10, id="half are under 10 lines"),
        pytest.param(0.9, 40, id="nine in ten are under 40 lines"),
    ],
)
def test_functions_are_short(function_lines, share, limit):
    """Of all functions, at least this share is shorter than this."""
    short = sum(lines < limit for lines in function_lines)

    assert short >= share * len(function_lines)
