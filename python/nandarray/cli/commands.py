"""The command line: ``nandarray COMMAND STORE ...``.

Every command opens a store, does one thing through the public Python interface, and closes it. Output for scripts has
``--json``. This file holds the commands for stores and their options: :mod:`.show` makes tables and trees,
:mod:`.read` reads selections of any size. Other groups of commands: :mod:`.device` describes devices, :mod:`.replay`
replays workloads on them, :mod:`.lab` runs experiments, :mod:`.program` compiles programs, :mod:`.advise` says whether
to offload them, :mod:`.drive` serves them over NVMe/TCP or in shared memory, :mod:`.doctor` says what works here.
:mod:`.common` has the parts that all share.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import nandarray
from nandarray import dtypes
from nandarray.array.creation import fill_bytes
from nandarray.array.listing import ragged_kind
from nandarray.cli import advise, cache, device, doctor, drive, lab, parts, replay
from nandarray.cli import show as cli_show
from nandarray.cli.common import (
    AnyStore,
    DeviceName,
    Json,
    KeyFile,
    OneLineErrors,
    StorePath,
    complete_array,
    complete_name,
    console,
    find_array,
    json_or_text,
    key_of,
    missing,
    open_store,
    parse_pairs,
    parse_shape,
    parse_size,
    print_json,
    say,
)
from nandarray.cli.places import is_same, open_placed, open_target, placed
from nandarray.cli.program import commands as program
from nandarray.errors import CorruptError, InvalidError, NandarrayError
from nandarray.index.text import parse_slices
from nandarray.present.plain import plain
from nandarray.units import count, format_size

__all__ = ["app", "main"]

app = typer.Typer(
    name="nandarray",
    cls=OneLineErrors,
    help="N-dimensional arrays in flash-shaped building blocks, in one file.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
attrs_app = typer.Typer(help="Read and change attributes of an array, a group or the store.", no_args_is_help=True)
app.add_typer(attrs_app, name="attrs")
app.add_typer(device.app, name="device")
app.add_typer(program.app, name="program")
app.add_typer(lab.app, name="lab")
app.add_typer(drive.app, name="nvme")
app.add_typer(parts.app, name="parts")
app.add_typer(cache.app, name="cache")
app.command()(drive.serve)
app.command("replay")(replay.replay_command)
app.command("advise")(advise.advise_command)
app.command("doctor")(doctor.doctor_command)

ArrayName = Annotated[str, typer.Argument(help="Name of an array.", metavar="NAME", autocompletion=complete_array)]
ExportName = Annotated[
    str,
    typer.Argument(
        help="Name of an array or a group; '/' is the whole store.", metavar="NAME", autocompletion=complete_name
    ),
]
AnyName = Annotated[
    str,
    typer.Argument(
        help="Name of an array or a group; left out or '/', the whole store.",
        metavar="[NAME]",
        autocompletion=complete_name,
    ),
]
Shape = Annotated[str | None, typer.Option(metavar="N,N,...", help="Shape, like 100,200 or 100x200.")]
BuildingBlock = Annotated[
    str | None,
    typer.Option(metavar="N,N,...", help="Shape of a building block; from the geometry if left out."),
]
Compression = Annotated[
    str | None,
    typer.Option(
        help="lz4, zstd or zstd:LEVEL, and +shuffle or +bitshuffle; bitpack, varwidth.",
    ),
]
Encrypt = Annotated[bool, typer.Option("--encrypt", help="Encrypt with the key of --key-file or $NANDARRAY_KEY.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Budget = Annotated[str, typer.Option(metavar="SIZE", help="Memory to use for the copy.")]


def _version(*, value: bool) -> None:
    if value:
        say(f"nandarray {nandarray.__version__}")
        raise typer.Exit


def _print_version(value: bool) -> None:  # noqa: FBT001 (typer's signature)
    _version(value=value)


@app.callback()
def _options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def _tuple(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else parse_shape(text)


def _key_to_encrypt(key_file: Path | None, *, encrypt: bool) -> bytes | None:
    if not encrypt:
        return None
    key = key_of(key_file)
    if key is None:
        raise typer.BadParameter("--encrypt needs a key: give --key-file or set $NANDARRAY_KEY")
    return key


def _attributes(pairs: list[str]) -> dict[str, Any]:
    """Read KEY=VALUE pairs; a value that is JSON is that, anything else is text."""
    return {key: json_or_text(value) for key, value in parse_pairs(pairs, "KEY=VALUE").items()}


# --- making, moving and removing --------------------------------------------------------------------------------------


@app.command()
def create(
    *,
    store: StorePath,
    name: Annotated[str | None, typer.Argument(help="Name of the array; without, an empty store.")] = None,
    shape: Shape = None,
    dtype: Annotated[str, typer.Option(help="Any fixed-size NumPy dtype.")] = "float64",
    building_block: BuildingBlock = None,
    compression: Compression = None,
    fill_value: Annotated[
        str | None, typer.Option(metavar="VALUE", help="Value of elements that were never written.")
    ] = None,
    dims: Annotated[str | None, typer.Option(metavar="NAME,...", help="Dimension names.")] = None,
    attr: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="An attribute; may be repeated.")] = None,
    encrypt: Encrypt = False,
    key_file: KeyFile = None,
    capacity: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most bytes of a new store; unlimited if left out.")
    ] = None,
    device: DeviceName = None,
) -> None:
    """Make an array, and the store where there is none."""
    if name is None and shape is not None:
        raise typer.BadParameter("an array needs a name")
    if name is not None and shape is None:
        raise typer.BadParameter("an array needs --shape")
    extent = _tuple(shape)
    attrs = _attributes(attr or [])
    if dims is not None:
        names = [part.strip() for part in dims.split(",")]
        if len(names) != len(extent or ()):
            raise typer.BadParameter(f"--dims names {len(names)} dimensions, --shape has {len(extent or ())}")
        attrs["_ARRAY_DIMENSIONS"] = names
    key, element = _key_to_encrypt(key_file, encrypt=encrypt), _dtype(dtype)
    options = {} if fill_value is None else {"fill_value": _scalar(fill_value, element)}
    limit = None if capacity is None else parse_size(capacity)
    with nandarray.open(str(store), "a", capacity=limit, device=device) as opened:
        if name is None:
            return
        opened.create(
            name,
            extent or (),
            element,
            building_block=_tuple(building_block),
            compression=compression,
            encryption_key=key,
            attrs=attrs,
            **options,
        )


def _dtype(text: str) -> np.dtype[Any]:
    """Read a dtype that can be stored."""
    try:
        return dtypes.check(text)
    except InvalidError as error:
        raise typer.BadParameter(str(error)) from None


def _scalar(text: str, dtype: np.dtype[Any]) -> Any:
    """Return text as a value that the dtype holds, which is not yet cast: a cast wraps, and says nothing."""
    try:
        if dtype.kind == "V" and dtype.names is None:
            return np.array(json.loads(text)).astype(dtype)[()]
        value = json.loads(text) if dtype.kind in "biufV" else text
        value = tuple(value) if isinstance(value, list) else value
        fill_bytes(value, dtype)
        return value
    except (NandarrayError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise typer.BadParameter(f"{text!r} is no value of dtype {dtype}: {error}") from error


@app.command()
def rm(
    *,
    store: StorePath,
    names: Annotated[
        list[str], typer.Argument(help="Names of arrays or groups.", metavar="NAME...", autocompletion=complete_name)
    ],
) -> None:
    """Remove arrays, and groups with all they hold."""
    with open_store(store, "r+") as opened:
        for name in names:
            missing(opened, name.strip("/"))
        for name in names:
            del opened[name.strip("/")]


@app.command()
def mv(
    *,
    store: StorePath,
    old: Annotated[str, typer.Argument(help="Its name now.", autocompletion=complete_name)],
    new: Annotated[str, typer.Argument(help="Its new name.")],
) -> None:
    """Rename an array or a group."""
    with open_store(store, "r+") as opened:
        missing(opened, old.strip("/"))
        opened.rename(old.strip("/"), new.strip("/"))


@app.command()
def cp(
    *,
    source: Annotated[
        str, typer.Argument(metavar="STORE[:/NAME]", help="An array or a group; a whole store without a name.")
    ],
    destination: Annotated[
        str, typer.Argument(metavar="STORE[:/NAME]", help="A store, made if it is not there, and the new name.")
    ],
    key_file: KeyFile = None,
) -> None:
    """Copy an array or a group, within a store or into another one."""
    (origin, name), (target, new) = placed(source), placed(destination)
    key = key_of(key_file)
    with ExitStack() as stack:
        if is_same(origin, target):
            there = opened = stack.enter_context(open_placed(target, "r+"))
        else:
            opened = stack.enter_context(open_placed(origin, "r"))
            there = stack.enter_context(open_target(target))
        if name:
            missing(opened, name)
        opened.copy(f"/{name}", there, new or None, encryption_key=key)


# --- import and export ------------------------------------------------------------------------------------------------


def _check_format(format: str | None, order: str) -> None:  # noqa: A002
    """Refuse words that no file has."""
    from nandarray.interop.convert.copying import FORMATS

    if format is not None and format not in FORMATS:
        raise typer.BadParameter(f"--format is one of {', '.join(FORMATS)}, not {format!r}")
    if order not in ("C", "F"):
        raise typer.BadParameter(f"--order is C or F, not {order!r}")


@app.command("import")
def import_command(
    *,
    source: Annotated[Path, typer.Argument(help="A .npy, .npz, Zarr, HDF5, NetCDF or raw binary file.")],
    store: StorePath,
    name: Annotated[str | None, typer.Argument(help="Name in the store; the file's name for a single array.")] = None,
    format: Annotated[  # noqa: A002
        str | None, typer.Option(help="npy, npz, zarr, hdf5, netcdf or raw; recognised by the name if left out.")
    ] = None,
    member: Annotated[str | None, typer.Option(help="One array or group inside the file.")] = None,
    building_block: BuildingBlock = None,
    compression: Compression = None,
    encrypt: Encrypt = False,
    key_file: KeyFile = None,
    shape: Shape = None,
    dtype: Annotated[str | None, typer.Option(help="Dtype of raw binary.")] = None,
    offset: Annotated[int, typer.Option(min=0, help="Bytes before the elements of raw binary.")] = 0,
    order: Annotated[str, typer.Option(help="Element order of raw binary, C or F.")] = "C",
    skip_unsupported: Annotated[
        bool, typer.Option("--skip-unsupported", help="Leave out arrays that cannot be stored, with a warning.")
    ] = False,
    trusted: Annotated[
        bool,
        typer.Option(
            "--trusted", help="Let the source read other files (links), and use codecs without a limit of size."
        ),
    ] = False,
    budget: Budget = "256MiB",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Copy arrays from another format into a store."""
    _check_format(format, order)
    key, element = _key_to_encrypt(key_file, encrypt=encrypt), None if dtype is None else _dtype(dtype)
    sizes: dict[str, int] = {}
    with cli_show.progress("importing", quiet=quiet or as_json) as show:

        def report(array: str, done: int, total: int) -> None:
            sizes[array] = total
            if show is not None:
                show(array, done, total)

        names = nandarray.import_(
            source,
            store,
            name,
            format=format,
            member=member,
            building_block=_tuple(building_block),
            compression=compression,
            encryption_key=key,
            shape=_tuple(shape),
            dtype=element,
            offset=offset,
            order=order,
            unsupported="skip" if skip_unsupported else "raise",
            trusted=trusted,
            budget=parse_size(budget),
            progress=report,
        )
    total = sum(sizes.values())
    if as_json:
        print_json({"arrays": list(names), "bytes": total})
    elif not quiet:
        say(f"imported {count(len(names), 'array')} ({format_size(total)}): {', '.join(names)}")


