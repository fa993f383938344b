"""``nandarray program profile``: made-up inputs, and tables of where instructions went.

Counting is the work of :func:`nandarray.profile`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group

from nandarray.cli.common import console, print_json, table_of
from nandarray.cli.program.run import numpy_dtype
from nandarray.units import count

if TYPE_CHECKING:
    from nandarray import Program
    from nandarray.programs.profile import Profile

__all__ = ["sample", "sampled", "show_profile"]

_SAMPLE_SEED = 1


def sample(program: Program, records: int) -> list[np.ndarray[Any, Any]]:
    """Make up some records of input, the same random ones every time.

    They are small whole numbers where the dtype has them, normal ones else; printable lines for records that are lines.
    """
    chance = np.random.default_rng(_SAMPLE_SEED)
    found = []
    for port in program.inputs:
        dtype = np.dtype(numpy_dtype(port["dtype"]))
        n = max(1, records * max(1, port["record_bytes"] // dtype.itemsize))
        if port.get("records") == "lines":
            lines = b"\n".join(b"%d,%d" % (a, b) for a, b in chance.integers(0, 10**6, (records, 2))) + b"\n"
            found.append(np.frombuffer(lines, dtype=dtype))
        elif dtype.kind == "f":
            found.append(chance.normal(size=n).astype(dtype))
        elif dtype.kind in "iu":
            found.append(chance.integers(0, min(127, np.iinfo(dtype).max), n, endpoint=True).astype(dtype))
        else:
            found.append(np.frombuffer(chance.bytes(n * dtype.itemsize), dtype=np.uint8).view(dtype))
    return found


@contextmanager
def sampled(program: Program, records: int) -> Iterator[list[Any]]:
    """Yield generated inputs in a store of their own, which is removed afterwards."""
    import nandarray

    arrays = sample(program, records)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nandarray-"))
        store = stack.enter_context(nandarray.open(str(Path(folder) / "sample.nand"), "w"))
        for index, array in enumerate(arrays):
            store[f"input{index}"] = array
        yield [store[f"input{index}"] for index in range(len(arrays))]


def show_profile(found: Profile, *, top: int, as_json: bool) -> None:
    """Print where instructions went: tables of ``top`` rows, or everything as JSON."""
    account = found.offloaded.account
    if as_json:
        print_json(
            {
                "program": found.program.name,
                "instructions": found.total,
                "account": asdict(account),
                "functions": [asdict(one) for one in found.functions],
                "lines": [asdict(one) for one in found.lines],
                "classes": found.classes,
                "blocks": [{**asdict(one), "instructions": one.instructions} for one in found.blocks[:top]],
            }
        )
        return
    total = max(1, found.total)

    def share(times: int) -> str:
        return f"{100 * times / total:.1f}"

    per_byte = f", {found.total / account.bytes_in:.2f} a byte" if account.bytes_in else ""
    heads = [f"{found.program.name}: {found.total:,} instructions in {count(account.tasks, 'task')}{per_byte}"]
    functions = [(share(one.instructions), f"{one.instructions:,}", one.name) for one in found.functions[:top]]
    lines = [
        (share(at.instructions), f"{at.instructions:,}", f"{at.file}:{at.line}", (at.text or "").strip())
        for at in found.lines[:top]
    ]
    classes = [(share(times), f"{times:,}", name) for name, times in found.classes.items()]
    blocks = [
        (share(one.instructions), f"{one.times:,}", str(one.length), f"{one.address:#x}", one.function)
        for one in found.blocks[:top]
    ]
    parts: list[Any] = [*heads]
    for headings, rows in (
        (("%", "instructions", "function"), functions),
        (("%", "instructions", "line", ""), lines),
        (("%", "instructions", "class"), classes),
        (("%", "times", "length", "address", "function"), blocks),
    ):
        if rows:
            parts += ["", table_of(headings, rows, right=headings[:2])]
    console().print(Group(*parts))
