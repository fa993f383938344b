"""Forms of programs in Python: functions over blocks or streams, and over single elements; options.

Five forms: a function over whole blocks or streams, with annotations; and four over single elements, ``map``,
``filter``, ``reduce`` and ``sequence``. This module reads functions and options into a :class:`Form`
and says what is wrong with them. Compiling a form is :mod:`nandarray.programs.compile.functions`; nothing here needs a
compiler.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nandarray.dtypes import computed
from nandarray.errors import InvalidError
from nandarray.programs.annotations import parse_dtype, places, specs

__all__ = [
    "COMPILED",
    "OPTIONS",
    "SIZES",
    "Form",
    "along_form",
    "block_form",
    "boxes_form",
    "fold_form",
    "folded_into",
    "map_form",
    "parameters",
    "reduce_form",
    "sequence_form",
]

#: Options that go into the metadata, and those that Numba takes.
SIZES = ("memory_bytes", "scratchpad_bytes")
OPTIONS = ("fastmath", "boundscheck")
#: Options of calls such as ``map_blocks`` for compiling their function; the others are for the run.
COMPILED = ("trusted", "boundscheck")


@dataclass(frozen=True)
class Form:
    """A program in Python before it is compiled.

    ``functions`` are the user's: one named ``"function"``, or those of a reduction by their names. ``inputs``,
    ``outputs`` and ``scalars`` are its arguments with their dtypes; that of an output may be None: what the function
    returns. ``state`` is what a reduction keeps, ``ndim`` the dimensions of boxes; ``fields`` has the field that the
    function gets of inputs of boxes that have records. ``places`` are parameters that say where a block or a box
    lies, with their roles; ``wholes`` inputs that are never cut. ``ahead`` says of each input of a sequence how many of
    its elements a step sees, if inputs have lengths of their own; ``room`` how many records a step may write then.
    ``halo`` has, for each dimension of boxes, how many elements they come with on each side, and whether there are none
    beyond the array's ends. ``proportion`` has, for each dimension, the elements of an output's box and those of the
    input's that they are for, if the two differ; a smaller box has as many in proportion, rounded up.
    """

    style: str
    name: str
    summary: str
    functions: Mapping[str, Callable[..., Any]]
    inputs: Sequence[tuple[str, np.dtype[Any]]]
    outputs: Sequence[tuple[str, np.dtype[Any] | None]]
    scalars: Sequence[tuple[str, np.dtype[Any]]]
    parameters: Sequence[str] = ()
    state: np.dtype[Any] | None = None
    bound: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = False
    ndim: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    wholes: Sequence[str] = ()
    halo: Sequence[tuple[int, bool]] = ()
    proportion: Sequence[tuple[int, int]] = ()
    ahead: Sequence[int] = ()
    room: int = 1

    @property
    def source(self) -> str:
        """The text of the functions, as far as Python knows it."""
        found = []
        for function in self.functions.values():
            try:
                found.append(textwrap.dedent(inspect.getsource(function)))
            except (OSError, TypeError):
                continue
        return "\n".join(found)


# --- forms ------------------------------------------------------------------------------------------------------------


def block_form(function: Callable[..., Any], **settings: Any) -> Form:
    """Read a function over blocks or streams, by its annotations."""
    _plain(function)
    found = specs(function)
    roles = {spec.role for spec in found.values()}
    streams = bool(roles & {"stream", "out-stream"})
    if streams and roles & {"block", "whole", "out"}:
        raise InvalidError(f"{function.__qualname__}(): blocks and streams do not mix in one program")

    def of(*wanted: str) -> list[tuple[str, np.dtype[Any]]]:
        return [(name, spec.dtype) for name, spec in found.items() if spec.role in wanted]

    made = _form(
        "stream" if streams else "block",
        function,
        of("block", "whole", "stream"),
        list(of("out", "out-stream")),
        of("scalar"),
        parameters=tuple(found),
        **settings,
    )
    told = {name: spec.role for name, spec in found.items() if spec.role in {"first", "total"}}
    return replace(made, places=told, wholes=tuple(name for name, spec in found.items() if spec.role == "whole"))


def map_form(
    style: str,
    function: Callable[..., Any],
    inputs: Any,
    output: Any,
    scalars: Mapping[str, Any] | None,
    **settings: Any,
) -> Form:
    """Read a function over single elements."""
    _plain(function)
    names = parameters(function)
    numbers = _scalars(scalars, names, function)
    taken = [name for name in names if name not in numbers]
    ins = _inputs(inputs, taken, function)
    dtype = ins[0][1] if style == "filter" else None if output is None else parse_dtype(output, stored=True)
    outs = [("out" if "out" not in names else "result", dtype)]
    return _form(style, function, ins, outs, list(numbers.items()), parameters=tuple(names), **settings)


def reduce_form(
    owner: Any, inputs: Any, state: Any, output: Any, scalars: Mapping[str, Any] | None, **settings: Any
) -> Form:
    """Read the functions of a reduction: of a class, or of a mapping."""
    where = getattr(owner, "__qualname__", "reduce")
    members = owner if isinstance(owner, Mapping) else vars(owner)
    functions: dict[str, Callable[..., Any]] = {}
    for name in ("init", "step", "block", "merge", "result"):
        found = members.get(name)
        found = found.__func__ if isinstance(found, staticmethod | classmethod) else found
        if found is not None:
            _plain(found)
            functions[name] = found
    if ("step" in functions) == ("block" in functions):
        raise InvalidError(f"{where}: a reduction has step(state, x) for one element, or block(state, x) for many")
    if "merge" not in functions:
        raise InvalidError(f"{where}: a reduction has merge(state, other): the data is reduced in pieces")
    kind = parse_dtype(state)
    if kind.names is None and kind.subdtype is None:
        kind = np.dtype((kind, (1,)))
    numbers = _scalars(scalars, None, owner)
    body = functions.get("step") or functions["block"]
    taken = [name for name in parameters(body)[1:] if name not in numbers]
    ins = _inputs(inputs, taken, body)
    made = None if output is None else parse_dtype(output, stored=True)
    if "result" not in functions:
        made = kind if output is None else made
    summary = inspect.getdoc(owner) if isinstance(owner, type) else ""
    name = owner.__name__ if isinstance(owner, type) else "reduce"
    return _form(
        "reduce", body, ins, [("result", made)], list(numbers.items()),
        functions=functions, state=kind, name=settings.pop("name", None) or name, summary=summary, **settings,
    )  # fmt: skip


def sequence_form(
    owner: Any,
    inputs: Any,
    state: Any,
    output: Any,
    scalars: Mapping[str, Any] | None,
    *,
    ahead: Any = None,
    room: int | None = None,
    **settings: Any,
) -> Form:
    """Read the functions of a sequence: of a class, or of a mapping; with `ahead` its inputs have their own lengths."""
    where = getattr(owner, "__qualname__", "sequence")
    members = owner if isinstance(owner, Mapping) else vars(owner)
    functions: dict[str, Callable[..., Any]] = {}
    for name in ("init", "step", "end"):
        found = members.get(name)
        found = found.__func__ if isinstance(found, staticmethod | classmethod) else found
        if found is not None:
            _plain(found)
            functions[name] = found
    if "step" not in functions:
        raise InvalidError(f"{where}: a sequence must have step(state, x), or step(state, x, out)")
    numbers = _scalars(scalars, None, owner)
    taken = [name for name in parameters(functions["step"])[1:] if name not in numbers]
    writes = "out" in taken
    if writes and output is None:
        raise InvalidError(f"{where}: step() writes to out: output must be given")
    if "end" in functions and not writes:
        raise InvalidError(f"{where}: with end(state, out), step() must take out, too, and return how many it wrote")
    stray = [one for one in parameters(functions.get("end", functions["step"]))[1:] if one not in {*taken, *numbers}]
    if stray:
        raise InvalidError(f"{where}: {stray[0]!r} is neither an input nor among scalars")
    ins = _inputs(inputs, [name for name in taken if name != "out"], functions["step"])
    kind = parse_dtype(state)
    if kind.names is None and kind.subdtype is None:
        kind = np.dtype((kind, (1,)))
    name = owner.__name__ if isinstance(owner, type) else "sequence"
    paced: dict[str, Any] = {}
    if ahead is not None or room is not None:
        if not writes:
            raise InvalidError(f"{where}: ahead and room are for a step(state, x, out) that writes to out")
        if settings.get("bound") is not None:
            raise InvalidError(f"{where}: the room of a step that sees ahead is said by room=, not by bound=")
        paced = _paced(where, [one for one, _ in ins], parse_dtype(output), ahead, room)
    made = _form(
        "sequence", functions["step"], ins, [("out", None if output is None else parse_dtype(output))],
        list(numbers.items()), functions=functions, state=kind, name=settings.pop("name", None) or name,
        parameters=("out",) if writes else (), summary=inspect.getdoc(owner) if isinstance(owner, type) else "",
        **settings,
    )  # fmt: skip
    return replace(made, **paced)


#: Most elements of an input that a step may see, and most records that it may write.
_AHEAD_MAX = 1 << 16


def _paced(where: str, names: list[str], kind: np.dtype[Any], ahead: Any, room: int | None) -> dict[str, Any]:
    """Check how far a step sees in each input, and how much it may write; the room of a task follows from these."""
    if ahead is None:
        raise InvalidError(f"{where}: room is for steps that see ahead: ahead must be given, too")
    given = dict(ahead) if isinstance(ahead, Mapping) else dict.fromkeys(names, ahead)
    if set(given) != set(names):
        raise InvalidError(f"{where}: ahead must name the inputs {', '.join(names)}, not {', '.join(map(str, given))}")
    for what, number in [*((f"ahead of {name}", given[name]) for name in names), ("room", 1 if room is None else room)]:
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _AHEAD_MAX:
            raise InvalidError(f"{where}: {what} must be an integer from 1 to {_AHEAD_MAX}, not {number!r}")
    records = room or 1
    bound = {"out": {"per_record": kind.itemsize, "fixed": records * kind.itemsize}}
    return {"ahead": tuple(given[name] for name in names), "room": records, "bound": bound}


def fold_form(
    function: Callable[..., Any],
    dtype: np.dtype[Any],
    kind: np.dtype[Any],
    scalars: Mapping[str, Any] | None,
    **settings: Any,
) -> Form:
    """Read a function of two values that is associative: of two elements, and of what parts were folded into."""
    names, numbers, taken = _pair(function, scalars)
    state = np.dtype([("n", "int64"), ("value", parse_dtype(kind))], align=True)
    return _form(
        "fold", function, [(taken, parse_dtype(dtype, stored=True))], [("result", state["value"])],
        list(numbers.items()), parameters=names, state=state, **settings,
    )  # fmt: skip


def folded_into(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Choose what a function folds values into: 64 bits for integers and truth values, as NumPy's sums.

    Of short floats it is float32, and of other byte orders the processor's.
    """
    if dtype.kind == "u":
        return np.dtype("u8")
    return np.dtype("i8") if dtype.kind in "bi" else computed(dtype)


