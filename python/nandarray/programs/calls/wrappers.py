"""Turns the arguments of ``map_blocks``, ``reduce``, ``filter`` and ``select`` into a program and its run.

A plain Python function is compiled for the dtypes at hand, as the decorator :func:`nandarray.program` would; a program
is taken as it is; a name is that of a ready-made program, or one of NumPy's for a part of what one gives (``"min"``).
Nothing is computed here but the last step from a program's numbers to NumPy's (a root, a dtype).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nandarray import dtypes, programs
from nandarray.dtypes import computed
from nandarray.errors import InvalidError, NotFoundError
from nandarray.programs import abi, ports, run
from nandarray.programs.calls.axes import FOLDS, add, longest_first, reduce_along
from nandarray.programs.calls.boxwise import map_boxes
from nandarray.programs.calls.folds import fold_box
from nandarray.programs.calls.moments import checked_ddof, variances
from nandarray.programs.calls.quantiles import QUANTILES, quantiles
from nandarray.programs.calls.times import reduced
from nandarray.programs.calls.top import top_of
from nandarray.programs.calls.ufuncs import plain
from nandarray.programs.calls.unfolded import each
from nandarray.programs.forms import COMPILED, fold_form, folded_into, map_form, parameters, reduce_form
from nandarray.programs.operand import Converted, Operand
from nandarray.programs.program import Program, PythonProgram

__all__ = ["filter_", "map_blocks", "reduce", "select"]

_Options = Mapping[str, Any]
_RUN = ("form", "threads", "task_bytes", "instructions", "seconds", "progress", "client")
#: NumPy's name of a reduction: the ready-made program, the output of it, and the last step on the host.
_REDUCTIONS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "sum": ("sum", "", lambda x: x),
    "mean": ("mean", "", lambda x: x),
    "min": ("minmax", "least", lambda x: x),
    "max": ("minmax", "greatest", lambda x: x),
}
_EMPTY_ONES = ("min", "max")
#: Reductions that look at the order of elements, with what they take by name.
_ORDERED: Mapping[str, tuple[str, ...]] = {**dict.fromkeys(QUANTILES, ("q", "method")), "top": ("k", "largest")}
#: Variances, which take ``ddof``.
_VARIANCES = ("var", "std")
#: Functions that join an initial value with a result.
_JOINED: Mapping[str, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
#: Reductions by name that give one number for each place that is left.
_NUMBERS = (*_REDUCTIONS, *_VARIANCES, *FOLDS, "variance", "median")


def map_blocks(
    grid: Operand,
    what: Any,
    others: Sequence[Any],
    *,
    block: Any,
    key: Any,
    out: Any,
    dtype: Any,
    options: _Options,
    scalars: _Options,
    depth: Any = None,
    boundary: Any = None,
    chunks: Any = None,
) -> Any:
    """Run a function of single elements over a box, or a program that gives as much as it takes."""
    boxes, what = _boxes(grid, key, others), plain(what)
    _refuse_others(what, scalars)
    if boundary is not None and depth is None:
        raise InvalidError(f"boundary is {boundary!r}, and depth is not given")
    for name, value in (("depth", depth), ("chunks", chunks)):
        if value is not None and block is False:
            raise InvalidError(f"{name} is for functions over boxes; block is False")
    if depth is not None or chunks is not None or (block is not None and block is not False):
        if isinstance(what, str):
            raise InvalidError(f"block is for functions and programs over boxes; {what!r} has none")
        _same_shape(boxes)
        kinds = {} if isinstance(what, Program) else _kinds(scalars, boxes)
        return map_boxes(grid, what, others, block, key=key, out=out, dtype=dtype, options=options, scalars=kinds,
                         values=scalars, depth=depth, boundary=boundary, chunks=chunks)  # fmt: skip
    if isinstance(what, str):
        grid, others = _native(grid), [_native(one) for one in others]
        made = _ready(what, computed(boxes[0].dtype), scalars)
        scalars = {name: value for name, value in scalars.items() if name not in programs.describe(what).parameters}
    elif isinstance(what, Program):
        made = what
    else:
        form = map_form("map", what, [box.dtype for box in boxes], dtype, _kinds(scalars, boxes), **_settings(options))
        made = PythonProgram(form)
    if not isinstance(what, Program | str):
        _same_shape(boxes)
    elif dtype is not None:
        raise InvalidError("dtype is for functions that are compiled now; a program has the dtype of its output")
    return _run(_Call(grid, key, options, scalars, others), made, out)


def filter_(
    grid: Operand, what: Any, others: Sequence[Any], *, key: Any, out: Any, options: _Options, scalars: _Options
) -> Any:
    """Keep the elements for which a function is true, in order."""
    what = plain(what)
    _refuse_others(what, scalars)
    if isinstance(what, Program):
        return _flat(_run(_Call(grid, key, options, scalars, others), what, out))
    boxes = _boxes(grid, key, others)
    if isinstance(what, str):
        own, grid = boxes[0].dtype, _native(grid)
        made = programs.get(what, dtype=computed(own))
        if what in _RANGES:
            if not scalars:
                raise InvalidError(f"{what} must be given a function, or low, high or both")
            scalars = _both_ends(computed(own)) | dict(scalars)
        found = _flat(_run(_Call(grid, key, options, scalars, others), made, out))
        return found.astype(own, copy=False) if out is None and what == "filter" else found
    _same_shape(boxes)
    kinds = [box.dtype for box in boxes]
    made = PythonProgram(map_form("filter", what, kinds, None, _kinds(scalars, boxes), **_settings(options)))
    return _flat(_run(_Call(grid, key, options, scalars, others), made, out))


def reduce(
    grid: Operand,
    what: Any,
    axis: int | Sequence[int] | None,
    *,
    keepdims: Any = False,
    state: Any = None,
    **how: Any,
) -> Any:
    """Fold a box into one value: by a name, a program, a class of functions, or a function of two values.

    With ``keepdims``, axes that are folded stay in the result, with one place. ``how`` is ``key``, ``initial``,
    ``dtype``, ``options`` of the run, and ``scalars``, which the program takes by name.
    """
    if not isinstance(keepdims, bool | np.bool):
        raise InvalidError(f"keepdims must be True or False, not {keepdims!r}")
    several = isinstance(what, Program) or state is not None
    if isinstance(what, str):
        several = what not in (*_NUMBERS, *QUANTILES)
    if keepdims and several:
        raise InvalidError(
            "keepdims is for results of one number for each place: those of functions of two values, and of "
            f"{', '.join(dict.fromkeys((*_NUMBERS, *QUANTILES)))}"
        )
    found = _reduced(grid, what, axis, state=state, **how)
    if not keepdims:
        return found
    shape = tuple(ports.Boxed(run.Box(grid, how["key"])).shape)
    folded = range(len(shape)) if axis is None else [] if _is_none(axis) else longest_first(axis, shape)
    before = np.shape(how["scalars"].get("q")) if isinstance(what, str) and what in QUANTILES else ()
    return np.reshape(found, [*before, *(1 if at in folded else size for at, size in enumerate(shape))])


def _is_none(axis: Any) -> bool:
    """Return whether axes are named, and there is none of them."""
    return isinstance(axis, tuple | list) and not axis


def _reduced(
    grid: Operand,
    what: Any,
    axis: int | Sequence[int] | None,
    *,
    key: Any,
    initial: Any,
    dtype: Any,
    state: Any,
    options: _Options,
    scalars: _Options,
) -> Any:
    """Fold a box, and give the result without the axes that are folded."""
    if isinstance(what, np.ufunc) and initial is None and dtype is None and state is None:
        what = _OF_UFUNCS.get(what, what)
    what = plain(what)
    _refuse_others(what, scalars)
    if axis is not None and (isinstance(what, Program) or state is not None or initial is not None):
        raise InvalidError("along an axis there are names and functions of two values, without an initial value")
    if _is_none(axis):
        ddof = scalars.get("ddof", 0) if isinstance(what, str) and what in _VARIANCES else 0
        return each(grid, what, key=key, dtype=None if dtype is None else dtypes.parse(dtype), ddof=ddof)
    if isinstance(what, str) and what in _ORDERED:
        if initial is not None:
            raise InvalidError(f"{what} has no initial value")
        return _by_order(grid, what, axis, key=key, dtype=dtype, options=options, scalars=scalars)
    if axis is not None:
        if isinstance(what, str) and what in _VARIANCES:
            _refuse_scalars(what, {name: one for name, one in scalars.items() if name != "ddof"}, dtype)
            return _variance(grid, what, axis, key=key, options=options, scalars=scalars)
        if isinstance(what, str) and (what in FOLDS or (what in _EMPTY_ONES and grid.dtype.base.kind == "c")):
            _refuse_scalars(what, scalars, dtype)
            return fold_box(_native(grid), what, axis, key=key, options=options)
        kinds = _kinds(scalars, _boxes(grid, key, ()))
        return reduce_along(grid, what, axis, key=key, dtype=dtype, options=options, scalars=kinds, values=scalars)
    call = _Call(grid, key, options, scalars)
    if dtype is not None and isinstance(what, Program | str):
        raise InvalidError("dtype is for functions that are compiled now; a program has the dtype of its output")
    if isinstance(what, Program):
        if initial is not None:
            raise InvalidError(f"{what.name} has no initial value")
        return _run(call, what)
    (box,) = _boxes(grid, key, ())
    if isinstance(what, str):
        found = _of_kind(call, what, box)
    elif state is not None:
        form = reduce_form(what, box.dtype, state, dtype, _kinds(scalars, [box]), **_settings(options))
        made: Program = PythonProgram(form)
        return _run(call, made)
    else:
        kind = folded_into(box.dtype) if dtype is None else dtypes.parse(dtype)
        made = PythonProgram(fold_form(what, box.dtype, kind, _kinds(scalars, [box]), **_settings(options)))
        given = np.atleast_1d(_run(call, made))
        found = given[0] if given.size else None
    if found is None and initial is None:
        raise InvalidError(f"{_called(what)}: there is no element in {box.shape}, and no initial value is given")
    if initial is None:
        return found
    if isinstance(what, str) and what not in _JOINED:
        raise InvalidError(f"{what} has no initial value")
    first = _first(initial, None if found is None else found.dtype)
    if found is None:
        return first
    if isinstance(what, str):
        return _JOINED[what](first, found)
    return found.dtype.type(what(first, found, **scalars))


def _by_order(
    grid: Operand, what: str, axis: Any, *, key: Any, dtype: Any, options: _Options, scalars: _Options
) -> Any:
    """Return the greatest elements, or quantiles, of a box or along axes."""
    named = {name: scalars[name] for name in _ORDERED[what] if name in scalars}
    _refuse_scalars(what, {name: one for name, one in scalars.items() if name not in named}, dtype)
    native = _native(grid)  # short floats, and elements of the other order of bytes
    if what != "top":
        return quantiles(native, what, axis, key=key, options=options, **named)
    best = top_of(native, axis, key=key, options=options, **named)
    own = grid.dtype.base.newbyteorder("=")
    return best if native is grid else {**best, "values": best["values"].astype(own)}


def _first(initial: Any, dtype: np.dtype[Any] | None) -> Any:
    """Return an initial value in the dtype of what it is joined with."""
    try:
        given = np.asarray(initial)
        made = given if dtype is None else np.array(initial, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"initial is {initial!r}: {error}") from None
    if made.ndim or given.dtype.kind not in "biufc":
        raise InvalidError(f"initial must be one number, not {initial!r}")
    if made.dtype.kind in "biu" and made != given:
        raise InvalidError(f"initial is {initial!r}, and the result is {made.dtype}")
    return made[()]


def select(grid: Operand, columns: Sequence[Any], *, key: Any, options: _Options) -> Any:
    """Take some columns of each row: fields of structured elements, or numbers along the last axis."""
    (box,) = _boxes(grid, key, ())
    if not columns:
        raise InvalidError("no column is named")
    fields = box.dtype.fields
    if fields is not None:
        unknown = [name for name in columns if not isinstance(name, str) or name not in fields]
        if unknown:
            raise InvalidError(f"there is no field {unknown[0]!r}; there is {', '.join(fields)}")
        if twice := [name for at, name in enumerate(columns) if name in columns[:at]]:
            raise InvalidError(f"field {twice[0]!r} is named twice")
        row, shape = box.dtype.itemsize, box.shape
        places = [(fields[name][1], fields[name][0].itemsize) for name in columns]
        kind = np.dtype([(name, fields[name][0]) for name in columns])
    else:
        numbers = all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in columns)
        if not box.shape or not numbers:
            raise InvalidError(
                "columns must be fields of structured elements, or numbers along the last of at least one axis"
            )
        width, item = box.shape[-1], box.dtype.itemsize
        outside = [one for one in columns if not -width <= one < width]
        if outside:
            raise InvalidError(f"column {outside[0]} is out of bounds for {width} columns")
        row, shape, kind = width * item, (*box.shape[:-1], len(columns)), box.dtype
        places = [(int(one) % width * item, item) for one in columns]
    made = programs.get("select", row_bytes=row, columns=tuple(places))
    raw = _run(_Call(grid, key, options, {}), made)
    return np.array(raw, np.uint8, copy=True).reshape(-1).view(kind).reshape(shape)


# --- the run ----------------------------------------------------------------------------------------------------------


def _flat(found: Any) -> Any:
    """Return elements as a flat array, without the box's shape."""
    return found.reshape(-1) if isinstance(found, np.ndarray) else found


