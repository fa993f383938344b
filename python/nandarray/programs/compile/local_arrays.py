"""Arrays that a Python function makes for itself, of a shape that is known when it is compiled.

They are made by ``np.zeros``, ``np.ones``, ``np.empty`` and ``np.full``. :class:`Local` puts calls of
:func:`local_array` in their place before types are found; :class:`Apart` refuses, once types are known, what a fixed
place for each array cannot do. A place is in the scratchpad, at an offset that :func:`placed` decides when all
functions of a program are one module: until then it is the value of a variable whose name has the array's size. The
scratchpad's address is in a variable that entry points set (:func:`base`).

``np.empty`` gives zeros, too: what else lies there would depend on where the engine cuts the input into tasks.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import re
import types as python_types
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core import ir as nir
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, register_pass
from numba.core.datamodel.models import OpaqueModel
from numba.core.datamodel.registry import register_default
from numba.core.errors import NumbaError, TypingError, UnsupportedError
from numba.core.imputils import Registry as LoweringRegistry
from numba.core.ir_utils import mk_unique_var
from numba.core.typing.templates import AbstractTemplate, signature
from numba.core.typing.templates import Registry as TypingRegistry
from numba.extending import typeof_impl
from numba.np.arrayobj import make_array, populate_array

from nandarray.errors import InvalidError
from nandarray.programs import abi
from nandarray.programs.annotations import parse_dtype
from nandarray.programs.compile import stored

__all__ = ["BASE", "OF_ONES_OWN", "Apart", "Local", "base", "has_any", "lowering", "placed", "typing"]

typing = TypingRegistry()
lowering = LoweringRegistry("nandarray.local_arrays")

#: The variable with the address of the scratchpad's free part.
BASE = "nd_scratchpad"
_ALIGNED = 16  # bytes, as the scratchpad itself
_PLACE = "nd_local"
_DECLARED = re.compile(rf"^@({_PLACE}_(\d+)_(\d+)) = external .*global i64.*$", re.MULTILINE)
_I64 = ir.IntType(64)

#: The way out that errors about arrays which need memory name.
OF_ONES_OWN = "np.zeros, np.ones, np.empty and np.full of a constant shape make one; else write into an argument"
#: Functions that make arrays: the names of their arguments in order, and what fills them, None if an argument does.
_MAKERS: dict[Any, tuple[tuple[str, ...], Any]] = {
    np.zeros: (("shape", "dtype", "order"), 0),
    np.ones: (("shape", "dtype", "order"), 1),
    np.empty: (("shape", "dtype", "order"), 0),
    np.full: (("shape", "fill_value", "dtype", "order"), None),
}
_COMPUTED = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.neg)
_CALLED = (len, min, max, int, abs, np.dtype)
_LARGEST = 1 << 31  # of the integers that shapes are computed with

_NUMBERS = itertools.count()
#: Each array's call, as errors show it, and its line, by the array's number.
_MADE: dict[int, tuple[str, Any]] = {}
#: The line in which a function makes its first array.
_MAKES: dict[Any, Any] = {}


@dataclass(frozen=True)
class Made:
    """An array that a function makes: its shape and elements, None if the fill says their dtype; and its place."""

    call: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    filled: bool
    loc: Any

    @property
    def shown(self) -> str:
        """The call, as errors say it."""
        return f"{self.call}({self.shape}{'' if self.dtype is None else f', {self.dtype}'})"


class _MadeType(types.Opaque):
    """The type of the constant that describes an array: each has its own."""

    def __init__(self, made: Made) -> None:
        self.made = made
        super().__init__(f"Made({made.call}, {made.shape}, {made.dtype!r}, {made.filled}, {id(made)})")


register_default(_MadeType)(OpaqueModel)


@typeof_impl.register(Made)
def _typeof_made(value: Made, _context: Any) -> Any:
    return _MadeType(value)


@lowering.lower_constant(_MadeType)
def _constant_made(context: Any, _builder: Any, _kind: Any, _value: Any) -> Any:
    return context.get_dummy_value()


def local_array(made: Made, fill: Any) -> Any:
    """Return an array with a place of its own in the scratchpad, filled: for compiled functions only."""
    raise NotImplementedError


class _Template(AbstractTemplate):
    key = local_array

    def generic(self, args: Any, _kws: Any) -> Any:
        described, fill = args
        fill = types.unliteral(stored.computed(fill))
        made = described.made
        if not isinstance(fill, types.Number | types.Boolean):
            raise TypingError(f"{made.call} must be filled with a number, not {fill}")
        element = fill if made.dtype is None else stored.element(made.dtype)
        return signature(types.Array(element, len(made.shape), "C"), described, fill)


typing.register_global(local_array, types.Function(_Template))


# --- places -----------------------------------------------------------------------------------------------------------


def base(module: Any) -> Any:
    """Return the variable with the scratchpad's address, declared in a module that does not have it yet."""
    return module.globals.get(BASE) or ir.GlobalVariable(module, _I64, BASE)


