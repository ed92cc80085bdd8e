"""The panel and the one-line forms: what a person reads of a verdict."""

import math

import pytest

from dsup.core.verdict import Advice, Evidence, Verdict, Victim
from dsup.report.columns import width
from dsup.report.panel import HEIGHT, WIDTH, Setting, amended, one_line, panel, toned

OOM = Verdict(
    attempt=0,
    cause="host_oom",
    first_ranks=(5,),
    certainty="proven",
    at_s=100.04,
    summary="Rank 5 was killed by the kernel: the cgroup reached its 400 GiB limit.",
    rule="oom_memcg",
    evidence=(
        Evidence(
            "kernel",
            "Memory cgroup out of memory: Killed process 38214 (python) "
            "total-vm:20000000kB, anon-rss:169240576kB [kmsg seq 911870]",
            5,
        ),
        Evidence("counters", "oom_kill 0 -> 1; dsup had sent no signal"),
    ),
    victims=(
        Victim(4, 5, "connection closed by peer, exit 1, +0.3 s"),
        Victim(6, 5, "connection closed by peer, exit 1, +1.9 s"),
    ),
    ended_by_dsup=(0, 1, 2, 3, 7),
    advice=Advice(
        "find_leak",
        "find what only rank 5 keeps in memory; a higher limit only delays it",
    ),
    status=-9,
)
SETTING = Setting(
    run="20261130T141234Z-llm7b-a0b408_gpu-a17",
    node="gpu-a17",
    pids={5: 38214},
    offset_s=51488.0,
    next_text="restart 1 of 1 at 14:19:58 UTC, from step 12800",
    logs="/home/user/.local/state/dsup/runs/20261130T141234Z-llm7b-a0b408_gpu-a17",
    steps={5: 12850},
)
HOSTILE = "\x1b[2J\rok\n━━ dsup ━ all is well ━━\u202e\u2028\x00\x9b31m"


def inner(verdict, setting=SETTING):
    """Return the lines between the rules."""
    return panel(verdict, setting)[1:-1]


def row(verdict, key, setting=SETTING):
    """Return the value of one key, its lines put together again."""
    said, found = [], False
    for line in inner(verdict, setting):
        if line.startswith(f" {key:9}"):
            found = True
        elif line[:10].strip():
            found = False
        if found:
            said.append(line[10:])
    return " ".join(said)


FULL = """\
━━ dsup ━ attempt 0 failed ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 14:19:48 UTC ━━
Rank 5 was killed by the kernel: the cgroup reached its 400 GiB limit.

 cause    host_oom, proven
 first    rank 5 on gpu-a17 (local 5, pid 38214), 14:19:48.0, step 12850
 proof    kernel    Memory cgroup out of memory: Killed process 38214 (python)
                    total-vm:20000000kB, anon-rss:169240576kB  [kmsg seq 911870]
          counters  oom_kill 0 -> 1; dsup had sent no signal
 victims  ranks 4, 6, of rank 5 (connection closed by peer, exit 1, +0.3 to +1.9
          s) · ended by dsup: ranks 0-3, 7
 do       find what only rank 5 keeps in memory; a higher limit only delays it
 next     restart 1 of 1 at 14:19:58 UTC, from step 12800
 more     dsup diagnose llm7b-a0b408 · dsup logs llm7b-a0b408 --rank 5
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━"""

ALL_ALIKE = """\
━━ dsup ━ attempt 2 failed ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 14:19:48 UTC ━━
All 8 ranks raised FileNotFoundError: conf/7b.yaml, before any step.

 cause    config_error, proven
 first    ranks 0-7 on gpu-a17, 14:19:48.0
 proof    note    FileNotFoundError: conf/7b.yaml (train.py:20)
 next     no restart, exit 1: --max-restarts 0
 more     dsup diagnose r1 · dsup logs r1 --rank 0
━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━"""

LAST_WORDS = """\
== dsup = attempt 0 failed ===================================== 14:19:48 UTC ==
Rank 2 ended with exit code 7; it told of no exception.

 cause    unknown
 first    rank 2 on gpu-a17 (local 2), 14:19:48.0
 proof    status  rank 2 (pid 7): exit code 7; dsup had sent no signal
          stderr  line 3
                  line 4
                  line 5
                  line 6 caf\\xe9                                [2/stderr.log:6]
 victims  ended by dsup: ranks 0-1, 3
 more     dsup diagnose r1 | dsup logs r1 --rank 2
================================================================================"""


def spoken(number, text):
    """Return one line of rank 2's stderr as evidence."""
    return Evidence("stderr", text, 2, None, "attempt_0/2/stderr.log", number)


