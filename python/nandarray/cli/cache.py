"""``nandarray cache``: the folder in which bytes from far away are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nandarray.cli.common import Json, console, facts_of, print_json, say, table_of
from nandarray.errors import StoreMissingError
from nandarray.remote.cache import Cache, cache_of
from nandarray.units import count, format_size

__all__ = ["app"]

app = typer.Typer(help="Bytes of objects far away that are kept on this machine.", no_args_is_help=True)

Folder = Annotated[Path | None, typer.Option("--folder", metavar="PATH", help="The folder, if it is another one.")]


def _opened(folder: Path | None) -> Cache:
    if folder is not None and not folder.is_dir():
        raise StoreMissingError("there is no such folder", str(folder))
    found = cache_of(folder, None)
    if found is None:
        raise typer.Exit(1)  # a warning has said why
    return found


@app.command()
def info(*, folder: Folder = None, as_json: Json = False) -> None:
    """List the objects of which bytes are kept, and what they take."""
    cache = _opened(folder)
    entries = cache.entries()
    if as_json:
        told: list[dict[str, Any]] = [entry._asdict() for entry in entries]
        print_json({"folder": str(cache.folder), "bound": cache.bound, "objects": told})
        return
    held = format_size(sum(entry.held for entry in entries))
    console().print(
        facts_of([("folder", str(cache.folder)), ("held", f"{held} of at most {format_size(cache.bound)}")])
    )
    if entries:
        rows = [(one.url, format_size(one.bytes), format_size(one.held), "yes" if one.open else "") for one in entries]
        console().print(table_of(("object", "size", "held", "open"), rows, right=("size", "held")))


@app.command()
def clear(*, folder: Folder = None) -> None:
    """Remove what is kept of objects that no process has open."""
    freed, left = _opened(folder).clear()
    kept = f"; {count(left, 'object')} in use stayed" if left else ""
    say(f"{format_size(freed)} freed{kept}")
