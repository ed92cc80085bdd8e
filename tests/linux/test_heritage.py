"""What a rank inherits: its OOM score, and no right that is the agent's alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from dsup.linux import heritage

MINE = Path("/proc/self/oom_score_adj")
# As systemd starts a service with User= and AmbientCapabilities=.
AMBIENT = (
    "--inh-caps=+{0} --ambient-caps=+{0} --reuid=65534 --regid=65534 --clear-groups"
)
SHOW = """
import subprocess
from dsup.linux import heritage
def rights(text):
    rows = (line.split(":") for line in text.splitlines() if line.startswith("Cap"))
    return {name: int(value, 16) for name, value in rows}
child = lambda: rights(subprocess.run(["cat", "/proc/self/status"],
                                      capture_output=True, text=True).stdout)
before = child()
with heritage.of_ranks(""):
    during = child()
mine = rights(open("/proc/self/status").read())
syslog, raw = 1 << 34, 1 << 13
print(before["CapEff"] == syslog | raw)
print([during[name] == raw for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")])
print(mine["CapEff"] == mine["CapPrm"] == syslog | raw)
"""


@pytest.mark.root
@pytest.mark.slow
def test_the_right_to_read_the_kernel_log_is_no_rank_s():
    """Not by any of the four sets; the agent keeps it; others go on to the ranks."""
    # The modules must be there for a user who may not read this interpreter's own.
    become = ["setpriv", *AMBIENT.format("syslog,+net_raw").split()]
    loaded = f"import sys; sys.path[:0] = {sys.path!r}\n"
    done = subprocess.run(
        [*become, sys.executable, "-c", loaded + SHOW],
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.stdout.split("\n")[:3] == [
        "True",
        "[True, True, True, True]",
        "True",
    ], done.stderr


@pytest.mark.parametrize(
    ("own", "wanted", "score"),
    [
        pytest.param(0, "", 10, id="a little more than the agent's"),
        pytest.param(-500, "", -490, id="the agent is kept: so are the ranks, almost"),
        pytest.param(200, "", 200, id="somebody gave all of them another chance"),
        pytest.param(-500, "500", 500, id="as was said"),
        pytest.param(0, "5000", 10, id="no number of that kind"),
        pytest.param(0, "1500", 10, id="neither is this"),
        pytest.param(300, "100", 300, id="less than the agent takes rights"),
        pytest.param(0, "a lot", 10, id="no number at all"),
        pytest.param(-500, "-100", -100, id="below 0"),
    ],
)
def test_whom_the_kernel_kills_first(own, wanted, score):
    """The ranks before the agent, which must tell of it."""
    assert heritage.score(own, wanted) == score


def test_the_agent_s_own_score_is_back_afterwards():
    """Whatever happened meanwhile; and a child that was born keeps the ranks'."""
    own, born = MINE.read_text(), []

    def start():
        with heritage.of_ranks("300"):
            child = subprocess.run(["cat", MINE], check=True, capture_output=True)
            born.append(int(child.stdout))
            raise OSError("no process")

    with pytest.raises(OSError, match="no process"):
        start()

    assert MINE.read_text() == own
    assert born == [max(300, int(own))]
