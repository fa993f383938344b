"""Reading through a transformation, against NumPy: fields of records, conversions, views, rows, and notebooks.

NumPy's own result of the same expression on the same data in memory is the reference; of HTML it is Python's parser,
which has to find the texts again that went in.
"""

from __future__ import annotations

import copy
import html.parser
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nandarray
import strategies
from nandarray import InvalidError
from nandarray.interop.rows import RowDataset

_Array = np.ndarray[Any, Any]


def put(store: Any, data: _Array, **options: Any) -> Any:
    """Store an array under a name that is free again afterwards."""
    if "a" in store:
        del store["a"]
    return store.create("a", data=data, **options)


_RECORDS = hnp.array_dtypes(
    st.sampled_from([one for one in strategies.DTYPES if one.names is None and one.kind != "V"]),
    min_size=1, max_size=4, allow_subarrays=True,
)  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> tuple[_Array, Any]:
    """An array of records, and one of its fields or a list of some."""
    dtype = draw(_RECORDS.filter(lambda one: one.itemsize > 0))
    data = strategies.content(draw(strategies.shapes(max_dims=3, max_side=5)), dtype, draw(st.integers(0, 99)))
    names = list(dtype.names or ())
    several = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)
    return data, draw(st.one_of(st.sampled_from(names), several))


