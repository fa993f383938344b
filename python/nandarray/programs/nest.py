"""Loop nests as kernels: a restricted Python function becomes C and a description table.

A function whose parameters are annotated with :class:`Read`, :class:`Write`, :class:`Update`, :class:`Temporary`,
``float`` or ``int`` is read, never run. Each ``for i in screens(...)`` at its top level is a microblock whose screens
share the rows; statements between them are serial microblocks. Subscripts say what a screen maps: ``X[i, j]`` its rows,
``X[i - 1, j]`` a row more, everything else all of ``X``.

The language: loops over ``range``, ``if``, assignments, arithmetic, comparisons, ``min``, ``max``, ``abs``, ``sqrt``,
``exp``, ``int``, ``float``. Integers have 64 bits; ``//`` and ``%`` of them round towards zero, as in C. A kernel of
any other form is written in C.

A subscript whose range does not follow from the loops around it, as one that comes from data, is compared with its
extent when it is used: bad data ends the kernel with an error and touches nothing.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nandarray.errors import CompileError
from nandarray.programs.nest_ranges import Ranges

__all__ = ["Read", "Temporary", "Update", "Write", "derive", "screens"]


@dataclass(frozen=True)
class _Annotation:
    """A data section: dtype and extents, which are names or numbers."""

    role: str
    dtype: str
    shape: tuple[str | int, ...]


class _Role:
    role = ""

    def __class_getitem__(cls, given: Any) -> Any:
        dtype, *shape = given if isinstance(given, tuple) else (given,)
        return _Annotation(cls.role, np.dtype(dtype).str.lstrip("<|="), tuple(shape))


class Read(_Role):
    """A section that a kernel reads: ``Read["f4", "m", "n"]``."""

    role = "read"


class Write(_Role):
    """A section that begins as zeros and is a result."""

    role = "write"


class Update(_Role):
    """A section that begins as an array and replaces it."""

    role = "update"


class Temporary(_Role):
    """A section that begins as zeros and is dropped."""

    role = "temporary"


def screens(start: int, stop: int | None = None) -> range:
    """Return the rows of a microblock, as :func:`range` does: its screens share them."""
    return range(start) if stop is None else range(start, stop)


_C = {"f4": "float", "f8": "double", "i4": "int32_t", "i8": "int64_t", "u4": "uint32_t", "u1": "uint8_t"}
_OPS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%"}
_OPS |= {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_WEAK = "weak"  # a number without a width of its own
_NARROW, _UNSIGNED = "narrow", "u4"  # integers that C computes with in 32 bits, with a sign and without
_INTEGERS = ("i8", _NARROW, _UNSIGNED)
_OF_INTEGERS = (ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
# Words of C, and names that the text around a loop nest has.
_OF_C = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
args at_ first_ last_ int64_t int32_t uint32_t uint8_t size_t NULL
"""
_TAKEN = frozenset(_OF_C.split())


@dataclass
class _Microblock:
    name: str
    variable: str | None = None
    reads: dict[str, set[int] | None] = field(default_factory=dict)
    writes: dict[str, set[int] | None] = field(default_factory=dict)
    locals: dict[str, str] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)


# The text in front of microblocks with checks; its words and the number are those of crates/nandarray-cores/src/abi.rs.
_OUTSIDE = """
static int64_t nd_outside(nd_args *args, int64_t section, int64_t axis, int64_t index, int64_t extent, int64_t row,
                          int64_t turn, int64_t line) {
    const int64_t told[] = {section, axis, index, extent, row, turn, line};
    for (int i = 0; i < 7; i++) args->noted[i] = told[i];
    return INT64_MIN;
}
"""


def derive(function: Callable[..., Any], *, checked: bool = True) -> tuple[str, dict[str, Any]]:
    """Derive C, the text of a file, and the description table in it from a loop nest, the decorated function.

    Without ``checked``, subscripts are not compared with extents. A CompileError says that it is outside of the
    language, or that screens of a microblock would meet.
    """
    return _Nest(function, checked=checked).result()


