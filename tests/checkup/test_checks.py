"""What each check says of values that it is handed: thresholds, words and fixes."""

import pytest

from dsup.checkup.checks.catalogue import CHECKS
from dsup.checkup.checks.storage import SHM
from dsup.checkup.finding import Finding, exit_code, judged, verdict
from dsup.checkup.readings import (
    Asked,
    Cgroups,
    Clock,
    Driver,
    Gpus,
    Holders,
    Interpreter,
    KernelLog,
    Limits,
    Network,
    Readings,
    Space,
    System,
)
from dsup.facts.hardware import Card, Gpu
from dsup.facts.nvml import Reading

GIB = 1 << 30
MIB = 1 << 20
WELL = Space("/d", "/d", "ext4", 500 * GIB, 900 * GIB, 10**7, 3.0)
SHARED = Space(SHM, SHM, "tmpfs", 32 * GIB, 32 * GIB, 10**6)
READ = Readings(
    kernel_log=KernelLog("", ""),
    system=System(
        processors=64, memory_kb=1 << 30, available_kb=1 << 29, py_spy="/bin/py-spy"
    ),
    limits=Limits(nofile=1 << 20, tasks=100, nproc=1 << 20),
    cgroups=Cgroups("2", "/job", counted=True, divisible=True),
    clock=Clock(synchronised=True, error_us=900),
    spaces={"runs": WELL, SHM: SHARED},
    network=Network(interfaces=("lo", "eth0", "ib0")),
    driver=Driver(),
    holders=Holders(),
    gpus=Gpus(failed=-1),
)
CARDS = tuple(Card(Gpu(n, f"GPU-{n}", f"0000:{n}b:00", n, name="H100")) for n in (0, 1))
PORTS = {"mlx5_0/1": {"state": "ACTIVE"}, "mlx5_1/1": {"state": "DOWN"}}
LOCKED = KernelLog("cannot read the kernel log, because permission was denied (…)", "x")
DOCKER = READ.system._replace(container="Docker")


def said(check, readings):
    """Return state and text of what a check says."""
    found = judged(CHECKS, readings)
    return [(row.state, row.text) for row in found if row.check == check]


def env(**variables):
    """Return readings of a job with these variables, on two GPUs."""
    gpus = Gpus(CARDS)
    return READ._replace(asked=Asked(environment=variables, ranks=2), gpus=gpus)


def test_a_node_on_which_nothing_is_wrong_has_no_other_finding():
    """Every check that applies says ok."""
    assert {row.state for row in judged(CHECKS, READ)} == {"ok"}