def along_form(
    function: Callable[..., Any],
    dtype: np.dtype[Any],
    kind: np.dtype[Any],
    sizes: tuple[int, int],
    scalars: Mapping[str, Any] | None,
    *,
    whole: bool,
    **settings: Any,
) -> Form:
    """Read such a function to fold along an axis; `sizes` are the axis and what is behind it.

    With `whole`, the axis is of the whole box: it is cut, and a state has a row of values. Without, the axis is within
    records, each of which becomes a row.
    """
    names, numbers, taken = _pair(function, scalars)
    length, inner = sizes
    row = np.dtype((parse_dtype(kind), (inner,)))
    outputs, listed = [("result", row)], list(numbers.items())
    if not whole:
        record = np.dtype((parse_dtype(dtype, stored=True), (length, inner)))
        return _form("slab", function, [(taken, record)], outputs, listed, parameters=names, **settings)
    state = np.dtype([("n", "int64"), ("value", row)], align=True)
    settings["scratchpad_bytes"] = 2 * state.itemsize + (64 << 10)
    record = np.dtype((parse_dtype(dtype, stored=True), (inner,)))
    return _form("columns", function, [(taken, record)], outputs, listed, parameters=names, state=state, **settings)


def boxes_form(
    function: Callable[..., Any],
    dtypes: Sequence[np.dtype[Any]],
    kind: np.dtype[Any],
    ndim: int,
    scalars: Mapping[str, Any] | None,
    *,
    fields: Sequence[str | None] = (),
    halo: Sequence[tuple[int, bool]] = (),
    proportion: Sequence[tuple[int, int]] = (),
    room: int | None = None,
    **settings: Any,
) -> Form:
    """Read a function over boxes of some dimensions: of each input one, and of the output, which it fills.

    `fields` names for each input that is of records the field that the function gets of them. With a `halo` boxes, that
    of the output among them, have more elements on each side. With a `proportion` the output's have another shape, no
    halo, and at most `room` bytes.
    """
    _plain(function)
    names = parameters(function)
    numbers = _scalars(scalars, names, function)
    told = places(getattr(function, "py_func", function))
    taken = [name for name in names if name not in numbers and name not in told]
    if len(taken) != len(dtypes) + 1:
        raise InvalidError(
            f"{function.__qualname__}() takes {len(taken)} boxes ({', '.join(taken) or 'none'}) for {len(dtypes)} "
            "inputs and the output, which comes last"
        )
    inputs = [(name, parse_dtype(dtype, stored=True)) for name, dtype in zip(taken, dtypes, strict=False)]
    listed = list(numbers.items())
    outputs = [(taken[-1], parse_dtype(kind, stored=True))]
    bound = {} if room is None else {taken[-1]: room}
    made = _form("boxes", function, inputs, outputs, listed, parameters=tuple(names), bound=bound, **settings)
    found = {name: field for name, field in zip(taken, fields, strict=False) if field is not None}
    return replace(made, ndim=ndim, fields=found, places=told, halo=halo, proportion=proportion)


