"""Storage and network: what drivers say, whose device it is, and what is noise."""

import pytest

from dsup.facts.kernel import Record, match
from dsup.facts.kernel_text import SavedLog


def records(*lines, apart_us=1000):
    """Give the lines of a log."""
    return [Record(n, n * apart_us, line) for n, line in enumerate(lines)]


def saved(line):
    """Return the faults of a saved log with one line."""
    log = SavedLog()
    log.take_all([line.encode()])
    return log.faults()


@pytest.mark.parametrize(
    ("line", "device"),
    [
        ("blk_update_request: I/O error, dev sdb, sector 41 op 0x0:(READ)", "sdb"),
        ("I/O error, dev nvme1n1, sector 41 op 0x1:(WRITE) flags 0x800", "nvme1n1"),
        ("end_request: I/O error, dev sda, sector 41", "sda"),
        ("print_req_error: critical target error, dev sda, sector 41", "sda"),
        ("blk_update_request: critical medium error, dev sdc, sector 41", "sdc"),
        ("Buffer I/O error on dev dm-3, logical block 9, async page read", "dm-3"),
        ("Buffer I/O error on device sda1, logical block 9", "sda1"),
        ("lost page write due to I/O error on sda1", "sda1"),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "sda1"),
        ("EXT4-fs (sda1): Delayed block allocation failed for inode 9", "sda1"),
        ("Aborting journal on device sda1-8.", "sda1-8"),
        ("JBD2: Detected IO errors while flushing file data on sda1-8", "sda1-8"),
        ('XFS (dm-0): metadata I/O error in "x+0x1/0x2" at daddr 0x1', "dm-0"),
        ("XFS (dm-0): log I/O error -5", "dm-0"),
        ("XFS (dm-0): I/O Error Detected. Shutting down filesystem", "dm-0"),
        ("BTRFS error (device sdb): bdev /dev/sdb errs: wr 1, rd 0", "sdb"),
        ("BTRFS warning (device sdb): csum failed root 5 ino 9", "sdb"),
        ("nvme nvme0: I/O 41 QID 3 timeout, aborting", "nvme0"),
        ("nvme nvme0: I/O tag 41 (9029) opcode 0x2 QID 3 timeout, reset", "nvme0"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff", "nvme0"),
        ("nvme nvme0: Disabling device after reset failure: -19", "nvme0"),
        ("nvme0n1: Read(0x2) @ LBA 4, 8 blocks, Unrecovered Read Error", "nvme0n1"),
        ("sd 0:0:1:0: [sdb] tag#7 FAILED Result: hostbyte=DID_OK", "sdb"),
        ("sd 0:0:1:0: [sdb] Add. Sense: Unrecovered read error", "sdb"),
        ("sd 0:0:1:0: rejecting I/O to offline device", ""),
        ("ata3.00: failed command: READ FPDMA QUEUED", "ata3"),
        ("md/raid1:md0: Disk failure on sdb1, disabling device.", "sdb1"),
        ("nfs: server filer.example not responding, still trying", "filer.example"),
        ("nfs: server filer not responding, timed out", "filer"),
        ("nvme nvme2: frozen state error detected, reset controller", "nvme2"),
        ("XFS (nbd0): Metadata corruption detected at xfs_dinode_verify+0x1", "nbd0"),
        ("BTRFS critical (device sdb): corrupt leaf: root=7 block=3 slot=16", "sdb"),
        ("BTRFS warning (device dm-0): direct IO failed ino 4 rw 0,0", "dm-0"),
        ("LNetError: 9:0:(o2iblnd_cb.c:3:f()) Timed out RDMA with 10.0.0.1@o2ib", ""),
        (
            "LNet: 9:0:(o2iblnd_cb.c:3:f()) Timed out tx for 10.0.0.1@o2ib: 4 seconds",
            "",
        ),
        ("LustreError: 11-0: fs-MDT0000-mdc-ffff: operation obd_ping failed", ""),
        ("Lustre: 9:0:(client.c:2:f()) @@@ Request sent has timed out for x", ""),
    ],
)
def test_storage_that_fails_is_named(line, device):
    """Each layer of the kernel has words of its own; none says whose read it was."""
    (fault,) = saved(line)

    assert (fault.kind, fault.device, fault.pid) == ("io_error", device, None)


def test_the_layers_tell_of_one_disk_as_one_fault():
    """Block layer, buffers and file system tell of the same failed write."""
    lines = (
        "blk_update_request: I/O error, dev nvme2n1, sector 41 op 0x1:(WRITE)",
        "Buffer I/O error on dev nvme2n1p3, logical block 9, lost sync page write",
        "Aborting journal on device nvme2n1p3-8.",
        (
            "EXT4-fs error (device nvme2n1p3): ext4_map_blocks:612: "
            "comm python: block out of range"
        ),
        "EXT4-fs (nvme2n1p3): Remounting filesystem read-only",
        "Buffer I/O error on dev sda1, logical block 9",
    )
    faults = match(records(*lines))

    assert [(f.device, f.comm) for f in faults] == [
        ("nvme2n1", "python"),
        ("sda1", None),
    ]


