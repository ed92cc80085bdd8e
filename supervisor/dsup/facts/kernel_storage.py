"""What block devices and file systems say: reads and writes that came to nothing.

A process sees such an error as EIO, as SIGBUS, or as a call that does not return. What
is told is the device's trouble, not whose read it was; ext4 names the task that it ran
for, which may be a kernel thread.

Source: Linux block/blk-core.c, fs/buffer.c, fs/{ext4,jbd2,xfs,btrfs,nfs}, drivers/nvme,
drivers/scsi, drivers/ata, drivers/md, net/sunrpc, net/ceph; Lustre.
"""

from __future__ import annotations

import re
from typing import Final

from dsup.facts.hardware import pci_address
from dsup.facts.kernel import Record, told
from dsup.facts.kernel_groups import Key, Said

_DEV = r"(?P<device>[\w.!/-]{1,64})"
_BDF = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]"

_BROKEN = r"(?:rror|ail|orrupt|nvalid|[Bb]ad |bort)"
"""Words of the warnings that tell of more than of a full directory, or of a wish."""

_BLOCKS: Final = (
    (
        r"(?:blk_update_request: |end_request: |print_req_error: )?"
        r"(?:I/O|critical [a-z]{1,12}(?: [a-z]{1,12})?|recoverable transport"
        r"|protection|operation not supported|(?:[a-z]{1,20} )?timeout)"
        rf" error, dev {_DEV}, sector "
    ),
    (
        r"(?:Buffer I/O error on|lost page write due to I/O error on) "
        rf"(?:dev(?:ice)? )?{_DEV}"
    ),
    r"(?:Read|Write)-error on swap-device ",
)
"""Example: ``blk_update_request: critical medium error, dev sda, sector 41 op …``."""

_FILE_SYSTEMS: Final = (
    (
        rf"EXT[234]-fs (?:error|warning(?=[^\n]{{0,400}}{_BROKEN})) "
        rf"\(device {_DEV}\)(?: in |: )(?P<rest>.{{0,300}})"
    ),
    (
        rf"EXT[234]-fs \({_DEV}\): (?:Remounting filesystem read-only"
        r"|(?:previous )?I/O error|error(?! count since)"
        r"|Delayed block allocation failed"
        r"|failed to convert unwritten)"
    ),
    rf"Aborting journal on device {_DEV}",
    (
        r"JBD2?: (?:Detected (?:aborted journal|IO errors)[^\n]{0,60}? on"
        rf"|I/O error [^\n]{{0,60}}? for|Error [^\n]{{0,80}}? on) {_DEV}"
    ),
    (
        rf"XFS(?: \({_DEV}\))?: (?:metadata I/O error|log I/O error|I/O [Ee]rror"
        r"|[^\n]{0,120}[Ss]hutting down filesystem|xfs_do_force_shutdown"
        r"|Corruption |Metadata (?:CRC error|corruption)|writeback error"
        r"|Internal error|xfs_log_force: error|[^\n]{0,60} error -?\d{1,4}\b)"
    ),
    rf"Filesystem \"?{_DEV}\"?: (?:I/O Error|xfs_log_force: error)",
    rf"BTRFS(?:: | )(?:error|critical) \(device {_DEV}\)",
    (
        rf"BTRFS(?:: | )(?:warning|info) \(device {_DEV}\): (?:forced readonly"
        r"|[^\n]{0,200}(?:csum failed|direct IO failed|due to IO error))"
    ),
    (
        rf"(?:FAT-fs|F2FS-fs|NTFS-fs) (?:error )?\((?:device )?{_DEV}\): "
        r"[^\n]{0,80}(?:error|failed)"
    ),
    r"SQUASHFS error: ",
)
"""Example: ``EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python:
reading directory lblock 0``."""

