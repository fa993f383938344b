"""The compiler and linker that the ``ziglang`` wheel carries: Clang, LLD and the sources of a C library's mathematics.

Clang and LLD are called directly (``zig clang``, ``zig ld.lld``), so nothing but the object and the ELF is made; only
the support libraries (:func:`support`) are built by Zig itself, once a target, when a program first calls a function
that it does not define. Nothing of the system is read: no headers, no libraries.

This module runs tools and reads what they say. It knows no programs.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nandarray.errors import CompileError, InvalidError
from nandarray.optional import cure
from nandarray.own_folder import make_folder
from nandarray.programs.compile.cache import digest, folder, installed, keep, kept
from nandarray.programs.compile.scratch import folder as scratch_folder

__all__ = [
    "INCLUDE",
    "OPTIONS",
    "TARGETS",
    "Target",
    "compile_c",
    "compile_ir",
    "fits",
    "run",
    "runtime",
    "summary",
    "support",
    "target_for",
    "undefined",
    "version",
]

INCLUDE = Path(__file__).parent / "include"

_DIAGNOSTIC = re.compile(r"^(.+?):(\d+):(\d+): (?:fatal )?(error|warning): (.*)$", re.MULTILINE)
UNDEFINED = re.compile(r"undefined (?:\w+ )?symbol: (\S+)")


@dataclass(frozen=True)
class Target:
    """A processor to compile for."""

    name: str
    bits: int
    isa: str
    abi: str
    zig_cpu: str

    @property
    def triple(self) -> str:
        """LLVM's name of the target."""
        return f"riscv{self.bits}-unknown-elf"

    @property
    def words(self) -> tuple[str, ...]:
        """Clang's options for this processor."""
        return ("-target", self.triple, f"-march={self.isa}", f"-mabi={self.abi}", "-mcmodel=medany", "-fno-pic")

    @property
    def machine(self) -> str:
        """The processor's name in musl."""
        return f"riscv{self.bits}"

    @property
    def general(self) -> tuple[str, ...]:
        """Zig's options beside the processor's name."""
        return ()


TARGETS = {
    "rv64": Target("rv64", 64, "rv64imafdc_zba_zbb_zbs", "lp64d", "generic_rv64+m+a+f+d+c+zba+zbb+zbs"),
    **{
        f"rv64gcv{vlen}": Target(
            f"rv64gcv{vlen}",
            64,
            f"rv64imafdcv_zba_zbb_zbs{vlen}",
            "lp64d",
            f"generic_rv64+m+a+f+d+c+v+zba+zbb+zbs{vlen.replace('_', '+')}",
        )
        for vlen in ("", "_zvl256b", "_zvl512b", "_zvl1024b")
    },
    "rv32gc_zve32f": Target(
        "rv32gc_zve32f",
        32,
        "rv32imafdc_zba_zbb_zbs_zve32f_zvl128b",
        "ilp32d",
        "generic_rv32+m+a+f+d+c+zba+zbb+zbs+zve32f+zvl128b",
    ),
    "rv32": Target("rv32", 32, "rv32imafdc_zba_zbb_zbs", "ilp32d", "generic_rv32+m+a+f+d+c+zba+zbb+zbs"),
}

#: Instruction sets of described cores: letters of extensions, without Zb*.
_LETTERS = ("i", "im", "imc", "ima", "imac", "imf", "imfc", "imaf", "imafc", "imfd", "imfdc", "imafd", "imafdc")


def _plain_target(bits: int, letters: str) -> Target:
    floats = "d" if "d" in letters else "f" if "f" in letters else ""
    cpu = "".join(f"+{letter}" for letter in letters[1:])
    abi = ("lp64" if bits == 64 else "ilp32") + floats  # noqa: PLR2004
    return Target(f"rv{bits}{letters}", bits, f"rv{bits}{letters}_zicsr", abi, f"generic_rv{bits}{cpu}")


TARGETS |= {f"rv{bits}{letters}": _plain_target(bits, letters) for bits in (32, 64) for letters in _LETTERS}


def _named(isa: str) -> tuple[int, set[str]]:
    """Read an architecture such as ``rv32im`` or ``rv64i2p1_m2p0``: bits and extensions, without those of CSRs."""
    bits, rest = int(isa[2:4]), isa[4:].replace("g", "imafd")
    first, *others = re.split(r"_+", re.sub(r"\d+(p\d+)?", "_", rest))
    names = set(first)
    for other in others:
        names |= {other} if other[:1] in {"z", "s", "x"} else set(other)
    names |= {"f"} if "d" in names else set()
    return bits, names - {"zicsr", "zifencei", "zmmul", "zca", "zcd", "zcf", "zaamo", "zalrsc", "zicntr"}


def fits(isa: str, core: str) -> bool:
    """Return whether a core has all that the architecture of a program names."""
    (bits, needed), (width, has) = _named(isa), _named(core)
    return bits == width and needed <= has


