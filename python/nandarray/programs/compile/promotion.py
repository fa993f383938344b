"""Arithmetic of Python functions as NumPy has it: the dtypes of operators, and what integers do at the edges.

Numba computes integers in 64 bits, and mixes of signed and unsigned ones as signed. NumPy 2 (NEP 50) computes in the
dtype that both operands promote to, where a number that is written in the function, or is a Python number among its
globals, takes the dtype of the other operand. :class:`Promote` puts operators of this module in the place of Python's
in the functions of users, and functions of those dtypes in the place of NumPy's universal functions; Numba's own
functions keep theirs. An operator has a signature whose operands are cast first,
and lowers to Numba's implementation for that dtype, or to its own where Numba's differs from NumPy's.

What NumPy refuses, and what depends on whether a number is Python's or NumPy's, is a ``TypingError``. Between variables
(an accumulator that begins as 0, the two ends of a condition) Numba's rule is left: they get 64 bits.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core import ir as nir
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.errors import TypingError
from numba.core.imputils import Registry as LoweringRegistry
from numba.core.ir_utils import mk_unique_var
from numba.core.typing.templates import AbstractTemplate, signature
from numba.core.typing.templates import Registry as TypingRegistry
from numba.np import arrayobj, numpy_support, ufunc_db

from nandarray.programs.compile.stored import computed

__all__ = ["OVERLAP", "InPlace", "Promote", "joined", "lowering", "refuse", "typing"]

typing = TypingRegistry()
lowering = LoweringRegistry("nandarray.promotion")

#: The error of an assignment whose sides overlap, so that it reads what it has written.
OVERLAP = "both sides of an assignment overlap, which needs memory: assign elements in a loop"

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_BITWISE = ("and_", "or_", "xor", "lshift", "rshift")
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
_UNARY = ("neg", "pos", "invert")
_OPERATORS = (*_ARITHMETIC, *_BITWISE, *_COMPARED)
_COMPLEX = ("add", "sub", "mul", "truediv", "eq", "ne")  # what Numba has of complex numbers
_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "and_": "&",
    "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "min": "min", "max": "max", "divmod": "divmod",
}  # fmt: skip
_CALLED: dict[Any, Any] = {min: "min", max: "max", divmod: "divmod", pow: "pow"}
_UFUNCS: dict[Any, str] = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "truediv", np.floor_divide: "floordiv",
    np.remainder: "mod", np.power: "pow", np.bitwise_and: "and_", np.bitwise_or: "or_", np.bitwise_xor: "xor",
    np.left_shift: "lshift", np.right_shift: "rshift", np.less: "lt", np.less_equal: "le", np.greater: "gt",
    np.greater_equal: "ge", np.equal: "eq", np.not_equal: "ne", np.negative: "neg", np.positive: "pos",
    np.invert: "invert", np.divmod: "divmod",
}  # fmt: skip
_PYTHONS: dict[str, Any] = {name: getattr(operator, name) for name in (*_ARITHMETIC, *_BITWISE, *_COMPARED, *_UNARY)}
_PYTHONS |= {"min": min, "max": max, "divmod": divmod}
#: Python's functions for the in-place forms, like ``x += y``.
_IN_PLACE: dict[str, Any] = {name: getattr(operator, f"i{name.rstrip('_')}") for name in (*_ARITHMETIC, *_BITWISE)}

_NEGATIVE_POWER = "integers to negative integer powers are not allowed, as in NumPy: write a float base or exponent"


# --- dtypes -----------------------------------------------------------------------------------------------------------


def _is_weak(kind: Any) -> bool:
    """Return whether a type is that of a Python integer that is written in the function."""
    return isinstance(kind, types.IntegerLiteral)


def _number(kind: Any) -> bool:
    return isinstance(kind, types.Number | types.Boolean)


def _dtype(kind: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = numpy_support.as_dtype(types.unliteral(kind))
    return found


def _holds(dtype: np.dtype[Any], value: int) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= value <= limits.max)


def joined(first: Any, second: Any) -> Any:
    """Return the type of a variable that is uint64 here and a written integer there; None if Numba's rule is right.

    Numba makes a float of uint64 and a signed integer, which cannot hold all of them: that is refused.
    """
    for one, other in ((first, second), (second, first)):
        if other != types.uint64 or not isinstance(one, types.Integer) or not one.signed:
            continue
        if _is_weak(one) and one.literal_value >= 0:
            return other
        raise TypingError(
            f"a variable is uint64 here and {_dtype(one)} there, which have no integer dtype in common; convert one, "
            "like np.uint64(n)"
        )
    return None


class _Operands:
    """Two operands of an operator: their types, and which of them are Python's numbers."""

    def __init__(self, name: str, kinds: Sequence[Any], weak: Sequence[bool]) -> None:
        self.name, self.kinds = name, tuple(kinds)
        self.weak = tuple(one or _is_weak(kind) for one, kind in zip(weak, kinds, strict=True))
        self.dtypes = [_dtype(kind) for kind in kinds]

    @property
    def shown(self) -> str:
        """The operation, as an error says it."""
        values = [
            str(kind.literal_value) if _is_weak(kind) else "a Python number" if weak else str(dtype)
            for kind, weak, dtype in zip(self.kinds, self.weak, self.dtypes, strict=True)
        ]
        sign = _SIGNS.get(self.name) or f"np.{self.name}"
        return f"{sign}({', '.join(values)})" if sign[0].isalpha() else f" {sign} ".join(values)

    def promoted(self) -> np.dtype[Any]:
        """Return the dtype that NumPy computes in."""
        given: list[Any] = []
        for weak, dtype in zip(self.weak, self.dtypes, strict=True):
            given.append({"f": 0.0, "c": 0j}.get(dtype.kind, 0) if weak else dtype)
        made: np.dtype[Any] = np.result_type(*given)
        return made

    def mixed(self) -> bool:
        """Return whether the one is uint64 and the other a signed integer, which have no integer dtype in common."""
        pair = {dtype.str[1:] for dtype in self.dtypes}
        return not any(self.weak) and "u8" in pair and any(dtype.kind == "i" for dtype in self.dtypes)

    def fit(self, dtype: np.dtype[Any]) -> None:
        """Refuse a written integer that the dtype cannot hold, as NumPy does."""
        for kind in self.kinds:
            if _is_weak(kind) and dtype.kind in "iu" and not _holds(dtype, kind.literal_value):
                raise TypingError(
                    f"{self.shown}: {kind.literal_value} does not fit {dtype}, in which NumPy computes this; widen the "
                    "element first, like np.int64(x)"
                )


