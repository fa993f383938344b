"""Running programs beside the data: from arrays and numbers to one native command, and from its outputs to NumPy.

:func:`offload` is what :meth:`nandarray.Array.offload` and :meth:`nandarray.Step.run` call. The native command fetches
boxes task by task, runs the programs on all cores, and gives outputs in the order of the data. Here steps are put in
order, and bytes become arrays. The run is in a thread of its own, so that Ctrl-C ends it and progress can be reported.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, overload

import numpy as np

from nandarray import _nandarray
from nandarray.door import Source
from nandarray.errors import InvalidError, ProgramFailedError
from nandarray.index.buffers import Elements
from nandarray.programs import abi, ports
from nandarray.programs.compile import native as forms
from nandarray.programs.ports import Box, Boxed
from nandarray.programs.program import Program
from nandarray.programs.step import FieldStep, Output, Step, in_order, source
from nandarray.programs.storeless import Storeless, storeless

__all__ = [
    "Account",
    "Box",
    "Offloaded",
    "StepAccount",
    "Traffic",
    "WorkerAccount",
    "is_remote",
    "offload",
    "shape_of",
    "watched",
]

TASK_BYTES = 1 << 20
HOLD_BYTES = 1 << 30
#: Bytes of a task's output, at most (docs/reference/program-abi.md).
WINDOW_BYTES = 64 << 20
#: Sentence in the report of a run on a modelled device.
ONE_A_CYCLE = "On the modelled device's cores an instruction takes one cycle of the described clock."
_POLL_S = 0.05
#: The words of a failed check of an index; the program notes the index and the size.
_OUT_OF_BOUNDS = "index is out of bounds"
_STATUS = re.compile(r"returned (-\d+)$")
_Array = np.ndarray[Any, Any]
Progress = Callable[[int, int, int], object]


@dataclass(frozen=True)
class StepAccount:
    """The account of one program of a run.

    Attributes
    ----------
    name : str
        The program's.
    tasks : int
        Pieces that its inputs were cut into.
    bytes_in : int
        Bytes of its inputs, from every source.
    bytes_out : int
        Bytes of its outputs, to every destination.
    instructions : int
        Executed by the cores; 0 in native form, where they are not counted.
    form : {"interpreted", "translated", "native"}
        Form in which the program was executed.
    """

    name: str
    tasks: int
    bytes_in: int
    bytes_out: int
    instructions: int
    form: str


@dataclass(frozen=True)
class Traffic:
    """Bytes of a run, by where they came from and went to.

    Attributes
    ----------
    from_store : int
        Fetched from arrays of the store.
    from_host : int
        Bytes given in memory.
    between : int
        Bytes from programs to programs.
    to_store : int
        Written to arrays of the store.
    to_host : int
        Bytes given back.
    sent, received : int or None
        Bytes over the wire to the process with the file and from it, with all that carries them, or to and from the
        workers of ``client=``; None where no connection of this process does: in that process itself, and through a
        kernel's drive.
    """

    from_store: int
    from_host: int
    between: int
    to_store: int
    to_host: int
    sent: int | None = None
    received: int | None = None


@dataclass(frozen=True)
class WorkerAccount:
    """The work of one worker of a client.

    Attributes
    ----------
    worker : str
        Its name: of Dask its address, of an executor its host and process.
    where : {"near", "shared", "moved"}
        The place of the parts: a folder of the worker's own; the store's folder, with no worker nearer to them; or
        that folder, though another worker had them, which is gone, or a part of them.
    tasks : int
        Tasks that it has executed.
    read : int
        Bytes of elements that it has read of parts.
    sent, received : int
        Bytes of requests to it, and of outputs and states from it.
    """

    worker: str
    where: str
    tasks: int
    read: int
    sent: int
    received: int


@dataclass(frozen=True)
class Account:
    """The account of a run: tasks, bytes, instructions, time.

    Attributes
    ----------
    tasks : int
        Pieces that the data was cut into.
    bytes_in : int
        Read from the store, or given; not what programs gave each other.
    bytes_out : int
        Bytes given back or written.
    instructions : int
        Executed by the cores; 0 in native form, where they are not counted.
    seconds : float
        Wall time on this machine.
    form : {"interpreted", "translated", "native", "mixed"}
        Form in which the program was executed; of several their form, or ``"mixed"``.
    steps : tuple of StepAccount
        The same of each program, those first that gave inputs to others.
    traffic : Traffic
        The bytes by where they came from and went to.
    notes : tuple of str
        Limits of a modelled device's account of the run; none under the wall clock.
    workers : tuple of WorkerAccount
        The work of each worker of a client; none without ``client=``.
    """

    tasks: int
    bytes_in: int
    bytes_out: int
    instructions: int
    seconds: float
    form: str
    steps: tuple[StepAccount, ...]
    traffic: Traffic
    notes: tuple[str, ...] = ()
    workers: tuple[WorkerAccount, ...] = ()


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    _V = TypeVar("_V", default=Elements | int, covariant=True)
else:
    from typing import TypeVar

    _V = TypeVar("_V", covariant=True)


@dataclass(frozen=True)
class Offloaded(Generic[_V]):
    """The outputs of a run, and its account.

    Attributes
    ----------
    outputs : dict
        NumPy arrays by the names of outputs; for an output that went into an array of the store, how many elements
        were written.
    account : Account
        Traffic, time and instructions of the run.
    """

    outputs: dict[str, _V]
    account: Account

    @property
    def result(self) -> _V | dict[str, _V] | None:
        """The only output, or all of them as a dictionary; None if the program has none."""
        if len(self.outputs) == 1:
            return next(iter(self.outputs.values()))
        return self.outputs or None


@dataclass(frozen=True)
class _AskedStage:
    """A stage of the native command; it reads these attributes."""

    program: int
    #: None for the node's choice.
    form: str | None
    entries: tuple[int, ...] | None
    inputs: list[Any]
    scalars: list[int]
    outputs: list[Any]
    task_bytes: int
    instructions: int | None
    cores: list[int]


@dataclass(frozen=True)
class _Asked:
    """The request to the native command; it reads these attributes."""

    stages: list[_AskedStage]
    #: 0 for one a unit of work at a worker.
    threads: int
    hold_bytes: int
    #: The share of the run: a first task and the one behind the last; or how many tasks there were, and the states of
    #: all runs of them. None for all of it.
    share: tuple[int, Any] | None = None


@overload
def offload(
    program: Program | Step | Output | Mapping[str, Step | Output],
    inputs: Sequence[Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
    *,
    out: None = None,
    form: str | None = None,
    threads: int | None = None,
    task_bytes: int | None = None,
    instructions: int | None = None,
    hold_bytes: int = HOLD_BYTES,
    seconds: float | None = None,
    progress: Progress | None = None,
    client: Any = None,
    _watch: _nandarray.Watch | None = None,
    _learns: str = "",
) -> Offloaded[Elements]: ...
@overload
def offload(
    program: Program | Step | Output | Mapping[str, Step | Output],
    inputs: Sequence[Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
    *,
    out: object,
    form: str | None = None,
    threads: int | None = None,
    task_bytes: int | None = None,
    instructions: int | None = None,
    hold_bytes: int = HOLD_BYTES,
    seconds: float | None = None,
    progress: Progress | None = None,
    client: Any = None,
    _watch: _nandarray.Watch | None = None,
    _learns: str = "",
) -> Offloaded[Elements | int]: ...
def offload(
    program: Program | Step | Output | Mapping[str, Step | Output],
    inputs: Sequence[Any] | None = None,
    scalars: Mapping[str, Any] | None = None,
    *,
    out: Any = None,
    form: str | None = None,
    threads: int | None = None,
    task_bytes: int | None = None,
    instructions: int | None = None,
    hold_bytes: int = HOLD_BYTES,
    seconds: float | None = None,
    progress: Progress | None = None,
    client: Any = None,
    _watch: _nandarray.Watch | None = None,
    _learns: str = "",
) -> Offloaded[Any]:
    """Run a program, or several that feed each other, beside arrays of a store.

    Parameters
    ----------
    program : Program, Step, output of a step, or mapping of these by name
        The program or programs. A :class:`Step` brings its inputs along, and the steps that it needs.
    inputs : sequence, optional
        Inputs of a :class:`Program`, for each an :class:`Array`, a :class:`View`, a :class:`Box` of one, a step, or
        something in memory (``numpy.asarray``); all of them may be. Elements come in C order.
        Contiguous memory is borrowed, not copied: leave it as it is until the run has ended. If another thread writes
        to it meanwhile, the values that programs see, and so results, are unspecified.
    scalars : mapping, optional
        Numbers by name; those left out have the program's defaults.
    out : Array, View, Box or mapping of them by output, optional
        Destination of the outputs instead of memory. All of them are written when the run has come to its end, as one
        command; until then, and if it fails, the arrays are as they were.
    form : {"interpreted", "translated", "native"}, optional
        Form in which programs are executed: instruction by instruction; translated to this machine's instructions as
        they run; or as a part of this process, for which they have to be :attr:`~Program.trusted`. If left out, native
        for each that is, translated for each that is not; at a node the node's choice, which is never native. All
        give the same.
    threads : int, optional
        Cores; all of the machine if left out.
    task_bytes : int, optional
        Bytes of the first input that a task should have; if left out 1 MiB, or what fits in a half on a device whose
        cores have ping-pong halves. A Python function over blocks or streams gets its inputs whole, in one task; with
        ``task_bytes`` it is called for each task and sees no other, so that what it gives may depend on this number.
    instructions : int, optional
        The most of them in one call of a program; it is ended with an error then. Not in native form.
    hold_bytes : int
        The most bytes held between programs where one cannot go on before another has more.
    seconds : float, optional
        The most time of this machine; the run is ended with an error then. One in native form ends between tasks.
    progress : callable, optional
        Called now and then, and once at the end, with tasks done, tasks known so far, and bytes read.
    client : distributed.Client or concurrent.futures.Executor, optional
        Workers where the program runs, for arrays of a store of parts: each beside the parts that it holds. The result
        is the same to the bit; ``account.workers`` says who did what.

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
        A program did what it may not do, or returned an error.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> from nandarray import programs
    >>> run = nandarray.offload(programs.get("sum", dtype="int64"), [store["a"]])
    >>> int(run.result), run.account.bytes_in
    (15, 48)
    """
    roots, wanted = _wanted(program, inputs, scalars)
    targets = _targets(out, wanted)
    common: dict[str, Any] = {"form": form, "task_bytes": task_bytes, "instructions": instructions}
    if seconds is not None and not seconds > 0:
        raise InvalidError(f"seconds must be more than 0, not {seconds!r}")
    ports.at_least_one(threads=threads, hold_bytes=hold_bytes, task_bytes=task_bytes, instructions=instructions)
    run = _Run(in_order(roots))
    store = run.store(targets)
    native = store._engine
    door = native if isinstance(native, Source) else None
    away = _away(store, client)
    if door is not None and _learns:
        door.refuse(f"{_learns}: the processor that counts is in the process with the file")
    if door is not None and "native" in (form, *(step.settings.get("form") for step in run.steps)):
        door.refuse("native form of programs: it executes no machine code of its clients")
    common["half_bytes"] = getattr(store, "_half_bytes", None)
    # A modelled device counts instructions, a door executes no native code of its clients.
    common["counted"] = native.clock is not None or door is not None
    common["node_chooses"] = door is not None and door.chooses_form
    watch = _watch or _nandarray.Watch()
    numbers: dict[Program, int] = {}
    try:
        for step in run.steps:
            if step.program not in numbers:
                numbers[step.program] = native.load_program(step.program.elf, _metadata(step.program))
        outputs = {(id(one.step), one.number): targets.get(name) for name, one in wanted.items()}
        stages = [run.asked(step, numbers[step.program], outputs, common | step.settings) for step in run.steps]
        asked = _Asked(stages, threads or (0 if away else os.cpu_count() or 1), hold_bytes)
        begin = time.perf_counter()
        work = partial(native.execute, asked, watch)
        if away is not None:
            work = partial(away, asked, watch, client, {numbers[one]: (one.elf, _metadata(one)) for one in numbers})
        given = watched(work, watch, progress, seconds, door=door)
        took = time.perf_counter() - begin
    except ProgramFailedError as error:
        raise _located(error, run.steps) from None
    finally:
        for number in numbers.values():
            native.unload_program(number)
    got = {}
    for name, one in wanted.items():
        value = given["stages"][run.places[id(one.step)]]["outputs"][one.number]
        got[name] = value if name in targets else _shaped(value, one._port, run.shapes.get((id(one.step), one.number)))
    to_store = sum(got[name] * wanted[name].dtype.itemsize for name in targets)
    return Offloaded(got, _account(run.steps, stages, given, to_store, took, modelled=native.clock is not None))


def _account(
    all_steps: Sequence[Step],
    stages: Sequence[_AskedStage],
    given: Mapping[str, Any],
    to_store: int,
    took: float,
    *,
    modelled: bool,
) -> Account:
    """Return the account of a run."""
    steps = tuple(map(_step_account, all_steps, given["stages"], stages))
    used = {one.form for one in steps}
    tasks, bytes_in, bytes_out, wire = given["tasks"], given["bytes_in"], given["bytes_out"], given.get("wire") or ()
    from_host = sum(one.nbytes for stage in stages for one in stage.inputs if isinstance(one, np.ndarray))
    between = sum(one.bytes_in for one in steps) - bytes_in
    traffic = Traffic(bytes_in - from_host, from_host, between, to_store, bytes_out - to_store, *wire)
    used_form = used.pop() if len(used) == 1 else "mixed"
    notes = (ONE_A_CYCLE,) if modelled else ()
    workers = tuple(WorkerAccount(**one) for one in given.get("workers", ()))
    facts = tasks, bytes_in, bytes_out, given["instructions"], took
    return Account(*facts, used_form, steps, traffic, notes, workers)


def _away(store: Any, client: Any) -> Callable[..., Any] | None:
    """Return the command that runs programs at the workers of a client, if there is one; memory is computed here."""
    if client is None or isinstance(store, Storeless):
        return None
    if not isinstance(store._engine, Source):
        raise InvalidError(f"client is for arrays of a store of parts; {store.path} must not be one file")
    return store._engine.execute_away


def _step_account(step: Step, told: Mapping[str, Any], asked: _AskedStage) -> StepAccount:
    """Return the costs of one program; a node tells the form that it has chosen."""
    form = asked.form or told["form"]
    return StepAccount(
        step.program.name, told["tasks"], told["bytes_in"], told["bytes_out"], told["instructions"], form
    )


def is_remote(store: Any) -> bool:
    """Return whether programs beside arrays of a store run in another process, behind a door."""
    return isinstance(store._engine, Source)


@lru_cache(maxsize=64)
def _metadata(program: Program) -> bytes:
    """Write a program's metadata as the native command reads it: without what Python derives from the ELF file."""
    derived, said = ("entries", "needs_end"), program._metadata
    ports = {
        key: [one | {"dtype": abi.spelled(one["dtype"], one["name"])} for one in said[key]]
        for key in ("inputs", "outputs", "scalars")
    }
    return json.dumps({key: value for key, value in (said | ports).items() if key not in derived}).encode()


