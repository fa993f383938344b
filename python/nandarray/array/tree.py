"""The overview of a group, as text; :mod:`nandarray.array.notebook` makes it HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nandarray.array import notebook
from nandarray.present.plain import plain

if TYPE_CHECKING:
    from nandarray.array.members import Members

__all__ = ["Tree"]


class Tree:
    """An overview of a group: print it, or let a notebook show it."""

    def __init__(self, group: Members) -> None:
        # Taken now: it can be shown when the store is closed.
        self._name, self._members = group.name, notebook.nest(group)
        #: In a notebook the root has the name of the store.
        self._title = group.store.path if group.name == "/" else group.name

    def __str__(self) -> str:
        lines = [plain(self._name)]
        _draw(self._members, "", lines)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.tree_html(self._title, self._members)


def _draw(branch: Mapping[str, Any], indent: str, lines: list[str]) -> None:
    for i, (name, inside) in enumerate(branch.items()):
        last = i == len(branch) - 1
        label = name.removesuffix("/") + "/" if isinstance(inside, dict) else f"{name}  {inside}"
        lines.append(indent + ("└── " if last else "├── ") + plain(label))
        if isinstance(inside, dict):
            _draw(inside, indent + ("    " if last else "│   "), lines)
