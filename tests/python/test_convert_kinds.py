"""Every kind of object and attribute of HDF5, NetCDF-4 and Zarr: equal, refused by its name, or in the summary.

A table for each format has the kinds and what becomes of each. A file with all of them is imported and exported. There
is no fourth case: what is not ``EQUAL`` afterwards is in an error or a warning, by its name.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import nandarray
from nandarray.interop.convert.attributes import decode

#: Verdicts: a kind comes back as it was, it is refused by its name, or a warning has its name.
EQUAL, REFUSED, TOLD = "equal", "refused", "told"

LOW = h5py.h5t
DAYS = np.array(["2001-01-01", "NaT"], "M8[s]")
RECORDS = np.array(
    [(1, (2.5, [1, 2, 3])), (3, (4.5, [4, 5, 6]))], [("a", ">i2"), ("b", [("c", "<f8"), ("d", "u1", 3)])]
)
NUMBERS = ("i1", ">i2", "i8", "u1", ">u2", "u8", "<f2", "f4", ">f8", "?", "c8", "c16")
NETCDF_NUMBERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
ZARR_NUMBERS = ("bool", "i1", "u8", "f2", "f4", "f8", "c8", "c16")
COLOURS = {"RED": 0, "GREEN": 1}


def _low(kind: Any) -> Callable[[Any, str], Any]:
    """Return what makes a dataset of a type that h5py has only at its lower level."""
    return lambda file, name: LOW and h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((2,)))


def _opaque() -> Any:
    kind = LOW.create(LOW.OPAQUE, 4)
    kind.set_tag(b"jpeg")
    return kind


def _data(data: Any, **options: Any) -> Callable[[Any, str], Any]:
    return lambda file, name: file.create_dataset(name, data=data, **options)


def _of(dtype: Any, shape: tuple[int, ...] = (2,), **options: Any) -> Callable[[Any, str], Any]:
    return lambda file, name: file.create_dataset(name, shape, dtype, **options)


def _latin(file: Any, name: str) -> None:
    file.create_dataset(name, data=[b"\xe9t\xe9"], dtype=h5py.string_dtype("ascii"))


def _scaled(file: Any, name: str, scale: str, called: str, label: str = "") -> None:
    file[scale] = np.arange(3.0)
    file[scale].make_scale(called)
    file[name] = np.arange(3)
    file[name].dims[0].attach_scale(file[scale])
    file[name].dims[0].label = label


def _labels(*labels: str) -> Callable[[Any, str], Any]:
    def make(file: Any, name: str) -> None:
        item = file.create_dataset(name, data=np.eye(2))
        for dim, label in zip(item.dims, labels, strict=True):
            dim.label = label

    return make


def _link(link: Any) -> Callable[[Any, str], Any]:
    return lambda file, name: file.__setitem__(name, link(file) if callable(link) else link)


def _virtual(file: Any, name: str) -> None:
    layout = h5py.VirtualLayout((2,), "i4")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "x", (2,))
    file.create_virtual_dataset(name, layout)


def _comment(file: Any, name: str) -> None:
    file[name] = np.arange(2)
    h5py.h5o.set_comment(file[name].id, b"by hand")


def _of_named_type(file: Any, name: str) -> None:
    file[f"{name}_type"] = np.dtype("<i2")
    file.create_dataset(name, (2,), file[f"{name}_type"])


def _within(file: Any, name: str) -> None:
    file.create_group(f"{name}/deep").create_dataset("x", data=np.arange(2))
    file[f"{name}/deep/up"] = file[name]


#: Objects of HDF5: name, what makes one, and the verdict.
HDF5_OBJECTS: list[tuple[str, Callable[[Any, str], Any], str]] = [
    *((f"number_{code}", _data(np.arange(6).astype(code).reshape(2, 3)), EQUAL) for code in NUMBERS),
    ("long_double", _data(np.arange(2, dtype=np.longdouble)), REFUSED),
    ("bit_field", _low(LOW.STD_B16LE), EQUAL),
    ("narrow_integer", _data(np.arange(4, dtype="i2"), scaleoffset=0, chunks=(4,)), EQUAL),
    ("time", _low(LOW.UNIX_D32LE), REFUSED),
    ("opaque", _of("V4"), EQUAL),
    ("opaque_with_tag", _low(_opaque()), TOLD),
    ("date", _data(DAYS.astype(h5py.opaque_dtype(DAYS.dtype))), EQUAL),
    ("enumeration", _data(np.array([0, 1], "i1"), dtype=h5py.enum_dtype(COLOURS, "i1")), EQUAL),
    ("enumeration_with_blanks", _data([0], dtype=h5py.enum_dtype({"deep red": 0}, "u2")), TOLD),
    ("enumeration_in_record", _of([("e", h5py.enum_dtype(COLOURS, "i1"))]), TOLD),
    ("record", _data(RECORDS), EQUAL),
    ("record_with_text", _of([("s", h5py.string_dtype())]), REFUSED),
    ("array_elements", _of(np.dtype(("<f4", (2, 3)))), EQUAL),
    ("fixed_ascii", _data(np.array([b"ab", b""], "S3")), EQUAL),
    ("fixed_utf8", _data(np.array(["é".encode(), b""], h5py.string_dtype("utf-8", 4))), EQUAL),
    ("text", _data(["é", "", "abc"], dtype=h5py.string_dtype()), EQUAL),
    ("text_ascii", _data(["e"], dtype=h5py.string_dtype("ascii")), EQUAL),
    ("text_latin", _latin, REFUSED),
    ("text_too_long", _data(["a" * 20_000], dtype=h5py.string_dtype()), EQUAL),
    ("element_too_large", _of("S70000"), REFUSED),
    ("ragged", _of(h5py.vlen_dtype("i4")), EQUAL),
    ("reference", _of(h5py.ref_dtype), REFUSED),
    ("region", _of(h5py.regionref_dtype), REFUSED),
    ("null", _data(h5py.Empty("f4")), REFUSED),
    ("scalar", _data(2.5), EQUAL),
    ("empty", _of("f4", (0, 3)), EQUAL),
    ("unwritten", _of("i4", (5,), fillvalue=-9, chunks=(2,)), EQUAL),
    ("packed", _data(np.arange(100), compression="gzip", shuffle=True, fletcher32=True, maxshape=(None,)), EQUAL),
    ("named_type", _link(np.dtype("<i2")), REFUSED),
    ("of_named_type", _of_named_type, TOLD),
    ("group/below", _data(np.arange(2)), EQUAL),
    ("scaled", lambda file, name: _scaled(file, name, "scale", "scale"), EQUAL),
    ("scaled_oddly", lambda file, name: _scaled(file, name, "odd", "Longitude", label="lon"), TOLD),
    ("labelled", _labels("y", "x"), EQUAL),
    ("labelled_partly", _labels("y", ""), TOLD),
    ("labelled_twice", _labels("y", "y"), TOLD),
    ("z_link_soft", _link(h5py.SoftLink("/scalar")), TOLD),
    ("z_link_hard", _link(lambda file: file["empty"]), TOLD),
    ("link_nowhere", _link(h5py.SoftLink("/nowhere")), REFUSED),
    ("link_outside", _link(h5py.ExternalLink("other.h5", "/x")), REFUSED),
    ("link_to_root", _link(h5py.SoftLink("/")), TOLD),
    ("circle", _within, TOLD),
    ("virtual", _virtual, REFUSED),
    ("elsewhere", _of("i4", (2,), external=[("elsewhere.bin", 0, 8)]), REFUSED),
    ("comment", _comment, TOLD),
]  # fmt: skip


def _attr(value: Any, dtype: Any = None) -> Callable[[Any, str], Any]:
    if isinstance(value, list):
        value = np.fromiter(value, dtype=object)
    return lambda item, name: item.attrs.create(name, value, dtype=dtype)


#: Attributes of HDF5.
HDF5_ATTRS: list[tuple[str, Callable[[Any, str], Any], str]] = [
    *((f"number_{code}", _attr(np.array(3, code)[()]), EQUAL) for code in NUMBERS),
    ("long_double", _attr(np.longdouble(1)), TOLD),
    ("numbers", _attr(np.arange(6, dtype="i2").reshape(2, 3)), EQUAL),
    ("one_number", _attr(np.array([5], "u1")), EQUAL),
    ("no_numbers", _attr(np.zeros(0, "f4")), EQUAL),
    ("truths", _attr(np.array([True, False])), EQUAL),
    ("nan", _attr(np.array([np.nan, -np.inf])), EQUAL),
    ("text", _attr("é"), EQUAL),
    ("text_empty", _attr(""), EQUAL),
    ("bytes", _attr(np.bytes_(b"abc")), EQUAL),
    ("bytes_latin", _attr(np.bytes_(b"\xe9")), EQUAL),
    ("texts", _attr(np.array(["a", "é"], object), h5py.string_dtype()), EQUAL),
    ("texts_fixed", _attr(np.array([b"a", b"bc"])), EQUAL),
    ("date", _attr(np.array(DAYS[0]), h5py.opaque_dtype(DAYS.dtype)), EQUAL),
    ("enumeration", _attr(1, h5py.enum_dtype(COLOURS, "i1")), TOLD),
    ("record", _attr(RECORDS), TOLD),
    ("opaque", _attr(np.void(b"abcd")), TOLD),
    ("null", _attr(h5py.Empty("f4")), TOLD),
    ("reference", lambda item, name: item.attrs.create(name, item.ref, dtype=h5py.ref_dtype), TOLD),
    ("ragged", _attr([np.arange(2), np.arange(3)], h5py.vlen_dtype("i4")), TOLD),
    ("CLASS", _attr("mine"), EQUAL),
    ("NAME", _attr("me"), EQUAL),
    ("_ATTRIBUTE_TYPES", _attr("mine"), TOLD),
]  # fmt: skip


def imported(path: Path, store: nandarray.Store, name: str) -> tuple[str, list[str]]:
    """Import all that can be stored; gives what was said, and by which names."""
    with pytest.raises(nandarray.InvalidError) as refused:
        nandarray.import_(path, store, name)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        nandarray.import_(path, store, name, unsupported="skip")
    said = [str(one.message) for one in told]
    for one in said:
        if one.startswith("left out: "):
            assert one.removeprefix("left out: ") in str(refused.value)
    return "\n".join(said), [one.removeprefix("left out: ") for one in said if one.startswith("left out: ")]


def same(one: Any, other: Any) -> bool:
    """Whether two values are of one type and equal; NaN and NaT are equal to themselves."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.tobytes() == other.tobytes() if one.dtype.kind != "O" else one.tolist() == other.tolist()


