"""A small agent for the scribe's tests: a single-threaded process that may fork.

It takes its orders as JSON lines on one descriptor and reports on another; its
descriptors 1 and 2 are the console under test. Ranks are shell commands.

    scribe_driver.py ORDERS_FD REPORTS_FD SPEED SETTINGS_JSON

SPEED makes its clock run faster, so that 5 s of silence pass sooner; an order may do so
later, when nobody is there any more who has to be as fast.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time

from dsup.core.output import Output, RankOutput, Route
from dsup.edges.scribe.link import Scribe
from dsup.edges.scribe.protocol import Settings, decode_tails


def as_settings(fields):
    """Return settings; in ``output``, ``ranks`` is one route for each rank."""
    output = dict(fields.pop("output", {}))
    routes = [Route(**route) for route in output.pop("ranks", [])]
    ranks = tuple(RankOutput(route, route) for route in routes)
    return Settings(**fields, output=Output(ranks, **output))


class Driver:
    """The loop of an agent, and orders that say what it does."""

    def __init__(self, orders_fd, reports_fd, speed, settings):
        self.orders_fd, self.reports_fd, self.speed = orders_fd, reports_fd, speed
        self.orders, self.ranks, self.ended, self.ahead_s = b"", {}, False, 0.0
        self.page = -1
        self.scribe = Scribe(as_settings(settings), self.now)
        self.epoll = select.epoll()
        self.epoll.register(self.scribe.fd, select.EPOLLIN)
        self.epoll.register(orders_fd, select.EPOLLIN)

    def now(self):
        """Return the time of the faster clock."""
        return time.monotonic() * self.speed + self.ahead_s

    def run(self):
        """Work until the scribe has ended."""
        while not self.ended:
            left_s = (self.scribe.deadline() - self.now()) / self.speed
            for fd, _ in self.epoll.poll(min(max(left_s, 0), 60)):
                if fd == self.scribe.fd:
                    self.report(self.scribe.on_ready())
                elif fd == self.orders_fd:
                    self.take_orders()
                else:
                    self.epoll.unregister(fd)
                    name = self.ranks.pop(fd)
                    ended = os.waitid(os.P_PIDFD, fd, os.WEXITED)
                    self.tell("exited", name, ended.si_status)
                    os.close(fd)
            if self.scribe.deadline() <= self.now():
                self.report(self.scribe.on_tick())

    def take_orders(self):
        """Do what the test wants."""
        *lines, self.orders = (self.orders + os.read(self.orders_fd, 1 << 20)).split(
            b"\n"
        )
        for line in lines:
            name, *args = json.loads(line)
            own = getattr(self, f"do_{name}", None)
            (own or getattr(self.scribe, name))(*args)
            if name == "start":
                self.tell("pid", self.scribe.pid)

    def do_rank(self, attempt, local_rank, command):
        """Start a rank, its output read by the scribe."""
        out, err = os.pipe(), os.pipe()
        rank = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdout=out[1],
            stderr=err[1],
            stdin=subprocess.DEVNULL,
            restore_signals=True,
        )
        os.close(out[1])
        os.close(err[1])
        self.scribe.open_streams(attempt, local_rank, out[0], err[0])
        pidfd = os.pidfd_open(rank.pid)
        rank.returncode = 0  # waited for by its pidfd
        self.ranks[pidfd] = f"{attempt}/{local_rank}"
        self.epoll.register(pidfd, select.EPOLLIN)
        self.tell("rank", f"{attempt}/{local_rank}", rank.pid)

    def do_kill_scribe(self, number):
        """Signal the scribe."""
        pid = self.scribe.pid
        assert pid, "there is none, and 0 would be everybody"
        os.kill(pid, number)

    def do_save_text(self, name, text, keep=False):
        """Save a page with some text."""
        fd = os.memfd_create("page")
        os.write(fd, text.encode())
        self.scribe.save(name, fd, keep=keep)
        os.close(fd)

    def do_page(self, attempt, text):
        """Have a page kept, and go on writing into it with ``do_write``."""
        self.page = os.memfd_create("page")
        self.do_write(text)
        self.scribe.keep_page(attempt, self.page)

    def do_write(self, text):
        """Write into the page, as a rank does."""
        os.pwrite(self.page, text.encode(), 0)

    def do_append_text(self, name, text):
        """Append to a file of the run directory."""
        self.scribe.append(name, text.encode())

    def do_journal_lines(self, start, count, pad):
        """Write numbered lines of a size to the journal."""
        for n in range(start, start + count):
            self.scribe.journal(json.dumps({"n": n, "pad": "x" * pad}))

    def do_fds(self):
        """Report how many descriptors this process has."""
        self.tell("fds", len(os.listdir("/proc/self/fd")))

    def do_hurry(self, speed):
        """Make the clock run faster from now on."""
        self.ahead_s += time.monotonic() * (self.speed - speed)
        self.speed = speed

    def do_pass(self, seconds):
        """Have that time pass at once."""
        self.ahead_s += seconds

    def do_die(self):
        """Die as an agent that is killed does."""
        os.kill(os.getpid(), signal.SIGKILL)

    def report(self, reports):
        """Pass on what is news."""
        for report in reports:
            if report.kind == "tails":
                data = os.pread(report.fd, 1 << 20, 0)
                os.close(report.fd)
                tails = decode_tails(data)
                told = [[*key, tail.decode()] for key, tail in sorted(tails.items())]
                self.tell("tails", report.attempt, told)
                continue
            self.tell(*report)
            if report.kind == "scribe_lost":
                self.tell("pid", self.scribe.pid)
            if report.kind == "scribe_ended":
                self.tell("unsaid", self.scribe.unsaid())
                self.ended = True

    def tell(self, kind, *rest):
        """Write a line to the test."""
        line = json.dumps([kind, *rest])
        os.write(self.reports_fd, line.encode() + b"\n")


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    orders_fd, reports_fd, speed = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    Driver(orders_fd, reports_fd, speed, json.loads(sys.argv[4])).run()