@app.command()
def export(
    *,
    store: AnyStore,
    name: ExportName,
    destination: Annotated[Path, typer.Argument(help="A new .npy, .npz, .zarr, .h5, .nc or .bin file.")],
    format: Annotated[  # noqa: A002
        str | None, typer.Option(help="npy, npz, zarr, hdf5, netcdf or raw; recognised by the name if left out.")
    ] = None,
    compression: Annotated[
        str, typer.Option(help="auto, none, or a method of the format, like gzip:4 (hdf5, netcdf) or zstd:3 (zarr).")
    ] = "auto",
    order: Annotated[str, typer.Option(help="Element order of npy and raw, C or F.")] = "C",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the destination.")] = False,
    key_file: KeyFile = None,
    budget: Budget = "256MiB",
    quiet: Quiet = False,
) -> None:
    """Copy an array, a group or the whole store ('/') into another format."""
    _check_format(format, order)
    with open_store(store) as opened, cli_show.progress("exporting", quiet=quiet) as report:
        if name.strip("/"):
            missing(opened, name.strip("/"))
        nandarray.export(
            cli_show.pick(opened, name, key_of(key_file)),
            destination,
            format=format,
            compression=compression,
            order=order,
            overwrite=overwrite,
            encryption_key=key_of(key_file),
            budget=parse_size(budget),
            progress=report,
        )


