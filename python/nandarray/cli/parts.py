"""``nandarray parts``: stores of parts from the outside: versions, tags, what changed, space, copies, and conversion.

Reading and writing of arrays are the other commands': they take a folder, or the URL of a place in a bucket, as they
take a file.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import MofNCompleteColumn

import nandarray
from nandarray import parts
from nandarray.cli.common import AnyStore, Json, bars, console, facts_of, print_json, say, table_of
from nandarray.errors import NotAStoreError
from nandarray.parts.blobs.places import blobs_of
from nandarray.parts.history import is_parted
from nandarray.units import count, format_size
from nandarray.urls import split_remote

__all__ = ["app"]

app = typer.Typer(help="Stores of many parts, in a folder or a bucket: versions, tags, copies.", no_args_is_help=True)

Age = Annotated[str, typer.Option("--older-than", metavar="AGE", help="Least age, like 90s, 10m, 1h or 7d.")]
Version = Annotated[int, typer.Argument(min=1, help="Number of a version.")]


def _open(store: str, mode: str = "r") -> Any:
    if split_remote(store) is not None:
        return parts.open_folder(store, mode)  # type: ignore[arg-type]
    if not is_parted(blobs_of(store)):
        raise NotAStoreError(errno.ENOTDIR, "is no folder with a store of parts", store)
    return nandarray.open(store, mode)  # type: ignore[arg-type]


@contextmanager
def _undone(place: str) -> Iterator[None]:
    """Leave nothing at a path where nothing was, or an empty folder, if there is an error."""
    if split_remote(place) is not None:  # a creation there can be begun again
        yield
        return
    path = Path(place)
    was_there, was_folder = os.path.lexists(path), path.is_dir()
    empty = was_folder and not any(path.iterdir())
    try:
        yield
    except BaseException:
        if empty or not was_there:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            if empty:
                path.mkdir()
        raise


@app.command()
def create(*, store: AnyStore) -> None:
    """Make an empty store of parts."""
    parts.create(store).close()


@app.command()
def info(*, store: AnyStore, as_json: Json = False) -> None:
    """Show the newest version, and what the parts take."""
    with _open(store) as opened:
        found = opened.stat()
        found["tags"] = opened.tags()
    if as_json:
        print_json(found)
        return
    rows = [(key, f"{found[key]:,}") for key in ("version", "versions", "parts")]
    rows.append(("on disk", format_size(found["bytes_file"])))
    rows.append(("arrays", f"{found['array_count']:,}"))
    rows.append(
        ("tags", escape(", ".join(f"{name}={number}" for name, number in sorted(found["tags"].items())) or "-"))
    )
    console().print(facts_of(rows))


@app.command()
def versions(*, store: AnyStore, as_json: Json = False) -> None:
    """List the versions, the oldest first."""
    with _open(store) as opened:
        found = opened.versions()
    if as_json:
        print_json(found)
        return
    rows = []
    for one in found:
        told = one.get("error") or one["message"]
        when, arrays = one.get("written_at", "-"), str(one.get("arrays", "-"))
        rows.append((str(one["version"]), when, arrays, escape(", ".join(one["tags"])), escape(told)))
    console().print(table_of(["version", "written", "arrays", "tags", "message"], rows, right=("version", "arrays")))


@app.command()
def diff(*, store: AnyStore, old: Version, new: Version, as_json: Json = False) -> None:
    """Show what changed from one version to another."""
    with _open(store) as opened:
        found = opened.diff(old, new)
    if as_json:
        print_json(found)
        return
    for key in ("created", "deleted", "attributes"):
        for name in found[key]:
            say(f"{key}  {name}")
    for was, now in found["renamed"]:
        say(f"renamed  {was} -> {now}")
    for name, (was, now) in found["resized"].items():
        say(f"resized  {name}  {was} -> {now}")
    for name, boxes in found["written"].items():
        for low, high in boxes:
            box = ", ".join(f"{a}:{b}" for a, b in zip(low, high, strict=True))
            say(f"written  {name}[{box}]")


@app.command()
def tag(
    *,
    store: AnyStore,
    name: Annotated[str, typer.Argument(help="The tag.")],
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="The version; the newest if left out.")
    ] = None,
) -> None:
    """Give a version a name, for good."""
    with _open(store, "r+") as opened:
        opened.tag(name, version)


@app.command()
def check(*, store: AnyStore, as_json: Json = False) -> None:
    """Verify manifests, leaves and every checksum of the parts; exit code 1 if anything is wrong."""
    with _open(store) as opened:
        found = opened.check()
    if as_json:
        print_json(found)
    else:
        for one in found["errors"]:
            say(one)
        counts = [count(found[key], key[:-1]) for key in ("versions", "arrays", "parts")]
        say(f"{'ok' if found['ok'] else count(len(found['errors']), 'error')}: {', '.join(counts)}")
    if not found["ok"]:
        raise typer.Exit(1)


@app.command()
def compact(*, store: AnyStore, as_json: Json = False) -> None:
    """Bring shards of small parts together, in a new version."""
    with _open(store, "r+") as opened:
        found = opened.compact()
    if as_json:
        print_json(found)
    else:
        say(f"{count(found['shards'], 'shard')} of {count(found['parts'], 'part')} copied to one")


@app.command()
def expire(
    *,
    store: AnyStore,
    keep: Annotated[int, typer.Option(min=1, help="Number of newest versions to keep.")] = 10,
    older_than: Age = "1h",
    as_json: Json = False,
) -> None:
    """Forget old versions, but those with tags and those that are open; gc deletes what only they had."""
    with _open(store, "r+") as opened:
        found = opened.expire_versions(keep=keep, older_than=older_than)
    if as_json:
        print_json(found)
    else:
        say(f"{count(len(found), 'version')} expired")


@app.command()
def gc(
    *,
    store: AnyStore,
    older_than: Age = "1h",
    jobs_older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Least age of transactions that are taken for dead.")
    ] = "7d",
    as_json: Json = False,
) -> None:
    """Delete leaves and parts that no version names, and what killed processes left."""
    with _open(store, "r+") as opened:
        found = opened.gc(older_than=older_than, jobs_older_than=jobs_older_than)
    if as_json:
        print_json(found)
    else:
        size = format_size(found["bytes"])
        say(f"{count(found['parts'], 'part')} and {found['leaves']:,} leaves deleted ({size})")


At = Annotated[
    list[Path] | None,
    typer.Option("--at", metavar="FOLDER", help="Folder on another disk; several may be given."),
]


@app.command()
def protect(
    *,
    store: AnyStore,
    replicas: Annotated[int | None, typer.Option(min=2, help="Files that a part has then, itself included.")] = None,
    data: Annotated[int | None, typer.Option(min=2, max=8, help="Parts that have parity together.")] = None,
    parity: Annotated[int | None, typer.Option(min=1, max=2, help="Parts of these that may be lost.")] = None,
    at: At = None,
    as_json: Json = False,
) -> None:
    """Protect parts by copies in other folders, or by parity of groups of them."""
    with _open(store, "r+") as opened:
        found = opened.protect(replicas=replicas, data=data, parity=parity, at=at or ())
    if as_json:
        print_json(found)
    else:
        files = f"{count(found['files'], 'file')} ({format_size(found['bytes'])})"
        say(f"{count(found['parts'], 'part')} protected by {files}")


@app.command()
def repair(
    *,
    store: AnyStore,
    at: At = None,
    partly: Annotated[bool, typer.Option(help="Put parts back though others cannot be.")] = False,
    as_json: Json = False,
) -> None:
    """Put back parts that are missing or damaged, from copies and parity."""
    with _open(store, "r+") as opened:
        found = opened.repair(at=at or (), partly=partly)
    if as_json:
        print_json(found)
        return
    for key in ("copied", "rebuilt"):
        for part in found[key]:
            say(f"{key}  {part}")
    for path in found["files"]:
        say(f"made again  {path}")
    for path in found["set_aside"]:
        say(f"damaged, put aside  {path}")
    whole = count(len(found["copied"]) + len(found["rebuilt"]), "part")
    say(f"{whole} put back ({format_size(found['bytes'])})")


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def _copied(how: Callable[..., dict[str, int]], one: str, other: str, *, quiet: bool, as_json: bool) -> None:
    with bars(MofNCompleteColumn(), quiet=quiet or as_json, verb="copying", transient=True) as tell:
        found = how(one, other, tell=tell)
    if as_json:
        print_json(found)
        return
    counts = ", ".join(count(found[key], key[:-1]) for key in ("versions", "parts", "tags"))
    say(f"{counts} copied ({format_size(found['bytes'])})")


@app.command()
def push(
    *,
    folder: Annotated[str, typer.Argument(help="Folder of a store of parts.")],
    url: Annotated[str, typer.Argument(help="Place in a bucket (s3://BUCKET/KEY), or another folder.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Copy versions that a bucket lacks to it; what was interrupted goes on."""
    _copied(parts.push, folder, url, quiet=quiet, as_json=as_json)


