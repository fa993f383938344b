"""The sources of the page: finished runs, read from their folders.

The page takes all of a run as plain data: ``run.json``, the tables, the reports of devices, the environment. Nothing is
checked or computed here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nandarray.lab.read_run import Folder, Run

__all__ = ["Source", "read", "rows_of"]

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """A finished run, as plain data.

    ``key`` is the name of its folder: the experiment's id and a hash of all that it depends on. ``facts`` is
    ``run.json``, ``environment`` is ``environment.json`` (empty if there is none). ``tables`` has rows by a table's
    name, ``reports`` those of modelled devices by label.
    """

    key: str
    facts: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def experiment(self) -> str:
        """Id of the experiment."""
        return str(self.facts.get("experiment", self.key))

    @property
    def title(self) -> str:
        """Title of the run; the experiment's id if it has none."""
        return str(self.facts.get("title") or self.experiment)


def read(run: Source | Run | str | os.PathLike[str]) -> Source:
    """Read a run; a path is its folder.

    A missing run is a NotFoundError, a damaged one a CorruptError, one of a newer program an UnsupportedVersionError.
    """
    if isinstance(run, Source):
        return run
    found = run if isinstance(run, Run) else Run(run)
    try:
        environment = found.environment
    except OSError:  # damaged: a report does without the date and the machine
        environment = {}
    return Source(
        key=found.id,
        facts=found.data,
        environment=environment,
        tables={name: rows_of(found, name) for name in found.tables},
        reports=found.reports,
    )


def rows_of(folder: Folder, name: str) -> list[Row]:
    """Give a table of a run or a sweep, its columns in order."""
    columns = folder.tables[name]
    return [{column: row.get(column) for column in columns} for row in folder.rows(name)]
