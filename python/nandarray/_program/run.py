"""Running a program beside the data: from arrays and numbers to one native command, and from its outputs to NumPy.

:func:`offload` is what :meth:`nandarray.Array.offload` calls. The native command fetches the boxes task by task, runs
the program on all cores, and gives outputs in the order of the data. Here inputs are matched with the program's,
scalars become bit patterns, and bytes become arrays. The run is in a thread of its own, so that Ctrl-C ends it and
progress can be told.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray import _nandarray
from nandarray._program import abi
from nandarray._program import native as forms
from nandarray.errors import InvalidError
from nandarray.indexing import plain

if TYPE_CHECKING:
    from nandarray._program.program import Program
    from nandarray.array import Array
    from nandarray.view import View

__all__ = ["Account", "Box", "Offloaded", "offload"]

TASK_BYTES = 1 << 20
_POLL_S = 0.05
_Array = np.ndarray[Any, Any]
Progress = Callable[[int, int, int], object]


@dataclass(frozen=True)
class Box:
    """Part of an array, as an input of a program.

    Parameters
    ----------
    array : Array or View
        Which array.
    key : index expression
        Integers and forward slices: ``np.s_[10:20, ::2]``.
    """

    array: Array | View
    key: Any = ...


@dataclass(frozen=True)
class Account:
    """What a run took.

    Attributes
    ----------
    tasks : int
        Pieces that the data was cut into.
    bytes_in : int
        Read from the store, or given.
    bytes_out : int
        Given back.
    instructions : int
        Executed by the cores; 0 in native form, where nobody counts them.
    seconds : float
        Of this machine.
    form : {"interpreted", "native"}
        How the program was executed.
    """

    tasks: int
    bytes_in: int
    bytes_out: int
    instructions: int
    seconds: float
    form: str


@dataclass(frozen=True)
class Offloaded:
    """What a program gave.

    Attributes
    ----------
    outputs : dict
        NumPy arrays by the names of outputs; for an output that went into an array of the store, how many elements
        were written.
    account : Account
        What it took.
    """

    outputs: dict[str, Any]
    account: Account

    @property
    def result(self) -> Any:
        """The only output, or all of them as a dictionary; None if the program has none."""
        if len(self.outputs) == 1:
            return next(iter(self.outputs.values()))
        return self.outputs or None


@dataclass(frozen=True)
class _Asked:
    """What the native command is asked for; it reads these attributes."""

    program: int
    form: str
    entries: tuple[int, ...] | None
    inputs: list[Any]
    scalars: list[int]
    outputs: list[Any]
    threads: int
    task_bytes: int
    instructions: int | None


def offload(
    program: Program,
    inputs: Sequence[Any],
    scalars: Mapping[str, Any] | None = None,
    *,
    out: Any = None,
    form: str | None = None,
    threads: int | None = None,
    task_bytes: int = TASK_BYTES,
    instructions: int | None = None,
    progress: Progress | None = None,
) -> Offloaded:
    """Run a program beside arrays of a store.

    Parameters
    ----------
    program : Program
        What to run.
    inputs : sequence
        For each input of the program an :class:`Array`, a :class:`View`, a :class:`Box` of one, or something in memory
        (``numpy.asarray``). One at least is of a store. Elements come in C order.
    scalars : mapping, optional
        Numbers by name; those left out have the program's defaults.
    out : Array, View, Box or mapping of them by output, optional
        Where outputs go instead of into memory. If the program fails, what was written stays written.
    form : {"interpreted", "native"}, optional
        How it is executed: instruction by instruction, or as a part of this process, for which it has to be
        :attr:`~Program.trusted`. Native if left out and the program is, interpreted if not. Both give the same.
    threads : int, optional
        Cores; all of the machine if left out.
    task_bytes : int
        Bytes of the first input that a task should have.
    instructions : int, optional
        The most of them in one call of the program; it is ended with an error then. Not in native form.
    progress : callable, optional
        Called now and then with tasks done, tasks there are, and bytes read.

    Returns
    -------
    Offloaded
        Outputs and account.

    Raises
    ------
    InvalidError
        Inputs or scalars do not fit the program.
    ProgramError
        The ELF cannot be run here.
    ProgramFailedError
        The program did what it may not do, or returned an error.
    """
    metadata = program.metadata
    boxes = [_input(one, port) for one, port in zip(_counted(inputs, metadata), metadata["inputs"], strict=True)]
    store = next((box.array for box in boxes if isinstance(box, _Boxed)), None)
    if store is None:
        raise InvalidError("no input is an array of a store; a program runs beside one")
    native = store.store._native
    targets = _targets(out, metadata)
    if threads is not None and threads < 1:
        raise InvalidError(f"threads is {threads}; at least 1 is needed")
    chosen, entries = forms.choose(program, form, counted=instructions is not None)
    number = native.load_program(program.elf, _metadata(program))
    watch = _nandarray.Watch()
    try:
        asked = _Asked(
            number,
            chosen,
            entries,
            [box.native() if isinstance(box, _Boxed) else box for box in boxes],
            _scalars(scalars or {}, metadata),
            [None if target is None else target.native() for target in targets],
            threads or os.cpu_count() or 1,
            task_bytes,
            instructions,
        )
        begin = time.perf_counter()
        given = _watched(lambda: native.execute(asked, watch), watch, progress)
        seconds = time.perf_counter() - begin
    finally:
        native.unload_program(number)
    outputs = {}
    for port, target, got in zip(metadata["outputs"], targets, given["outputs"], strict=True):
        outputs[port["name"]] = got if target is not None else _shaped(got, port, boxes[0])
    account = Account(given["tasks"], given["bytes_in"], given["bytes_out"], given["instructions"], seconds, chosen)
    return Offloaded(outputs, account)


class _Boxed:
    """A box of an array of a store, checked."""

    def __init__(self, given: Any) -> None:
        from nandarray.view import View

        box = given if isinstance(given, Box) else Box(given)
        whole = box.array
        self.array = whole.array if isinstance(whole, View) else whole
        self.dtype = whole.dtype
        self.view = list(whole.shape) if isinstance(whole, View) else None
        found = plain(_full(box.key), whole.shape)
        if found is None:
            raise InvalidError(f"{box.key!r} of shape {whole.shape}: a program takes integers and forward slices")
        self.start, self.step, self.lengths, self.shape = found

    def native(self) -> tuple[Any, ...]:
        return self.array._space, self.start, self.step, self.lengths, self.view


def _full(key: Any) -> Any:
    """Drop an ellipsis that says nothing."""
    if key is ...:
        return ()
    if isinstance(key, tuple) and key and key[-1] is ...:
        return key[:-1]
    return key


def _is_stored(given: Any) -> bool:
    from nandarray._grid import Grid

    return isinstance(given, Box | Grid)


def _counted(inputs: Sequence[Any], metadata: Mapping[str, Any]) -> Sequence[Any]:
    wanted = metadata["inputs"]
    if len(inputs) != len(wanted):
        names = ", ".join(one["name"] for one in wanted)
        raise InvalidError(f"{len(inputs)} inputs for a program that takes {len(wanted)}: {names}")
    return inputs


def _input(given: Any, port: Mapping[str, Any]) -> _Boxed | bytes:
    wanted = abi.record(port["dtype"], port["name"])
    boxed = _Boxed(given) if _is_stored(given) else None
    array = None if boxed else np.asarray(given)
    dtype = boxed.dtype if boxed else array.dtype  # type: ignore[union-attr]
    # Bytes are bytes: a program over uint8 takes anything.
    if dtype != wanted and wanted != np.dtype("u1"):
        raise InvalidError(f"input {port['name']} has dtype {dtype}; the program takes {wanted}")
    return boxed if boxed else np.ascontiguousarray(array).tobytes()


def _scalars(given: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[int]:
    unknown = sorted(set(given) - {one["name"] for one in metadata["scalars"]})
    if unknown:
        names = ", ".join(one["name"] for one in metadata["scalars"]) or "none"
        raise InvalidError(f"the program has no scalar {unknown[0]!r}; it has {names}")
    found = []
    for port in metadata["scalars"]:
        if port["name"] not in given and "default" not in port:
            raise InvalidError(f"scalar {port['name']} is missing, and has no default")
        found.append(bits(given.get(port["name"], port.get("default")), port))
    return found


def bits(value: Any, port: Mapping[str, Any]) -> int:
    """Give a scalar as the 64 bits that the argument block has.

    Parameters
    ----------
    value : number
        The scalar.
    port : mapping
        Its name and dtype.

    Returns
    -------
    int
        Signed integers extended by their sign, others by zeros.
    """
    dtype = abi.record(port["dtype"], port["name"])
    try:
        made = np.array(value).astype(dtype, casting="same_kind") if np.array(value).dtype.kind == "f" else None
        made = np.array(value, dtype=dtype) if made is None else made
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"scalar {port['name']} is {value!r}: {error}") from None
    if made.ndim:
        raise InvalidError(f"scalar {port['name']} is {value!r}; it is one number")
    if dtype.kind in "iub":
        return int(made) & (2**64 - 1)
    return int.from_bytes(made.tobytes(), "little")


def _targets(out: Any, metadata: Mapping[str, Any]) -> list[_Boxed | None]:
    ports = metadata["outputs"]
    if out is None:
        return [None] * len(ports)
    if not isinstance(out, Mapping):
        if len(ports) != 1:
            raise InvalidError(f"out is one array; the program has {len(ports)} outputs: give a mapping by their names")
        out = {ports[0]["name"]: out}
    unknown = sorted(set(out) - {port["name"] for port in ports})
    if unknown:
        raise InvalidError(f"the program has no output {unknown[0]!r}; it has {', '.join(p['name'] for p in ports)}")
    found: list[_Boxed | None] = []
    for port in ports:
        box = _Boxed(out[port["name"]]) if port["name"] in out else None
        wanted = abi.record(port["dtype"], port["name"])
        if box is not None and box.dtype != wanted:
            raise InvalidError(f"output {port['name']} has dtype {wanted}; the array has {box.dtype}")
        if box is not None and any(step != 1 for step in box.step):
            raise InvalidError(f"output {port['name']}: a box with steps cannot be written")
        found.append(box)
    return found


def _metadata(program: Program) -> bytes:
    """Give what the program says of itself, filled in."""
    import json

    return json.dumps(program.metadata).encode()


def _shaped(got: bytes, port: Mapping[str, Any], first: _Boxed | bytes) -> _Array:
    """Give an output as an array: of the input's shape if it has an element for each of its elements."""
    flat = np.frombuffer(bytearray(got), dtype=abi.record(port["dtype"], port["name"]))
    if port["phase"] == "end":
        return flat[0] if port["bound"]["fixed"] == flat.dtype.itemsize and len(flat) == 1 else flat
    one_for_one = port["bound"] == {"per_record": port["record_bytes"], "per_input_byte": 0, "fixed": 0}
    if isinstance(first, _Boxed) and one_for_one and flat.size == np.prod(first.shape, dtype=object):
        return flat.reshape(first.shape)
    return flat


def _watched(run: Callable[[], Any], watch: _nandarray.Watch, progress: Progress | None) -> Any:
    """Run in a thread; tell progress, and end the run when this thread is interrupted."""
    found: dict[str, Any] = {}

    def work() -> None:
        try:
            found["given"] = run()
        except BaseException as error:  # noqa: BLE001 (it is raised again where it is waited for)
            found["error"] = error

    thread = threading.Thread(target=work, name="nandarray-offload")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
            if progress is not None:
                progress(*watch.state())
    except BaseException:
        watch.cancel()
        thread.join()
        raise
    if "error" in found:
        raise found["error"]
    return found["given"]