# --- looking ----------------------------------------------------------------------------------------------------------


@app.command()
def ls(
    *,
    store: AnyStore,
    name: AnyName = "",
    long: Annotated[bool, typer.Option("--long", "-l", help="Shape, dtype, building block and size too.")] = False,
    as_json: Json = False,
) -> None:
    """List arrays, one a line."""
    with open_store(store) as opened:
        cli_show.listing(opened, name, long=long, as_json=as_json)


@app.command()
def tree(*, store: AnyStore, name: AnyName = "", as_json: Json = False) -> None:
    """Show groups and arrays as a tree."""
    with open_store(store) as opened:
        cli_show.tree(opened, name, as_json=as_json)


@app.command()
def info(*, store: AnyStore, name: AnyName = "", as_json: Json = False, key_file: KeyFile = None) -> None:
    """Describe an array, a group or the store."""
    with open_store(store) as opened:
        cli_show.info(opened, name, key=key_of(key_file), as_json=as_json)


@app.command(context_settings={"ignore_unknown_options": True})
def read(
    *,
    store: AnyStore,
    name: ArrayName,
    slices: Annotated[str, typer.Argument(help='Slice expression, like "0:10, ::2, ..., 5".')] = "",
    view: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Read under another shape of equal volume."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a .npy file instead of printing.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --output.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print all elements, however many.")] = False,
    as_json: Json = False,
    key_file: KeyFile = None,
) -> None:
    """Print (or save) a selection of an array."""
    from nandarray.cli import read as cli_read

    if overwrite and output is None:
        raise typer.BadParameter("--overwrite goes with --output")
    if output is not None and as_json:
        raise typer.BadParameter("--json and --output exclude each other")
    try:
        key = parse_slices(slices)
    except InvalidError as error:
        raise typer.BadParameter(str(error)) from error
    with open_store(store) as opened:
        if ragged_kind(opened, name.strip("/")) is not None:
            if view is not None or output is not None:
                raise typer.BadParameter("rows of different lengths have no view, and no form in a .npy file")
            ragged = opened.get(name.strip("/"), encryption_key=key_of(key_file))
            cli_read.show_rows(ragged, key, everything=everything, as_json=as_json)
            return
        array = find_array(opened, name, key=key_of(key_file))
        target = array if view is None else array.view(parse_shape(view))
        if output is not None:
            cli_read.save(target, key, output, overwrite=overwrite)
        elif as_json:
            cli_read.dump_json(target, key, sys.stdout)
        else:
            cli_read.show(target, key, everything=everything)


