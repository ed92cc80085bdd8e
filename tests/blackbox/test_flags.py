"""Torchrun's options in real runs, and the terminal handed to a rank."""

import json
import os
import pty
import select
import signal
import sys
import time
import zipfile

import pytest

pytestmark = pytest.mark.slow

SAY = "*:say=out,warn=err"
PATIENCE_S = 600


@pytest.fixture
def shown(run):
    """Give ``shown(options)``: what two or more ranks' words come to.

    The answer is the sorted lines of the console that are not dsup's own, and the run
    directory.
    """

    def start(options, *acts, **how):
        run.start(options, *acts, **how)
        assert run.ended() == 0, run.console()
        lines = run.console().splitlines()
        return sorted(line for line in lines if not line.startswith("dsup: "))

    return start


def logged(run, rank):
    """Return the names of a rank's logs that are not empty."""
    where = run.run_dir() / "attempt_0" / str(rank)
    names = ("stdout.log", "stderr.log")
    return [n for n in names if (where / n).exists() and (where / n).stat().st_size]


@pytest.mark.dsup_only
def test_b49_redirects_and_tee_by_rank(run, shown):
    """Redirected is not shown, teed is prefixed, the rest is raw; files have all."""
    lines = shown(
        "--nproc-per-node 3 -r 0:1,1:2 -t 2:3",
        *(f"{rank}:say=out{rank},warn=err{rank}" for rank in range(3)),
    )

    assert lines == ["[default2]:err2", "[default2]:out2", "err0", "out1"]
    for rank in range(3):
        assert logged(run, rank) == ["stdout.log", "stderr.log"]


@pytest.mark.dsup_only
@pytest.mark.parametrize(
    ("options", "environment"),
    [
        pytest.param(
            "--log-line-prefix-template '[${role_name} g${rank}] '", {}, id="option"
        ),
        pytest.param(
            "",
            {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name} g${rank}] "},
            id="variable",
        ),
    ],
)
def test_b50_a_prefix_of_ones_own(shown, options, environment):
    """The template is filled in for each rank."""
    lines = shown(
        f"--nproc-per-node 2 --tee 3 --role tr {options}", SAY, env=environment
    )

    assert lines == ["[tr g0] err", "[tr g0] out", "[tr g1] err", "[tr g1] out"]


def test_b51_only_the_ranks_asked_for_are_shown(shown):
    """The others are silent on the console."""
    lines = shown(
        "--nproc-per-node 3 --local-ranks-filter 1",
        *(f"{rank}:say=out{rank}" for rank in range(3)),
        env={"OMP_NUM_THREADS": "1"},
    )

    assert lines == ["out1"]


@pytest.mark.dsup_only
def test_lines_are_copied_by_filter(run, shown):
    """filtered_stdout.log has the lines of all ranks that contain a text."""
    shown(
        "--nproc-per-node 2 --duplicate-stdout-filters loss,Error",
        "*:say=loss=1,say=other,say=Error-x,warn=loss-on-stderr",
    )
    text = (run.run_dir() / "attempt_0" / "filtered_stdout.log").read_text()

    assert text.count("loss=1") == text.count("Error-x") == 2
    assert "other" not in text
    assert "stderr" not in text


def test_b53_virtual_local_ranks(run):
    """Every rank is the first, and sees its own entry of the parent's list."""
    how = {"env": {"CUDA_VISIBLE_DEVICES": "4,5"}}
    run.start("--nproc-per-node 2 --virtual-local-rank", "*:env=x", **how)

    assert run.ended() == 0, run.console()
    told = sorted((e.rank, e.env) for e in run.events("env"))
    names = ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "LOCAL_WORLD_SIZE")
    assert [[env[name] for name in names] for _, env in told] == [
        ["0", "4", "2"],
        ["0", "5", "2"],
    ]


@pytest.mark.dsup_only
def test_b53_a_list_that_is_too_short_is_refused(run):
    """No rank is started."""
    how = {"env": {"CUDA_VISIBLE_DEVICES": "4"}}
    run.start("--nproc-per-node 2 --virtual-local-rank", "*:emit=started", **how)

    assert run.ended() == 2
    assert "CUDA_VISIBLE_DEVICES=4" in run.console()
    assert not run.events("started")


@pytest.mark.dsup_only
def test_b39_a_signal_of_ones_own_stops_the_run(run):
    """--signals-to-handle ...,SIGUSR1: the ranks get USR1 and the run ends; 138."""
    names = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
    run.start(
        f"--nproc-per-node 2 --signals-to-handle {names}",
        "*:trap=USR1/0,env=x,emit=ready,hang",
    )
    run.wait_event("ready", 2)
    run.signal(signal.SIGUSR1)

    assert run.ended() == 138, run.console()
    assert len(run.events("got-USR1")) == 2
    told = {event.env["TORCHELASTIC_SIGNALS_TO_HANDLE"] for event in run.events("env")}
    assert told == {names}
    run.nothing_left()


@pytest.mark.dsup_only
def test_b39_a_signal_that_is_not_there_is_told(run):
    """The run goes on; torchrun only warns, too."""
    run.start("--signals-to-handle SIGTERM,SIGFOO", "*:emit=ran")

    assert run.ended() == 0
    assert any("SIGFOO" in line for line in run.said())
    assert run.events("ran")


