"""Elements that lie in memory otherwise than functions compute with them: other byte orders, and short floats.

An array of such elements has the Numba type :class:`StoredType` as its dtype. A load swaps bytes, or widens a float16,
bfloat16 or float8 to float32, and what a function gets is the number: :func:`computed` says its type. A store rounds
to nearest, ties to even, as NumPy and ``ml_dtypes`` do. All of it is integer arithmetic and one addition of floats, so
that each form of a program gives the same.

There is no arithmetic in short floats here: functions compute with float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.datamodel.registry import register_default
from numba.core.imputils import Registry as LoweringRegistry
from numba.core.typing.templates import signature
from numba.np import numpy_support

from nandarray import dtypes

__all__ = ["StoredType", "computed", "element", "loaded", "lowering"]

lowering = LoweringRegistry("nandarray.stored")

_I32 = ir.IntType(32)
_FLOAT = ir.FloatType()
_SIGN, _MAGNITUDE, _INFINITY, _NAN = 0x8000_0000, 0x7FFF_FFFF, 0x7F80_0000, 0x7FC0_0000


@dataclass(frozen=True)
class _Short:
    """A float of fewer than 32 bits: its bits, those of the mantissa, and the bias of the exponent.

    ``specials`` are ``"ieee"``: infinities and NaN in the last exponent; ``"fn"``: a NaN of ones alone; ``"fnuz"``: a
    NaN in the place of the negative zero. The latter two have no infinity, and what is too large becomes NaN.
    """

    bits: int
    mantissa: int
    bias: int
    specials: str

    @property
    def drop(self) -> int:
        """Bits of the mantissa that float32 has beyond these."""
        return 23 - self.mantissa

    @property
    def mask(self) -> int:
        """All bits but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def infinity(self) -> int:
        """The last exponent, with an empty mantissa."""
        return self.mask >> self.mantissa << self.mantissa


def _short(dtype: np.dtype[Any]) -> _Short:
    """Return the layout of a short float."""
    if dtype.char == "e":
        return _Short(16, 10, 15, "ieee")
    if dtype.name == "bfloat16":
        return _Short(16, 7, 127, "ieee")
    from ml_dtypes import finfo

    limits = finfo(dtype)
    specials = next((one for one in ("fnuz", "fn") if dtype.name.endswith(one)), "ieee")
    return _Short(8, int(limits.nmant), 1 - int(limits.minexp), specials)


class StoredType(types.Type):
    """An element as it lies in memory; ``computed`` is the type of its value."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.stored = dtype
        self.short = _short(dtype) if dtypes.is_short(dtype) else None
        self.swapped = dtype != dtype.newbyteorder("<")
        self.computed = types.float32 if self.short else numpy_support.from_dtype(dtype.newbyteorder("<"))
        super().__init__(f"Stored({dtype.newbyteorder('=').name}, {'>' if self.swapped else '<'})")

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        """Take what converts to the number."""
        return typingctx.can_convert(other, self.computed)

    def can_convert_to(self, typingctx: Any, other: Any) -> Any:
        """Convert as the number does."""
        return typingctx.can_convert(self.computed, other)


def element(dtype: np.dtype[Any]) -> Any:
    """Return Numba's type of an element in memory."""
    if dtypes.is_short(dtype) or (dtype.names is None and dtype != dtype.newbyteorder("<")):
        return StoredType(dtype)
    return numpy_support.from_dtype(dtype)


def computed(kind: Any) -> Any:
    """Return the type that functions compute with."""
    return kind.computed if isinstance(kind, StoredType) else kind


def loaded(found: Any) -> Any:
    """Return the signature of an index into an array, or of a loop over one: what it gives is the number."""
    kind: Any = None if found is None else found.return_type
    if isinstance(kind, types.ArrayIterator) and isinstance(kind.yield_type, StoredType):
        kind._yield_type = kind.yield_type.computed
    return signature(kind.computed, *found.args) if isinstance(kind, StoredType) else found


# --- the forms in memory ----------------------------------------------------------------------------------------------


