"""Attributes and names against plain dictionaries: any JSON value comes back, any call is a dictionary's call.

The reference of a value is what the ``json`` module makes of it once NumPy's scalars and arrays are written as Python's
numbers and lists; that of a name is a resolver of paths written here, which knows no store.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nandarray
from nandarray import ExistsError, InvalidError, NotFoundError
from nandarray.interop.convert.attributes import decode

_NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=6),
    hnp.from_dtype(np.dtype("i8")), hnp.from_dtype(np.dtype("u8")), hnp.from_dtype(np.dtype("f4")),
    hnp.from_dtype(np.dtype(">f2")),
    st.sampled_from([np.bool_(True), np.str_("é"), np.dtype(">i2"), np.float64("-inf")]),
    hnp.arrays(st.sampled_from(["?", "u1", ">i4", "f8", "U2"]), st.lists(st.integers(0, 3), max_size=3).map(tuple)),
)  # fmt: skip
_VALUES = st.recursive(
    _NUMBERS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.dictionaries(st.text(max_size=4), inner, max_size=3).map(MappingProxyType),
    ),
    max_leaves=12,
)


def plain(value: Any) -> Any:
    """The Python value that an attribute must read as."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return value


def same(found: Any, wanted: Any) -> bool:
    """Equal in type and value, where NaN equals NaN and -0.0 is not 0.0."""
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict) and list(found) == list(wanted) and all(same(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, float):
        return type(found) is float and (found == wanted or found != found and wanted != wanted) and (
            math.copysign(1, found) == math.copysign(1, wanted) or wanted != wanted
        )  # fmt: skip
    return type(found) is type(wanted) and bool(found == wanted)


@settings(max_examples=30)
@given(values=st.dictionaries(st.text(max_size=5), _VALUES, max_size=5))
@example(values={"": {"": [{}, [], ()]}, "\0": "\ud800", "\N{EGG}": {"a": MappingProxyType({"b": np.zeros((0, 2))})}})
def test_any_json_value_comes_back_from_the_file(
    values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("attributes") / "d.nand"
    wanted = plain(values)
    with nandarray.open(path, "w") as store:
        store.create("g/a", 2, "u1", attrs=values)
        store.create_group("h", attrs=values)
        store.attrs.update(values)
        for name in values:
            store["g"].attrs[name] = values[name]
        assert same(dict(store["g/a"].attrs), wanted)
    with nandarray.open(path) as store:
        for owner in (store["g/a"], store["h"], store, store["g"]):
            assert same(dict(owner.attrs), wanted), owner
            assert (len(owner.attrs), list(owner.attrs), bool(owner.attrs)) == (len(wanted), list(wanted), bool(wanted))
            assert same(json.loads(json.dumps(dict(owner.attrs))), wanted)


def _circle() -> list[Any]:
    """A list that holds itself."""
    own: list[Any] = [1]
    own.append({"own": own})
    return own


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


_NO_JSON = [
    (1j, "complex is not JSON: 1j"),
    (b"x", "bytes is not JSON: b'x'"),
    ({1, 2}, "set is not JSON: {1, 2}"),
    (np.datetime64("2024-01-01"), "datetime64 is not JSON"),
    (np.array([b"x"]), "ndarray is not JSON"),
    (np.array([None]), "ndarray is not JSON"),
    (np.longdouble(1) / 3, "longdouble is not JSON"),
    (np.zeros(2, "g"), "ndarray is not JSON"),
    (np.dtype([("a", "i4")]), "is not JSON: dtype"),
    (np.dtype(("f4", (2,))), "is not JSON: dtype"),
    ({1: 2}, "names within attributes must be str, not int: 1"),
    ({"1": 2, 1: 3}, "names within attributes must be str, not int: 1"),
    ([{"a": ({"b": MappingProxyType({None: 1})},)}], "names within attributes must be str, not NoneType: None"),
    ({True: 0}, "names within attributes must be str, not bool: True"),
    ({(1, 2): 0}, "attributes are stored as JSON: keys must be str"),
    (_circle(), "Circular reference detected"),
    (_deep(100_000), "nested too deeply"),
    (10**5000, "limit"),
]


@pytest.mark.parametrize(("value", "said"), _NO_JSON, ids=[said for _, said in _NO_JSON])
def test_what_is_no_json_is_refused_and_changes_nothing(store: nandarray.Store, value: Any, said: str) -> None:
    array = store.create("a", 2, "u1", attrs={"before": 1})
    for change in (
        lambda: array.attrs.update(more=1, bad=value),
        lambda: array.attrs.__setitem__("bad", [value]),
        lambda: array.attrs.setdefault("bad", {"x": value}),
        lambda: store.create("b", 2, "u1", attrs={"bad": value}),
        lambda: store.create_group("c", attrs={"bad": value}),
    ):
        with pytest.raises(InvalidError) as raised:
            change()
        assert said in str(raised.value)
    assert dict(array.attrs) == {"before": 1}
    assert list(store) == ["a"]


@pytest.mark.parametrize("name", [1, None, b"x", ("a",), 1.5])
def test_names_of_attributes_are_text(store: nandarray.Store, name: Any) -> None:
    array = store.create("a", 2, "u1")
    for change in (lambda: array.attrs.update({name: 1}), lambda: store.create("b", 1, attrs={name: 1})):
        with pytest.raises(InvalidError, match=f"attribute names must be str, not {type(name).__name__}"):
            change()
    assert name not in array.attrs
    assert not array.attrs


@settings(max_examples=30)
@given(data=st.data())
def test_any_calls_are_those_of_a_dictionary(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both kinds of owners, by two handles each, with reads in between."""
    missing = object()
    with nandarray.open(tmp_path_factory.mktemp("calls") / "d.nand", "w") as store:
        store.create("a", 2, "u1")
        store.create_group("g")
        models: dict[str, dict[str, Any]] = {"a": {}, "g": {}}
        for _ in range(data.draw(st.integers(5, 25))):
            owner = data.draw(st.sampled_from(sorted(models)))
            attrs, model = store[owner].attrs, models[owner]
            name, value = data.draw(st.sampled_from("xyz")), data.draw(st.one_of(st.integers(), st.text(max_size=3)))
            call = data.draw(
                st.sampled_from(["set", "del", "pop", "popitem", "default", "update", "clear", "pairs", "get"])
            )
            if call == "set":
                attrs[name] = model[name] = value
            elif call == "del":
                if name in model:
                    del attrs[name], model[name]
                else:
                    with pytest.raises(NotFoundError, match=f"no attribute named '{name}'"):
                        del attrs[name]
            elif call == "pop":
                assert attrs.pop(name, missing) == model.pop(name, missing)
            elif call == "popitem" and model:
                gone, old = attrs.popitem()
                assert model.pop(gone) == old
            elif call == "default":
                assert attrs.setdefault(name, value) == model.setdefault(name, value)
            elif call == "update":
                attrs.update({name: value}, other=1)
                model.update({name: value}, other=1)
            elif call == "pairs":
                attrs.update([(name, value), ("last", name)])
                model.update([(name, value), ("last", name)])
            elif call == "clear":
                attrs.clear()
                model.clear()
            else:
                assert attrs.get(name, missing) == model.get(name, missing)
            assert attrs == model
            assert list(store[owner].attrs.items()) == list(model.items())
            assert repr(attrs) == repr(model)


def resolve(group: str, name: str) -> str | None:
    """The full name of ``name`` as seen from a group; ``None`` if it is none."""
    stripped = name.strip("/")
    if not stripped:
        return "" if name.startswith("/") else group
    parts = stripped.split("/")
    if any(part in ("", ".", "..", ".group") or "\0" in part for part in parts):
        return None
    return "/".join(parts if name.startswith("/") or not group else [*group.split("/"), *parts])


_PARTS = st.sampled_from(["a", "b", "c", "", ".", "..", ".group", "a b", "\0", "é", "A", "group", "__importing__"])
_NAMES = st.lists(_PARTS, max_size=4).map("/".join)


class Names:
    """The names of arrays and kept groups, and the answers that a store has to give about them."""

    def __init__(self) -> None:
        self.arrays: set[str] = set()
        self.kept: set[str] = set()

    def is_group(self, path: str) -> bool:
        below = path + "/"
        return not path or path in self.kept or any(one.startswith(below) for one in self.arrays | self.kept)

    def takes(self, path: str) -> bool:
        """Whether something new may have this name."""
        above = [path[:at] for at, letter in enumerate(path) if letter == "/"]
        return not (path in self.arrays or self.is_group(path) or self.arrays.intersection(above))

    def members(self, path: str) -> list[str]:
        below = f"{path}/" if path else ""
        every = (one[len(below) :] for one in self.arrays | self.kept if one.startswith(below) and one != path)
        return sorted({one.partition("/")[0] for one in every if one})

    def move(self, old: str, new: str) -> None:
        for every in (self.arrays, self.kept):
            moved = {one for one in every if (one + "/").startswith(old + "/")}
            every -= moved
            every |= {new + one[len(old) :] for one in moved}

    def remove(self, path: str) -> None:
        for every in (self.arrays, self.kept):
            every -= {one for one in every if (one + "/").startswith(path + "/")}


@settings(max_examples=60)
@given(data=st.data())
def test_names_are_those_of_a_tree_seen_from_any_group(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Handles of groups that are gone are used, too: a group is a prefix, and may come again."""
    model, handles = Names(), {""}
    with nandarray.open(tmp_path_factory.mktemp("names") / "d.nand", "w") as store:
        groups: dict[str, Any] = {"": store}
        for _ in range(data.draw(st.integers(4, 20))):
            here = data.draw(st.sampled_from(sorted(handles)))
            group, name = groups[here], data.draw(_NAMES)
            path = resolve(here, name)
            if path is None:
                for call in (group.__getitem__, group.create_group, group.require_group):
                    with pytest.raises(InvalidError, match="is not a name"):
                        call(name)
                assert name not in group
                continue
            assert (name in group) == (path in model.arrays or model.is_group(path)), (here, name)
            call_name = data.draw(st.sampled_from(["create", "group", "require", "delete", "rename", "attrs", "open"]))
            _act(call_name, (group, here), (name, path), model, data)
            if model.is_group(path) and path not in groups:
                groups[path] = group[name] if path else store
                handles.add(path)
            for at, handle in groups.items():
                assert handle.keys() == model.members(at), at
                assert handle.name == (at or "/")
            assert store.array_names() == sorted(model.arrays)
        assert store.check()["ok"]


def _act(call: str, place: tuple[Any, str], what: tuple[str, str], model: Names, data: st.DataObject) -> None:
    """Make one call on a group, and the same change of the model; or see it refused."""
    (group, here), (name, path) = place, what
    there = path in model.arrays or (bool(path) and model.is_group(path))
    if call in ("create", "group"):
        make = (lambda: group.create(name, 1, "u1")) if call == "create" else (lambda: group.create_group(name))
        if model.takes(path):
            assert make().name == path
            (model.arrays if call == "create" else model.kept).add(path)
        else:
            pytest.raises(ExistsError, make)
    elif call == "require":
        if model.is_group(path) or model.takes(path):
            assert group.require_group(name).name == (path or "/")
            if path and not model.is_group(path):
                model.kept.add(path)
        else:
            pytest.raises(ExistsError, group.require_group, name)
    elif call == "delete":
        if there:
            del group[name]
            model.remove(path)
        else:
            pytest.raises((NotFoundError, InvalidError), group.__delitem__, name)
    elif call == "rename":
        new = data.draw(_NAMES)
        target = resolve(here, new)
        if target is None or not there:
            pytest.raises((InvalidError, NotFoundError), group.rename, name, new)
        elif target == path:
            group.rename(name, new)
        elif target.startswith(path + "/"):
            pytest.raises(InvalidError, group.rename, name, new)
        elif model.takes(target):
            group.rename(name, new)
            model.move(path, target)
        else:
            pytest.raises(ExistsError, group.rename, name, new)
    elif call == "attrs":
        # Attributes keep a group that was a prefix only, and make anew one that has gone, if no array is in the way.
        above = [here[:at] for at, letter in enumerate(here) if letter == "/"]
        if here in model.arrays or model.arrays.intersection(above):
            with pytest.raises(ExistsError, match="is an array"):
                group.attrs["n"] = 1
        else:
            group.attrs["n"] = 1
            if here:
                model.kept.add(here)
    elif there:
        assert group[name].name == path
    elif path:
        pytest.raises(NotFoundError, group.__getitem__, name)


def test_a_group_whose_name_an_array_has_taken_keeps_no_attributes(path: pathlib.Path) -> None:
    with nandarray.open(path, "w") as store:
        for gone, taken in (("g", "g"), ("h/i/k", "h/i")):
            group = store.create_group(gone)
            del store[gone]
            store[taken] = np.arange(3)
            with pytest.raises(ExistsError, match=f"'{taken}' is an array, so '{gone}/.group' cannot lie in it"):
                group.attrs["x"] = 1
            assert dict(group.attrs) == {}
        assert str(store.tree()).count("int64") == 2  # noqa: PLR2004
    with nandarray.open(path) as store:
        assert store.array_names() == ["g", "h/i"]
        with pytest.raises(nandarray.ReadOnlyError):
            store.attrs["x"] = 1


TYPES = "_ATTRIBUTE_TYPES"


def test_types_of_attributes_are_reserved(store: nandarray.Store) -> None:
    array = store.create("a", (1,), attrs={"x": 1.25})
    for value in ("mine", {"x": "<f4"}, {"x": "zz"}, 5):
        for refused in (
            lambda value=value: array.attrs.__setitem__(TYPES, value),
            lambda value=value: store.create("b", (1,), attrs={TYPES: value, "x": "text"}),
            lambda value=value: store.create_group("g", attrs={TYPES: value, "x": "text"}),
            lambda value=value: store.attrs.update({TYPES: value}),
        ):
            with pytest.raises(nandarray.InvalidError, match="reserved"):
                refused()
    assert dict(array.attrs) == {"x": 1.25}
    assert list(store) == ["a"]
    # With the attributes that they are of, types are copied; a value that is set anew has none.
    array.attrs.update({"y": 2, "z": [1, 2], TYPES: {"y": "<i2", "z": "1:<i2"}})
    copied = store.create("b", (1,), attrs=dict(array.attrs))
    assert dict(copied.attrs) == dict(array.attrs)
    copied.attrs["y"] = 0.5
    assert copied.attrs[TYPES] == {"z": "1:<i2"}
    del copied.attrs["z"]
    assert dict(copied.attrs) == {"x": 1.25, "y": 0.5}
    older = {"x": 1, TYPES: {"x": "zz"}}  # as a store may have it from before the name was reserved
    assert decode(older) == {"x": 1}
    for change in (
        lambda attrs: attrs.__setitem__("y", 2),
        lambda attrs: attrs.update({"y": 2}),
        lambda attrs: attrs.__delitem__("x"),
        lambda attrs: attrs.__delitem__(TYPES),
    ):
        for untrue in ({"gone": "<f4", "w": "<f4", "z": 5}, {"gone": "<f4", "w": "<f4", "z": "<i2"}, "mine"):
            array.attrs._save(json.dumps({"x": 1, "w": 1.5, "z": [1], TYPES: untrue}))
            kept = {"w": "<f4"} if untrue != "mine" else {}
            assert isinstance(decode(array.attrs)["w"], np.float32 if kept else float)
            wanted = {"x": 1, "w": 1.5, "z": [1], TYPES: kept}
            change(wanted)
            change(array.attrs)
            assert dict(array.attrs) == {name: value for name, value in wanted.items() if value != {}}
    with pytest.raises(nandarray.InvalidError, match="has more than"):
        store.create("c", (1,), attrs={"x": ["a"] * 1000, TYPES: {"x": "1:|S1000000"}})
