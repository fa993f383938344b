"""``nandarray device``: the devices that there are, one of them, whether a file describes one, and import.

All figures come from :mod:`nandarray.device`; this file has options and tables.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nandarray import device
from nandarray.cli.common import Json, console, facts_of, parse_pairs, print_json, say, table_of
from nandarray.errors import DescriptionError
from nandarray.units import format_size

__all__ = ["app"]

app = typer.Typer(help="Describe SSDs for the modelled clock: presets, files, imports.", no_args_is_help=True)


def complete_device(incomplete: str) -> list[str]:
    """Complete the name of a preset."""
    return [name for name in device.names() if name.startswith(incomplete)]


DeviceName = Annotated[
    str,
    typer.Argument(help="A preset, or a TOML file.", metavar="NAME", autocompletion=complete_device),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value, like nand.t_read='25 us'; may be repeated.",
    ),
]


@app.command("list")
def list_command(*, as_json: Json = False) -> None:
    """List the bundled devices."""
    all_devices = device.devices()
    if as_json:
        rows = [{"name": d.name, "summary": d.summary, **d.effective} for d in all_devices.values()]
        print_json(rows)
        return
    numbers = ("capacity", "dies", "read", "program", "link", "4 KiB alone")
    cells = []
    for found in all_devices.values():
        facts = found.effective
        rates = [f"{facts[f'{part}_bytes_per_s'] / 1e9:.3g} GB/s" for part in ("read", "program", "link")]
        rates.append(f"{facts['read_4k_ps'] / 1e6:.4g} us")
        size = format_size(facts["user_bytes"])
        cells.append((found.name, size, str(facts["dies"]), *rates, escape(found.summary)))
    console().print(table_of(("name", *numbers, "what it is"), cells, right=numbers, whole=["name"]))


@app.command()
def show(
    *,
    name: DeviceName,
    settings: Settings = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print TOML: a start for a device of your own.")] = False,
    as_json: Json = False,
) -> None:
    """Show a device: what follows from its description, then every value with its source."""
    if toml and as_json:
        raise typer.BadParameter("--toml and --json exclude each other")
    found = device.load(name).with_(parse_pairs(settings, "KEY=VALUE"))
    if toml:
        say(found.to_toml(), end="")
    elif as_json:
        print_json(found.to_dict())
    else:
        _show(found)


def _show(found: device.Description) -> None:
    out = console()
    bases = f" (builds on {', '.join(found.bases)})" if found.bases else ""
    out.print(f"{found.name}: {found.summary}{bases}\n", soft_wrap=True)
    out.print(facts_of(device.effective_rows(found)))
    rows: list[tuple[str, ...]] = []
    for _, keys in itertools.groupby(found.values, key=lambda key: key.partition(".")[0]):
        rows += [(), *((key, _written(found.values[key]), found.source(key)) for key in keys)]
    out.print()
    out.print(table_of(("key", "value", "source"), rows[1:], whole=["key"]))


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(_written, value)) if isinstance(value, list) else str(value)


@app.command()
def check(
    *,
    file: Annotated[Path, typer.Argument(help="A description in TOML.", metavar="FILE")],
    as_json: Json = False,
) -> None:
    """Check a description: print the device, or all errors (exit code 1)."""
    text = device.read(file)
    problems: list[dict[str, Any]] = []
    found = None
    try:
        found = device.Description(text)
    except DescriptionError as error:
        problems = error.problems
    if as_json:
        print_json({"ok": found is not None, "problems": problems})
    elif found is not None:
        say(f"{file}: {found!r}")
    else:
        for problem in problems:
            say(f"{file}: {problem['text']}")
    if found is None:
        raise typer.Exit(1)


@app.command()
def keys(
    *,
    section: Annotated[str, typer.Argument(help="One section; all if left out.")] = "",
    as_json: Json = False,
) -> None:
    """List the keys of a description: what each means and takes."""
    listed = device.keys()
    found = [key for key in listed if not section or key.key.partition(".")[0] == section]
    if not found:
        sections = dict.fromkeys(key.key.partition(".")[0] for key in listed)
        raise typer.BadParameter(f"{section!r} is no section; there are {', '.join(sections)}")
    if as_json:
        print_json([key._asdict() for key in found])
        return
    rows = [(key.key, key.meaning, key.allowed + (f" ({key.bound})" if key.bound else "")) for key in found]
    console().print(table_of(("key", "meaning", "takes"), rows, whole=["key"]))


@app.command("import-mqsim")
def import_mqsim(
    *,
    xml: Annotated[Path, typer.Argument(help="A configuration of MQSim.", metavar="XML")],
    name: Annotated[str | None, typer.Option(help="Name of the device; else the file's.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the TOML to a file.")] = None,
    as_json: Json = False,
) -> None:
    """Turn a configuration of MQSim into a description; what it could not take over goes to standard error."""
    found, notes = device.import_mqsim(xml, name)
    text = found.to_toml()
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"name": found.name, "toml": text, "notes": notes})
        return
    for note in notes:
        say(f"{note['key']} = {note['value']}: {note['what']}", file=sys.stderr)
    if output is None:
        say(text, end="")
