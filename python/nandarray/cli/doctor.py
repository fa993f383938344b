"""``nandarray doctor``: which paths work on this machine, why one does not, and the cure.

Files, shared memory, NVMe/TCP and the driver of CUDA are tried; the kernel's module and the compiler of CUDA are looked
up. The exit status is 0 where everything works that this machine can have: a missing GPU is no fault, a missing
permission is.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import nandarray
from nandarray import gpu
from nandarray.cli.common import Json, console, print_json, table_of
from nandarray.nvme import connect
from nandarray.urls import shared_url

__all__ = ["Check", "checks", "doctor_command"]


@dataclass(frozen=True)
class Check:
    """One path: its state is ``works``, ``absent`` (this machine or installation has none) or ``fails``."""

    name: str
    state: str
    why: str = ""
    cure: str = ""


def _mapped_file(folder: Path) -> Check:
    path = folder / "doctor.nand"
    with nandarray.open(path, "w") as store:
        store["x"] = np.arange(1000)
    with nandarray.open(path) as store:
        good = np.array_equal(store["x"][:], np.arange(1000))
    return Check("mapped file", "works" if good else "fails", "" if good else "other bytes came back")


def _direct(folder: Path) -> Check:
    path = folder / "direct"
    path.write_bytes(b"x" * 8192)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 4096) as page:
                os.readv(fd, [page])
        finally:
            os.close(fd)
    except OSError as error:
        cure = "put the store on a file system with O_DIRECT (ext4, xfs); others work through the page cache"
        return Check("direct I/O", "absent", f"{folder}: {error.strerror}", cure)
    return Check("direct I/O", "works")


def _shared_memory(folder: Path) -> Check:
    path = folder / "shared.nand"
    name = f"doctor-{os.getpid()}"
    with nandarray.open(path, "w") as store:
        store["x"] = np.arange(1000)
        try:
            server = gpu.serve(store, name, queues=1, depth=8, data_bytes=65536, threads=1, writable=False)
        except nandarray.errors.NandarrayError as error:
            return Check("shared memory", "fails", str(error), "make /dev/shm writable (docker: --ipc, --shm-size)")
        try:
            with nandarray.open(shared_url(name)) as client:
                good = np.array_equal(client.open_array("x").gather([5, 7]), [5, 7])
        finally:
            server.stop()
    return Check("shared memory", "works" if good else "fails", "" if good else "other bytes came back")


def _nvme_tcp(folder: Path) -> Check:
    with nandarray.open(folder / "tcp.nand", "w") as store:
        store["x"] = np.arange(1000)
        try:
            with nandarray.serve(store) as server, connect(server.url) as remote:
                good = np.array_equal(remote["x"][5:8], [5, 6, 7])
        except nandarray.errors.NandarrayError as error:
            return Check("NVMe/TCP", "fails", str(error), "let this process listen on 127.0.0.1 and connect to it")
    return Check("NVMe/TCP", "works" if good else "fails", "" if good else "other bytes came back")


def _nvme_tcp_host(folder: Path) -> Check:
    if not Path("/sys/module/nvme_tcp").exists():
        why = "the kernel's module nvme_tcp is not loaded"
        return Check("NVMe/TCP host", "absent", why, "as root: modprobe nvme-tcp; then nvme connect")
    return Check("NVMe/TCP host", "works")


def _cuda_build(folder: Path) -> Check:
    wheel = importlib.util.find_spec("nvidia")
    roots = list(wheel.submodule_search_locations or []) if wheel else []
    if shutil.which("nvcc") or any(list(Path(root).glob("cu*/bin/nvcc")) for root in roots):
        return Check("CUDA build", "works")
    return Check("CUDA build", "absent", "no nvcc", "pip install nvidia-cuda-nvcc, or `make cuda` in a checkout")


def _cuda_run(folder: Path) -> Check:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Check("CUDA run", "absent", "no driver (libcuda.so.1)", "a machine with a GPU of NVIDIA and its driver")
    code, count = driver.cuInit(0), ctypes.c_int(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code or not count.value:
        return Check("CUDA run", "absent", f"the driver finds no GPU (code {code})", "a GPU, visible to this container")
    return Check("CUDA run", "works", f"{count.value} GPUs")


_ALL: tuple[Callable[[Path], Check], ...] = (
    _mapped_file, _direct, _shared_memory, _nvme_tcp, _nvme_tcp_host, _cuda_build, _cuda_run,
)  # fmt: skip


def checks(folder: Path) -> list[Check]:
    """Try every path, in the order of the table; small files may be made in the folder."""
    found = []
    for check in _ALL:
        try:
            found.append(check(folder))
        except Exception as error:  # the table says what failed; nothing else would
            name = check.__name__.strip("_").replace("_", " ")
            found.append(Check(name, "fails", f"{type(error).__name__}: {error}"))
    return found


def doctor_command(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder whose disk is tried.", exists=True, file_okay=False),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Say which paths work on this machine, and the cure where one does not."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="nandarray-doctor-") as made:
        found = checks(Path(made))
    if as_json:
        print_json([vars(check) for check in found])
    else:
        rows = [(check.name, check.state, check.why, check.cure) for check in found]
        console().print(table_of(("path", "state", "why", "cure"), rows))
    if any(check.state == "fails" for check in found):
        raise typer.Exit(1)
