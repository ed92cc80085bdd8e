"""A real run, watched: by a real Prometheus, by a file of metrics, by a command."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
pytestmark = [pytest.mark.dsup_only, pytest.mark.slow]
SOON_S = 600

STEPPING = """
import os, threading
from dsup_runtime import beat, info
first = 1000 * info().attempt
for step in range(first, first + 100_000):
    beat(step)
    threading.Event().wait(0.02)
    if info().attempt == 0 and step == 60 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), 9)
    if os.path.exists(os.environ["GATE"]):
        break
"""
NOTED = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
SCRAPES = """
global: {{scrape_interval: 2s}}
scrape_configs:
  - job_name: dsup
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def get(url):
    """Return what is at a URL; nothing where nobody answers yet."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (ours)
            return answer.read().decode()
    except OSError:
        return ""


def named(text):
    """Return the value of each sample of a text, by what comes before it."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
    return {re.sub('run="[^"]*",?', "", name): float(value) for name, _, value in lines}


@pytest.fixture
def script(run):
    """Give a script whose rank 1 is killed once, and which ends when it is let."""
    path = run.files / "stepping.py"
    path.write_text(STEPPING)
    return path


@pytest.fixture
def prometheus(tmp_path, free_port):
    """Start a Prometheus that scrapes a port; return a function that asks it."""
    program = shutil.which("prometheus") or pytest.skip("no prometheus")
    started = []

    def start(port):
        own = free_port()
        config = tmp_path / "prometheus.yml"
        config.write_text(SCRAPES.format(port=port))
        words = [
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{own}",
        ]
        with (tmp_path / "prometheus.log").open("w") as log:
            started.append(subprocess.Popen([program, *words], stdout=log, stderr=log))

        def ask(query):
            words = urllib.parse.urlencode({"query": query})
            told = get(f"http://127.0.0.1:{own}/api/v1/query?{words}")
            found = json.loads(told)["data"]["result"] if told else []
            return [float(one["value"][1]) for one in found]

        return ask

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_restart_is_seen_by_all_who_look_on(run, script, prometheus, free_port, proc):
    """Prometheus answers queries about it; file and command tell how it ended."""
    port, file, log = free_port(), run.base / "dsup.prom", run.base / "events"
    gate, ask = run.base / "gate", prometheus(port)
    noter = run.files / "note.py"
    noter.write_text(NOTED)
    run.start(
        f"--nproc 2 --max-restarts 1 --metrics 127.0.0.1:{port} --metrics-file {file} "
        f"--on-event '{sys.executable} -S {noter} {log}'",
        script=script,
        env={"GATE": str(gate)},
    )

    proc.until(lambda: ask("dsup_attempts_total") == [2], SOON_S, run.console)
    proc.until(lambda: ask("min(dsup_rank_step) >= 1000"), SOON_S, run.console)
    for query, answer in (
        ('dsup_failures_total{cause="killed"}', [1]),
        ("dsup_up", [1]),
        ("sum(dsup_stage)", [1]),
        ("count(dsup_rank_heartbeat_age_seconds < 600)", [2]),
        ("round(100 * sum(dsup_ledger_seconds) / sum(dsup_run_seconds))", [100]),
    ):
        # Nothing is there for a while where a scrape took longer than its limit.
        proc.until(lambda q=query, a=answer: ask(q) == a, SOON_S, query)
    gate.touch()
    assert run.ended() == 0, run.console()

    last = named(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(file.parent.glob(".*prom*")) == []
    assert (last["dsup_up{}"], last["dsup_exit_code{}"]) == (0, 0)
    assert 0 < last["dsup_ettr_ratio{}"] < 1
    told = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert (
        told
        == (
            "run_started attempt_started attempt_failed restarting attempt_started "
            "run_ended"
        ).split()
    )
    run.nothing_left()


def test_an_onlooker_in_trouble_costs_a_line(run, script, proc):
    """A port that is taken, a file that cannot be, a command that fails: it goes on."""
    where = run.base / "there"
    where.mkdir()
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run.start(
            f"--nproc 2 --max-restarts 1 --backoff 1 --metrics '[::1]:{port}' "
            f"--metrics-file {where}/dsup.prom --on-event 'sh -c \"rm -r {where}\"'",
            script=script,
            env={"GATE": str(run.base / "gate")},
        )
        said = "cannot serve metrics on [::1]:{}, because address already in use"
        proc.until(lambda: said.format(port) in run.console(), SOON_S, run.console)
        proc.until(
            lambda: "ended with exit code 1" in run.console(), SOON_S, run.console
        )
        run.signal(signal.SIGTERM)
        assert run.ended() == 143, run.console()
    assert f"cannot write metrics into {where}/dsup.prom" in run.console()
    run.nothing_left()


def test_a_run_that_never_began_is_told_of(run):
    """Its ranks could not be started: file and command know it all the same."""
    file, log, noter = run.base / "x.prom", run.base / "events", run.files / "note.py"
    noter.write_text(NOTED)
    run.start(
        f"--no-python --metrics-file {file} "
        f"--on-event '{sys.executable} -S {noter} {log}' /nowhere/program",
        script=None,
    )

    assert run.ended() == 127, run.console()
    assert named(file.read_text())["dsup_exit_code{}"] == 127
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["event"], last["outcome"], last["code"]) == (
        "run_ended",
        "failed",
        127,
    )


