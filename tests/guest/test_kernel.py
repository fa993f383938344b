"""A stock kernel on a served store: file systems, verified data, discards, commands of nvme-cli, a server that dies."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import BYTES, NAMESPACES, Drive, as_json, connect, disks
from machine import HOST, Guest
from recorder import Recorder

import nandarray

FIO = "fio --name=a --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --minimal --group_reporting"


def test_the_conversation_of_connecting(guest: Guest, drive: Drive) -> None:
    recorder = Recorder(drive.port)
    connect(guest, recorder.port, drive.nqn, "--nr-io-queues=2")
    guest.run(f"nvme disconnect -n {drive.nqn}")
    recorder.close()
    release = guest.run("uname -r").strip()
    text = Path(__file__).parents[2] / "target" / "guest" / f"connect-{release}.txt"
    recorder.write(text, [f"Linux {release} connects, scans two namespaces and disconnects; made by make guest-tests."])
    assert {number for number, _, _ in recorder.lines} == {0, 1, 2}
    assert all(pdu[0] != 3 for _, side, pdu in recorder.lines if side == "c"), "the server ended a connection"


def test_discovery(guest: Guest, drive: Drive) -> None:
    of = f"-t tcp -a {HOST} -s {drive.port}"
    assert drive.nqn in guest.run(f"nvme discover {of}")
    found = as_json(guest, f"nvme discover {of}")
    assert [record["subnqn"] for record in found["records"]] == [drive.nqn]


@pytest.mark.parametrize("nsid", NAMESPACES)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system(guest: Guest, connected: Drive, kind: str, nsid: int) -> None:
    disk = disks(guest)[nsid]
    assert int(guest.run(f"cat /sys/block/{Path(disk).name}/queue/logical_block_size")) == NAMESPACES[nsid]
    guest.run(f"mke2fs -q -t ext4 -F {disk}" if kind == "ext4" else f"mkfs.xfs -q -f {disk}", 300)
    guest.run(f"mount -t {kind} {disk} /mnt")
    guest.run("mkdir /mnt/a && for i in 1 2 3; do head -c 5000000 /dev/urandom > /mnt/a/$i; done")
    guest.run("cp /bin/fio /mnt/b && ln /mnt/b /mnt/c && rm /mnt/b && cd /mnt && sha256sum a/* c > /tmp/sums")
    guest.run("sync; umount /mnt; echo 3 > /proc/sys/vm/drop_caches")
    guest.run(f"mount -t {kind} {disk} /mnt && cd /mnt && sha256sum -c /tmp/sums")
    guest.run("rm -r /mnt/a && sync && fstrim -v /mnt | grep trimmed && cd /mnt && grep c$ /tmp/sums | sha256sum -c")
    guest.run("umount /mnt")
    guest.run(f"e2fsck -fn {disk}" if kind == "ext4" else f"xfs_repair -n {disk}", 300)


@pytest.mark.parametrize("nsid", NAMESPACES)
def test_verified_data(guest: Guest, connected: Drive, nsid: int) -> None:
    disk = disks(guest)[nsid]
    guest.run(f"{FIO} --filename={disk} --rw=randwrite --bsrange=4k-128k --iodepth=16 --size=24m", 400)
    two = "--numjobs=2 --offset=64m --offset_increment=4m --size=3m"
    guest.run(f"{FIO} --filename={disk} --rw=randrw --bs=4k --iodepth=8 {two}", 400)
    guest.run(
        f"dd if=/dev/urandom of=/tmp/big bs=1M count=8 2>/dev/null && dd if=/tmp/big of={disk} bs=4M oflag=direct"
    )
    guest.run(f"dd if={disk} bs=4M count=2 iflag=direct 2>/dev/null | cmp - /tmp/big && rm /tmp/big")


def test_a_copy_of_a_store_is_another_disk(guest: Guest, drive: Drive, tmp_path: Path) -> None:
    drive.stop()
    (tmp_path / "copy").mkdir()
    other = Drive(tmp_path / "copy", tmp_path / "copy.txt", copied=drive.store)
    nqn = drive.nqn
    drive.start()
    try:
        assert drive.nqn == nqn != other.nqn
        connect(guest, drive.port, drive.nqn)
        first = disks(guest)[2]
        count = 2 * len(guest.run("ls -d /sys/block/nvme?n* | cat").split())
        wait = f"for i in $(seq 100); do [ $(ls -d /sys/block/nvme?n* | wc -l) -ge {count} ] && break; sleep 0.2; done"
        guest.run(f"nvme connect -t tcp -a {HOST} -s {other.port} -n {other.nqn} --reconnect-delay=1; {wait}")
        names = guest.run("cat /sys/block/nvme?n*/wwid").split()
        assert len(names) == len(set(names)) == count, names
        second = next(
            line.replace("/sys/block", "/dev")
            for line in guest.run("ls -d /sys/block/nvme?n* | cat").split()
            if guest.run(f"cat {line}/nsid").strip() == "2" and line.replace("/sys/block", "/dev") != first
        )
        guest.run(f"head -c 4096 /dev/urandom > /tmp/one && dd if=/tmp/one of={first} bs=4096 count=1 oflag=direct")
        guest.run(f"dd if={second} bs=4096 count=1 iflag=direct 2>/dev/null | tr -d '\\000' | cmp - /dev/null")
        guest.run(f"nvme disconnect -n {other.nqn}")
        guest.run(f"dd if={first} bs=4096 count=1 iflag=direct 2>/dev/null | cmp - /tmp/one")
    finally:
        guest.run(f"nvme disconnect -n {drive.nqn}; nvme disconnect -n {other.nqn}; true")
        other.stop()


#: Folders of the controllers whose namespaces are in a state.
PATHS = "grep -lx {state} /sys/class/nvme/nvme*/nvme*/ana_state | sed s,/[^/]*/ana_state,, | sort -u"


def test_digests(guest: Guest, drive: Drive) -> None:
    connect(guest, drive.port, drive.nqn, "--hdr-digest --data-digest")
    guest.run(f"{FIO} --filename={disks(guest)[2]} --rw=randwrite --bsrange=4k-64k --iodepth=8 --size=4m", 300)
    guest.run(f"nvme disconnect -n {drive.nqn}")
    assert "digest" not in guest.run("dmesg -c").lower()


def test_discarded_blocks(guest: Guest, connected: Drive) -> None:
    disk = disks(guest)[2]
    guest.run(f"dd if=/dev/urandom of={disk} bs=1M count=16 oflag=direct 2>/dev/null")
    used = as_json(guest, f"nvme id-ns {disk}")["nuse"]
    guest.run(f"blkdiscard -o 4M -l 8M {disk}")
    assert used - as_json(guest, f"nvme id-ns {disk}")["nuse"] == (8 << 20) // 4096
    guest.run(f"dd if={disk} bs=1M skip=4 count=8 iflag=direct 2>/dev/null | tr -d '\\000' | cmp - /dev/null")
    guest.run(
        f"blkdiscard -z -o 0 -l 1M {disk} && dd if={disk} bs=1M count=1 2>/dev/null | tr -d '\\000' | wc -c | grep -x 0"
    )


def test_a_killed_server(guest: Guest, connected: Drive) -> None:
    disk = disks(guest)[1]
    guest.run(f"mke2fs -q -t ext4 -F {disk} && mount {disk} /mnt", 300)
    # Each file is acknowledged by fsync before its number is written down.
    guest.run(
        "(rm -f /tmp/sums2 /tmp/over; i=0; while [ $i -lt 60 ]; do i=$((i+1)); head -c 60000 /dev/urandom > /tmp/one; "
        "cp /tmp/one /mnt/$i; sync /mnt/$i; sha256sum /tmp/one | sed s,/tmp/one,/mnt/$i, >> /tmp/sums2; "
        "done; echo done > /tmp/over) > /tmp/log 2>&1 &"
    )
    for _ in range(2):
        guest.run("sleep 3")
        connected.kill()
        guest.run("sleep 1")
        connected.start()
    guest.run("while [ ! -e /tmp/over ]; do sleep 1; done; cat /tmp/log", 300)
    guest.run("umount /mnt", 200)
    guest.run(f"e2fsck -fn {disk} && mount {disk} /mnt", 200)
    assert int(guest.run("wc -l < /tmp/sums2")) == 60
    guest.run("sha256sum -c /tmp/sums2 > /tmp/checked || (cat /tmp/checked; false)")
    assert "reconnect" in guest.run("dmesg -c").lower()


def test_a_namespace_grows(guest: Guest, tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        for nsid, lba in NAMESPACES.items():
            store.nvme().create_namespace(nsid, BYTES // lba, lba)
        with nandarray.serve(store) as server:
            connect(guest, int(server.address.rpartition(":")[2]), server.nqn)
            disk = disks(guest)[2]
            store["ns/2"].resize((2 * BYTES // 4096,))
            grown = f"blockdev --getsize64 {disk} | grep -x {2 * BYTES}"
            guest.run(f"for i in 1 2 3 4 5 6 7 8 9 10; do {grown} && exit 0; sleep 1; done; exit 1")
            guest.run(f"nvme disconnect -n {server.nqn}")


def test_a_path_is_lost_in_mid_write(guest: Guest, tmp_path: Path) -> None:
    """The kernel's own multipath: what was on its way by the first path goes by the last resort."""
    with nandarray.open(tmp_path / "a.nand", mode="w") as store:
        for nsid, lba in NAMESPACES.items():
            store.nvme().create_namespace(nsid, BYTES // lba, lba)
        with nandarray.serve(store, fallback="127.0.0.1:0") as server:
            connect(guest, int(server.address.rpartition(":")[2]), server.nqn)
            second = next(one for one in server.addresses if one != server.address)
            guest.run(f"nvme connect -t tcp -a {HOST} -s {second.rpartition(':')[2]} -n {server.nqn}; sleep 2")
            states = set(guest.run("cat /sys/class/nvme/nvme*/nvme*/ana_state").split())
            assert states == {"optimized", "non-optimized"}
            guest.run("rm -f /tmp/ended; dd if=/dev/urandom of=/tmp/many bs=64k count=256 2>/dev/null")
            disk, first = disks(guest)[1], guest.run(PATHS.format(state="optimized")).split()[0]
            write = f"dd if=/tmp/many of={disk} bs=4k oflag=direct 2>/tmp/said; echo $? > /tmp/ended"
            guest.run(f"({write}) & sleep 0.3; test ! -e /tmp/ended && echo 1 > {first}/delete_controller")
            guest.run(
                "while [ ! -e /tmp/ended ]; do sleep 1; done; grep -x 0 /tmp/ended || (cat /tmp/said; false)", 300
            )
            guest.run(f"dd if={disk} bs=64k count=256 iflag=direct 2>/dev/null | cmp - /tmp/many", 300)
            guest.run(f"nvme disconnect -n {server.nqn}")
