"""Sweeps as they lie on disk: the table of points, those that failed, the Pareto front.

:mod:`nandarray.lab.write_sweep` writes the folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nandarray.errors import InvalidError
from nandarray.lab.claims import near
from nandarray.lab.pareto import front
from nandarray.lab.read_run import Folder, Run

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["Sweep", "damaged", "load_sweep", "sweeps"]


class Sweep(Folder):
    """A finished sweep.

    Made by :func:`nandarray.lab.sweep` and :func:`nandarray.lab.load_sweep`.

    Attributes
    ----------
    data : dict
        All of ``sweep.json``.
    path : path
        The folder.
    """

    HEAD = "sweep.json"

    @property
    def name(self) -> str:
        """The sweep's name."""
        return str(self.data["name"])

    @property
    def axes(self) -> list[dict[str, Any]]:
        """The parameters that are varied: ``key``, ``column`` of the table, ``values`` as written."""
        return list(self.data["axes"])

    @property
    def objectives(self) -> dict[str, str]:
        """The objectives of the Pareto front: column -> "max" or "min"."""
        return dict(self.data["objectives"])

    @property
    def columns(self) -> list[str]:
        """Columns of the table of points."""
        return self.tables["points"]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Points that failed: their values by column, ``kind`` of the error and its message, ``error``."""
        return self.rows("failures")

    def __len__(self) -> int:
        """Number of points, failed ones included."""
        return int(self.data["points"])

    def table(self, name: str = "points") -> pandas.DataFrame:
        """Return the table of points, or that of ``failures``."""
        return super().table(name)

    def rows(self, name: str = "points") -> list[dict[str, Any]]:
        """Return the same without pandas."""
        return super().rows(name)

    def pareto(self, objectives: Mapping[str, str] | None = None) -> pandas.DataFrame:
        """Return the points of the Pareto front: no other point is better in every objective.

        Parameters
        ----------
        objectives : mapping, optional
            Column -> "max" or "min"; the sweep's own if left out.

        Returns
        -------
        pandas.DataFrame
            Rows of the table.
        """
        frame = self.table()
        if objectives is None:
            return frame[frame["pareto"]] if len(frame) else frame
        for name in objectives:
            if name not in frame.columns:
                raise InvalidError(f"no column {name!r} in the sweep{near(name, frame.columns)}")
        return frame[front({name: list(frame[name]) for name in objectives}, objectives)]

    def to_xarray(self, index: Sequence[str] | None = None) -> xarray.Dataset:
        """Return the points as arrays over the axes.

        Parameters
        ----------
        index : sequence of str, optional
            Columns that become dimensions; the first axis of each group that goes together if left out.

        Returns
        -------
        xarray.Dataset
            NaN where a point failed.
        """
        columns = [axis["column"] for axis in self.axes]
        return self._dataset("points", index or [columns[group[0]] for group in self.data["spec"]["groups"]])

    def __repr__(self) -> str:
        failed = f", {self.data['failed']:,} failed" if self.data["failed"] else ""
        over = " x ".join(f"{len(axis['values'])} {axis['key']}" for axis in self.axes)
        return f"<nandarray.lab.Sweep {self.id}: {len(self):,} points over {over}{failed}>"

    def _repr_html_(self) -> str:
        from nandarray.lab._html import sweep_html

        return sweep_html(self)


def load_sweep(folder: str | os.PathLike[str]) -> Sweep:
    """Read a sweep's folder.

    Parameters
    ----------
    folder : path
        Such as ``lab-runs/depths@0123456789ab``.

    Returns
    -------
    Sweep
        The sweep.

    Raises
    ------
    NotFoundError
        If it is no sweep's folder.
    UnsupportedVersionError
        If a newer program wrote it.
    CorruptError
        If it is damaged.
    """
    return Sweep(folder)


def sweeps(folder: str | os.PathLike[str] | None = None) -> list[Sweep]:
    """List the sweeps of a folder.

    Parameters
    ----------
    folder : path, optional
        ``$NANDARRAY_RUNS`` or ``lab-runs`` if left out.

    Returns
    -------
    list of Sweep
        The sweeps, ordered by name. Other folders, unfinished sweeps, and those that cannot be read
        (:func:`nandarray.lab.damaged` names them) are left out.
    """
    return Sweep.all_in(folder)[0]


def damaged(folder: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Name the runs and sweeps of a folder that :func:`runs` and :func:`sweeps` leave out as they cannot be read.

    Parameters
    ----------
    folder : path, optional
        ``$NANDARRAY_RUNS`` or ``lab-runs`` if left out.

    Returns
    -------
    dict
        The reason by the name of the folder.
    """
    return Run.all_in(folder)[1] | Sweep.all_in(folder)[1]
