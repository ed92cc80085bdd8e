"""What is ordinary is not bad: a wrong word takes a good node out of use."""

import pytest

from dsup.checkup.checks.catalogue import CHECKS
from dsup.checkup.checks.storage import SHM
from dsup.checkup.finding import exit_code, judged
from dsup.checkup.readings import (
    Asked,
    Driver,
    Gpus,
    Holders,
    Interpreter,
    Limits,
    Network,
    Readings,
    Space,
    System,
)
from dsup.facts.hardware import Card, Gpu, Slice
from dsup.facts.nvml import Reading

MIB, GIB = 1 << 20, 1 << 30
WELL = Space("/d", "/d", "ext4", 500 * GIB, 900 * GIB, 10**7, 3.0)
SHARED = Space(SHM, SHM, "tmpfs", 32 * GIB, 32 * GIB, 10**6)
READ = Readings(
    system=System(processors=64),
    limits=Limits(nofile=1 << 20, tasks=100, nproc=1 << 20),
    spaces={"runs": WELL, SHM: SHARED},
    network=Network(interfaces=("lo", "eth0", "ib0")),
    driver=Driver(),
    holders=Holders(),
    gpus=Gpus(failed=-1),
)
CARDS = tuple(Card(Gpu(n, f"GPU-{n}", f"0000:{n}b:00", n, name="H100")) for n in (0, 1))
DOCKER = System(container="Docker")

DOWN = Network({"a_0/1": {"state": "DOWN"}, "a_1/1": {"state": "DOWN"}})
MIXED = Network({"a_0/1": {"state": "ACTIVE"}, "a_1/1": {"state": "DOWN"}})
WAITS = [(77, "python3", "D", [0])]
GPUS = READ._replace(driver=Driver(present=True), gpus=Gpus(CARDS))
SWITCHED = GPUS._replace(driver=Driver(present=True, switches=4))
LOCKED = READ._replace(limits=READ.limits._replace(memlock=65536), network=MIXED)


def wants(readings=READ, **variables):
    """Return readings of a job with these variables."""
    return readings._replace(asked=Asked(environment=variables))


def env(**variables):
    """Return readings of a job with these variables and two ranks, on two GPUs."""
    return GPUS._replace(asked=Asked(environment=variables, ranks=2))


def said(check, readings):
    """Return state and text of what a check says."""
    found = judged(CHECKS, readings)
    return [(row.state, row.text) for row in found if row.check == check]


def links(*rows):
    """Return two GPUs, each with NVLinks that are up or not."""
    readings = {
        number: Reading(values={f"link{n}_up": up for n, up in enumerate(row)})
        for number, row in enumerate(rows)
    }
    return Gpus(CARDS, readings)


def told(**values):
    """Return a GPU that tells these values, beside one that tells nothing."""
    return GPUS._replace(gpus=Gpus(CARDS, {0: Reading(values=values)}))