@pytest.mark.parametrize(
    ("check", "readings", "state", "words"),
    [
        ("processors", READ._replace(asked=Asked(ranks=65)), "warn", "64 processors"),
        (
            "processors",
            READ._replace(system=READ.system._replace(quota=0.5)),
            "warn",
            "0.5 processors for 1 rank",
        ),
        (
            "memory",
            READ._replace(system=READ.system._replace(available_kb=1 << 24)),
            "warn",
            "16.0 GiB of 1024.0 GiB",
        ),
        ("clock", READ._replace(clock=Clock(synchronised=False)), "warn", "not synchr"),
        (
            "clock",
            READ._replace(clock=Clock(synchronised=False), system=DOCKER),
            "unknown",
            "container",
        ),
        ("clock", READ._replace(clock=None), "unknown", "does not tell"),
        (
            "nvml",
            READ._replace(driver=Driver(on_bus=8), gpus=Gpus(failed=9)),
            "bad",
            "no driver is loaded",
        ),
        (
            "nvml",
            READ._replace(driver=Driver(on_bus=8), system=DOCKER),
            "warn",
            "none is given to this container",
        ),
        ("nvml", READ._replace(driver=None), "unknown", "did not answer within 5 s"),
        (
            "driver-version",
            READ._replace(
                driver=Driver(present=True, version="550.54.15"),
                gpus=Gpus(CARDS, versions={"driver": "570.86.15"}),
            ),
            "warn",
            "the loaded driver is 550.54.15, its library 570.86.15",
        ),
        (
            "driver-version",
            READ._replace(
                gpus=Gpus(CARDS, versions={"cuda": "12.8"}),
                interpreter=Interpreter("3.12.1", "2.13.0", "13.0"),
            ),
            "warn",
            "torch is built for CUDA 13.0",
        ),
        (
            "gpu-memory",
            READ._replace(
                holders=Holders([(77, "cat", "D", [0])], stuck=[(77, 8.0, True)]),
                gpus=Gpus(CARDS),
            ),
            "bad",
            "cat (pid 77) holds /dev/nvidia0 and has not moved for 8 s, in NVIDIA's",
        ),
        (
            "fabric",
            READ._replace(driver=Driver(present=True, switches=4), gpus=Gpus(CARDS)),
            "bad",
            "no fabric manager",
        ),
        (
            "infiniband",
            READ._replace(network=Network(PORTS)),
            "warn",
            "1 of 2 ports are not active: mlx5_1/1 DOWN",
        ),
        (
            "infiniband",
            READ._replace(
                network=Network(PORTS), asked=Asked({"NCCL_IB_HCA": "mlx5_1:1"})
            ),
            "warn",
            "mlx5_1/1 DOWN",
        ),
        (
            "disk",
            READ._replace(
                asked=Asked(places={"checkpoints": "/nfs"}),
                spaces={"checkpoints": Space("/nfs", silent=True)},
            ),
            "bad",
            "the checkpoint directory /nfs did not answer within 10 s",
        ),
        (
            "disk",
            READ._replace(spaces={"runs": WELL._replace(free=4 * GIB)}),
            "warn",
            "4.0 GiB free",
        ),
        (
            "disk",
            READ._replace(spaces={"runs": WELL._replace(inodes=999)}),
            "bad",
            "999 inodes free",
        ),
        (
            "sync",
            READ._replace(spaces={"runs": WELL._replace(sync_ms=1200.4)}),
            "warn",
            "1 MiB is safe after 1200 ms",
        ),
        (
            "shared-memory",
            READ._replace(
                spaces={SHM: SHARED._replace(free=64 * MIB, total=64 * MIB)},
                system=DOCKER,
            ),
            "warn",
            "Docker's default",
        ),
        (
            "shared-memory",
            READ._replace(spaces={SHM: SHARED._replace(free=3 * MIB)}),
            "bad",
            "3 MiB of 32.0 GiB",
        ),
        (
            "memlock",
            READ._replace(
                limits=READ.limits._replace(memlock=65536), network=Network(PORTS)
            ),
            "warn",
            "64 KiB: InfiniBand may not pin",
        ),
        (
            "nofile",
            READ._replace(limits=READ.limits._replace(nofile=1024)),
            "warn",
            "1024 files",
        ),
        (
            "nproc",
            READ._replace(limits=READ.limits._replace(nproc=104)),
            "bad",
            "4 of 104",
        ),
        (
            "pids-max",
            READ._replace(
                cgroups=READ.cgroups._replace(pids_left=499, pids_max=512), gpus=None
            ),
            "warn",
            "499 of 512 tasks",
        ),
        (
            "core-dumps",
            READ._replace(
                limits=READ.limits._replace(core=None),
                system=READ.system._replace(core_pattern="core.%p"),
            ),
            "warn",
            "leaves its whole memory in core.%p",
        ),
        (
            "oom-score",
            READ._replace(system=READ.system._replace(oom_score_adj=-1000)),
            "warn",
            "may not kill",
        ),
        ("kernel-log", READ._replace(kernel_log=LOCKED), "warn", "permission"),
        (
            "kernel-log",
            READ._replace(kernel_log=LOCKED._replace(journal_error="")),
            "warn",
            "from the journal only",
        ),
        (
            "kernel-pids",
            READ._replace(system=READ.system._replace(initial_pids=False)),
            "warn",
            "not those of this PID namespace",
        ),
        (
            "oom-counters",
            READ._replace(cgroups=Cgroups("1", "/")),
            "warn",
            "not counted",
        ),
        (
            "rank-cgroups",
            READ._replace(cgroups=Cgroups("2", "/", why_not="/x may not be written")),
            "warn",
            "/x may not be written",
        ),
        (
            "stacks",
            READ._replace(system=READ.system._replace(ptrace_scope=1)),
            "warn",
            "only parents may look",
        ),
        (
            "stacks",
            READ._replace(system=READ.system._replace(py_spy="")),
            "warn",
            "not installed",
        ),
        (
            "pressure",
            READ._replace(system=READ.system._replace(pressure=False)),
            "warn",
            "no pressure",
        ),
        (
            "python",
            READ._replace(
                asked=Asked(python="/p"), interpreter=Interpreter(error="no such file")
            ),
            "bad",
            "/p does not run: no such file",
        ),
        ("visible-devices", env(CUDA_VISIBLE_DEVICES="0,0"), "bad", "twice"),
        ("visible-devices", env(CUDA_VISIBLE_DEVICES="0,7"), "bad", "entry 2 is no"),
        ("visible-devices", env(CUDA_VISIBLE_DEVICES="1"), "warn", "1 GPUs to 2"),
        ("visible-devices", env(CUDA_VISIBLE_DEVICES="0,1"), "ok", "2 of 2"),
        ("gpus-and-ranks", env()._replace(asked=Asked(ranks=4)), "warn", "4 ranks"),
        ("socket-interface", env(NCCL_SOCKET_IFNAME="eno"), "bad", "names no interf"),
        ("contradictions", env(NCCL_IB_TIMEOUT="600"), "warn", "is an exponent"),
        (
            "contradictions",
            env(NCCL_IB_DISABLE="1", NCCL_IB_HCA="mlx5"),
            "warn",
            "asks for InfiniBand",
        ),
        (
            "contradictions",
            env(NCCL_BLOCKING_WAIT="1", TORCH_NCCL_BLOCKING_WAIT="0"),
            "warn",
            "old name",
        ),
        (
            "contradictions",
            env(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="1"),
            "warn",
            "both on",
        ),
        ("debugging-left-on", env(CUDA_LAUNCH_BLOCKING="1"), "warn", "every kernel"),
        ("debugging-left-on", env(TORCH_DISTRIBUTED_DEBUG="DETAIL"), "warn", "DETAIL"),
        (
            "timeouts",
            env(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="60"),
            "warn",
            "less than the 600 s",
        ),
    ],
)
def test_what_is_not_well_is_said(check, readings, state, words):
    """A value on the wrong side of its threshold has its state, in words."""
    found = said(check, readings)

    assert [one[0] for one in found] == [state]
    assert words in found[0][1]