#: Reductions by their functions of two numbers.
_OF_UFUNCS: dict[Any, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.minimum: "min",
    np.maximum: "max",
    np.logical_and: "all",
    np.logical_or: "any",
}


@dataclass(frozen=True)
class _Call:
    """An array, the selection of it, and the options of a program's run on it."""

    grid: Operand
    key: Any
    options: _Options
    scalars: _Options
    others: Sequence[Any] = ()


def _run(call: _Call, made: Program, out: Any = None) -> Any:
    grid, key = call.grid, call.key
    target = _created(grid, out, made, key) if isinstance(out, str) else out
    boxes = [run.Box(grid, key), *call.others]
    kept = {name: value for name, value in call.options.items() if name not in COMPILED}
    try:
        found = run.offload(made, boxes, call.scalars, out=target, **kept)
        if isinstance(out, str) and found.result != target.size:
            raise InvalidError(f"{made.name} gave {found.result} of {target.size} elements; give an array to out=")
    except BaseException:
        if isinstance(out, str):
            del grid._origin().array.store[out]
        raise
    return target if isinstance(out, str) else found.result


def _created(grid: Operand, name: str, made: Program, key: Any) -> Any:
    """Make the array that a result goes into, in the store of the first input and of its shape."""
    if len(made.outputs) != 1:
        raise InvalidError(f"{made.name} has {len(made.outputs)} outputs; out= names one array")
    port = made.outputs[0]
    if not abi.one_for_one(port):
        raise InvalidError(f"how much {made.name} gives is not known before; give an array of the store to out=")
    box = ports.Boxed(run.Box(grid, key))
    same = tuple(box.shape) == tuple(box.array.shape)
    block = box.array.building_block if same else None
    dtype = abi.record(port["dtype"], port["name"])
    return grid._origin().array.store.create(name, box.shape, dtype, building_block=block)


