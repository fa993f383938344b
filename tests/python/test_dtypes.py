"""Dtypes survive as text, and every storable dtype survives a store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nandarray
import strategies
from nandarray import dtypes


@pytest.mark.parametrize("dtype", strategies.DTYPES, ids=str)
def test_text_and_back(dtype: np.dtype[Any]) -> None:
    assert dtypes.decode(dtypes.encode(dtype)) == dtype
    assert dtypes.check(dtype) == dtype


@given(
    st.one_of(
        hnp.array_dtypes(st.sampled_from([d for d in strategies.DTYPES if d.kind in "biufcMm"])),
        hnp.nested_dtypes(st.sampled_from([d for d in strategies.DTYPES if d.names is None])),
    )
)
def test_any_structure_survives(dtype: np.dtype[Any]) -> None:
    if dtype.itemsize:
        assert dtypes.decode(dtypes.encode(dtype)) == dtype


def test_offsets_padding_and_titles_survive() -> None:
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["<u4", "u1"], "offsets": [0, 2], "itemsize": 12})
    titled = np.dtype([(("the height", "h"), "<f8"), ("w", "<f8")])
    aligned = np.dtype("u1,f8", align=True)
    for dtype in (overlapping, titled, aligned):
        assert dtypes.decode(dtypes.encode(dtype)) == dtype
    assert dtypes.decode(dtypes.encode(aligned)).isalignedstruct


def test_the_text_of_a_format_never_changes() -> None:
    assert dtypes.encode(np.dtype("<f4")) == "<f4"
    assert dtypes.encode(np.dtype("bool")) == "|b1"
    assert dtypes.encode(np.dtype("<M8[25us]")) == "<M8[25us]"
    nested = np.dtype([("p", [("a", "u1")]), ("q", "<f4", (2, 3))])
    assert dtypes.encode(nested) == (
        '{"fields":[["p",{"fields":[["a","|u1",0]],"itemsize":1},0],'
        '["q",{"base":"<f4","shape":[2,3]},1]],"itemsize":25}'
    )


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        (object, "Python objects"),
        ([("a", "u1"), ("b", "O")], "Python objects"),
        (np.dtypes.StringDType(), "no fixed size"),
        ("longdouble", "float64"),
        ("clongdouble", "complex128"),
        ("S0", "itemsize 0"),
        ("U", "itemsize 0"),
        ([], "itemsize 0"),
        ("no such thing", "no such thing"),
    ],
)
def test_what_cannot_be_stored_says_why(store: nandarray.Store, dtype: Any, reason: str) -> None:
    with pytest.raises(nandarray.InvalidError, match=reason):
        store.create("a", 3, dtype)
    assert "a" not in store


def test_other_dtypes_of_another_package_are_refused(store: nandarray.Store) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (ml_dtypes.int4, ml_dtypes.float4_e2m1fn, np.dtype(ml_dtypes.bfloat16).newbyteorder(">")):
        with pytest.raises(nandarray.InvalidError, match="not one of NumPy's own"):
            store.create("a", 3, dtype)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_short_floats_of_ml_dtypes_are_stored(path: Any, name: str) -> None:
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    model = np.linspace(0.25, 8, 30).reshape(5, 6).astype(dtype)
    assert dtypes.encode(dtype) == name
    with nandarray.open(path, mode="w") as store:
        store.create("a", data=model, building_block=(2, 4))
        store.create("filled", (2,), name, fill_value=2)
        store["r"] = np.zeros(2, [("x", dtype), ("n", "i4")])
        with pytest.raises(nandarray.InvalidError, match="is not held by"):
            store.create("beyond", (2,), name, fill_value=1e39)
        store["a"][0, :2] = [4.0, 2]
        model[0, :2] = [4.0, 2]
    with nandarray.open(path) as store:
        array = store["a"]
        assert (array.dtype, store["r"].dtype["x"]) == (dtype, dtype)
        assert array[...].tobytes() == model.tobytes()
        assert array[1:4, ::-3].tobytes() == model[1:4, ::-3].tobytes()
        assert type(array[0, 0]) is type(model[0, 0])
        with pytest.raises(nandarray.InvalidError, match="only raw files hold"):
            nandarray.export(array, path.with_suffix(".npy"))
        nandarray.export(array, path.with_suffix(".raw"), format="raw")
        assert path.with_suffix(".raw").read_bytes() == model.tobytes()
        assert float(store["filled"][1]) == float(store["filled"].fill_value) == 2
        np.testing.assert_array_equal(array.astype("f4")[1], model[1].astype("f4"))


@pytest.mark.parametrize("dtype", strategies.DTYPES, ids=str)
def test_every_dtype_survives_a_store(path: Any, dtype: np.dtype[Any]) -> None:
    model = strategies.content((5, 7), dtype, 1)
    with nandarray.open(path, mode="w") as store:
        store.create("a", data=model, building_block=(2, 4))
        store.create("untouched", (2, 3), dtype)
    with nandarray.open(path) as store:
        array = store["a"]
        assert array.dtype == dtype
        assert array[...].tobytes() == model.tobytes()
        assert array[1:4, ::-3].tobytes() == model[1:4, ::-3].tobytes()
        assert type(array[0, 0]) is type(model[0, 0])
        assert store["untouched"][...].tobytes() == np.zeros((2, 3), dtype).tobytes()


def test_padding_between_fields(store: nandarray.Store) -> None:
    dtype = np.dtype([("u", "u1"), ("v", "<f8")], align=True)
    model = strategies.content((4, 3), dtype, 1)
    store["a"] = model
    assert np.array_equal(store["a"][::-1, [2, 0]], model[::-1, [2, 0]])


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("f4", np.nan), ("f8", -0.0), ("i2", -3), (">u4", 7), ("U4", "none"), ("S3", b"ab"), ("M8[s]", "NaT"),
     ("?", True), ("c8", 1 - 2j), ([("x", "i4"), ("y", "f8")], (3, 0.5))],
)  # fmt: skip
def test_fill_values(store: nandarray.Store, dtype: Any, fill: Any) -> None:
    array = store.create("a", (3, 2), dtype, fill_value=fill)
    element = np.array(fill, dtype)
    assert array[1, 1].tobytes() == array.fill_value.tobytes() == element.astype(array.dtype)[()].tobytes()
    assert array[...].tobytes() == np.full((3, 2), element, dtype).tobytes()


@pytest.mark.parametrize("dtype", ["U4", "S4", "M8[s]", "?", [("x", "i4"), ("s", "U2")]])
def test_the_default_fill_is_zero_bytes(store: nandarray.Store, dtype: Any) -> None:
    assert store.create("a", 2, dtype)[:].tobytes() == np.zeros(2, dtype).tobytes()


def test_a_subarray_dtype_becomes_dimensions(store: nandarray.Store) -> None:
    array = store.create("a", (4,), ("f4", (2, 3)))
    assert array.shape == (4, 2, 3), "as numpy.zeros makes it"
    assert array.dtype == np.float32
