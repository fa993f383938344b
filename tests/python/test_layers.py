"""The package's layers, read from its imports: arrows point down, the lab uses the public interface.

``ORDER`` lists the parts from the bottom. A module may import modules of its own part and of parts before it. Imports
for types alone are held to the same order, but for the named exceptions. Functions have a limit of lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "nandarray"
#: A distribution of its own that stands on the package, which imports nothing of it.
PAPERS = ROOT / "papers" / "nandarray_papers"

#: Parts of the package from the bottom; the longest name that fits a module is its part.
ORDER = (
    "nandarray.interrupts",
    "nandarray.announce",
    "nandarray._nandarray",
    "nandarray.errors",
    "nandarray.urls",
    "nandarray.inputs",
    "nandarray.holders",
    "nandarray.optional",
    "nandarray.own_folder",
    "nandarray.remote",
    "nandarray.dtypes",
    "nandarray.units",
    "nandarray.present",
    "nandarray.index",
    "nandarray.door",
    "nandarray.device",
    "nandarray.model",
    "nandarray.serving",
    "nandarray.nvme",
    "nandarray.gpu",
    "nandarray.programs.abi",
    "nandarray.programs.operand",
    "nandarray.programs.annotations",
    "nandarray.programs.forms",
    "nandarray.programs.elf",
    "nandarray.programs.compile",
    "nandarray.programs",
    "nandarray.model.accelerator",
    "nandarray.programs.library",
    "nandarray.programs.kernels",
    "nandarray.programs.calls",
    "nandarray.parts",
    "nandarray.array",
    "nandarray.gpu.client",
    "nandarray.nvme.remote",
    "nandarray.parts.store",
    "nandarray.programs.advise",
    "nandarray.interop",
    "nandarray.flight",
    "nandarray",
    "nandarray.lab",
    "nandarray.lab.bundled",
    "nandarray.cli",
    "nandarray.__main__",
    "nandarray_papers",
    "nandarray_papers.experiments",
)

#: Modules that only gather names for users; a lookup loads what it names.
FACADES = {
    "nandarray",
    "nandarray.programs",
    "nandarray.gpu",
    "nandarray.nvme",
    "nandarray.parts",
    "nandarray.flight",
}

#: (importing module or part, imported module or part) -> why the import is for types alone and points up.
TYPES_ONLY = {
    ("nandarray.gpu.server", "nandarray.array.store"): "a server serves a store, which knows nothing of it",
    ("nandarray.nvme.controller", "nandarray.array.store"): "a controller serves a store, which makes it",
    ("nandarray.nvme.server", "nandarray.array.store"): "a server serves a store",
    ("nandarray.programs.compile.native", "nandarray.programs.program"): "a native form is of a program",
}

#: (importing module or part, imported module or part) -> why the import waits inside a function.
INSIDE = {
    ("nandarray.programs.program", "nandarray.programs.timing"): "a timing is of a program, and stands on running it",
    ("nandarray.array.compute", "nandarray.programs"): "start-up: only a computation needs compilers",
    ("nandarray.array.methods", "nandarray.array.lazy"): "a conversion has the methods, one of which makes it",
    ("nandarray.array.group", "nandarray.array.copying"): "a copy makes groups and arrays, which offer it",
    ("nandarray.array.members", "nandarray.array.ragged"): "a ragged array is a group, and knows groups",
    ("nandarray.array.group", "nandarray.array.ragged"): "a ragged array is a group, and knows groups",
    ("nandarray.array.group", "nandarray.array.ragged_values"): "start-up: few assign rows of different lengths",
    ("nandarray.array.members", "nandarray.array.ragged_creation"): "a ragged array is a group, and knows groups",
    ("nandarray.array.group", "nandarray.array.ragged_creation"): "a ragged array is a group, and knows groups",
    ("nandarray.array.served", "nandarray.gpu"): "start-up: only a served store has a client",
    ("nandarray.array.opening", "nandarray.parts"): "start-up: only a folder has parts",
    ("nandarray.array.opening", "nandarray.device"): "start-up: only a modelled store has a device",
    ("nandarray.array.opening", "nandarray.remote.source"): "start-up: few stores are far away",
    ("nandarray.array.store", "nandarray.model.clock"): "start-up: only a modelled store has a clock",
    ("nandarray.array.store", "nandarray.array.session"): "start-up: few programs run kernels",
    ("nandarray.array.store", "nandarray.nvme"): "start-up: few hosts speak NVMe",
    ("nandarray.array.served", "nandarray.nvme"): "start-up: only a URL opens a drive",
    ("nandarray.array.pickling", "nandarray"): "unpickling opens a store; opening needs the store, which pickles",
    ("nandarray.programs.compile.functions", "nandarray.programs.compile.riscv"): "Numba takes a second to import",
    ("nandarray.programs.compile.functions", "nandarray.programs.compile.streams"): "Numba takes a second to import",
    ("nandarray.programs.compile.loops", "nandarray.programs.compile.riscv"): "Numba takes a second to import",
    ("nandarray.programs.step", "nandarray.programs.run"): "`step.run()` is a short cut to what runs steps",
    ("nandarray.programs.step", "nandarray.programs.fields"): "a field becomes a step of a program of its own",
    ("nandarray.interop.tables.table", "nandarray.interop.tables.dataset"): "only engines need Arrow's datasets",
    ("nandarray.model.replay", "nandarray.model.replay_html"): "only a notebook needs HTML",
    (
        "nandarray.programs.program",
        "nandarray.programs.compile.functions",
    ): "start-up: only functions of Python need it",
    ("nandarray.programs.compile.native", "nandarray.programs.compile.functions"): "start-up, as above",
    ("nandarray.lab", "nandarray.lab._html"): "only a notebook needs HTML",
    ("nandarray_papers.workloads", "nandarray_papers.workloads._loops"): "Numba takes a second to import",
    ("nandarray.cli", "nandarray"): "a command loads what it uses, so that help and completion stay fast",
}

#: The lab stands on these, as a user's program would, and on the package's words for sizes and tables.
PUBLIC = {
    "nandarray.array.session",
    "nandarray",
    "nandarray.device",
    "nandarray.errors",
    "nandarray.interop.tables",
    "nandarray.lab",
    "nandarray.gpu",
    "nandarray.inputs",
    "nandarray.model.accelerator",
    "nandarray.model.fetch",
    "nandarray.holders",
    "nandarray.optional",
    "nandarray.programs.advise.paper",
    "nandarray.programs.advise.samples",
    "nandarray.programs.advise.simulate",
    "nandarray.programs.kernels",
    "nandarray.programs.kernels.samples",
    "nandarray.present.html",
    "nandarray.programs",
    "nandarray.present.palette",
    "nandarray.units",
}
#: Modules of the lab that write folders or draw; experiments use none of them.
WRITES = (
    "nandarray.lab.write_run",
    "nandarray.lab.write_result",
    "nandarray.lab.read_run",
    "nandarray.lab.write_sweep",
    "nandarray.lab.read_sweep",
    "nandarray.lab._html",
    "nandarray.lab.report",
)

#: Parts that speak to the native store behind a store (`store._engine`); all others use its methods.
NATIVE = (
    "nandarray.gpu.server",
    "nandarray.array",
    "nandarray.interop",
    "nandarray.model.clock",
    "nandarray.nvme",
    "nandarray.programs.run",
    "nandarray.programs.storeless",
)

PACKAGES = {"nandarray", "nandarray_papers"}

LINES_MAX = 70
#: Function -> why it is longer.
LONG = {
    "tests/python/arch_compressed.py:make": "a case for each format of instructions",
    "tests/python/arch_operands.py:specials": "a list of numbers",
    "tests/python/arch_system.py:traps": "a list of words",
    "bench/offload.py:_numba": "kernels that Numba compiles for the constants of one array",
}


@dataclass(frozen=True)
class Import:
    """An import of a module of the package."""

    line: int
    target: str
    inside: bool
    types_only: bool


def modules() -> dict[str, Path]:
    """Names of all modules of the package and of the papers, with their files."""
    found = {}
    for package in (PACKAGE, PAPERS):
        for path in sorted(package.rglob("*.py")):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[Import]:
    """All imports of the package's modules in a file."""

    def walk(node: ast.AST, *, inside: bool, types_only: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] in PACKAGES:
                for alias in child.names:
                    whole = f"{child.module}.{alias.name}"
                    is_module = whole in MODULES or alias.name == "_nandarray"
                    yield Import(child.lineno, whole if is_module else str(child.module), inside, types_only)
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    if alias.name.split(".")[0] in PACKAGES:
                        yield Import(child.lineno, alias.name, inside, types_only)
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from walk(child, inside=inside or function, types_only=types_only or checking)

    yield from walk(ast.parse(path.read_text()), inside=False, types_only=False)


