"""Commands of nvme-cli on a served store, as text and as JSON, and the command sets that only pass-through reaches."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import BYTES, NAMESPACES, as_json, connect, disks
from machine import Guest

import nandarray
from nandarray import programs

#: Commands that have text and JSON, and a key of the JSON; `{c}` is the controller, `{d}` the disk of namespace 2.
BOTH = {
    "list": "Devices",
    "list-subsys": None,
    "list-ns {c}": "nsid_list",
    "list-ns {c} -a": "nsid_list",
    "id-ctrl {c}": "subnqn",
    "id-ns {d}": "nsze",
    "ns-descs {d}": None,
    "cmdset-ind-id-ns {c} -n 2": None,
    "nvm-id-ctrl {c}": None,
    "effects-log {c} -c 0": None,
    "smart-log {c}": "percent_used",
    "error-log {c}": "errors",
    "fw-log {c}": None,
}
#: Commands with text alone, and a word of it.
TEXT = {
    "list -v": "Subsystem",
    "get-feature {c} -f 7": "0x07",
    "get-feature {c} -f 0xf -H": "Keep Alive",
    "get-ns-id {d}": "namespace-id:2",
    "show-regs {c}": "csts",
    "flush {d}": "success",
    "write-zeroes {d} -s 8 -c 3": "Success",
    "dsm {d} -d -s 4 -b 8": "success",
    "copy {d} -d 100 -s 0 -b 7": "Success",
    "write {d} -s 4 -c 0 -z 4096 -d /tmp/block": "Success",
    "compare {d} -s 4 -c 0 -z 4096 -d /tmp/block": "Success",
    "read {d} -s 4 -c 0 -z 4096": "abcdefgh",
    "ns-rescan {c}": "",
    "reset {c}": "",
    "read {d} -s 4 -c 0 -z 4096 ": "abcdefgh",
}


@pytest.fixture(scope="module")
def shared(guest: Guest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[nandarray.Store]:
    """A drive with arrays, connected for all tests of this file."""
    with nandarray.open(tmp_path_factory.mktemp("commands") / "a.nand", mode="w") as store:
        for nsid, lba in NAMESPACES.items():
            assert store.nvme().create_namespace(nsid, BYTES // lba, lba).ok
        store["m"] = np.arange(64, dtype="<i4").reshape(8, 8)
        with nandarray.serve(store) as server:
            connect(guest, int(server.address.rpartition(":")[2]), server.nqn)
            guest.run("yes abcdefgh | tr -d '\\n' | head -c 4096 > /tmp/block")
            yield store
            guest.run(f"nvme disconnect -n {server.nqn}")


def controller(guest: Guest) -> str:
    return guest.run("ls -d /dev/nvme? | head -1").strip()


def generic(guest: Guest, nsid: int) -> str:
    """The character device of a namespace; its name does not follow the namespace's number."""
    for device in guest.run("ls /dev/ng?n*").split():
        if guest.run(f"nvme get-ns-id {device}").strip().endswith(f":{nsid}"):
            return device
    raise AssertionError(f"no character device for namespace {nsid}")


def filled(guest: Guest, command: str) -> str:
    return "nvme " + command.format(c=controller(guest), d=disks(guest)[2])


@pytest.mark.parametrize("command", BOTH)
def test_text_and_json(guest: Guest, shared: nandarray.Store, command: str) -> None:
    assert guest.run(filled(guest, command)).strip()
    found: Any = as_json(guest, filled(guest, command))
    key = BOTH[command]
    assert found
    assert key is None or key in found


