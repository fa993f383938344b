"""A store against a dictionary of NumPy arrays: any sequence of operations leaves both the same.

Reopening is part of the game, so what the store keeps on disk is compared too, and ``check`` runs after every sequence.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import nandarray
import strategies

NAMES = st.sampled_from(["a", "b", "g/c", "g/d", "g/h/e", "a/x"])


class StoreMachine(RuleBasedStateMachine):
    """The rules; ``model`` is what the store must hold."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "data.nand"
        self.store = nandarray.open(self.path, mode="x")
        self.model: dict[str, np.ndarray[Any, Any]] = {}
        self.fills: dict[str, Any] = {}

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model)))

    def clashes(self, name: str) -> bool:
        others = self.model
        return name in others or any(o.startswith(name + "/") or name.startswith(o + "/") for o in others)

    @rule(data=st.data(), name=NAMES, shape=strategies.shapes(max_dims=3), dtype=strategies.dtypes())
    def create(self, data: st.DataObject, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        options: dict[str, Any] = {}
        if data.draw(st.booleans()):
            options["building_block"] = tuple(data.draw(st.integers(1, 5)) for _ in shape)
        options["compression"] = data.draw(st.sampled_from([None, None, "lz4", "zstd+shuffle"]))
        element = strategies.content((), dtype, 7)[()]
        if data.draw(st.booleans()):
            options["fill_value"] = element
        try:
            self.store.create(name, shape, dtype, **options)
        except nandarray.ExistsError:
            assert self.clashes(name)
            return
        assert not self.clashes(name)
        self.fills[name] = options.get("fill_value", np.zeros((), dtype)[()])
        self.model[name] = np.full(shape, self.fills[name], dtype)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), seed=st.integers(0, 99))
    def write(self, data: st.DataObject, seed: int) -> None:
        name = self.pick(data)
        model = self.model[name]
        key = data.draw(strategies.keys(model.shape))
        values = strategies.content(model[key].shape, model.dtype, seed)
        model[key] = values
        self.store[name][key] = values

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def write_fill(self, data: st.DataObject) -> None:
        name = self.pick(data)
        model = self.model[name]
        key = tuple(data.draw(strategies.slices(n)) for n in model.shape)
        model[key] = self.fills[name]
        self.store[name][key] = self.fills[name]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        name = self.pick(data)
        model = self.model[name]
        key = data.draw(strategies.keys(model.shape))
        assert self.store[name][key].tobytes() == model[key].tobytes()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), seed=st.integers(0, 99), writing=st.booleans())
    def view(self, data: st.DataObject, seed: int, writing: bool) -> None:  # noqa: FBT001
        name = self.pick(data)
        model = self.model[name]
        shape = data.draw(strategies.view_shapes(model.size))
        view, seen = self.store[name].view(shape), model.reshape(shape)
        sub = tuple(data.draw(st.integers(1, max(1, n))) for n in shape)
        at = tuple(data.draw(st.integers(0, max(0, -(-n // s) - 1))) for n, s in zip(shape, sub, strict=True))
        box: Any = (*(slice(c * s, c * s + s) for c, s in zip(at, sub, strict=True)), ...)
        if writing:
            values = strategies.content(seen[box].shape, model.dtype, seed)
            seen[box] = values
            view.write(at, values, sub_shape=sub)
        else:
            assert view.read(at, sub).tobytes() == seen[box].tobytes()

    @precondition(lambda self: any(model.ndim for model in self.model.values()))
    @rule(data=st.data())
    def resize(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, model in self.model.items() if model.ndim)))
        model = self.model[name]
        shape = tuple(data.draw(st.integers(0, 9)) for _ in model.shape)
        self.store[name].resize(shape)
        new = np.full(shape, self.fills[name], model.dtype)
        common = tuple(slice(0, min(a, b)) for a, b in zip(shape, model.shape, strict=True))
        new[common] = model[common]
        self.model[name] = new

    @precondition(lambda self: any(model.ndim for model in self.model.values()))
    @rule(data=st.data(), count=st.integers(0, 4), seed=st.integers(0, 99))
    def append(self, data: st.DataObject, count: int, seed: int) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, model in self.model.items() if model.ndim)))
        model = self.model[name]
        axis = data.draw(st.integers(0, model.ndim - 1))
        shape = (*model.shape[:axis], count, *model.shape[axis + 1 :])
        values = strategies.content(shape, model.dtype, seed)
        new = np.concatenate([model, values], axis)
        assert self.store[name].append(values, axis) == new.shape
        self.model[name] = new.astype(model.dtype)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = self.pick(data)
        del self.store[name]
        del self.model[name]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), new=NAMES)
    def rename(self, data: st.DataObject, new: str) -> None:
        old = self.pick(data)
        try:
            self.store.rename(old, new)
        except (nandarray.ExistsError, nandarray.InvalidError):
            assert self.clashes(new)
            return
        self.model[new] = self.model.pop(old)
        self.fills[new] = self.fills[old]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), value=st.integers(0, 9))
    def attribute(self, data: st.DataObject, value: int) -> None:
        attrs = self.store[self.pick(data)].attrs
        attrs["value"] = value
        assert attrs["value"] == value

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def compact(self) -> None:
        self.store.compact()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = nandarray.open(self.path, mode="r+")

    @rule()
    def read_elsewhere(self) -> None:
        self.store.flush()
        with nandarray.open(self.path) as other:
            for name, model in self.model.items():
                assert other[name][...].tobytes() == model.tobytes()

    @invariant()
    def same_names_and_shapes(self) -> None:
        assert self.store.array_names() == sorted(self.model)
        for name, model in self.model.items():
            array = self.store[name]
            assert array.shape == model.shape
            assert array.dtype == model.dtype

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        for name, model in self.model.items():
            assert self.store[name][...].tobytes() == model.tobytes()
        report = self.store.check()
        self.store.close()
        self.folder.cleanup()
        assert report["ok"], report


TestStore = StoreMachine.TestCase
TestStore.settings = hypothesis.settings(stateful_step_count=25)