def part_of(module: str) -> str:
    """The part of the package that a module belongs to."""
    return max((part for part in ORDER if below(module, part)), key=len)


def below(module: str, part: str) -> bool:
    """Whether a module is of a part, or below it."""
    return module == part or module.startswith(f"{part}.")


def excepted(exceptions: dict[tuple[str, str], str], module: str, target: str) -> bool:
    return any(below(module, here) and below(target, there) for here, there in exceptions)


def test_every_module_has_a_part() -> None:
    strays = [name for name in MODULES if part_of(name) == "nandarray" and name != "nandarray"]
    assert not strays, "modules without a part: put them into a folder, or name them in ORDER"


def test_imports_point_down() -> None:
    wrong = []
    for name, path in MODULES.items():
        for one in imports(path):
            if name in FACADES or (one.types_only and excepted(TYPES_ONLY, name, one.target)):
                continue
            if one.inside and excepted(INSIDE, name, one.target):
                continue
            if ORDER.index(part_of(one.target)) > ORDER.index(part_of(name)):
                wrong.append(f"{path.relative_to(ROOT)}:{one.line}: {part_of(name)} is below {one.target}")
    assert not wrong, "\n".join(wrong)


def test_functions_import_nothing_of_the_package() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.target} is imported inside a function, without a reason in INSIDE"
        for name, path in MODULES.items()
        for one in imports(path)
        if one.inside and not excepted(INSIDE, name, one.target)
    ]
    assert not wrong, "\n".join(wrong)


