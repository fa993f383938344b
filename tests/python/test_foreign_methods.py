"""Every public method of what stands in for another library's class, and of every handle: no signal, a clear error.

``called_apart.py`` calls the methods that it finds, in a process of its own, with good and odd arguments.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from called_apart import SUBJECTS

import nandarray.interop

SCRIPT = Path(__file__).with_name("called_apart.py")

#: Subjects of which a method's errors may be those of the class that it stands in for.
FOREIGN = {
    "TableDataset": "pyarrow",
    "TableFragment": "pyarrow",
    "Scanner": "pyarrow",
    "Dask's reader": "dask",
    "NandarrayBackendEntrypoint": "xarray",
    "xarray's array": "xarray",
    "xarray's array of a view": "xarray",
    "xarray's store": "xarray",
    "xarray's store of a field": "xarray",
    "xarray's file": "xarray",
    "Zarr's store": "zarr",
    "Zarr's store of a file in place": "zarr",
    "File object of ranges": "obstore",
    "Dask's plugin": "distributed",
    "Spark's source": "pyspark",
    "Spark's reader": "pyspark",
    "Spark's reader with filters": "pyspark",
    "Spark's writer": "pyspark",
    "Spark's writer in a store of parts": "pyspark",
}
#: Libraries that `make test` does not install, with the modules that need them.
ABSENT = {"pyspark": "nandarray.interop.spark"} if importlib.util.find_spec("pyspark") is None else {}
#: Errors that tell of a fault, of ours or of another library.
FAULTS = {
    "AssertionError", "AttributeError", "InternalError", "NotImplementedError", "RecursionError", "SystemError",
    "NameError", "UnboundLocalError", "ZeroDivisionError", "FileNotFoundError",
}  # fmt: skip
#: What NumPy raises for these, arrays raise, too; of a store that is written there is no copy.
PYTHONS = {"__bool__", "__int__", "__float__", "__index__", "__len__", "__iter__", "__eq__", "__ne__", "__copy__"}

#: Methods that call a function of their caller, whose errors are the caller's.
CALLING = {"visit", "visititems"}


def outcomes(subject: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Call every method of a subject; a method that ends the process fails the test by its name."""
    command = [sys.executable, str(SCRIPT), subject, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    last = lines[-1] if lines else {}
    where = f"{subject}: {last.get('begins')} ended the process"
    assert done.returncode == 0, f"{where} by {done.returncode}: {done.stderr}"
    return {line["ended"]: line["errors"] for line in lines if "ended" in line}


def own(method: str, error: dict[str, Any]) -> bool:
    """Whether an error is one of ours; or Python's, of a call that does not fit the method."""
    kinds = error["kinds"]
    if method in CALLING and "odd.<locals>.<lambda>" in error["text"]:
        return True  # the caller's own function
    if method in PYTHONS and {"TypeError", "ValueError"} & set(kinds):
        return True
    return "NandarrayError" in kinds or (error["bound"] and "TypeError" in kinds)


#: Subjects of which only methods of their own class are judged, not those of the other library's base.
OWN = {
    "Zarr's store": ("nandarray.interop.zarr_store", "ZarrStore"),
    "Zarr's store of a file in place": ("nandarray.interop.foreign.zarr_objects", "ZarrObjects"),
    "File object of ranges": ("nandarray.interop.foreign.far", "RangeFile"),
}


def is_own(subject: str, method: str) -> bool:
    """Whether a method is not that of a base of another library."""
    if subject not in OWN:
        return True
    module, name = OWN[subject]
    return method in vars(getattr(importlib.import_module(module), name))


#: Standard modules whose classes stand in for no library's.
PLAIN = {"_ctypes", "abc", "builtins", "collections", "dataclasses", "enum", "nandarray", "typing"}


def test_every_class_that_stands_in_for_another_librarys_is_a_subject(tmp_path: Path) -> None:
    subjects = [subject for subject, library in FOREIGN.items() if library not in ABSENT]
    for library in {FOREIGN[subject] for subject in subjects}:
        pytest.importorskip(library)
    # Arrow's C++ alone calls `_NoFiles`, through a TableDataset; Spark's two have no methods.
    known = {
        "_NoFiles",
        "TablePartition",
        "Staged",
        *(type(SUBJECTS[subject](tmp_path)).__name__ for subject in subjects),
    }
    missing = []
    for module in pkgutil.walk_packages(nandarray.interop.__path__, "nandarray.interop."):
        if module.name.startswith(tuple(ABSENT.values())):
            continue
        for name, one in vars(importlib.import_module(module.name)).items():
            if isinstance(one, type) and one.__module__ == module.name and name not in known:
                foreign = [base for base in one.__mro__ if base.__module__.partition(".")[0] not in PLAIN]
                missing += [f"{module.name}.{name}, a {base.__module__}.{base.__name__}" for base in foreign[:1]]
    assert not missing, "called_apart.py has no subject for " + ", ".join(missing)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_method_ends_with_a_result_or_a_clear_error(subject: str, tmp_path: Path) -> None:
    if subject in FOREIGN:
        pytest.importorskip(FOREIGN[subject])
    found = outcomes(subject, tmp_path)
    assert len(found) > 3
    for method, errors in found.items():
        if not is_own(subject, method):
            continue
        for error in errors:
            if subject in FOREIGN:
                assert "NandarrayError" in error["kinds"] or error["kinds"][0] not in FAULTS, (method, error)
            else:
                assert own(method, error), (method, error)
