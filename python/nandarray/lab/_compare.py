"""Two runs beside each other: what was set differently, what came out differently, by how much.

Ratios are of the second run to the first. Rows of a table are matched by the columns that tell them apart: those that a
figure of the table shows as ``x`` and as series, then texts and truth values, then whole numbers until no two rows are
the same. Rows that only one of the runs has are kept, without a ratio.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nandarray.errors import InvalidError, NotFoundError
from nandarray.lab.claims import near
from nandarray.lab.read_run import Run, load
from nandarray.optional import needs
from nandarray.units import is_number

if TYPE_CHECKING:
    import pandas

__all__ = ["Comparison", "compare", "keys_of"]

_FACTS = ("experiment", "profile", "seed", "version", "source")

Rows = list[dict[str, Any]]


class Comparison:
    """Two runs beside each other.

    Made by :func:`nandarray.lab.compare`.

    Attributes
    ----------
    a, b : Run
        The runs.
    """

    def __init__(self, a: Run, b: Run) -> None:
        self.a, self.b = a, b

    @cached_property
    def parameters(self) -> Rows:
        """Parameters that differ: ``name``, ``a``, ``b``; None where a run has no such parameter.

        A device that both name, and that was described differently, comes with a row a value.
        """
        pairs = [(name, self.a.data.get(name), self.b.data.get(name)) for name in _FACTS]
        names = dict.fromkeys([*self.a.parameters, *self.b.parameters])
        pairs += [(name, self.a.parameters.get(name), self.b.parameters.get(name)) for name in names]
        pairs += self._descriptions()
        return [{"name": name, "a": one, "b": other} for name, one, other in pairs if one != other]

    def _descriptions(self) -> list[tuple[str, Any, Any]]:
        """Return values that differ between descriptions of one name, without those that parameters change."""
        said = {*self.a.parameters.get("changes", {}), *self.b.parameters.get("changes", {})}
        found = []
        for text in self.a.devices.keys() & self.b.devices.keys():
            one, other = self.a.devices[text].values, self.b.devices[text].values
            keys = [key for key in dict.fromkeys([*one, *other]) if key not in said]
            found += [(f"{text}: {key}", one.get(key), other.get(key)) for key in keys]
        return sorted(found, key=lambda pair: pair[0])

    @cached_property
    def answers(self) -> Rows:
        """Answers to the same claims: ``claim``, ``paper``, ``a``, ``b``, ``ratio``, ``within_a``, ``within_b``."""
        ours, theirs = ({one["claim"]: one for one in run.answers} for run in (self.a, self.b))
        rows = []
        for claim in dict.fromkeys([*ours, *theirs]):
            one, other = ours.get(claim, {}), theirs.get(claim, {})
            measured = one.get("measured"), other.get("measured")
            rows.append(
                {
                    "claim": claim,
                    "paper": one.get("paper", other.get("paper")),
                    "a": measured[0],
                    "b": measured[1],
                    "ratio": _ratio(*measured),
                    "within_a": one.get("within"),
                    "within_b": other.get("within"),
                }
            )
        return rows

    @property
    def tables(self) -> list[str]:
        """Names of the tables that both runs have."""
        return [name for name in self.a.tables if name in self.b.tables]

    def rows(self, name: str, on: Sequence[str] | None = None) -> Rows:
        """Match the rows of a table.

        Parameters
        ----------
        name : str
            Name of a table that both have.
        on : sequence of str, optional
            Columns that tell the rows apart; found if left out.

        Returns
        -------
        list of dict
            The columns that tell rows apart, and for every column of numbers ``NAME a``, ``NAME b``, ``NAME ratio``.

        Raises
        ------
        NotFoundError
            If not both have such a table.
        InvalidError
            If ``on`` names no column, or does not tell the rows apart.
        """
        if name not in self.tables:
            raise NotFoundError(f"the runs have no table {name!r} in common{near(name, self.tables)}")
        ours, theirs = self.a.rows(name), self.b.rows(name)
        columns = [column for column in self.a.tables[name] if column in self.b.tables[name]]
        keys = self._keys(name, ours, theirs) if on is None else list(on)
        for key in keys:
            if key not in columns:
                raise InvalidError(f"table {name!r} has no column {key!r} in both runs{near(key, columns)}")
        first, second = _by(ours, keys), _by(theirs, keys)
        if on is not None and (len(first) < len(ours) or len(second) < len(theirs)):
            raise InvalidError(f"table {name!r} has rows with the same {', '.join(keys)}: name more columns")
        rows = []
        measured = [column for column in columns if column not in keys]
        for place in dict.fromkeys([*first, *second]):
            one, other = first.get(place, {}), second.get(place, {})
            row = {key: (one or other)[key] for key in keys}
            for column in measured:
                a, b = one.get(column), other.get(column)
                if all(value is None or is_number(value) for value in (a, b)):
                    row |= {f"{column} a": a, f"{column} b": b, f"{column} ratio": _ratio(a, b)}
            rows.append(row)
        return rows

    def _keys(self, name: str, ours: Rows, theirs: Rows) -> list[str]:
        figures = [figure for figure in (*self.a.figures, *self.b.figures) if figure["table"] == name]
        return keys_of(ours, theirs, figures)

    def table(self, name: str, on: Sequence[str] | None = None) -> pandas.DataFrame:
        """Return the same as :meth:`rows` as a data frame."""
        with needs("pandas", "lab"):
            import pandas
        return pandas.DataFrame(self.rows(name, on))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data: what ``nandarray lab compare --json`` prints."""
        return {
            "a": self.a.id,
            "b": self.b.id,
            "parameters": self.parameters,
            "answers": self.answers,
            "tables": {name: self.rows(name) for name in self.tables},
        }

    def __repr__(self) -> str:
        return (
            f"<nandarray.lab.Comparison of {self.a.id} and {self.b.id}: {len(self.parameters)} settings differ, "
            f"{len(self.tables)} tables>"
        )

    def _repr_html_(self) -> str:
        from nandarray.lab._html import comparison_html

        return comparison_html(self)