def _arithmetic(name: str, operands: _Operands) -> Any:
    """Return the signature of an arithmetic or bitwise operator."""
    if operands.mixed() and name != "truediv":
        if name in ("lshift", "rshift"):
            return signature(operands.kinds[0], *operands.kinds)
        raise TypingError(
            f"{operands.shown}: uint64 and signed integers have no integer dtype in common; convert one, like "
            "np.uint64(n) or np.float64(x)"
        )
    dtype = operands.promoted()
    if name == "truediv" and dtype.kind in "biu":
        dtype = np.dtype("f8")
    elif dtype.kind == "b" and name in ("floordiv", "mod", "pow", "lshift", "rshift", "divmod"):
        dtype = np.dtype("i1")
    elif dtype.kind == "b" and name == "sub":
        raise TypingError(f"{operands.shown}: NumPy does not subtract truth values; use ^ or convert them")
    if name == "pow" and dtype.kind == "c":
        raise TypingError(f"{operands.shown}: there are no powers of complex numbers beside the data; multiply")
    if (name in _BITWISE and dtype.kind not in "biu") or (dtype.kind == "c" and name not in _COMPLEX):
        return None
    operands.fit(dtype)
    if name in ("lshift", "rshift") and _is_weak(operands.kinds[1]) and dtype.kind in "iu":
        count = operands.kinds[1].literal_value
        if not 0 <= count < 8 * dtype.itemsize:
            raise TypingError(
                f"{operands.shown}: NumPy computes this in {dtype}, which has {8 * dtype.itemsize} bits; widen the "
                "element first, like np.uint32(x)"
            )
    if name == "pow" and _is_weak(operands.kinds[1]) and dtype.kind in "iu" and operands.kinds[1].literal_value < 0:
        raise TypingError(f"{operands.shown}: {_NEGATIVE_POWER}")
    kind = numpy_support.from_dtype(dtype)
    return signature(types.UniTuple(kind, 2) if name == "divmod" else kind, kind, kind)


