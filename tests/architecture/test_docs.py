"""The docs list what the code has: options, causes, codes, events, variables."""

import ast
import re
import typing

import pytest

from dsup.core import commands, events, exits

DSUP_VARIABLE = re.compile(r"(?:DSUP|PET)_[A-Z0-9_]*[A-Z0-9]")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]")


def headings(section):
    """Return the words in backticks of each third-level heading."""
    return [re.findall(r"`([^`]+)`", line) for line in re.findall("### .+", section)]


def first_column(section):
    """Return the words in backticks of the first column of a section's tables."""
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def kinds(module):
    """Return the value of the literal field ``kind`` of each of a module's types."""
    return {
        typing.get_args(typing.get_type_hints(row)["kind"])[0]
        for row in vars(module).values()
        if isinstance(row, type) and "kind" in getattr(row, "_fields", ())
    }


def exit_codes():
    """Return every exit code below 128+n and above it that has a name in exits."""
    named = {
        value
        for name, value in vars(exits).items()
        if isinstance(value, int) and not name.startswith("SIG")
    }
    return named | {cause.code for cause in exits.CAUSES.values()}


@pytest.fixture(scope="module")
def options():
    """Return the options of dsup launch, --help left out."""
    from dsup.cli.launch import launch

    return [
        param
        for param in launch.params
        if param.param_type_name == "option" and param.name != "help"
    ]


def spelling(option):
    """Return the spellings with dashes of an option, as the docs list them."""
    return {name for name in option.opts if "_" not in name}


@pytest.mark.parametrize(
    ("page", "title", "read"),
    [
        pytest.param(
            "runbook.md",
            "Options of `dsup launch`",
            lambda section: [word for words in headings(section) for word in words],
            id="runbook",
        ),
        pytest.param("glossary.md", "Options", first_column, id="glossary"),
    ],
)
def test_every_option_is_documented(docs, options, page, title, read):
    """The options of dsup launch are those of the docs, each once."""
    in_code = sorted(name for option in options for name in spelling(option))

    assert sorted(read(docs(page, title))) == in_code


def variables_of(option):
    """Return the environment variables of an option."""
    if option.envvar is None:
        return []
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar)


def test_every_option_names_its_variables_in_the_runbook(docs, options):
    """The entry of an option names the variables that are read in its place."""
    entries = docs("runbook.md", "Options of `dsup launch`").split("\n### ")[1:]
    readable = {variable for option in options for variable in variables_of(option)}
    wrong = [
        option.name
        for option in options
        for entry in entries
        if spelling(option) & set(headings(f"### {entry}")[0])
        and readable & set(VARIABLE.findall(entry)) != set(variables_of(option))
    ]

    assert wrong == []


def test_every_cause_has_its_entry(docs):
    """The runbook has one entry for each cause of the table, and no other."""
    in_docs = [
        word for words in headings(docs("runbook.md", "Causes")) for word in words
    ]

    assert sorted(in_docs) == sorted(exits.CAUSES)


@pytest.mark.parametrize("cause", sorted(exits.CAUSES))
def test_an_entry_states_the_family_and_the_code(docs, cause):
    """What the runbook says of a cause is what the table does with it."""
    entry = docs("runbook.md", "Causes").partition(f"### `{cause}`\n")[2]
    line = re.search(r"\*Family: (\w+)\. Exit code: (.+)\.\*", entry)
    row = exits.CAUSES[cause]

    assert line is not None
    assert line[1] == row.family
    assert str(row.code) in re.findall(r"\d+", line[2])
    assert ("128+n" in line[2]) == row.by_signal


def test_every_exit_code_has_its_entry(docs):
    """The runbook has an entry for each exit code that the table can give."""
    section = docs("runbook.md", "Exit codes")
    alone = set(map(int, re.findall(r"### Exit code (\d+)\n", section)))
    by_signal = {128 + n for n in (exits.SIGKILL, exits.SIGSEGV, exits.SIGBUS)} | {134}

    assert "### Exit code 128+n\n" in section
    assert exit_codes() - by_signal <= alone


@pytest.mark.parametrize(
    ("title", "module"),
    [
        pytest.param("Events", events, id="events"),
        pytest.param("Commands", commands, id="commands"),
    ],
)
def test_every_kind_is_in_the_glossary(docs, title, module):
    """The glossary lists each kind of event and command, and no other."""
    assert sorted(first_column(docs("glossary.md", title))) == sorted(kinds(module))


def test_every_variable_is_in_the_glossary(docs, options, sources):
    """The glossary's variables and fields of dsup are those that the code names."""
    in_code = {
        node.value
        for source in sources.values()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and DSUP_VARIABLE.fullmatch(node.value)
    } | {
        variable
        for option in options
        for variable in variables_of(option)
        if DSUP_VARIABLE.fullmatch(variable)
    }
    in_docs = {
        word
        for title in (
            "Environment variables of a worker",
            "Environment variables of dsup",
            "Fields of systemd's journal",
        )
        for word in first_column(docs("glossary.md", title))
        if DSUP_VARIABLE.fullmatch(word)
    }

    assert in_docs == in_code