def test_each_rank_has_its_own_local_rank_filled_in(run):
    """${local_rank} in an argument of the script is torchrun's macro."""
    run.start("--nproc-per-node 2", "*:argv=x", "r${local_rank}")

    assert run.ended() == 0, run.console()
    told = {event.rank: event.argv[2:] for event in run.events("argv")}
    assert told == {0: ["r0"], 1: ["r1"]}


@pytest.mark.dsup_only
def test_a_script_run_by_path(run, proc):
    """--run-path runs a zip file as runpy does, with the script's own arguments."""
    archive = run.files / "job.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(proc.workers / "act.py", "__main__.py")
    run.start("--run-path --nproc-per-node 2", "*:argv=x", "-y", script=archive)

    assert run.ended() == 0, run.console()
    assert [event.argv for event in run.events("argv")] == [
        [str(archive), "*:argv=x", "-y"]
    ] * 2


def test_ids_and_roles_reach_the_ranks(run):
    """--rdzv-id, --role: what torchrun's users key their own logs on."""
    run.start(
        "--rdzv_backend=c10d --rdzv_endpoint=localhost:0 --rdzv_id=j7 --role tr",
        "*:env=x",
    )

    assert run.ended() == 0, run.console()
    (told,) = run.events("env")
    assert (told.env["TORCHELASTIC_RUN_ID"], told.env["ROLE_NAME"]) == ("j7", "tr")


@pytest.mark.dsup_only
def test_quiet_says_nothing_when_all_went_well(run):
    """Only the ranks are heard."""
    run.start("-q --nproc-per-node 2", "*:say=hello")

    assert run.ended() == 0
    assert run.said() == []
    assert run.console() == "hello\n" * 2


@pytest.mark.dsup_only
def test_json_lines_can_be_parsed(run):
    """--log-format json: each line of dsup's own is an object, failures too."""
    run.start("--log-format json", "*:exit=3")

    assert run.ended() == 3
    told = [json.loads(line) for line in run.console().splitlines()]
    assert {"info", "error"} == {line["level"] for line in told}
    assert any("exit code 3" in line["message"] for line in told)


class Typist:
    """A terminal with dsup in it, and somebody who types."""

    def __init__(self, words, environment):
        self.said = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], words, environment)  # noqa: S606 (in a terminal of its own)

    def hears(self, text):
        """Return whether the terminal shows a text."""
        end_s = time.monotonic() + PATIENCE_S
        while text not in self.said and time.monotonic() < end_s:
            if not select.select([self._fd], [], [], 0.1)[0]:
                continue
            try:
                self.said += os.read(self._fd, 4096).decode(errors="replace")
            except OSError:
                break
        return text in self.said

    def types(self, text):
        """Type it; what was on the screen before is forgotten."""
        self.said = ""
        os.write(self._fd, text.encode())

    def code(self):
        """Return the exit code once everything has ended."""
        self.hears("\0")
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def close(self):
        """Hang up."""
        os.close(self._fd)


DEBUGGED = """
import signal, sys, os
heard = []
answer = 42
breakpoint()
# Only now: pdb's "continue" sets a handler of its own.
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
name = input("name? ")
print("hello", name, sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())
print("ready", flush=True)
while not heard:
    signal.sigtimedwait([], 0.1)
signal.sigtimedwait([], 0.3)
print("interrupts:", len(heard))
"""


@pytest.fixture
def typist(run):
    """Give ``typist(*options)``: dsup on a terminal, with one rank to debug."""
    script = run.files / "debugged.py"
    script.write_text(DEBUGGED)
    made = []

    def start(*options):
        words = [sys.executable, "-m", "dsup", "launch", *options, str(script)]
        environment = run.environ({"TERM": "xterm", "PYTHON_COLORS": "0"})
        made.append(Typist(words, environment))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.mark.dsup_only
@pytest.mark.parametrize("options", [(), ("--stdio", "inherit"), ("-r0", "-t0")])
def test_a_rank_on_a_terminal_can_be_debugged(typist, options):
    """pdb, input() and isatty work, and Ctrl-C reaches the rank once."""
    user = typist(*options)

    assert user.hears("without logs")
    assert user.hears("(Pdb)")
    user.types("p answer\n")
    assert user.hears("42")
    assert user.hears("(Pdb)")
    user.types("c\n")
    assert user.hears("name? ")
    user.types("Ada\n")
    assert user.hears("hello Ada True True True")
    assert user.hears("ready")
    user.types("\x03")
    assert user.hears("interrupts: 1")
    assert user.code() == 130


@pytest.mark.dsup_only
@pytest.mark.parametrize("options", [("--stdio", "pipe"), ("--tee", "3")])
def test_a_rank_whose_output_passes_through_dsup_has_no_terminal(typist, options):
    """What was asked for goes before what is convenient."""
    user = typist(*options)

    assert user.hears("logs in")
    assert user.hears("(Pdb)")
    user.types("c\n")
    user.types("Ada\n")
    assert user.hears("hello Ada True False False")
    user.types("\x03")
    assert user.code() == 130