def _comparison(name: str, operands: _Operands) -> Any:
    """Return the signature of a comparison: in the common dtype, or of integers of 64 bits, whatever their signs."""
    if all(dtype.kind in "iu" for dtype in operands.dtypes):
        strong = [kind for kind in operands.kinds if not _is_weak(kind)]
        signed = any(kind.signed for kind in strong)
        wide = [types.uint64 if _unsigned(kind, signed=signed) else types.int64 for kind in operands.kinds]
        return signature(types.boolean, *wide)
    dtype = operands.promoted()
    if dtype.kind == "c" and name not in _COMPLEX:
        return None
    kind = numpy_support.from_dtype(dtype)
    return signature(types.boolean, kind, kind)


def _unsigned(kind: Any, *, signed: bool) -> bool:
    if not _is_weak(kind):
        return not kind.signed
    return kind.literal_value >= 0 and not (signed and _holds(np.dtype("i8"), kind.literal_value))


def _unary(name: str, kind: Any) -> Any:
    """Return the signature of a sign: of the operand's dtype."""
    if isinstance(kind, types.Boolean):
        if name == "invert":
            return signature(kind, kind)
        raise TypingError(f"{name} of a truth value: NumPy has none; use `not`, or convert it")
    return (
        None if _is_weak(kind) or (name == "invert" and not isinstance(kind, types.Integer)) else signature(kind, kind)
    )


#: Functions that Numba calls by one name for both floats, which one program cannot have: they compute with 64 bits.
_ONE_WIDTH = (np.exp2, np.log2)


def _of_ufunc(ufunc: np.ufunc, operands: _Operands) -> Any:
    """Return the signature of a universal function: NumPy's, with float32 where that is float16."""
    given: list[Any] = []
    for weak, dtype in zip(operands.weak, operands.dtypes, strict=True):
        given.append({"f": float, "c": complex}.get(dtype.kind, int) if weak else dtype)
    try:
        found = ufunc.resolve_dtypes((*given, *[None] * ufunc.nout))
        whole = ufunc.resolve_dtypes((*[np.dtype("i8")] * ufunc.nin, *[None] * ufunc.nout))
    except TypeError:
        raise TypingError(f"{operands.shown}: NumPy has no such function of these dtypes") from None
    if operands.mixed() and whole[0].kind == "i" and found[0].kind == "f":
        raise TypingError(
            f"{operands.shown}: uint64 and signed integers have no integer dtype in common; convert one, like "
            "np.uint64(n) or np.float64(x)"
        )
    for dtype in found[: ufunc.nin]:
        operands.fit(dtype)
    kinds = [numpy_support.from_dtype(np.dtype("f4") if dtype == np.float16 else dtype) for dtype in found]
    taken = kinds[: ufunc.nin]
    if ufunc in _ONE_WIDTH:
        taken = [types.float64 if kind == types.float32 else kind for kind in taken]
    return signature(kinds[-1], *taken)


def _chosen(name: Any, kinds: Sequence[Any], weak: Sequence[bool]) -> Any:
    """Return the signature of an operation on numbers; None if Numba's own rule is right."""
    if isinstance(name, np.ufunc):
        operands = _Operands(name.__name__, kinds, weak)
        return None if all(operands.weak) else _of_ufunc(name, operands)
    if len(kinds) == 1:
        return _unary(name, kinds[0])
    operands = _Operands(name, kinds, weak)
    if all(operands.weak):
        return None
    if name in _COMPARED:
        return _comparison(name, operands)
    return _arithmetic(name, operands)


# --- operators --------------------------------------------------------------------------------------------------------

_KNOWN: dict[Any, tuple[Any, tuple[bool, ...]]] = {}


def refuse(function: Any, kinds: Sequence[Any]) -> None:
    """Refuse an operation of ours that NumPy has no answer for, or more than one, as a ``TypingError``.

    A template cannot: Numba takes its error for a reason to try the next one.
    """
    known, kinds = _KNOWN.get(getattr(function, "typing_key", function)), tuple(map(computed, kinds))
    if known is not None and len(kinds) == len(known[1]) and all(map(_number, kinds)):
        _chosen(known[0], kinds, known[1])


