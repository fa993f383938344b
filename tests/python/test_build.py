"""The build of the tests: one compilation for the native module and the tests of cargo; the slowest tests by name."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def features(*selection: str) -> dict[str, str]:
    """Features of each package that a build compiles."""
    command = [
        "cargo",
        "tree",
        "--offline",
        "--locked",
        "--prefix",
        "none",
        "--no-dedupe",
        "-f",
        "{p}\t{f}",
        *selection,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not on the path")
def test_the_native_module_and_the_tests_compile_the_engine_once() -> None:
    module = features("-p", "nandarray-python", "-e", "normal,build")
    tests = features("--workspace", "-e", "normal,build,dev")
    # `getrandom` is a part of the NVMe crate alone: sharing it would bring another random generator into the product.
    different = {name: (wanted, tests[name]) for name, wanted in module.items() if wanted != tests[name]}
    assert {name.split()[0] for name in different} <= {"getrandom"}, different


def test_the_summary_names_the_slowest_tests() -> None:
    spec = importlib.util.spec_from_file_location("run_all_tests", ROOT / "tests" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    lines = [
        "     Running unittests src/lib.rs (target/debug/deps/nandarray-1)",
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.50s",
        "     Running tests/agree.rs (target/debug/deps/agree-2)",
        "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        "12.25s call     tests/python/test_x.py::test_y[1]",
        "0.50s setup    tests/python/test_x.py::test_z",
    ]
    assert module.slow_tests(lines) == [
        (2.5, "all of src/lib.rs"),
        (1.0, "all of tests/agree.rs"),
        (12.25, "tests/python/test_x.py::test_y[1]"),
        (0.5, "tests/python/test_x.py::test_z (setup)"),
    ]


def test_the_papers_are_a_distribution_with_their_data(tmp_path: Path) -> None:
    """Its version is the product's, and a wheel of it has the files beside the modules."""
    about = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text())["project"]
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    assert about["version"] == workspace["version"]
    uv = shutil.which("uv") or pytest.skip("uv is not on the path")
    command = [uv, "build", "--offline", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(ROOT / "papers")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    kept = {".py", ".toml", ".sql", ".cpp", ".hpp"}
    tree = ROOT / "papers" / "nandarray_papers"
    wanted = {str(path.relative_to(tree.parent)) for path in tree.rglob("*") if path.suffix in kept}
    assert wanted <= names
    assert {"nandarray_papers/bam/native/record.cpp", "nandarray_papers/tpch/queries.sql"} <= names