@pytest.mark.parametrize(
    ("check", "readings", "states"),
    [
        ("gpu-memory", GPUS._replace(holders=Holders(WAITS)), []),
        (
            "gpu-memory",
            GPUS._replace(holders=Holders(WAITS, stuck=[(77, 8.0, False)])),
            ["warn"],
        ),
        (
            "gpu-memory",
            wants(
                GPUS._replace(holders=Holders(WAITS, stuck=[(77, 8.0, True)])),
                CUDA_VISIBLE_DEVICES="1",
            ),
            [],
        ),
        ("infiniband", READ._replace(network=DOWN), ["warn"]),
        ("infiniband", wants(READ._replace(network=DOWN), NCCL_IB_DISABLE="1"), ["ok"]),
        ("infiniband", wants(READ._replace(network=DOWN), NCCL_NET="Socket"), ["ok"]),
        ("infiniband", wants(READ._replace(network=MIXED), NCCL_IB_HCA="=a_0"), ["ok"]),
        (
            "infiniband",
            wants(READ._replace(network=MIXED), NCCL_IB_HCA="^=a_1:1"),
            ["ok"],
        ),
        ("infiniband", wants(READ._replace(network=MIXED), NCCL_IB_HCA="^a"), ["warn"]),
        ("memlock", LOCKED, ["warn"]),
        ("memlock", wants(LOCKED, NCCL_IB_DISABLE="1"), ["ok"]),
        ("nvlink", GPUS._replace(gpus=links((1, 1, 0, 0), (0, 0, 0, 0))), ["ok"]),
        ("nvlink", GPUS._replace(gpus=links((1, 1), (1, 0))), ["warn"]),
        ("nvlink", SWITCHED._replace(gpus=links((1, 1), (0, 0))), ["warn"]),
        ("fabric", SWITCHED, ["bad"]),
        (
            "fabric",
            SWITCHED._replace(driver=SWITCHED.driver._replace(all_seen=False)),
            ["unknown"],
        ),
        (
            "fabric",
            SWITCHED._replace(
                gpus=Gpus([CARDS[0]._replace(slices=(Slice("MIG-1"),)), CARDS[1]])
            ),
            ["unknown"],
        ),
        ("ecc", told(ecc_volatile=1, recovery=0), ["warn"]),
        ("ecc", told(ecc_volatile=1), ["bad"]),
        (
            "gpu-lost",
            GPUS._replace(gpus=Gpus(CARDS, {0: Reading({"a": 1}, {"b": 999})})),
            ["warn"],
        ),
        ("pcie-width", told(pcie_width=8, pcie_width_max=16), ["warn"]),
        ("nvml", READ._replace(gpus=Gpus(why_not="it has died")), ["unknown"]),
        ("nvml", GPUS._replace(gpus=Gpus(CARDS, why_not="it has died")), ["warn"]),
        (
            "nvml",
            GPUS._replace(gpus=Gpus(CARDS, why_not="no answer", hung=True)),
            ["bad"],
        ),
        (
            "nvml",
            READ._replace(gpus=Gpus(why_not="no answer", hung=True)),
            ["unknown"],
        ),
        ("nvml", READ._replace(driver=Driver(on_bus=1)), ["warn"]),
        (
            "nvml",
            wants(
                READ._replace(driver=Driver(on_bus=1), gpus=Gpus(failed=9)),
                CUDA_VISIBLE_DEVICES="",
            ),
            ["warn"],
        ),
        (
            "sync",
            READ._replace(spaces={"runs": WELL._replace(sync_ms=4900.0)}),
            ["warn"],
        ),
        (
            "sync",
            READ._replace(spaces={"runs": WELL._replace(sync_ms=None, syncing=True)}),
            ["warn"],
        ),
        ("disk", READ._replace(spaces={"runs": None}), ["unknown"]),
        ("disk", READ._replace(spaces={"runs": WELL._replace(free=None)}), ["unknown"]),
        (
            "disk",
            READ._replace(
                spaces={"runs": WELL._replace(error="too many", whose="nobody")}
            ),
            ["unknown"],
        ),
        (
            "disk",
            READ._replace(
                spaces={"TMPDIR": WELL._replace(free=60 * MIB, total=64 * MIB)}
            ),
            ["warn"],
        ),
        (
            "disk",
            READ._replace(
                spaces={"TMPDIR": WELL._replace(inodes=900, inodes_total=1000)}
            ),
            ["warn"],
        ),
        (
            "shared-memory",
            READ._replace(spaces={SHM: SHARED._replace(free=0, total=MIB)}),
            ["warn"],
        ),
        (
            "shared-memory",
            READ._replace(spaces={SHM: Space(SHM, free=None)}),
            ["unknown"],
        ),
        ("nproc", READ._replace(limits=READ.limits._replace(nproc=140)), ["warn"]),
        (
            "python",
            READ._replace(
                asked=Asked(python="/p"), interpreter=Interpreter(unclear="slow")
            ),
            ["warn"],
        ),
        ("python", READ._replace(asked=Asked(python="/p")), ["unknown"]),
        ("visible-devices", env(CUDA_VISIBLE_DEVICES="0,1,"), ["ok"]),
        ("visible-devices", env(CUDA_VISIBLE_DEVICES="0,1,-1"), ["ok"]),
        ("visible-devices", env(CUDA_VISIBLE_DEVICES="-1"), ["warn"]),
        ("socket-interface", wants(NCCL_SOCKET_IFNAME="ib7"), ["warn"]),
        ("socket-interface", env(NCCL_SOCKET_IFNAME="eth0:1"), []),
    ],
)
def test_what_is_ordinary_is_not_bad(check, readings, states):
    """Where it may be a fault and may be none, it is to be looked at, or not known."""
    assert [state for state, _ in said(check, readings)] == states


@pytest.mark.parametrize(
    ("readings", "check"),
    [
        (
            READ._replace(
                asked=Asked(python="/p"), interpreter=Interpreter(error="no such file")
            ),
            "python",
        ),
        (
            READ._replace(
                spaces={
                    "runs": WELL._replace(error="permission denied", whose="job"),
                }
            ),
            "disk",
        ),
        (
            READ._replace(
                spaces={"runs": WELL._replace(kind="nfs4", free=0, total=GIB)}
            ),
            "disk",
        ),
        (
            GPUS._replace(gpus=Gpus(failed=18), system=DOCKER),
            "nvml",
        ),
    ],
)
def test_what_another_node_would_not_cure_is_the_jobs(readings, check):
    """A wrong path, a full disk that all nodes share, a container's library: code 2."""
    found = list(judged(CHECKS, readings))

    assert [(f.check, f.group) for f in found if f.state == "bad"] == [
        (check, "The job")
    ]
    assert exit_code(found) == 2


def test_a_job_that_hides_all_gpus_does_not_suffer_from_them():
    """Nothing of a GPU is judged for a job without GPUs."""
    bad = {0: Reading(values={"remap_failure": 1}), 1: Reading()}
    readings = wants(GPUS._replace(gpus=Gpus(CARDS, bad)), CUDA_VISIBLE_DEVICES="")

    assert {state for state, _ in said("row-remap", readings)} == set()
    assert said("row-remap", wants(readings))[0][0] == "bad"