def test_numbers(guest: Guest, shared: nandarray.Store) -> None:
    namespaces = as_json(guest, filled(guest, "list-ns {c}"))
    assert [one["nsid"] for one in namespaces["nsid_list"]] == [1, 2, 1022, 1023, 1024]
    everything = as_json(guest, filled(guest, "list-ns {c} -a"))
    assert [one["nsid"] for one in everything["nsid_list"]] == [1, 2, 1022, 1023, 1024]
    of = as_json(guest, filled(guest, "id-ns {d}"))
    assert (of["nsze"], of["lbafs"][0]["ds"]) == (BYTES // 4096, 12)
    before = as_json(guest, filled(guest, "smart-log {c}"))
    guest.run(filled(guest, "read {d} -s 0 -c 0 -z 4096"))
    after = as_json(guest, filled(guest, "smart-log {c}"))
    assert after["host_read_commands"] > before["host_read_commands"]


@pytest.mark.parametrize("command", TEXT)
def test_text(guest: Guest, shared: nandarray.Store, command: str) -> None:
    found = guest.run(filled(guest, command) + " 2>&1")
    assert TEXT[command].lower() in found.lower(), found


def test_refusals_are_told(guest: Guest, shared: nandarray.Store) -> None:
    for command in ("format {d} --force", "read {d} -s 99999999 -c 0 -z 4096", "get-log {c} -i 0x7e -l 512"):
        status, text = guest.try_run(filled(guest, command) + " 2>&1")
        assert status != 0, command
        assert "NVMe" in text, text
    compared, text = guest.try_run(filled(guest, "compare {d} -s 50000 -c 0 -z 4096 -d /tmp/block") + " 2>&1")
    assert compared != 0
    assert "compar" in text.lower(), text


def send_file(guest: Guest, data: bytes, to: str) -> None:
    guest.run(f"rm -f {to}")
    for first in range(0, len(data), 2400):
        guest.run(f"echo {base64.b64encode(data[first : first + 2400]).decode()} | base64 -d >> {to}")


def test_a_program_by_pass_through(guest: Guest, shared: nandarray.Store) -> None:
    elf = programs.get("sum", dtype="int32").elf
    send_file(guest, elf, "/tmp/elf")
    half = len(elf) // 2 // 4 * 4
    guest.run(f"head -c {half} /tmp/elf > /tmp/elf1; tail -c +{half + 1} /tmp/elf > /tmp/elf2")
    for part, first in (("/tmp/elf1", 0), ("/tmp/elf2", half)):
        bytes_ = half if first == 0 else len(elf) - half
        guest.run(
            f"nvme admin-passthru {controller(guest)} -o 0x85 --cdw10={1 | 0xC0 << 16} --cdw11={len(elf)} --cdw12=7 "
            f"--cdw14={bytes_} --cdw15={first} -l {bytes_} -i {part} -w 2>&1"
        )
    guest.run(f"nvme admin-passthru {controller(guest)} -o 0x88 --cdw10={1 | 1 << 16} 2>&1")
    send_file(guest, np.arange(100, dtype="<i4").tobytes(), "/tmp/values")
    memory, engine = generic(guest, 1022), generic(guest, 1023)
    guest.run(f"nvme io-passthru {memory} -o 5 -n 1022 --cdw10=0 --cdw12=400 -l 400 -i /tmp/values -w 2>&1")
    ranges = struct.pack("<IIQ16x", 1022, 400, 0) + struct.pack("<IIQ16x", 1022, 64, 4096)
    send_file(guest, ranges, "/tmp/ranges")
    guest.run(f"nvme io-passthru {engine} -o 1 -n 1023 --cdw2=1 --cdw3=2 -l {len(ranges)} -i /tmp/ranges -w 2>&1")
    read = f"nvme io-passthru {memory} -o 2 -n 1022 --cdw10=4096 --cdw12=8 -l 8 -r -b 2>/dev/null | base64"
    assert base64.b64decode(guest.run(read)) == struct.pack("<q", sum(range(100)))


def test_a_box_by_pass_through(guest: Guest, shared: nandarray.Store) -> None:
    device = generic(guest, 1024)
    page = bytearray(4096)
    page[6:8] = struct.pack("<H", 1)
    page[1024:1025] = b"m"
    send_file(guest, bytes(page), "/tmp/page")
    opened = guest.run(f"nvme io-passthru {device} -o 5 -n 1024 --cdw10=1 -l 4096 -i /tmp/page -w 2>&1")
    view = int(opened.split("0x")[-1].split()[0].rstrip(".)"), 16)
    box = struct.pack("<32Q", 2, 3, *[0] * 30) + struct.pack("<32Q", 3, 4, *[0] * 30)
    send_file(guest, box, "/tmp/box")
    words = f"--cdw10={view} --cdw11={2 | 1 << 8 | 1 << 9}"
    stored = guest.run(f"nvme io-passthru {device} -o 0x0d -n 1024 {words} -l 512 -i /tmp/box -w 2>&1")
    handle = int(stored.split("0x")[-1].split()[0].rstrip(".)"), 16)
    read = guest.run(
        f"nvme io-passthru {device} -o 2 -n 1024 --cdw10={view} --cdw11={2 | 1 << 8 | 1 << 10} --cdw12={handle} "
        "-l 48 -r -b 2>/dev/null | base64"
    )
    found = np.frombuffer(base64.b64decode(read), "<i4").reshape(3, 4)
    np.testing.assert_array_equal(found, np.arange(64).reshape(8, 8)[2:5, 3:7])


#: A user's three lines, as root and as an ordinary user, who finds the program loaded.
AS_ROOT = """
import sys
from nandarray.nvme import connect
with connect(sys.argv[1]) as drive:
    program = drive.load(open("/tmp/elf", "rb").read(), index=3)
    print(program.execute(drive["m"])[0].hex(), drive["m"][2:5, 3:7].tolist())
    drive.flush()
    print(drive.array_names())
"""
AS_USER = """
import os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
from nandarray.errors import InvalidError
from nandarray.nvme import RemoteProgram, connect
with connect(sys.argv[1]) as drive:
    print(RemoteProgram(drive, 3).execute(drive["m"])[0].hex(), drive["m"][2:5, 3:7].tolist())
    try:
        drive.load(b"1234")
    except InvalidError as error:
        print(error)
"""


def test_three_lines_of_python(guest: Guest, shared: nandarray.Store) -> None:
    """Our client library through the kernel: programs, arrays, and for an ordinary user what his kernel allows."""
    send_file(guest, programs.get("sum", dtype="int32").elf, "/tmp/elf")
    send_file(guest, AS_ROOT.encode(), "/tmp/root.py")
    matrix = np.arange(64).reshape(8, 8)
    wanted = f"{struct.pack('<q', matrix.sum()).hex()} {matrix[2:5, 3:7].tolist()}"
    said = guest.run(f"python /tmp/root.py {controller(guest)} 2>&1", 300).splitlines()
    assert said[0] == wanted
    assert "'m'" in said[1]
    if tuple(map(int, guest.run("uname -r").split(".")[:2])) < (6, 2):
        return
    guest.run(f"chmod 666 {' '.join(generic(guest, nsid) for nsid in (1022, 1023, 1024))}")
    send_file(guest, AS_USER.encode(), "/tmp/user.py")
    said = guest.run(f"python /tmp/user.py {controller(guest)} 2>&1", 300).splitlines()
    assert said[0] == wanted
    assert "root may send it" in said[1]


def test_an_ordinary_user_reads_a_box_and_runs_a_program(guest: Guest, shared: nandarray.Store) -> None:
    """Commands below 80h that the effects log lists, on character devices that the user may open."""
    major, minor = map(int, guest.run("uname -r").split("-")[0].split("+")[0].split(".")[:2])
    if (major, minor) < (6, 2):
        pytest.skip(f"Linux {major}.{minor} lets root alone pass commands through")
    memory, engine, boxes = (generic(guest, nsid) for nsid in (1022, 1023, 1024))
    guest.run(f"chmod 666 {memory} {engine} {boxes}")

    devices = {1022: memory, 1023: engine, 1024: boxes}

    def ordinary(opcode: int, nsid: int, words: tuple[int, ...], length: int, files: str) -> int:
        """The result of a command as user 65534."""
        w = " ".join(map(str, words))
        said = guest.run(f"(ngio 65534 {devices[nsid]} {opcode} {nsid} {w} {length} {files}) 2>&1")
        return int(said.split("result ")[1])

    page = bytearray(4096)
    page[6:8], page[1024:1025] = struct.pack("<H", 1), b"m"
    send_file(guest, bytes(page), "/tmp/page")
    view = ordinary(5, 1024, (0, 0, 1, 0, 0), 4096, "< /tmp/page")
    send_file(guest, struct.pack("<32Q", 2, 3, *[0] * 30) + struct.pack("<32Q", 3, 4, *[0] * 30), "/tmp/box")
    handle = ordinary(0x0D, 1024, (0, 0, view, 2 | 1 << 8 | 1 << 9, 0), 512, "< /tmp/box")
    ordinary(2, 1024, (0, 0, view, 2 | 1 << 8 | 1 << 10, handle), 48, "> /tmp/out")
    found = np.frombuffer(base64.b64decode(guest.run("base64 /tmp/out")), "<i4").reshape(3, 4)
    np.testing.assert_array_equal(found, np.arange(64).reshape(8, 8)[2:5, 3:7])
    # Root loads and activates the program; the user brings its input, executes it and reads the result.
    elf = programs.get("sum", dtype="int32").elf
    send_file(guest, elf, "/tmp/elf")
    guest.run(
        f"nvme admin-passthru {controller(guest)} -o 0x85 --cdw10={2 | 0xC0 << 16} --cdw11={len(elf)} --cdw12=8 "
        f"--cdw14={len(elf)} -l {len(elf)} -i /tmp/elf -w 2>&1"
    )
    guest.run(f"nvme admin-passthru {controller(guest)} -o 0x88 --cdw10={2 | 1 << 16} 2>&1")
    send_file(guest, np.arange(100, dtype="<i4").tobytes(), "/tmp/values")
    ordinary(5, 1022, (0, 0, 8192, 0, 400), 400, "< /tmp/values")
    send_file(guest, struct.pack("<IIQ16x", 1022, 400, 8192) + struct.pack("<IIQ16x", 1022, 64, 12288), "/tmp/ranges")
    ordinary(1, 1023, (2, 2, 0, 0, 0), 64, "< /tmp/ranges")
    ordinary(2, 1022, (0, 0, 12288, 0, 8), 8, "> /tmp/out")
    assert base64.b64decode(guest.run("base64 /tmp/out")) == struct.pack("<q", sum(range(100)))
    # Opcodes from 80h on stay root's.
    status, text = guest.try_run(f"ngio 65534 {boxes} 0x81 1024 0 0 {view} 0 0 0 < /dev/null 2>&1")
    assert status == 1, text