def keys_of(ours: Rows, theirs: Rows, figures: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Find columns that tell the rows of a table apart in both runs, as few as will do; ``figures`` show the table.

    If none will, all that may be are given, and rows that look the same count as one.
    """
    rows = [*ours, *theirs]
    if not rows:
        return []
    columns = [column for column in rows[0] if all(column in row for row in rows)]
    shown = [figure["value"] or figure["y"] for figure in figures]
    keys: list[str] = []
    for figure in figures:
        second = figure["y"] if figure["kind"] in ("heatmap", "timeline") else ""
        axes = [figure["x"], figure["series"], second]
        keys += [axis for axis in axes if axis in columns and axis not in keys and axis not in shown]
    words = [column for column in columns if all(isinstance(row[column], str | bool) for row in rows)]
    whole = [column for column in columns if all(type(row[column]) is int for row in rows) and column not in shown]
    for more in (None, *words, *whole):
        if more is not None and more not in keys:
            keys.append(more)
        if keys and len(_by(ours, keys)) == len(ours) and len(_by(theirs, keys)) == len(theirs):
            return keys
    return keys


def _by(rows: Rows, keys: Sequence[str]) -> dict[tuple[str, ...], dict[str, Any]]:
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        found.setdefault(tuple(repr(row[key]) for key in keys), row)
    return found


def _ratio(before: Any, after: Any) -> float | None:
    if not (is_number(before) and is_number(after)) or not before:
        return None
    ratio = after / before
    return ratio if math.isfinite(ratio) else None


def compare(a: Run | str | os.PathLike[str], b: Run | str | os.PathLike[str]) -> Comparison:
    """Put two runs beside each other.

    Parameters
    ----------
    a, b : Run or path
        The runs, or their folders. They may be of different experiments.

    Returns
    -------
    Comparison
        Ratios are of ``b`` to ``a``.

    Raises
    ------
    NotFoundError
        If a folder is no run.

    Examples
    --------
    >>> from nandarray import lab
    >>> fast = {"device": "tiny", "changes": {"nand.t_read": "20 us"}}
    >>> a = lab.run("model.queue-depth", profile="small")
    >>> both = lab.compare(a, lab.run("model.queue-depth", profile="small", parameters=fast))
    >>> both.parameters
    [{'name': 'changes', 'a': {}, 'b': {'nand.t_read': '20 us'}}]
    >>> 1.2 < both.rows("depths")[0]["bytes_per_s ratio"] < 2
    True
    """
    return Comparison(a if isinstance(a, Run) else load(a), b if isinstance(b, Run) else load(b))
