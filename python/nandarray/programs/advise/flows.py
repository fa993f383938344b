"""The path that a program is on, found by counting where the bytes of a sample run come from and go to.

A run is set up as the program is used: inputs lie in arrays of a store or are given by the host, outputs go to arrays
or back to the host (:class:`Use`). The engine runs it on the interpreter and counts
(:class:`nandarray.programs.run.Traffic`); what is written to the store beside the outputs is counted, too. From these
counts alone follow the path (:func:`path_of`) and the bytes that cross the link to the host. The caller, or the sample
of a ready-made program, says how a program is used; this file takes no name of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.array.opening import open as open_store
from nandarray.errors import InvalidError
from nandarray.programs import abi, ports, run
from nandarray.programs.run import TASK_BYTES

if TYPE_CHECKING:
    from nandarray.programs.program import Program
    from nandarray.programs.run import Account

__all__ = [
    "AROUND",
    "READ",
    "SAMPLE_BYTES",
    "WITHIN",
    "WRITE",
    "Flows",
    "Use",
    "measure",
    "part",
    "path_of",
    "targets_of",
]

READ, WRITE, WITHIN, AROUND = "read", "write", "within", "around"
SAMPLE_BYTES = 4 << 20
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Use:
    """The use of a program: the sides that its inputs come from and its outputs go to.

    The host gives the inputs ``host``; the others lie in arrays of the store. The outputs ``stored`` go to arrays of
    the store, the others to the host. ``kept``, of inputs and outputs by name, gives the arrays that are written to the
    store besides.
    """

    host: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    kept: Callable[[Mapping[str, _Array], Mapping[str, _Array]], Sequence[_Array]] | None = None


@dataclass(frozen=True)
class Flows:
    """Bytes of a run by where they came from and went to; those kept beside the outputs are in ``to_store``."""

    from_store: int
    from_host: int
    to_store: int
    to_host: int

    @property
    def link_device(self) -> int:
        """Bytes that cross the link if the device computes: what the host gives, and what it gets."""
        return self.from_host + self.to_host

    @property
    def link_host(self) -> int:
        """Bytes that cross the link if the host computes: what it has to fetch, and to write."""
        return self.from_store + self.to_store

    @property
    def ratio(self) -> float:
        """Bytes out for a byte that comes in on the path."""
        out = self.to_store + self.to_host
        return out / max(self.from_host if path_of(self) in (WRITE, AROUND) else self.from_store, 1)


def path_of(flows: Flows) -> str:
    """Return the path of a run: ``"read"``, ``"write"``, ``"within"`` or ``"around"``.

    The side that gets more of the output takes the data. Read: the host takes, and some data came from the store.
    Write: the store takes, and some data came from the host. Within: the store takes, all from itself. Around: the host
    takes, all from itself.
    """
    if flows.to_host >= flows.to_store:
        return READ if flows.from_store else AROUND
    return WRITE if flows.from_host else WITHIN


def measure(made: Program, inputs: Sequence[_Array], scalars: Mapping[str, Any], use: Use) -> tuple[Account, Flows]:
    """Run a program over a sample by the interpreter as it is used; return the engine's account, and the bytes.

    Data that do not fit the program, and a use that names what it does not have, are an InvalidError.
    """
    names = [port["name"] for port in made.inputs]
    outputs = {port["name"]: port for port in made.outputs}
    ports.counted(inputs, made.metadata)
    for name in sorted(use.stored - set(outputs)):
        raise InvalidError(f"{made.name} has no output {name!r}; it has {', '.join(outputs) or 'none'}")
    with TemporaryDirectory(prefix="nandarray-") as folder, open_store(Path(folder) / "sample.nand", "w") as store:
        given: list[Any] = []
        for number, (name, one) in enumerate(zip(names, inputs, strict=True)):
            if name not in use.host:
                store[f"input{number}"] = one
            given.append(one if name in use.host else store[f"input{number}"])
        targets = targets_of(made, inputs, use, store)
        done = run.offload(made, given, scalars, out=targets or None, form="interpreted")
        traffic, kept = done.account.traffic, 0
        if use.kept is not None:
            got: dict[str, Any] = {name: store[f"output-{name}"][: done.outputs[name]] if name in targets else value
                   for name, value in done.outputs.items()}  # fmt: skip
            for number, one in enumerate(use.kept(dict(zip(names, inputs, strict=True)), got)):
                store[f"kept{number}"] = one
                kept += store.open_array(f"kept{number}").nbytes
    return done.account, Flows(traffic.from_store, traffic.from_host, traffic.to_store + kept, traffic.to_host)


def targets_of(made: Program, inputs: Sequence[_Array], use: Use, store: Any) -> dict[str, Any]:
    """Create the arrays that outputs go to in a store, with room for a sample; return them by the outputs' names."""
    outputs = {port["name"]: port for port in made.outputs}
    targets = {}
    for name in use.stored:
        dtype = abi.record(outputs[name]["dtype"], name)
        room = _room(made, outputs[name], inputs)
        targets[name] = store.create(f"output-{name}", (-(-room // dtype.itemsize),), dtype)
    return targets


def _room(made: Program, port: Mapping[str, Any], inputs: Sequence[_Array]) -> int:
    """Return the bytes that an output has at most, over all tasks."""
    bound, first = port["bound"], inputs[0].nbytes
    records = -(-first // max(made.inputs[0]["record_bytes"], 1))
    taken = sum(one.nbytes for one, of in zip(inputs, made.inputs, strict=True) if not of.get("whole"))
    tasks = 1 if port["phase"] == "end" else min(records, 2 + 2 * first // TASK_BYTES)
    return max(
        1, int(bound["per_record"] * records + np.ceil(bound["per_input_byte"] * taken) + bound["fixed"] * tasks)
    )


def part(one: Any) -> _Array:
    """Take the first 4 MiB of an input, a row at least, into memory."""
    if not ports.is_stored(one):
        array = np.asarray(one)
        return array if not array.shape else array[: _rows(array.shape, array.dtype)]
    box, whole = ports.Boxed(one), one.array if isinstance(one, ports.Box) else one
    if not whole.shape:
        return np.asarray(whole[...])
    lengths = list(box.lengths)
    if lengths:
        lengths[0] = min(lengths[0], _rows(lengths, box.dtype))
    key = tuple(slice(at, at + step * n, step) for at, step, n in zip(box.start, box.step, lengths, strict=True))
    return np.asarray(whole[key])


def _rows(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    return max(1, SAMPLE_BYTES // max(1, int(np.prod(shape[1:], dtype=object)) * dtype.itemsize))