# --- attributes -------------------------------------------------------------------------------------------------------


@attrs_app.command("get")
def attrs_get(
    *,
    store: AnyStore,
    name: AnyName = "",
    key: Annotated[str | None, typer.Argument(help="One attribute; all if left out.")] = None,
    as_json: Json = False,
) -> None:
    """Print attributes: KEY=VALUE lines, or the bare value of one."""
    with open_store(store) as opened:
        attrs = cli_show.attrs_of(opened, name)
        if key is not None:
            if key not in attrs:
                raise NandarrayError(f"{name or '/'} has no attribute {key!r}; it has {', '.join(attrs) or 'none'}")
            value = attrs[key]
            say(json.dumps(value) if as_json or not isinstance(value, str) else value)
        elif as_json:
            print_json(dict(attrs))
        else:
            for item, value in attrs.items():
                say(plain(f"{item}={value if isinstance(value, str) else json.dumps(value)}"))


@attrs_app.command("set")
def attrs_set(
    *,
    store: StorePath,
    name: AnyName,
    pairs: Annotated[
        list[str],
        typer.Argument(help="Values are read as JSON if they are JSON, else as text.", metavar="KEY=VALUE..."),
    ],
) -> None:
    """Set attributes."""
    new = _attributes(pairs)
    with open_store(store, "r+") as opened:
        cli_show.attrs_of(opened, name).update(new)


