"""The unit of a user's own manager, without root."""

import os
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.systemd]

UNIT = Path(__file__).parents[2] / "systemd/user/dsup@.service"
USER = "dsup"
HOME = "/run/home"
RUNTIME = "/run/of-the-user"
# What the interpreter of a test may need to be read by this user.
RIGHT = "CAP_DAC_READ_SEARCH"
MANAGER = f"""
[Unit]
DefaultDependencies=no
[Service]
Type=notify
User={USER}
Delegate=yes
AmbientCapabilities={RIGHT}
Environment=HOME={HOME} XDG_RUNTIME_DIR={RUNTIME} SYSTEMD_UNIT_PATH={HOME}/units
ExecStart=/lib/systemd/systemd --user --unit=default.target
KillMode=mixed
"""
TARGET = "[Unit]\nDescription=a target\nDefaultDependencies=no\n"
SCRIPT = """
import os, pathlib, signal, subprocess
here = pathlib.Path(os.environ["HERE"])
helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
(here / f"began.{os.environ['RANK']}").write_text(f"{os.getpid()} {helper.pid}")
signal.pause()
"""


class Session:
    """A user's own manager inside the booted one."""

    def __init__(self, manager):
        self.manager = manager
        self.home = manager.inside(HOME)
        inside = manager.run("id", "-u", USER), manager.run("id", "-g", USER)
        self.ids = tuple(map(int, inside))
        for path in (HOME, f"{HOME}/units", f"{HOME}/.config/dsup", RUNTIME):
            manager.inside(path).mkdir(parents=True, exist_ok=True)
        for target in ("default", "basic", "shutdown", "exit"):
            (self.home / f"units/{target}.target").write_text(TARGET)
        shutil.copy(UNIT, self.home / "units")
        drop_in = self.home / "units/dsup@.service.d/test.conf"
        drop_in.parent.mkdir(exist_ok=True)
        drop_in.write_text(f"[Service]\nAmbientCapabilities={RIGHT}\n")
        manager.inside("/run/systemd/system/of-user.service").write_text(MANAGER)

    def start(self):
        """Boot it."""
        paths = HOME, f"{HOME}/units", f"{HOME}/.config", f"{HOME}/.config/dsup"
        for path in (*paths, RUNTIME):
            os.chown(self.manager.inside(path), *self.ids)
        self.manager.run("systemctl", "daemon-reload")
        self.manager.run("systemctl", "start", "of-user.service")

    def run(self, *command):
        """Run a command of the user's."""
        user, group = self.ids
        become = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        where = ["env", f"XDG_RUNTIME_DIR={RUNTIME}", f"HOME={HOME}"]
        return self.manager.run(*become, *where, *command)

    def told(self):
        """Return what was said."""
        return self.manager.run("journalctl", "--no-pager", "-q", "-n", "60")

    def stop(self):
        """End it, and all that it runs."""
        self.manager.run("systemctl", "kill", "--signal=KILL", "of-user.service")
        self.manager.run("systemctl", "stop", "of-user.service")


@pytest.fixture
def session(manager):
    """Give a user's manager; nothing of it outlives the test."""
    made = Session(manager)
    yield made
    made.stop()


def test_a_user_runs_it_without_root(session, service):
    """Started by the user's manager: ready, a cgroup a rank, stopped, nothing left."""
    name = "dsup@mine.service"
    service.configure("nproc = 2\nshutdown-timeout = 60\n", script=SCRIPT)
    service.directory.chmod(0o777)
    for kind in ("env", "toml"):
        shutil.copy(
            session.manager.inside(f"/etc/dsup/{service.instance}.{kind}"),
            session.home / f".config/dsup/mine.{kind}",
        )
    session.start()
    session.run("systemctl", "--user", "start", name)
    service.until(lambda: len(service.files("began.*")) == 2, session.told)
    shown = ("show", "--value", "--property=ActiveState,ControlGroup", name)
    state, cgroup = sorted(session.run("systemctl", "--user", *shown).split())[::-1]
    top = session.manager.inside(f"/sys/fs/cgroup{cgroup}")

    assert state == "active"
    for rank in (0, 1):
        place = f"{cgroup}/rank_{rank}"
        service.until(lambda p=place: len(session.manager.members(p)) == 2)
    session.run("systemctl", "--user", "stop", name)
    service.until(lambda: not top.exists(), session.told)