def _python(context: Any, function: Any, first: Any) -> Any:
    """Return the type of the operator or function that ours stands for, given the type of its first operand.

    The in-place form writes to what can be written to, like an array; of anything else it is the plain operator.
    """
    plain = None if first.mutable else _BY_PYTHON.get(function)
    return context.resolve_value_type(function if plain is None else _PYTHONS[plain])


def _made(name: Any, function: Any, weak: tuple[bool, ...]) -> Callable[..., Any]:
    """Make an operator in the place of one of Python's; some operands are its own floats or complex numbers.

    ``name`` is that of the operator, or a universal function, in whose place it is.
    """

    def operation(*operands: Any) -> Any:
        return function(*operands)

    operation.__name__ = operation.__qualname__ = getattr(name, "__name__", name)

    class _Template(AbstractTemplate):
        key = operation
        prefer_literal = True

        def generic(self, args: Any, kws: Any) -> Any:
            args = tuple(map(computed, args))
            if not kws and len(args) == len(weak) and all(map(_number, args)):
                found = _chosen(name, args, weak)
                if found is not None:
                    return found
            return _python(self.context, function, args[0]).get_call_type(self.context, args, kws)

    _KNOWN[operation] = name, weak
    typing.register_global(operation, types.Function(_Template))
    lowering.lower(operation, *[types.Any] * len(weak))(_Lowered(name, function))
    return operation