def elements(item: Any) -> np.ndarray[Any, Any]:
    """Return a dataset's elements, text as text."""
    text = h5py.check_string_dtype(item.dtype)
    if isinstance(h5py.check_vlen_dtype(item.dtype), np.dtype):
        return rows(item[...])
    if text is not None and (text.length is None or text.encoding == "utf-8"):
        found = np.asarray(item.asstr()[...], dtype=object)
        return found.astype(f"U{max(1, *map(len, found.ravel()), 1)}")
    return np.asarray(item[...])


def rows(found: Any) -> np.ndarray[Any, Any]:
    """Return what a store gives: rows of a ragged array as lists, and text with a width."""
    if found.dtype.kind == "T":
        return np.array(found.tolist(), "U")
    return np.array([*map(np.ndarray.tolist, found), None], object) if found.dtype.kind == "O" else found


def labels(item: Any) -> list[str]:
    return [dim.label for dim in item.dims if dim.label]


def test_every_kind_of_object_of_hdf5(tmp_path: Path, store: nandarray.Store) -> None:
    source, again = tmp_path / "all.h5", tmp_path / "again.h5"
    with h5py.File(source, "w", userblock_size=512) as file:
        for name, make, _ in HDF5_OBJECTS:
            make(file, name)
        file["bit_field"][...] = [1, 513]
        file["array_elements"][...] = np.arange(12).reshape(2, 2, 3)
    said, left = imported(source, store, "h")
    assert "has a user block of 512 bytes" in said
    nandarray.export(store["h"], again)
    with h5py.File(source) as file, h5py.File(again) as back:
        for name, _, verdict in HDF5_OBJECTS:
            full = f"h/{name}"
            if verdict == REFUSED:
                assert (
                    any(one.startswith((f"{name} ", f"/{name} ")) for one in left) or f"{name} is an external" in said
                ), name
                assert full not in store
                continue
            assert bool(re.search(rf"(^|; |: ){name}[ /]", said, re.M)) == (verdict == TOLD), (name, said)
            if verdict == EQUAL:
                assert same(rows(store[full][...]), elements(file[name])), name
                assert same(elements(back[name]), elements(file[name])), name
                assert h5py.check_enum_dtype(back[name].dtype) == h5py.check_enum_dtype(file[name].dtype), name
                if name != "scaled":  # whose name was its scale's
                    assert labels(file[name]) == labels(back[name]), name
        assert list(back["scaled"].dims[0].keys()) == list(file["scaled"].dims[0].keys()) == ["scale"]
        assert back["scale"].is_scale
    assert store["h/unwritten"].fill_value == -9


