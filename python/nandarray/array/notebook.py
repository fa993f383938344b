"""Arrays, views and groups in notebooks: facts with a drawing of the building blocks, and trees that fold.

Only the store's index is read, no element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import dtypes
from nandarray.array.listing import listed, ragged_facts
from nandarray.present.html import blocks, columns, folded, table
from nandarray.units import format_size

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.array.members import Members

__all__ = ["array_html", "nest", "part_html", "tree_html"]


def array_html(array: Array) -> str:
    """Describe an array as an HTML fragment."""
    stat = array.stat()
    facts = [
        ("name", array.name),
        ("shape", str(array.shape)),
        ("dtype", str(array.dtype)),
        ("building block", str(array.building_block)),
        ("size", format_size(array.nbytes)),
    ]
    if "blocks" in stat and "blocks_allocated" in stat:
        facts.append(("blocks stored", f"{stat['blocks_allocated']:,} of {stat['blocks']:,}"))
    if "bytes_stored" in stat:
        facts.append(("bytes stored", format_size(stat["bytes_stored"])))
    if array.compression:
        facts.append(("compression", array.compression))
    if array.encrypted:
        facts.append(("encrypted", "yes"))
    return columns(table(facts), blocks(array.shape, array.building_block))


def part_html(
    what: str, shape: Sequence[int], dtype: np.dtype[Any], block: Sequence[int], chunks: Sequence[int]
) -> str:
    """Describe a view of an array, or a field of its records, as an HTML fragment.

    ``what`` is the kind of part and the array's name, ``block`` the array's building block; ``chunks`` is a box of the
    part with about as many elements, for the drawing.
    """
    facts = [
        ("what", what),
        ("shape", str(tuple(shape))),
        ("dtype", str(dtype)),
        ("size", format_size(math.prod(shape) * dtype.itemsize)),
        ("building block of the array", str(block)),
    ]
    return columns(table(facts), blocks(shape, chunks))


def nest(group: Members) -> dict[str, Any]:
    """Return a group's members: a nested dictionary for each group, a text of dtype and shape for each array."""
    root: dict[str, Any] = {}
    full = listed(group.store, [group._prefix + name for name in sorted(group._below())])
    for path, kind in full.items():
        name = path[len(group._prefix) :]
        *groups, last = name.split("/")
        branch = root
        for one in groups:
            below = branch.setdefault(one, {})
            # An older rule of names had arrays within an array: what lies there has a branch beside the array's text.
            branch = below if isinstance(below, dict) else branch.setdefault(f"{one}/", {})
        if kind is not None:
            known = ragged_facts(group.store, path, kind)
            branch[last] = f"{known['dtype']} {tuple(known['shape'])}"
        elif last != ".group":
            facts = group.store._engine.describe(path)
            branch[last] = f"{dtypes.shown(facts['dtype'])} {tuple(facts['shape'])}"
    return root


def tree_html(name: str, members: dict[str, Any]) -> str:
    """Show the members below a group, as :func:`nest` gives them, as a list that folds, an HTML fragment."""
    return folded(name, _branch_html(members), opened=True)


def _branch_html(branch: dict[str, Any]) -> str:
    items = [
        f"<li>{folded(f'{name}/', _branch_html(inside))}</li>"
        if isinstance(inside, dict)
        else f"<li>{escape(name)} <small>{escape(inside)}</small></li>"
        for name, inside in branch.items()
    ]
    return f'<ul style="margin:0">{"".join(items)}</ul>'