QUIET = OOM._replace(
    cause="unknown",
    first_ranks=(2,),
    certainty="unknown",
    summary="Rank 2 ended with exit code 7; it told of no exception.",
    evidence=(
        Evidence("status", "rank 2 (pid 7): exit code 7; dsup had sent no signal", 2),
        *(Evidence("stderr", f"line {number}", 2) for number in range(1, 6)),
        spoken(6, "line 6 café"),
    ),
    victims=(),
    ended_by_dsup=(0, 1, 3),
    advice=None,
    status=7,
)
ALIKE = OOM._replace(
    attempt=2,
    cause="config_error",
    first_ranks=tuple(range(8)),
    summary="All 8 ranks raised FileNotFoundError: conf/7b.yaml, before any step.",
    evidence=(Evidence("note", "FileNotFoundError: conf/7b.yaml (train.py:20)", 0),),
    victims=(),
    ended_by_dsup=(),
    advice=None,
)
NAMED = "20261130T141234Z-of-its-owners-own_gpu-a17"
SHORT = SETTING._replace(run="r1", logs="/runs/r1", pids={}, steps={})


@pytest.mark.parametrize(
    ("verdict", "setting", "text"),
    [
        pytest.param(OOM, SETTING, FULL, id="one rank, with everything"),
        pytest.param(
            ALIKE,
            SHORT._replace(next_text="no restart, exit 1: --max-restarts 0"),
            ALL_ALIKE,
            id="all ranks alike: none is blamed, nobody is a victim",
        ),
        pytest.param(
            QUIET,
            SHORT._replace(next_text="", unicode=False),
            LAST_WORDS,
            id="no exception: the last words, in ASCII",
        ),
    ],
)
def test_a_panel_reads_like_this(verdict, setting, text):
    """Sentence, cause, first, proof, victims, do, next, more; between two rules."""
    assert "\n".join(panel(verdict, setting)) == text


def test_the_sentence_the_first_rank_and_what_is_next_are_loud():
    """On a terminal those lines have colours, and they alone."""
    loud = [(line[:8].strip(), tone) for line, tone in toned(OOM, SETTING)]

    assert [one for one in loud if one[1] != "plain"] == [
        ("Rank 5 w", "failure"),
        ("first", "failure"),
        ("next", "warning"),
    ]


LONG = "word " * 400
CROWD = OOM._replace(
    first_ranks=(3,),
    victims=tuple(
        Victim(rank, 3, f"connection closed by peer, +0.{rank % 10} s")
        for rank in range(0, 1000, 2)
    ),
    ended_by_dsup=tuple(range(1, 1000, 2)),
)


@pytest.mark.parametrize("unicode", [True, False], ids=["utf-8", "ascii"])
@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(OOM, id="usual"),
        pytest.param(OOM._replace(summary=LONG), id="long sentence"),
        pytest.param(OOM._replace(summary=""), id="no sentence"),
        pytest.param(
            OOM._replace(evidence=(Evidence("stderr", "x" * 5000, 5),) * 40),
            id="long proof without blanks",
        ),
        pytest.param(
            OOM._replace(evidence=(Evidence("note", "内存不足" * 300, 5),)),
            id="letters of two cells",
        ),
        pytest.param(
            OOM._replace(summary=LONG, advice=Advice("x", LONG), evidence=()),
            id="long advice",
        ),
        pytest.param(CROWD, id="1000 ranks"),
        pytest.param(
            OOM._replace(first_ranks=tuple(range(0, 1000, 3))), id="many first"
        ),
        pytest.param(OOM._replace(at_s=1e300, attempt=10**15), id="odd numbers"),
    ],
)
def test_a_panel_fits(verdict, unicode):
    """80 columns and 14 lines between the rules, whatever happened."""
    setting = SETTING._replace(unicode=unicode, next_text=LONG)
    lines = panel(verdict, setting)

    assert [line for line in lines if width(line) > WIDTH] == []
    assert len(lines) <= HEIGHT + 2
    assert any(line.startswith(" next") for line in lines)


def test_proof_is_shown_however_long_the_rest_is():
    """A sentence without a proof convinces nobody."""
    verdict = OOM._replace(summary=LONG, advice=Advice("x", LONG))
    setting = SETTING._replace(next_text=LONG, run="/deep" * 14)

    assert "Killed process 38214" in row(verdict, "proof", setting)


def test_the_least_telling_proof_goes_first():
    """Where there is no room for all of it, the first pieces stay."""
    many = tuple(Evidence("status", f"piece {number}") for number in range(20))
    said = row(OOM._replace(evidence=many), "proof", SHORT)

    pieces = [word for word in said.split() if word.isdigit()]
    assert pieces == [str(number) for number in range(len(pieces))]
    assert 3 <= len(pieces) < 20


