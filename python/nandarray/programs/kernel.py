"""The class :class:`Kernel`: a program in microblocks and screens, with its description table.

A kernel is a value, as a :class:`~nandarray.Program` is: compiled from C or derived from a loop nest, run in a
:class:`~nandarray.Session`. ``docs/reference/kernel-table.md`` specifies the table.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from nandarray import _nandarray
from nandarray.errors import CompileError, InvalidError, ProgramError
from nandarray.inputs import read_text
from nandarray.programs import abi, elf, nest
from nandarray.programs.compile import host, scratch, zig
from nandarray.programs.compile.cache import Cache, digest
from nandarray.programs.compile.linking import link
from nandarray.programs.compile.native import _dlopen, _variables
from nandarray.programs.ports import bits

__all__ = ["Kernel", "kernel"]

_KEYS = {"abi", "name", "kind", "summary", "inputs", "outputs", "scalars", "microblocks", "scratchpad_bytes"}
_KEYS |= {"memory_bytes"}
_SECTION = {"name", "dtype", "shape", "update", "temporary"}
_MICROBLOCK = {"entry", "screens", "reads", "writes"}


class Kernel:
    """A program whose work is cut into microblocks and screens.

    Made by :meth:`from_c` or by the decorator :func:`nandarray.kernel`.

    Examples
    --------
    >>> import nandarray
    >>> from nandarray.programs.nest import Read, Write, screens
    >>> @nandarray.kernel
    ... def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
    ...     for i in screens(n):
    ...         y[i] = factor * x[i]
    >>> scale
    <nandarray.Kernel 'scale': x -> y, 1 microblock>
    """

    __slots__ = ("_elf", "_entries", "_loaded", "_source", "_table", "_trusted")

    def __init__(self, source: str, *, trusted: bool = False, target: str = "rv64") -> None:
        if target not in zig.TARGETS:
            raise InvalidError(f"target {target!r} is not known; there is {', '.join(zig.TARGETS)}")
        self._source = source
        self._trusted = bool(trusted)
        self._elf = _compiled(source, zig.TARGETS[target])
        self._table = _parsed(elf.read(self._elf).metadata)
        self._loaded: Any = None
        self._entries: tuple[list[int], Any] | None = None
        self._native_kernel()

    @classmethod
    def from_c(cls, source: str | Path, *, target: str = "rv64", trusted: bool = False) -> Kernel:
        """Compile a kernel in C.

        Parameters
        ----------
        source : path or str
            A path, or text: a str with a line break or a brace in it is text.
        target : str
            The processor: as for :meth:`nandarray.Program.from_c`.
        trusted : bool
            Whether it may run as a part of this process.

        Returns
        -------
        Kernel
            The kernel.

        Raises
        ------
        CompileError
            It does not compile or link.
        ProgramError
            Its description table is missing or wrong.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray.programs.nest import Read, Write, screens
        >>> @nandarray.kernel
        ... def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
        ...     for i in screens(n):
        ...         y[i] = factor * x[i]
        >>> nandarray.Kernel.from_c(scale.source)  # a loop nest becomes C
        <nandarray.Kernel 'scale': x -> y, 1 microblock>
        """
        inline = isinstance(source, str) and re.search(r"[\n{]", source) is not None
        text = source if inline and isinstance(source, str) else read_text(source, "a kernel in C")
        return cls(text, target=target, trusted=trusted)

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return str(self._table["name"])

    @property
    def table(self) -> dict[str, Any]:
        """Description table of the kernel, a copy."""
        copy: dict[str, Any] = json.loads(json.dumps(self._table))
        return copy

    @property
    def source(self) -> str:
        """Source of the kernel, in C."""
        return self._source

    @property
    def trusted(self) -> bool:
        """Whether it may run as a part of this process."""
        return self._trusted

    @property
    def sections(self) -> list[dict[str, Any]]:
        """Data sections of the kernel: inputs, then outputs and temporary ones."""
        return [*self._table["inputs"], *self._table["outputs"]]

    def __repr__(self) -> str:
        ins = ", ".join(one["name"] for one in self._table["inputs"])
        outs = ", ".join(one["name"] for one in self._table["outputs"] if not one.get("temporary"))
        count = len(self._table["microblocks"])
        return f"<nandarray.Kernel {self.name!r}: {ins} -> {outs}, {count} microblock{'s' if count != 1 else ''}>"

    def _native_kernel(self) -> Any:
        """Return the kernel as the engine has it."""
        if self._loaded is None:
            ports = {key: [_as_read(one) for one in self._table[key]] for key in ("inputs", "outputs")}
            self._loaded = _nandarray.Kernel(self._elf, json.dumps(self._table | ports).encode())
        return self._loaded

    def _functions(self) -> list[int]:
        """Return the addresses of its microblocks in this process."""
        if not self._trusted:
            raise InvalidError(f"{self.name} is not trusted: its native form could do anything that this process can")
        if self._entries is None:
            library = _library(self.name, self._source)
            names = [f"nd_kernel_{one['entry']}" for one in self._table["microblocks"]]
            found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names]
            self._entries = found, library
        return self._entries[0]

    def _bytes_of(self, arrays: Mapping[str, Any]) -> list[tuple[list[int], np.ndarray]]:
        """Return shape and bytes of each section, as the engine takes them; zeroes where there is no array.

        Bytes are those of the array itself where it has the section's dtype and is contiguous.
        """
        given = {name: np.asarray(array) for name, array in arrays.items()}
        shapes = self.shapes({name: array.shape for name, array in given.items()})
        raw = []
        for one, shape in zip(self.sections, shapes, strict=True):
            array = np.ascontiguousarray(given.get(one["name"], np.zeros(shape, one["dtype"])), one["dtype"])
            raw.append((list(shape), array.reshape(-1).view(np.uint8)))
        return raw

    def shapes(self, given: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the shape of each section, from those of some.

        Parameters
        ----------
        given : mapping
            Shapes by the section's name.

        Returns
        -------
        list of tuple of int
            Shapes in the order of :attr:`sections`.

        Raises
        ------
        InvalidError
            Shapes contradict each other, or an extent is not known.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray.programs.nest import Read, Write, screens
        >>> @nandarray.kernel
        ... def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
        ...     for i in screens(n):
        ...         y[i] = factor * x[i]
        >>> scale.shapes({"x": (5,)})
        [(5,), (5,)]
        """
        extents: dict[str, int] = {}
        for one in self.sections:
            if one["name"] not in given:
                continue
            shape = given[one["name"]]
            if len(shape) != len(one["shape"]):
                raise InvalidError(
                    f"{self.name}: {one['name']} must have {len(one['shape'])} dimensions, not shape {shape}"
                )
            for extent, size in zip(one["shape"], shape, strict=True):
                known = extents.setdefault(extent, size) if isinstance(extent, str) else extent
                if known != size:
                    raise InvalidError(f"{self.name}: {one['name']} has shape {shape}; extent {extent} is {known}")
        missing = [e for one in self.sections for e in one["shape"] if isinstance(e, str) and e not in extents]
        if missing:
            raise InvalidError(f"{self.name}: extent {missing[0]} follows from no array; give its output an array")
        return [tuple(extents[e] if isinstance(e, str) else e for e in one["shape"]) for one in self.sections]

    def check(self, screens: int = 4, scalars: Mapping[str, float] | None = None, **arrays: Any) -> None:
        """Run it on sample data and compare what its screens touch with its table.

        Every load and store is observed. Screens run one after the other, with all of each section within reach.

        Parameters
        ----------
        screens : int
            Screens of a microblock that has several.
        scalars : mapping, optional
            Numbers by name.
        **arrays
            The arrays of its inputs, by name; outputs that are updated, too.

        Raises
        ------
        ProgramError
            An access lies outside of the declared ranges, or two screens of a microblock conflict.
        InvalidError
            Arrays or numbers do not fit.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray.programs.nest import Read, Write, screens
        >>> @nandarray.kernel
        ... def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
        ...     for i in screens(n):
        ...         y[i] = factor * x[i]
        >>> scale.check(x=np.ones(8), scalars={"factor": 2.0})
        """
        known = [one["name"] for one in self.sections]
        if stray := sorted(set(arrays) - set(known)):
            raise InvalidError(f"{self.name} has no section {stray[0]!r}; it has {', '.join(sorted(known))}")
        updated = [one for one in self._table["outputs"] if one.get("update")]
        if missing := [one["name"] for one in [*self._table["inputs"], *updated] if one["name"] not in arrays]:
            raise InvalidError(f"{self.name}: section {missing[0]} is read, and has no array")
        if unknown := sorted(set(scalars or {}) - {port["name"] for port in self._table["scalars"]}):
            raise InvalidError(f"{self.name} has no scalar {unknown[0]!r}")
        if missing := [port["name"] for port in self._table["scalars"] if port["name"] not in (scalars or {})]:
            raise InvalidError(f"{self.name}: scalar {missing[0]} is missing")
        raw = [(shape, data.copy()) for shape, data in self._bytes_of(arrays)]
        numbers = [bits((scalars or {}).get(port["name"], 0), port) for port in self._table["scalars"]]
        found = self._native_kernel().check(raw, numbers, screens)
        if found:
            raise ProgramError(f"{self.name}: {found[0]}")


