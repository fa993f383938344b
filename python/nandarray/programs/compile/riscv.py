"""Numba for RISC-V: from typed Python functions to LLVM's intermediate representation of a program.

A target of its own beside Numba's ``cpu`` (:mod:`numba.core.target_extension`), so that nothing compiled here can meet
what the process compiles for itself: own typing and target contexts, own dispatchers, an error code instead of Python
exceptions, no heap, no Python objects. Functions under ``@numba.njit`` are taken over and compiled again.

The product is text. Clang optimises and assembles it, since LLVM as llvmlite has it cannot assemble the stream
instructions. This is the only module that knows Numba's inside; it is imported when a function is compiled, not before.
"""

from __future__ import annotations

import hashlib
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import (
    callconv,
    cgutils,
    codegen,
    compiler,
    cpu,
    descriptors,
    dispatcher,
    fastmathpass,
    lowering,
    typed_passes,
    types,
    typing,
    untyped_passes,
)
from numba.core import target_extension as targets
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError, UnsupportedError
from numba.core.runtime.context import NRTContext
from numba.np import numpy_support
from numba.np.arrayobj import make_array, populate_array

from nandarray.programs.compile import local_arrays, promotion, stored, streams
from nandarray.programs.compile.scipy_free import import_arrays
from nandarray.programs.compile.streams import StreamType

__all__ = ["Entry", "Parameter", "compile_program", "result_type"]

_NAME = "nandarray-riscv"
_TRIPLE = "riscv64-unknown-elf"
_LAYOUT = "e-m:e-p:64:64-i64:64-i128:128-n32:64-S128"
_I64 = ir.IntType(64)

# Fields of the argument block, in words of 64 bits: docs/reference/program-abi.md.
_STATE, _OTHER_STATE, _SCRATCHPAD, _INPUTS, _BUFFER_WORDS, _SCALARS = 6, 8, 9, 11, 8, 11 + 16 * 8
_OUTPUTS = _INPUTS + 8 * _BUFFER_WORDS
_NOTED = _SCALARS + 16 + 2
_SHAPE = 4  # in an input
_FIRST = _NOTED + 7
#: Roles of numbers that say where a task lies: the first word of each.
_PLACES = {"extent": _INPUTS + _SHAPE, "inner": _OUTPUTS + _SHAPE, "first": _FIRST, "total": _FIRST + 4}
_PACES = _FIRST + 8

#: The most bytes of an array that a function closes over; they become a part of the program.
_CLOSURE_BYTES = 1 << 20
#: The variable in which a function notes the index and the size of an index out of range.
NOTE = "nd_noted"

#: The error for code that would allocate.
NO_HEAP = f"it makes an array or another object that needs memory while it runs; {local_arrays.OF_ONES_OWN}"
#: Status of a function that says it wrote more records than there is room for.
TOO_MANY = -2
_FIRST_CODE = 16