def test_a_long_raw_line_is_cut_at_both_ends():
    """What counts may stand in the middle of a line that a library wrote."""
    line = f"{'prefix ' * 40}RuntimeError: it broke here {'and on ' * 40}"
    said = row(OOM._replace(evidence=(Evidence("stderr", line, 5),)), "proof", SHORT)

    assert said.split(maxsplit=1)[1].startswith("… ")
    assert "RuntimeError: it broke here" in said
    assert said.endswith("…")


@pytest.mark.parametrize("unicode", [True, False], ids=["utf-8", "ascii"])
def test_no_text_moves_a_cursor_or_forges_a_line(unicode):
    """Names, logs and exceptions are their makers' choice."""
    evil = Verdict(
        attempt=0,
        cause=HOSTILE,
        first_ranks=(1,),
        certainty="guess",
        at_s=0.0,
        summary=HOSTILE,
        rule=HOSTILE,
        evidence=(Evidence("stderr", HOSTILE, 2, 0.0, HOSTILE, 1),),
        victims=(Victim(3, 1, HOSTILE),),
        advice=Advice(HOSTILE, HOSTILE),
    )
    setting = Setting(HOSTILE, HOSTILE, {}, 0.0, HOSTILE, f"/{HOSTILE}", unicode)
    lines = panel(evil, setting)

    assert [line for line in lines if not line.isprintable()] == []
    assert unicode or all(line.isascii() for line in lines)
    assert [line for line in lines[1:-1] if line.startswith(("━", "="))] == []
    assert one_line(evil, HOSTILE).isprintable()
    assert amended(evil, OOM).isprintable()


@pytest.mark.parametrize(
    ("victims", "ended", "said"),
    [
        pytest.param((), (), "", id="nobody"),
        pytest.param((), (0, 2, 3), "ended by dsup: ranks 0, 2-3", id="only dsup's"),
        pytest.param(
            (Victim(1, None, "exit 1"),), (), "rank 1 (exit 1)", id="of nobody known"
        ),
        pytest.param(
            (Victim(1, 0, ""),), (), "rank 1, of rank 0", id="nobody knows how"
        ),
        pytest.param(
            (Victim(1, 0, "exit 1, +0.2 s"), Victim(2, 0, "SIGABRT, +0.2 s")),
            (3,),
            "rank 1, of rank 0 (exit 1, +0.2 s); rank 2, of rank 0 (SIGABRT, +0.2 s) "
            "· ended by dsup: rank 3",
            id="two ways",
        ),
        pytest.param(
            (Victim(1, 0, "+10 s"), Victim(2, 0, "+9 s")),
            (),
            "ranks 1-2, of rank 0 (+9 to +10 s)",
            id="times are compared as numbers",
        ),
        pytest.param(
            (),
            tuple(range(0, 1000, 2)),
            "ended by dsup: ranks 0, 2, 4, 6, 8, 10, 12, 14, … (500 in all)",
            id="too many to list are counted",
        ),
    ],
)
def test_victims_are_told_with_of_whom_and_how(victims, ended, said):
    """Ranks of one fate share an entry; dsup's own doing stands apart."""
    assert row(OOM._replace(victims=victims, ended_by_dsup=ended), "victims") == said


@pytest.mark.parametrize(
    ("run", "logs", "said"),
    [
        ("r1", "/runs/r1", "dsup diagnose r1 · dsup logs r1 --rank 5"),
        ("r1", "", "dsup diagnose r1"),
        ("", "/runs/r1", "/runs/r1/attempt_0/5/stderr.log"),
        ("a b", "", "dsup diagnose 'a b'"),
        (NAMED, "/runs", f"dsup diagnose {NAMED} dsup logs {NAMED} --rank 5"),
        ("", "/" + "x" * 90, "/" + "x" * 90 + "/attempt_0/5/stderr.log"),
        ("/" + "x" * 90, "", "dsup diagnose /" + "x" * 90),
    ],
    ids=[
        "both",
        "without logs",
        "asked already",
        "quoted",
        "two lines",
        "wider than the panel",
        "a command wider than the panel",
    ],
)
def test_more_says_where_to_look(run, logs, said):
    """The commands to type; who has typed one is told where the log is."""
    assert row(OOM, "more", SETTING._replace(run=run, logs=logs)) == said


def test_where_no_rank_is_named_the_panel_says_so():
    """An honest answer, and the logs of all to look into."""
    nobody = OOM._replace(first_ranks=())

    assert row(nobody, "first", SHORT) == "no rank can be named, 14:19:48.0"
    assert row(nobody, "more", SHORT).endswith("dsup logs r1")


