"""Pipelines: programs whose outputs are other programs' inputs.

A :class:`Step` is a program with its inputs, made by ``program.on(...)``. It is a value and does nothing until it is
run; a step that is an input of another makes a tree of them, and one that is an input of several is still run once.
Cycles cannot be, since a step is made of steps that are there. Running is done in :mod:`nandarray.programs.run`.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nandarray.errors import InvalidError
from nandarray.index.buffers import Elements
from nandarray.programs import abi, ports

if TYPE_CHECKING:
    from nandarray.programs.program import Program

__all__ = ["FieldStep", "Output", "Step", "in_order", "source"]


class Step:
    """A program with its inputs, to be run beside the data.

    Made by :meth:`nandarray.Program.on`. Its outputs can be inputs of another; ``step["name"]`` is one of several.

    Parameters
    ----------
    program : Program
        The program.
    inputs : sequence
        Inputs, for each an :class:`~nandarray.Array`, a :class:`~nandarray.View`, a :class:`~nandarray.Box`,
        another step or an output of one, or something in memory, which is read when the step is run.
    scalars : mapping
        Numbers by name.

    Raises
    ------
    InvalidError
        Inputs or scalars do not fit the program.

    Examples
    --------
    >>> import nandarray
    >>> store = nandarray.open("data.nand", mode="w")
    >>> store["a"] = np.arange(6).reshape(2, 3)
    >>> from nandarray import programs
    >>> step = programs.get("sum", dtype="int64").on(store["a"])
    >>> int(step.run())
    15
    """

    __slots__ = ("_inputs", "_program", "_scalars", "_settings")

    def __init__(self, program: Program, inputs: Sequence[Any], scalars: Mapping[str, Any] | None = None) -> None:
        metadata = program._metadata
        pairs = zip(ports.counted(inputs, metadata), metadata["inputs"], strict=True)
        self._program = program
        self._inputs = tuple(_checked(given, port) for given, port in pairs)
        self._scalars = tuple(ports.scalar_bits(scalars or {}, metadata))
        self._settings: dict[str, Any] = {}

    @property
    def program(self) -> Program:
        """The program."""
        return self._program

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The inputs: arrays, views, boxes, :class:`Output` of other steps, NumPy arrays."""
        return self._inputs

    @property
    def settings(self) -> dict[str, Any]:
        """The settings made by :meth:`using`."""
        return dict(self._settings)

    def using(
        self,
        *,
        form: str | None = None,
        task_bytes: int | None = None,
        instructions: int | None = None,
        cores: Sequence[int] | None = None,
    ) -> Step:
        """Return the same step with settings of its own, which count before those of the run.

        Parameters
        ----------
        form : str, optional
            Form in which the program is executed: see :func:`nandarray.offload`.
        task_bytes : int, optional
            Bytes of the first input that a task should have: see :func:`nandarray.offload`.
        instructions : int, optional
            The most of them in one call of the program.
        cores : sequence of int, optional
            Cores of a modelled device that run the program; all of them if left out. Where a step and its readers have
            cores of their own, and all are programs over streams, pages go from core to core and not through DRAM.
            Results do not depend on it, and the wall clock ignores it.

        Returns
        -------
        Step
            Another one: it is run beside this one, if both are.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> from nandarray import programs
        >>> step = programs.get("sum", dtype="int64").on(store["a"]).using(form="interpreted")
        >>> nandarray.offload(step).account.form
        'interpreted'
        """
        ports.at_least_one(task_bytes=task_bytes, instructions=instructions)
        made: Step = object.__new__(type(self))
        made._program, made._inputs, made._scalars = self._program, self._inputs, self._scalars
        named = None if cores is None else _cores(cores)
        given = {"form": form, "task_bytes": task_bytes, "instructions": instructions, "cores": named}
        made._settings = self._settings | {name: value for name, value in given.items() if value is not None}
        return made

    def __getitem__(self, name: str) -> Output:
        names = [port["name"] for port in self._program._metadata["outputs"]]
        if name not in names:
            raise InvalidError(
                f"program {self._program.name} has no output {name!r}; it has {', '.join(names) or 'none'}"
            )
        return Output(self, names.index(name))

    def __iter__(self) -> Iterator[Output]:
        return iter([Output(self, number) for number in range(len(self._program._metadata["outputs"]))])

    def run(self, **options: Any) -> Elements | int | dict[str, Elements | int] | None:
        """Run it, with all steps that it needs, and get what it gives.

        Parameters
        ----------
        **options
            As for :func:`nandarray.offload`: ``out``, ``threads``, ``progress``, ...

        Returns
        -------
        array, scalar or dict
            The output; a dictionary by name if there are several.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> from nandarray import programs
        >>> int(programs.get("sum", dtype="int64").on(store["a"]).run(threads=1))
        15
        """
        from nandarray.programs.run import offload

        found: Elements | int | dict[str, Elements | int] | None = offload(self, **options).result
        return found

    def __repr__(self) -> str:
        return f"<nandarray.Step {_called(self)}>"


