"""A Python function as a digest: its code, and all that compiling it reads.

Two functions with one fingerprint compile to the same program. Numba takes globals and closures as constants, so their
values belong to it. An object that cannot be compared by value (an open file, an instance of some class) has no
fingerprint, and a function that uses it is compiled every time. Needs no compiler.
"""

from __future__ import annotations

import enum
import hashlib
import types
from typing import Any

import numpy as np

__all__ = ["fingerprint", "names_of"]

_BYTES_MAX = 64 << 20
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))


def _is_constant(value: Any) -> bool:
    """Whether a value is one that compiled functions take as a constant whatever version its module has."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, (*_PLAIN, np.ndarray, np.generic))


class _NoValueError(Exception):
    """Something has no value that could be compared."""


def fingerprint(*values: Any) -> str | None:
    """Return the digest, hexadecimal, of functions, numbers, text, dtypes, arrays, and collections of them.

    It is None if something among it has no value to compare.
    """
    walk = _Walk()
    try:
        for value in values:
            walk.value(value)
    except (_NoValueError, RecursionError):
        return None
    return walk.digest.hexdigest()


class _Walk:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.alive: list[Any] = []  # so that no id is used twice
        self.names: set[str] = set()  # that the function looks up which is walked now
        self.modules: set[tuple[str, frozenset[str]]] = set()  # said already, with the names looked up in them

    def say(self, *parts: Any) -> None:
        for part in parts:
            raw = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
            self.digest.update(len(raw).to_bytes(8, "little") + raw)

    def value(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            self.say(type(value).__name__, repr(value))
        elif isinstance(value, types.ModuleType):
            self.module(value)
        elif id(value) in self.seen:
            self.say("seen", self.seen[id(value)])
        else:
            self.seen[id(value)] = len(self.seen)
            self.alive.append(value)
            self.compound(value)

    def compound(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, types.CodeType):
            self.code(value)
        elif kind in (tuple, list):
            self.say(kind.__name__, len(value))
            for item in value:
                self.value(item)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            self.say(kind.__module__, kind.__qualname__, *value._fields)
            self.value(tuple(value))
        elif kind is dict:
            self.say("dict", len(value))
            for key, item in value.items():
                self.value(key)
                self.value(item)
        elif kind in (set, frozenset):
            self.say(kind.__name__, *sorted(map(repr, value)))
        elif isinstance(value, np.dtype):
            self.say("dtype", repr(value), value.itemsize)
        elif isinstance(value, np.ndarray | np.generic):
            self.array(np.asarray(value))
        elif isinstance(value, type):
            self.say("class", value.__module__, value.__qualname__)
            # Constants of enumerations, and the places of fields, are compiled into functions.
            if issubclass(value, enum.Enum):
                self.value([(name, one.value) for name, one in value.__members__.items()])
            elif issubclass(value, tuple) and hasattr(value, "_fields"):
                self.value([value._fields, getattr(value, "_field_defaults", {})])
        elif isinstance(value, types.BuiltinFunctionType | np.ufunc):
            self.say("builtin", getattr(value, "__module__", ""), value.__name__)
        elif hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            self.say("jitted", sorted(map(repr, value.targetoptions.items())))
            self.value(value.py_func)
        else:
            raise _NoValueError

    def array(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.hasobject or array.nbytes > _BYTES_MAX:
            raise _NoValueError
        self.say("array", repr(array.dtype), array.shape, array.tobytes())

    def function(self, function: types.FunctionType) -> None:
        self.say("function", function.__name__)
        code = function.__code__
        before, self.names = self.names, names_of(code)
        self.code(code)
        self.value(function.__defaults__)
        self.value(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                self.value(cell.cell_contents)
            except ValueError:
                self.say("empty cell")
        for name in sorted(self.names):
            if name in function.__globals__:
                self.say("global", name)
                self.value(function.__globals__[name])
        self.names = before

    def module(self, module: types.ModuleType, package: str | None = None) -> None:
        """Say what the function may take from a module; of one with a version, or its package's, only constants."""
        version = getattr(module, "__version__", package)
        self.say("module", module.__name__, version or "")
        if (key := (module.__name__, frozenset(self.names))) in self.modules:
            return
        self.modules.add(key)
        for name in sorted(self.names & set(vars(module))):
            found = vars(module)[name]
            if version is None or _is_constant(found):
                self.say("member", name)
                self.value(found)
            elif isinstance(found, types.ModuleType) and found.__name__.startswith(f"{module.__name__}."):
                self.say("member", name)
                self.module(found, version)

    def code(self, code: types.CodeType) -> None:
        # Lines are part of what errors say; the folder is not.
        self.say("code", code.co_code, code.co_firstlineno, code.co_linetable, code.co_argcount, code.co_flags)
        self.say(*code.co_names, "|", *code.co_varnames, "|", *code.co_freevars, "|", *code.co_cellvars)
        self.value(code.co_consts)


def names_of(code: types.CodeType) -> set[str]:
    """Return the names that a function, and those inside it, look up: globals, attributes, modules."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_of(constant)
    return found