def _boxes(grid: Operand, key: Any, others: Sequence[Any]) -> list[Any]:
    """Return shape and dtype of each input."""
    found: list[Any] = [ports.Boxed(run.Box(grid, key))]
    for one in others:
        found.append(ports.Boxed(one) if ports.is_stored(one) else ports.in_memory(one))
    return found


def _same_shape(boxes: Sequence[Any]) -> None:
    for one in boxes[1:]:
        if tuple(one.shape) != tuple(boxes[0].shape):
            raise InvalidError(
                f"inputs have the shapes {tuple(boxes[0].shape)} and {tuple(one.shape)}; they do not broadcast: single "
                "numbers are given by name"
            )


def _kinds(scalars: _Options, boxes: Sequence[Any]) -> dict[str, np.dtype[Any]]:
    """Choose the dtypes of numbers that a function takes by name.

    A float of Python's takes the elements' dtype where that is a float, as in NumPy, and an integer uint64 beside
    elements of that; other integers of Python's have 64 bits.
    """
    found = {}
    for name, value in scalars.items():
        number = np.asarray(value)
        if number.ndim or number.dtype.kind not in "biuf":
            raise InvalidError(f"{name} must be one number, or an option, not {value!r}")
        dtype = number.dtype
        beside = [box.dtype for box in boxes if box.dtype.kind in "biuf"]
        if type(value) in (int, float) and beside:
            joint = np.result_type(*beside, type(value)(0))
            if type(value) is float or (joint == np.dtype("u8") and value >= 0):
                dtype = joint
        found[name] = dtype
    return found