class _Nest:
    def __init__(self, function: Callable[..., Any], *, checked: bool) -> None:
        self.function = function
        self.checked = checked
        self.ranges = Ranges()
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, TypeError, SyntaxError) as error:
            raise CompileError(f"{function!r} has no text that could be read: {error}") from None
        if not isinstance(tree, ast.FunctionDef):
            raise CompileError(f"{function!r} is no function that begins with def")
        self.tree = tree
        self.offset = function.__code__.co_firstlineno - 1
        given = inspect.get_annotations(function, eval_str=True)
        self.sections: dict[str, _Annotation] = {}
        self.scalars: dict[str, str] = {}
        for name in inspect.signature(function).parameters:
            one = given.get(name)
            if isinstance(one, _Annotation):
                if one.dtype not in _C:
                    listed = ", ".join(_C)
                    raise CompileError(f"{function.__name__}: {name} must be of dtype {listed}, not {one.dtype}")
                self.sections[name] = one
            elif one in (float, int):
                self.scalars[name] = "f8" if one is float else "i8"
            else:
                raise CompileError(f"{function.__name__}: parameter {name} has no annotation of a section or a number")
        self.extents: dict[str, tuple[str, int]] = {}
        for name, one in self.sections.items():
            for axis, extent in enumerate(one.shape):
                if isinstance(extent, str):
                    self.extents.setdefault(extent, (name, axis))
        self.inputs = [n for n, s in self.sections.items() if s.role == "read"]
        self.outputs = [n for n, s in self.sections.items() if s.role != "read"]
        self.microblocks: list[_Microblock] = []
        self.current = _Microblock("")
        self.loops: list[str] = []  # variables of the loops around
        for name in (*self.sections, *self.scalars, *self.extents):
            self._check_name(tree, name)

    # --- statements ---------------------------------------------------------------------------------------------------

    def result(self) -> tuple[str, dict[str, Any]]:
        serial: list[ast.stmt] = []
        body = [s for s in self.tree.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        for statement in body:
            if _is_screens(statement):
                self._serial(serial)
                serial = []
                assert isinstance(statement, ast.For)
                self._parallel(statement)
            else:
                serial.append(statement)
        self._serial(serial)
        if not self.microblocks:
            raise CompileError(f"{self.function.__name__}: a kernel has one statement at least")
        table = self._table()
        return self._text(table), table

    def _serial(self, statements: list[ast.stmt]) -> None:
        if statements:
            self.current = _Microblock(f"m{len(self.microblocks)}")
            self.current.body = self._block(statements, 1)
            self.microblocks.append(self.current)

    def _parallel(self, loop: ast.For) -> None:
        assert isinstance(loop.iter, ast.Call)
        if not isinstance(loop.target, ast.Name):
            raise self._error(loop, f"{ast.unparse(loop.target)} is no variable of a loop")
        self.current = block = _Microblock(f"m{len(self.microblocks)}", loop.target.id)
        start, stop, _ = self._limits(loop, most=2)
        inner = self._within(loop, 2)
        rows = self._rows(loop)
        i = block.variable
        block.body = [
            f"    int64_t first_ = nd_first(args, {rows}), last_ = nd_last(args, {rows});",
            f"    if (first_ < {start}) first_ = {start};",
            f"    if (last_ > {stop}) last_ = {stop};",
            f"    for (int64_t {i} = first_; {i} < last_; {i}++) {{",
            *inner,
            "    }",
        ]
        self.microblocks.append(block)

    def _rows(self, loop: ast.For) -> str:
        """Return the extent that a microblock's screens share: the rows of the sections that it writes."""
        block = self.current
        found = {str(self.sections[name].shape[0]) for name in block.writes}
        if len(found) != 1:
            raise self._error(
                loop, f"the rows of its outputs are {', '.join(sorted(found)) or 'none'}; screens share one"
            )
        for name, distances in block.writes.items():
            if distances is None or distances != {0}:
                raise self._error(
                    loop, f"its screens would meet in {name}: it is written elsewhere than in row {block.variable}"
                )
            if block.reads.get(name, {0}) not in ({0}, set()):
                raise self._error(loop, f"its screens would meet in {name}: one reads rows that another writes")
        rows = found.pop()
        for name in list(block.reads):
            if str(self.sections[name].shape[0]) != rows:
                block.reads[name] = None
        return rows

    def _block(self, statements: Iterable[ast.stmt], depth: int) -> list[str]:
        made: list[str] = []
        for statement in statements:
            made += self._statement(statement, "    " * depth, depth)
        return made

    def _statement(self, s: ast.stmt, pad: str, depth: int) -> list[str]:
        match s:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                code, kind = self._expression(value)
                self._local(s, name, kind)
                return [f"{pad}{name} = {code};"]
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                return [f"{pad}{self._subscript(target, write=True)[0]} = {self._expression(value)[0]};"]
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                if name not in self.current.locals:
                    raise self._error(s, f"{name} has no value yet")
                code, kind = self._binary(s, (name, self.current.locals[name]), op, self._expression(value))
                self._local(s, name, kind)
                return [f"{pad}{name} = {code};"]
            case ast.AugAssign(target=ast.Subscript() as target, op=op, value=value):
                place, kind = self._subscript(target, write=True)
                self._note(target, self.current.reads)
                return [f"{pad}{place} = {self._binary(s, (place, kind), op, self._expression(value))[0]};"]
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"))):
                start, stop, step = self._limits(s, most=3)
                first = f"int64_t {name} = {start}"
                if _assigned(s.body) & _names(s.iter):  # Python computes the end once, before the first turn
                    first, stop = f"{first}, {name}_end_ = {stop}", f"{name}_end_"
                up, down = f"{name} < {stop}", f"{name} > {stop}"
                test = down if step.startswith("(-") else up
                if not step.strip("()-").isdigit():  # a number of the kernel, of which only the run knows the sign
                    test = f"{step} > 0 ? {up} : {step} < 0 && {down}"
                head = f"{pad}for ({first}; {test}; {name} += {step}) {{"
                return [head, *self._within(s, depth + 1), pad + "}"]
            case ast.If(test=test, body=body, orelse=orelse):
                made = [f"{pad}if ({self._truth(test)}) {{", *self._block(body, depth + 1)]
                if orelse:
                    made += [pad + "} else {", *self._block(orelse, depth + 1)]
                return [*made, pad + "}"]
            case ast.While(test=test, body=body, orelse=[]):
                return [f"{pad}while ({self._truth(test)}) {{", *self._block(body, depth + 1), pad + "}"]
            case ast.Break():
                return [pad + "break;"]
            case ast.Continue():
                return [pad + "continue;"]
        raise self._error(s, f"{type(s).__name__} is not in the language of loop nests")

    def _within(self, loop: ast.For, depth: int) -> list[str]:
        """Return the statements within a loop."""
        assert isinstance(loop.target, ast.Name)
        name = loop.target.id
        self._check_new(loop, name)
        if name in self.current.locals:
            raise self._error(loop, f"{name} is a number already, and would be the variable of a loop")
        if loop.orelse:
            raise self._error(loop.orelse[0], "else behind a loop is not in the language of loop nests")
        self.loops.append(name)
        with self.ranges.loop(name, loop, {*self.extents}):
            made = self._block(loop.body, depth)
        self.loops.pop()
        return made

    def _limits(self, loop: ast.For, *, most: int) -> tuple[str, str, str]:
        """Return start, stop and step of a loop."""
        assert isinstance(loop.iter, ast.Call)
        given, word = loop.iter.args, ast.unparse(loop.iter)
        if loop.iter.keywords or not 1 <= len(given) <= most or any(isinstance(one, ast.Starred) for one in given):
            raise self._error(loop, f"{word} is not in the language of loop nests: it takes 1 to {most} numbers")
        limits = [self._expression(one) for one in given]
        if wrong := [one for one, (_, kind) in zip(given, limits, strict=True) if kind not in _INTEGERS]:
            raise self._error(loop, f"{ast.unparse(wrong[0])} is no integer, as {word} needs it")
        codes = [code for code, _ in limits]
        if len(codes) < 3:  # noqa: PLR2004
            return codes[0] if len(codes) > 1 else "0", codes[-1], "1"
        match given[2]:
            case ast.Constant(value=int(step)) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(step))):
                if step:
                    return codes[0], codes[1], codes[2]
            case ast.Name(id=name) if name in self.scalars:
                return codes[0], codes[1], codes[2]
        raise self._error(loop, f"the step of {word} is a number of the kernel, or one that stands there, and not 0")

    def _check_name(self, at: ast.AST, name: str) -> None:
        if name in _TAKEN or name.startswith("nd_") or name.endswith("_end_"):
            raise self._error(at, f"{name} is a word of C, or one of the text around a kernel: take another name")

    def _check_new(self, at: ast.AST, name: str) -> None:
        """Refuse to assign to what has a meaning of its own."""
        self._check_name(at, name)
        kinds = {"a section": [*self.sections], "an extent": [*self.extents], "a number of the kernel": [*self.scalars]}
        for what, names in {**kinds, "the variable of a loop": self.loops}.items():
            if name in names:
                raise self._error(at, f"{name} is {what}, and would get another value")

    def _local(self, at: ast.AST, name: str, kind: str) -> None:
        self._check_new(at, name)
        kind = "i8" if kind in _INTEGERS else kind
        known = self.current.locals.get(name, _WEAK)
        self.current.locals[name] = kind if known == _WEAK else known if kind == _WEAK else _wider(known, kind)

    # --- expressions --------------------------------------------------------------------------------------------------

    def _expression(self, e: ast.expr) -> tuple[str, str]:
        match e:
            case ast.Constant(value=bool(value)):
                return str(int(value)), _NARROW
            case ast.Constant(value=int(value)) if value < 1 << 63:
                return str(value), _NARROW if value < 1 << 31 else "i8"
            case ast.Constant(value=float(value)) if math.isfinite(value):
                return repr(value), _WEAK
            case ast.Name(id=name):
                return name, self._kind(e, name)
            case ast.Subscript():
                return self._subscript(e, write=False)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(e, self._expression(left), op, self._expression(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                code, kind = self._expression(operand)
                if not isinstance(operand, ast.Constant):
                    code, kind = self._wide((code, kind))
                return f"(-{code})", kind
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                (a, _), (b, _) = self._even(self._expression(left), self._expression(right))
                return f"({a} {_COMPARE[type(op)]} {b})", _NARROW
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp() if _is_truth(e):
                return self._truth(e), _NARROW
            case ast.IfExp(test=test, body=body, orelse=orelse):
                (yes, kind), (no, other) = self._even(self._expression(body), self._expression(orelse))
                return f"({self._truth(test)} ? {yes} : {no})", _wider(kind, other)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(e, name, [self._expression(one) for one in args])
        raise self._error(e, f"{ast.unparse(e)} is not in the language of loop nests")

    def _truth(self, e: ast.expr) -> str:
        """Return what is true or not: ``and`` and ``or`` give one of their sides only where that does not matter."""
        match e:
            case ast.BoolOp(op=op, values=values):
                word = " && " if isinstance(op, ast.And) else " || "
                return f"({word.join(self._truth(v) for v in values)})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(!{self._truth(operand)})"
        return self._expression(e)[0]

    def _kind(self, e: ast.expr, name: str) -> str:
        if name in self.loops or name in self.extents:
            return "i8"
        known = self.scalars.get(name) or self.current.locals.get(name)
        if known is None:
            what = "a section: it has subscripts" if name in self.sections else "not known, or has no value yet"
            raise self._error(e, f"{name} is {what}")
        return known

    def _even(self, left: tuple[str, str], right: tuple[str, str]) -> tuple[tuple[str, str], tuple[str, str]]:
        """Have C compare two integers with a sign, which it does not where one of 32 bits has none."""
        if _UNSIGNED in (left[1], right[1]):
            left, right = self._wide(left), self._wide(right)
        return left, right

    def _wide(self, one: tuple[str, str]) -> tuple[str, str]:
        return (f"(int64_t){one[0]}", "i8") if one[1] in (_NARROW, _UNSIGNED) else one

    def _call(self, e: ast.expr, name: str, args: list[tuple[str, str]]) -> tuple[str, str]:
        if name in ("min", "max") and len(args) == 2:  # noqa: PLR2004
            (a, kind), (b, other) = self._even(*args)
            return f"({a} {'<' if name == 'min' else '>'} {b} ? {a} : {b})", _wider(kind, other)
        if name in ("sqrt", "exp", "abs") and len(args) == 1:
            code, kind = args[0]
            short = "f" if kind == "f4" else ""
            if name == "abs" and kind in _INTEGERS:
                code = self._wide(args[0])[0]
                return f"({code} < 0 ? -({code}) : {code})", "i8"
            return f"{'fabs' if name == 'abs' else name}{short}({code})", kind
        if name in ("int", "float") and len(args) == 1:
            return (f"((int64_t){args[0][0]})", "i8") if name == "int" else (f"((double){args[0][0]})", "f8")
        raise self._error(e, f"{name}() is not in the language of loop nests")

    def _binary(self, e: ast.AST, left: tuple[str, str], op: ast.operator, right: tuple[str, str]) -> tuple[str, str]:
        (a, kind), (b, other) = left, right
        if type(op) not in _OPS:
            raise self._error(e, f"operator {type(op).__name__} is not in the language of loop nests")
        wide = _wider(kind, other)
        if isinstance(op, _OF_INTEGERS) and wide not in _INTEGERS:
            word = "//" if isinstance(op, ast.FloorDiv) else _OPS[type(op)]
            raise self._error(e, f"{word} of floats is not in the language of loop nests")
        if wide == "f4":
            a = f"(float){a}" if kind == _WEAK else a
            b = f"(float){b}" if other == _WEAK else b
        if isinstance(op, ast.Div) and wide in _INTEGERS:
            return f"((double){a} / {b})", "f8"
        if wide in _INTEGERS:
            # One side of 64 bits is enough, but of shifts the left one counts.
            a = a if other == "i8" and not isinstance(op, ast.LShift | ast.RShift) else self._wide((a, kind))[0]
            return f"({a} {_OPS[type(op)]} {b})", "i8"
        return f"({a} {_OPS[type(op)]} {b})", wide

    def _subscript(self, e: ast.Subscript, *, write: bool) -> tuple[str, str]:
        if not isinstance(e.value, ast.Name) or e.value.id not in self.sections:
            raise self._error(e, f"{ast.unparse(e.value)} is no section of the kernel")
        name = e.value.id
        section = self.sections[name]
        index = list(e.slice.elts) if isinstance(e.slice, ast.Tuple) else [e.slice]
        if len(index) != len(section.shape):
            raise self._error(e, f"{name} has {len(section.shape)} dimensions")
        if write and section.role == "read":
            raise self._error(e, f"{name} is read, and would be written")
        self._note(e, self.current.writes if write else self.current.reads)
        places = [self._expression(one) for one in index]
        for one, (_, kind) in zip(index, places, strict=True):
            if kind not in _INTEGERS or isinstance(one, ast.UnaryOp) and isinstance(one.operand, ast.Constant):
                raise self._error(e, f"an index of {name} must be an integer from 0 on, not {ast.unparse(one)}")
        codes = [
            code if not self.checked or self.ranges.inside(one, extent) else self._check(e, name, axis, code)
            for axis, (one, extent, (code, _)) in enumerate(zip(index, section.shape, places, strict=True))
        ]
        code = codes[0]
        for extent, place in zip(section.shape[1:], codes[1:], strict=True):
            code = f"({code}) * {extent} + {place}"
        kind = section.dtype
        return f"{name}[{code}]", kind if kind in ("f4", "f8", "i8", _UNSIGNED) else _NARROW

    def _check(self, e: ast.Subscript, name: str, axis: int, code: str) -> str:
        """Return an index that ends the microblock with an error unless it is inside of its extent."""
        section, extent = [*self.inputs, *self.outputs].index(name) + 1, self.sections[name].shape[axis]
        row = self.current.variable
        turn = self.loops[-1] if self.loops and self.loops[-1] != row else None
        told = f"{section}, {axis}, at_, {extent}, {row or 'INT64_MIN'}, {turn or 'INT64_MIN'}, {self._line(e)}"
        test = f"if (__builtin_expect((uint64_t)at_ >= (uint64_t){extent}, 0)) return nd_outside(args, {told});"
        return f"({{ const int64_t at_ = {code}; {test} at_; }})"

    def _note(self, e: ast.Subscript, noted: dict[str, set[int] | None]) -> None:
        """Note the rows that a subscript reaches: their distances from the screen's, or None for all."""
        assert isinstance(e.value, ast.Name)
        first = e.slice.elts[0] if isinstance(e.slice, ast.Tuple) else e.slice
        distance = self._distance(first)
        known = noted.get(e.value.id, set())
        noted[e.value.id] = None if distance is None or known is None else known | {distance}

    def _distance(self, e: ast.expr) -> int | None:
        i = self.current.variable
        match e:
            case ast.Name(id=name) if i is not None and name == i:
                return 0
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=ast.Constant(value=int(c))) if name == i:
                return c
            case ast.BinOp(left=ast.Name(id=name), op=ast.Sub(), right=ast.Constant(value=int(c))) if name == i:
                return -c
        return None

    # --- text ---------------------------------------------------------------------------------------------------------

    def _table(self) -> dict[str, Any]:
        def section(name: str) -> dict[str, Any]:
            one = self.sections[name]
            made: dict[str, Any] = {"name": name, "dtype": one.dtype, "shape": list(one.shape)}
            return made | ({one.role: True} if one.role in ("update", "temporary") else {})

        def part(distances: set[int] | None) -> Any:
            if distances is None:
                return "all"
            before, behind = max(0, -min(distances, default=0)), max(0, max(distances, default=0))
            return {"rows": [before, behind]} if before or behind else "rows"

        microblocks = []
        for block in self.microblocks:
            rows = next(iter(block.writes), None) if block.variable else None
            microblocks.append(
                {
                    "entry": block.name,
                    "screens": rows or 1,
                    "reads": {name: part(found if block.variable else None) for name, found in block.reads.items()},
                    "writes": {name: part(found if block.variable else None) for name, found in block.writes.items()},
                }
            )
        return {
            "name": self.function.__name__,
            "kind": "kernel",
            "inputs": [section(name) for name in self.inputs],
            "outputs": [section(name) for name in self.outputs],
            "scalars": [{"name": n, "dtype": "float64" if k == "f8" else "int64"} for n, k in self.scalars.items()],
            "microblocks": microblocks,
        }

    def _text(self, table: dict[str, Any]) -> str:
        said = json.dumps(table)[1:-1]
        parts = ["#include <nandarray.h>", "#include <math.h>", f"ND_PROGRAM({said})"]
        if any("nd_outside" in line for block in self.microblocks for line in block.body):
            parts.append(_OUTSIDE)
        for block in self.microblocks:
            used = {*block.reads, *block.writes}
            head = []
            for role, names in (("IN", self.inputs), ("OUT", self.outputs)):
                for number, name in enumerate(names):
                    if name in used:
                        kind = _C[self.sections[name].dtype]
                        const = "const " if role == "IN" else ""
                        head.append(f"    {const}{kind} *{name} = ND_SECTION_{role}(args, {number}, {kind});")
            for extent, (name, axis) in self.extents.items():
                port = (
                    f"inputs[{self.inputs.index(name)}]"
                    if name in self.inputs
                    else f"outputs[{self.outputs.index(name)}]"
                )
                head.append(f"    const int64_t {extent} = (int64_t)args->{port}.shape[{axis}]; (void){extent};")
            for number, (name, kind) in enumerate(self.scalars.items()):
                read = "nd_scalar_f64" if kind == "f8" else "nd_scalar_i64"
                head.append(f"    const {_C[kind]} {name} = {read}(args, {number}); (void){name};")
            head += [f"    {_C['f8' if kind == _WEAK else kind]} {name} = 0;" for name, kind in block.locals.items()]
            parts.append("\n".join([f"ND_MICROBLOCK({block.name}) {{", *head, *block.body, "    return 0;", "}"]))
        return "\n".join(parts) + "\n"

    def _line(self, e: ast.AST) -> int:
        return self.offset + int(getattr(e, "lineno", 1))

    def _error(self, e: ast.AST, says: str) -> CompileError:
        line = self._line(e)
        file = self.function.__code__.co_filename
        one = {"file": file, "line": line, "column": 0, "severity": "error", "text": says}
        return CompileError(f"{file}:{line}: {self.function.__name__}: {says}", diagnostics=[one])


def _is_screens(s: ast.stmt) -> bool:
    return (
        isinstance(s, ast.For)
        and isinstance(s.iter, ast.Call)
        and isinstance(s.iter.func, ast.Name | ast.Attribute)
        and (s.iter.func.id if isinstance(s.iter.func, ast.Name) else s.iter.func.attr) == "screens"
    )


def _is_truth(e: ast.expr) -> bool:
    """Return whether an expression is True or False in Python, and not one of its operands."""
    match e:
        case ast.BoolOp(values=values):
            return all(map(_is_truth, values))
        case ast.UnaryOp(op=ast.Not()) | ast.Compare() | ast.Constant(value=bool()):
            return True
    return False


def _names(tree: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}


def _assigned(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements give values to, sections among them."""
    found = set[str]()
    for one in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(one, ast.Assign | ast.AugAssign):
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                place = target.value if isinstance(target, ast.Subscript) else target
                found |= {place.id} if isinstance(place, ast.Name) else set()
    return found


def _wider(a: str, b: str) -> str:
    """Return the kind of a result of two kinds."""
    if _WEAK in (a, b):
        other = b if a == _WEAK else a
        return other if other in ("f4", "f8", _WEAK) else "f8"
    return max(a, b, key=(_NARROW, _UNSIGNED, "i8", "f4", "f8").index)
