"""The guest's file system: busybox, a distribution's modules, and this machine's programs with their libraries.

It is an initramfs, made in a few seconds and kept beside the kernel. A program that this machine
lacks is a :class:`MissingError`, whose text is the reason for which the tests are skipped.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nandarray

ROOT = Path(__file__).resolve().parents[2]
#: A package of the distribution, to take another kernel than the generic one (6.12 and later can authenticate).
PACKAGE = os.environ.get("GUEST_KERNEL", "")
FOLDER = ROOT / "target" / "guest" / PACKAGE

#: Programs of this machine that the guest gets, and the packages that have them.
PROGRAMS = {
    # Busybox's own shell would run its own mke2fs.
    "sh": "dash",
    "nvme": "nvme-cli",
    "fio": "fio",
    "mke2fs": "e2fsprogs",
    "e2fsck": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "xfs_repair": "xfsprogs",
    "fstrim": "util-linux",
    "blkdiscard": "util-linux",
}
#: Programs that this machine itself needs.
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "cpio": "cpio", "depmod": "kmod"}
TOOLS["cc"] = "gcc"
#: Modules, loaded in this order, each after those that it needs.
MODULES = ("virtio_pci", "virtio_net", "crc32c_generic", "nvme-tcp", "ext4", "xfs")

INIT = r"""#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /run /tmp /mnt
mount -t tmpfs tmp /tmp
while read -r module; do insmod "/modules/$module"; done < /modules/order
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
stty -F /dev/ttyS1 raw -echo
exec < /dev/ttyS1 > /dev/ttyS1 2>&1
echo READY
while read -r line; do
  sh -c "$line" < /dev/null 2>&1
  echo "END $?"
done
poweroff -f
"""


#: A conversation like those of the guest's Python. Run here, it lists the files that such a conversation takes.
CONVERSATION = """
import sys, tempfile
import nandarray
from nandarray import programs
from nandarray.nvme import RemoteProgram, RemoteStore, connect, kernel
with tempfile.TemporaryDirectory() as folder, nandarray.open(folder + "/a.nand", mode="w") as store:
    store["m"] = [1, 2, 3]
    with nandarray.serve(store) as server, connect(server.url) as drive:
        drive.load(programs.get("sum", dtype="int64").elf).execute(drive["m"])
        drive["m"][1:] = drive["m"][:2].tolist()
found = {getattr(module, name, None) for module in [*sys.modules.values()] for name in ("__file__", "__cached__")}
found |= {line.split()[-1] for line in open("/proc/self/maps")}
print("\\n".join(sorted(one for one in found if one and one.startswith("/"))))
"""


class MissingError(Exception):
    """A program or a kernel that this machine does not have."""


def find(program: str, package: str) -> Path:
    found = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        raise MissingError(f"{program} is missing: install {package}")
    return Path(found)


def kernel() -> Path:
    """The kernel, fetched where it is not there."""
    command = [ROOT / "tools" / "guest-kernel.sh", FOLDER, PACKAGE]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        raise MissingError(fetched.stderr.strip() or "no kernel for the guest")
    return next((FOLDER / "root" / "boot").glob("vmlinuz-*"))


def initramfs() -> Path:
    """The image, made anew: a program of this machine may have been replaced."""
    for program, package in TOOLS.items():
        find(program, package)
    kernel()
    top = FOLDER / "image"
    shutil.rmtree(top, ignore_errors=True)
    for folder in ("bin", "etc/nvme", "proc", "sys", "dev", "modules"):
        (top / folder).mkdir(parents=True)
    for program, package in PROGRAMS.items():
        copy_program(find(program, package), top)
    busybox = find("busybox", "busybox-static")
    if libraries(busybox):
        raise MissingError("busybox is not linked statically: install busybox-static")
    shutil.copy2(busybox, top / "bin" / "busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        if not (top / "bin" / applet).exists():
            (top / "bin" / applet).symlink_to("busybox")
    subprocess.run(["cc", "-O1", "-o", top / "bin" / "ngio", Path(__file__).with_name("ngio.c")], check=True)
    configuration = Path("/etc/mke2fs.conf")
    if configuration.exists():
        shutil.copy2(configuration, top / "etc")
    copy_python(top)
    copy_modules(top / "modules")
    (top / "init").write_text(INIT)
    (top / "init").chmod(0o755)
    image = FOLDER / "initramfs"
    names = subprocess.run(["find", ".", "-print0"], cwd=top, capture_output=True, check=True).stdout
    with image.open("wb") as out:
        subprocess.run(
            ["cpio", "--null", "--create", "--format=newc", "--quiet", "--owner=0:0"],
            cwd=top, input=names, stdout=out, check=True,
        )  # fmt: skip
    return image


def libraries(program: Path) -> list[Path]:
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", text)]


def copy_program(program: Path, top: Path) -> None:
    shutil.copy2(program, top / "bin" / program.name)
    for library in libraries(program):
        to = top / library.relative_to("/")
        if not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, to)


def copy_python(top: Path) -> None:
    """Copy this interpreter, the package and what both need to where they lie here; `python` runs it."""
    interpreter = Path(sys.executable).resolve()
    told = subprocess.run([sys.executable, "-c", CONVERSATION], capture_output=True, text=True, check=True).stdout
    for found in {interpreter, *libraries(interpreter), *map(Path, told.splitlines())}:
        to = top / found.relative_to("/")
        if to.exists() or not found.is_file() or not found.stat().st_size:
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(found, to)
        if found.name.startswith("_nandarray.") and shutil.which("strip"):
            subprocess.run(["strip", to], check=True)
    paths = [path for path in sys.path if "site-packages" in path]
    paths.append(str(Path(nandarray.__file__).parents[1]))
    wrapper = top / "bin" / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={":".join(paths)} exec {interpreter} -S "$@"\n')
    wrapper.chmod(0o755)


def copy_modules(to: Path) -> None:
    """Copy modules and those that they need, in the order in which they are loaded."""
    tree = next((FOLDER / "root" / "lib" / "modules").iterdir())
    subprocess.run(["depmod", "-b", FOLDER / "root", tree.name], check=True, capture_output=True)
    needs: dict[str, list[str]] = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[Path(path).name.split(".ko")[0].replace("_", "-")] = [*reversed(rest.split()), path]
    order: list[str] = []
    for module in MODULES:
        for path in needs.get(module.replace("_", "-"), ()):  # a kernel may have it built in
            if path not in order:
                order.append(path)
    names = [f"{Path(path).name.split('.ko')[0]}.ko" for path in order]
    for path, name in zip(order, names, strict=True):
        bytes_of = (tree / path).read_bytes()
        (to / name).write_bytes(lzma.decompress(bytes_of) if path.endswith(".xz") else bytes_of)
    (to / "order").write_text("".join(f"{name}\n" for name in names))