def _pair(
    function: Callable[..., Any], scalars: Mapping[str, Any] | None
) -> tuple[tuple[str, ...], dict[str, Any], str]:
    """Return a function's parameters, its numbers, and which parameter is the element."""
    _plain(function)
    names = parameters(function)
    numbers = _scalars(scalars, names, function)
    taken = [name for name in names if name not in numbers]
    if len(taken) != 2:  # noqa: PLR2004
        raise InvalidError(
            f"{function.__qualname__}() takes {len(taken)} values ({', '.join(taken) or 'none'}); a reduction has a "
            "function of two, or a class of functions and state="
        )
    return tuple(names), numbers, taken[1]


def _form(
    style: str,
    function: Callable[..., Any],
    inputs: list[tuple[str, np.dtype[Any]]],
    outputs: Sequence[tuple[str, np.dtype[Any] | None]],
    scalars: list[tuple[str, np.dtype[Any]]],
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    parameters: Sequence[str] = (),
    state: np.dtype[Any] | None = None,
    name: str | None = None,
    summary: str | None = None,
    bound: Mapping[str, Any] | None = None,
    trusted: bool = False,
    **options: Any,
) -> Form:
    unknown = sorted(set(options) - {*SIZES, *OPTIONS})
    if unknown:
        raise InvalidError(f"the option {unknown[0]!r} is not known; there is {', '.join((*SIZES, *OPTIONS))}")
    given = {one: dict(room) if isinstance(room, Mapping) else {"fixed": room} for one, room in (bound or {}).items()}
    stray = sorted(set(given) - {one for one, _ in outputs})
    if stray:
        raise InvalidError(
            f"bound names {stray[0]!r}; the outputs are {', '.join(one for one, _ in outputs) or 'none'}"
        )
    doc = inspect.getdoc(function) if summary is None else summary
    return Form(
        style=style,
        name=name or str(getattr(function, "__name__", "program")),
        summary=(doc or "").strip().partition("\n")[0],
        functions=functions or {"function": function},
        inputs=inputs,
        outputs=outputs,
        scalars=scalars,
        parameters=parameters,
        state=state,
        bound=given,
        options={key: value for key, value in options.items() if value is not None},
        trusted=trusted,
    )


