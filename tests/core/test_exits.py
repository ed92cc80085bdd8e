"""The exit table row by row, with the numbers an operator relies on."""

import pytest

from dsup.core import errors, exits

USER, STOP, INFRASTRUCTURE = "user", "stop", "infrastructure"
# cause, family, and the exit code after status 3, 0, 70, 200 and -9 (SIGKILL).
TABLE = [
    ("python_exception", USER, 3, 1, 1, 1, 1),
    ("import_error", USER, 3, 1, 1, 1, 1),
    ("config_error", USER, 3, 1, 1, 1, 1),
    ("checkpoint_error", USER, 3, 1, 1, 1, 1),
    ("cuda_oom", USER, 3, 1, 1, 1, 1),
    ("device_assert", USER, 3, 1, 1, 1, 1),
    ("collective_mismatch", USER, 3, 1, 1, 1, 1),
    ("early_exit", USER, 3, 1, 1, 1, 1),
    ("numeric_divergence", USER, 3, 1, 1, 1, 1),
    ("disk_full", USER, 3, 1, 1, 1, 1),
    ("spawn_error", USER, 3, 1, 1, 1, 1),
    ("preempted", STOP, 143, 143, 143, 143, 143),
    ("time_limit", STOP, 143, 143, 143, 143, 143),
    ("user_interrupt", STOP, 130, 130, 130, 130, 130),
    ("host_oom", INFRASTRUCTURE, 137, 137, 137, 137, 137),
    ("segfault", INFRASTRUCTURE, 139, 139, 139, 139, 137),
    ("sigbus", INFRASTRUCTURE, 135, 135, 135, 135, 137),
    ("abort", INFRASTRUCTURE, 134, 134, 134, 134, 137),
    ("killed", INFRASTRUCTURE, 137, 137, 137, 137, 137),
    ("agent_killed", INFRASTRUCTURE, 137, 137, 137, 137, 137),
    ("cuda_error", INFRASTRUCTURE, 193, 193, 193, 193, 137),
    ("dataloader_worker", INFRASTRUCTURE, 193, 193, 193, 193, 137),
    ("unknown", INFRASTRUCTURE, 195, 195, 195, 195, 137),
    ("pids_limit", INFRASTRUCTURE, 193, 193, 193, 193, 193),
    ("gpu_hardware", INFRASTRUCTURE, 193, 193, 193, 193, 193),
    ("unkillable", INFRASTRUCTURE, 193, 193, 193, 193, 193),
    ("node_rebooted", INFRASTRUCTURE, 193, 193, 193, 193, 193),
    ("hang", INFRASTRUCTURE, 194, 194, 194, 194, 194),
    ("nccl_network", INFRASTRUCTURE, 195, 195, 195, 195, 195),
    ("storage_io", INFRASTRUCTURE, 195, 195, 195, 195, 195),
    ("port_in_use", INFRASTRUCTURE, 195, 195, 195, 195, 195),
    ("store_lost", INFRASTRUCTURE, 195, 195, 195, 195, 195),
    ("node_lost", INFRASTRUCTURE, 195, 195, 195, 195, 195),
]


def test_the_table_names_every_cause_once():
    """A cause without a row here has no agreed exit code."""
    assert sorted(row[0] for row in TABLE) == sorted(exits.CAUSES)


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_a_cause_has_its_family_and_codes(row):
    """Each cause gives the codes of its row, whatever the first rank's status was."""
    cause, family, *codes = row

    assert exits.CAUSES[cause].family == family
    assert [exits.exit_code(cause, s) for s in (3, 0, 70, 200, -9)] == codes


@pytest.mark.parametrize(
    ("status", "code"),
    [(1, 1), (2, 2), (69, 69), (71, 71), (126, 126), (127, 127), (128, 1), (255, 1)],
)
def test_the_ranks_own_code_is_kept_below_128(status, code):
    """A script's own code is passed on unless it means something else here."""
    assert exits.exit_code("python_exception", status) == code


@pytest.mark.parametrize("cause", sorted(exits.CAUSES))
def test_below_128_is_permanent_from_128_another_try(cause):
    """A scheduler can go by the number alone: user causes stay below 128."""
    statuses = (0, 1, 70, 127, 128, 195, 255, -1, -9, -15, -64)
    codes = {status: exits.exit_code(cause, status) for status in statuses}
    of_the_user = exits.CAUSES[cause].family == "user"

    assert all((code < 128) is of_the_user for code in codes.values()), codes


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (1, "python_exception"),
        (255, "python_exception"),
        (0, "python_exception"),
        (-9, "killed"),
        (-6, "killed"),
    ],
)
def test_until_a_judge_answers_the_wait_status_names_the_cause(status, cause):
    """An exit status is an exception, a signal is a kill."""
    assert exits.provisional_cause(status) == cause


@pytest.mark.parametrize(
    ("status", "decisive"),
    [
        pytest.param(-9, True, id="SIGKILL"),
        pytest.param(-11, True, id="SIGSEGV"),
        pytest.param(-7, True, id="SIGBUS"),
        pytest.param(-4, True, id="SIGILL"),
        pytest.param(-8, True, id="SIGFPE"),
        pytest.param(-6, False, id="SIGABRT"),
        pytest.param(-15, False, id="SIGTERM"),
        pytest.param(9, False, id="exit code 9"),
        pytest.param(1, False, id="exit code 1"),
        pytest.param(0, False, id="exit code 0"),
    ],
)
def test_which_deaths_are_decisive(status, decisive):
    """Only a fatal signal that no peer's end can bring about is decisive."""
    assert exits.is_decisive(status) is decisive


@pytest.mark.parametrize(
    ("signum", "name"),
    [
        (1, "SIGHUP"),
        (6, "SIGABRT"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (15, "SIGTERM"),
        (31, "SIGSYS"),
        (32, "signal 32"),
        (40, "signal 40"),
        (0, "signal 0"),
    ],
)
def test_signals_have_their_names(signum, name):
    """A signal is called what kill -l calls it; a real-time signal has a number."""
    assert exits.signal_name(signum) == name


@pytest.mark.parametrize(
    ("signum", "code"), [(1, 129), (2, 130), (3, 131), (9, 137), (15, 143)]
)
def test_a_stop_has_the_code_of_its_signal(signum, code):
    """A stopped run exits as a shell would report that signal."""
    assert exits.stop_code(signum) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(errors.DsupError("x"), 70, id="a bug"),
        pytest.param(errors.SpecError("x"), 2, id="a wrong call"),
        pytest.param(errors.SpawnError("x"), 126, id="cannot be executed"),
        pytest.param(errors.SpawnError("x", 127), 127, id="is not there"),
        pytest.param(errors.JournalError("x"), 2, id="a journal"),
    ],
)
def test_an_error_knows_its_exit_code(error, code):
    """What dsup raises says with which code it ends."""
    assert (error.exit_code, str(error)) == (code, "x")
