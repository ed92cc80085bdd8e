"""A wrong call is one line that says what is wrong and what to do; exit code 2."""

import pytest

WRONG = [
    ("launch", "no script was given"),
    ("launch nosuch.py", "cannot run nosuch.py, because there is no such file"),
    ("launch --nproc 0 train.py", "'0' is not a number from 1 to 4096"),
    ("launch --nproc 4097 train.py", "'4097' is not a number from 1 to 4096"),
    ("launch --nproc -1 train.py", "'-1' is not a number from 1 to 4096"),
    ("launch --nproc 2.0 train.py", "'2.0' is not a number from 1 to 4096"),
    ("launch --nproc ² train.py", "'²' is not a number from 1 to 4096"),
    ("launch --nproc many train.py", "cpu, gpu or auto"),
    ("launch --nproc", "option '--nproc' requires an argument"),
    ("launch --bogus train.py", "no such option '--bogus'"),
    ("launch --max-restarts -1 train.py", "-1 is not in the range"),
    ("launch --max-restarts x train.py", "'x' is not a valid integer"),
    ("launch --backoff 10,x train.py", "'x' is not a number of seconds"),
    ("launch --backoff 10,,30 train.py", "'' is not a number of seconds"),
    ("launch --backoff=-1 train.py", "'-1' is not a number of seconds"),
    ("launch --settle nan train.py", "'nan' is not a number of seconds"),
    ("launch --shutdown-timeout inf train.py", "'inf' is not a number of seconds"),
    *(
        (f"launch --stop-after {word} train.py", f"{word!r} is not a length of time")
        for word in "soon 0 -1 nan inf 0m 1.5h 30M 2h1d 1h30 1e10 99999d ²h".split()
    ),
    ("launch --stop-after= train.py", "(seconds as in 90, or as in 30m, 2h, 1d12h"),
    ("launch --on-hang kill train.py", "'kill' is not one of 'restart', 'report', 's"),
    *(
        (f"launch --hang-after={word} train.py", f"{part!r} is no length of time above")
        for word, part in {
            "": "",
            "soon": "soon",
            "train=0": "0",
            "train=-1": "-1",
            "eval=nan": "nan",
            "init=": "",
            "init=5,": "",
            "eval=off,5x": "5x",
        }.items()
    ),
    (
        "launch --hang-after warmup=5 train.py",
        "'warmup' is no phase (PHASE=LENGTH,..., a LENGTH or off; phases are init, tr",
    ),
    ("launch --hang-after =5 train.py", "'' is no phase"),
    ("launch --hang-after eval=5,eval=6 train.py", "sets eval twice"),
    ("launch --hang-after 5,6 train.py", "sets ranks without a phase twice"),
    ("launch --healthy-after soon train.py", "'soon' is not a number of seconds"),
    ("launch --comm-timeout never train.py", "'never' is not a number of seconds"),
    ("launch --master-port 65536 train.py", "65536 is not in the range"),
    ("launch --store redis train.py", "'redis' is not one of 'rank0', 'agent'"),
    ("launch --heartbeat udp train.py", "'udp' is not one of 'page', 'file', 'tcp'"),
    ("launch --restart-on full-moon train.py", "'full-moon' is not one of"),
    ("launch -m --no-python train", "cannot use -m with --no-python"),
    *(
        (f"launch --metrics {word} train.py", f"serve metrics on '{word}', because it")
        for word in "9100 :9100 host:0 host:65536 [::1 ::1:9100 h:9100/x".split()
    ),
    ("launch --metrics-file /nowhere/x train.py", "there is no directory /nowhere"),
    ("launch --metrics-file /proc train.py", "because it is a directory"),
    ("launch --on-event nosuch train.py", "because there is no such program: nosuch"),
    ("launch --on-event /etc/passwd train.py", "because it cannot be executed"),
    ("launch --on-event '' train.py", "because it names no command"),
    ("launch --on-event 'a train.py", "its words do not come to an end"),
    (
        "launch --checkpoint-dir a --checkpoint-glob b train.py",
        "cannot use --checkpoint-dir with --checkpoint-glob",
    ),
    (
        "launch --checkpoint-dir a --resume-arg=--resume train.py",
        "because it has no {path}",
    ),
    ("launch --resume-arg={path} train.py", "no checkpoint location is given"),
    ("launch --log-dir train.py/logs train.py", "cannot make a run directory in"),
    ("launch --nprocs 2 train.py", "no such option '--nprocs'"),
    ("launch --max-restart-s 2 train.py", "Did you mean one of: '--max-restarts',"),
    ("launch --n 2 train.py", "option '--n' could be --nnodes, --no-faulthandler"),
    ("launch --nproc xpu train.py", "'xpu' is not a number from 1 to 4096"),
    ("launch --standalone=1 train.py", "option '--standalone' does not take a value"),
    ("launch -r 4 train.py", "'4' is neither 0 (none), 1 (stdout)"),
    ("launch -r 0:1,1 train.py", "'0:1,1' is neither 0 (none)"),
    ("launch --tee 0:9 train.py", "'0:9' is neither 0 (none)"),
    ("launch -t= train.py", "'=' is neither 0 (none)"),
    ("launch --local-ranks-filter 0-3 train.py", "'0-3' is not a list of local ranks"),
    ("launch --log-max-size 1X train.py", "'1X' is not a size from 4K on"),
    ("launch --log-max-size 10 train.py", "'10' is not a size from 4K on"),
    ("launch --keep-runs -1 train.py", "-1 is not in the range"),
    ("launch --stdio tty train.py", "'tty' is not one of 'auto', 'inherit', 'pipe'"),
    ("launch --stdio inherit -t 3 train.py", "cannot use --stdio inherit with --tee"),
    ("launch --stdio inherit -r 1 train.py", "--stdio inherit with --redirects"),
    ("launch -q -v train.py", "cannot use -q with -v"),
    ("launch --log-format xml train.py", "'xml' is not one of 'text', 'json'"),
    ("launch --comm-timeout 1e10 train.py", "'1e10' is not a number of seconds from"),
    ("launch --nnodes 2 train.py", "--nnodes 2, because dsup does one node so far"),
    ("launch --nnodes 1:4 train.py", "--nnodes 1:4, because dsup does one node so"),
    ("launch --nnodes 2:1 train.py", "'2:1', because it is neither N nor MIN:MAX"),
    ("launch --nnodes 1:2:3 train.py", "'1:2:3', because it is neither N nor"),
    ("launch --nnodes 0 train.py", "'0', because it is neither N nor MIN:MAX"),
    ("launch --nnodes two train.py", "'two', because it is neither N nor MIN:MAX"),
    ("launch --node-rank 1 train.py", "cannot be node 1, because"),
    ("launch --node-rank x train.py", "'x' is not a valid integer"),
    ("launch --rdzv-backend etcd train.py", "'etcd', because only static or c10d"),
    ("launch --rdzv-endpoint a:b train.py", "'a:b', because it is not HOST[:PORT]"),
    ("launch --rdzv-conf timeout train.py", "'timeout', because it is not KEY=VALUE"),
    ("launch --start-method fork train.py", "'fork', because only spawn is possible"),
    (
        "launch --event-log-handler console train.py",
        "'console', because only null is possible: events are in events.jsonl",
    ),
    ("launch --logs-specs mine train.py", "'mine', because only default is possible"),
    ("launch --monitor-interval soon train.py", "'soon' is not a number of seconds"),
    ("launch --numa-binding near train.py", "'near' is not one of 'node', 'socket'"),
    ("launch --print-completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ("launch --run-path nosuch.zip", "cannot run nosuch.zip, because there is no such"),
    ("completion", "Choose from: bash, zsh, fish"),
    ("completion csh", "'csh' is not one of 'bash', 'zsh', 'fish'"),
    ("lunch", "no such command 'lunch'. Did you mean 'launch'?"),
    ("train.py --lr 1", "'train.py' is no command: dsup launch train.py would run it"),
    ("--bogus", "no such option '--bogus'"),
    ("--version=1", "option '--version' does not take a value"),
]


@pytest.mark.parametrize(("call", "why"), WRONG, ids=[call for call, _ in WRONG])
def test_a_wrong_call_is_refused_in_one_line(dsup, call, why):
    """Each refusal begins alike, gives the reason, and ends with 2."""
    said = dsup(*call.split())

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("dsup: cannot ")
    assert why in said.err
    assert said.err.count("\n") == 1
    assert "because" in said.err


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DSUP_NPROC", "none"),
        ("PET_NPROC_PER_NODE", "0"),
        ("PET_MAX_RESTARTS", "-3"),
        ("PET_STANDALONE", "perhaps"),
        ("DSUP_BACKOFF", "-1"),
        ("PET_TEE", "9"),
        ("DSUP_LOG_MAX_SIZE", "big"),
        ("PET_VIRTUAL_LOCAL_RANK", "maybe"),
        ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "-2"),
    ],
)
def test_a_wrong_variable_is_refused_as_its_option_is(
    dsup, monkeypatch, variable, value
):
    """What comes from the environment is checked all the same."""
    monkeypatch.setenv(variable, value)

    said = dsup("launch", "train.py")

    assert said.code == 2
    assert repr(value) in said.err or value in said.err
    assert said.err.startswith("dsup: cannot run dsup launch, because ")