@attrs_app.command("rm")
def attrs_rm(*, store: StorePath, name: AnyName, keys: Annotated[list[str], typer.Argument(metavar="KEY...")]) -> None:
    """Remove attributes."""
    with open_store(store, "r+") as opened:
        attrs = cli_show.attrs_of(opened, name)
        if unknown := [key for key in keys if key not in attrs]:
            raise NandarrayError(f"{name or '/'} has no attribute {', '.join(map(repr, unknown))}")
        for key in keys:
            del attrs[key]


# --- the store itself -------------------------------------------------------------------------------------------------


@app.command()
def stat(*, store: AnyStore, as_json: Json = False) -> None:
    """Show space by array, live and dead pages, write amplification and wear."""
    with open_store(store) as opened:
        cli_show.stat(opened.stat(), as_json=as_json)


@app.command()
def check(
    *,
    store: AnyStore,
    repair: Annotated[bool, typer.Option("--repair", help="Repair as far as the records allow.")] = False,
    accept_older: Annotated[
        bool, typer.Option("--accept-older", help="Take older content where the newest is lost (with --repair).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Verify every checksum, index entry and reverse record; exit code 1 if anything is wrong, or lost by a repair."""
    if accept_older and not repair:
        raise InvalidError("--accept-older goes with --repair")
    try:
        opened = open_store(store, "r+" if repair else "r")
    except CorruptError:
        if not repair:
            raise
        # A damaged store may still open as far as it can be read.
        opened = nandarray.open(str(store), "r+", salvage=True)
    with opened:
        result = opened.check(repair=repair, accept_older=accept_older)
    cli_show.check(result, as_json=as_json)
    if not result["ok"]:
        raise typer.Exit(1)


@app.command()
def compact(*, store: StorePath, as_json: Json = False) -> None:
    """Return the space of dead pages to the file system."""
    before = store.stat().st_size if store.exists() else 0
    with open_store(store, "r+") as opened:
        result = dict(opened.compact())
    after = store.stat().st_size
    if as_json:
        print_json({**result, "file_before": before, "file_after": after})
    else:
        say(f"{format_size(before)} -> {format_size(after)}")


@app.command()
def bench(
    *,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Size of the array.")] = "256MiB",
    directory: Annotated[
        Path | None,
        typer.Option(file_okay=False, exists=True, help="Folder of the store while this runs."),
    ] = None,
    compression: Compression = None,
    seconds: Annotated[float, typer.Option(min=0, help="Seconds for which each pattern is repeated.")] = 0.5,
    as_json: Json = False,
) -> None:
    """Measure this machine: bands, blocks, rows, columns and elements, in GB/s."""
    from nandarray.cli import bench as cli_bench

    done, wanted = [], parse_size(size)
    if wanted < cli_bench.LEAST_BYTES:
        raise typer.BadParameter(f"--size must be at least {cli_bench.LEAST_BYTES >> 20} MiB, not {size}")
    with console(stderr=True).status("measuring ...") as status:
        for item in cli_bench.run(wanted, directory=directory, compression=compression, seconds=seconds):
            status.update(f"{item.pattern}: {item.gb_per_s:.2f} GB/s")
            done.append(item)
    if as_json:
        print_json([{**vars(item), "gb_per_s": item.gb_per_s} for item in done])
    else:
        console().print(cli_bench.table(done, f"{format_size(done[0].bytes_per_call)} of float32, page cache warm"))


def _open_standard_streams() -> None:
    """Give the three standard descriptors to ``/dev/null`` where they are closed.

    A store or a file that is opened would get a free one's number, and take what libraries print.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # the lowest one that is free is taken
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _warning(message: Warning | str, *_args: Any, **_options: Any) -> str:
    return f"nandarray: warning: {plain(str(message), lines=True)}\n"


def main() -> None:
    """Run the command line."""
    _open_standard_streams()
    warnings.formatwarning = _warning
    try:
        app(prog_name="nandarray")
    except OSError as error:  # of help and of errors, which no command prints
        if "--debug" in sys.argv:
            raise
        raise SystemExit(f"nandarray: error: {error.strerror or error}") from None


if __name__ == "__main__":
    main()
