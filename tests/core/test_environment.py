"""A rank's environment: torchrun's contract to the letter, and what dsup adds."""

import pytest

from dsup.core import environment
from dsup_runtime import contract

SHARED = environment.Shared(
    run_id="r1",
    run_dir="/runs/r1",
    attempt=3,
    world_size=2,
    max_restarts=5,
    port=29501,
    agent_store=False,
    tmp_dir="/scratch/dsup-abc",
    inductor_cache="/scratch/torchinductor_me",
    heartbeat="fd:7",
    notes_fd=8,
    agent_pid=4000,
    resume_from="",
    grace_s=25.0,
    comm_timeout_s=300.0,
    error_files=True,
)


def for_rank(base=None, rank=1, **changes):
    """Return the environment of rank 1 of 2, changed as told."""
    return environment.for_rank(base or {}, SHARED._replace(**changes), rank)


def test_torchruns_variables_are_there_to_the_letter():
    """A script finds what torchrun would have told it, name for name."""
    assert (
        for_rank().items()
        >= {
            "RANK": "1",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "default",
            "ROLE_RANK": "1",
            "ROLE_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29501",
            "TORCHELASTIC_RESTART_COUNT": "3",
            "TORCHELASTIC_MAX_RESTARTS": "5",
            "TORCHELASTIC_RUN_ID": "r1",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": "/runs/r1/attempt_3/1/error.json",
            "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "OMP_NUM_THREADS": "1",
        }.items()
    )


def test_dsups_own_variables():
    """What the runtime and the bootstrap need is there."""
    assert (
        for_rank(resume_from="/ckpt/step_7").items()
        >= {
            "DSUP_RUN_DIR": "/runs/r1",
            "DSUP_ATTEMPT": "3",
            "DSUP_HEARTBEAT": "fd:7#1",
            "DSUP_RESUME_FROM": "/ckpt/step_7",
            "DSUP_GRACE_S": "25",
            "DSUP_COMM_TIMEOUT_S": "300",
            "DSUP_NOTES": "fd:8",
            "DSUP_BOOTSTRAP": "4000",
            "TMPDIR": "/scratch/dsup-abc",
            "PYTHONPATH": contract.BOOTSTRAP_DIR,
        }.items()
    )


def test_nothing_else_is_set():
    """A new variable has to be named here."""
    ours = {name for name in for_rank() if not name.startswith(("DSUP_", "TORCH"))}

    assert ours == set(
        "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE "
        "ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS "
        "TMPDIR PYTHONPATH".split()
    )
    assert {name for name in for_rank() if name.startswith("TORCH_")} == {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        "TORCH_FR_BUFFER_SIZE",
        "TORCH_FR_DUMP_TEMP_FILE",
        "TORCH_NCCL_DUMP_ON_TIMEOUT",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
    }


@pytest.mark.parametrize(
    "name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID"]
)
def test_ambient_values_of_the_contract_are_overwritten(name):
    """What another launcher left behind does not reach the ranks."""
    assert for_rank({name: "stale"})[name] != "stale"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("TORCH_FR_BUFFER_SIZE", "2000"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"),
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/scratch/dsup-abc/nccl_pipe_1_"),
        ("TORCH_FR_DUMP_TEMP_FILE", "/runs/r1/attempt_3/nccl_trace_rank_"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "300"),
        ("TORCHINDUCTOR_CACHE_DIR", "/scratch/torchinductor_me"),
        ("OMP_NUM_THREADS", "1"),
    ],
)
def test_a_default_gives_way_to_the_users_value(name, value):
    """These are set only if they are unset; an empty value is the user's too."""
    assert for_rank()[name] == value
    assert for_rank({name: "mine"})[name] == "mine"
    assert for_rank({name: ""})[name] == ""


@pytest.mark.parametrize(
    ("limit_s", "for_torch", "ours"),
    [
        pytest.param(300.0, "300", "300", id="whole seconds"),
        pytest.param(1_200_000.0, "1200000", "1200000", id="two weeks"),
        pytest.param(0.5, "1", "0.5", id="less than one"),
        pytest.param(90.25, "91", "90.25", id="a fraction"),
    ],
)
def test_a_communication_timeout_is_a_number_that_torch_reads(limit_s, for_torch, ours):
    """Torch reads an integer as far as it is one: 1.2e+06 would be one second."""
    found = for_rank(comm_timeout_s=limit_s)

    assert found["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == for_torch
    assert found["DSUP_COMM_TIMEOUT_S"] == ours


@pytest.mark.parametrize(
    ("grace_s", "said"),
    [(25.0, "25"), (0.0, "0"), (0.5, "0.5"), (2.125, "2.125"), (1234567.0, "1234567")],
)
def test_the_grace_is_told_exactly(grace_s, said):
    """A number that is cut or has an exponent would be another one to the script."""
    assert for_rank(grace_s=grace_s)["DSUP_GRACE_S"] == said


def test_an_entry_without_a_name_is_not_passed_on():
    """The kernel allows ``=value`` in an environment, Python does not."""
    found = for_rank({"": "value", "KEPT": "1"})

    assert found["KEPT"] == "1"
    assert "" not in found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    ],
)
def test_a_users_old_name_is_respected(old, new):
    """The new name wins in torch, so it is not set beside the user's old one."""
    found = for_rank({old: "mine"})

    assert found[old] == "mine"
    assert new not in found