@pytest.mark.parametrize(
    ("variables", "words", "why"),
    [
        pytest.param(
            {"TORCHELASTIC_HEALTH_CHECK_PORT": "8080"},
            [],
            "TORCHELASTIC_HEALTH_CHECK_PORT=8080, because dsup has no such server",
            id="a health port",
        ),
        pytest.param(
            {"CUDA_VISIBLE_DEVICES": "4"},
            ["--virtual-local-rank", "--nproc", "2"],
            "cannot give each of 2 ranks a GPU (--virtual-local-rank), because "
            "CUDA_VISIBLE_DEVICES=4 has 1",
            id="too few GPUs for virtual local ranks",
        ),
        pytest.param(
            {"PATH": "/nowhere"},
            ["--numa-binding", "node"],
            "cannot use --numa-binding node, because there is no numactl on PATH",
            id="no numactl",
        ),
        pytest.param(
            {"PET_NNODES": "2"},
            [],
            "cannot run with --nnodes 2, because dsup does one node so far",
            id="several nodes by variable",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    dsup, monkeypatch, variables, words, why
):
    """The reason, then the replacement in brackets; nothing is started."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    said = dsup("launch", *words, "train.py")

    assert said.code == 2
    assert why in said.err
    assert said.err.endswith(")\n")
    assert said.err.count("\n") == 1


def test_a_refusal_moves_no_cursor(dsup):
    """What was typed is shown, and not acted out by the terminal."""
    said = dsup("launch", "n\x1b]0;T\x07\n.py")

    assert r"cannot run n\x1b]0;T\x07\n.py, because" in said.err
    assert said.err.count("\n") == 1


def test_a_script_that_cannot_be_read_is_refused_once(dsup, home):
    """Not every rank has to say for itself that the script is not there."""
    said = dsup("launch", "--nproc", "64", "sub/train.py")

    assert said.err == (
        f"dsup: cannot run sub/train.py, because there is no such file (looked in "
        f"{home}; -m runs a module, --no-python a program)\n"
    )


@pytest.mark.parametrize("how", ["-m", "--no-python"])
def test_a_module_or_program_is_no_file(dry, how):
    """What is not a script is looked for by whoever runs it."""
    assert dry(how, "nosuch").code == 0


def test_launch_needs_its_guard(dsup):
    """Without a guard nothing is started."""
    said = dsup("launch", "train.py")

    assert said.code == 2
    assert "launch must run under its guard" in said.err


def test_help_is_no_refusal(dsup):
    """Help goes to stdout and ends with 0."""
    for words in (["--help"], ["-h"], ["launch", "--help"], ["launch", "-h"]):
        said = dsup(*words)

        assert (said.code, said.err) == (0, "")
        assert said.out.startswith("Usage: dsup")


def test_without_a_command_the_help_is_shown(dsup):
    """A bare dsup shows what there is, and is a wrong call."""
    said = dsup()

    assert (said.code, said.out) == (2, "")
    assert "Commands:\n  launch" in said.err


def test_a_bug_is_one_line_too(dsup):
    """An error that nobody foresaw names its place, without a traceback; code 70."""
    # No shell can pass a NUL on, so no call gets this far.
    said = dsup("launch", "--log-dir", "a\0b", "train.py")

    assert said.code == 70
    assert said.err.startswith("dsup: a bug in dsup: ValueError at ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
