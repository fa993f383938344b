"""Runs as they lie on disk: read again, listed, found by name.

A :class:`Run` reads its folder when it is used, and changes nothing in it. :mod:`nandarray.lab.write_run` writes
folders; the page ``docs/reference/lab.md`` describes their contents.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nandarray.device import Description
from nandarray.device import load as load_device
from nandarray.errors import CorruptError, InvalidError, NotFoundError, UnsupportedVersionError
from nandarray.lab._files import read_json, read_parquet
from nandarray.lab._heads import ENVIRONMENT, RUN, SWEEP, damage
from nandarray.lab.claims import near
from nandarray.lab.folders import PART, TIMELINE, folder_of_runs
from nandarray.optional import needs

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["SCHEMA", "Folder", "Run", "find_run", "load", "runs"]

#: Version of ``run.json`` and ``sweep.json``; it grows when a field goes or changes its meaning.
SCHEMA = 1


def read_head(folder: Path, name: str) -> dict[str, Any]:
    """Read ``run.json`` or ``sweep.json``; complain if it is of a newer program."""
    head = read_json(folder / name)
    if not isinstance(head, dict) or type(head.get("schema")) is not int or head["schema"] < 1:
        raise CorruptError(f"{folder / name} is damaged: it states no schema")
    if head["schema"] > SCHEMA:
        raise UnsupportedVersionError(
            f"{folder} has schema {head['schema']}; this version knows those up to {SCHEMA}: update nandarray"
        )
    wrong = damage(head, RUN if name == "run.json" else SWEEP)
    if wrong is not None:
        raise CorruptError(f"{folder / name} is damaged: {wrong}")
    return head


def _mapping(file: Path) -> dict[str, Any]:
    """Read a JSON file that is a mapping."""
    found = read_json(file)
    if not isinstance(found, dict):
        raise CorruptError(f"{file} is damaged: it is no mapping")
    return found


class Folder:
    """The common base of runs and sweeps: a head, tables, an environment."""

    #: Name of the file that says what it is.
    HEAD: ClassVar[str]

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder)
        if not (self.path / self.HEAD).is_file():
            what = self.HEAD.removesuffix(".json")
            why = "there is no such folder" if not self.path.exists() else f"it has no {self.HEAD}"
            if self.path.name.endswith(PART) and self.path.exists():
                why = "it was broken off; run it again"
            raise NotFoundError(f"{self.path} is no {what}: {why}")
        self.data: dict[str, Any] = read_head(self.path, self.HEAD)

    @classmethod
    def all_in(cls, folder: str | os.PathLike[str] | None) -> tuple[list[Self], dict[str, str]]:
        """Return all of a folder of runs, sorted by name, and by name why others cannot be read.

        Other folders, and unfinished ones, are left out.
        """
        parent = folder_of_runs(folder)
        whole = [path for path in parent.iterdir() if not path.name.endswith(PART)] if parent.is_dir() else []
        found, damaged = [], {}
        for path in sorted(whole):
            try:
                if (path / cls.HEAD).is_file():
                    found.append(cls(path))
            except NotFoundError:  # removed since it was listed
                continue
            except OSError as error:  # damaged, of a newer program, or not to be read
                damaged[path.name] = " ".join(str(error).split())
        return found, damaged

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.path.name

    @property
    def version(self) -> str:
        """Version of the nandarray that made it."""
        return str(self.data["version"])

    @property
    def tables(self) -> dict[str, list[str]]:
        """Columns of each table, by its name."""
        return {name: list(about["columns"]) for name, about in self.data["tables"].items()}

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Time and place of the run: ``environment.json``."""
        file = self.path / "environment.json"
        found = _mapping(file)
        if (wrong := damage(found, ENVIRONMENT)) is not None:
            raise CorruptError(f"{file} is damaged: {wrong}")
        return found

    def _named(self, name: str) -> str:
        if name not in self.data["tables"]:
            raise NotFoundError(f"{self.id} has no table {name!r}{near(name, self.data['tables'])}")
        return name

    def table(self, name: str) -> pandas.DataFrame:
        """Return a table.

        Parameters
        ----------
        name : str
            Name of the table.

        Returns
        -------
        pandas.DataFrame
            Its rows, columns in the experiment's order.

        Raises
        ------
        NotFoundError
            If there is no such table; names those that there are.
        """
        columns = self.tables[self._named(name)]
        file = self.path / "tables" / f"{name}.parquet"
        frame = read_parquet(file)
        if list(frame.columns) != columns:
            raise CorruptError(f"{file} is damaged: its columns are not those that the head names")
        return frame

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a table without pandas: a dictionary a row, NaN as None."""
        columns = set(self.tables[self._named(name)])
        file = self.path / "tables" / f"{name}.json"
        rows = read_json(file)
        if not isinstance(rows, list) or not all(isinstance(row, dict) and columns <= row.keys() for row in rows):
            raise CorruptError(f"{file} is damaged: it is no list of rows with the columns of the table")
        return rows

    def _dataset(self, name: str, index: Sequence[str]) -> xarray.Dataset:
        """Return a table as arrays over some of its columns."""
        frame = self.table(name)
        for column in index:
            if column not in frame.columns:
                raise InvalidError(f"table {name!r} has no column {column!r}{near(column, frame.columns)}")
        with needs("xarray", "lab"):
            import xarray
        if frame.duplicated(list(index)).any():
            raise InvalidError(f"table {name!r} has rows with the same {', '.join(index)}: name more columns")
        found = xarray.Dataset.from_dataframe(frame.set_index(list(index)))
        return found.assign_attrs(run=self.id, version=self.version)


class Run(Folder):
    """A run of an experiment, as its folder has it.

    Made by :func:`nandarray.lab.run` and :func:`nandarray.lab.load`.

    Attributes
    ----------
    data : dict
        All of ``run.json``.
    path : path
        The folder.
    """

    HEAD = "run.json"

    @property
    def experiment(self) -> str:
        """The experiment's id."""
        return str(self.data["experiment"])

    @property
    def title(self) -> str:
        """The experiment's title."""
        return str(self.data["title"])

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of all parameters, as they were when it ran."""
        return dict(self.data["parameters"])

    @property
    def profile(self) -> str:
        """The sizes: "full" or "small"."""
        return str(self.data["profile"])

    @property
    def seed(self) -> int:
        """Seed of every random generator of the run."""
        return int(self.data["seed"])

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Answers to claims, each beside the paper's figure."""
        return list(self.data["answers"])

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Descriptions of the figures to draw."""
        return list(self.data["figures"])

    @cached_property
    def reports(self) -> dict[str, dict[str, Any]]:
        """Reports of modelled devices, by label."""
        labels = self.data["reports"]
        return {label: _mapping(self.path / "reports" / f"{label}.json") for label in labels}

    @cached_property
    def devices(self) -> dict[str, Description]:
        """The devices that the parameters name, as they were described when it ran, by the parameter's text."""
        files = self.data.get("devices", {})
        return {text: load_device(self.path / file) for text, file in files.items()}

    @property
    def timeline(self) -> Path | None:
        """The timeline, if one was written."""
        file = self.path / TIMELINE
        return file if file.exists() else None

    def to_xarray(self, name: str, index: Sequence[str]) -> xarray.Dataset:
        """Return a table as arrays over some of its columns.

        Parameters
        ----------
        name : str
            Name of the table.
        index : sequence of str
            Columns that become dimensions; together they tell the rows apart.

        Returns
        -------
        xarray.Dataset
            A variable for each other column; what no row has is NaN.

        Raises
        ------
        InvalidError
            If a column is not there, or two rows have the same place.
        """
        return self._dataset(name, index)

    def __repr__(self) -> str:
        good = sum(1 for answer in self.answers if answer["within"])
        judged = sum(1 for answer in self.answers if answer["within"] is not None)
        claims = f", {good} of {judged} answers within" if judged else ""
        return f"<nandarray.lab.Run {self.id}: {self.title}{claims}>"

    def _repr_html_(self) -> str:
        from nandarray.lab._html import run_html

        return run_html(self)