def _as_read(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with its dtype as the engine reads it."""
    return {**section, "dtype": abi.spelled(section["dtype"], f"section {section['name']}")}


@overload
def kernel(function: Callable[..., Any], *, trusted: bool = True, checked: bool = True) -> Kernel: ...
@overload
def kernel(
    function: None = None, *, trusted: bool = True, checked: bool = True
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(function: Callable[..., Any] | None = None, *, trusted: bool = True, checked: bool = True) -> Any:
    """Make a kernel of a loop nest.

    Parameters
    ----------
    function : callable
        Its parameters are annotated with sections and numbers; see :mod:`nandarray.programs.nest`.
    trusted : bool
        Whether it may run as a part of this process.
    checked : bool
        Whether a subscript that does not follow from the loops around it, as one from data, is compared with its
        extent: bad data is an error then. Without it, bad data reads and writes memory of this process, in native form.

    Returns
    -------
    Kernel
        The kernel, with the table that follows from its loops and subscripts.

    Raises
    ------
    CompileError
        It is outside of the language of loop nests, or screens of a microblock would meet.

    Examples
    --------
    >>> import nandarray
    >>> from nandarray.programs.nest import Read, Write, screens
    >>> @nandarray.kernel
    ... def scale(x: Read["f8", "n"], y: Write["f8", "n"], factor: float):
    ...     for i in screens(n):
    ...         y[i] = factor * x[i]
    >>> scale
    <nandarray.Kernel 'scale': x -> y, 1 microblock>
    """
    if function is None:
        return lambda one: kernel(one, trusted=trusted, checked=checked)
    return Kernel(nest.derive(function, checked=checked)[0], trusted=trusted)


def _compiled(source: str, target: zig.Target) -> bytes:
    cache = Cache()
    ours = [file.read_bytes() for file in sorted(zig.INCLUDE.iterdir())]
    key = digest(["kernel", zig.version(), abi.ABI, target, *ours, zig.OPTIONS, source])
    found = cache.get(key)
    if found is not None:
        return found[0]
    with scratch.folder() as place:
        file = place / "kernel.c"
        file.write_text(source)
        zig.compile_c(file, place / "kernel.o", target, shown=(str(file), "kernel.c"))
        link([place / "kernel.o"], place / "kernel.elf", target)
        raw = (place / "kernel.elf").read_bytes()
    cache.put(key, raw, note={})
    return raw


def _library(name: str, source: str) -> ctypes.CDLL:
    machine = host.target()
    if machine is None:
        raise InvalidError("the native form of kernels needs Linux on x86-64 or 64-bit ARM")
    cache = Cache()
    ours = [file.read_bytes() for file in sorted(zig.INCLUDE.iterdir())]
    key = digest(["native kernel", zig.version(), abi.ABI, machine, *ours, zig.OPTIONS, source])
    found = cache.get(key)
    if found is not None:
        return _dlopen(name, found[0])
    with scratch.folder() as place:
        file = place / "kernel.c"
        file.write_text(source)
        zig.compile_c(file, place / "kernel.o", machine, shown=(str(file), "kernel.c"))
        host.link([place / "kernel.o"], place / "kernel.so", machine)
        raw = (place / "kernel.so").read_bytes()
    if shared := _variables(raw):
        raise CompileError(f"{name} has variables ({', '.join(shared)}), which its screens would share")
    cache.put(key, raw, note={})
    return _dlopen(name, raw)


def _known(one: Any, keys: set[str], where: str) -> None:
    if not isinstance(one, dict):
        raise ProgramError(f"{where} must be an object, not {one!r}")
    unknown = sorted(set(one) - keys)
    if unknown:
        raise ProgramError(f"{where}: {unknown[0]!r} is not known; there is {', '.join(sorted(keys))}")


def _parsed(text: bytes) -> dict[str, Any]:
    """Check a description table as far as Python needs it, and fill in sizes of elements."""
    if not text:
        raise ProgramError(f"the ELF file has no section {abi.SECTION}, which holds a kernel's description table")
    try:
        table = json.loads(text.rstrip(b"\0").decode())
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"the kernel's description table is no JSON: {error}") from None
    _known(table, _KEYS, "the table")
    if table.get("kind") != "kernel":
        raise ProgramError(f"the kind must be 'kernel', not {table.get('kind')!r}")
    for key in ("inputs", "outputs", "scalars"):
        if not isinstance(table.setdefault(key, []), list):
            raise ProgramError(f"{key} must be a list, not {table[key]!r}")
    names: Sequence[str] = []
    for one in [*table["inputs"], *table["outputs"]]:
        _known(one, _SECTION | {"item_bytes"}, "a section")
        if one.get("dtype") is None:
            raise ProgramError(f"section {one.get('name')} has no dtype")
        one["item_bytes"] = abi.record(one.get("dtype"), str(one.get("name"))).itemsize
        shape = one.get("shape")
        if not isinstance(shape, list) or not shape or not all(isinstance(e, str | int) for e in shape):
            raise ProgramError(f"section {one.get('name')}: shape must be a list of names and numbers, not {shape!r}")
        names = [*names, str(one.get("name"))]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ProgramError(f"{twice[0]!r} names two sections")
    if not isinstance(table.get("microblocks"), list) or not table["microblocks"]:
        raise ProgramError("a kernel has one microblock at least")
    for one in table["microblocks"]:
        _known(one, _MICROBLOCK, "a microblock")
    return dict(table)
