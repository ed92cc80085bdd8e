"""Tell a chat, a pager or a dead-man's switch how a run goes: a command for --on-event.

    export WEBHOOK_URL=https://chat.example.org/hooks/abc
    dsup launch --nproc 8 --on-event 'python examples/notify_webhook.py' train.py

dsup runs this for each event, with the event as JSON on standard input, and ends it
after 30 s. WEBHOOK_URL gets a POST with a ``text`` that people can read, as most chats
want it, and with the event itself. PING_URL, if it is set, gets a GET when the run
starts, restarts, ends well or is stopped as somebody wished, and one of PING_URL/fail
when it fails for good: a dead-man's switch (healthchecks.io, or your own) then says
that a run went silent, which nobody on a dead node can. Pause it after a run that ends:
it does not know that silence is right then.
"""

import json
import os
import sys
import urllib.request
from typing import Any

TIMEOUT_S = 10
QUIET = {"attempt_started"}
GOES_ON = {"run_started", "restarting"}
WANTED = {"succeeded", "stopped"}


def text_of(event: dict[str, Any]) -> str:
    """Return an event in a sentence."""
    who = f"{event['program']} on {event['node']}"
    match event["event"]:
        case "attempt_failed":
            verdict = event["verdict"] or {"summary": "There is no verdict on it."}
            return f"{who}: attempt {event['attempt']} failed. {verdict['summary']}"
        case "restarting":
            step = event["from_step"]
            where = "" if step is None else f" from step {step}"
            return f"{who}: restart {event['attempt']} in {event['in_s']:.0f} s{where}"
        case "hang_suspected":
            named = ", ".join(map(str, event["ranks"])) or "not known which"
            return f"{who}: seems to hang ({event['why']}), ranks: {named}"
        case "stopping":
            return f"{who}: stopping ({event['why']})"
        case "run_ended":
            return f"{who}: {event['outcome']}, exit code {event['code']}"
        case other:
            return f"{who}: {other.replace('_', ' ')}"


def send(url: str, data: bytes | None) -> None:
    """Send a POST, or a GET where there is nothing to send."""
    kind = {"Content-Type": "application/json"} if data else {}
    if not url.startswith(("http://", "https://")):
        sys.exit(f"{url!r} is no URL of the web")
    request = urllib.request.Request(url, data, kind)  # noqa: S310 (looked at)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 (looked at)
        pass


def main() -> None:
    """Read the event and tell those who are to know of it."""
    event = json.load(sys.stdin)
    webhook, ping = os.environ.get("WEBHOOK_URL"), os.environ.get("PING_URL")
    if webhook and event["event"] not in QUIET:
        told = {"text": text_of(event), "event": event}
        send(webhook, json.dumps(told).encode())
    ended = event["event"] == "run_ended"
    if ping and (ended or event["event"] in GOES_ON):
        bad = ended and event["outcome"] not in WANTED
        send(f"{ping}/fail" if bad else ping, None)


if __name__ == "__main__":
    main()