def has_any(module: Any) -> bool:
    """Return whether functions of a linked module make arrays."""
    return any(one.name.startswith(f"{_PLACE}_") for one in module.global_variables)


def placed(text: str, state_bytes: int) -> tuple[str, int]:
    """Give each array of a program its place; return the module and the bytes of scratchpad that they take.

    Behind two states of ``state_bytes`` each they have what the largest scratchpad has; a program that needs more is
    an error that names its largest array.
    """
    offsets: dict[str, int] = {}
    sizes: dict[int, int] = {}
    total = 0
    for name, size, number in _DECLARED.findall(text):
        offsets[name], sizes[int(number)] = total, int(size)
        total += _up(int(size))
    room = abi.SCRATCHPAD_BYTES_MAX - 2 * _up(state_bytes)
    if total > room:
        shown, loc = _MADE[max(sizes, key=lambda one: sizes[one])]
        raise _too_large(shown, max(sizes.values()), room, loc, f" ({total} with the program's other arrays)")

    def define(found: re.Match[str]) -> str:
        return f"@{found[1]} = internal constant i64 {offsets[found[1]]}"

    return _DECLARED.sub(define, text), total


def _up(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _too_large(shown: str, size: int, room: int, loc: Any, more: str = "") -> NumbaError:
    says = f"{shown} takes {size} bytes of scratchpad{more}, which has at most {room}; give it as an input or an output"
    return UnsupportedError(says, loc)


@lowering.lower(local_array, _MadeType, types.Any)
def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kind, described = sig.return_type, sig.args[0]
    made: Made = described.made
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    count, number = math.prod(made.shape), next(_NUMBERS)
    _MADE[number] = made.shown, made.loc
    offset = ir.GlobalVariable(builder.module, _I64, f"{_PLACE}_{size * count}_{number}")
    address = builder.add(builder.load(base(builder.module)), builder.load(offset))
    array = make_array(kind)(context, builder)
    data = builder.inttoptr(address, array.data.type)
    if made.filled:
        value = context.cast(builder, args[1], sig.args[1], kind.dtype)
        with cgutils.for_range(builder, ir.Constant(_I64, count)) as loop:
            context.pack_value(builder, kind.dtype, value, builder.gep(data, [loop.index]))
    else:
        cgutils.memset(builder, data, ir.Constant(_I64, size * count), 0)
    strides: list[Any] = []
    step = size
    for extent in reversed(made.shape):
        strides.insert(0, ir.Constant(_I64, step))
        step *= extent
    shape = [ir.Constant(_I64, extent) for extent in made.shape]
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=ir.Constant(_I64, size), meminfo=None)
    return array._getvalue()


# --- calls that make arrays -------------------------------------------------------------------------------------------


class _UnknownError(Exception):
    """A value is not known when a function is compiled."""


