"""``nandarray snapshot``: snapshots of a store in a file: taken, listed, deleted.

``nandarray cp --at`` copies what one keeps. Stores of parts have versions (:mod:`nandarray.cli.parts`).
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from nandarray.cli.common import Json, StorePath, console, open_store, print_json, table_of
from nandarray.units import format_size

__all__ = ["app"]

app = typer.Typer(help="Snapshots of a store: all arrays as they were.", no_args_is_help=True)

SnapshotName = Annotated[str, typer.Argument(help="Name of the snapshot.", metavar="NAME")]


@app.command()
def create(*, store: StorePath, name: SnapshotName) -> None:
    """Keep all arrays as they are now."""
    with open_store(store, "r+") as opened:
        opened.snapshot(name)


@app.command()
def ls(*, store: StorePath, as_json: Json = False) -> None:
    """List the snapshots, the oldest first."""
    with open_store(store) as opened:
        found = opened.snapshots()
    if as_json:
        print_json(found)
        return
    rows = [(escape(one["name"]), one["taken_at"], str(one["arrays"]), format_size(one["bytes_held"])) for one in found]
    console().print(table_of(["name", "taken", "arrays", "held"], rows, right=("arrays", "held")))


@app.command()
def rm(*, store: StorePath, name: SnapshotName) -> None:
    """Delete a snapshot; its space is used again."""
    with open_store(store, "r+") as opened:
        opened.delete_snapshot(name)