class _Lowered:
    """The code of an operator, by the signature that was chosen for it."""

    def __init__(self, name: Any, function: Any) -> None:
        self.name = name
        self.__name__ = getattr(name, "__name__", name)
        self.function = function

    def __call__(self, context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name, kind = self.name, sig.args[0]
        same = all(one == kind for one in sig.args)
        if same and name in ("min", "max") and kind == sig.return_type:
            return _chosen_one(builder, name, kind, *args)
        if name is np.sign and isinstance(kind, types.Integer) and not kind.signed:  # Numba's has signs
            return builder.zext(builder.icmp_unsigned("!=", args[0], args[0].type(0)), args[0].type)
        if same and isinstance(types.unliteral(kind), types.Integer) and name in _INTEGERS and not _is_weak(kind):
            return _INTEGERS[name](context, builder, sig, args)
        if len(sig.args) == 2 and all(map(_number, sig.args)):  # noqa: PLR2004
            if name in _COMPARED and {*sig.args} == {types.int64, types.uint64}:
                return _compared(builder, name, sig, args)
            if name in ("lshift", "rshift") and not same and not any(map(_is_weak, sig.args)):
                wide = context.cast(builder, args[1], sig.args[1], kind)
                return _INTEGERS[name](context, builder, signature(kind, kind, kind), (args[0], wide))
            if same and kind == sig.return_type == types.boolean and name in ("add", "mul"):
                return (builder.or_ if name == "add" else builder.and_)(*args)
            if same and kind == sig.return_type and name in _OPERATORS:
                return context.get_function(_PYTHONS[name], sig)(builder, args)
        if name in _UNARY and kind == sig.return_type and _number(kind):
            return context.get_function(_PYTHONS[name], sig)(builder, args)
        if kind.mutable and self.function in _IN_PLACE.values():
            _check_apart(context, builder, sig.args, args)
        python = _python(context.typing_context, self.function, kind)
        found = python.get_call_type(context.typing_context, sig.args, {})
        cast = [context.cast(builder, *one) for one in zip(args, sig.args, found.args, strict=True)]
        value = context.get_function(python, found)(builder, cast)
        return context.cast(builder, value, found.return_type, sig.return_type)


def _check_apart(context: Any, builder: Any, kinds: Sequence[Any], values: Sequence[Any]) -> None:
    """Raise, when the program runs, where an array that is written overlaps one that is read, unless it is the same."""
    if not all(isinstance(kind, types.Array) for kind in kinds):
        return
    arrays = [arrayobj.make_array(kind)(context, builder, value) for kind, value in zip(kinds, values, strict=True)]
    taken = [[cgutils.unpack_tuple(builder, part) for part in (one.shape, one.strides)] for one in arrays]
    extents = [
        arrayobj.get_array_memory_extents(context, builder, kind, one, parts[0], parts[1], one.data)
        for kind, one, parts in zip(kinds, arrays, taken, strict=True)
    ]
    wrong = arrayobj.extents_may_overlap(context, builder, *extents[0], *extents[1])
    if kinds[0].ndim == kinds[1].ndim and kinds[0].dtype == kinds[1].dtype:
        places = [
            [builder.ptrtoint(one.data, cgutils.intp_t), *parts[0], *parts[1]]
            for one, parts in zip(arrays, taken, strict=True)
        ]
        differs = [builder.icmp_unsigned("!=", *both) for both in zip(*places, strict=True)]
        wrong = builder.and_(wrong, reduce(builder.or_, differs))
    with builder.if_then(wrong, likely=False):
        context.call_conv.return_user_exc(builder, ValueError, (OVERLAP,))


def apart(written: Any, read: Any) -> None:
    """End the run if an array that a universal function writes overlaps one that it reads.

    Python does not call it: the compiler inserts calls, which `_lower_apart` translates.
    """
    raise NotImplementedError("apart() is for compiled functions")


class _Apart(AbstractTemplate):
    key = apart

    def generic(self, args: Any, _kws: Any) -> Any:
        return signature(types.none, *args)


typing.register_global(apart, types.Function(_Apart))


@lowering.lower(apart, types.Any, types.Any)
def _lower_apart(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    _check_apart(context, builder, sig.args, args)
    return context.get_dummy_value()


def _compared(builder: Any, name: str, sig: Any, args: Any) -> Any:
    """Compare a signed and an unsigned integer of 64 bits by their values."""
    left, right = args
    sign = _SIGNS[name]
    signed = left if sig.args[0] == types.int64 else right
    zero = signed.type(0)
    by_value = builder.icmp_unsigned(sign, left, right)
    below = (signed, zero) if signed is left else (zero, signed)
    return builder.select(builder.icmp_signed("<", signed, zero), builder.icmp_signed(sign, *below), by_value)


def _chosen_one(builder: Any, name: str, kind: Any, first: Any, second: Any) -> Any:
    """Return the least or the greatest of two numbers as Python does: the first, unless the second is beyond it."""
    sign = "<" if name == "min" else ">"
    if isinstance(kind, types.Float):
        beyond = builder.fcmp_ordered(sign, second, first)
    elif isinstance(kind, types.Integer) and kind.signed:
        beyond = builder.icmp_signed(sign, second, first)
    else:
        beyond = builder.icmp_unsigned(sign, second, first)
    return builder.select(beyond, second, first)


def _divided(builder: Any, kind: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return quotient and remainder as NumPy has them: 0 and 0 of a division by 0, the least by -1 is itself."""
    zero, one = x.type(0), x.type(1)
    by_zero = builder.icmp_unsigned("==", y, zero)
    if not kind.signed:
        safe = builder.select(by_zero, one, y)
        found = builder.udiv(x, safe), builder.urem(x, safe)
    else:
        most = builder.and_(
            builder.icmp_signed("==", x, x.type(-1 << (kind.bitwidth - 1))), builder.icmp_signed("==", y, x.type(-1))
        )
        safe = builder.select(builder.or_(by_zero, most), one, y)
        quotient, rest = builder.sdiv(x, safe), builder.srem(x, safe)
        apart = builder.and_(
            builder.icmp_unsigned("!=", rest, zero), builder.icmp_signed("<", builder.xor(rest, safe), zero)
        )
        found = (
            builder.select(apart, builder.sub(quotient, one), quotient),
            builder.select(apart, builder.add(rest, safe), rest),
        )
    return builder.select(by_zero, zero, found[0]), builder.select(by_zero, zero, found[1])


def _part(which: int) -> Callable[..., Any]:
    return lambda _context, builder, sig, args: _divided(builder, sig.args[0], *args)[which]


def _divmod(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return context.make_tuple(builder, sig.return_type, _divided(builder, sig.args[0], *args))


def _shifted(name: str) -> Callable[..., Any]:
    """Shift; by as many bits as there are, or by a negative number, nothing but the sign is left."""

    def lowered(_context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, (value, count) = sig.args[0], args
        few = builder.icmp_unsigned("<", count, count.type(kind.bitwidth))
        last = count.type(kind.bitwidth - 1)
        if name == "rshift" and kind.signed:
            return builder.ashr(value, builder.select(few, count, last))
        shift = builder.shl if name == "lshift" else builder.lshr
        return builder.select(few, shift(value, builder.select(few, count, last)), value.type(0))

    return lowered


def _power(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Multiply a power of an integer; a negative exponent is an error, as in NumPy."""
    kind = sig.return_type

    def power(base: Any, exponent: Any) -> Any:
        made, one, none = kind(1), kind(1), kind(0)
        while exponent > none:
            if exponent & one:
                made = kind(made * base)
            base = kind(base * base)
            exponent = kind(exponent >> one)
        return made

    if kind.signed:
        negative = builder.icmp_signed("<", args[1], args[1].type(0))
        with builder.if_then(negative, likely=False):
            says = ("Integers to negative integer powers are not allowed",)
            context.call_conv.return_user_exc(builder, ValueError, says)
    return context.compile_internal(builder, power, sig, args)


def _wrapping(name: str) -> Callable[..., Any]:
    """Compute without the promise of no overflow that Numba makes: integers wrap around in their own width."""
    return lambda _context, builder, _sig, args: getattr(builder, name)(*args)


_INTEGERS: dict[str, Callable[..., Any]] = {
    **{name: _wrapping(name) for name in ("add", "sub", "mul")},
    "floordiv": _part(0), "mod": _part(1), "divmod": _divmod, "pow": _power, "lshift": _shifted("lshift"),
    "rshift": _shifted("rshift"),
}  # fmt: skip


_BY_PYTHON = {function: name for name, function in (*_PYTHONS.items(), *_IN_PLACE.items())}
_OURS: dict[tuple[Any, tuple[bool, ...]], Callable[..., Any]] = {}
_BOTH = [(a, b) for a in (False, True) for b in (False, True)]
for _function, _name in _BY_PYTHON.items():
    for _weak in [(False,)] if _name in _UNARY else _BOTH:
        _OURS[_function, _weak] = _made(_name, _function, _weak)
for _ufunc in ufunc_db.get_ufuncs():
    if isinstance(_ufunc, np.ufunc) and _ufunc.nout == 1 and _ufunc.nin <= 2 and _ufunc not in _UFUNCS:  # noqa: PLR2004
        for _weak in [(False,), (True,)] if _ufunc.nin == 1 else _BOTH:
            _OURS[_ufunc, _weak] = _made(_ufunc, _ufunc, _weak)
_OURS[abs, (False,)] = _made(np.absolute, abs, (False,))


@register_pass(mutates_CFG=False, analysis_only=False)
class Promote(FunctionPass):
    """Put NumPy's arithmetic in the place of Numba's, in the representation of a user's function."""

    _name = "nandarray_promote"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Replace operators, and calls of those of Python's functions that choose a dtype."""
        code = state.func_ir
        for block in code.blocks.values():
            for statement in list(block.find_insts(nir.Assign)):
                value = statement.value
                if not isinstance(value, nir.Expr):
                    continue
                if value.op in ("binop", "inplace_binop", "unary"):
                    self._operator(code, value)
                elif value.op == "call":
                    self._call(code, block, statement)
        return True

    def _operator(self, code: Any, value: Any) -> None:
        if value.fn not in _BY_PYTHON:
            return
        both = () if value.op == "unary" else (value.lhs, value.rhs)
        value.fn = _OURS[value.fn, tuple(_weak_float(code, one) for one in both) or (False,)]
        if value.op == "inplace_binop":  # Numba lowers this one where the first operand is a number
            value.immutable_fn = value.fn

    def _call(self, code: Any, block: Any, statement: Any) -> None:
        value = statement.value
        called = _called(code, value.func)
        ufunc = called if isinstance(called, np.ufunc) else None
        name = _CALLED.get(called) or _UFUNCS.get(called)
        count = 1 if called is abs else ufunc.nin if ufunc else 2
        if ufunc is not None and len(value.args) == count + 1 and not value.kws and not value.vararg:
            for read in value.args[:-1]:
                self._insert(code, block, statement, apart, [value.args[-1], read])
        if (
            (name is None and ufunc is None and called is not abs)
            or len(value.args) != count
            or value.kws
            or value.vararg
        ):
            return
        weak = tuple(_weak_float(code, one) for one in value.args)
        key: Any = (called, weak) if name is None else (_PYTHONS[name], (False,) if name in _UNARY else weak)
        if key not in _OURS:
            return
        function = _OURS[key]
        place = nir.Var(statement.target.scope, mk_unique_var(f"${function.__name__}"), statement.loc)
        given = nir.Assign(nir.Global(function.__name__, function, statement.loc), place, statement.loc)
        block.body.insert(block.body.index(statement), given)
        code._definitions[place.name] = [given.value]
        value.func = place

    @staticmethod
    def _insert(code: Any, block: Any, before: Any, function: Any, args: list[Any]) -> None:
        """Insert a call of a function, whose result is not used, before a statement."""
        scope, loc = before.target.scope, before.loc
        called = nir.Var(scope, mk_unique_var(f"${function.__name__}"), loc)
        done = nir.Var(scope, mk_unique_var(f"${function.__name__}"), loc)
        values = nir.Global(function.__name__, function, loc), nir.Expr.call(called, args, (), loc)
        for place, value in zip((called, done), values, strict=True):
            block.body.insert(block.body.index(before), nir.Assign(value, place, loc))
            code._definitions[place.name] = [value]


@register_pass(mutates_CFG=False, analysis_only=False)
class InPlace(FunctionPass):
    """Leave out the assignment that ``a[i:j] += x`` ends with: the operator has written to the slice already."""

    _name = "nandarray_in_place"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Remove assignments of slices to themselves, once types are known: of numbers they are needed."""
        code, removed = state.func_ir, False
        for block in code.blocks.values():
            for statement in list(block.find_insts((nir.SetItem, nir.StaticSetItem))):
                changed = _defined(code, statement.value)
                if not isinstance(state.typemap[statement.value.name], types.Array):
                    continue
                if not isinstance(changed, nir.Expr) or changed.op != "inplace_binop":
                    continue
                part = _defined(code, changed.lhs)
                if not isinstance(part, nir.Expr) or part.op not in ("getitem", "static_getitem"):
                    continue
                if _places(code, part, part.value) == _places(code, statement, statement.target):
                    block.body.remove(statement)
                    removed = True
        return removed


def _places(code: Any, indexed: Any, array: Any) -> list[Any]:
    """Return the variables of an array and its index, past copies."""
    index = getattr(indexed, "index_var", None) or indexed.index
    found = []
    for one in (array, index):
        try:
            found.append(code.get_definition(one, lhs_only=True))
        except KeyError:
            found.append(one)
    return [getattr(one, "name", one) for one in found]


def _defined(code: Any, variable: Any) -> Any:
    try:
        return code.get_definition(variable)
    except KeyError:
        return None


def _called(code: Any, variable: Any) -> Any:
    """Return the function that is called, if it is a global, or NumPy's by a name in it; None if it is neither."""
    try:
        found = code.get_definition(variable)
    except KeyError:
        return None
    if isinstance(found, nir.Expr) and found.op == "getattr" and _constant(code, found.value) is np:
        return getattr(np, found.attr, None)
    return _constant(code, variable)


def _constant(code: Any, variable: Any) -> Any:
    """Return the value of a variable that is a constant or a global; None if it is none."""
    try:
        found = code.get_definition(variable)
    except KeyError:
        return None
    if isinstance(found, nir.Const | nir.Global | nir.FreeVar):
        try:
            hash(found.value)
        except TypeError:
            return None
        return found.value
    return None


def _weak_float(code: Any, variable: Any) -> bool:
    """Return whether an operand is a float or a complex number of Python's."""
    try:
        found = code.get_definition(variable)
    except KeyError:
        return False
    if isinstance(found, nir.Expr) and found.op == "getattr" and isinstance(_constant(code, found.value), type(math)):
        return type(getattr(_constant(code, found.value), found.attr, None)) in (float, complex)
    if isinstance(found, nir.Expr) and found.op == "unary":
        return _weak_float(code, found.value)
    return type(_constant(code, variable)) in (float, complex)