_DRIVES: Final = (
    (
        r"nvme (?P<name>nvme\d{1,4}): (?:I/O (?:tag )?\d{1,6} [^\n]{0,80}timeout"
        r"|controller is down|Removing after probe failure"
        r"|Disabling device after reset failure|Device not ready"
        r"|frozen state error detected"
        r"|[^\n]{0,60}reset failed|Identify (?!Desc)[^\n]{0,40}failed)"
    ),
    (
        rf"nvme {_BDF}: (?:(?:Timeout )?I/O \d{{1,6}} QID \d{{1,6}}|Failed status"
        r"|Device not ready|Removing after probe failure|controller is down)"
    ),
    (
        rf"{_DEV}: (?:Read|Write|I/O Cmd|Flush|Dataset Management|Compare"
        r"|Zone Append)[^\n@]{0,20} @ LBA \d{1,20}, \d{1,10} blocks, "
    ),
    (
        rf"s[dr] \d{{1,5}}:\d{{1,5}}:\d{{1,5}}:\d{{1,20}}: (?:\[{_DEV}\] )?"
        r"(?:tag#\d{1,6} )?(?:[^\n]{0,40}FAILED Result|Add\. Sense: Unrecovered"
        r"|Sense Key ?: (?:Medium|Hardware) Error|rejecting I/O to|Device offlined"
        r"|timing out command|[^\n]{0,20}I/O error)"
    ),
    (
        r"(?P<name>ata\d{1,5})(?:\.\d{2})?: (?:failed command: |error: \{"
        r"|COMRESET failed|exception Emask|hard resetting link|disabled"
        r"|revalidation failed|limiting SATA link)"
    ),
    rf"(?:md/)?raid\d{{0,2}}(?::\w{{1,32}})?: Disk failure on {_DEV}",
    r"md: super_written gets error",
    r"device-mapper: multipath: (?:[\d:]{1,12} )?Failing path ",
)
"""Example: ``nvme nvme0: I/O 41 QID 3 timeout, aborting``."""

_SERVERS: Final = (
    r"(?:nfs|lockd): server (?P<name>\S{1,200}) not responding",
    r"NFS: (?:[^\n]{0,80}error|state manager: [^\n]{0,80}failed)",
    r"(?:NFS: )?nfs4_reclaim_open_state: ",
    r"CIFS:? (?:VFS: )?[^\n]{0,200}(?:has not responded in|Send error in)",
    r"ceph: (?:\[[^\]\n]{1,80}\]: )?mds\d{1,6} (?:hung|caps stale)",
    r"(?:Lustre|LNet)Error: ",
    r"LNet: [^\n]{0,200}Timed out (?:tx|RDMA)",
    (
        r"Lustre: [^\n]{0,1000}(?:Request sent has (?:timed out|failed)"
        r"|was evicted by|was lost; in progress operations)"
    ),
)
"""Example: ``nfs: server filer not responding, still trying``."""

_FORMS: Final = tuple(
    re.compile(form, re.DOTALL)
    for form in (*_BLOCKS, *_FILE_SYSTEMS, *_DRIVES, *_SERVERS)
)
_OPENING: Final = re.compile(
    r"blk_|end_req|print_req|I/O|critical|recov|protec|operation|[a-z ]{0,21}timeout"
    r"|Buffer|lost|Read-|Write-|EXT|Abort|JBD|XFS|Files|BTRFS|FAT|F2FS|NTFS|SQUASH"
    r"|nvme|s[dr] |ata\d|md|raid|device-m|nfs|lockd|NFS|CIFS|ceph|Lustre|LNet"
    r"|[\w.!/-]{1,64}: [A-Z][A-Za-z/ ]{3,20}"
)
"""How all of these begin: one look spares most records the others."""

_COMM: Final = re.compile(r"(?:[^\n]{0,250}?: )?comm (?P<comm>.{1,60}?): ", re.DOTALL)
"""``ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0``."""

_DISK: Final = re.compile(
    r"(?P<disk>(?:sd|vd|xvd|hd)[a-z]{1,4}|nvme\d{1,4}|mmcblk\d{1,3}|md\d{1,4}"
    r"|dm-\d{1,4})"
)
_QUIET: Final = re.compile(
    r"(?:Lustre|LNet)(?:Error)?: [^\n]{0,200}(?:Skipped \d|Connection restored)"
    r"|(?:blk_update_request: |print_req_error: )?(?:operation not supported|critical"
    r" target) error, dev [^\n]{1,90} op 0x\w:\((?:DISCARD|WRITE_ZEROES|SECURE_ERASE)\)"
    r"|[^\n]{0,50} dev fd\d, "
)
"""A disk that cannot discard says so (``blk_print_req_error`` of block/blk-mq.c), and
an emulated floppy drive without a disk fails each read of a healthy machine's boot."""


def said(record: Record) -> Said | None:
    """Return what a record says of storage."""
    text = record.text
    if not _OPENING.match(text) or _QUIET.match(text):
        return None
    for form in _FORMS:
        found = form.match(text)
        if found:
            return _said(record, found.groupdict())
    return None


def _said(record: Record, found: dict[str, str | None]) -> Said:
    device = (found.get("device") or found.get("name") or "").rstrip(".:,-")
    comm = _COMM.match(found.get("rest") or "")
    fault = told("io_error", record)._replace(
        device=device,
        comm=comm["comm"] if comm else None,
        pci=pci_address(found.get("pci") or "") or None,
    )
    return Said(fault, (_key(record, device),))


def _key(record: Record, device: str) -> Key:
    """Return what the records about one disk have in common."""
    disk = _DISK.match(device)
    if disk:
        return ("disk", disk["disk"])
    return ("disk", device or record.text.partition(":")[0][:64])