#: Words of NumPy's and Dask's calls that these have not, and what takes their place.
_ABSENT = {
    "keepdims": "only reduce folds axes",
    "ddof": "var and std take it",
    "where": "filter the elements first, or test them in the function",
    "casting": "dtype= is the result's",
    "order": "elements come in C order",
    "axis": "only reduce folds along an axis",
    "depth": "a function sees nothing beyond its block; overlap the blocks with key=, or use dask's map_overlap",
    "boundary": "a function sees nothing beyond its block",
    "trim": "a function sees nothing beyond its block",
    "drop_axis": "the result has the box's shape",
    "new_axis": "the result has the box's shape",
    "chunks": "block= is the shape of blocks",
    "meta": "dtype= is the result's",
    "name": "out= names a new array",
}


def _refuse_others(what: Any, given: _Options) -> None:
    """Refuse words of NumPy's and Dask's calls, unless they are those of the function or the program."""
    named = [name for name in given if name in _ABSENT]
    if not named:
        return
    known: set[str] = set()
    if isinstance(what, Program):
        known = {one["name"] for one in what.scalars}
    elif isinstance(what, type):
        functions = [one for one in vars(what).values() if callable(one)]
        known = {name for one in functions for name in parameters(one)}
    elif callable(what):
        known = set(parameters(what))
    elif what in _VARIANCES:
        known = {"ddof"}
    elif what in programs.names():
        known = set(programs.describe(what).parameters)
    for name in named:
        if name not in known:
            raise InvalidError(f"there is no {name}: {_ABSENT[name]}")