def _cores(given: Sequence[int]) -> list[int]:
    """Check numbers of cores."""
    cores = [operator.index(one) for one in given]
    if not cores or min(cores) < 0 or len(set(cores)) < len(cores):
        raise InvalidError(f"cores must be one number from 0 on or several different ones, not {given!r}")
    return cores


class FieldStep(Step):
    """A step that takes a field out of records, or converts elements: the shape of what it gives is known."""

    __slots__ = ("shape",)

    shape: tuple[int, ...]


class Output:
    """An output of a :class:`Step`."""

    __slots__ = ("_number", "_step")

    def __init__(self, step: Step, number: int) -> None:
        self._step = step
        self._number = number

    @property
    def step(self) -> Step:
        """The step."""
        return self._step

    @property
    def number(self) -> int:
        """Place of the output among those of the step."""
        return self._number

    @property
    def port(self) -> Mapping[str, Any]:
        """Metadata of the output: ``name``, ``dtype``, ``record_bytes``, ``phase`` and ``bound``."""
        return copy.deepcopy(self._port)

    @property
    def _port(self) -> Mapping[str, Any]:
        """Metadata of the output, not a copy."""
        port: Mapping[str, Any] = self._step.program._metadata["outputs"][self._number]
        return port

    @property
    def name(self) -> str:
        """Name of the output."""
        return str(self._port["name"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the output's elements."""
        return abi.record(self._port["dtype"], self.name)

    def run(self, **options: Any) -> Elements | int:
        """Run the step for this output alone; see :meth:`Step.run`."""
        from nandarray.programs.run import offload

        found: Any = offload(self, **options).result
        only: Elements | int = found
        return only

    def __repr__(self) -> str:
        return f"<nandarray.Step {_called(self._step)}[{self.name!r}]>"


def source(step: Step | Output) -> Output:
    """Return an output: the given one, or the only one of a step; an InvalidError says that it has none or several."""
    if isinstance(step, Output):
        return step
    found = list(step)
    if len(found) != 1:
        names = ", ".join(one.name for one in found)
        says = f'several outputs ({names}): name one, step["{found[0].name}"]' if found else "no output"
        raise InvalidError(f"program {step.program.name} has {says}")
    return found[0]


def in_order(roots: Sequence[Step]) -> list[Step]:
    """Return steps and those that they need, each once, producers before consumers."""
    found: dict[int, Step] = {}
    # Depth first, without recursion: a chain may be long.
    stack: list[tuple[Step, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        step, expanded = stack.pop()
        if id(step) in found:
            continue
        if expanded:
            found[id(step)] = step
            continue
        stack.append((step, True))
        stack += [(one.step, False) for one in reversed(step.inputs) if isinstance(one, Output)]
    return list(found.values())


def _checked(given: Any, port: Mapping[str, Any]) -> Any:
    """Return an input as it is kept, if it fits the port; what is derived is the output of a step that makes it."""
    if ports.is_derived(given):
        from nandarray.programs.fields import derived_step

        given = derived_step(given if isinstance(given, ports.Box) else ports.Box(given))
    if isinstance(given, Step | Output):
        output = source(given)
        ports.matched(output.dtype, port, f" (output {output.name} of {output.step.program.name})")
        return output
    if ports.is_stored(given):
        ports.matched(ports.Boxed(given).dtype, port)
        return given
    array = ports.in_memory(given)
    ports.matched(array.dtype, port)
    return array


def _called(step: Step, depth: int = 3) -> str:
    """Write a step as it would be called; deep ones end in dots."""
    parts = []
    for given in step.inputs:
        if isinstance(given, Output):
            inner = _called(given.step, depth - 1) if depth else "..."
            several = len(given.step.program._metadata["outputs"]) > 1
            parts.append(f"{inner}[{given.name!r}]" if several else inner)
        else:
            shape = ports.Boxed(given).shape if ports.is_stored(given) else given.shape
            parts.append("x".join(map(str, shape)) or "()")
    return f"{step.program.name}({', '.join(parts)})"