@pytest.mark.parametrize(
    ("check", "readings"),
    [
        ("socket-interface", env(NCCL_SOCKET_IFNAME="eth")),
        ("socket-interface", env(NCCL_SOCKET_IFNAME="=eth0,ib0")),
        ("socket-interface", env(NCCL_SOCKET_IFNAME="^docker0,lo")),
        ("debugging-left-on", env(CUDA_LAUNCH_BLOCKING="0", NCCL_DEBUG="INFO")),
        ("contradictions", env(NCCL_IB_TIMEOUT="22", NCCL_IB_DISABLE="0")),
        ("timeouts", env(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="600")),
        ("visible-devices", env()),
        ("oom-group", READ),
    ],
)
def test_what_is_in_order_is_passed_over(check, readings):
    """A variable that says what it should is no finding."""
    assert said(check, readings) == []


def test_who_may_pin_memory_needs_no_limit():
    """CAP_IPC_LOCK makes memlock void, with ports or without."""
    system = READ.system._replace(capabilities=1 << 14)
    limits = READ.limits._replace(memlock=65536)
    readings = READ._replace(system=system, limits=limits, network=Network(PORTS))

    assert said("memlock", readings)[0][0] == "ok"


def test_a_gpu_that_the_job_does_not_see_is_not_its_trouble():
    """One GPU of two is bad, and hidden; without the variable it counts."""
    bad = {
        1: Reading(values={"ecc_volatile": 3}),
        0: Reading(values={"ecc_volatile": 0}),
    }
    readings = env()._replace(gpus=Gpus(CARDS, readings=bad))
    hidden = readings._replace(asked=Asked({"CUDA_VISIBLE_DEVICES": "0"}, ranks=1))

    assert said("ecc", readings)[0][0] == "bad"
    assert said("ecc", hidden) == [("ok", "nothing on 1 GPU")]
    assert said("nvml", hidden) == [("ok", "2 GPUs, 1 for this job")]


def test_silence_is_unknown_and_no_verdict_on_the_node():
    """Where no reader has answered, as where none could be started, nothing is bad."""
    found = list(judged(CHECKS, Readings(spaces={"runs": None}, gpus=Gpus())))

    assert {row.check for row in found if row.state == "bad"} == set()
    assert "unknown" in {row.state for row in found}


@pytest.mark.parametrize(
    ("states", "code", "text"),
    [
        ({"Node": "ok"}, 0, "this node is fit"),
        (
            {"Node": "warn", "Limits": "unknown"},
            0,
            "this node is fit (1 to look at, 1 not known)",
        ),
        ({"The job": "bad"}, 2, "this node is fit, the job is not: The job"),
        (
            {"GPUs": "bad", "The job": "bad"},
            193,
            "this node is not fit: GPUs, The job",
        ),
    ],
)
def test_the_verdict_tells_a_bad_node_from_a_bad_job(states, code, text):
    """No other node cures what the job's own settings do."""
    found = [Finding(group, group, state, "", "") for group, state in states.items()]

    assert exit_code(found) == code
    assert verdict(found).text == text


def test_every_check_has_a_name_of_its_own_and_says_what_it_rests_on():
    """A name leads to a section of the runbook, a docstring to source and threshold."""
    names = [check.name for check in CHECKS]

    assert len(set(names)) == len(names)
    assert all(check.judge.__doc__ for check in CHECKS)