def target_for(isa: str) -> Target:
    """Return the one of :data:`TARGETS` that uses most of a core's instruction set, and nothing beyond."""
    return max((one for one in TARGETS.values() if fits(one.isa, isa)), key=lambda one: len(_named(one.isa)[1]))


# Contraction to fused multiply-add is off, so that results are those of NumPy; without errno, sqrt is an instruction.
_CODE = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-ffunction-sections", "-fdata-sections")
_PLAIN = ("-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fno-ident")

_NOTES = ("-std=gnu11", "-gline-tables-only", "-fdebug-compilation-dir=.", "-Wall", "-fno-color-diagnostics")
#: Options of all compilations; part of a program's key in the cache.
OPTIONS = (*_CODE, *_PLAIN, *_NOTES)


@cache
def home() -> Path:
    """Return the folder of the package ``ziglang``."""
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"this needs ziglang, which is not installed: {cure('programs')}")
    return Path(found.submodule_search_locations[0])


@cache
def version() -> str:
    """Return the compiler's version, part of what a compiled program follows from; without it, raise ImportError."""
    home()
    return installed("ziglang")


def run(words: Sequence[str | Path], *, cwd: Path | None = None, scratch: Path | None = None) -> tuple[int, str]:
    """Run a tool of the wheel; its exit status and all that it says."""
    import subprocess

    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    if scratch is not None:
        environment |= {"ZIG_GLOBAL_CACHE_DIR": str(scratch), "ZIG_LOCAL_CACHE_DIR": str(scratch), "HOME": str(scratch)}
    try:
        ran = subprocess.run(
            [str(home() / "zig"), *map(str, words)],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        length = max(len(str(word)) for word in words)
        raise InvalidError(f"constants of a program must fit a command line, and one has {length} characters") from None
    return ran.returncode, ran.stdout.decode("utf-8", "replace")


def _system(target: Target) -> list[str | Path]:
    headers = home() / "lib" / "libc" / "include"
    found: list[str | Path] = ["-nostdinc"]
    for path in (home() / "lib" / "include", headers / f"{target.machine}-linux-musl", headers / "generic-musl"):
        found += ["-isystem", path]
    return found


def compile_c(
    source: Path, output: Path, target: Target, *, flags: Sequence[str] = (), shown: tuple[str, str] | None = None
) -> tuple[str, list[str]]:
    """Compile a C file to an object; return warnings, and the paths of all files that were read but for the system's.

    ``flags`` of Clang come last. In messages the first text of ``shown`` is replaced by the second, a path that the
    user knows. A source that is not C, or uses what is not there, is a CompileError.
    """
    depends = output.with_suffix(".d")
    words: list[str | Path] = ["clang", *target.words]
    words += [*OPTIONS, "-MMD", "-MF", depends, "-I", INCLUDE, *_system(target), *flags]
    status, said = run([*words, "-c", source, "-o", output])
    name = str(source)
    if shown is not None:
        said, name = said.replace(*shown), shown[1]
    if status != 0:
        raise CompileError(summary(f"{name} does not compile", said), diagnostics=_diagnostics(said), output=said)
    return said, _files(depends.read_text())


def compile_ir(source: Path, output: Path, target: Target, *, flags: Sequence[str] = ()) -> str:
    """Compile a file of LLVM's intermediate representation (``.ll``) to an object; give what Clang remarks.

    If Clang refuses it, that is a CompileError.
    """
    words: list[str | Path] = ["clang", *target.words]
    status, said = run([*words, *_CODE, *_PLAIN, "-Wno-override-module", *flags, "-c", source, "-o", output])
    if status != 0:
        raise CompileError(summary("the typed function does not compile", said), output=said)
    return said


def runtime(target: Target) -> Path:
    """Return the object that programs from Python are linked with: memory functions, Numba's helpers.

    If there is no place to keep it, an OSError is raised.
    """
    parts = [(INCLUDE / name).read_bytes() for name in ("nandarray.h", "nandarray_native.h", "runtime.c")]
    made = folder() / "support" / f"kept-runtime-{target.name}-{digest([version(), target, OPTIONS, *parts])[:16]}.o"
    found = kept(made)
    if found is None:
        with scratch_folder() as place:
            compile_c(INCLUDE / "runtime.c", place / "runtime.o", target, flags=["-g0"])
            found = keep(made, (place / "runtime.o").read_bytes())
    return found


# --- support libraries ------------------------------------------------------------------------------------------------


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold off other processes that would do the same."""
    make_folder(path.parent)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def support(target: Target) -> list[Path]:
    """Return the support libraries: ``<math.h>``, and the compiler's own arithmetic.

    They are built whole from the sources in the wheel (musl's, Zig's), in some seconds, and kept beside the compiled
    programs; only if :mod:`nandarray.programs.compile.mathematics` did not know what was missing. If they do not build,
    that is a CompileError; if there is no place to keep them, an OSError.
    """
    where = folder() / "support" / f"{target.name}-{support_key(target)}"
    wanted = [where / "libmath.a", where / "libcompiler.a"]
    if all(path.exists() for path in wanted):
        return wanted
    with _alone(where.with_suffix(".lock")):
        if not all(path.exists() for path in wanted):
            scratch = Path(tempfile.mkdtemp(dir=where.parent, prefix=".build-"))
            try:
                _build_support(target, scratch)
                made = scratch / "made"
                shutil.rmtree(where, ignore_errors=True)
                os.replace(made, where)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return wanted


def _build_support(target: Target, scratch: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    lib = home() / "lib"
    objects, made = scratch / "objects", scratch / "made"
    objects.mkdir()
    made.mkdir()
    compiler = [lib / "compiler_rt.zig", "--name", "compiler", *zig_words("compiler_rt.zig", target)]
    with ThreadPoolExecutor(3) as pool:
        jobs = [
            ("musl's mathematics", pool.submit(run, [*musl_words(target), "-c", *musl_sources(target)], cwd=objects)),
            (
                "the compiler's library",
                pool.submit(run, ["build-lib", *compiler], cwd=made, scratch=scratch),
            ),
        ]
        if (lib / "c.zig").exists():  # newer wheels have part of these functions in Zig instead
            words = ["build-obj", lib / "c.zig", "--name", "zigc", *zig_words("c.zig", target)]
            job = pool.submit(run, words, cwd=objects, scratch=scratch)
            jobs.append(("Zig's C library", job))
        for what, job in jobs:
            checked(job.result(), what)
    checked(run(["ar", "rcs", made / "libmath.a", *sorted(objects.glob("*.o"))]), "the mathematics' archive")


def support_key(target: Target) -> str:
    """Return a short digest of the inputs of the support libraries."""
    return digest([version(), target, _CODE])[:16]


def musl_sources(target: Target) -> list[Path]:
    """Return the files of musl's mathematics for a processor."""
    own = home() / "lib" / "libc" / "musl" / "src" / "math"
    sources = {path.stem: path for path in sorted(own.glob("*.c"))}
    if target.machine.startswith("riscv"):  # single instructions; elsewhere they may differ in zeros and NaNs
        sources |= {path.stem: path for path in sorted((own / target.machine).glob("*.c"))}
    # long double is not supported: it would be software, and NumPy's differs between machines.
    return [path for name, path in sources.items() if not (name.endswith("l") and name[:-1] in sources)]


def musl_words(target: Target) -> list[str | Path]:
    """Return the words of a command that compiles files of musl's to objects."""
    musl = home() / "lib" / "libc" / "musl"
    words: list[str | Path] = ["clang", *target.words, "-target", f"{target.machine}-unknown-linux-musl"]
    words += ["-std=c99", "-w", "-D_XOPEN_SOURCE=700", *_CODE, *_PLAIN, "-nostdinc"]
    inside = (f"arch/{target.machine}", "arch/generic", "src/include", "src/internal", "include")
    return [*words, *(f"-I{musl / part}" for part in inside), *_system(target)[1:]]


def zig_words(root: str, target: Target) -> list[str | Path]:
    """Return the words behind those that name a library in Zig."""
    words: list[str | Path] = [f"-mcpu={target.zig_cpu}", "-OReleaseFast", "-fstrip"]
    words += ["-ffunction-sections", "-fdata-sections", *target.general]
    if root == "c.zig":
        return [*words, "-lc", "-target", f"{target.machine}-linux-musl", "-fno-stack-check"]
    return [*words, "-target", f"{target.machine}-freestanding-none"]


def checked(ran: tuple[int, str], what: str) -> None:
    """Raise what a tool that failed said."""
    status, said = ran
    if status != 0:
        raise CompileError(summary(f"{what} does not build with ziglang {version()}", said), output=said)


# --- what the tools say -----------------------------------------------------------------------------------------------


def _diagnostics(said: str) -> list[dict[str, object]]:
    return [
        {"file": file, "line": int(line), "column": int(column), "severity": severity, "text": text}
        for file, line, column, severity, text in _DIAGNOSTIC.findall(said)
    ]


def undefined(said: str) -> set[str]:
    """Return the names that the linker said nothing defines."""
    return set(UNDEFINED.findall(said))


def summary(what: str, said: str) -> str:
    """Return the first lines of a tool's output below a heading."""
    lines = said.strip().splitlines()
    return "\n".join([f"{what}:", *lines[:30], *(["..."] if len(lines) > 30 else [])])  # noqa: PLR2004


def _files(makefile: str) -> list[str]:
    """Read the prerequisites of a rule that Clang wrote."""
    _, _, listed = makefile.replace("\\\n", " ").partition(": ")
    names = [name.replace("\\ ", " ").replace("$$", "$") for name in re.split(r"(?<!\\)\s+", listed.strip()) if name]
    return [os.path.abspath(name) for name in names]
