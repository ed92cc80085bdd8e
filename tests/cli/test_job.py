"""What a call comes to: the ranks' output, dsup's voice, torchrun's variables."""

import signal

import pytest

from dsup.core.environment import Choices
from dsup.core.limits import Limits


def consoles(job):
    """Return what the console shows of stdout and stderr of each rank."""
    return [(rank.out.console, rank.err.console) for rank in job.output.ranks]


def test_by_default_everything_is_kept_and_shown(job):
    """Files and the raw console; a log ends at 1 GiB, and 50 runs are kept."""
    found = job("--nproc", "2").output

    assert consoles(job("--nproc", "2")) == [("raw", "raw")] * 2
    assert all(rank.out.file and rank.err.file for rank in found.ranks)
    assert (found.max_bytes, found.keep_runs, found.timestamps) == (1 << 30, 50, False)
    assert (found.inherit, found.colour, found.status) == (False,) * 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-r 3", [("none", "none")] * 2),
        ("-r=3", [("none", "none")] * 2),
        ("--redirect=1", [("none", "raw")] * 2),
        ("-t3", [("prefixed", "prefixed")] * 2),
        ("-r 0:1 --tee 1:3", [("none", "raw"), ("prefixed", "prefixed")]),
        ("--local_ranks_filter 1", [("none", "none"), ("raw", "raw")]),
        ("--tee 0", [("raw", "raw")] * 2),
    ],
)
def test_options_route_the_output(job, words, expected):
    """Every spelling of torchrun's options reaches the routes."""
    assert consoles(job("--nproc", "2", *words.split())) == expected


def test_other_options_of_the_output(job):
    """Sizes, times and how much is kept."""
    words = "--log-max-size none --keep-runs 0 --log-timestamps --log-dir /dev/null"
    found = job(*words.split()).output

    assert (found.max_bytes, found.keep_runs, found.timestamps) == (None, None, True)
    assert not found.ranks[0].out.file


def test_a_prefix_is_the_users(job, monkeypatch):
    """Torchrun's variable is read where no option is given."""
    monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${role_name}> ")

    assert job("-t", "3", "--role", "tr").output.ranks[0].out.prefix == "<tr> "
    assert (
        job("-t", "3", "--log-line-prefix-template", "$rank|").output.ranks[0].err
    ).prefix == "0|"


@pytest.mark.parametrize(
    ("words", "talks", "expected"),
    [
        pytest.param("", True, True, id="one rank on a terminal"),
        pytest.param("", False, False, id="one rank elsewhere"),
        pytest.param("--nproc 2", True, False, id="two ranks on a terminal"),
        pytest.param("--stdio pipe", True, False, id="pipes asked for"),
        pytest.param("--stdio inherit --nproc 2", False, True, id="inherit asked for"),
        pytest.param("-r 0 -t 0 --nproc 2", False, True, id="-r 0 -t 0"),
        pytest.param("-r 0", False, False, id="-r 0 alone"),
        pytest.param("-t 0", True, False, id="-t 0 alone, on a terminal"),
        pytest.param("--tee 3", True, False, id="a prefix asked for"),
        pytest.param("--log-dir logs", True, False, id="logs asked for"),
        pytest.param("--log-timestamps", True, False, id="times asked for"),
    ],
)
def test_who_gets_the_terminal_itself(job, words, talks, expected):
    """Whoever may need a debugger, unless something else was asked for."""
    assert job(*words.split(), talks=talks).output.inherit == expected


@pytest.mark.parametrize(
    ("words", "colour", "status"),
    [
        ("--nproc 2", True, True),
        ("--nproc 2 -q", True, False),
        ("--nproc 2 --log-format json", False, False),
        ("--stdio inherit", True, False),
    ],
)
def test_what_a_terminal_shows(job, monkeypatch, words, colour, status):
    """The status line is for people who watch; JSON is for programs."""
    monkeypatch.setenv("TERM", "xterm")
    found = job(*words.split(), shows=True).output

    assert (found.colour, found.status) == (colour, status)


@pytest.mark.parametrize(
    ("words", "loglevel", "expected"),
    [
        ("", "", ("normal", False)),
        ("-q", "DEBUG", ("quiet", False)),
        ("--verbose", "ERROR", ("verbose", False)),
        ("", "INFO", ("verbose", False)),
        ("--log-format json", "", ("normal", True)),
    ],
)
def test_how_dsup_speaks(job, monkeypatch, words, loglevel, expected):
    """-q and -v win over LOGLEVEL."""
    monkeypatch.setenv("LOGLEVEL", loglevel)

    assert job(*words.split()).voice == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Choices()),
        ("--role trainer", Choices(role="trainer")),
        ("--master-addr 10.0.0.7", Choices(master_addr="10.0.0.7")),
        ("--local-addr h1", Choices(master_addr="h1")),
        ("--local-addr h1 --master_addr h2", Choices(master_addr="h2")),
        ("--virtual-local-rank", Choices(virtual_local_rank=True)),
        ("--signals-to-handle SIGTERM", Choices(signals="SIGTERM")),
    ],
)
def test_what_is_chosen_of_torchruns_variables(job, words, expected):
    """Each option reaches the variable it is for."""
    assert job(*words.split()).choices == expected