def test_the_alert_rules_of_the_runbook_do_what_they_say(tmp_path):
    """Debian's promtool accepts them; each fires for its reason and for no other."""
    promtool = shutil.which("promtool") or pytest.skip("no promtool")
    text = (REPO / "docs" / "runbook.md").read_text()
    (rules,) = re.findall(r"```yaml\n(groups:.+?)```", text, re.DOTALL)
    (tmp_path / "rules.yml").write_text(rules)
    (tmp_path / "tests.yml").write_text(ALERTS)

    for words in (["check", "rules", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(
            [promtool, *words],
            cwd=tmp_path,
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


ALERTS = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - name: a run that is well
    interval: 1m
    input_series: &well
      - {series: 'up{job="dsup",instance="a"}', values: "1x120"}
      - {series: 'dsup_up{job="dsup",instance="a",run="r"}', values: "1x120"}
      - series: 'dsup_status_timestamp_seconds{job="dsup",instance="a",run="r"}'
        values: "0+60x120"
      - {series: 'dsup_attempts_total{job="dsup",instance="a",run="r"}', values: "1x120"}
      - series: 'dsup_checkpoint_age_seconds{job="dsup",instance="a",run="r"}'
        values: "60x120"
      - series: 'dsup_rank_step_age_seconds{job="dsup",instance="a",run="r",rank="0"}'
        values: "1x120"
    alert_rule_test: &silent
      - {eval_time: 100m, alertname: DsupDown}
      - {eval_time: 100m, alertname: DsupNoProgress}
      - {eval_time: 100m, alertname: DsupAtRisk}
  - name: the exporter is gone
    interval: 1m
    input_series:
      - {series: 'up{job="dsup",instance="a"}', values: "1x10 0x20"}
    alert_rule_test:
      - {eval_time: 10m, alertname: DsupDown}
      - eval_time: 20m
        alertname: DsupDown
        exp_alerts: [{exp_labels: {job: dsup, instance: a}, exp_annotations: {summary: " on a is down: dsup diagnose"}}]
  - name: a file that nobody writes any more
    interval: 1m
    input_series:
      - {series: 'dsup_up{job="node",instance="a",run="r"}', values: "1x60"}
      - series: 'dsup_status_timestamp_seconds{job="node",instance="a",run="r"}'
        values: "0x60"
    alert_rule_test:
      - eval_time: 10m
        alertname: DsupDown
        exp_alerts: [{exp_labels: {job: node, instance: a, run: r}, exp_annotations: {summary: "r on a is down: dsup diagnose"}}]
  - name: files of a run that was stopped and of one that failed
    interval: 1m
    input_series:
      - {series: 'dsup_exit_code{job="node",instance="a",run="r"}', values: "143x60"}
      - {series: 'dsup_stopping{job="node",instance="a",run="r"}', values: "1x60"}
      - {series: 'dsup_exit_code{job="node",instance="a",run="s"}', values: "137x60"}
      - {series: 'dsup_stopping{job="node",instance="a",run="s"}', values: "0x60"}
    alert_rule_test:
      - eval_time: 10m
        alertname: DsupDown
        exp_alerts: [{exp_labels: {job: node, instance: a, run: s}, exp_annotations: {summary: "s on a is down: dsup diagnose"}}]
  - name: a file of a run that ended well
    interval: 1m
    input_series:
      - {series: 'dsup_up{job="node",instance="a",run="r"}', values: "0x60"}
      - {series: 'dsup_exit_code{job="node",instance="a",run="r"}', values: "0x60"}
      - series: 'dsup_status_timestamp_seconds{job="node",instance="a",run="r"}'
        values: "0x60"
    alert_rule_test:
      - {eval_time: 50m, alertname: DsupDown}
  - name: ranks without a step, and restarts without an end
    interval: 1m
    input_series:
      - series: 'dsup_rank_step_age_seconds{job="dsup",instance="a",run="r",rank="0"}'
        values: "0+60x60"
      - series: 'dsup_attempts_total{job="dsup",instance="a",run="r"}'
        values: "1x10 2x5 3x5 4x40"
    alert_rule_test:
      - {eval_time: 12m, alertname: DsupNoProgress}
      - {eval_time: 12m, alertname: DsupAtRisk}
      - eval_time: 30m
        alertname: DsupNoProgress
        exp_alerts: [{exp_labels: {job: dsup, instance: a, run: r}, exp_annotations: {summary: "r on a makes no steps: dsup status"}}]
      - eval_time: 30m
        alertname: DsupAtRisk
        exp_alerts: [{exp_labels: {job: dsup, instance: a, run: r}, exp_annotations: {summary: "r on a: no checkpoint for an hour, or three restarts in one"}}]
"""  # noqa: E501


@pytest.fixture
def web():
    """Serve the web that a webhook wants; give its address and what it was sent."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def _take(self):
            size = int(self.headers.get("Content-Length", 0))
            got.append((self.command, self.path, self.rfile.read(size).decode()))
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST = _take  # noqa: N815 (the library's names)

        def log_message(self, *_):
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


def test_the_webhook_example_tells_in_words_and_pings(web):
    """A failure is posted and not pinged; the end of a bad run pings ``/fail``.

    An end that somebody wished for is no alarm.
    """
    address, got = web
    base = {"program": "train", "node": "n", "attempt": 0}
    events = [
        base | {"event": "run_started"},
        base | {"event": "attempt_started"},
        base | {"event": "attempt_failed", "verdict": {"summary": "Rank 1 hung."}},
        base | {"event": "stopping", "why": "SIGTERM"},
        base | {"event": "run_ended", "outcome": "stopped", "code": 143},
        base | {"event": "run_ended", "outcome": "failed", "code": 1},
    ]
    env = os.environ | {"WEBHOOK_URL": f"{address}/hook", "PING_URL": f"{address}/ping"}
    for event in events:
        words = [sys.executable, "-S", str(REPO / "examples" / "notify_webhook.py")]
        subprocess.run(words, input=json.dumps(event), text=True, env=env, check=True)

    assert [one[:2] for one in got] == [
        ("POST", "/hook"),
        ("GET", "/ping"),
        ("POST", "/hook"),
        ("POST", "/hook"),
        ("POST", "/hook"),
        ("GET", "/ping"),
        ("POST", "/hook"),
        ("GET", "/ping/fail"),
    ]
    assert json.loads(got[2][2])["text"] == "train on n: attempt 0 failed. Rank 1 hung."
