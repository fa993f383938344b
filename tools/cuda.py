"""Compile every kernel for three architectures, by nvcc and by NVRTC; print registers and spills.

    python tools/cuda.py [--folder FOLDER] [--record]

Kernels are those of ``tests/gpu`` and ``bench/gpu``. The compilers come from wheels, which are fetched to FOLDER once
(300 MB). Without them, off line, this says so and ends with 0. No kernel is run. A spill, or more registers than
`tests/gpu/registers.json` has for the kernel, ends with 1; `--record` writes that table anew, which a test reads
(`tests/python/test_cuda_registers.py`).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "python" / "nandarray" / "gpu" / "include"
#: Sources: examples of kernels, and the kernels of `python -m bench gpu`.
SOURCES = (ROOT / "tests" / "gpu" / "kernels.cu", ROOT / "bench" / "gpu" / "kernels.cu")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-nvrtc")
#: The most registers of a kernel: two blocks of 256 threads fit a multiprocessor.
REGISTERS_MAX = 128
#: Registers of each kernel for each architecture, as recorded.
RECORDED = ROOT / "tests" / "gpu" / "registers.json"


def installed() -> Path | None:
    """Return the folder of a toolkit of the system; None without one."""
    said = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    return Path(said).resolve().parents[1] if said else None


def toolkit(folder: Path) -> Path | None:
    """Return a toolkit's folder from wheels: installed ones, or ones fetched to ``folder``; None without any."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    for root in (*roots, folder / "nvidia"):
        if found := sorted(root.glob("cu*/bin/nvcc")):
            return found[-1].parents[1]
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *WHEELS]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        return None
    return next((nvcc.parents[1] for nvcc in sorted((folder / "nvidia").glob("cu*/bin/nvcc"))), None)


def nvcc(home: Path, architecture: str, source: Path, cubin: Path) -> list[str]:
    """Return the command that compiles kernels for one architecture."""
    command = [str(home / "bin" / "nvcc"), "-std=c++17", f"-arch={architecture}", "-cubin", "-Xptxas", "-v"]
    return [*command, f"-I{INCLUDE}", str(source), "-o", str(cubin)]


def by_nvcc(home: Path, architecture: str, source: Path) -> list[tuple[str, int, int]]:
    """Return name, registers and spilled bytes of each kernel."""
    with tempfile.TemporaryDirectory() as folder:
        command = nvcc(home, architecture, source, Path(folder) / "kernels.cubin")
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = []
    for part in re.split(r"Compiling entry function '", done.stderr)[1:]:
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", part))
        registers = re.search(r"Used (\d+) registers", part)
        rows.append((part.split("'")[0], int(registers[1]) if registers else 0, spills))
    return rows


def by_nvrtc(home: Path, architecture: str, source: Path) -> str:
    """Compile at run time, as a program without nvcc does; "" or the compiler's message."""
    builtins = sorted((home / "lib").glob("libnvrtc-builtins.so*"))
    library = sorted((home / "lib").glob("libnvrtc.so*"))
    if not builtins or not library:
        return "no NVRTC"
    ctypes.CDLL(str(builtins[0]), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(library[0]))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), b"kernels.cu", 0, None, None)
    words = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    words += [f"-I{folder}".encode() for folder in (INCLUDE, source.parent)]
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
    parser.add_argument("--record", action="store_true", help="write the table of registers anew")
    options = parser.parse_args()
    home = toolkit(options.folder)
    if home is None:
        print("skipped: no nvcc, and its wheels cannot be fetched")
        return 0
    bad = 0
    recorded = json.loads(RECORDED.read_text())["registers"] if RECORDED.exists() and not options.record else {}
    table: dict[str, dict[str, int]] = {}
    print("| kernel | architecture | registers | spilled bytes |\n| --- | --- | --- | --- |")
    for source, architecture in itertools.product(SOURCES, ARCHITECTURES):
        for name, registers, spills in by_nvcc(home, architecture, source):
            print(f"| {name} | {architecture} | {registers} | {spills} |")
            most = recorded.get(name, {}).get(architecture, REGISTERS_MAX)
            if spills > 0 or registers > most:
                print(f"{name}, {architecture}: at most {most} registers and no spills")
                bad += 1
            table.setdefault(name, {})[architecture] = registers
        if message := by_nvrtc(home, architecture, source):
            print(f"NVRTC, {source.name}, {architecture}: {message}")
            bad += 1
    if options.record and not bad:
        said = subprocess.run([home / "bin" / "nvcc", "--version"], capture_output=True, text=True, check=True).stdout
        compiler = re.search(r"release [\d.]+, V[\d.]+", said)
        found = {"compiler": compiler[0] if compiler else "unknown", "spilled_bytes": 0, "registers": table}
        RECORDED.write_text(json.dumps(found, indent=2) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