@pytest.mark.parametrize(
    ("names", "expected", "said"),
    [
        ("SIGTERM,SIGINT,SIGHUP,SIGQUIT", (), ""),
        ("SIGTERM", (), ""),
        ("SIGTERM, SIGUSR1", (signal.SIGUSR1,), ""),
        ("SIGUSR2,SIGUSR1,", (signal.SIGUSR1, signal.SIGUSR2), ""),
        ("SIGTERM,SIGFOO", (), "cannot handle 'SIGFOO', because there is none"),
        ("SIGXCPU", (), "cannot handle 'SIGXCPU', because dsup does not watch it"),
    ],
)
def test_which_signals_stop_a_run(job, capsys, names, expected, said):
    """The usual four always do; names that cannot be handled are told, not refused."""
    assert job("--signals-to-handle", names).spec.also_stop == expected
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == bool(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-r 2:1", "dsup: --redirects names local rank 2, but the last one is 1\n"),
        ("-t 0:1,8:3", "dsup: --tee names local rank 8, but the last one is 1\n"),
        (
            "--local-ranks-filter 1,2",
            "dsup: --local-ranks-filter names local rank 2, but the last one is 1\n",
        ),
        ("-r 1:1", ""),
    ],
)
def test_a_rank_that_is_not_there_is_told(job, capsys, words, said):
    """A slip is not passed over in silence; a line for more nodes still runs."""
    job("--nproc", "2", *words.split())

    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "run_id"), [("--rdzv-id j7", "j7"), ("--rdzv_id none", None), ("", None)]
)
def test_an_id_is_the_users_where_given(job, words, run_id):
    """--rdzv-id is what the ranks are told; the run directory is still a new one."""
    found = job(*words.split())

    assert (found.run_id in found.run_dir) == (run_id is None)
    assert run_id in {None, found.run_id}


@pytest.mark.parametrize(
    "words",
    [
        "--nnodes 1",
        "--nnodes=1:1 --node_rank 0",
        "--rdzv-backend c10d --rdzv-endpoint localhost:29400 --rdzv-id 7",
        "--rdzv_endpoint [::1]:29400 --rdzv_conf timeout=900,is_host=1",
        "--monitor-interval 5 --start-method spawn --event-log-handler null",
        "--logs-specs default --standalone",
    ],
)
def test_what_means_one_node_is_accepted(job, words):
    """A line written for torchrun on one node starts here unchanged."""
    assert job(*words.split()).spec.world_size == 1


@pytest.mark.parametrize(
    ("word", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d12h", 129_600),
        ("1h30m15s", 5415),
    ],
)
def test_a_time_limit_has_units(job, monkeypatch, word, seconds):
    """Seconds, or days, hours, minutes and seconds; the variable reads the same."""
    assert job("--stop-after", word, "train.py").spec.stop_after_s == seconds
    monkeypatch.setenv("DSUP_STOP_AFTER", word)
    assert job("train.py").spec.stop_after_s == seconds
    assert job("--stop-after", "7", "train.py").spec.stop_after_s == 7


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        pytest.param("train=auto", {}, id="as it is"),
        pytest.param("600", {"unseen_s": 600}, id="of ranks that tell nothing"),
        pytest.param(
            "train=60, init=30m,1h",
            {"train_s": 60, "init_s": 1800, "unseen_s": 3600},
            id="several",
        ),
        pytest.param("eval=off", {"eval_s": float("inf")}, id="no limit of a phase"),
        pytest.param("eval=auto,auto", {}, id="the usual"),
    ],
)
def test_limits_of_phases(job, monkeypatch, words, limits):
    """What is not named stays; the variable reads the same."""
    expected = Limits()._replace(**limits)

    assert job("--hang-after", words, "train.py").hang_limits == expected
    monkeypatch.setenv("DSUP_HANG_AFTER", words)
    assert job("train.py").hang_limits == expected


def test_hangs_need_not_be_looked_for(job):
    """No limit is one thing, no look another, and the dry run says it."""
    off = job("--hang-after", "off", "train.py")

    assert off.hang_limits is None
    assert ("hang-after", "off") in [option[:2] for option in off.options]


def test_limits_are_shown_as_they_are_given(job):
    """What a run was started with can be given to the next."""
    words = "init=90.5,train=auto,eval=off,checkpoint=3600,finish=1800,600"
    given = job("--hang-after", words, "train.py")

    assert ("hang-after", words) in [option[:2] for option in given.options]
    assert job("train.py").hang_limits == Limits()


@pytest.mark.parametrize("what", ["restart", "report", "stop"])
def test_what_is_done_about_a_hang(job, what):
    """A hang is restarted unless something else is asked for."""
    assert job("--on-hang", what, "train.py").spec.on_hang == what
    assert job("train.py").spec.on_hang == "restart"


def test_by_default_there_is_no_time_limit(job):
    """A run ends when its ranks do."""
    assert job("train.py").spec.stop_after_s is None