@pytest.mark.parametrize(
    ("line", "pci", "device"),
    [
        ("mlx5_core 0000:5c:00.0: health_care:1:(pid 9): health compromised", 1, ""),
        (("mlx5_core 0000:5c:00.1: mlx5_pcie_event:2:(pid 9): Detected insufficient"
         " power on the PCIe slot (27W)."), 1, ""),
        ("mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error", 1,
         ""),
        ("mlx5_core: Port module event[error]: module 0, Cable error", 0, ""),
        ("mlx5_port_module_event:1:(pid 0): Port module event[error]: x", 0, ""),
        ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue timed out", 0, "eth0"),
        ("mlx5_core 0000:5c:00.0 ens1f0np0: Link down", 1, "ens1f0np0"),
        ("mlx5_core 0000:5c:00.0 ens1f0np0: TX timeout detected", 1, "ens1f0np0"),
        (("mlx5_core 0000:5c:00.0: cmd_work:1:(pid 9): CREATE_QP(0x500) timeout. Will"
         " cause a leak of a command resource"), 1, ""),
        ("mlx5_5: Port: 1 Link DOWN", 0, "mlx5_5"),
        ("infiniband mlx5_0: dump_cqe:272:(pid 9): dump error cqe", 0, "mlx5_0"),
        ("infiniband rocep3s0: mlx5_poll_one:5:(pid 0): Requestor error cqe on cqn 1",
         0, "rocep3s0"),
        ("bnxt_en 0000:5c:00.0 eth2: NIC Link is Down", 1, "eth2"),
        ("vmxnet3 0000:5c:00.0 eth2: NIC Link is Down", 1, "eth2"),
        ("i40e 0000:5c:00.0: eth2: tx_timeout recovery level 1", 1, "eth2"),
        ("NETDEV WATCHDOG: ib0 (mlx5_core): transmit queue 3 timed out", 0, "ib0"),
        ("bond0: (slave eth2): link status definitely down, disabling slave", 0,
         "eth2"),
        ("bonding: bond0: link status definitely down for interface eth2, disabling it",
         0, "eth2"),
        (("r8125 0000:5c:00.0 eth4: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out"
         " 5010 ms"), 1, "eth4"),
        (("virtio_net virtio1 eth0: NETDEV WATCHDOG: CPU: 4: transmit queue 0 timed out"
         " 5 ms"), 0, "eth0"),
        ("mlx5_core 0000:5c:00.0: Link down", 1, ""),
        ("mlx4_core 0000:5c:00.0: Internal error detected:", 1, ""),
        ("mlx5_core 0000:5c:00.0: High temperature on sensors with bit set 1 0", 1, ""),
        ("mlx5_core 0000:5c:00.0: mlx5_eq_int:556:(pid 0): CQ error on CQN 0x40a", 1,
         ""),
        ("mlx5_core 0000:5c:00.0: mlx5_load_one failed with error code -22", 1, ""),
        ("mlx5_core: probe of 0000:5c:00.0 failed with error -22", 1, ""),
        ("e1000e 0000:5c:00.0 eth0: Detected Hardware Unit Hang:", 1, "eth0"),
        ("ib0: transmit timeout: latency 1988 msecs", 0, "ib0"),
    ],
)  # fmt: skip
def test_an_adapter_that_fails_is_named(line, pci, device):
    """The number in (pid 9) is the driver's own context, and no process to blame."""
    (fault,) = saved(line)

    assert (fault.kind, fault.device, fault.pid) == ("ib_link", device, None)
    assert fault.pci == ("0000:5c:00" if pci else None)


LOOK_ALIKES = """\
EXT4-fs (sda1): error count since last fsck: 12
ata1: SATA link down (SStatus 0 SControl 300)
IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready
nfs: server filer.example OK
nvme nvme0: 16/0/0 default/read/poll queues
nvme nvme0: Shutdown timeout set to 8 seconds
EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro
XFS (dm-0): Ending clean mount
sd 0:0:1:0: [sdb] Attached SCSI disk
Lustre: fs-OST0001: Connection restored to 10.0.0.1@tcp
mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:5:(pid 9): ACCESS_REG(0x805) failed, status x
mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged
mlx5_core 0000:5c:00.0: mlx5_pcie_event:3:(pid 9): PCIe slot advertised sufficient power
mlx5_core 0000:5c:00.0 ens1f0np0: Link up
mlx5_core 0000:5c:00.0: mlx5_cmd_check:7:(pid 9): RTR2RTS_QP(0x504) failed, status bad
bond0: link status down for interface eth2, disabling it in 200 ms
LNet: 2431:0:(o2iblnd_cb.c:3174:kiblnd_check_conns()) Skipped 24 previous messages
EXT4-fs warning (device md0): ext4_dx_add_entry:1: Directory (ino: 7) index full
nvme nvme0: Identify Descriptors failed (nsid=1, status=0xb)
operation not supported error, dev loop3, sector 7 op 0x9:(WRITE_ZEROES) flags 0x800
blk_update_request: critical target error, dev sdb, sector 7 op 0x3:(DISCARD) flags 0x0
blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1
Buffer I/O error on dev fd0, logical block 0, async page read
BTRFS info (device dm-1): bdev /dev/dm-1 errs: wr 29, rd 0, flush 0, corrupt 21, gen 0
mlx5_5: Port: 1 Link ACTIVE
IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready
OSError: [Errno 5] Input/output error: I/O error, dev sda, sector 9
""".splitlines()


@pytest.mark.parametrize("line", LOOK_ALIKES)
def test_what_only_looks_like_a_device_error_is_none(line):
    """What is well again, was never ill, or is a program's own word, is no fault."""
    assert match(records(line)) == []
