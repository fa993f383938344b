"""A store on the command line: listings, trees, facts, statistics, progress.

Each function takes an open store, and prints either for people or, with ``as_json``, for programs. Facts come from the
index alone, so an encrypted array is listed without its key. No element is read here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any
from uuid import UUID

import numpy as np
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.tree import Tree

from nandarray.array.listing import facts, groups_below, is_array, listed, open_array, ragged_facts, ragged_kind
from nandarray.cli.common import Tell, bars, console, facts_of, jsonable_array, missing, print_json, say, table_of
from nandarray.errors import DoorError
from nandarray.present.plain import plain
from nandarray.units import count, format_size

__all__ = ["attrs_of", "check", "info", "listing", "pick", "progress", "stat", "tree"]


def pick(store: Any, name: str, key: bytes | None) -> Any:
    """Return the array or the group of this name; the store for "" and "/"."""
    name = name.strip("/")
    if not name:
        return store
    missing(store, name)
    return open_array(store, name, key) if is_array(store, name) else store[name]


def attrs_of(store: Any, name: str) -> Any:
    """Return the attributes of an array, a group or the store."""
    return pick(store, name, None).attrs


def _known(store: Any, name: str) -> dict[str, dict[str, Any]]:
    """Return the facts of the arrays at or below ``name``, by their full names; a ragged one is one, not its parts."""
    name = name.strip("/")
    if (own := ragged_kind(store, name)) is not None:
        return {name: ragged_facts(store, name, own)}
    group = None if is_array(store, name) else pick(store, name, None)
    names = [name] if group is None else [group._prefix + inner for inner in group.array_names()]
    kinds = listed(store, names)
    return {one: facts(store, one) if kind is None else ragged_facts(store, one, kind) for one, kind in kinds.items()}


def _shape(shape: list[int]) -> str:
    return " x ".join(map(str, shape)) if shape else "()"


def listing(store: Any, name: str, *, long: bool, as_json: bool) -> None:
    """Print the names of arrays, with their facts if ``long``."""
    found = _known(store, name)
    if as_json:
        print_json([*found.values()])
    elif not long:
        for item in found:
            say(plain(item))
    else:
        rows = []
        for item, known in found.items():
            how = ", ".join(filter(None, [known["compression"], "encrypted" if known["encrypted"] else ""]))
            shape, block = _shape(known["shape"]), _shape(known["building_block"])
            rows.append((item, shape, known["dtype"], block, format_size(known["bytes"]), how))
        headings = ("name", "shape", "dtype", "building block", "size", "stored as")
        console().print(table_of(headings, rows, right=["size"], whole=["name"]))


def tree(store: Any, name: str, *, as_json: bool) -> None:
    """Print groups and arrays as a tree."""
    found = _known(store, name)
    top = None if name.strip("/") in found else pick(store, name, None)
    prefix = "" if top is None else top._prefix
    groups = [] if top is None else [group for group in groups_below(top) if prefix + group not in found]
    if as_json:
        nested: dict[str, Any] = {}
        for group in groups:
            _inside(nested, group.split("/"))
        for item, known in found.items():
            *parents, base = item.removeprefix(prefix).split("/")
            _inside(nested, parents)[base] = {
                key: value for key, value in known.items() if key in {"shape", "dtype", "building_block"}
            }
        print_json(nested)
        return
    root = Tree(plain(name.strip("/") or store.path))
    branches = {"": root}
    for group in groups:
        parent, _, base = group.rpartition("/")
        branches[group] = branches[parent].add(plain(f"{base}/"))
    for item, known in found.items():
        parent, _, base = item.removeprefix(prefix).rpartition("/")
        branches.get(parent, root).add(plain(f"{base}  {_shape(known['shape'])} {known['dtype']}"))
    console().print(root)


def _inside(nested: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    for part in parts:
        nested = nested.setdefault(part, {})
    return nested


def info(store: Any, name: str, *, key: bytes | None, as_json: bool) -> None:
    """Print all that is known of an array, a group or the store."""
    name = name.strip("/")
    if name:
        missing(store, name)
    if is_array(store, name):
        known = facts(store, name)
        if not known["encrypted"] or key is not None:
            known["stored"] = dict(open_array(store, name, key).stat())
            known["fill_value"] = open_array(store, name, key).fill_value
    elif (kind := ragged_kind(store, name)) is not None:
        known = ragged_facts(store, name, kind)
    else:
        group, found = pick(store, name, None), _known(store, name)
        known = {
            "name": name or "/",
            "arrays": len(found),
            "groups": sum(group._prefix + below not in found for below in groups_below(group)),
            "bytes": sum(one["bytes"] for one in found.values()),
            "attrs": dict(group.attrs),
        }
        if not name:
            known = {"path": store.path, **known}
            with suppress(DoorError):  # a door and a file of another format have none
                known["snapshots"] = len(store.snapshots())
            with suppress(DoorError):
                geometry = dict(store.geometry())
                geometry["uuid"] = str(UUID(bytes=geometry["uuid"]))
                known["geometry"] = geometry
    if as_json:
        print_json(known)
    else:
        _print_facts(known)


def _print_facts(known: Mapping[str, Any]) -> None:
    rows: list[tuple[str, str]] = []
    for key, value in known.items():
        label = key.replace("_", " ")
        if key in {"shape", "building_block"}:
            rows.append((label, _shape(value)))
        elif isinstance(value, Mapping):
            texts = [f"{inner}: {_value(inner, item)}" for inner, item in value.items()]
            rows += [("" if number else label, text) for number, text in enumerate(texts)]
        else:
            rows.append((label, _value(key, value)))
    console().print(facts_of(rows))


def _value(key: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, np.void):  # a structure, or plain bytes: as JSON has them, in hexadecimal
        shown = jsonable_array(np.asarray(value))
        return shown if isinstance(shown, str) else json.dumps(shown)
    if isinstance(value, np.generic):
        return str(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{format_size(value)} ({value:,} bytes)" if "bytes" in key else f"{value:,}"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.3g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def stat(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the store's statistics, and those of each array as a table."""
    if as_json:
        print_json(result)
        return
    arrays = result.get("arrays")
    _print_facts({key: value for key, value in result.items() if key != "arrays" or not isinstance(value, Mapping)})
    if not isinstance(arrays, Mapping) or not arrays:
        return
    columns = list(dict.fromkeys(key for item in arrays.values() for key in item))
    numbers = [column.replace("_", " ") for column in columns]
    rows = [
        (name, *("" if column not in item else _cell(column, item[column]) for column in columns))
        for name, item in arrays.items()
    ]
    out = console()
    out.print()
    out.print(table_of(("array", *numbers), rows, right=numbers, whole=["array"]))


