"""Promise: names are checked wherever users make them: those that imports under way have are refused, because what has
one is removed when the store is next opened for writing; and so is what is no part of a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import nandarray
from nandarray import InvalidError, from_xarray

RESERVED = "__importing__0123456789ab"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with nandarray.open(tmp_path / "a.nand", "w") as made:
        made["a"] = np.arange(3)
        yield made


@pytest.mark.parametrize("name", [RESERVED, f"{RESERVED}/x", f"/{RESERVED}/x/y"])
def test_names_of_imports_under_way_are_refused(tmp_path: Path, store: Any, name: str) -> None:
    np.save(tmp_path / "b.npy", np.arange(3))
    before = store._engine.names("")
    for make in (
        lambda: store.create(name, 3, "u1"),
        lambda: store.__setitem__(name, [1]),
        lambda: store.create_group(name),
        lambda: store.require_group(name),
        lambda: store.rename("a", name),
        lambda: from_xarray(xr.Dataset({"x": ("t", [1])}), store, group=name),
        lambda: nandarray.import_(tmp_path / "b.npy", store, name),
    ):
        with pytest.raises(InvalidError, match="reserved for imports"):
            make()
    with pytest.raises(InvalidError, match="reserved for imports"):
        from_xarray(xr.Dataset({RESERVED: ("t", [1])}), store)
    assert store._engine.names("") == before


@pytest.mark.parametrize("group", ["../x", "a/./b", "a//b", ".group", "\udc80", 5])
def test_groups_of_datasets_are_named_as_others(store: Any, group: Any) -> None:
    with pytest.raises(InvalidError, match="name"):
        from_xarray(xr.Dataset({"x": ("t", [1])}), store, group=group)
    assert store._engine.names("") == ["a"]


@pytest.mark.parametrize("name", ["..", ".", "", "/x", "x//y", ".group", "\udc80"])
@pytest.mark.parametrize("group", [None, "q"])
def test_variables_of_datasets_are_named_as_others(store: Any, name: str, group: str | None) -> None:
    with pytest.raises(InvalidError, match="name"):
        from_xarray(xr.Dataset({name: ("t", [1])}), store, group=group)
    assert store._engine.names("") == ["a"]
