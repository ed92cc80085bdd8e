"""Network ports: what changed in sysfs, and which change breaks connections."""

import pytest

from dsup.edges import ports


@pytest.fixture
def sysfs(tmp_path):
    """Give ``sysfs(port, name=value, …)``, which writes files of mlx5_0's ports."""

    def write(port, **files):
        directory = tmp_path / f"sys/class/infiniband/mlx5_0/ports/{port}"
        for name, value in files.items():
            path = directory / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        return str(tmp_path)

    return write


def seen(root):
    """Return what an aide tells."""
    return ports.decode(ports.read(root))


def told(before, after):
    """Return changes in short."""
    return [
        (one.port, one.what, one.before, one.after, one.bad)
        for one in ports.changes(before, after)
    ]


def test_a_port_that_went_down_is_bad(sysfs):
    """The kernel may have printed nothing of it."""
    root = sysfs(1, state="4: ACTIVE", phys_state="5: LinkUp", counters__link_downed=0)
    before = seen(root)
    sysfs(1, state="1: DOWN", phys_state="2: Polling", counters__link_downed=1)

    assert told(before, seen(root)) == [
        (1, "state", "ACTIVE", "DOWN", True),
        (1, "phys_state", "LinkUp", "Polling", True),
        (1, "link_downed", "0", "1", True),
    ]


def test_a_port_that_went_down_and_came_back_is_bad(sysfs):
    """Its counter remembers."""
    root = sysfs(1, state="4: ACTIVE", counters__link_downed=3)
    before = seen(root)
    sysfs(1, counters__link_downed=4)

    assert told(before, seen(root)) == [(1, "link_downed", "3", "4", True)]


def test_a_device_that_is_gone_is_bad(sysfs, tmp_path):
    """Its driver has unloaded it."""
    before = seen(sysfs(1, state="4: ACTIVE"))

    assert told(before, seen(str(tmp_path / "sys"))) == [
        (1, "state", "ACTIVE", "gone", True)
    ]


def test_errors_on_a_port_that_stays_up_are_told_and_not_bad(sysfs):
    """Symbol errors and retries cost time; only the last one breaks a connection."""
    root = sysfs(2, counters__symbol_error=0, hw_counters__packet_seq_err=5)
    before = seen(root)
    sysfs(2, counters__symbol_error=9, hw_counters__packet_seq_err=6)

    assert told(before, seen(root)) == [
        (2, "symbol_error", "0", "9", False),
        (2, "packet_seq_err", "5", "6", False),
    ]


def test_a_port_that_never_was_up_and_counters_set_to_zero_are_no_change(sysfs):
    """An empty cage coming up, or someone's perfquery -R, ends nothing."""
    root = sysfs(1, state="1: DOWN", counters__symbol_error=5)
    before = seen(root)
    sysfs(1, state="4: ACTIVE", counters__symbol_error=0)

    assert told(before, seen(root)) == [(1, "state", "DOWN", "ACTIVE", False)]


def test_without_ports_nothing_is_read(tmp_path):
    """A node without such adapters has no answer to compare."""
    assert not ports.are_there(str(tmp_path))
    assert seen(str(tmp_path)) == {}


def test_what_is_not_known_is_no_change(sysfs):
    """An aide that hung has told nothing."""
    root = sysfs(1, state="4: ACTIVE")

    assert ports.changes(ports.decode(b""), seen(root)) == ()
    assert ports.changes(seen(root), None) == ()


def test_odd_values_are_safe_to_show(sysfs):
    """A file of any length with any bytes gives a short printable value."""
    root = sysfs(1, state="4: A\x1b[31m" + "x" * 500, counters__link_downed="²")
    before = seen(root)
    sysfs(1, counters__link_downed="³")

    assert told(before, seen(root)) == []
    assert before is not None
    assert len(before["mlx5_0/1"]["state"]) < 50
    assert "\x1b" not in before["mlx5_0/1"]["state"]
