"""What a launcher owes the scripts written for torchrun, case by case.

A case that is ``changed`` is one where torchrun does otherwise and dsup must do better.
"""

import re
from typing import Any, NamedTuple

import pytest

PAUSE = "emit=ready,hang"
ALL_READY = "emit=ready,wait=ready*2"

MOST_LINES = 4
"""A refused call may be told in this many lines (click prints the usage, too)."""


class Row(NamedTuple):
    """One case: a command, and all that must come of it.

    Attributes:
        options: the launcher's options.
        acts: the arguments of the script (clauses of workers/act.py).
        rc: the exit code.
        how: further arguments of ``launch``.
        events: names of the ranks' events, with how often each must have happened.
        out: a pattern found in what the ranks print.
        says: a pattern found in one of dsup's own lines.
        silent: a pattern that must not be found on the console.
    """

    options: str
    acts: tuple[str, ...]
    rc: int = 0
    how: dict[str, Any] = {}  # noqa: RUF012, a named tuple's default is never changed
    events: dict[str, int] = {}  # noqa: RUF012, as above
    out: str = ""
    says: str = ""
    silent: str = "(?s)Traceback.*/dsup/"


def case(name, options, *acts, changed=True, **expected):
    """Return one row under its name; by default it's one where torchrun differs."""
    marks = [pytest.mark.dsup_only] if changed else []
    return pytest.param(Row(options, acts, **expected), id=name, marks=marks)


RANKS = [
    case(
        "B17 missing script: 2, as the interpreter's, and the name",
        "",
        rc=2,
        how={"script": "/nonexistent/train.py"},
        says="/nonexistent/train.py",
        silent="Traceback",
    ),
    case(
        "B18 missing binary: 127 and one line",
        "--no-python",
        rc=127,
        how={"script": "/nonexistent/tool"},
        says="/nonexistent/tool",
        silent="Traceback",
    ),
    case(
        "B18 binary that may not be executed: 126",
        "--no-python",
        rc=126,
        how={"script": "/etc/passwd"},
        says="/etc/passwd",
        silent="Traceback",
    ),
    case(
        "B19 exit 3: the others end, the code is the rank's own",
        "--nproc-per-node 2",
        f"1:{ALL_READY},exit=3",
        "*:trap=TERM/0,emit=ready,hang",
        rc=3,
        events={"ready": 2, "got-TERM": 1},
        says="rank 1.*exit code 3",
    ),
    case(
        "B20 an exception: exit 1, its traceback on the console",
        "--nproc-per-node 2",
        f"1:{ALL_READY},raise=no-such-shard",
        f"*:{PAUSE}",
        rc=1,
        out="ValueError: no-such-shard",
        says="rank 1",
    ),
    case(
        "B20 exit 0 of every rank",
        "--nproc-per-node 2",
        "*:exit=0",
        changed=False,
        silent="rank [01]",
    ),
    case(
        "B20 exit 70 is not passed on: it means a bug of dsup",
        "--nproc-per-node 1",
        "*:exit=70",
        rc=1,
    ),
    case(
        "B20 exit 200 is not passed on: from 128 on means try again",
        "--nproc-per-node 1",
        "*:exit=200",
        rc=1,
    ),
    *(
        case(
            f"{row} SIG{name}: 128+{number}, the rank and the signal named",
            "--nproc-per-node 2",
            f"1:{ALL_READY},die={name}",
            f"*:{PAUSE}",
            rc=128 + number,
            events={"ready": 2},
            says=f"rank 1.*SIG{name}",
        )
        for row, name, number in (
            ("B21", "KILL", 9),
            ("B22", "SEGV", 11),
            ("B22", "ABRT", 6),
            ("B22", "BUS", 7),
            ("B22", "FPE", 8),
        )
    ),
    case(
        "B24 an unrecorded exception: the rank and the end of its output",
        "--nproc-per-node 2",
        f"1:{ALL_READY},raise=lost-the-data",
        f"*:{PAUSE}",
        rc=1,
        says="rank 1",
        out="ValueError: lost-the-data",
    ),
    case(
        "B28 the first death is named, not those that it caused",
        "--nproc-per-node 4 --settle 120",
        "3:emit=ready,wait=ready*4,emit=going,die=SEGV",
        "*:emit=ready,wait=going,work=0.02,raise=peer-gone",
        rc=139,
        says="rank 3.*SIGSEGV",
    ),
    case(
        "B30 one rank ends early: nobody is signalled",
        "--nproc-per-node 2",
        "0:exit=0",
        "1:note=TERM,work=1,emit=done",
        changed=False,
        events={"done": 1, "got-TERM": 0},
    ),
    case(
        "B31 one rank ends early, the other fails",
        "--nproc-per-node 2",
        "0:emit=ready",
        "1:wait=ready,work=0.3,exit=4",
        rc=4,
        says="rank 1",
    ),
    case(
        "B32 restarts until it works",
        "--nproc-per-node 2 --max-restarts 3",
        "1@0:emit=tried,exit=5",
        "1@1:emit=tried,exit=5",
        "1@2:emit=tried",
        "*:emit=begun",
        changed=False,
        events={"tried": 3, "begun": 3},
    ),
    case(
        "B33 restarts are used up",
        "--nproc-per-node 2 --max-restarts 2",
        "1:emit=tried,exit=6",
        "*:",
        rc=6,
        events={"tried": 3},
    ),
    case(
        "B42 a rank fails, the other ignores TERM: the grace is the one given",
        "--nproc-per-node 2 --shutdown-timeout 1",
        f"1:{ALL_READY},exit=3",
        "*:ignore=TERM,emit=ready,hang",
        rc=3,
    ),
    case(
        "B46 children of a rank end with it, also those of a session of their own",
        "--nproc-per-node 2",
        f"1:helper=plain,helper=setsid,helper=double,{ALL_READY},quit=9",
        f"*:helper=plain,helper=setsid,helper=clear,{PAUSE}",
        rc=9,
        events={"ready": 2},
    ),
    case(
        "B56 lines on the console are whole",
        "--nproc-per-node 4",
        "*:lines=500",
        out=r"(?s)\A(rank [0-3] line \d{6} of the output, whole\n){2000}(dsup: .*)?\Z",
    ),
]

