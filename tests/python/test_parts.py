"""Views and fields of records wherever arrays go, compared with NumPy: Dask, xarray, HTML, other formats, programs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nandarray
from nandarray import programs
from nandarray.array.parts import Part
from nandarray.errors import InvalidError

RECORD = np.dtype([("id", "u1"), ("v", "f8"), ("n", "i4"), ("at", "f4", (3,)), ("flag", "?")])


def records() -> Any:
    rng = np.random.default_rng(3)
    made = np.zeros((30, 20), RECORD)
    made["id"] = rng.integers(0, 255, made.shape)
    made["v"] = rng.normal(size=made.shape)
    made["n"] = rng.integers(-1000, 1000, made.shape)
    made["at"] = rng.normal(size=(*made.shape, 3))
    made["flag"] = made["n"] > 0
    return made


@pytest.fixture
def full(store: nandarray.Store) -> nandarray.Store:
    store.create("rec", data=records(), building_block=(8, 8))
    store.create("x", data=np.arange(60.0 * 50).reshape(60, 50), building_block=(16, 16))
    return store


PARTS = [
    ("view", lambda store: store["x"].view((10, 6, 50)), lambda: np.arange(3000.0).reshape(10, 6, 50)),
    ("field", lambda store: store["rec"]["v"], lambda: records()["v"]),
    ("small", lambda store: store["rec"]["id"], lambda: records()["id"]),
    ("inner", lambda store: store["rec"]["at"], lambda: records()["at"]),
]
each = pytest.mark.parametrize(("name", "part", "data"), PARTS, ids=[name for name, _, _ in PARTS])


@each
def test_dask_reads_them(full: nandarray.Store, name: str, part: Any, data: Any) -> None:
    wanted = data()
    for chunks in (None, (7, 4, *(3 for _ in range(wanted.ndim - 2)))):
        lazy = nandarray.to_dask(part(full), chunks=chunks)
        assert (lazy.shape, lazy.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(lazy.compute(), wanted)
        np.testing.assert_array_equal((lazy[::-2, 3] + 1).compute(), wanted[::-2, 3] + 1)
        np.testing.assert_array_equal(lazy[..., 1].compute(), wanted[..., 1])


@each
def test_other_processes_open_them_again(full: nandarray.Store, name: str, part: Any, data: Any) -> None:
    again = pickle.loads(pickle.dumps(Part(part(full))))
    np.testing.assert_array_equal(again[...], data())
    graph = pickle.loads(pickle.dumps(nandarray.to_dask(part(full))))
    np.testing.assert_array_equal(graph.compute(), data())


def test_names_of_dask_arrays_tell_parts_apart(tmp_path: Path) -> None:
    with nandarray.open(tmp_path / "a.nand", "w") as made:
        made["x"] = np.zeros((6, 4))
    with nandarray.open(tmp_path / "a.nand") as made:
        whole, tall, wide = (nandarray.to_dask(one) for one in (made["x"], made["x"].view(24), made["x"].view((4, 6))))
        assert len({whole.name, tall.name, wide.name}) == 3
        assert nandarray.to_dask(made["x"].view(24)).name == tall.name


@each
def test_xarray_reads_them(full: nandarray.Store, name: str, part: Any, data: Any) -> None:
    wanted = data()
    lazy = nandarray.to_xarray(part(full))
    assert (lazy.shape, lazy.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(lazy.values, wanted)
    first = lazy.dims[0]
    lazy = nandarray.to_xarray(part(full))  # once it was read, xarray has it in memory
    np.testing.assert_array_equal(lazy.isel({first: [3, 1]}).values, wanted[[3, 1]])
    np.testing.assert_array_equal(nandarray.to_xarray(part(full), chunks={})[2].values, wanted[2])


def test_a_field_has_the_coordinates_of_its_group(full: nandarray.Store) -> None:
    full["rec"].attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    full.create("y", data=np.arange(30.0), attrs={"_ARRAY_DIMENSIONS": ["y"]})
    found = nandarray.to_xarray(full["rec"]["v"])
    assert (found.dims, found.name) == (("y", "x"), "v")
    np.testing.assert_array_equal(found.sel(y=slice(3, 5)).values, records()["v"][3:6])
    assert nandarray.to_xarray(full["rec"]["at"]).dims == ("y", "x", "at_dim_0")
    assert nandarray.to_xarray(full["rec"].view(600)).dims == ("rec_dim_0",)


@each
def test_notebooks_show_them(full: nandarray.Store, name: str, part: Any, data: Any) -> None:
    shown = part(full)._repr_html_()
    assert str(data().shape) in shown
    assert "<svg" in shown
    one = part(full)
    full.close()
    assert one._repr_html_() == "<em>closed array</em>"


@pytest.mark.parametrize("one", PARTS, ids=[name for name, _, _ in PARTS])
@pytest.mark.parametrize("format", ["npy", "raw", "zarr", "hdf5", "npz"])
def test_they_are_exported(full: nandarray.Store, tmp_path: Path, one: Any, format: str) -> None:  # noqa: A002
    _, part, data = one
    wanted, path = data(), tmp_path / f"out.{format}"
    nandarray.export(part(full), path, format=format, budget=2000)
    if format == "npy":
        found = np.load(path)
    elif format == "raw":
        found = np.fromfile(path, wanted.dtype).reshape(wanted.shape)
    else:
        with nandarray.open(tmp_path / "again.nand", "w") as again:
            (stored,) = nandarray.import_(path, again, format=format)
            found = again[stored][...]
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_what_is_no_part_of_a_store_is_refused(full: nandarray.Store, tmp_path: Path) -> None:
    for call in (nandarray.to_dask, lambda one: nandarray.export(one, tmp_path / "x.npy")):
        with pytest.raises(InvalidError, match="an array, a view or a field of a store, not ndarray"):
            call(np.zeros(3))  # type: ignore[arg-type]


# --- programs ---------------------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("form", ["translated", "native"])
def test_programs_run_on_them(full: nandarray.Store, name: str, part: Any, data: Any, form: str) -> None:
    wanted, given = data(), part(full)
    options = {"form": form, "trusted": True}
    np.testing.assert_array_equal(given.map_blocks(lambda x: x > 1, **options), wanted > 1)
    np.testing.assert_array_equal(given.filter(lambda x: x > 1, **options), wanted[wanted > 1])
    np.testing.assert_allclose(given.reduce("sum", form=form), wanted.sum(dtype="f8"), rtol=1e-12)
    np.testing.assert_array_equal(given.reduce("max", form=form), wanted.max())
    np.testing.assert_array_equal(given.reduce(lambda a, b: a if a > b else b, **options), wanted.max())
    total = programs.get("sum", dtype=wanted.dtype)
    np.testing.assert_allclose(given.offload(total, form=form), wanted.sum(dtype="f8"), rtol=1e-12)
    np.testing.assert_array_equal(
        given.map_blocks(lambda x: x > 1, key=np.s_[3:20:2, 2], **options), wanted[3:20:2, 2] > 1
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_fields_are_folded_along_axes(full: nandarray.Store, axis: int) -> None:
    field, wanted = full["rec"]["n"], records()["n"]
    np.testing.assert_array_equal(field.reduce("sum", axis), wanted.sum(axis))
    np.testing.assert_array_equal(field.reduce(lambda a, b: a if a > b else b, axis), wanted.max(axis))
    view, flat = full["x"].view((30, 100)), np.arange(3000.0).reshape(30, 100)
    np.testing.assert_allclose(view.reduce("sum", axis), flat.sum(axis))


def test_fields_go_with_each_other_and_with_arrays(full: nandarray.Store) -> None:
    rec, wanted = full["rec"], records()
    found = rec["v"].map_blocks(lambda v, n, w: v * n + w, rec["n"], np.ones((30, 20)))
    np.testing.assert_array_equal(found, wanted["v"] * wanted["n"] + 1)
    made = rec["v"].map_blocks(lambda v: 2 * v, out="twice")
    np.testing.assert_array_equal(made[...], 2 * wanted["v"])
    rec["v"].map_blocks(lambda v, t: v + t, full["twice"], out=full["twice"])
    np.testing.assert_array_equal(made[...], 3 * wanted["v"])
    with pytest.raises(InvalidError, match="cannot go into a field"):
        rec["v"].map_blocks(lambda v: 2 * v, out=rec["v"])


def turned(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, x.shape[1] - 1 - j]


@pytest.mark.parametrize("block", [(30, 20), True])
def test_functions_of_boxes_get_fields(full: nandarray.Store, block: Any) -> None:
    wanted = records()["v"]
    found = full["rec"]["v"].map_blocks(turned, block=block)
    if block is True:
        wanted = np.concatenate([wanted[:, low : low + 8][:, ::-1] for low in (0, 8, 16)], axis=1)
    else:
        wanted = wanted[:, ::-1]
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(InvalidError, match="one number each"):
        full["rec"]["at"].map_blocks(turned, block=(4, 4, 3))


def test_large_fields_are_taken_out_in_many_tasks(store: nandarray.Store) -> None:
    made = np.zeros(400_000, [("a", "u1"), ("v", "f8")])
    made["v"] = np.random.default_rng(1).normal(size=made.shape)
    store.create("rec", data=made)
    done = nandarray.offload(programs.get("sum", dtype="f8"), [store["rec"]["v"]])
    assert done.account.tasks > 2
    np.testing.assert_allclose(done.result, made["v"].sum())
    np.testing.assert_array_equal(store["rec"]["v"].filter(lambda v: v > 1), made["v"][made["v"] > 1])
