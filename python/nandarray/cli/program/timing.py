"""``--core``: a described core chosen on the command line, and tables of what a program took on it.

Timing is the work of :meth:`nandarray.Program.time`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.table import Table

from nandarray.cli.common import console, parse_pairs, print_json, table_of

if TYPE_CHECKING:
    from nandarray import Program
    from nandarray.programs.run import Offloaded
    from nandarray.programs.timing import CoreChoice, Place, Timed

__all__ = ["chosen", "list_cores", "of_run", "on_one_core", "show_timed", "summary"]


def chosen(core: str | None, sets: Sequence[str] | None, timeline: Path | None = None) -> CoreChoice | None:
    """Read ``--core`` (a name, or a file), ``--set`` and ``--timeline``; None without ``--core``."""
    if core is None:
        if sets:
            raise typer.BadParameter("--set goes with --core")
        if timeline is not None:
            raise typer.BadParameter("--timeline goes with --core")
        return None
    if timeline is not None and not timeline.parent.is_dir():
        raise typer.BadParameter(f"--timeline {timeline}: there is no folder {timeline.parent}")
    from nandarray.programs.timing import choose_core

    changes = parse_pairs(sets, "KEY=VALUE, like l1d.size=16KiB")
    return choose_core(core, {key: value.strip() for key, value in changes.items()})


def on_one_core(core: CoreChoice | None, *, single: bool, form: str | None, threads: int | None) -> dict[str, Any]:
    """Return ``form`` and ``threads`` of a run, arguments of :func:`nandarray.offload`; those of a described core.

    Without a core they are the command line's. A core takes a ``single`` program.
    """
    if core is None:
        return {"form": form, "threads": threads}
    if not single or threads not in {None, 1} or form not in {None, "interpreted"}:
        raise typer.BadParameter("--core times one program on one core, interpreted: no --then, --threads, --form")
    return {"form": "interpreted", "threads": 1}


def list_cores(*, as_json: bool) -> None:
    """Print the cores that come with the product."""
    from nandarray.programs.timing import choose_core, core_names

    cores = [choose_core(name) for name in core_names()]
    if as_json:
        print_json([dict(one.facts) for one in cores])
        return
    rows = []
    for one in cores:
        facts = one.facts
        caches = [f"{name} {facts[name][0] >> 10}K" for name in ("l1i", "l1d", "l2") if facts[name]]
        caches += [f"scratchpad {facts['scratchpad_bytes'] >> 10}K"] if facts["scratchpad_bytes"] else []
        caches += [f"{facts['streams']} streams"] if facts["streams"] else []
        clock = f"{facts['clock_hz'] / 1e9:g} GHz"
        rows.append((one.name, facts["isa"], facts["issue"], clock, ", ".join(caches) or "none", facts["source"]))
    console().print(table_of(("core", "instruction set", "issue", "clock", "caches", "source"), rows))


def of_run(core: CoreChoice | None, program: Program, watch: Any, done: Offloaded) -> Timed | None:
    """Return the figures of a finished run from its core's ``watch``; None without a described core."""
    from nandarray.programs.timing import figures

    return None if core is None else figures(core, program, watch, done)


def summary(found: Timed) -> str:
    """Say in a few lines what a program took."""
    heads = [
        f"{found.core} ({found.isa}, {found.clock_hz / 1e9:g} GHz): {found.cycles:,.0f} cycles, "
        f"{found.seconds:.4g} s, {found.instructions:,} instructions, CPI {found.cpi:.3f}"
    ]
    heads.append("CPI: " + ", ".join(f"{name} {cpi:.3f}" for name, cpi in found.cpi_stack.items()))
    heads += [
        f"{name}: {one.accesses:,} accesses, {one.hits:,} hits, {one.misses:,} misses"
        for name, one in found.caches.items()
    ]
    if found.vector["operations"]:
        heads.append(
            f"vector datapath: {found.datapath_efficiency:.1%} of its bits carried values, "
            f"{found.vector['elements']:,} elements in {found.vector['operations']:,} operations"
        )
    if found.parts:
        heads.append(f"energy {found.energy_j:.4g} J, area {found.area_mm2:.4g} mm2")
    return "\n".join(heads)


def show_timed(found: Timed, *, top: int, as_json: bool) -> None:
    """Print what a program took: tables of ``top`` rows, or everything as JSON."""
    if as_json:
        print_json(found.to_dict())
        return
    parts: list[Any] = [f"{found.program.name} on {summary(found)}", ""]
    stack = [(f"{100 * cycles / found.cycles:.1f}", f"{cycles:,.0f}", name)
             for name, cycles in found.reasons.items() if cycles]  # fmt: skip
    energy = [(f"{area:.4g}", f"{joules:.4g}", name) for name, (area, joules) in found.parts.items()]
    for table in (
        table_of(("%", "cycles", "reason"), stack, right=("%", "cycles")),
        _places("function", found.functions[:top], found),
        _places("line", found.lines[:top], found),
        table_of(("mm2", "J", "part"), energy, right=("mm2", "J")),
    ):
        if table.row_count:
            parts += [table, ""]
    console().print(Group(*parts[:-1]))


def _places(what: str, places: Sequence[Place], found: Timed) -> Table:
    rows = []
    for one in places:
        share = f"{100 * one.cycles / found.cycles:.1f}"
        numbers = (f"{one.cycles:,.0f}", f"{one.stalls:,.0f}", f"{one.instructions:,}", f"{one.cpi:.2f}")
        rows.append((share, *numbers, one.name, (one.text or "").strip()))
    right = ("%", "cycles", "stalls", "instructions", "CPI")
    return table_of((*right, what, ""), rows, right=right)
