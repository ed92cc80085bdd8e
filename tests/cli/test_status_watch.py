"""``dsup status --watch`` on real terminals, of a run whose agent is made up."""

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest

from dsup_runtime import contract

DEADLINE_S = 600
OFTEN = """
import sys
from dsup.cli import main, watch
watch.EVERY_S = 0.1
sys.exit(main.run(sys.argv[1:], None))
"""
ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux here")
pytestmark = pytest.mark.slow


def rank(number, **fields):
    known = {
        "rank": number,
        "local_rank": number,
        "pid": 400 + number,
        "gpu": None,
        "state": "alive",
        "status": None,
        "phase": "train",
        "step": 10,
        "note": "",
        "beat_age_s": 0.2,
        "step_age_s": 1.1,
        "cpu_percent": 99.6,
        "ecc": None,
        "rss_kb": 1 << 20,
        "kb_per_min": 0,
    }
    return {**known, **fields}


class Agent:
    """What answers at a control socket in an agent's place."""

    def __init__(self, path, ranks):
        self.asked = 0
        self.document = {
            "schema": "dsup.status/1",
            "run": path.name,
            "live": True,
            "at": "2026-11-30T14:34:35.000000Z",
            "outcome": "running",
            "stage": "running",
            "attempt": 0,
            "attempt_s": 61.0,
            "attempts": [],
            "world_size": len(ranks),
            "alive": len(ranks),
            "ranks": ranks,
        }
        self._place = path / contract.CONTROL_SOCKET
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(self._place))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # shut down
                return
            with connection:
                connection.recv(4096)
                self.asked += 1
                data = json.dumps(self.document).encode()
                memory = os.memfd_create("answer")
                os.write(memory, data)
                head = json.dumps({"ok": True, "bytes": len(data)}).encode()
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
                passed = [(*rights, struct.pack("=i", memory))]
                with contextlib.suppress(BrokenPipeError):  # it may not wait
                    connection.sendmsg([head], passed)
                os.close(memory)

    def end(self):
        """Be gone, and have the run directory tell the rest."""
        self._place.unlink(missing_ok=True)
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Leave nothing behind."""
        with contextlib.suppress(OSError):
            self.end()
        self._socket.close()


@pytest.fixture
def watched(failed_run, monkeypatch, tmp_path):
    """Give the directory of a run and the agent that answers for it."""
    path = failed_run()
    # A path that is short enough for a socket, wherever the tests run.
    monkeypatch.chdir(path.parent)
    agent = Agent(path.relative_to(path.parent), [rank(n) for n in range(3)])
    yield path, agent
    agent.close()


def call(path, *words):
    """Return the command that watches a run, oftener than people want it."""
    script = path.parent / "watch.py"
    script.write_text(OFTEN)
    return [sys.executable, str(script), "status", "--watch", *words, str(path)]


def until(look, found):
    """Return what is looked at once something is true of it."""
    nap, end_s = threading.Event(), time.monotonic() + DEADLINE_S
    while not found(seen := look()):
        assert time.monotonic() < end_s, seen
        nap.wait(0.05)
    return seen


class Pane:
    """A pane of a real tmux, 100 columns wide and 20 lines high, with a shell in it."""

    def __init__(self, directory):
        self._words = ["tmux", "-S", str(directory / "t"), "-f", "/dev/null"]
        env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": "$ "}
        subprocess.run(
            [*self._words, "new-session", "-d", "-x", "100", "-y", "20", "bash --norc"],
            check=True,
            env=env,
        )

    def do(self, *words):
        """Return what a command of tmux prints."""
        ran = subprocess.run([*self._words, *words], check=True, capture_output=True)
        return ran.stdout.decode()

    def lines(self):
        """Return what is on the screen."""
        return self.do("capture-pane", "-p").rstrip("\n").splitlines()

    def until(self, *words):
        """Return what is on the screen as soon as all of some words are."""
        return until(self.lines, lambda seen: all(w in "\n".join(seen) for w in words))


@pytest.fixture
def pane(tmp_path, watched):
    """Give a pane."""
    made = Pane(tmp_path)
    yield made
    made.do("kill-server")


@needs_tmux
def test_a_table_on_the_other_screen(watched, pane):
    """It is drawn anew, fits a new size, is left by q, and what was before is back."""
    path, agent = watched
    command = path.parent / "run"
    command.write_text(f"echo before\nexec {shlex.join(call(path))}")
    pane.do("send-keys", "clear; sh run", "Enter")
    seen = pane.until("q quits")
    assert seen[0].startswith("dsup train-a0b408  attempt 0, running 1 min 1 s")
    assert seen[0].endswith("14:34:35 UTC")
    assert seen[3] == (
        "     0     400    -  train       10   0.2s      1.1s    100      1.0     +0.0"
        "  -"
    )

    agent.document["ranks"] = [rank(0), rank(1, step=77, note="slow"), rank(2)]
    seen = pane.until("77")
    assert seen[4].startswith(">    1     401")
    assert not any("before" in line for line in seen)

    pane.do("resize-window", "-x", "60", "-y", "9")
    seen = pane.until("rank     step   beat  note")
    assert len(seen) <= 9
    pane.do("send-keys", "C-z")
    pane.until("before", "Stopped")
    pane.do("send-keys", "fg", "Enter")
    pane.until("rank     step   beat  note")
    agent.end()
    pane.until("failed after 2 s")
    pane.do("send-keys", "q")
    assert any("before" in line for line in pane.until("before"))


class Watcher:
    """A watch on a pseudo terminal, and all that it wrote."""

    def __init__(self, path):
        self.primary, terminal = pty.openpty()
        self.before = termios.tcgetattr(terminal)
        self.terminal = terminal
        self.seen = b""
        self.process = subprocess.Popen(
            call(path), stdin=terminal, stdout=terminal, stderr=terminal
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            try:
                self.seen += os.read(self.primary, 65536)
            except OSError:
                return

    def until(self, words, times=1):
        """Wait until it has written something so many times."""
        until(lambda: self.seen, lambda seen: seen.count(words) >= times)

    def end(self):
        """Return its exit code, once it has ended and all it wrote is read."""
        code = self.process.wait(DEADLINE_S)
        self.until(LEFT)
        after = termios.tcgetattr(self.terminal)
        os.close(self.terminal)
        assert after == self.before
        assert self.seen.rstrip().endswith(LEFT)
        assert b"\x1b[?25h" in self.seen[self.seen.rfind(ENTERED) :]
        return code


@pytest.fixture
def watcher(watched):
    """Give a watch that has drawn its table."""
    made = Watcher(watched[0])
    made.until(b"q quits")
    yield made
    made.process.kill()
    made.process.wait()
    os.close(made.primary)


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)],
)
def test_the_terminal_is_given_back_after_a_signal(watcher, signum, code):
    """Whatever ends it, the terminal is as it was."""
    watcher.process.send_signal(signum)

    assert watcher.end() == code


def test_a_terminal_that_takes_nothing_does_not_hold_it(watcher):
    """Ctrl-S was pressed, and nobody presses Ctrl-Q: it ends all the same."""
    termios.tcflow(watcher.terminal, termios.TCOOFF)
    watcher.process.send_signal(signal.SIGWINCH)
    watcher.process.send_signal(signal.SIGTERM)

    assert watcher.process.wait(DEADLINE_S) == 143
    assert termios.tcgetattr(watcher.terminal) == watcher.before


def test_it_is_drawn_anew_after_a_stop(watcher):
    """Stopped and continued by others, it takes the terminal again."""
    watcher.process.send_signal(signal.SIGSTOP)
    watcher.process.send_signal(signal.SIGCONT)
    watcher.until(ENTERED, 2)
    watcher.until(b"q quits", 2)
    os.write(watcher.primary, b"q")

    assert watcher.end() == 0


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_pipe_gets_a_block_now_and_then(watched, words):
    """Where it is no terminal, blocks follow each other until the run is over."""
    path, agent = watched
    with subprocess.Popen(call(path, *words), stdout=subprocess.PIPE) as process:
        until(lambda: agent.asked, lambda asked: asked >= 2)
        agent.end()
        out, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0
    assert b"\x1b" not in out
    if words:
        documents = [json.loads(line) for line in out.splitlines()]
        assert [one["live"] for one in documents[-3:]] == [True, True, False]
    else:
        assert out.count(b"\n\ndsup train-a0b408  ") >= 2


def test_once_and_in_full_into_a_pipe(watched, dsup):
    """Every rank has its row there, however many there are."""
    path, agent = watched
    agent.document["ranks"] = [rank(number) for number in range(64)]
    said = dsup("status", str(path))

    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()[3:]] == [
        *map(str, range(64))
    ]