def test_an_enumeration_stays_beside_remembered_types(tmp_path: Path, store: nandarray.Store) -> None:
    source, again, typed = tmp_path / "enum.h5", tmp_path / "again.h5", "_ATTRIBUTE_TYPES"
    beside = {"good": '{"x": "<f2", "flag_meanings": "bytes:utf-8"}', "bad": '{"x": "zz"}', "none": "no JSON"}
    with h5py.File(source, "w") as file:
        for name, types in beside.items():
            item = file.create_dataset(name, data=np.array([0, 1], "i1"), dtype=h5py.enum_dtype(COLOURS, "i1"))
            item.attrs["x"], item.attrs[typed] = 1.5, types
    with pytest.warns(UserWarning, match=f": bad:{typed}, none:{typed}$"):
        nandarray.import_(source, store, "e")
    assert decode(store["e/good"].attrs)["x"].dtype == np.float16
    nandarray.export(store["e"], again)
    nandarray.import_(again, store, "e2")
    for name in beside:
        assert store[f"e/{name}"].attrs[typed]["flag_meanings"] == "enum"
        assert dict(store[f"e2/{name}"].attrs) == dict(store[f"e/{name}"].attrs)
    with h5py.File(again) as back:
        assert all(h5py.check_enum_dtype(back[name].dtype) == COLOURS for name in beside)