def _plain(function: Any) -> None:
    if not inspect.isfunction(getattr(function, "py_func", function)):
        name = getattr(function, "__name__", "")
        if name and getattr(np, name, None) is function:
            raise InvalidError(f"numpy.{name} takes whole arrays; reductions are given by name, as in reduce('sum')")
        raise InvalidError(f"{function!r} is not a function written in Python")


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters."""
    return list(inspect.signature(function).parameters)


def _scalars(scalars: Mapping[str, Any] | None, names: list[str] | None, what: Any) -> dict[str, np.dtype[Any]]:
    numbers = {name: computed(parse_dtype(dtype, stored=True)) for name, dtype in (scalars or {}).items()}
    stray = [name for name in numbers if names is not None and name not in names]
    if stray:
        raise InvalidError(f"{what.__qualname__}() has no parameter {stray[0]!r}, which scalars names")
    return numbers


def _inputs(inputs: Any, names: list[str], function: Callable[..., Any]) -> list[tuple[str, np.dtype[Any]]]:
    listed = list(inputs) if isinstance(inputs, list | tuple) and not _is_fields(inputs) else [inputs]
    if len(listed) != len(names):
        raise InvalidError(
            f"{function.__qualname__}() takes {len(names)} inputs ({', '.join(names) or 'none'}), and inputs names "
            f"{len(listed)}; numbers that are no arrays are named by scalars"
        )
    if not names:
        raise InvalidError(f"{function.__qualname__}() must take at least one input")
    return [(name, parse_dtype(dtype, stored=True)) for name, dtype in zip(names, listed, strict=True)]


def _is_fields(inputs: Sequence[Any]) -> bool:
    """Return whether this is a list of fields, which NumPy takes for one dtype."""
    return bool(inputs) and all(isinstance(one, tuple) for one in inputs)
