"""Arrays and records through Arrow's PyCapsule interface, against what Arrow makes of NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nandarray
import strategies
from nandarray.errors import InvalidError

pa = pytest.importorskip("pyarrow")

#: Units of time that Arrow does not have.
OTHERS = ("<M8[25us]", ">m8[D]")
PLAIN = [one for one in strategies.DTYPES if one.names is None and one.kind not in "cV" and one.str not in OTHERS]
RECORD = np.dtype(
    [("id", ">i4"), ("at", "M8[ms]"), ("name", "U3"), ("place", [("x", "f8"), ("y", "f4")]), ("v", "i2", (2, 3))]
)


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_elements_are_arrows(store: nandarray.Store, dtype: np.dtype[Any]) -> None:
    model = strategies.content((6, 2), dtype, 3)
    store["x"], store["y"] = model[:, 0], model
    expected = pa.array(model[:, 0].astype(dtype.newbyteorder("=")))
    got = pa.array(store["x"])
    assert got.type == expected.type
    assert got.equals(expected)
    assert pa.chunked_array(store["x"]).combine_chunks().equals(got)
    assert pa.array(store["y"]).to_pylist() == [
        pa.array(row).to_pylist() for row in model.astype(dtype.newbyteorder("="))
    ]
    for part in (store["x"].view(6), store["x"].astype(dtype), nandarray.concat([store["x"].view(6)])):
        assert pa.array(part).equals(got)


def test_records_are_a_table(store: nandarray.Store, monkeypatch: Any) -> None:
    model = strategies.content((50,), RECORD, 7)
    model["at"][3] = "NaT"
    store["r"] = model
    struct = pa.array(store["r"])
    assert [field.name for field in struct.type] == list(RECORD.names or ())
    row = struct[5].as_py()
    assert (row["id"], row["name"], row["place"]["y"]) == (model[5]["id"], model[5]["name"], model[5]["place"]["y"])
    assert row["v"] == model[5]["v"].tolist()
    monkeypatch.setattr("nandarray.array.arrow._BATCH_BYTES", 16 * RECORD.itemsize)
    table = pa.table(store["r"])
    assert [len(batch) for batch in table.to_batches()] == [16, 16, 16, 2]
    assert table.column("at").null_count == 1
    assert table.to_struct_array().combine_chunks().equals(struct)
    assert pa.array(store["r"]["place"]).field("x").to_pylist() == model["place"]["x"].tolist()
    assert pa.array(store["r"]["v"]).to_pylist() == model["v"].tolist()
    store.create("none", (0,), RECORD)
    assert pa.table(store["none"]).schema == table.schema
    assert pa.table(store["none"]).num_rows == 0


def test_shapes(store: nandarray.Store) -> None:
    for number, shape in enumerate([(2, 3, 4), (0, 3), (3, 0), (2, 0, 3), (0,)]):
        model = np.arange(np.prod(shape), dtype="i4").reshape(shape)
        store[str(number)] = model
        assert pa.array(store[str(number)]).to_pylist() == model.tolist()


def test_memory_is_shared(store: nandarray.Store) -> None:
    """The values that were read are the Arrow array's: one allocation of NumPy's, and none of Arrow's."""
    store["x"] = np.arange(100_000.0)
    before = pa.total_allocated_bytes()
    got = pa.array(store["x"])
    assert pa.total_allocated_bytes() - before < 10_000
    assert got.to_numpy(zero_copy_only=True).sum() == store["x"][:].sum()


def test_what_arrow_has_no_form_for(store: nandarray.Store) -> None:
    store["c"], store["s"] = np.zeros(2, "c8"), np.array(5)
    store["t"], store["m"] = np.zeros(2, "M8[25us]"), np.zeros((2, 2), [("x", "i4")])
    for name, words in [("c", "no type for complex64"), ("s", "without dimensions"), ("t", "it has s, ms, us, ns")]:
        with pytest.raises(InvalidError, match=words):
            pa.array(store[name])
    with pytest.raises(InvalidError, match=r"one dimension of records, not shape \(2, 2\)"):
        pa.table(store["m"])
    assert pa.table(store["m"].view(-1)).num_rows == 4


def test_polars(store: nandarray.Store) -> None:
    pl = pytest.importorskip("polars")
    store["r"] = np.array([(1, 2.5), (3, 4.5)], [("x", "i4"), ("y", "f8")])
    assert pl.DataFrame(store["r"]).rows() == [(1, 2.5), (3, 4.5)]
    assert pl.Series(store["r"]["y"]).to_list() == [2.5, 4.5]