def test_every_kind_of_attribute_of_hdf5(tmp_path: Path, store: nandarray.Store) -> None:
    source, again = tmp_path / "all.h5", tmp_path / "again.h5"
    with h5py.File(source, "w") as file:
        for owner in (file.create_dataset("x", data=[1.0]), file.create_group("g")):
            for name, make, _ in HDF5_ATTRS:
                make(owner, name)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        nandarray.import_(source, store, "h")
    said = "\n".join(str(one.message) for one in told)
    nandarray.export(store["h"], again)
    nandarray.import_(again, store, "h2")  # of which nothing is left to tell
    with h5py.File(source) as file:
        for owner in ("x", "g"):
            found, back = (decode(dict(store[f"{group}/{owner}"].attrs)) for group in ("h", "h2"))
            for name, _, verdict in HDF5_ATTRS:
                shown = f"{owner}:{name}" in said or f"{owner} has the attribute '{name}'" in said
                assert shown == (verdict == TOLD), (owner, name, said)
                if verdict == TOLD:
                    continue
                wanted = file[owner].attrs[name]
                wanted = wanted.tobytes() if isinstance(wanted, np.bytes_) else wanted
                assert same(found[name], wanted) or (name == "texts" and found[name] == list(wanted)), name
                assert same(back[name], found[name]), name


