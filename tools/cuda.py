"""Compile every kernel of ``tests/gpu`` for three architectures, by nvcc and by NVRTC; print registers and spills.

    python tools/cuda.py [--folder FOLDER]

The compilers come from wheels, which are fetched to FOLDER once (300 MB). Without them, off line, this says so and ends
with 0. No kernel is run. A spill, or more registers than the budget, ends with 1.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "python" / "nandarray" / "gpu" / "include"
KERNELS = ROOT / "tests" / "gpu" / "kernels.cu"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvrtc")
#: The most registers of a kernel: two blocks of 256 threads fit a multiprocessor.
REGISTERS_MAX = 128


def toolkit(folder: Path) -> Path | None:
    """Return the toolkit's folder: an installed one, or one fetched to ``folder``; None without any."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    for root in (*roots, folder / "nvidia"):
        if found := sorted(root.glob("cu*/bin/nvcc")):
            return found[-1].parents[1]
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *WHEELS]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        return None
    return next((nvcc.parents[1] for nvcc in sorted((folder / "nvidia").glob("cu*/bin/nvcc"))), None)


def by_nvcc(home: Path, architecture: str) -> list[tuple[str, int, int]]:
    """Return name, registers and spilled bytes of each kernel."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(home / "bin" / "nvcc"), "-std=c++17", f"-arch={architecture}", "-cubin", "-Xptxas", "-v"]
        command += [f"-I{INCLUDE}", str(KERNELS), "-o", f"{folder}/kernels.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = []
    for part in re.split(r"Compiling entry function '", done.stderr)[1:]:
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", part))
        registers = re.search(r"Used (\d+) registers", part)
        rows.append((part.split("'")[0], int(registers[1]) if registers else 0, spills))
    return rows


def by_nvrtc(home: Path, architecture: str) -> str:
    """Compile at run time, as a program without nvcc does; "" or the compiler's message."""
    builtins = sorted((home / "lib").glob("libnvrtc-builtins.so*"))
    library = sorted((home / "lib").glob("libnvrtc.so*"))
    if not builtins or not library:
        return "no NVRTC"
    ctypes.CDLL(str(builtins[0]), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(library[0]))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNELS.read_bytes(), b"kernels.cu", 0, None, None)
    words = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", f"-I{INCLUDE}".encode()]
    if nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)) == 0:
        return ""
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.value.decode()


def main() -> int:
    """Compile and print."""
    parser = argparse.ArgumentParser(description="compile the kernels for three architectures")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "cuda", help="where wheels are fetched to")
    home = toolkit(parser.parse_args().folder)
    if home is None:
        print("skipped: no nvcc, and its wheels cannot be fetched")
        return 0
    bad = 0
    print("| kernel | architecture | registers | spilled bytes |\n| --- | --- | --- | --- |")
    for architecture in ARCHITECTURES:
        for name, registers, spills in by_nvcc(home, architecture):
            print(f"| {name} | {architecture} | {registers} | {spills} |")
            bad += spills > 0 or registers > REGISTERS_MAX
        if message := by_nvrtc(home, architecture):
            print(f"NVRTC, {architecture}: {message}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