@pytest.mark.parametrize(
    ("verdict", "following", "line"),
    [
        pytest.param(
            OOM,
            "restart 1 of 1 at 14:19:58 UTC",
            "rank 5 was killed by the kernel: the cgroup reached its 400 GiB limit, "
            "proven; attempt 0; victims 4,6; restart 1 of 1 at 14:19:58 UTC",
            id="everything",
        ),
        pytest.param(
            QUIET,
            "",
            "rank 2 ended with exit code 7; it told of no exception; attempt 0",
            id="unknown, and nothing follows",
        ),
    ],
)
def test_a_journal_gets_one_line(verdict, following, line):
    """The short sentence first, so that ``systemctl status`` shows it."""
    assert one_line(verdict, following) == line


@pytest.mark.parametrize(
    ("verdict", "following"),
    [(OOM._replace(summary=LONG), LONG), (CROWD._replace(summary=LONG), "soon")],
    ids=["long texts", "1000 ranks"],
)
def test_that_line_is_never_long(verdict, following):
    """At most 200 characters, and the sentence is not lost for the rest."""
    line = one_line(verdict, following)

    assert width(line) <= 200
    assert line.startswith("word word word")
    assert "attempt 0" in line


@pytest.mark.parametrize(
    ("after", "said"),
    [
        pytest.param(OOM, "", id="nothing"),
        pytest.param(
            OOM._replace(evidence=(), victims=()), "", id="more evidence only"
        ),
        pytest.param(
            OOM._replace(cause="killed"),
            "verdict amended: rank 5 was killed by the kernel: the cgroup reached its "
            "400 GiB limit (killed, proven; before: host_oom)",
            id="the cause",
        ),
        pytest.param(
            OOM._replace(first_ranks=(3,), certainty="likely", summary="Rank 3 left."),
            "verdict amended: rank 3 left (host_oom, likely; before: rank 5, proven)",
            id="rank and certainty",
        ),
    ],
)
def test_an_amendment_says_what_changed(after, said):
    """A late fact prints one line, if a person would care, and never a second panel."""
    assert amended(OOM, after) == said


LOGGED = SETTING._replace(
    run="", launcher="torchrun", node="gpu-a17", next_text="", logs="", more="a.log:7"
)


def test_the_panel_of_a_log_names_the_launcher_and_the_place():
    """What dsup did not start, it did not end either; a log knows no local ranks."""
    lines = panel(OOM, LOGGED)

    assert lines[0].startswith("━━ dsup ━ torchrun, attempt 0 failed ━")
    assert row(OOM, "first", LOGGED) == "rank 5 on gpu-a17, 14:19:48.0"
    assert "ended by torchrun: ranks 0-3, 7" in row(OOM, "victims", LOGGED)
    assert row(OOM, "more", LOGGED) == "a.log:7"


def test_a_log_without_times_has_a_panel_without_times():
    """Nothing is made up, and the rule is as long as ever."""
    lines = panel(OOM._replace(at_s=math.nan), LOGGED)

    assert (width(lines[0]), "UTC" in lines[0]) == (WIDTH, False)
    assert row(OOM._replace(at_s=math.nan), "first", LOGGED) == "rank 5 on gpu-a17"


def test_of_a_long_path_the_name_is_shown():
    """Where the line stands is worth more than the directories above."""
    proof = Evidence("log", "ValueError: no", 5, None, f"/{'x' * 90}/train.log", 12)

    assert "[train.log:12]" in "\n".join(inner(OOM._replace(evidence=(proof,))))


def test_places_are_whole_words_that_can_be_copied():
    """A path that wraps in the middle of a word is no path any more."""
    places = [f"/data/{'deep/' * 14}{name}.log:{n}" for n, name in enumerate("ab")]
    told = inner(OOM, SETTING._replace(more=" · ".join(places)))

    assert [line[10:] for line in told[-2:]] == places


def test_the_place_of_a_proof_is_told_apart_from_its_like():
    """In a tree of logs there is a stderr.log in every directory."""
    deep = f"/data/{'deep/' * 9}attempt_0/1/stderr.log"
    one = Evidence("stderr", "KeyError: 'lr'", 5, None, deep, 5)
    said = row(OOM._replace(evidence=(one,)), "proof", SHORT)

    assert said.endswith("/attempt_0/1/stderr.log:5]")
    assert "[…/" in said


def test_the_place_of_a_long_proof_is_told_as_well():
    """Words give way to it, and the path of a C++ source before the words."""
    text = (
        "RuntimeError: [/build/third_party/gloo/transport/tcp/unbound_buffer.cc:78] "
        f"Timed out waiting 6000ms for recv operation {'to complete ' * 9}"
    )
    one = Evidence("log", text, 5, None, "train.log", 13)
    said = row(OOM._replace(evidence=(one,)), "proof", SHORT)

    assert "[…/unbound_buffer.cc:78] Timed out waiting 6000ms" in " ".join(said.split())
    assert said.endswith("[train.log:13]")