def _value(code: Any, variable: Any) -> Any:
    """Compute what is known when a function is compiled: constants, globals, and arithmetic of integers."""
    try:
        found = code.get_definition(variable)
    except KeyError:
        raise _UnknownError from None
    if isinstance(found, nir.Const | nir.Global | nir.FreeVar):
        return found.value
    if not isinstance(found, nir.Expr):
        raise _UnknownError
    if found.op == "build_tuple":
        return tuple(_value(code, one) for one in found.items)
    if found.op == "getattr":
        owner = _value(code, found.value)
        if isinstance(owner, python_types.ModuleType | type | np.ndarray | np.dtype) and hasattr(owner, found.attr):
            return getattr(owner, found.attr)
    elif found.op == "static_getitem":
        owner = _value(code, found.value)
        if isinstance(owner, tuple):
            return owner[found.index]
    elif found.op in ("binop", "unary") and found.fn in _COMPUTED:
        both = [_value(code, one) for one in ((found.value,) if found.op == "unary" else (found.lhs, found.rhs))]
        if all(type(one) is tuple for one in both) or all(map(_small, both)):
            return _computed(found.fn, both)
    elif found.op == "call" and not found.kws and not found.vararg:
        called, values = _value(code, found.func), [_value(code, one) for one in found.args]
        if any(called is one for one in _CALLED):
            return _computed(called, values)
    raise _UnknownError