@app.command()
def pull(
    *,
    url: Annotated[str, typer.Argument(help="Place in a bucket with a store of parts.")],
    folder: Annotated[str, typer.Argument(help="Folder; made if it is absent.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Copy versions that a folder lacks from a bucket; what was interrupted goes on."""
    _copied(parts.pull, url, folder, quiet=quiet, as_json=as_json)


@app.command()
def sync(
    *,
    one: Annotated[str, typer.Argument(help="Folder or URL.")],
    other: Annotated[str, typer.Argument(help="Folder or URL.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Copy versions that either of two places lacks; refused where both have some of their own."""
    _copied(parts.sync, one, other, quiet=quiet, as_json=as_json)


@app.command()
def split(
    *,
    store: AnyStore,
    out: Annotated[str, typer.Argument(help="Folder of the new store of parts, or a URL.")],
) -> None:
    """Copy a store of one file into a new store of parts."""
    with nandarray.open(store) as source, _undone(out), parts.create(out) as made, made.transaction("split") as tx:
        source.copy("/", tx)


@app.command()
def join(
    *,
    store: Annotated[str, typer.Argument(help="Folder of a store of parts, or a URL.")],
    out: Annotated[str, typer.Argument(help="File of the new store.")],
) -> None:
    """Copy the newest version of a store of parts into a new store of one file."""
    with _open(store) as source, _undone(out), nandarray.open(out, "x") as made:
        source.copy("/", made)