@settings(max_examples=50)
@given(case=records(), data=st.data())
def test_fields_are_read_and_written_as_numpys(scratch: Any, case: Any, data: st.DataObject) -> None:
    model, name = case
    array = put(scratch, model)
    field, seen = array[name], model[name]
    assert (field.name, field.dtype, field.shape, field.ndim, field.size) == (
        name, model.dtype[name], model.shape, model.ndim, model.size,
    )  # fmt: skip
    key = data.draw(strategies.keys(model.shape))
    expected = model[key][name]
    got = field[key]
    assert type(got) is type(expected)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.asarray(field), seen)
    if model.ndim:
        assert len(field) == len(seen)
        for mine, theirs in zip(field, seen, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    if isinstance(name, str):
        dtype = model.dtype[name]
        values = strategies.content(np.shape(expected), dtype.base, data.draw(st.integers(0, 99)))
        chosen = np.array(model[key])
        chosen[name] = values
        model[key] = chosen
        field[key] = values
        np.testing.assert_array_equal(array[...], model)


def test_what_is_no_field_or_does_not_fit_one_is_refused(scratch: Any) -> None:
    model = strategies.content((3, 2), np.dtype([("x", "i4"), ("y", "f8", (2,)), ("s", "U2")]), 1)
    array = put(scratch, model)
    for key in ("nowhere", ["x", "nowhere"]):
        with pytest.raises(InvalidError, match=r"no field named 'nowhere'; the fields are 'x', 'y', 's'"):
            array[key]
    for name, values, said in (
        ("x", "seven", "cannot store str in field 'x': .*invalid literal"),
        ("x", 2**40, "cannot store int in field 'x': .*Python int"),
        ("y", np.zeros((3, 2, 3)), "cannot store ndarray in field 'y': .*could not broadcast"),
        (["x", "y"], np.zeros((3, 2), [("a", "i4")]), r"cannot store ndarray in field \['x', 'y'\]"),
    ):
        with pytest.raises(InvalidError, match=said):
            array[name][...] = values
    np.testing.assert_array_equal(array[...], model)


def test_fields_within_fields_are_read_written_and_computed_with(scratch: Any) -> None:
    inner = np.dtype([("u", "i2"), ("v", "f4")])
    dtype = np.dtype([("u", "i4"), ("r", [("x", "f8"), ("q", inner)]), ("m", inner, (2,)), ("a.b", "i1")])
    model = strategies.content((4, 3), dtype, 5)
    array = put(scratch, model)
    for path in (("r", "q", "u"), ("r", "x"), ("m", "u"), ("m", "v"), ("r", ["q", "x"]), (["r", "u"], "r", "x")):
        field, seen = array, model
        for one in path:
            field, seen = field[one], seen[one]
        assert np.asarray(field).tobytes() == seen.tobytes(), path
        assert field[1:, ::2].tobytes() == seen[1:, ::2].tobytes(), path
        assert np.empty(1, field.dtype).dtype.base == seen.dtype.base
    for path in (("u", "v"), ("r", "u"), ("r", "q", "x"), (["u", "r"], "m")):
        field = array
        for one in path[:-1]:
            field = field[one]
        with pytest.raises(InvalidError, match=f"no field named '{path[-1]}'"):
            field[path[-1]]
    array["r"]["q"]["u"][2] = 7
    array["m"]["u"] = 3
    array["r"]["x"][:, 1] = np.arange(4)
    model["r"]["q"]["u"][2], model["m"]["u"], model["r"]["x"][:, 1] = 7, 3, np.arange(4)
    assert array[...].tobytes() == model.tobytes()
    assert array["r"]["q"]["u"].reduce("sum") == model["r"]["q"]["u"].sum()
    assert np.array_equal(
        array["r"]["q"]["u"].astype("f8").map_blocks("sqrt"), np.sqrt(model["r"]["q"]["u"].astype("f8"))
    )
    with pytest.raises(InvalidError, match="no fields of several records"):
        array["m"]["u"].reduce("sum")
    with pytest.raises(InvalidError, match="cannot store str in field 'r.q.u'"):
        array["r"]["q"]["u"][0] = "seven"
    part = copy.copy(nandarray.to_dask(array["m"]["u"]))
    assert np.array_equal(part.compute(), model["m"]["u"])


@pytest.mark.parametrize("shape", [(7,), (2, 3), (3, 1, 4)])
def test_views_fields_and_conversions_are_converted_as_numpys(shape: Any, scratch: Any) -> None:
    model = np.zeros(shape, [("x", "i2"), ("y", "f4", (2,))])
    model["x"] = strategies.content(shape, np.dtype("i2"), 3)
    model["y"] = np.random.default_rng(4).uniform(-99, 99, (*shape, 2))
    if "x" in scratch:
        del scratch["x"]
    scratch.create("x", data=model["x"])
    records = put(scratch, model)
    view, flat = scratch["x"].view(-1), model["x"].reshape(-1)
    for lazy, wanted in (
        (view.astype("f8"), flat.astype("f8")),
        (view.astype("u1").astype("f4"), flat.astype("u1").astype("f4")),
        (records["x"].astype("f4"), model["x"].astype("f4")),
        (records["y"].astype("i4"), model["y"].astype("i4")),
        (records["y"].astype("f8").astype("i8"), model["y"].astype("f8").astype("i8")),
    ):
        assert lazy.dtype.base == wanted.dtype
        assert np.asarray(lazy).tobytes() == wanted.tobytes()
        for key in (0, np.s_[::-2], [0, -1, 0], np.arange(len(lazy)) % 2 == 1):
            assert np.asarray(lazy[key]).tobytes() == wanted[key].tobytes()
        assert np.array_equal(lazy.reduce("sum"), wanted.sum(dtype=wanted.dtype.kind + "8"))
        if not lazy.dtype.shape:
            joined = nandarray.stack([lazy, lazy])
            assert joined[...].tobytes() == np.stack([wanted, wanted]).tobytes()
            assert np.array_equal(nandarray.to_dask(joined).compute(), np.stack([wanted, wanted]))


_PAIRS = st.tuples(st.sampled_from(strategies.NUMBERS), st.sampled_from([*strategies.NUMBERS, np.dtype("?")]))


@settings(max_examples=50)
@given(shape=strategies.shapes(max_dims=3), pair=_PAIRS, data=st.data())
def test_conversions_are_those_of_numpy_whatever_is_indexed(scratch: Any, shape: Any, pair: Any, data: Any) -> None:
    model = strategies.content(shape, pair[0], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of parts that are lost
        lazy, wanted = put(scratch, model).astype(pair[1]), model.astype(pair[1])
        assert (lazy.dtype, lazy.shape, lazy.size) == (wanted.dtype, wanted.shape, wanted.size)
        key = data.draw(strategies.keys(shape))
        got, expected = lazy[key], wanted[key]
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        assert np.asarray(got).tobytes() == np.asarray(expected).tobytes()
        assert np.asarray(lazy).tobytes() == wanted.tobytes()
        assert np.asarray(lazy, pair[0]).tobytes() == wanted.astype(pair[0]).tobytes()
        if shape:
            assert len(lazy) == shape[0]
            for mine, theirs in zip(lazy, wanted, strict=True):
                assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
    with pytest.raises(InvalidError, match="without a copy"):
        np.array(lazy, copy=False)


@pytest.mark.parametrize("dtype", ["no such thing", "O", 5, [("a",)]])
def test_what_is_no_dtype_is_refused_before_anything_is_read(scratch: Any, dtype: Any) -> None:
    array = put(scratch, np.arange(3))
    if dtype == "O":
        assert array.astype("O")[:].tolist() == [0, 1, 2], "in memory any dtype is one"
        return
    with pytest.raises(InvalidError, match="is not a dtype"):
        array.astype(dtype)


@settings(max_examples=60)
@given(shape=strategies.shapes(max_dims=3), dtype=st.sampled_from(strategies.NUMBERS), seed=st.integers(0, 99))
def test_grids_iterate_contain_and_convert_as_numpys(scratch: Any, shape: Any, dtype: Any, seed: int) -> None:
    model = strategies.content(shape, dtype, seed)
    array = put(scratch, model, building_block=tuple(max(1, n // 2) for n in shape))
    whole = array.view(shape or (1,)) if model.size else array
    for grid, wanted in ((array, model), (whole, model.reshape(shape or (1,)))):
        if wanted.ndim:
            assert [row.tobytes() for row in grid] == [row.tobytes() for row in wanted]
            assert len(grid) == len(wanted)
        else:
            with pytest.raises(TypeError, match="0-d"):
                iter(grid)
            with pytest.raises(TypeError, match="unsized"):
                len(grid)
        for value in (0, 1, 55, -1, math.nan):
            assert (value in grid) == (value in wanted), value
        for convert in (bool, int, float, complex):
            assert outcome(convert, grid) == outcome(convert, wanted), convert
    np.testing.assert_array_equal(np.from_dlpack(array) if dtype.isnative and dtype.kind != "c" else model, model)
    assert copy.copy(array)[...].tobytes() == model.tobytes()


def outcome(convert: Any, value: Any) -> Any:
    """The result of a conversion, or the kind of its error."""
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        return type(error)


@settings(max_examples=60)
@given(rows=st.integers(1, 30), data=st.data())
def test_rows_for_training_are_the_rows_of_all_arrays(scratch: Any, rows: int, data: st.DataObject) -> None:
    models = [
        strategies.content((rows, *data.draw(strategies.shapes(max_dims=2))), np.dtype("i4"), n) for n in range(2)
    ]
    for n, model in enumerate(models):
        name = f"rows{n}"
        if name in scratch:
            del scratch[name]
        scratch.create(name, data=model)
    dataset = RowDataset(scratch["rows0"], scratch["rows1"] if data.draw(st.booleans()) else models[1])
    assert len(dataset) == rows
    index = data.draw(st.integers(-rows, rows - 1))
    for got, model in zip(dataset[index], models, strict=True):
        np.testing.assert_array_equal(got, model[index])
    chosen = data.draw(st.lists(st.integers(0, rows - 1), max_size=6))
    for n, sample in enumerate(dataset.__getitems__(chosen)):
        for got, model in zip(sample, models, strict=True):
            np.testing.assert_array_equal(got, model[chosen[n]])
    for beyond in (rows, -rows - 1):
        with pytest.raises(IndexError, match=str(rows)):
            dataset[beyond]


_NO_ROWS: list[Any] = [
    [0.5], [True, False, True], np.array([False]), ["1"], [None], [np.timedelta64(1, "s")], np.array([[1.0]]),
]  # fmt: skip


@pytest.mark.parametrize("index", _NO_ROWS, ids=str)
def test_what_is_no_row_number_is_refused_and_not_rounded(scratch: Any, index: Any) -> None:
    model = np.arange(6.0).reshape(3, 2)
    for rows in (put(scratch, model), model):
        dataset = RowDataset(rows)
        for call in (dataset.__getitem__, dataset.__getitems__):
            with pytest.raises(InvalidError, match="indices must be integers, not of type "):
                call(index)
        for beyond in (np.array([0, 2**64 - 1], "u8"), np.array([2**63], "u8"), [3], [-4]):
            with pytest.raises(
                IndexError, match="row .*(18446744073709551615|9223372036854775808|3|-4) of an array of 3 rows"
            ):
                dataset[beyond]
        assert dataset[np.array([[2], [0]], ">u2")].tolist() == [[[4.0, 5.0]], [[0.0, 1.0]]]
        assert dataset[[]].shape == (0, 2)


class Parsed(html.parser.HTMLParser):
    """The texts of an HTML fragment, whose elements must be closed in order."""

    VOID = frozenset({"rect", "path", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.labels: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.labels += [value or "" for name, value in attrs if name == "aria-label"]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


_TAGS = {"div", "table", "tr", "th", "td", "svg", "rect", "path", "details", "summary", "ul", "li", "small"}
_ODD = ["<script>alert(1)", "a & b", '"quoted" onload="x"', "&lt;", "é\N{EGG}", "]]>", "<!--", " "]


@pytest.mark.parametrize("name", _ODD)
def test_names_are_text_in_notebooks_whatever_they_contain(store: nandarray.Store, name: str) -> None:
    store.create(name, (3, 4), [(name, "f4"), ("b", "u1")], attrs={name: name})
    store.create(f"group {name}/x", 2, "u1")
    store.create_group(f"empty {name}")
    array = store[name]
    for shown in (array, array[name], array.view((12,))):
        page = Parsed(shown._repr_html_())
        assert page.tags <= _TAGS
        assert any(name in text for text in page.texts), page.texts
    page = Parsed(store._repr_html_())
    assert page.tags <= _TAGS
    texts = {text.removesuffix(" ") for text in page.texts}
    assert {name, f"group {name}/", f"empty {name}/"} <= texts
    assert Parsed(store[f"group {name}"]._repr_html_()).texts[:2] == [f"group {name}", "x "]
    assert name in str(store.tree())


@pytest.mark.parametrize(
    "shape",
    [(), (0,), (1,), (5, 0, 3), (7,), (3, 1000), (2, 3, 4), (1,) * 32, (2**64 - 1,), (2**40, 2, 2**40), (1, 2**63)],
)
def test_a_drawing_has_its_shape_and_few_lines_however_large_the_array(store: nandarray.Store, shape: Any) -> None:
    array = store.create("a", shape, "u1")
    page = Parsed(array._repr_html_())
    if not shape or 0 in shape:
        assert "svg" not in page.tags
        return
    assert page.labels == [" x ".join(map(str, shape))]
    text = array._repr_html_()
    assert text.count("<path") <= 30  # noqa: PLR2004
    assert text.count("<rect") == 1 + min(3, max(0, len(shape) - 2))
    assert "nan" not in text
    assert "inf" not in text


def test_closed_stores_are_shown_as_such(tmp_path: Any) -> None:
    with nandarray.open(tmp_path / "d.nand", "w") as store:
        array = store.create("a", (2, 2), [("x", "u1")])
        shown = [store, store.create_group("g"), array, array["x"], array.view((4,))]
    for one in shown:
        assert "closed" in one._repr_html_()
        assert "closed" in repr(one)