def shape_of(output: Output) -> tuple[int, ...] | None:
    """Return the shape of an output that has an element for each one of an array, before it is run.

    It is None where the number of elements is unknown or differs from the array's.
    """
    one: Any = output
    while isinstance(one, Output):
        if isinstance(one.step, FieldStep):
            return one.step.shape
        first, program = one.step.inputs[0], one.step.program
        taken = first.dtype if isinstance(first, Output) else ports.dtype_of(first)
        sizes = program.inputs[0]["record_bytes"], one.port["record_bytes"]
        if sizes != (taken.itemsize, one.dtype.itemsize) or not abi.one_for_one(one.port):
            return None
        one = first
    return tuple(Boxed(one).shape if ports.is_stored(one) else one.shape)


class _Run:
    """Steps in order, with what is known of their inputs."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.places = {id(step): place for place, step in enumerate(steps)}
        #: Shapes of outputs that have an element for each one of an array.
        self.shapes: dict[tuple[int, int], tuple[int, ...]] = {}
        self._boxes: dict[int, list[Boxed | None]] = {}
        for step in steps:
            boxes = [Boxed(given) if ports.is_stored(given) else None for given in step.inputs]
            self._boxes[id(step)] = boxes
            first, box = step.inputs[0], boxes[0]
            shape = tuple(box.shape) if box else None
            if isinstance(first, Output):
                shape = self.shapes.get((id(first.step), first.number))
            elif isinstance(step, FieldStep):
                shape = step.shape
            elif box is None:
                shape = tuple(first.shape)
            taken = first.dtype if isinstance(first, Output) else ports.dtype_of(first)
            record_bytes = step.program._metadata["inputs"][0]["record_bytes"]
            for number, port in enumerate(step.program._metadata["outputs"]):
                # Records of other lengths make other shapes, also where there are none.
                item_bytes = abi.record(port["dtype"], port["name"]).itemsize
                alike = (
                    isinstance(step, FieldStep) or record_bytes * item_bytes == port["record_bytes"] * taken.itemsize
                )
                if shape is not None and alike and abi.one_for_one(port):
                    self.shapes[id(step), number] = shape

    def store(self, targets: Mapping[str, Boxed]) -> Any:
        """Return the store that has the arrays, or one of nothing if all of them lie in memory."""
        for boxes in (*self._boxes.values(), targets.values()):
            for box in boxes:
                if box:
                    return box.array.store
        return storeless()

    def asked(
        self, step: Step, number: int, outputs: Mapping[tuple[int, int], Boxed | None], settings: Mapping[str, Any]
    ) -> _AskedStage:
        """Return a step as a stage of the native command."""
        inputs: list[Any] = []
        for given, box in zip(step.inputs, self._boxes[id(step)], strict=True):
            if isinstance(given, Output):
                inputs.append((self.places[id(given.step)], given.number))
            else:
                inputs.append(box.native() if box else _lent(given))
        going: list[Any] = []
        for output in range(len(step.program._metadata["outputs"])):
            target = outputs.get((id(step), output))
            going.append(target.native() if target else (id(step), output) in outputs)
        most = settings["instructions"]
        form, entries = settings["form"], None
        if form is not None or not settings["node_chooses"]:
            form, entries = forms.choose(step.program, form, counted=most is not None or settings["counted"])
        scalars, cores = list(step._scalars), list(settings.get("cores", ()))
        task_bytes = settings["task_bytes"] or _task_bytes(step, self._boxes[id(step)], settings["half_bytes"])
        return _AskedStage(number, form, entries, inputs, scalars, going, task_bytes, most, cores)


def _task_bytes(step: Step, boxes: Sequence[Boxed | None], half_bytes: int | None) -> int:
    """Return the bytes of a task's first input, if the caller gives none.

    A program of one task gets all of it; else a task's outputs fit their windows, and all its inputs a half, if the
    device's cores have halves.
    """
    if step.program._metadata["tasks"] in {"one", "whole"}:
        return abi.ALL_BYTES
    most = _bounded_bytes(step.program._metadata)
    if half_bytes is None:
        return most
    room, record, first_bytes = half_bytes, 0, None
    for port, given, box in zip(step.program._metadata["inputs"], step.inputs, boxes, strict=True):
        known = None if isinstance(given, Output) else _bytes_of(given, box)
        first_bytes = known if port is step.program._metadata["inputs"][0] else first_bytes
        room -= (known or 0) if port["whole"] else 0
        record += 0 if port["whole"] else int(port["record_bytes"])
    first = step.program._metadata["inputs"][0]
    if first["records"] == "fixed":
        return min(most, max(1, room // record) * int(first["record_bytes"]))
    # A task ends with a record, which may be long; text that fits as a whole is one task.
    return most if first_bytes is not None and first_bytes <= room else max(1, min(most, room // 2))


def _bounded_bytes(metadata: Mapping[str, Any]) -> int:
    """Return the bytes of a task's first input whose outputs need half of a window at most; a record may be long."""
    most, record_bytes = TASK_BYTES, int(metadata["inputs"][0]["record_bytes"])
    # Room is for each record of the first input, or of all of them if they have lengths of their own.
    paced = sum(one["ahead"] > 0 for one in metadata["inputs"]) or 1
    for one in metadata["outputs"]:
        a_byte = paced * (one["bound"]["per_input_byte"] + one["bound"]["per_record"] / record_bytes)
        if one["phase"] != "end" and a_byte:
            most = min(most, max(record_bytes, int(WINDOW_BYTES // 2 // a_byte)))
    return most


def _bytes_of(given: Any, box: Boxed | None) -> int:
    return math.prod(box.shape) * box.dtype.itemsize if box else int(given.nbytes)


def _lent(given: _Array) -> _Array:
    """Return an array's bytes where they lie: the native command borrows them for the run, and this keeps them."""
    if given.nbytes == 0:
        return np.empty(0, np.uint8)
    return np.ascontiguousarray(given).reshape(-1).view(np.uint8)


def _wanted(
    program: Program | Step | Output | Mapping[str, Step | Output],
    inputs: Sequence[Any] | None,
    scalars: Mapping[str, Any] | None,
) -> tuple[list[Step], dict[str, Output]]:
    """Return the steps and the requested outputs, these by name."""
    if isinstance(program, Program):
        program = Step(program, () if inputs is None else inputs, scalars)
    elif (inputs is not None or scalars is not None) and isinstance(program, Step | Output | Mapping):
        raise InvalidError("inputs and scalars belong to a program; a step has its own")
    if isinstance(program, Step):
        return [program], {one.name: one for one in program}
    if isinstance(program, Output):
        return [program.step], {program.name: program}
    if not isinstance(program, Mapping) or not program:
        ready = f": programs.get({program!r}, dtype=...) makes a ready-made one" if isinstance(program, str) else ""
        raise InvalidError(f"what is run must be a program, a step, or steps by name, not {program!r}{ready}")
    named = {str(name): source(step) for name, step in program.items()}
    seen: dict[tuple[int, int], str] = {}
    for name, one in named.items():
        other = seen.setdefault((id(one.step), one.number), name)
        if other != name:
            raise InvalidError(f"{other!r} and {name!r} are the same output; ask for it once")
    return [one.step for one in named.values()], named


def _targets(out: Any, wanted: Mapping[str, Output]) -> dict[str, Boxed]:
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        if len(wanted) != 1:
            raise InvalidError(f"out must be a mapping by names for {len(wanted)} outputs, not one array")
        out = dict.fromkeys(wanted, out)
    unknown = sorted(set(out) - set(wanted))
    if unknown:
        raise InvalidError(f"there is no output {unknown[0]!r}; there is {', '.join(wanted) or 'none'}")
    return {name: ports.target(given, wanted[name]._port) for name, given in out.items()}


def _shaped(got: _Array, port: Mapping[str, Any], shape: Sequence[int] | None) -> Any:
    """Return an output as an array: of its array's shape if it has an element for each of that one's."""
    flat = got.view(abi.record(port["dtype"], port["name"]))
    if port["phase"] == "end":
        return flat[0] if port["bound"]["fixed"] == flat.dtype.itemsize and len(flat) == 1 else flat
    if shape is not None and flat.size == np.prod(shape, dtype=object):
        return flat.reshape(shape)
    return flat


def _located(error: ProgramFailedError, steps: Sequence[Step]) -> ProgramFailedError:
    """Return the error with what the program's notes say of it: what a status means, the line where it failed."""
    noted = tuple(error.noted or ())
    error.noted = (noted[0], noted[1]) if any(noted) else None
    if error.stage is None:
        return error
    program = steps[error.stage].program
    if error.pc is None:
        status = _STATUS.search(str(error))
        says = program._metadata["errors"].get(status.group(1)) if status else None
        if says is None:
            return error
        if _OUT_OF_BOUNDS in says:
            index, size = error.noted = error.noted or (0, 0)  # zeros are as good as no note
            says = says.replace(_OUT_OF_BOUNDS, f"index {index} is out of bounds for size {size}")
        return _again(f"{error}: {says}", error)
    location = program.locate(error.pc if error.caller is None else error.caller)
    line = "" if location.file is None else f" ({location.file}:{location.line})"
    made = _again(f"{error}{line}", error)
    made.location = location
    return made


def _again(text: str, error: ProgramFailedError) -> ProgramFailedError:
    made = ProgramFailedError(text)
    made.task, made.stage, made.pc, made.caller = error.task, error.stage, error.pc, error.caller
    made.noted = error.noted
    return made


def watched(
    run: Callable[[], Any],
    watch: _nandarray.Watch,
    progress: Progress | None,
    seconds: float | None = None,
    *,
    door: Source | None = None,
) -> Any:
    """Run in a thread; tell progress, and end the run, which looks at ``watch``, when this thread is interrupted.

    Only the main thread is interrupted: another one runs by itself what nothing else is asked of.
    ``progress`` is called now and then with the state of ``watch``, and once with its state at the end. The run
    may take ``seconds``. Its result is returned; its exception is raised here. A run behind a
    ``door`` does not look at ``watch``: the door ends it, or leaves it to the other side, and its account is the state
    at the end.
    """
    if (
        progress is None
        and seconds is None
        and door is None
        and threading.current_thread() is not threading.main_thread()
    ):
        return run()
    found: dict[str, Any] = {}
    until = math.inf if seconds is None else time.monotonic() + seconds
    late = False

    def work() -> None:
        try:
            found["given"] = run()
        except BaseException as error:  # noqa: BLE001 (it is raised again where it is waited for)
            found["error"] = error

    thread = threading.Thread(target=work, name="nandarray-offload", daemon=door is not None)
    thread.start()
    try:
        ended = False
        while not ended:
            thread.join(max(0.0, min(_POLL_S, until - time.monotonic())) if not late else _POLL_S)
            ended = not thread.is_alive()
            if not ended and not late and time.monotonic() >= until:
                late = True
                watch.cancel()
                if door is not None:
                    left = (
                        "the run is left to the other side, where it ends when its instructions are used up or its "
                        "connection breaks"
                    )
                    ended_there = door.end_run(watch)
                    raise ProgramFailedError(
                        f"more than {seconds} s: {'the run was cancelled' if ended_there else left}"
                    )
            if progress is not None:
                told = found.get("given") if door is not None else None
                progress(*watch.state() if told is None else (told["tasks"], told["tasks"], told["bytes_in"]))
    except BaseException:
        watch.cancel()
        if door is None:
            thread.join()
        else:
            door.end_run(watch)
        raise
    if "given" in found:
        return found["given"]
    error = found["error"]
    if late and isinstance(error, ProgramFailedError):
        raise _again(f"more than {seconds} s: {error}", error) from None
    raise error
