"""Who launches a job again, as far as environment and cgroup tell."""

import pytest

from dsup.core.parentage import parent_of, script_of

SERVICE = "0::/system.slice/train@7.service"
PLAIN = {"script": "train.py", "module": False, "no_python": False, "run_path": False}


@pytest.mark.parametrize(
    ("environment", "cgroups", "parent"),
    [
        pytest.param({}, SERVICE, "unit train@7.service", id="a unit"),
        pytest.param({}, f"{SERVICE}/agent", "unit train@7.service", id="a part of it"),
        pytest.param(
            {},
            "0::/user.slice/user-7.slice/user@7.service/app.slice/t.service",
            "unit t.service",
            id="a user's unit",
        ),
        pytest.param(
            {}, "4:cpu:/x.service\n1:name=systemd:/t.service\n0::/", "unit t.service"
        ),
        pytest.param({}, "0::/user.slice/user-7.slice/session-3.scope", "", id="shell"),
        pytest.param({}, "0::/user.slice/user@7.service/init.scope", "", id="manager"),
        pytest.param({}, "0::/a.slice/user@7.service/app.slice", "", id="its slice"),
        pytest.param({}, "0::/term.service/spawned.scope", "", id="a terminal"),
        pytest.param({}, "", "", id="nothing told"),
        pytest.param({}, "0::/\ngarbage", "", id="a container"),
        pytest.param({"SLURM_JOB_ID": "17"}, SERVICE, "slurm job 17", id="Slurm"),
        pytest.param({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "", "pod n7", id="a pod"),
    ],
)
def test_the_parent_is_who_would_launch_again(environment, cgroups, parent):
    """A scheduler's job, a pod or a unit; a session in which people work is none."""
    assert parent_of(environment, cgroups, "n7") == parent


@pytest.mark.parametrize("name", ["INVOCATION_ID", "SLURM_RESTART_COUNT", "PWD"])
def test_what_changes_from_start_to_start_is_no_part_of_it(name):
    """A parent's name is the same at every start."""
    before, after = ({name: value} for value in "12")

    assert parent_of(before, SERVICE, "n7") == parent_of(after, SERVICE, "n7")


@pytest.mark.parametrize(
    ("changed", "script"),
    [
        ({}, "/srv/train.py"),
        ({"script": "../train.py"}, "/train.py"),
        ({"script": "/train.py"}, "/train.py"),
        ({"script": "pkg.train", "module": True}, "pkg.train"),
        ({"script": "sleep", "no_python": True}, "sleep"),
        ({"script": "./sleep", "no_python": True}, "/srv/sleep"),
        ({"module": True, "run_path": True}, "/srv/train.py"),
    ],
)
def test_a_script_has_one_name(changed, script):
    """A path is absolute, whatever it was called by; a name stays one."""
    assert script_of({**PLAIN, **changed}, "/srv") == script