def _small(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < _LARGEST


def _computed(function: Any, values: list[Any]) -> Any:
    if function is operator.pow and values[1] > 32:  # noqa: PLR2004
        raise _UnknownError
    try:
        return function(*values)
    except (ArithmeticError, TypeError, ValueError):
        raise _UnknownError from None


def _called(code: Any, variable: Any) -> Any:
    try:
        found = _value(code, variable)
        return found if found in _MAKERS else None
    except (_UnknownError, TypeError):  # TypeError: what has no hash
        return None


@register_pass(mutates_CFG=False, analysis_only=False)
class Local(FunctionPass):
    """Put :func:`local_array` in the place of NumPy's functions that make arrays."""

    _name = "nandarray_local"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Replace calls whose shape and dtype are known; refuse the others."""
        code, taken = state.func_ir, list[str]()
        for block in code.blocks.values():
            for statement in list(block.find_insts(nir.Assign)):
                value = statement.value
                if isinstance(value, nir.Expr) and value.op == "call" and _called(code, value.func) is not None:
                    taken += self._replace(code, block, statement)
                    _MAKES.setdefault(code.func_id.func, statement.loc)
        _without(code, taken)
        return bool(taken)

    def _replace(self, code: Any, block: Any, statement: Any) -> list[str]:
        """Replace a call; return the names of variables that it does not use any more."""
        call, loc = statement.value, statement.loc
        made, fill = _described(code, call, loc)
        constants: list[tuple[str, Any]] = [("local_array", local_array), ("made", made)]
        if not isinstance(fill, nir.Var):
            constants.append(("fill", fill))
        new = []
        for name, value in constants:
            place = nir.Var(statement.target.scope, mk_unique_var(f"${name}"), loc)
            new.append(nir.Assign(nir.Global(name, value, loc), place, loc))
            code._definitions[place.name] = [new[-1].value]
        at = block.body.index(statement)
        block.body[at:at] = new
        before = [one.name for one in (call.func, *call.args, *dict(call.kws).values()) if one is not fill]
        call.func, call.kws = new[0].target, ()
        call.args = [new[1].target, fill if isinstance(fill, nir.Var) else new[2].target]
        return before


def _described(code: Any, call: Any, loc: Any) -> tuple[Made, Any]:
    """Describe the array that a call makes, and what it is filled with: a variable, 0 or 1."""
    function = _called(code, call.func)
    names, fill = _MAKERS[function]
    shown = f"np.{function.__name__}"
    given = {**dict(zip(names, call.args, strict=False)), **dict(call.kws)}
    if call.vararg or len(call.args) > len(names) or not {*names} >= {*given} or not {*names[:-2]} <= {*given}:
        says = f"{shown} must be given {' and '.join(names[:-2])}, perhaps dtype and order, and nothing else"
        raise UnsupportedError(says, loc)

    def known(name: str, otherwise: Any) -> Any:
        if name not in given:
            return otherwise
        try:
            return _value(code, given[name])
        except _UnknownError:
            raise UnsupportedError(
                f"the {name} of {shown} must be known when the program is compiled: made of numbers that are written "
                f"in the function and of globals. {OF_ONES_OWN}",
                loc,
            ) from None

    if known("order", "C") not in ("C", None):
        raise UnsupportedError(f"the order of {shown} must be 'C', not {known('order', 'C')!r}", loc)
    shape, dtype = _shape(shown, known("shape", ()), loc), None
    if "dtype" in given or function is not np.full:
        try:
            dtype = parse_dtype(known("dtype", None) or float, stored=True)
        except InvalidError as error:
            raise UnsupportedError(f"{shown}: {error}", loc) from None
        shape, dtype = (*shape, *dtype.shape), dtype.base
        size = math.prod(shape) * dtype.itemsize
        if size > abi.SCRATCHPAD_BYTES_MAX:
            raise _too_large(f"{shown}({shape}, {dtype})", size, abi.SCRATCHPAD_BYTES_MAX, loc)
    if fill is None:
        fill = given["fill_value"]
        with contextlib.suppress(_UnknownError):
            _check_fill(shown, _value(code, fill), dtype, loc)
    return Made(shown, shape, dtype, function in (np.full, np.ones), loc), fill


def _shape(shown: str, said: Any, loc: Any) -> tuple[int, ...]:
    extents = said if isinstance(said, tuple) else (said,)
    if not all(map(_small, extents)) or any(one < 0 for one in extents):
        raise UnsupportedError(
            f"the shape of {shown} must be integers from 0 to {_LARGEST - 1}, one or a tuple of them, not {said!r}", loc
        )
    return tuple(map(int, extents))


def _check_fill(shown: str, value: Any, dtype: np.dtype[Any] | None, loc: Any) -> None:
    """Refuse a known number that NumPy would not fill an array with."""
    try:
        np.full((), value, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise UnsupportedError(f"{shown}: {error}", loc) from None


def _without(code: Any, names: list[str]) -> None:
    """Remove what computed the arguments of replaced calls: a dtype may be an object that functions cannot use."""
    wanted = set(names)
    while wanted:
        used = {name for block in code.blocks.values() for statement in block.body for name in _uses(statement)}
        more = set[str]()
        for block in code.blocks.values():
            for statement in list(block.find_insts(nir.Assign)):
                if statement.target.name in wanted - used:
                    block.body.remove(statement)
                    more |= _uses(statement)
        wanted = more


def _uses(statement: Any) -> set[str]:
    """Return the variables that a statement takes values from."""
    read = statement.value if isinstance(statement, nir.Assign) else statement
    if isinstance(read, nir.Var):
        return {read.name}
    return {one.name for one in read.list_vars()} if isinstance(read, nir.Inst) else set()  # an argument, a constant


# --- arrays that are in use -------------------------------------------------------------------------------------------


@register_pass(mutates_CFG=False, analysis_only=True)
class Apart(AnalysisPass):
    """Refuse arrays that are still in use when their place is used again.

    That is an array made in a loop, while that of a pass before can be reached; one that a function returns; and one of
    a function that calls itself.
    """

    _name = "nandarray_apart"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Follow each array through the variables that may hold it."""
        code = state.func_ir
        self._no_recursion(state)
        made = [
            (label, statement)
            for label, block in code.blocks.items()
            for statement in block.find_insts(nir.Assign)
            if _is_made(code, statement.value)
        ]
        if not made:
            return False
        live = _live_at_ends(code)
        for label, statement in made:
            holders = _holders(state, statement.target.name)
            call = state.typemap[statement.value.args[0].name].made.call
            for block in code.blocks.values():
                for one in block.find_insts(nir.Return):
                    if one.value.name in holders:
                        raise UnsupportedError(
                            f"{code.func_id.func_name}() returns an array that it made with {call}: it must write into "
                            "an array that it is given, or return numbers",
                            one.loc,
                        )
            still = holders & _live_before(code, live, label, statement)
            if still:
                named = sorted(one.partition(".")[0] for one in still if not one.startswith("$"))
                shown = f" ({named[0]!r})" if named else ""
                raise UnsupportedError(
                    f"{call} makes an array while that of a pass before is still in use{shown}; each call has one "
                    "place: arrays that live at once must be made by calls of their own, before the loop",
                    statement.loc,
                )
        return False

    @staticmethod
    def _no_recursion(state: Any) -> None:
        """Refuse arrays of functions that are called again before they return."""
        code = state.func_ir
        for block in code.blocks.values():
            for call in block.find_exprs("call"):
                kind = state.typemap.get(call.func.name)
                if not isinstance(kind, types.RecursiveCall):
                    continue
                running = [frame.func_id.func for frame in state.typingctx.callstack]  # the innermost first
                again = kind.dispatcher_type.dispatcher.py_func
                at = next((place for place, one in enumerate(running) if one is again), -1)
                for function in (code.func_id.func, *running[: at + 1]):
                    if function in _MAKES:
                        raise UnsupportedError(
                            f"{function.__qualname__}() makes an array and calls itself: each call has one place for "
                            "its array",
                            _MAKES[function],
                        )


def _is_made(code: Any, value: Any) -> bool:
    if not isinstance(value, nir.Expr) or value.op != "call":
        return False
    try:
        return _value(code, value.func) is local_array
    except _UnknownError:
        return False


def _may_hold(kind: Any) -> bool:
    """Return whether a value of a type may have an array within; numbers and their like have none."""
    if isinstance(kind, types.BaseTuple):
        within: Any = kind
        return any(map(_may_hold, within.types))
    if isinstance(kind, types.Pair):
        return _may_hold(kind.first_type) or _may_hold(kind.second_type)
    if isinstance(kind, types.Optional):
        return _may_hold(kind.type)
    plain = (types.Number, types.Boolean, types.NoneType, types.SliceType, types.RangeType, types.RangeIteratorType)
    return not isinstance(kind, plain)


def _holders(state: Any, name: str) -> set[str]:
    """Return the variables that may hold an array, or a part of it."""
    code, found = state.func_ir, {name}
    assigned = [one for block in code.blocks.values() for one in block.find_insts(nir.Assign)]
    while True:
        more = {
            one.target.name
            for one in assigned
            if one.target.name not in found and _uses(one) & found and _may_hold(state.typemap[one.target.name])
        }
        if not more:
            return found
        found |= more


def _live_at_ends(code: Any) -> dict[int, set[str]]:
    """Return the variables whose values may be used behind each block; those of a phi at the end they come from."""
    live: dict[int, set[str]] = {label: set() for label in code.blocks}
    starts = {label: _before(block, set(), 0) for label, block in code.blocks.items()}
    changed = True
    while changed:
        changed = False
        for label, block in code.blocks.items():
            found = set(live[label])
            for after in block.body[-1].get_targets() if isinstance(block.body[-1], nir.Branch | nir.Jump) else ():
                found |= starts[after] | _into(code.blocks[after], label)
            if found != live[label]:
                live[label], changed = found, True
                starts[label] = _before(block, found, 0)
    return live


def _into(block: Any, label: int) -> set[str]:
    """Return the variables that a block's phis take if it is entered from another block."""
    found = set()
    for phi in block.find_exprs("phi"):
        pairs = zip(phi.incoming_values, phi.incoming_blocks, strict=True)
        found |= {one.name for one, place in pairs if place == label and isinstance(one, nir.Var)}
    return found


def _before(block: Any, live: set[str], at: int) -> set[str]:
    """Return the variables in use before a statement of a block, given those in use behind the block."""
    found = set(live)
    for statement in reversed(block.body[at:]):
        value = None
        if isinstance(statement, nir.Assign):
            found.discard(statement.target.name)
            value = statement.value
        if not (isinstance(value, nir.Expr) and value.op == "phi"):
            found |= _uses(statement)
    return found


def _live_before(code: Any, live: dict[int, set[str]], label: int, statement: Any) -> set[str]:
    block = code.blocks[label]
    return _before(block, live[label], block.body.index(statement))
