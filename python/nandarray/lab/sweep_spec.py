"""Sweep files: a base device, axes, a workload; and the points that follow.

The page ``docs/reference/lab.md`` defines the form. A file is checked here as far as possible without building any
device: names of keys, kinds of values, lengths of axes that go together. Whether a point's device can be is found when
the point is measured; if not, that point fails and no other.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import operator
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nandarray import Synthetic, Trace, device
from nandarray.device import Description
from nandarray.errors import InvalidError
from nandarray.inputs import open_input, read_text
from nandarray.lab import registry
from nandarray.lab._files import plain
from nandarray.lab._inputs import inputs_of
from nandarray.lab.claims import near
from nandarray.lab.cost import weights_of
from nandarray.lab.parameters import LARGEST, resolve
from nandarray.lab.quantities import parse, span
from nandarray.lab.source import source_hash
from nandarray.units import is_number, parse_size

__all__ = ["OBJECTIVES", "Axis", "Spec", "read_spec"]

#: Default objectives of a Pareto front; those that were not measured are left out.
OBJECTIVES = {"bytes_per_s": "max", "latency_p99_us": "min", "j_per_byte": "min", "cost": "min"}

_TOP = (
    "name",
    "title",
    "device",
    "precondition",
    "seed",
    "zip",
    "set",
    "axes",
    "workload",
    "measure",
    "pareto",
    "cost",
)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SIZES = ("size", "bytes", "align", "offset", "working_set")
#: Ways to make one number of several.
HOW: dict[str, Callable[[Sequence[Any]], Any]] = {
    "mean": lambda numbers: sum(numbers) / len(numbers),
    "min": min,
    "max": max,
    "sum": sum,
    "first": operator.itemgetter(0),
    "last": operator.itemgetter(-1),
}
_POINTS_MAX = 1_000_000


@dataclass(frozen=True)
class Axis:
    """Something that differs from point to point.

    ``key`` is a key of descriptions, ``device``, ``precondition``, ``seed``, ``workload.NAME`` or ``parameters.NAME``;
    ``values`` are as written. ``column`` of the table is the key, with a unit if the values are quantities; ``cells``
    stand in it, a cell a value.
    """

    key: str
    values: tuple[Any, ...]
    column: str
    cells: tuple[Any, ...]


@dataclass(frozen=True)
class Spec:
    """A sweep, checked.

    ``groups`` of axes go together; between groups there are all combinations. ``shared`` is what every point's
    measurement takes, as plain data: texts of devices, workload, settings. ``resolved`` is all that was said, for
    ``sweep.json``; ``objectives`` has "max" or "min" for columns.
    """

    name: str
    title: str
    axes: tuple[Axis, ...]
    groups: tuple[tuple[int, ...], ...]
    shared: dict[str, Any]
    resolved: dict[str, Any]
    objectives: dict[str, str]

    @property
    def count(self) -> int:
        """Number of points."""
        return math.prod(len(self.axes[group[0]].values) for group in self.groups)

    def points(self) -> list[tuple[int, ...]]:
        """Yield each point as the place of its value on each axis; the last axis runs fastest."""
        found = []
        for places in itertools.product(*(range(len(self.axes[group[0]].values)) for group in self.groups)):
            point = [0] * len(self.axes)
            for group, place in zip(self.groups, places, strict=True):
                for axis in group:
                    point[axis] = place
            found.append(tuple(point))
        return found

    def settings(self, point: Sequence[int]) -> dict[str, Any]:
        """Return the values of a point by key, for its measurement."""
        return {axis.key: axis.values[place] for axis, place in zip(self.axes, point, strict=True)}

    def cells(self, point: Sequence[int]) -> dict[str, Any]:
        """Return the values of a point by column, for the table."""
        return {axis.column: axis.cells[place] for axis, place in zip(self.axes, point, strict=True)}


def read_spec(what: str | os.PathLike[str] | Mapping[str, Any], folder: Path | None = None) -> Spec:
    """Read a sweep file, TOML, or the same as a mapping.

    Paths in it are relative to ``folder``, or the file's folder. An InvalidError says where something is wrong; a file
    that cannot be read, or one that it names, is an OSError.
    """
    if isinstance(what, Mapping):
        return _Reader(dict(what), folder or Path(), "the sweep").spec()
    path = Path(what)
    try:
        said = tomllib.loads(read_text(path, "a sweep in TOML"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidError(f"{path} is no TOML: {error}") from None
    said.setdefault("name", path.stem)
    try:
        return _Reader(said, folder or path.parent, str(path)).spec()
    except InvalidError as error:
        if str(error).startswith(str(path)):
            raise
        raise type(error)(f"{path}: {error}") from None


class _Reader:
    """Turns what a file says into a :class:`Spec`."""

    def __init__(self, said: dict[str, Any], folder: Path, where: str) -> None:
        for key in said:
            if key not in _TOP:
                raise InvalidError(f"{key!r} is no part of a sweep{near(key, _TOP)}")
        self.said, self.folder, self.where = said, folder, where
        self.workload = dict(self._table("workload"))
        self.experiment = self._experiment()
        self.devices: dict[str, str] = {}

    def _table(self, name: str) -> dict[str, Any]:
        found = self.said.get(name, {})
        if not isinstance(found, Mapping):
            raise InvalidError(f"{name} must be a table, not {found!r}")
        return dict(found)

    def spec(self) -> Spec:
        name = self.said.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidError(f"name: {name!r} is no name: letters, digits, dots, dashes, underscores")
        changes = self._changes()
        axes = tuple(self._axis(key, values) for key, values in _flat(self._table("axes")).items())
        if not axes:
            raise InvalidError("a sweep must have axes")
        groups = self._groups(axes)
        base = self._device(self.said.get("device", "samsung-970-pro"), "device")
        shared = {
            "device": base,
            "set": changes,
            "precondition": self._precondition(self.said.get("precondition", "full"), "precondition"),
            "seed": self._seed(self.said.get("seed", 1), "seed"),
            "cost": weights_of(self._table("cost")),
            **self._work(),
        }
        for axis in axes:
            if axis.key == "device":
                for value in axis.values:
                    self._device(value, "axes: device")
        shared["devices"] = self.devices
        objectives = self._objectives()
        resolved = {
            "name": name,
            "device": base,
            "devices": self.devices,
            "precondition": shared["precondition"],
            "seed": shared["seed"],
            "set": changes,
            "axes": [{"key": axis.key, "column": axis.column, "values": axis.values} for axis in axes],
            "groups": groups,
            "workload": self._said_of_workload(shared),
            "measure": shared["measure"],
            "objectives": objectives,
            "cost": shared["cost"],
        }
        title = str(self.said.get("title", ""))
        spec = Spec(name, title, axes, groups, shared, plain(resolved), objectives)
        if spec.count > _POINTS_MAX:
            raise InvalidError(f"a sweep must have at most {_POINTS_MAX:,} points, not {spec.count:,}")
        return spec

    # --- the device ---------------------------------------------------------------------------------------------------

    def _device(self, what: Any, where: str) -> str:
        """Load a device once; it is known by what the file calls it."""
        if not isinstance(what, str):
            raise InvalidError(f"{where}: {what!r} is neither a preset nor a file")
        if what not in self.devices:
            path = self.folder / what
            is_file = device.is_file(what) or (what not in device.names() and path.is_file())
            try:
                self.devices[what] = device.load(path if is_file else what).to_toml()
            except InvalidError as error:
                raise InvalidError(f"{where}: {' '.join(str(error).split())}") from None
        return what

    def _changes(self) -> dict[str, Any]:
        found = _flat(self._table("set"))
        for key in found:
            if key not in _device_keys():
                raise InvalidError(f"set: {key!r} is not a key of descriptions{near(key, _device_keys())}")
        return found

    def _precondition(self, state: Any, where: str) -> Any:
        if state in ("empty", "full", "steady") or is_number(state):
            return state
        raise InvalidError(
            f"{where}: a device must be 'empty', 'full', 'steady' or overwritten a number of times, not {state!r}"
        )

    def _seed(self, seed: Any, where: str) -> int:
        if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
            return seed
        raise InvalidError(f"{where}: a seed must be a whole number from 0 on, not {seed!r}")

    # --- axes ---------------------------------------------------------------------------------------------------------

    def _axis(self, key: str, values: Any) -> Axis:
        where = f"axes: {key}"
        if isinstance(values, Mapping):
            values = span(dict(values), where)
        if not isinstance(values, list | tuple) or not values:
            raise InvalidError(f"{where}: an axis must have a list of values, or a range, not {values!r}")
        values = tuple(self._value(key, value, where) for value in values)
        if len({repr(value) for value in values}) < len(values):
            raise InvalidError(f"{where}: a value comes twice")
        found = [parse(value) for value in values]
        suffixes = {quantity.suffix for quantity in found if quantity is not None}
        if None in found or len(suffixes) > 1 or key == "device":
            same = len({type(value) for value in values}) == 1 and not isinstance(values[0], list | dict)
            return Axis(key, values, key, values if same else tuple(_words(value) for value in values))
        numbers = [quantity for quantity in found if quantity is not None]
        suffix = numbers[0].suffix
        if suffix and key.endswith(suffix):
            suffix = ""
        whole = all(isinstance(value, int) for value in values) or numbers[0].suffix in ("_bytes", "_bytes_per_s")
        # A whole number itself: a seed has more digits than a float.
        cells = [value if isinstance(value, int) else one.scaled for value, one in zip(values, numbers, strict=True)]
        for cell in cells:
            if isinstance(cell, int) and abs(cell) > LARGEST:
                raise InvalidError(f"{where}: {cell} is beyond {LARGEST:,}, the largest number of a table")
        if whole and all(cell == int(cell) for cell in cells):
            return Axis(key, values, key + suffix, tuple(int(cell) for cell in cells))
        return Axis(key, values, key + suffix, tuple(float(f"{cell:.15g}") for cell in cells))

    def _value(self, key: str, value: Any, where: str) -> Any:
        """Check a value of an axis as far as its key tells."""
        section, _, name = key.partition(".")
        if key == "precondition":
            return self._precondition(value, where)
        if key == "seed":
            return self._seed(value, where)
        if key == "device":
            if not isinstance(value, str):
                raise InvalidError(f"{where}: {value!r} is neither a preset nor a file")
            return value
        if section == "workload":
            if self.experiment is not None:
                raise InvalidError(f"{where}: an experiment's own are called parameters.NAME")
            self._workload_key(name, where)
            return self._workload_value(name, value, where)
        if section == "parameters" and self.experiment is not None:
            try:
                resolve(self.experiment, "small", {name: value})
            except InvalidError as error:
                raise InvalidError(f"{where}: {error}") from None
            return value
        if key not in _device_keys():
            own = ("device", "precondition", "seed")
            raise InvalidError(f"{where}: no such key{near(key, (*_device_keys(), *own, *self._workload_keys()))}")
        self._takes_changes(where)
        return value

    def _groups(self, axes: Sequence[Axis]) -> tuple[tuple[int, ...], ...]:
        """Put axes that go together in groups, in the order of their first ones."""
        said = self.said.get("zip", [])
        keys = [axis.key for axis in axes]
        lists = [keys] if said is True else [] if said is False else said
        if not isinstance(lists, list) or not all(isinstance(one, list) for one in lists):
            raise InvalidError(f"zip must be true, or lists of axes: [['a', 'b']], not {said!r}")
        of: dict[str, int] = {}
        for number, one in enumerate(lists):
            for key in one:
                if key not in keys:
                    raise InvalidError(f"zip: {key!r} is no axis{near(str(key), keys)}")
                if key in of:
                    raise InvalidError(f"zip: {key!r} comes twice")
                of[key] = number
            lengths = {key: len(axes[keys.index(key)].values) for key in one}
            if len(set(lengths.values())) > 1:
                counted = ", ".join(f"{key} has {length}" for key, length in lengths.items())
                raise InvalidError(f"zip: axes that go together must have as many values each, but {counted}")
        groups: dict[Any, list[int]] = {}
        for place, key in enumerate(keys):
            groups.setdefault(of.get(key, key), []).append(place)
        return tuple(tuple(group) for group in groups.values())

    # --- the workload -------------------------------------------------------------------------------------------------

    def _experiment(self) -> Any:
        what = self.workload.get("experiment")
        if what is None:
            return None
        path = self.folder / str(what)
        return registry.find(path if str(what).endswith(".py") or ".py:" in str(what) else str(what))

    def _takes_changes(self, where: str) -> None:
        if self.experiment is not None and "changes" not in self.experiment.parameters:
            raise InvalidError(f"{where}: {self.experiment.id} takes no changes of a device: it has no such parameter")

    def _workload_keys(self) -> list[str]:
        if self.experiment is not None:
            return [f"parameters.{name}" for name in self.experiment.parameters]
        return [f"workload.{field.name}" for field in dataclasses.fields(self._workload_class())]

    def _workload_class(self) -> type[Trace] | type[Synthetic]:
        return Trace if "trace" in self.workload else Synthetic

    def _workload_key(self, name: str, where: str) -> None:
        names = [field.name for field in dataclasses.fields(self._workload_class()) if field.name != "path"]
        if name not in names:
            raise InvalidError(f"{where}: no setting {name!r}{near(name, names)}")

    def _workload_value(self, name: str, value: Any, where: str) -> Any:
        if name == "size" and isinstance(value, Mapping):
            return {str(parse_size(size, where)): weight for size, weight in value.items()}
        if name in _SIZES and value is not None:
            return parse_size(value, where)
        return value

    def _work(self) -> dict[str, Any]:
        """Return the measured thing: a trace, a synthetic workload, or an experiment."""
        given = {key: value for key, value in self.workload.items() if key not in ("trace", "experiment", "profile")}
        measure = self._measure()
        if self.experiment is not None:
            return self._work_of_experiment(given) | {"measure": measure}
        if measure:
            raise InvalidError("measure is for experiments; a replay's measures are known")
        for name, value in given.items():
            self._workload_key(name, "workload")
            given[name] = self._workload_value(name, value, f"workload: {name}")
        if "trace" in self.workload:
            path = self.folder / str(self.workload["trace"])
            with open_input(path) as file:
                of_trace = hashlib.file_digest(file, "sha256").hexdigest()
            return {"kind": "trace", "trace": str(path.resolve()), "digest": of_trace, "workload": given, "measure": {}}
        if not {"requests", "bytes", "seconds"} & {*given, *self._axis_names("workload.")}:
            raise InvalidError("workload: it needs an end: requests, bytes or seconds")
        return {"kind": "synthetic", "workload": given, "measure": {}}

    def _axis_names(self, section: str) -> set[str]:
        return {key.removeprefix(section) for key in _flat(self._table("axes")) if key.startswith(section)}

    def _work_of_experiment(self, given: dict[str, Any]) -> dict[str, Any]:
        parameters = given.pop("parameters", {})
        for name in given:
            raise InvalidError(f"workload: {name!r} is for no experiment; it has experiment, profile, parameters")
        profile = self.workload.get("profile", "full")
        if self.said.get("set"):
            self._takes_changes("set")
        if ("device" in self.said or self._axis_names("device")) and "device" not in self.experiment.parameters:
            raise InvalidError(f"device: {self.experiment.id} has no such parameter")
        resolve(self.experiment, profile, dict(parameters))
        file = registry.file_of(self.experiment.run.__module__)
        return {
            "kind": "experiment",
            "experiment": f"{file}:{self.experiment.id}" if file else self.experiment.id,
            "profile": profile,
            "workload": dict(parameters),
            "digest": source_hash(self.experiment),
            "device_given": "device" in self.said,
        }

    def _said_of_workload(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workload without paths, which differ from place to place."""
        found = {key: shared[key] for key in ("kind", "workload", "profile", "digest") if key in shared}
        if shared["kind"] == "trace":
            found["trace"] = Path(shared["trace"]).name
        if self.experiment is not None:
            found["experiment"] = self.experiment.id
            # Inputs that the experiment's own parameters name; the sweep's devices are recorded whole already.
            axes = _flat(self._table("axes"))
            named = {key: value for key, value in axes.items() if key.startswith("parameters.")}
            inputs = inputs_of(self.experiment, {"workload": shared["workload"], "axes": named})
            found |= {"devices": inputs.devices, "files": inputs.files}
        return found

    def _measure(self) -> dict[str, dict[str, str]]:
        found = {}
        for name, about in self._table("measure").items():
            if not isinstance(about, Mapping) or set(about) - {"table", "column", "how"} or "table" not in about:
                raise InvalidError(f"measure: {name} must be a table, a column and how: {{table = 't', column = 'c'}}")
            how = about.get("how", "mean")
            if how not in HOW:
                raise InvalidError(f"measure: {name}: how must be one of {', '.join(HOW)}, not {how!r}")
            found[name] = {"table": str(about["table"]), "column": str(about.get("column", name)), "how": how}
        return found

    def _objectives(self) -> dict[str, str]:
        given = self._table("pareto")
        for name, way in given.items():
            if way not in ("max", "min"):
                raise InvalidError(f"pareto: {name} must be 'max' or 'min', not {way!r}")
        return given or dict(OBJECTIVES)


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested sections to dotted keys; a table with from, to or step(s) is a range and stays."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not {"from", "to", "step", "steps"} & set(value):
            found |= _flat(value, f"{before}{key}.")
        else:
            found[before + key] = value
    return found


def _device_keys() -> list[str]:
    listed = device.keys()
    return [key.key for key in listed]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_words(item)}" for key, item in value.items())
    return ", ".join(map(_words, value)) if isinstance(value, list | tuple) else str(value)


def described(shared: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the text of a point's device, and the changes of it."""
    keys = set(_device_keys())
    changes = {**shared["set"], **{key: value for key, value in settings.items() if key in keys}}
    return shared["devices"][settings.get("device", shared["device"])], changes


def device_of(shared: Mapping[str, Any], settings: Mapping[str, Any]) -> Description:
    """Build a point's device."""
    text, changes = described(shared, settings)
    return Description(text, changes)
