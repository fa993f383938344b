"""The machine under the run: what it is, and how its page cache is emptied between cold reads.

Cold means: the store is closed, everything written is on the disk, the page cache is dropped, the store is opened
again. Root drops the whole cache (pages, dentries and inodes: a store of many files pays for finding them); anyone else
asks for the pages of the store's own files, which leaves the inodes warm. The output says which of the two it was.
"""

from __future__ import annotations

import os
import platform
import random
from pathlib import Path
from typing import Any

_DROP = Path("/proc/sys/vm/drop_caches")
#: Bytes of a file that are resident, or not, together.
_PIECE_BYTES = 64 << 10


def cold_method(wanted: str = "auto") -> str:
    """Return the requested method, or of ``drop_caches`` and ``fadvise`` the one that this process may use."""
    if wanted != "auto":
        return wanted
    return "drop_caches" if os.access(_DROP, os.W_OK) else "fadvise"


def make_cold(folder: Path, method: str) -> None:
    """Empty the page cache of a closed store; dirty pages cannot be dropped, so they go to the disk first."""
    make_durable(folder)
    if method == "drop_caches":
        _DROP.write_text("3\n")
        return
    for file in folder.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def make_part(folder: Path, method: str) -> None:
    """Leave seven of eight pieces of a closed store's files in the page cache, as a kernel short of memory may."""
    make_cold(folder, method)
    chance = random.Random(0)
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                # Without readaround: only the pages that are read.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                for at in range(0, path.stat().st_size, _PIECE_BYTES):
                    if chance.randrange(8):
                        os.pread(file.fileno(), _PIECE_BYTES, at)


def make_durable(folder: Path) -> None:
    """Put every file and directory of a store on the disk: what a system's own flush may have left undone."""
    for path in [folder, *folder.rglob("*")]:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def warm_files(folder: Path) -> None:
    """Read every file of a store once, so that its pages are in the cache."""
    buffer = bytearray(4 << 20)
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def disk_usage(folder: Path) -> int:
    """Bytes that the files of a folder take on the disk (holes not counted)."""
    return sum(p.stat().st_blocks * 512 for p in folder.rglob("*") if p.is_file())


def memory_available() -> int:
    """Bytes of memory that could be had without swapping; 0 where that is unknown."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def describe(folder: Path) -> dict[str, Any]:
    """Return the facts of the machine that a reader of the figures needs, without its name."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def versions(packages: list[str]) -> dict[str, str]:
    """Return the installed versions of these packages."""
    import importlib.metadata as metadata

    found = {}
    for package in dict.fromkeys(packages):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