def _cell(key: str, value: Any) -> str:
    return format_size(value) if "bytes" in key and isinstance(value, int) else _value(key, value)


def check(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what a check found."""
    if as_json:
        print_json(result)
        return
    for error in result.get("errors", []):
        say(f"error: {_sentence(error)}")
    for repaired in result.get("repaired", []):
        say(f"repaired: {_sentence(repaired)}")
    dropped = result.get("dropped")
    if dropped:
        say(f"{'lost' if dropped['flushed'] else 'note'}: {_sentence(dropped['message'])}")
    counts = ", ".join(
        f"{key.replace('_', ' ')}: {value:,}"
        for key, value in result.items()
        if isinstance(value, int) and not isinstance(value, bool)
    )
    errors = len(result.get("errors", []))
    if result["ok"]:
        verdict = "ok"
    elif errors:
        verdict = f"damaged: {count(errors, 'error')}"
    else:
        verdict = "salvaged, with losses"
    say(f"{verdict}{f' ({counts})' if counts else ''}")


def _sentence(error: Any) -> str:
    if isinstance(error, Mapping):
        return ", ".join(f"{key} {value}" for key, value in error.items())
    return str(error)


def progress(verb: str, *, quiet: bool) -> AbstractContextManager[Tell | None]:
    """Show a bar for each array that is copied, on standard error if that is a terminal."""
    columns = (DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    return bars(*columns, quiet=quiet, verb=verb)