#: Programs that keep what lies between two numbers, of which one may be left out.
_RANGES = ("filter", "filter_index")


def _both_ends(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the least and the greatest value of a dtype, as the ends of a range."""
    if dtype.kind == "f":
        return {"low": -math.inf, "high": math.inf}
    limits = np.iinfo(dtype)
    return {"low": int(limits.min), "high": int(limits.max)}


def _settings(options: _Options) -> dict[str, Any]:
    """Return the options for compiling a function."""
    return {name: options[name] for name in COMPILED if options.get(name) is not None}


def _refuse_scalars(what: str, given: _Options, dtype: Any = None) -> None:
    """Refuse what a reduction by name has no use for."""
    if dtype is not None:
        raise InvalidError("dtype is for functions that are compiled now; a program has the dtype of its output")
    if given:
        raise InvalidError(f"{what} takes no {min(given)!r}; there is axis, key, keepdims, {', '.join(_RUN)}")


def _variance(grid: Operand, name: str, axis: Any, *, key: Any, options: _Options, scalars: _Options) -> Any:
    """Return ``"var"`` or ``"std"`` of a box, or along axes."""
    box, ddof = ports.Boxed(run.Box(grid, key)), checked_ddof(scalars.get("ddof", 0))
    if axis is None and box.dtype.kind != "c":
        kind = np.dtype("u1") if box.dtype == np.dtype("?") else box.dtype
        whole, count = ddof.is_integer() and 0 <= ddof < 1 << 53, math.prod(box.shape)
        made = programs.get("variance", dtype=kind)
        found = _run(_Call(grid, key, options, {"ddof": int(ddof)} if whole else {}), made)
        if not whole:
            found = found * (count / (count - ddof)) if count > ddof else np.float64(np.nan)
    elif axis is None and not box.shape:
        found = np.float64(each(grid, "var", key=key, dtype=None, ddof=ddof))
    else:
        axes = range(len(box.shape)) if axis is None else axis
        found = variances(_native(grid), tuple(axes) if axis is None else axis, key=key, options=options, ddof=ddof)[()]
    return np.sqrt(found) if name == "std" else found


def _divided(total: Any, count: int) -> Any:
    return total / count if count else total * np.nan


def _called(what: Any) -> str:
    return what if isinstance(what, str) else getattr(what, "__name__", "the function")


# --- ready-made ones --------------------------------------------------------------------------------------------------


def _ready(name: str, dtype: np.dtype[Any], scalars: _Options) -> Program:
    entry = programs.describe(name)
    parameters = {key: value for key, value in scalars.items() if key in entry.parameters}
    return programs.get(name, dtype=dtype if entry.dtypes else None, **parameters)


def _native(given: Any) -> Any:
    """Return an input of a ready-made program as the dtype that programs compute with."""
    if not ports.is_stored(given):
        array = ports.in_memory(given)
        return array.astype(computed(array.dtype), copy=False)
    box = given if isinstance(given, run.Box) else run.Box(given)
    kind = box.array.dtype.base
    if computed(kind) == kind or not (kind.kind in "iufcmM" or dtypes.is_short(kind)):
        return given
    made = Converted(box.array, computed(kind))
    return replace(given, array=made) if isinstance(given, run.Box) else made


def _of_kind(call: _Call, name: str, box: Any) -> Any:
    """Reduce by a name: dates and durations as integers, short floats as float32; ends have the elements' dtype."""
    if box.dtype.kind in "mM" and name in (*_REDUCTIONS, *_VARIANCES):
        if not math.prod(box.shape):
            return np.zeros((), box.dtype)[()] if name == "sum" and box.dtype.kind == "m" else None
        options = {one: value for one, value in call.options.items() if one not in COMPILED}
        return reduced(call.grid, name, call.key, options)
    grid = _native(call.grid)
    if grid is call.grid:
        return _named(call, name, box)
    found = _named(replace(call, grid=grid), name, ports.Boxed(run.Box(grid, call.key)))
    return found.astype(box.dtype.newbyteorder("=")) if name in _EMPTY_ONES and found is not None else found


def _named(call: _Call, name: str, box: Any) -> Any:
    if name in _VARIANCES:
        _refuse_scalars(name, {one: value for one, value in call.scalars.items() if one != "ddof"})
        return _variance(call.grid, name, None, key=call.key, options=call.options, scalars=call.scalars)
    if name in FOLDS or (name in _EMPTY_ONES and box.dtype.kind == "c"):
        _refuse_scalars(name, call.scalars)
        return fold_box(call.grid, name, None, key=call.key, options=call.options)
    if name not in _REDUCTIONS and name not in ("minmax", "histogram", "variance"):
        there = ", ".join([*_NUMBERS, "quantile", "percentile", "top", "minmax", "histogram"])
        raise NotFoundError(f"there is no reduction {name!r}; there is {there}")
    program, output, finish = _REDUCTIONS.get(name, (name, "", lambda x: x))
    if name in _EMPTY_ONES and not math.prod(box.shape):
        return None
    if box.dtype.kind == "c" and name in ("sum", "mean"):
        form = fold_form(add, box.dtype, np.dtype("c16"), {}, **_settings(call.options), name=name)
        given = np.atleast_1d(_run(call, PythonProgram(form)))
        total: Any = given[0] if given.size else np.complex128(0)
        return total if name == "sum" else _divided(total, math.prod(box.shape))
    kind = np.dtype("u1") if box.dtype == np.dtype("?") else box.dtype
    entry = programs.describe(program)
    shaping = {key: value for key, value in call.scalars.items() if key in entry.parameters}
    rest = {key: value for key, value in call.scalars.items() if key not in entry.parameters}
    made = programs.get(program, dtype=kind, **shaping)
    found = _run(replace(call, scalars=rest), made)
    if not output:
        return np.int64(found) if box.dtype == np.dtype("?") and name == "sum" else finish(found)
    part = found[output]
    return part.astype("?") if box.dtype == np.dtype("?") else part
