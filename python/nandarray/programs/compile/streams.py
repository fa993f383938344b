"""Streams as Numba sees them: a type, and what loads, stores and tests become.

The instructions have the stream's number in them, so the number is part of the type and a stream is no value at all.
Operations are lowered to calls of functions; :func:`definitions` defines them in assembly, ``runtime.c`` for the native
form. They are registered apart from Numba's own, and only the target of :mod:`.riscv` reads them.
"""

from __future__ import annotations

import re
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel.models import OpaqueModel
from numba.core.datamodel.registry import register_default
from numba.core.errors import TypingError
from numba.core.imputils import RefType, iternext_impl
from numba.core.imputils import Registry as LoweringRegistry
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, bound_function, signature
from numba.core.typing.templates import Registry as TypingRegistry

from nandarray.programs.compile.stored import StoredType, computed

__all__ = ["StreamType", "definitions", "lowering", "typing"]

typing = TypingRegistry()
lowering = LoweringRegistry("nandarray.streams")

_I64 = ir.IntType(64)
_WIDTHS = {(8, True): 0, (16, True): 1, (32, True): 2, (64, True): 3, (8, False): 4, (16, False): 5, (32, False): 6}
_WIDTHS[64, False] = 3
_INPUT_END = 0x880
_DECLARED = re.compile(r"^declare .*@(nd_stream_(load|store|at_end)_(\d)(?:_(\d))?)\(.*\).*$", re.MULTILINE)


class StreamType(types.SimpleIteratorType):
    """A stream of elements, one way."""

    def __init__(self, dtype: Any, number: int, *, output: bool) -> None:
        number_like = isinstance(computed(dtype), types.Integer | types.Float | types.Boolean)
        if not number_like or _bits(dtype) > 64:  # noqa: PLR2004
            raise TypingError(f"a stream has elements of 8, 16, 32 or 64 bits, not {dtype}")
        self.number, self.output, self.element = number, output, dtype
        super().__init__(f"{'OutStream' if output else 'Stream'}({dtype}, {number})", computed(dtype))


register_default(StreamType)(OpaqueModel)


@typing.register_attr
class _Methods(AttributeTemplate):
    key = StreamType

    @bound_function("stream.load")
    def resolve_load(self, stream: Any, args: Any, kws: Any) -> Any:
        _needs(stream, output=False, method="load")
        return signature(stream.yield_type) if not args and not kws else None

    @bound_function("stream.at_end")
    def resolve_at_end(self, stream: Any, args: Any, kws: Any) -> Any:
        _needs(stream, output=False, method="at_end")
        return signature(types.boolean) if not args and not kws else None

    @bound_function("stream.store")
    def resolve_store(self, stream: Any, args: Any, kws: Any) -> Any:
        _needs(stream, output=True, method="store")
        return signature(types.none, stream.element) if len(args) == 1 and not kws else None


def _needs(stream: Any, *, output: bool, method: str) -> None:
    if stream.output != output:
        raise TypingError(f"{'an output' if stream.output else 'an input'} stream has no {method}()")


@typing.register
class _GetIter(AbstractTemplate):
    key = "getiter"

    def generic(self, args: Any, _kws: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], StreamType):
            _needs(args[0], output=False, method="loop over it")
            return signature(args[0], args[0])
        return None


def _bits(kind: Any) -> int:
    if isinstance(kind, StoredType):
        return 8 * kind.stored.itemsize
    return 8 if isinstance(kind, types.Boolean) else int(kind.bitwidth)


def _load(context: Any, builder: Any, stream: Any) -> Any:
    kind, bits = stream.element, _bits(stream.element)
    width = _WIDTHS[bits, isinstance(kind, types.Integer) and kind.signed]
    raw = _call(builder, _I64, f"nd_stream_load_{stream.number}_{width}", [])
    small = raw if bits == 64 else builder.trunc(raw, ir.IntType(bits))  # noqa: PLR2004
    if isinstance(kind, StoredType):
        return context.data_model_manager[kind].from_data(builder, small)
    if isinstance(kind, types.Float):
        return builder.bitcast(small, context.get_value_type(kind))
    return builder.icmp_unsigned("!=", small, small.type(0)) if isinstance(kind, types.Boolean) else small


def _call(builder: Any, result: Any, name: str, values: list[Any]) -> Any:
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def definitions(text: str) -> str:
    """Define the stream functions that a module declares (LLVM's representation), as instructions.

    The result has the functions' bodies, for Clang to put where they are called.
    """

    def body(found: re.Match[str]) -> str:
        name, what, stream, width = found.groups()
        if what == "load":
            head, code, back = f"i64 @{name}()", f'".insn i 0x0b, {width}, $0, x{stream}, 0", "=r"()', True
        elif what == "at_end":
            head, code, back = f"i64 @{name}()", f'"csrr $0, {_INPUT_END + int(stream)}", "=r"()', True
        else:
            code = f'".insn s 0x2b, {width}, $0, 0(x{stream})", "r"(i64 %value)'
            head, back = f"void @{name}(i64 %value)", False
        call = f"%got = call i64 asm sideeffect {code}" if back else f"call void asm sideeffect {code}"
        end = "ret i64 %got" if back else "ret void"
        return f"define internal {head} alwaysinline {{\n  {call}\n  {end}\n}}"

    return _DECLARED.sub(body, text)


def _at_end(builder: Any, stream: Any) -> Any:
    found = _call(builder, _I64, f"nd_stream_at_end_{stream.number}", [])
    return builder.icmp_unsigned("!=", found, _I64(0))


@lowering.lower("stream.load", StreamType)
def _lower_load(context: Any, builder: Any, sig: Any, _args: Any) -> Any:
    return _load(context, builder, sig.args[0])


@lowering.lower("stream.at_end", StreamType)
def _lower_at_end(_context: Any, builder: Any, sig: Any, _args: Any) -> Any:
    return _at_end(builder, sig.args[0])


@lowering.lower("stream.store", StreamType, types.Any)
def _lower_store(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    stream, kind = sig.args
    bits, value = _bits(kind), args[1]
    if isinstance(kind, StoredType):
        value = context.data_model_manager[kind].as_data(builder, value)
    elif isinstance(kind, types.Float):
        value = builder.bitcast(value, ir.IntType(bits))
    value = value if value.type.width == 64 else builder.zext(value, _I64)  # noqa: PLR2004
    _call(builder, ir.VoidType(), f"nd_stream_store_{stream.number}_{(bits // 8).bit_length() - 1}", [value])
    return context.get_dummy_value()


@lowering.lower("getiter", StreamType)
def _lower_getiter(_context: Any, _builder: Any, _sig: Any, args: Any) -> Any:
    return args[0]


@lowering.lower("iternext", StreamType)
@iternext_impl(RefType.UNTRACKED)
def _lower_iternext(context: Any, builder: Any, sig: Any, _args: Any, result: Any) -> None:
    more = builder.not_(_at_end(builder, sig.args[0]))
    result.set_valid(more)
    with builder.if_then(more):
        result.yield_(_load(context, builder, sig.args[0]))