def test_exceptions_are_needed() -> None:
    found = [(name, one) for name, path in MODULES.items() for one in imports(path)]
    for exceptions, kind in ((TYPES_ONLY, "types_only"), (INSIDE, "inside")):
        for here, there in exceptions:
            used = any(getattr(one, kind) and below(name, here) and below(one.target, there) for name, one in found)
            assert used, f"({here}, {there}) is not needed"


def test_there_is_no_circle_at_import_time() -> None:
    graph = {
        name: {one.target for one in imports(path) if not one.inside and not one.types_only} - {name}
        for name, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' -> '.join([*above[above.index(name) :], name])}"
        if name in done:
            return
        for target in sorted(graph.get(name, ())):
            visit(target, (*above, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_the_lab_uses_the_public_interface() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.target}"
        for name, path in MODULES.items()
        if below(name, "nandarray.lab") or below(name, "nandarray_papers")
        for one in imports(path)
        if one.target not in PUBLIC and not one.target.startswith(("nandarray.lab", "nandarray_papers"))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_product_imports_nothing_of_the_papers() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.target}"
        for name, path in MODULES.items()
        if below(name, "nandarray")
        for one in imports(path)
        if below(one.target, "nandarray_papers")
    ]
    assert not wrong, "\n".join(wrong)
    texts = [path for path in sorted(PACKAGE.rglob("*")) if path.suffix in {".toml", ".c", ".h", ".hpp", ".j2", ".js"}]
    assert not [path for path in texts if "nandarray_papers" in path.read_text(encoding="utf-8")]


def test_experiments_write_and_draw_nothing() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.target}"
        for name, path in MODULES.items()
        if below(name, "nandarray_papers") or below(name, "nandarray.lab.bundled")
        for one in imports(path)
        if one.target.startswith(WRITES)
    ]
    assert not wrong, "\n".join(wrong)


def test_few_parts_speak_to_the_native_store() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for name, path in MODULES.items()
        if not name.startswith(NATIVE)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "_engine"
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["python", "papers", "tests/python", "bench", "examples", "tools"])
def test_functions_are_short(folder: str) -> None:
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                text = ast.get_docstring(node, clean=False)
                documented = 0 if text is None else (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                lines = (node.end_lineno or 0) - first + 1 - documented
                name = f"{path.relative_to(ROOT)}:{node.name}"
                if lines > LINES_MAX and name not in LONG:
                    wrong.append(f"{name} has {lines} lines beside its docstring, {LINES_MAX} are allowed")
    assert not wrong, "\n".join(wrong)