def load(folder: str | os.PathLike[str]) -> Run:
    """Read a run's folder.

    Parameters
    ----------
    folder : path
        Such as ``lab-runs/nds.fig9@0123456789ab``.

    Returns
    -------
    Run
        The run.

    Raises
    ------
    NotFoundError
        If it is no run's folder.
    UnsupportedVersionError
        If a newer program wrote it.
    CorruptError
        If it is damaged.
    """
    return Run(folder)


def runs(folder: str | os.PathLike[str] | None = None) -> list[Run]:
    """List the runs of a folder.

    Parameters
    ----------
    folder : path, optional
        ``$NANDARRAY_RUNS`` or ``lab-runs`` if left out.

    Returns
    -------
    list of Run
        The runs, ordered by experiment, then by name. Other folders, unfinished runs, and those that cannot be read
        (:func:`nandarray.lab.damaged` names them) are left out.
    """
    return Run.all_in(folder)[0]


def find_run(what: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of a run or a sweep: a folder, or the beginning of a name in the folder of runs.

    A NotFoundError says that there is none, or names the several there are.
    """
    text = os.fspath(what)
    if text and Path(text).is_dir():
        return Path(text)
    parent = folder_of_runs(folder)
    names = [path.name for path in sorted(parent.iterdir()) if path.is_dir()] if parent.is_dir() else []
    names = [name for name in names if not name.endswith(PART)]
    fitting = [name for name in names if name == text or name.partition("@")[0] == text] or [
        name for name in names if text and name.startswith(text)
    ]
    if len(fitting) == 1:
        return parent / fitting[0]
    if fitting:
        raise NotFoundError(f"{text!r} is ambiguous: {', '.join(fitting)}")
    raise NotFoundError(f"no run {text!r} in {parent}{near(text, names) or ', which has none'}")