class _Library(codegen.CPUCodeLibrary):
    """Modules linked together, not optimised: Clang does that."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_specific(self) -> None:
        pass


class _Codegen(codegen.CPUCodegen):
    _library_class = _Library

    def _init(self, _llvm_module: Any) -> None:
        self._data_layout = _LAYOUT
        self._target_data = llvm.create_target_data(_LAYOUT)

    def _create_empty_module(self, name: str) -> Any:
        module = ir.Module(cgutils.normalize_ir_text(name))
        module.triple = _TRIPLE
        module.data_layout = _LAYOUT
        return module

    def _add_module(self, _module: Any) -> None:
        pass

    def _check_llvm_bugs(self) -> None:
        pass

    def set_env(self, _name: str, _env: Any) -> None:
        pass

    def insert_unresolved_ref(self, builder: Any, fnty: Any, name: str) -> Any:
        # A function that calls itself: all modules end up in one, so its name is enough.
        return cgutils.get_or_insert_function(builder.module, fnty, name)


class _CallHelper(callconv._MinimalCallHelper):
    """Numbers exceptions by what they say, so that functions compiled apart agree on them."""

    known: dict[int, str] = {}

    def _add_exception(self, exc: Any, exc_args: Any, locinfo: Any) -> int:
        says = "an exception" if exc is None else exc.__name__
        if exc_args:
            says += ": " + ", ".join(map(str, exc_args))
        if locinfo is not None:
            says += f" ({os.path.basename(locinfo[1])}:{locinfo[2]})"
        code = _FIRST_CODE + int.from_bytes(hashlib.sha256(says.encode()).digest()[:3], "little")
        _CallHelper.known[code] = says
        return code

    def get_exception(self, exc_id: int) -> Any:
        raise NotImplementedError


_NO_TEXT = "an exception's arguments have to be constants beside the data; dictionaries raise others"


class _CallConv(callconv.MinimalCallConv):
    def _make_call_helper(self, _builder: Any) -> Any:
        return _CallHelper()

    def return_dynamic_user_exc(self, *_args: Any, **_options: Any) -> Any:
        raise UnsupportedError(_NO_TEXT)

    def return_user_exc(
        self, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: Any = None
    ) -> None:
        """Return an exception's status. Those of Numba's own checks name the user's line, and note the index."""
        if loc is None:
            loc, func_name = _user_line()
        if exc is IndexError:
            _note(builder, sys._getframe(1).f_locals)
        super().return_user_exc(builder, exc, exc_args, loc, func_name)


def _user_line() -> tuple[Any, str | None]:
    """Return the line of a user's function that is being lowered, and the function's name; None if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        one = frame.f_locals.get("self")
        if isinstance(one, lowering.BaseLower):
            names = one.func_ir.func_id
            if not _is_numbas(names.modname) and not names.filename.startswith("<"):
                return one.loc, names.func_qualname
        frame = frame.f_back  # type: ignore[assignment]
    return None, None


def _note(builder: Any, checked: Mapping[str, Any]) -> None:
    """Note an index and a size, the variables of Numba's check of indices, where the entry point finds them."""
    if not {"ind", "dimlen"} <= set(checked):
        return
    noted = _noted(builder.module)
    index, size = (
        value if value.type == _I64 else builder.sext(value, _I64) for value in (checked["ind"], checked["dimlen"])
    )
    # A negative index had the size added before it was checked.
    given = builder.select(builder.icmp_signed("<", index, _I64(0)), builder.sub(index, size), index)
    for place, value in enumerate((given, size)):
        builder.store(value, builder.gep(noted, [ir.Constant(_I64, 0), ir.Constant(_I64, place)]))


def _noted(module: Any) -> Any:
    kind = ir.ArrayType(_I64, 2)
    return module.globals.get(NOTE) or ir.GlobalVariable(module, kind, NOTE)