@register_default(StoredType)
class _Model(PrimitiveModel):
    """In registers the number, in memory an integer of as many bits (two, of a complex number)."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, dmm.lookup(fe_type.computed).get_value_type())
        parts = 2 if isinstance(fe_type.computed, types.Complex) else 1
        self._word = ir.IntType(8 * fe_type.stored.itemsize // parts)
        self._data = self._word if parts == 1 else ir.ArrayType(self._word, 2)

    def get_data_type(self) -> Any:
        return self._data

    def from_data(self, builder: Any, value: Any) -> Any:
        kind = self._fe_type
        if not isinstance(self._data, ir.ArrayType):
            return self._number(builder, value, self.get_value_type())
        made = ir.Constant(self.get_value_type(), ir.Undefined)
        for at, part in enumerate(self.get_value_type().elements):
            number = self._number(builder, builder.extract_value(value, at), part)
            made = builder.insert_value(made, number, at)
        assert isinstance(kind.computed, types.Complex)
        return made

    def as_data(self, builder: Any, value: Any) -> Any:
        if not isinstance(self._data, ir.ArrayType):
            return self._bits(builder, value)
        made = ir.Constant(self._data, ir.Undefined)
        for at in range(2):
            made = builder.insert_value(made, self._bits(builder, builder.extract_value(value, at)), at)
        return made

    def _number(self, builder: Any, word: Any, kind: Any) -> Any:
        word = self._in_order(builder, word)
        if self._fe_type.short is not None:
            return _widened(builder, self._fe_type.short, word)
        return word if word.type == kind else builder.bitcast(word, kind)

    def _bits(self, builder: Any, value: Any) -> Any:
        if self._fe_type.short is not None:
            word = _shortened(builder, self._fe_type.short, value)
        else:
            word = value if value.type == self._word else builder.bitcast(value, self._word)
        return self._in_order(builder, word)

    def _in_order(self, builder: Any, word: Any) -> Any:
        return builder.bswap(word) if self._fe_type.swapped and word.type.width > 8 else word  # noqa: PLR2004


def _widened(builder: Any, short: _Short, word: Any) -> Any:
    """Make a float32 of a short float, exactly."""
    bits = builder.zext(word, _I32)
    if short.bias == 127:  # noqa: PLR2004  # as float32, without the last 16 bits
        return builder.bitcast(builder.shl(bits, _I32(short.drop)), _FLOAT)
    sign = builder.shl(builder.lshr(bits, _I32(short.bits - 1)), _I32(31))
    rest = builder.and_(bits, _I32(short.mask))
    wide = builder.shl(rest, _I32(short.drop))
    normal = builder.add(wide, _I32((127 - short.bias) << 23))
    steps = builder.fmul(builder.uitofp(rest, _FLOAT), ir.Constant(_FLOAT, 2.0 ** (1 - short.bias - short.mantissa)))
    small = builder.icmp_unsigned("<", rest, _I32(1 << short.mantissa))
    made = builder.select(small, builder.bitcast(steps, _I32), normal)
    if short.specials == "ieee":
        special, value = builder.icmp_unsigned(">=", rest, _I32(short.infinity)), builder.or_(wide, _I32(_INFINITY))
    elif short.specials == "fn":
        special, value = builder.icmp_unsigned("==", rest, _I32(short.mask)), _I32(_NAN)
    else:
        special, value = builder.icmp_unsigned("==", bits, _I32(short.mask + 1)), _I32(_NAN)
    return builder.bitcast(builder.or_(builder.select(special, value, made), sign), _FLOAT)


def _shortened(builder: Any, short: _Short, value: Any) -> Any:
    """Make a short float of a float32: the nearest, to even at ties."""
    bits = builder.bitcast(value, _I32)
    sign = builder.and_(builder.lshr(bits, _I32(32 - short.bits)), _I32(short.mask + 1))
    rest, drop = builder.and_(bits, _I32(_MAGNITUDE)), _I32(short.drop)
    tie = builder.and_(builder.lshr(rest, drop), _I32(1))
    up = builder.add(builder.add(rest, _I32((1 << (short.drop - 1)) - 1)), tie)
    made = builder.sub(builder.lshr(up, drop), _I32((127 - short.bias) << short.mantissa))
    if short.bias != 127:  # noqa: PLR2004
        # Numbers below the normal ones: an addition whose last bit is their step rounds them.
        base = _I32((127 + 1 - short.bias - short.mantissa + 23) << 23)
        added = builder.fadd(builder.bitcast(rest, _FLOAT), builder.bitcast(base, _FLOAT))
        steps = builder.sub(builder.bitcast(added, _I32), base)
        made = builder.select(builder.icmp_unsigned("<", rest, _I32((128 - short.bias) << 23)), steps, made)
    is_nan = builder.icmp_unsigned(">", rest, _I32(_INFINITY))
    if short.specials == "ieee":
        most = _I32(short.infinity)
        made = builder.select(builder.icmp_signed(">", made, most), most, made)
        payload = builder.and_(builder.lshr(rest, drop), _I32((1 << short.mantissa) - 1))
        made = builder.select(is_nan, builder.or_(payload, _I32(short.infinity | 1 << (short.mantissa - 1))), made)
        made = builder.or_(made, sign)
    else:
        most = short.mask - 1 if short.specials == "fn" else short.mask
        lost = builder.or_(is_nan, builder.icmp_signed(">", made, _I32(most)))
        if short.specials == "fn":
            made = builder.or_(builder.select(lost, _I32(short.mask), made), sign)
        else:
            none = builder.icmp_unsigned("==", made, _I32(0))
            made = builder.select(none, made, builder.or_(made, sign))
            made = builder.select(lost, _I32(short.mask + 1), made)
    return builder.trunc(made, ir.IntType(short.bits))


def _odd(builder: Any, value: Any) -> Any:
    """Make a float32 of a float64 so that a second rounding gives what one would: inexact ones end in an odd bit."""
    near = builder.fptrunc(value, _FLOAT)
    back = builder.fpext(near, value.type)
    long = ir.IntType(64)

    def magnitude(number: Any) -> Any:
        return builder.and_(builder.bitcast(number, long), long((1 << 63) - 1))

    bits, given, found = builder.bitcast(near, _I32), magnitude(value), magnitude(back)
    beyond = builder.icmp_unsigned(">", found, given)
    below = builder.select(beyond, builder.sub(bits, _I32(1)), bits)
    exact = builder.or_(
        builder.icmp_unsigned("==", found, given), builder.icmp_unsigned(">", given, long(0x7FF0 << 48))
    )
    return builder.bitcast(builder.select(exact, bits, builder.or_(below, _I32(1))), _FLOAT)


# --- conversions ------------------------------------------------------------------------------------------------------


@lowering.lower_cast(types.Any, StoredType)
def _to_stored(context: Any, builder: Any, fromty: Any, toty: Any, value: Any) -> Any:
    if fromty == types.float64 and toty.short is not None and toty.stored.name != "bfloat16":
        return _odd(builder, value)
    return context.cast(builder, value, fromty, toty.computed)


@lowering.lower_cast(StoredType, types.Any)
def _to_number(context: Any, builder: Any, fromty: Any, toty: Any, value: Any) -> Any:
    return context.cast(builder, value, fromty.computed, toty)