#: Values of attributes of a store, which every format gives back as what they were.
STORE_ATTRS: dict[str, Any] = {
    "nothing": None, "mapping": {"a": 1, "float": {"float": "nan"}}, "list_empty": [], "list_mixed": [1, "a", None],
    "list_one": [5], "lists": [[1, 2], [3, 4]], "list_nested": [[1], [2, 3]], "truth": True, "truths": [True, False],
    "nan": float("nan"), "infinite": [float("inf"), 1.0], "nan_within": {"x": [float("nan"), {"float": "nan"}]},
    "large": 2**70, "larges": [2**70, 1], "unsigned": 2**64 - 1, "text_nul": "a\0b", "text_empty": "",
    "surrogate": "\ud800",
    "numbers_many": list(range(20_000)), "missing_value": float("nan"), "_FillValue": 7.5,
}  # fmt: skip


@pytest.mark.parametrize("ending", ["h5", "nc", "zarr"])
def test_every_value_of_an_attribute_comes_back(tmp_path: Path, store: nandarray.Store, ending: str) -> None:
    store.create("s/x", data=np.arange(3.0), attrs=STORE_ATTRS)
    store["s"].attrs.update(STORE_ATTRS)
    path = tmp_path / f"x.{ending}"
    nandarray.export(store["s"], path)
    nandarray.import_(path, store, "back")
    for name in ("", "/x"):
        found, wanted = (dict(store[f"{top}{name}"].attrs) for top in ("back", "s"))
        assert repr({key: found[key] for key in wanted}) == repr(wanted)
    for text in path.rglob("zarr.json") if ending == "zarr" else ():
        if "missing_value" not in (attrs := json.loads(text.read_text()).get("attributes", {})) or not attrs:
            continue

        def refuse(word: str) -> None:
            raise AssertionError(word)

        plain = {key: value for key, value in attrs.items() if key != "missing_value"}
        json.loads(json.dumps(plain), parse_constant=refuse)
    if ending != "zarr":
        with h5py.File(path) as file:
            assert json.loads(file["x"].attrs["nan_within"]) == {"x": [{"float": "nan"}, {"float": {"float": "nan"}}]}


@pytest.mark.parametrize(
    ("ending", "key", "value"),
    [("nc", "_FillValue", 300), ("nc", "NAME", "x"), ("h5", "a\0", 1), ("nc", "_FillValue", "x")],
)  # fmt: skip
def test_an_attribute_that_a_format_cannot_hold_is_named(
    tmp_path: Path, store: nandarray.Store, ending: str, key: str, value: Any
) -> None:
    store.create("deep/x", data=np.arange(3, dtype="i1"), attrs={key: value})
    with pytest.raises(nandarray.InvalidError, match=r"cannot hold the attribute '.*' of 'deep/x'") as refused:
        nandarray.export(store, tmp_path / f"x.{ending}")
    assert repr(key) in str(refused.value)


#: Variables of NetCDF-4: name, type, values, what becomes of it.
NETCDF_VARIABLES: list[tuple[str, Any, Any, str]] = [
    *((code, code, np.arange(3).astype(code), EQUAL) for code in NETCDF_NUMBERS),
    ("letters", "S1", np.array([b"a", b"b", b""]), EQUAL),
    ("text", str, np.array(["a", "", "é"], object), EQUAL),
    ("enumeration", "enum", np.array([0, 1, 1], "i1"), EQUAL),
    ("ragged", "vlen", [np.arange(n, dtype="i4") for n in (1, 2, 3)], REFUSED),
    ("record", "compound", np.zeros(3, [("a", "i4"), ("b", "f8")]), EQUAL),
]  # fmt: skip


