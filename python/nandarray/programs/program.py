"""The class :class:`Program`: a RISC-V ELF, what it takes and gives, and where it came from.

A program is a value: it never changes, compares by its bytes, pickles, and does nothing by itself. Compilers are in
:mod:`nandarray.programs.compile`, reading of ELF files in :mod:`nandarray.programs.elf`; arrays run
programs. Lists and dictionaries that properties return are the caller's own.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from nandarray.errors import InvalidError, ProgramError
from nandarray.inputs import read_input, read_text
from nandarray.present.html import folded, table
from nandarray.programs import abi
from nandarray.programs.compile import scratch, zig
from nandarray.programs.compile.cache import Cache, digest, write_whole
from nandarray.programs.compile.linking import link
from nandarray.programs.compile.native import Recipe
from nandarray.programs.elf import Image, Location, Section, Symbol, defined_functions, fits, read
from nandarray.programs.forms import block_form
from nandarray.programs.step import Step

if TYPE_CHECKING:
    from nandarray.programs.forms import Form
    from nandarray.programs.timing import Timed

__all__ = ["Program", "PythonProgram"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Program:
    """A program that runs beside the data.

    Made by :meth:`from_c`, :meth:`from_python` (or the decorator :func:`nandarray.program`) and :meth:`from_elf`.

    Examples
    --------
    >>> import nandarray
    >>> program = nandarray.Program.from_c('''
    ... #include <nandarray.h>
    ... ND_PROGRAM("name": "double", "kind": "block",
    ...            "inputs": [{"name": "x", "dtype": "int32"}], "outputs": [{"name": "y", "dtype": "int32"}])
    ... int64_t nd_block(nd_args *args) {
    ...     const int32_t *x = ND_INPUT(args, 0, int32_t);
    ...     int32_t *y = ND_OUTPUT(args, 0, int32_t);
    ...     size_t n = ND_INPUT_COUNT(args, 0, int32_t);
    ...     for (size_t i = 0; i < n; i++) y[i] = 2 * x[i];
    ...     ND_SET_USED(args, 0, n, int32_t);
    ...     return 0;
    ... }
    ... ''')
    >>> program
    <nandarray.Program 'double' block rv64: x int32 -> y int32>
    """

    __slots__ = ("_elf", "_function", "_metadata", "_read", "_recipe", "_source", "_trusted", "_warnings")

    _elf: bytes
    _function: Callable[..., Any] | None
    _metadata: dict[str, Any]
    _read: list[Image]  # what is in the ELF, once something asks for it
    _recipe: Recipe | Form | None
    _source: str | None
    _trusted: bool
    _warnings: str

    def __init__(self) -> None:
        raise TypeError("a Program is made by Program.from_c, Program.from_python or Program.from_elf")

    @classmethod
    def _make(
        cls,
        raw: bytes,
        *,
        source: str | None = None,
        function: Callable[..., Any] | None = None,
        warnings: str = "",
        recipe: Recipe | Form | None = None,
        trusted: bool = False,
        known: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make a program of an ELF; `known` is what :attr:`Image.essentials` said of it before."""
        self: Self = object.__new__(cls)
        self._elf = raw
        if known is None or "end" not in known:
            self._read = [read(raw)]
            known = self._read[0].essentials
        else:
            self._read = []
        if not known["metadata"]:
            raise ProgramError(f"the ELF file has no section {abi.SECTION}, which says what a program takes and gives")
        said = known["metadata"].encode("utf-8", "surrogateescape")
        self._metadata = abi.parse(said, entries=set(known["entries"]))
        self._source = source
        self._function = function
        self._recipe = recipe
        self._trusted = trusted
        fits(known["end"], self._metadata)
        self._warnings = warnings
        return self

    @property
    def _image(self) -> Image:
        if not self._read:
            self._read.append(read(self._elf))
        return self._read[0]

    @classmethod
    def from_c(
        cls,
        source: str | os.PathLike[str],
        *,
        target: str = "rv64",
        flags: Sequence[str] = (),
        name: str | None = None,
        trusted: bool = False,
    ) -> Self:
        """Compile a C file, or C text.

        Parameters
        ----------
        source : path or str
            A path, or text: a str with a line break or a brace in it is text.
        target : str
            ``"rv64"`` or ``"rv32"``: RV64IMAFDC or RV32IMAFDC, both with Zba, Zbb and Zbs. For described cores also
            others without these, like ``"rv32im"``, ``"rv32imf"`` or ``"rv64imafdc"``.
        flags : sequence of str
            Further options of Clang, like ``-DROWS=4``. They come behind ours, which are ``-O3 -ffp-contract=off
            -fno-math-errno``.
        name : str, optional
            The file's name in messages, if ``source`` is text; ``.c`` is added if it does not end so.
        trusted : bool
            Whether it may be executed as a part of this process: see :attr:`trusted`.

        Returns
        -------
        Program
            The program; from the cache, if this was compiled before and no file it includes has changed.

        Raises
        ------
        CompileError
            It does not compile or link; ``diagnostics`` has file, line and text.
        ProgramError
            It compiles and is no program: metadata is missing or wrong, or an entry point.
        FileNotFoundError
            There is no such file.

        Examples
        --------
        >>> import nandarray
        >>> text = '''
        ... #include <nandarray.h>
        ... ND_PROGRAM("name": "twice", "kind": "block", "inputs": [{"name": "x", "dtype": "float64"}],
        ...            "outputs": [{"name": "out", "dtype": "float64"}])
        ... int64_t nd_block(nd_args *args) {
        ...     const double *x = ND_INPUT(args, 0, double);
        ...     double *out = ND_OUTPUT(args, 0, double);
        ...     for (size_t i = 0; i < args->inputs[0].bytes / 8; i++) out[i] = 2 * x[i];
        ...     args->outputs[0].used = args->inputs[0].bytes;
        ...     return 0;
        ... }
        ... '''
        >>> nandarray.Program.from_c(text)
        <nandarray.Program 'twice' block rv64: x float64 -> out float64>
        """
        made_for = _target(target)
        words = [str(flag) for flag in flags]
        inline = isinstance(source, str) and re.search(r"[\n{]", source) is not None
        if inline:
            file = Path(name or "program.c").name or "program"
            # The compiler knows C by the end of the name.
            file = file if file.endswith(".c") else f"{file}.c"
            recipe = Recipe(str(source), Path(file), tuple(words), inline=True)
        else:
            path = Path(source)
            recipe = Recipe(read_text(path, "a program in C"), path, tuple(words), inline=False)
        return cls._from_c(recipe, made_for, trusted=bool(trusted))

    @classmethod
    def _from_c(cls, recipe: Recipe, target: zig.Target, *, trusted: bool) -> Self:
        text, path, flags, inline = recipe.text, recipe.path, recipe.flags, recipe.inline
        cache = Cache()
        where = "" if inline else path.resolve().parent
        ours = [file.read_bytes() for file in sorted(zig.INCLUDE.iterdir())]
        key = digest(["c", zig.version(), abi.ABI, target, *ours, zig.OPTIONS, text, path.name, where, *flags])
        found = cache.get(key)
        if found is not None:
            said = str(found[1].get("warnings", ""))
            return cls._make(found[0], source=text, warnings=said, recipe=recipe, trusted=trusted, known=found[1])
        with scratch.folder() as place:
            file = path
            if inline:
                file = place / path.name
                file.write_text(text)
            given = [f"-ffile-prefix-map={file.parent}/=", *flags]
            shown = (str(file), str(path)) if inline else None
            warnings, files = zig.compile_c(file, place / "program.o", target, flags=given, shown=shown)
            _check_entries(place / "program.o", path.name)
            link([place / "program.o"], place / "program.elf", target)
            raw = (place / "program.elf").read_bytes()
            mine = str(file.resolve())
            others = [name for name in files if name != mine and not name.startswith(str(zig.INCLUDE))]
            made = cls._make(raw, source=text, warnings=warnings, recipe=recipe, trusted=trusted)
            cache.put(key, raw, files=others, note={"warnings": warnings, **made._image.essentials})
        return made

    @classmethod
    def from_python(cls, function: Callable[..., Any], **settings: Any) -> Program:
        """Compile a Python function over blocks or streams now; :func:`nandarray.program` does when first needed.

        Parameters
        ----------
        function : callable
            A function whose parameters have the annotations ``nandarray.Block``, ``Out``, ``Scalar``, ``Stream`` or
            ``OutStream``.
        **settings
            As for :func:`nandarray.program`.

        Returns
        -------
        Program
            The program; from the cache, if a function that does the same was compiled before.

        Raises
        ------
        CompileError
            It cannot be typed, or needs what there is not beside the data; names file and line.
        InvalidError
            Annotations are missing or wrong.

        Examples
        --------
        >>> import nandarray
        >>> def twice(x: nandarray.Block["float64"], out: nandarray.Out["float64"]):
        ...     for i in range(len(x)):
        ...         out[i] = 2 * x[i]
        >>> nandarray.Program.from_python(twice).name
        'twice'
        """
        made: PythonProgram[..., Any] = PythonProgram(block_form(function, **settings))
        _ = made.elf
        return made

    @classmethod
    def from_elf(cls, source: bytes | str | os.PathLike[str]) -> Self:
        """Take a program that was compiled elsewhere.

        Parameters
        ----------
        source : bytes or path
            The ELF, or where it is.

        Returns
        -------
        Program
            The program, with ``source`` None.

        Raises
        ------
        ProgramError
            It is no ELF for RISC-V, needs an extension that no core here has, is made for another version of the
            interface, or its metadata is missing or wrong.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray import programs
        >>> nandarray.Program.from_elf(programs.get("sum", dtype="int64").elf).name
        'sum'
        """
        raw = bytes(source) if isinstance(source, bytes | bytearray | memoryview) else read_input(source)
        return cls._make(raw)

    def on(self, *inputs: Any, **scalars: Any) -> Step:
        """Return the program with its inputs as a step, which can be run or be an input of another program.

        Parameters
        ----------
        *inputs : Array, View, Box, Step, output of a step or array_like
            One for each input. A step stands for its only output; of several one is named: ``step["name"]``.
        **scalars
            The program's numbers, by name.

        Returns
        -------
        Step
            A step for :meth:`Step.run` or :func:`nandarray.offload`.

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
        >>> root = programs.get("sqrt", dtype="float64").on(store["a"][:] * 1.0)
        >>> float(programs.get("sum", dtype="float64").on(root).run()) > 8
        True
        """
        return Step(self, inputs, scalars)

    def compiled_for(self, target: str) -> Program:
        """Return the same program, compiled from its source for another processor.

        Parameters
        ----------
        target : str
            Like ``"rv32im"``: as for :meth:`from_c`.

        Returns
        -------
        Program
            The program itself if it has no source here.

        Raises
        ------
        InvalidError
            There is no such target, or the program comes from Python and the target has 32 bits.
        CompileError
            It does not compile for it.

        Examples
        --------
        >>> from nandarray import programs
        >>> programs.get("sum", dtype="int32").compiled_for("rv32im").target
        'rv32'
        """
        made_for = _target(target)
        recipe = self._recipe
        if isinstance(recipe, Recipe):
            return type(self)._from_c(recipe, made_for, trusted=self.trusted)
        if recipe is None:
            return self
        if made_for.bits != 64:  # noqa: PLR2004
            raise InvalidError(
                f"{self.name} comes from Python, which is compiled for 64 bits; {target} has {made_for.bits}: "
                "take a core of 64 bits, or one with isa=rv64im among its changes"
            )
        from nandarray.programs.compile.functions import build

        raw, known = build(recipe, target)
        return Program._make(raw, function=self.function, recipe=recipe, trusted=self.trusted, known=known)

    def time(
        self,
        inputs: Sequence[Any],
        scalars: Mapping[str, Any] | None = None,
        *,
        core: str | os.PathLike[str],
        changes: Mapping[str, Any] | None = None,
        instructions: int | None = None,
        progress: Callable[[int, int, int], object] | None = None,
    ) -> Timed:
        """Run it beside arrays of a store on a described core: cycles by reason, cache misses, energy.

        Parameters
        ----------
        inputs : sequence
            As for :func:`nandarray.offload`.
        scalars : mapping, optional
            Numbers by name.
        core : str or path
            The name of a core (``nandarray program cores`` lists them), or a description in a TOML file. A program with
            a source is compiled for the core's instruction set.
        changes : mapping, optional
            Values that replace some of the description's, like ``{"l1d.size": "16KiB"}``.
        instructions : int, optional
            The most of them in one call of the program.
        progress : callable, optional
            As for :func:`nandarray.offload`.

        Returns
        -------
        Timed
            The figures, and what the program gave.

        Raises
        ------
        NotFoundError
            There is no such core; the message lists those there are.
        InvalidError
            A value of the description is out of its range, or inputs or scalars do not fit.
        ProgramError
            The core lacks something that the program needs: extensions, scratchpad, streams.
        ProgramFailedError
            The program did what it may not do, or returned an error.

        Examples
        --------
        >>> import nandarray
        >>> store = nandarray.open("data.nand", mode="w")
        >>> store["a"] = np.arange(6).reshape(2, 3)
        >>> from nandarray import programs
        >>> timed = programs.get("sum", dtype="int64").time([store["a"]], core="five-stage")
        >>> timed.instructions > 0
        True
        """
        from nandarray.programs.timing import timed

        return timed(self, inputs, scalars, core=core, changes=changes, instructions=instructions, progress=progress)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def elf(self) -> bytes:
        """The ELF file."""
        return self._elf

    @property
    def hash(self) -> str:
        """SHA-256 of the ELF, as 64 hexadecimal digits."""
        return hashlib.sha256(self._elf).hexdigest()

    @property
    def target(self) -> str:
        """``"rv64"`` or ``"rv32"``."""
        return f"rv{32 * self._elf[4]}"  # its class, which reading and making it checked

    @property
    def isa(self) -> str:
        """The architecture with its extensions, as the compiler noted it."""
        return self._image.isa

    @property
    def name(self) -> str:
        """The program's name, from its metadata."""
        return str(self._metadata["name"])

    @property
    def kind(self) -> str:
        """``"block"`` (whole blocks in memory) or ``"stream"`` (elements as they come)."""
        return str(self._metadata["kind"])

    @property
    def inputs(self) -> tuple[Mapping[str, Any], ...]:
        """Inputs of the program, each with ``name``, ``dtype`` and ``record_bytes``."""
        return tuple(copy.deepcopy(self._metadata["inputs"]))

    @property
    def outputs(self) -> tuple[Mapping[str, Any], ...]:
        """Outputs of the program, each with ``name``, ``dtype``, ``record_bytes``, ``phase`` and ``bound``."""
        return tuple(copy.deepcopy(self._metadata["outputs"]))

    @property
    def scalars(self) -> tuple[Mapping[str, Any], ...]:
        """Scalars of the program, each with ``name``, ``dtype``, and ``default`` if it has one."""
        return tuple(copy.deepcopy(self._metadata["scalars"]))

    @property
    def metadata(self) -> dict[str, Any]:
        """The whole metadata, checked, with defaults filled in: ``docs/reference/program-abi.md``."""
        return copy.deepcopy(self._metadata)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Functions and objects, by address."""
        return self._image.symbols

    @property
    def sections(self) -> tuple[Section, ...]:
        """The file's sections."""
        return self._image.sections

    @property
    def source(self) -> str | None:
        """The text it was compiled from, if it was compiled here."""
        return self._source

    @property
    def function(self) -> Callable[..., Any] | None:
        """The Python function it was compiled from, if it was."""
        return self._function

    @property
    def warnings(self) -> str:
        """The compiler's warnings."""
        return self._warnings

    @property
    def trusted(self) -> bool:
        """Whether it may be executed in its native form: compiled for this machine, as a part of this process.

        True for ready-made programs, and for those that were made with ``trusted=True``. Nothing stands between such a
        program and the process: one that goes wrong can end it, or change what it holds.
        """
        return self._trusted

    def locate(self, address: int) -> Location:
        """Return the function and the source line of an address.

        Parameters
        ----------
        address : int
            A program counter.

        Returns
        -------
        Location
            The location, as far as it is known.

        Examples
        --------
        >>> from nandarray import programs
        >>> program = programs.get("sum", dtype="int64")
        >>> entry = next(one for one in program.symbols if one.name == "nd_block")
        >>> program.locate(entry.address).symbol
        'nd_block'
        """
        return self._image.locate(address)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ELF to a file.

        Parameters
        ----------
        path : path
            Path of the file; a file there is replaced.

        Examples
        --------
        >>> import nandarray
        >>> from nandarray import programs
        >>> programs.get("sum", dtype="int64").save("sum.elf")
        >>> nandarray.Program.from_elf("sum.elf").name
        'sum'
        """
        write_whole(Path(path).absolute(), self._elf)

    # --- manners ------------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return self._elf == other._elf if isinstance(other, Program) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._elf)

    def __reduce__(self) -> tuple[Any, ...]:
        recipe = self._recipe if isinstance(self._recipe, Recipe) else None
        more = {"recipe": recipe, "trusted": self.trusted}
        return _unpickle, (self._elf, {"source": self._source, "warnings": self._warnings, **more})

    def __setattr__(self, key: str, value: object) -> None:
        if hasattr(self, "_warnings"):
            raise AttributeError(f"a Program does not change: {key} cannot be set")
        object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        scalars = "".join(f", {one['name']}" for one in self._metadata["scalars"])
        into = ", ".join(_port(one) for one in self._metadata["inputs"])
        out = ", ".join(_port(one) for one in self._metadata["outputs"]) or "nothing"
        return f"<nandarray.Program {self.name!r} {self.kind} {self.target}: {into}{scalars} -> {out}>"

    def _repr_html_(self) -> str:
        facts = [("kind", self.kind), ("target", f"{self.target}, {self.isa}"), ("ELF", f"{len(self._elf):,} bytes")]
        facts += [("input", _port(one)) for one in self._metadata["inputs"]]
        facts += [("output", _port(one)) for one in self._metadata["outputs"]]
        facts += [("scalar", _port(one)) for one in self._metadata["scalars"]]
        facts += [("entry points", ", ".join(self._metadata["entries"])), ("SHA-256", self.hash)]
        code = folded("source", f"<pre>{escape(self._source)}</pre>") if self._source else ""
        title = f"<strong>{escape(self.name)}</strong> {escape(self._metadata['summary'])}"
        return f"<div>{title}{table(facts)}{code}</div>"


class PythonProgram(Program, Generic[_P, _R]):
    """A program from Python functions, compiled when something of it is first asked for.

    Called, it is the function itself, in Python.
    """

    __slots__ = ("_form", "_lock")

    _form: Form
    _lock: threading.RLock

    def __init__(self, form: Form) -> None:
        object.__setattr__(self, "_form", form)
        object.__setattr__(self, "_lock", threading.RLock())

    def __getattr__(self, name: str) -> Any:
        # Python comes here for slots that are empty.
        if name not in Program.__slots__:
            raise AttributeError(f"a Program has no attribute {name!r}")
        if name == "_source":
            object.__setattr__(self, name, self._form.source)
            return self._source
        with self._lock:
            if not self._ready():
                from nandarray.programs.compile.functions import build

                raw, known = build(self._form)
                functions = self._form.functions
                made = Program._make(
                    raw,
                    function=functions.get("function"),
                    recipe=self._form,
                    trusted=self._form.trusted,
                    known=known,
                )
                for slot in Program.__slots__:
                    if slot != "_source":
                        object.__setattr__(self, slot, getattr(made, slot))
        return object.__getattribute__(self, name)

    def _ready(self) -> bool:
        try:
            object.__getattribute__(self, Program.__slots__[-1])
        except AttributeError:
            return False
        return True

    def __call__(self, *args: _P.args, **kws: _P.kwargs) -> _R:
        """Call the function as Python does, without compiling it."""
        function = self._form.functions.get("function")
        if function is None:
            raise TypeError("a reduction is no function; its functions are in `form.functions`")
        found: _R = function(*args, **kws)
        return found

    @property
    def form(self) -> Form:
        """The functions and what they take, as they were written."""
        return self._form

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"a Program does not change: {key} cannot be set")

    def __repr__(self) -> str:
        if self._ready():
            return super().__repr__()
        return f"<nandarray.Program {self._form.name!r} from Python, not compiled yet>"


def _unpickle(raw: bytes, given: Mapping[str, Any]) -> Program:
    return Program._make(raw, **given)


def _port(one: Mapping[str, Any]) -> str:
    return f"{one['name']} {one['dtype'] if isinstance(one['dtype'], str) else 'record'}"


def _check_entries(compiled: Path, file: str) -> None:
    """Refuse an object without an entry point, of which the linker would keep nothing."""
    defined = defined_functions(compiled.read_bytes())
    if set(abi.ENTRIES).intersection(defined):
        return
    near = [name for name in defined if difflib.get_close_matches(name, abi.ENTRIES, n=1, cutoff=0.7)]
    listed = ", ".join((near or defined)[:5]) or "no function"
    raise ProgramError(f"{file} defines no nd_block and no nd_stream; it defines {listed}")


def _target(name: str) -> zig.Target:
    if name not in zig.TARGETS:
        raise InvalidError(f"target {name!r} is not known; there is {', '.join(zig.TARGETS)}")
    return zig.TARGETS[name]