def test_a_users_old_and_new_names_are_both_kept():
    """Whoever sets both names gets both."""
    both = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "1", "TORCH_FR_BUFFER_SIZE": "2"}

    assert for_rank(both).items() >= both.items()


def test_one_rank_keeps_all_its_threads():
    """OMP_NUM_THREADS is set for several ranks only, as torchrun does."""
    assert "OMP_NUM_THREADS" not in for_rank(world_size=1, rank=0)


@pytest.mark.parametrize(
    "name",
    [
        "NOTIFY_SOCKET",
        "INVOCATION_ID",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
    ],
)
def test_a_services_variables_stay_with_the_agent(name):
    """A rank cannot speak to the service manager in the agent's name."""
    assert name not in for_rank({name: "1"})


@pytest.mark.parametrize(
    ("where", "token", "told"),
    [
        ("fd:3", "", None),
        ("file:/runs/r1/attempt_3/heartbeats", "", None),
        ("tcp:127.0.0.1:4711", "5ec3e7", "5ec3e7"),
    ],
)
def test_a_rank_is_told_where_its_heartbeats_go(where, token, told):
    """Each rank gets its own slot, and a token only where one is asked for."""
    outer = {contract.HEARTBEAT: "fd:3#0", contract.HEARTBEAT_TOKEN: "of a run around"}
    found = for_rank(outer, rank=1, heartbeat=where, heartbeat_token=token)

    assert found[contract.HEARTBEAT] == f"{where}#1"
    assert found.get(contract.HEARTBEAT_TOKEN) == told


@pytest.mark.parametrize("name", ["HOME", "CUDA_VISIBLE_DEVICES", "DSUP_FAULT", "LANG"])
def test_everything_else_is_inherited(name):
    """The rest of the environment reaches the ranks as it is."""
    assert for_rank({name: "as it was"})[name] == "as it was"


def test_the_bootstrap_is_told_to_leave_crashes_to_the_kernel():
    """With --no-faulthandler the bootstrap arms none."""
    assert for_rank(faulthandler=False)["DSUP_BOOTSTRAP"] == "4000:no-faulthandler"


def test_the_bootstrap_goes_before_the_users_path():
    """The bootstrap is first on PYTHONPATH, and the user's entries follow."""
    path = for_rank({"PYTHONPATH": "/a:/b"})["PYTHONPATH"]

    assert path == f"{contract.BOOTSTRAP_DIR}:/a:/b"


def test_inherited_timeouts_leave_torchs_own():
    """--comm-timeout inherit sets no limit, and says so with an empty value."""
    found = for_rank(comm_timeout_s=None)

    assert "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC" not in found
    assert found["DSUP_COMM_TIMEOUT_S"] == ""


def test_no_error_files_where_no_logs_are_kept():
    """With --log-dir /dev/null the variable is there and empty, as torchrun's is."""
    assert for_rank(error_files=False)["TORCHELASTIC_ERROR_FILE"] == ""


def test_a_hosted_store_is_told_as_torchrun_tells_it():
    """--store agent makes every rank a client."""
    assert for_rank(agent_store=True)["TORCHELASTIC_USE_AGENT_STORE"] == "True"


def test_ranks_do_not_share_what_is_theirs():
    """What one rank is told is its own; the launcher's environment stays as it was."""
    base = {"HOME": "/root"}
    first, second = for_rank(base, rank=0), for_rank(base, rank=1)
    differing = {name for name in first if first[name] != second[name]}
    first["HOME"] = "elsewhere"

    assert differing == set(
        "RANK LOCAL_RANK ROLE_RANK DSUP_HEARTBEAT TORCHELASTIC_ERROR_FILE "
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE".split()
    )
    assert (base, second["HOME"]) == ({"HOME": "/root"}, "/root")


def test_what_the_user_chose_of_torchruns_variables():
    """Role, address and signals are told as they were given."""
    choices = environment.Choices("trainer", "10.0.0.7", "SIGTERM,SIGUSR1")

    assert (
        for_rank(choices=choices).items()
        >= {
            "ROLE_NAME": "trainer",
            "MASTER_ADDR": "10.0.0.7",
            "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGUSR1",
            "LOCAL_RANK": "1",
        }.items()
    )


@pytest.mark.parametrize(
    ("base", "visible"),
    [
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, "5"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b "}, "GPU-b"),
        ({}, "1"),
        ({"HIP_VISIBLE_DEVICES": "4,5"}, "1"),
    ],
)
def test_a_virtual_local_rank_is_the_first_with_one_gpu(base, visible):
    """Torchrun's rule: CUDA's variable alone, which HIP reads within its own."""
    found = for_rank(base, choices=environment.Choices(virtual_local_rank=True))

    assert (found["LOCAL_RANK"], found["RANK"]) == ("0", "1")
    assert found["CUDA_VISIBLE_DEVICES"] == visible
    assert found.get("HIP_VISIBLE_DEVICES") == base.get("HIP_VISIBLE_DEVICES")