def _is_numbas(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "numba"


class _NoHeap(NRTContext):
    """Numba's runtime without memory: views of given arrays are counted in vain, new ones are refused."""

    def free(self, _builder: Any, _pointer: Any) -> None:
        """Free nothing: there was nothing."""


def _overlapping(self: Any, builder: Any, _size: Any) -> Any:
    """Raise in place of the copy that Numba makes, while it runs, where both sides of an assignment overlap."""
    with builder.if_then(ir.Constant(ir.IntType(1), 1)):
        self._context.call_conv.return_user_exc(builder, ValueError, (promotion.OVERLAP,))
    return ir.Constant(ir.IntType(8).as_pointer(), None)


def _refuse(*_args: Any, **_options: Any) -> Any:
    raise UnsupportedError(NO_HEAP)


for _name in dir(NRTContext):
    if ("alloc" in _name or "_new_" in _name) and not _name.startswith("__"):
        setattr(_NoHeap, _name, _overlapping if _name == "allocate" else _refuse)


class _Context(cpu.CPUContext):
    """Lowering to RISC-V: only what needs neither heap nor Python."""

    def init(self) -> None:
        self.is32bit = False
        self._internal_codegen: Any = _Codegen("nandarray")

    @property
    def nrt(self) -> Any:
        return _NoHeap(self, self.enable_nrt)

    @property
    def call_conv(self) -> Any:
        return _CallConv(self)

    def make_constant_array(self, builder: Any, typ: Any, ary: Any) -> Any:
        """Make an array that a function closes over a part of the program, if it is small enough."""
        if ary.nbytes > _CLOSURE_BYTES:
            raise UnsupportedError(
                f"it closes over {ary.nbytes / 1e6:.3g} MB, an array of {ary.dtype} of shape {ary.shape}; at most "
                f"{_CLOSURE_BYTES / 1e6:.3g} MB are possible: give a larger one as an input, of its own length to a "
                "function that takes it as nandarray.Whole"
            )
        if typ.layout not in "CF":
            raise UnsupportedError(
                "it closes over an array whose elements do not lie one after another; close over its .copy()"
            )
        return super().make_constant_array(builder, typ, ary)

    # Addresses of this process mean nothing beside the data.
    allow_dynamic_globals = False

    def get_constant_generic(self, builder: Any, ty: Any, val: Any) -> Any:
        # A compiled function is called by its name. Numba's host target registers its address as the constant, for
        # all targets, as soon as anything is compiled for the host.
        if isinstance(ty, types.Dispatcher):
            return self.get_dummy_value()
        return super().get_constant_generic(builder, ty, val)

    def load_additional_registries(self) -> None:
        # These modules register themselves; strings, lists, sets, dictionaries and random numbers are left out.
        from numba.core import inline_closurecall, optional  # noqa: F401
        from numba.cpython import (  # noqa: F401  # noqa: F401
            builtins,
            cmathimpl,
            enumimpl,
            iterators,
            mathimpl,
            numbers,
            rangeobj,
            slicing,
            tupleobj,
        )
        from numba.misc import literal  # noqa: F401

        import_arrays()
        from numba.np import arraymath, arrayobj, npyimpl  # noqa: F401

        ours = (streams.lowering, promotion.lowering, stored.lowering, local_arrays.lowering)
        for registry in (cmathimpl.registry, mathimpl.registry, npyimpl.registry, *ours):
            self.install_registry(registry)

    def post_lowering(self, mod: Any, _library: Any) -> None:
        if self.fastmath:
            fastmathpass.rewrite_module(mod, self.fastmath)

    def create_cpython_wrapper(self, *_args: Any, **_options: Any) -> None:
        pass

    def create_cfunc_wrapper(self, *_args: Any, **_options: Any) -> None:
        pass

    def get_executable(self, library: Any, _fndesc: Any, _env: Any) -> Any:
        library._ensure_finalized()
        return object().__reduce__  # a callable of its own: it identifies the overload


_FLAT = (
    "an index into `.flat` is not checked for being in range; index the array itself or its `.ravel()`,"
    " or give boundscheck=False"
)


class _Typing(typing.Context):
    def load_additional_registries(self) -> None:
        super().load_additional_registries()
        self.install_registry(streams.typing)
        self.install_registry(promotion.typing)
        self.install_registry(local_arrays.typing)

    def resolve_value_type(self, val: Any) -> Any:
        if isinstance(val, dispatcher.Dispatcher) and not isinstance(val, _Dispatcher):
            val = _taken_over(val)
        return super().resolve_value_type(val)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if func is operator.getitem:
            self._refuse_flat(args[0])
        promotion.refuse(func, args)
        found = super().resolve_function_type(func, args, kws)
        return stored.loaded(found) if func in (operator.getitem, "static_getitem", "getiter") else found

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        self._refuse_flat(target)
        return super().resolve_setitem(target, index, value)

    def unify_pairs(self, first: Any, second: Any) -> Any:
        frames = list(self.callstack)
        found = promotion.joined(first, second) if frames and not _is_numbas(frames[0].func_id.modname) else None
        return super().unify_pairs(first, second) if found is None else found

    def _refuse_flat(self, indexed: Any) -> None:
        """Refuse an index into ``array.flat`` in a user's function: Numba never checks it."""
        if not (_CHECKS[0] and isinstance(indexed, types.NumpyFlatType)):
            return
        # Numba's own functions stay within the arrays that they are given.
        frames = list(self.callstack)
        if not frames or not _is_numbas(frames[0].func_id.modname):
            raise TypingError(_FLAT)


class _Options(cpu.CPUTargetOptions):
    def finalize(self, flags: Any, options: Any) -> None:
        super().finalize(flags, options)
        flags.enable_pyobject = flags.enable_looplift = flags.enable_pyobject_looplift = False
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        flags.nrt = True
        flags.error_model = "numpy"  # a division by zero gives NumPy's result, no exception


class _Riscv(targets.CPU):
    """The name under which Numba finds all this."""


class _Descriptor(descriptors.TargetDescriptor):
    options = _Options
    _made: tuple[Any, Any] | None = None

    def _contexts(self) -> tuple[Any, Any]:
        if self._made is None:
            typing_context = _Typing()
            self._made = typing_context, _Context(typing_context, _NAME)
        return self._made

    @property
    def typing_context(self) -> Any:
        return self._contexts()[0]

    @property
    def target_context(self) -> Any:
        return self._contexts()[1]


targets.target_registry[_NAME] = _Riscv
_DESCRIPTOR = _Descriptor(_NAME)


class _Dispatcher(dispatcher.Dispatcher):
    targetdescr = _DESCRIPTOR


targets.dispatcher_registry[_Riscv] = _Dispatcher
_TAKEN_OVER: dict[tuple[int, bool], tuple[Any, Any]] = {}
#: Whether the program that is being compiled checks indices: set under the compiler's lock.
_CHECKS = [False]


def _taken_over(host: Any) -> Any:
    """Return our own dispatcher of a function under ``@numba.njit``, which checks indices as the program does."""
    key = id(host), _CHECKS[0]
    if key not in _TAKEN_OVER:
        options = _plain(host.targetoptions)
        if options.get("boundscheck") is None:
            options["boundscheck"] = _CHECKS[0]
        _TAKEN_OVER[key] = host, _jit(**options)(host.py_func)
    return _TAKEN_OVER[key][1]


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keep those options of ``@njit`` that mean something here."""
    return {key: options[key] for key in ("fastmath", "boundscheck", "inline", "forceinline") if key in options}


class _Users(compiler.CompilerBase):
    """The compiler of users' functions, with the arithmetic of NumPy and arrays of their own."""

    def define_pipelines(self) -> Any:
        """Put arrays and NumPy's operators in place before types are found."""
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(promotion.Promote, untyped_passes.ReconstructSSA)
        passes.add_pass_after(local_arrays.Local, untyped_passes.ReconstructSSA)
        passes.add_pass_after(promotion.InPlace, typed_passes.NopythonTypeInference)
        passes.add_pass_after(local_arrays.Apart, typed_passes.NopythonTypeInference)
        passes.finalize()
        return [passes]


def _pipeline(function: Any) -> Any:
    return compiler.Compiler if _is_numbas(getattr(function, "__module__", None)) else _Users


def _jit(*_args: Any, **options: Any) -> Callable[[Any], Any]:
    # Drops the options `cache` and `locals` of Numba's own functions: this target has no such cache, and infers types.
    options = {key: value for key, value in options.items() if key not in {"cache", "locals"}}
    made = {"targetoptions": {"nopython": True, **options}}
    return lambda function: _Dispatcher(function, pipeline_class=_pipeline(function), **made)


targets.jit_registry[_Riscv] = _jit


# --- what a program is made of ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """An argument of a compiled function: its role, and its place in the argument block."""

    #: "block", "out", "scalar", "stream", "out-stream", "state", "other", one of :data:`_PLACES`; of an input with a
    #: pace of its own "ended", whether it ends with the block, and "taken", an array of one number to write to.
    role: str
    index: int
    dtype: np.dtype[Any]

    @property
    def type(self) -> Any:
        """Numba's type of the argument."""
        if self.role in {"stream", "out-stream"}:
            return StreamType(stored.element(self.dtype), self.index, output=self.role == "out-stream")
        if self.role in {"scalar", "ended", *_PLACES}:
            return element_type(self.dtype)
        if self.role == "taken":
            return types.Array(element_type(self.dtype), 1, "C")
        if self.role in {"state", "other"}:
            if self.dtype.names is not None:
                return numpy_support.from_dtype(self.dtype)
            base, shape = self.dtype.subdtype or (self.dtype, (1,))
            return types.Array(numpy_support.from_dtype(base), len(shape), "C", readonly=self.role == "other")
        base, shape = self.dtype.subdtype or (self.dtype, ())
        return types.Array(stored.element(base), 1 + len(shape), "C", readonly=self.role == "block")


@dataclass(frozen=True)
class Entry:
    """An entry point: the function behind it and its parameters.

    Indices of our own loops stay within what they go through, so that these need no checks, which would keep them from
    becoming vector instructions; functions that they call are checked by themselves.
    """

    symbol: str
    function: Any
    parameters: Sequence[Parameter]
    ours: bool = False


def element_type(dtype: np.dtype[Any]) -> Any:
    """Return Numba's type of one record, as indexing a block returns it."""
    base, shape = dtype.subdtype or (dtype, ())
    element = stored.element(base)
    return types.Array(element, len(shape), "C", readonly=True) if shape else stored.computed(element)


def result_type(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return the type that a function returns for some types of arguments: None, a dtype, or a list of these.

    A function that cannot be typed is a ``numba.core.errors.NumbaError``.
    """
    found = _compile(function, arguments, options).signature.return_type
    return _as_dtype(found)


def _as_dtype(found: Any) -> Any:
    found = types.unliteral(found)
    if isinstance(found, types.NoneType):
        return None
    if isinstance(found, types.BaseTuple):
        return [_as_dtype(one) for one in found]
    if isinstance(found, types.Optional):
        found = found.type
    if isinstance(found, types.Array):
        return str(found)
    try:
        return numpy_support.as_dtype(found)
    except NotImplementedError:
        return str(found)


def jitted(function: Any, options: Mapping[str, Any]) -> Any:
    """Make a function callable from others that are compiled here."""
    return function if isinstance(function, dispatcher.Dispatcher) else _jit(**options)(function)


@global_compiler_lock
def _compile(function: Any, arguments: Sequence[Any], options: Mapping[str, Any], *, ours: bool = False) -> Any:
    function = getattr(function, "py_func", function)
    _CHECKS[0] = bool(options.get("boundscheck"))
    if ours:
        options = {**options, "boundscheck": False}
    with targets.target_override(_NAME):
        flags = compiler.Flags()
        _Options.parse_as_flags(flags, {"nopython": True, **options})
        contexts = _DESCRIPTOR.typing_context, _DESCRIPTOR.target_context
        # Loops of our own add up their places, and compute nothing else.
        chosen = {"pipeline_class": compiler.Compiler if ours else _pipeline(function)}
        return compiler.compile_extra(*contexts, function, tuple(arguments), None, flags, {}, **chosen)


@global_compiler_lock
def compile_program(
    entries: Sequence[Entry],
    describe: Callable[[Mapping[int, str], int], bytes],
    options: Mapping[str, Any],
    state_bytes: int = 0,
) -> str:
    """Compile functions to the module of a program, in LLVM's intermediate representation.

    ``describe`` makes the metadata from the statuses that the functions may return, with what they mean, and from the
    bytes of scratchpad that their arrays take behind two states. ``options`` are ``fastmath`` and ``boundscheck``, as
    Numba has them. A function that cannot be typed, or needs what there is not, is a ``numba.core.errors.NumbaError``.
    """
    context = _DESCRIPTOR.target_context
    library = context.codegen().create_library("program")
    wrappers = context.codegen()._create_empty_module("entries")
    with targets.target_override(_NAME):
        for entry in entries:
            made = _compile(entry.function, [one.type for one in entry.parameters], options, ours=entry.ours)
            library.add_linking_library(made.library)
            _wrap(context, wrappers, entry, made, scratchpad=local_arrays.has_any(made.library._final_module))
    _count_nothing(wrappers)
    _noted(wrappers).initializer = ir.Constant(ir.ArrayType(_I64, 2), None)
    local_arrays.base(wrappers).initializer = ir.Constant(_I64, 0)
    library.add_ir_module(wrappers)
    library.finalize()
    module = library._final_module
    for name in (NOTE, local_arrays.BASE):
        module.get_global_variable(name).linkage = "internal"
    public = {entry.symbol for entry in entries}
    for function in module.functions:
        if not function.is_declaration and function.name not in public:
            function.linkage = "internal"
    text, scratchpad = local_arrays.placed(str(module), state_bytes)
    codes = {code: says for code, says in _CallHelper.known.items() if f"i32 {code}" in text}
    statuses = {-code: says for code, says in sorted(codes.items())}
    if any(one.role == "out" for entry in entries for one in entry.parameters):
        statuses[TOO_MANY] = "the function says that it wrote more records than there is room for"
    raw = describe(statuses, scratchpad)
    escaped = "".join(f"\\{byte:02x}" for byte in raw)
    text += f'\n@nd_program_metadata = constant [{len(raw)} x i8] c"{escaped}", section ".nandarray.program", align 1\n'
    return text


def _count_nothing(module: Any) -> None:
    """Define what counts references: nothing beside the data is ever freed."""
    pointer = ir.IntType(8).as_pointer()
    for name in ("NRT_incref", "NRT_decref"):
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer]), name)
        ir.IRBuilder(function.append_basic_block()).ret_void()


def _wrap(context: Any, module: Any, entry: Entry, made: Any, *, scratchpad: bool) -> None:
    """Write the entry point: arguments out of the argument block, results into it."""
    function_type = context.call_conv.get_function_type(made.fndesc.restype, made.fndesc.argtypes)
    callee = cgutils.get_or_insert_function(module, function_type, made.fndesc.llvm_func_name)
    outer = ir.Function(module, ir.FunctionType(_I64, [_I64.as_pointer()]), entry.symbol)
    builder = ir.IRBuilder(outer.append_basic_block("entry"))
    block = _Block(context, builder, outer.args[0])
    if scratchpad:
        builder.store(block.word(_SCRATCHPAD), local_arrays.base(module))
    values = [block.value(one) for one in entry.parameters]
    status, result = context.call_conv.call_function(builder, callee, made.fndesc.restype, made.fndesc.argtypes, values)
    with builder.if_then(status.is_error, likely=False):
        block.note()
        builder.ret(builder.neg(builder.sext(status.code, _I64)))
    outs = [one for one in entry.parameters if one.role == "out"]
    if outs:
        block.set_used(outs, types.unliteral(made.signature.return_type), result)
    builder.ret(ir.Constant(_I64, 0))


class _Block:
    """The argument block, while code that reads it is written."""

    def __init__(self, context: Any, builder: Any, pointer: Any) -> None:
        self.context, self.builder, self.pointer = context, builder, pointer

    def _at(self, index: int) -> Any:
        return self.builder.gep(self.pointer, [ir.Constant(_I64, index)])

    def note(self) -> None:
        """Say what a function noted of an index that was out of range."""
        noted = _noted(self.builder.module)
        for place in range(2):
            value = self.builder.gep(noted, [ir.Constant(_I64, 0), ir.Constant(_I64, place)])
            self.builder.store(self.builder.load(value), self._at(_NOTED + place))

    def word(self, index: int) -> Any:
        return self.builder.load(self._at(index))

    def value(self, one: Parameter) -> Any:
        """Return the LLVM value of an argument."""
        if one.role in {"stream", "out-stream"}:
            return self.context.get_dummy_value()
        if one.role == "scalar":
            return self._scalar(one)
        if one.role in _PLACES:
            return self.word(_PLACES[one.role] + one.index)
        if one.role == "ended":
            return self.word(_PACES + 2 * one.index + 1)
        if one.role == "taken":
            used = self.builder.ptrtoint(self._at(_INPUTS + one.index * _BUFFER_WORDS + 2), _I64)
            return self._array(one.type, used, [ir.Constant(_I64, 1)])
        if one.role in {"state", "other"}:
            address = self.word(_STATE if one.role == "state" else _OTHER_STATE)
            if one.dtype.names is not None:
                return self.builder.inttoptr(address, self.context.get_value_type(one.type))
            _, shape = one.dtype.subdtype or (one.dtype, (1,))
            return self._array(one.type, address, [ir.Constant(_I64, extent) for extent in shape])
        buffer = (_INPUTS if one.role == "block" else _OUTPUTS) + one.index * _BUFFER_WORDS
        count = self.builder.udiv(self.word(buffer + 1), ir.Constant(_I64, one.dtype.itemsize))
        _, shape = one.dtype.subdtype or (one.dtype, ())
        return self._array(one.type, self.word(buffer), [count, *(ir.Constant(_I64, extent) for extent in shape)])

    def _array(self, kind: Any, address: Any, shape: list[Any]) -> Any:
        array = make_array(kind)(self.context, self.builder)
        size = self.context.get_abi_sizeof(self.context.get_data_type(kind.dtype))
        strides: list[Any] = []
        step = ir.Constant(_I64, size)
        for extent in reversed(shape):
            strides.insert(0, step)
            step = self.builder.mul(step, extent)
        data = self.builder.inttoptr(address, array.data.type)
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=ir.Constant(_I64, size), meminfo=None)
        return array._getvalue()

    def _scalar(self, one: Parameter) -> Any:
        raw = self.word(_SCALARS + one.index)
        kind = self.context.get_value_type(one.type)
        if isinstance(kind, ir.IntType):
            return raw if kind.width == 64 else self.builder.trunc(raw, kind)  # noqa: PLR2004
        if isinstance(kind, ir.DoubleType):
            return self.builder.bitcast(raw, kind)
        width = ir.IntType(8 * one.dtype.itemsize)
        return self.builder.bitcast(self.builder.trunc(raw, width), kind)

    def set_used(self, outs: list[Parameter], kind: Any, result: Any) -> None:
        """Note how much was written: what the function returned, or all there is room for."""
        counts: list[Any] = [None] * len(outs)
        if isinstance(kind, types.Integer | types.Boolean):
            counts[0] = self.context.cast(self.builder, result, kind, types.int64)
        elif isinstance(kind, types.BaseTuple):
            parts = cgutils.unpack_tuple(self.builder, result, len(kind))
            each_kind: Any = kind
            pairs = zip(parts, each_kind, strict=True)
            counts = [self.context.cast(self.builder, part, each, types.int64) for part, each in pairs]
        for one, count in zip(outs, counts, strict=True):
            buffer = _OUTPUTS + one.index * _BUFFER_WORDS
            used = self.word(buffer + 1)
            if count is not None:
                room = self.builder.udiv(used, ir.Constant(_I64, one.dtype.itemsize))
                with self.builder.if_then(self.builder.icmp_unsigned(">", count, room), likely=False):
                    self.builder.ret(ir.Constant(_I64, TOO_MANY))
                used = self.builder.mul(count, ir.Constant(_I64, one.dtype.itemsize))
            self.builder.store(used, self._at(buffer + 2))