def test_every_kind_of_netcdf(tmp_path: Path, store: nandarray.Store) -> None:
    source, again = tmp_path / "all.nc", tmp_path / "again.nc"
    with netCDF4.Dataset(source, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("unlimited", None)
        file.createDimension("spare", 4)
        file.createVariable("deep/below", "f4", ("x",))[:] = 1
        file.createVariable("grows", "f4", ("unlimited",), zlib=True)[:] = np.arange(3)
        made = {
            "enum": file.createEnumType("i1", "colour", COLOURS),
            "vlen": file.createVLType("i4", "ragged_t"),
            "compound": file.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")], align=True), "record_t"),
        }
        for name, kind, values, _ in NETCDF_VARIABLES:
            variable = file.createVariable(name, made.get(kind, kind) if isinstance(kind, str) else kind, ("x",))
            for number, value in enumerate(values):
                variable[number] = value
            variable.units, variable.numbers = "K", np.array([1, 2], "i2")
    said, left = imported(source, store, "n")
    assert "spare is a dimension of 4 elements" in said
    assert store["n"].attrs.get("_ATTRIBUTE_TYPES") is None
    kept = store["n"]
    for name, kind, values, verdict in NETCDF_VARIABLES:
        assert any(one.startswith(f"{name} ") for one in left) == (verdict == REFUSED), (name, left)
        if verdict == EQUAL:
            wanted = np.array(values.tolist(), "U") if kind is str else values
            assert kept[name][...].tolist() == wanted.tolist(), name
            assert decode(dict(kept[name].attrs))["numbers"].dtype == np.dtype("i2")
    assert kept["enumeration"].attrs["flag_meanings"] == "RED GREEN"
    assert kept["enumeration"].attrs["flag_values"] == [0, 1]
    del kept["record"]
    nandarray.export(kept, again)
    nandarray.import_(again, store, "n2")
    for name, _, _, verdict in NETCDF_VARIABLES:
        if verdict == EQUAL and name != "record":
            assert same(store[f"n2/{name}"][...], kept[name][...]), name
            assert store[f"n2/{name}"].attrs["units"] == "K"


#: Arrays of Zarr: name, dtype, options, format, what becomes of it.
ZARR_ARRAYS: list[tuple[str, Any, dict[str, Any], int, str]] = [
    *((f"{code}_{form}", code, {}, form, EQUAL) for form in (2, 3) for code in ZARR_NUMBERS),
    ("big_endian", ">i4", {}, 2, EQUAL),
    ("dates_2", "M8[s]", {}, 2, EQUAL),
    ("bytes_2", "S3", {}, 2, EQUAL),
    ("text_fixed_2", "U3", {}, 2, EQUAL),
    ("record_2", [("a", "<i4"), ("b", "<f8")], {}, 2, EQUAL),
    ("raw_2", "V4", {}, 2, EQUAL),
    ("text_2", str, {}, 2, EQUAL),
    ("text_3", str, {}, 3, EQUAL),
    ("no_fill", "i4", {"fill_value": None}, 2, EQUAL),
    ("fortran", "i4", {"order": "F"}, 2, EQUAL),
    ("named", "i4", {"dimension_names": ["x"]}, 3, EQUAL),
    ("shards", "i4", {"chunks": (1,), "shards": (3,)}, 3, EQUAL),
    ("sparse", "f4", {"fill_value": np.nan}, 3, EQUAL),
]  # fmt: skip


def zarr_values(dtype: Any, element: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype is str:
        return np.array(["a", "", "é"], object)
    return np.zeros(3, element) if element.kind in "VM" else np.arange(3).astype(element)


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
@pytest.mark.filterwarnings("ignore:The codec .* is currently not part")
def test_every_kind_of_zarr(tmp_path: Path, store: nandarray.Store) -> None:
    attrs = {"deep": {"a": [1, None, "x"]}, "number": 1.5, "text": "é", "empty": {}, "_ATTRIBUTE_TYPES": "mine"}
    for form in (2, 3):
        source, again = tmp_path / f"all{form}.zarr", tmp_path / f"again{form}.zarr"
        root = zarr.create_group(source, zarr_format=form, attributes=attrs)  # type: ignore[arg-type]
        root.create_group("group", attributes={"a": 1})
        kinds = [row for row in ZARR_ARRAYS if row[3] == form]
        for name, dtype, options, _, _ in kinds:
            array = root.create_array(name, shape=(3,), dtype=dtype, **options)
            if name != "sparse":
                array[...] = (
                    np.array(["a", "", "é"], object)
                    if dtype is str
                    else np.arange(3).astype(array.dtype)
                    if array.dtype.kind not in "VM"
                    else np.zeros(3, array.dtype)
                )
        if form == 3:  # noqa: PLR2004
            root.create_array("bytes_of_any_length", shape=(1,), dtype="variable_length_bytes")[...] = np.array(
                [b"\xff"], object
            )
            root.create_array("named_partly", shape=(1, 1), dtype="i1", dimension_names=["x", None])
        with pytest.warns(UserWarning, match=r"_ATTRIBUTE_TYPES|not kept of the source") as told:
            nandarray.import_(source, store, f"z{form}")
        assert any("_ATTRIBUTE_TYPES" in str(one.message) for one in told)
        said = "\n".join(str(one.message) for one in told)
        assert len(told) == form - 1
        if form == 3:  # noqa: PLR2004
            assert store[f"z{form}/bytes_of_any_length"][:].tolist() == [b"\xff"]
            assert "named_partly has dimensions named ['x', None]" in said
        kept = store[f"z{form}"]
        assert dict(kept.attrs) == {key: value for key, value in attrs.items() if key != "_ATTRIBUTE_TYPES"}
        nandarray.export(kept, again)
        back = zarr.open_group(again, mode="r")
        for name, dtype, _, _, _ in kinds:
            wanted = np.asarray(root[name][...])
            wanted = np.array(wanted.tolist(), "U") if dtype is str else wanted
            assert same(kept[name][...], wanted), name
            assert np.array_equal(np.asarray(back[name][...]), wanted, equal_nan=wanted.dtype.kind in "fc"), name
        if form == 3:  # noqa: PLR2004
            assert back["named"].metadata.dimension_names == ("x",)


def test_the_compression_of_the_source_is_kept_where_it_is_wanted(tmp_path: Path, store: nandarray.Store) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, options in (
            ("deflate", {"compression": "gzip", "compression_opts": 6, "shuffle": True}),
            ("lzf", {"compression": "lzf"}),
            ("plain", {}),
        ):
            file.create_dataset(name, data=np.arange(1000), **options)
    nandarray.import_(tmp_path / "x.h5", store, compression="source")
    assert [store[name].compression for name in ("deflate", "lzf", "plain")] == ["zstd:6+shuffle", "lz4", None]
    root = zarr.create_group(tmp_path / "x.zarr")
    blosc = zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")
    for name, codecs in (("blosc", [blosc]), ("zstd", [zarr.codecs.ZstdCodec(level=4)]), ("none", None)):
        root.create_array(name, data=np.arange(1000), compressors=codecs)
    nandarray.import_(tmp_path / "x.zarr", store, "z", compression="source")
    assert [store[f"z/{name}"].compression for name in ("blosc", "zstd", "none")] == ["lz4+bitshuffle", "zstd:4", None]
    nandarray.import_(tmp_path / "x.h5", store, "again")
    assert store["again/deflate"].compression is None