CALLS = [
    case("B15 no script", "--nproc-per-node 2", rc=2, how={"script": None}),
    case("B15 unknown flag", "--no-such-flag", rc=2),
    case("B15 help", "--help", how={"script": None}, out="--max-restarts"),
    case("B11 -m with --no-python", "-m --no-python", rc=2),
    case("B16 nproc foo", "--nproc-per-node foo", rc=2, says="foo"),
    case("B16 nproc 0", "--nproc-per-node 0", rc=2, says="nproc"),
    case("B16 nproc -1", "--nproc-per-node -1", rc=2, says="nproc"),
    case("B16 restarts -1", "--max-restarts -1", rc=2, says="max-restarts"),
    case("B16 backoff x", "--backoff 1,x", rc=2, says="backoff"),
    case("B16 backoff nan", "--backoff nan", rc=2, says="backoff"),
    case("B16 negative grace", "--shutdown-timeout -1", rc=2, says="shutdown-timeout"),
    case("B16 store nobody", "--store nobody", rc=2, says="store"),
    case("B16 port 70000", "--master-port 70000", rc=2, says="master-port"),
    case("B16 a variable", "", rc=2, how={"env": {"PET_MAX_RESTARTS": "x"}}),
]


@pytest.mark.parametrize("row", RANKS)
def test_ranks(row, run):
    """The run ends with this code, says who was first, and leaves nothing behind."""
    run.start(row.options, *row.acts, **row.how)

    assert row.rc == run.ended(), run.console()
    assert row.events == {name: len(run.events(name)) for name in row.events}
    assert re.search(row.out, run.console())
    assert re.search(row.says, "\n".join(run.said())), run.console()
    assert not re.search(row.silent, run.console())
    run.nothing_left()


@pytest.mark.parametrize("row", CALLS)
def test_calls(row, run):
    """A wrong call is refused in words, without a traceback; no rank is started."""
    scripted = "script" not in row.how
    run.start(row.options, *["*:emit=started"] * scripted, **row.how)

    assert row.rc == run.ended(), run.console()
    assert re.search(row.out, run.console())
    assert row.says in run.console()
    assert "Traceback" not in run.console()
    assert not run.events("started")
    assert not row.rc or 0 < len(run.console().splitlines()) <= MOST_LINES
