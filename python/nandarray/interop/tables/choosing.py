"""Rows chosen beside the data: a test over columns that are arrays becomes the program ``rows``.

A :class:`Chooser` takes from a conjunction the parts that one program decides, over eight arrays at most, values and
booleans of missing ones together; what is left is Arrow's, over the rows that come back. Missing values have SQL's
logic: the test is written so that each comparison says whether it is true, or whether it is false, and both ask first
whether the value is there. A test of text that is stored by codes is decided by Arrow over the dictionary, and becomes
one of codes.

Constants that are compared with are scalars of the program, so that another constant needs no other program.
Nothing here knows how a table lies in a store, which rows need not be asked
(:mod:`nandarray.interop.tables.zones`), or how C says a test (:mod:`nandarray.programs.library.rows`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from nandarray.array.joined import Joined
from nandarray.errors import InvalidError
from nandarray.interop.tables.expressions import column_type, expression_of, literal, operand_kind
from nandarray.interop.tables.kinds import (
    DIGITS_64,
    Kind,
    bound,
    comparable,
    fraction,
    kind_of,
    value_type,
    whole_bound,
)
from nandarray.interop.tables.where import Test, Value, conjuncts, names
from nandarray.programs import library
from nandarray.programs.library.rows import INPUTS_MAX, SCALARS_MAX, cost, typed, written
from nandarray.programs.ports import Box
from nandarray.programs.run import offload

if TYPE_CHECKING:
    from nandarray.array.array import Array
    from nandarray.programs.program import Program

__all__ = ["Chooser", "Operand"]

Tree = tuple[Any, ...]
#: Rows of one run, whose numbers have 32 bits.
RUN_ROWS = 1 << 30
#: Decimals of more digits than 64 bits have, as Arrow has them.
_LIMBS = np.dtype("V16")
#: Ranges of codes, and values of a set, that are written into the program; others become a table.
_RANGES_MAX = 8
#: Comparisons of a program, at most: the compiler takes longer than in proportion to them.
_COMPARISONS_MAX = 1000
#: Bytes of a table, at most: an input that every task gets whole.
_TABLE_BYTES = 64 << 20
_TOO_MUCH = re.compile(r"outputs in memory must have at most \d+ bytes")


class _Undecided(Exception):
    """A part of a test that the program does not decide."""


@dataclass(frozen=True)
class Operand:
    """A column that lies in arrays with an element a row.

    Parameters
    ----------
    name : str
        The column's name.
    type : pyarrow.DataType
        Its Arrow type.
    values : Array or None
        Values, an element a row (of any dimensions for :meth:`Chooser.numbers`), as Arrow stores them: whole numbers of
        the type's unit (a decimal times 10^S, of more than 18 digits in 16 bytes), floats, or booleans; codes where a
        dictionary is given; None for text that no program reads.
    valid : Array or None
        Booleans, false for missing values; None if none is missing.
    dictionary : pyarrow.Array or None
        The value of each code.
    """

    name: str
    type: Any
    values: Array | None
    valid: Array | None = None
    dictionary: Any = None


class Chooser:
    """A test over columns, decided beside the data as far as one program can.

    Parameters
    ----------
    test : Test or None
        The test; None is true for every row.
    operands : mapping of str to Operand
        Columns by name.

    Attributes
    ----------
    left : Test or None
        The part that Arrow has to decide over the rows that come back.

    Raises
    ------
    NotFoundError
        The test has a column that is not there.
    InvalidError
        A value is none of its column's kind.
    """

    def __init__(self, test: Test | None, operands: Mapping[str, Operand]) -> None:
        self._schema = pa.schema([(name, one.type) for name, one in operands.items()])
        self._inputs = Inputs(operands)
        self._decided: list[Tree] = []
        left: list[Tree] = []
        for part in conjuncts(test.tree) if test is not None else ():
            expression_of(Test(part), self._schema)  # what fits no column is refused now
            kept = self._inputs.copy()
            try:
                lowered = simple(Lowering(self._inputs, self._schema).truth(part, wanted=True))
                self._inputs.check(lowered)
                if sum(map(cost, [*self._decided, lowered])) > _COMPARISONS_MAX:
                    raise _Undecided("too many comparisons")
            except (_Undecided, InvalidError):
                self._inputs = kept
                left.append(part)
            else:
                self._decided.append(lowered)
        self.left = None if not left else Test(left[0] if len(left) == 1 else ("and", *left))

    @property
    def decides(self) -> bool:
        """Whether a program decides a part of the test."""
        return bool(self._decided)

    @property
    def program(self) -> Program | None:
        """The program; None where every row, or none, passes whatever the arrays have."""
        tree = simple(("and", *self._decided))
        if tree in (("true",), ("not", ("true",))):
            return None
        return library.get("rows", inputs=self._inputs.dtypes, scalars=self._inputs.scalar_dtypes, where=tree)

    def rows(self, begin: int, end: int, **options: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers of the rows for which the decided part is true.

        Parameters
        ----------
        begin, end : int
            The first row to look at, and the one behind the last.
        **options
            Options of :func:`nandarray.offload`, of each run.

        Returns
        -------
        numpy.ndarray
            Numbers in the table, int64, ascending.
        """
        found = [
            self.numbers((slice(first, min(end, first + RUN_ROWS)),), **options) + first
            for first in range(begin, end, RUN_ROWS)
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def numbers(self, box: tuple[slice, ...], **options: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return which elements of a box pass, of operands of any dimensions, counted in the box in C order.

        Parameters
        ----------
        box : tuple of slice
            A range of each dimension, of at most 2^30 elements together.
        **options
            Options of :func:`nandarray.offload`, of each run.
        """
        program, count = self.program, math.prod(max(0, one.stop - one.start) for one in box)
        if program is None or not count:
            none = simple(("and", *self._decided)) != _TRUE
            return np.arange(0 if none else count, dtype=np.int64)
        found = list(self._runs(program, box, options))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def fold(self, asked: Sequence[tuple[Any, ...]], begin: int, end: int, **options: Any) -> list[Any] | None:
        """Compute counts, sums, least and greatest values of the rows for which the test is true, in one pass.

        Parameters
        ----------
        asked : sequence of tuple
            ``("count",)`` of rows; ``("count", x)`` of values that are there; ``("sum", x)``, ``("min", x)``,
            ``("max", x)``. An x is a column's name, or a value computed of columns.
        begin, end : int
            The first row to look at, and the one behind the last.
        **options
            Options of :func:`nandarray.offload`, of each run.

        Returns
        -------
        list or None
            A result for each. Sums of whole numbers are exact, ``int`` or ``Decimal``; those of floats are the same
            with any number of cores. The least and the greatest value of a column are scalars of its type, NaN only if
            there is nothing else. Without a value a result is None. None for all: one program cannot compute them, or a
            part of the test is left.

        Raises
        ------
        NotFoundError, InvalidError
            There is no such column, or it cannot be summed or computed with.
        """
        kept = self._inputs
        if self.left is not None:
            return None
        folding = Folding(kept.copy(), self._schema, asked)
        tree = simple(("and", *self._decided))
        try:
            program, inputs = folding.program(tree), folding.inputs
        except _Undecided:
            return None
        if program is None:
            count = max(end - begin, 0) if tree == _TRUE else 0
            return [count for _ in asked]
        found = [
            offload(
                program, inputs.boxes((slice(first, min(end, first + RUN_ROWS)),)), inputs.scalars, **options
            ).result
            for first in range(begin, end, RUN_ROWS)
        ]
        return folding.results([np.asarray(one).reshape(-1) for one in found])

    def _runs(
        self, program: Program, box: tuple[slice, ...], options: Mapping[str, Any], first: int = 0
    ) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        """Look at a box by one run, or, where a door does not give as many numbers back, by runs of halves."""
        axis = next((axis for axis, one in enumerate(box) if one.stop - one.start > 1), None)
        try:
            numbers: Any = offload(program, self._inputs.boxes(box), self._inputs.scalars, **options).result
        except InvalidError as error:
            if axis is None or not _TOO_MUCH.search(str(error)):
                raise
        else:
            yield np.asarray(numbers).reshape(-1).astype(np.int64) + first
            return
        middle = (box[axis].start + box[axis].stop) // 2
        rest = math.prod(one.stop - one.start for one in box[axis + 1 :])
        for part in (slice(box[axis].start, middle), slice(middle, box[axis].stop)):
            behind = first + (part.start - box[axis].start) * rest
            yield from self._runs(program, (*box[:axis], part, *box[axis + 1 :]), options, behind)


class Inputs:
    """Arrays and scalars of a program as far as they are taken, each once, by their numbers."""

    def __init__(self, operands: Mapping[str, Operand]) -> None:
        self.operands = operands
        self._taken: dict[Any, int] = {}
        self._arrays: list[Any] = []
        self._tables: set[int] = set()
        self._scalars: dict[tuple[str, Any], int] = {}

    def copy(self) -> Inputs:
        """Return the same, to go back to."""
        made = Inputs(self.operands)
        made._taken, made._arrays = dict(self._taken), list(self._arrays)
        made._tables, made._scalars = set(self._tables), dict(self._scalars)
        return made

    def array(self, name: str, what: str) -> int:
        """Take the values (``what`` is ``"values"``) or the validity (``"valid"``) of a column; give its number."""
        found = self._taken.get((name, what))
        return self._take((name, what), getattr(self.operands[name], what)) if found is None else found

    def table(self, values: np.ndarray[Any, Any]) -> int:
        """Take an array in memory that each task gets whole."""
        if values.nbytes > _TABLE_BYTES or not self._arrays:
            raise _Undecided("a table of this size")
        number = self._take(("table", values.tobytes(), values.dtype.str), values)
        self._tables.add(number)
        return number

    def _take(self, key: Any, array: Any) -> int:
        if key in self._taken:
            return self._taken[key]
        if len(self._arrays) == INPUTS_MAX:
            raise _Undecided("more arrays than a program has inputs")
        self._arrays.append(array)
        return self._taken.setdefault(key, len(self._arrays) - 1)

    def scalar(self, dtype: np.dtype[Any], value: Any) -> Tree:
        """Give a constant as a scalar of a dtype, or as it is where there is no scalar left."""
        key = (dtype.name, value)
        if key not in self._scalars and len(self._scalars) == SCALARS_MAX:
            return "const", value
        return "scalar", self._scalars.setdefault(key, len(self._scalars))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of the inputs."""
        return tuple(one.dtype.str if one.dtype.kind in "mMV" else one.dtype.name for one in self._arrays)

    @property
    def scalar_dtypes(self) -> tuple[str, ...]:
        """Dtypes of the scalars."""
        return tuple(name for name, _ in self._scalars)

    @property
    def scalars(self) -> dict[str, Any]:
        """Scalars by name."""
        return {f"s{number}": value for number, (_, value) in enumerate(self._scalars)}

    def boxes(self, box: tuple[slice, ...]) -> list[Any]:
        """Give the inputs of a box; of joined arrays, beside which no program runs, the elements."""
        given: list[Any] = []
        for number, one in enumerate(self._arrays):
            if number in self._tables:
                given.append(one)
            elif isinstance(one, Joined):
                given.append(np.ascontiguousarray(one[box]).reshape(-1))
            else:
                given.append(Box(one, box))
        return given

    def typed(self, value: Tree) -> Any:
        """Give a value's type and range; an InvalidError says that it does not fit."""
        return typed(value, *self._dtypes)

    def check(self, test: Tree) -> None:
        """Refuse a test that C does not say, by an InvalidError."""
        written(test, *self._dtypes)

    @property
    def _dtypes(self) -> tuple[list[Any], list[Any]]:
        return [one.dtype for one in self._arrays], [np.dtype(name) for name in self.scalar_dtypes]


class Folding:
    """Counts, sums and ends of values as a program."""

    def __init__(self, inputs: Inputs, schema: Any, asked: Sequence[tuple[Any, ...]]) -> None:
        self.inputs = inputs
        self._schema = schema
        self._asked = [(op, _tree_of(given[0]) if given else None) for op, *given in asked]
        self._kinds: list[Kind | None] = []
        for op, value in self._asked:
            if op not in ("count", "sum", "min", "max") or (value is None and op != "count"):
                raise InvalidError(f"a fold must be ('count',), or count, sum, min or max with a value, not {op!r}")
            self._kinds.append(None if value is None else operand_kind(value, schema))

    def program(self, where: Tree) -> Program | None:
        """Return the program; None where only rows are counted, and the same for all of them."""
        lowering = Lowering(self.inputs, self._schema)
        made: list[Tree] = []
        for (op, value), kind in zip(self._asked, self._kinds, strict=True):
            if value is None or op == "count":
                made.append(("count", _TRUE if value is None else simple(lowering.there(value))))
                continue
            assert kind is not None
            if kind.family not in ("number", "float") and (op == "sum" or not kind.is_whole or value[0] != "col"):
                if op == "sum" and kind.family != "other" and kind.family != "span":
                    raise InvalidError(f"values of a {kind.family} cannot be summed")
                raise _Undecided("values that programs do not order")
            made.append((op, simple(lowering.there(value)), lowering.value(value, kind)))
        if where in (_TRUE, _FALSE) and all(one == ("count", _TRUE) for one in made):
            return None
        inputs, scalars = self.inputs.dtypes, self.inputs.scalar_dtypes
        try:
            return library.get("rows_fold", inputs=inputs, scalars=scalars, where=where, folds=tuple(made))
        except InvalidError as error:
            raise _Undecided(str(error)) from None

    def results(self, found: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
        """Put the results of runs together."""
        return [
            self._result(op, value, kind, [one[number] for one in found])
            for number, ((op, value), kind) in enumerate(zip(self._asked, self._kinds, strict=True))
        ]

    def _result(self, op: str, value: Tree | None, kind: Kind | None, parts: Sequence[Any]) -> Any:
        parts = [part for part in parts if part["count"]]
        if op == "count":
            return sum(int(part["count"]) for part in parts)
        if not parts:
            return None
        assert kind is not None
        assert value is not None
        if kind.family == "float":
            numbers = [float(part["real"]) for part in parts]
            if op == "sum":
                made = math.fsum(numbers) if all(map(math.isfinite, numbers)) else sum(numbers)
            else:
                real = [one for one in numbers if one == one] or numbers
                made = min(real) if op == "min" else max(real)
            return made if op == "sum" or value[0] != "col" else self._scalar(value[1], made)
        whole = [int(part["high"]) * 2**64 + int(part["low"]) for part in parts]
        number = sum(whole) if op == "sum" else min(whole) if op == "min" else max(whole)
        if op != "sum" and value[0] == "col":
            return self._scalar(value[1], number)
        if kind.unit == 1:
            return number
        with localcontext(prec=60):
            return Decimal(number) * kind.unit.numerator / kind.unit.denominator

    def _scalar(self, name: str, number: Any) -> Any:
        return literal(column_type(name, self._schema), number)


def _tree_of(value: Any) -> Tree:
    if isinstance(value, str):
        return "col", value
    if isinstance(value, Value):
        return value.tree
    raise InvalidError(f"a fold must be of a column's name or a value such as col('a') * 2, not of {value!r}")


def simple(tree: Tree) -> Tree:
    """Return a test of the program without parts that are true or false whatever the values."""
    op, *rest = tree
    if op == "not":
        inner = simple(rest[0])
        return inner[1] if inner[0] == "not" else ("not", inner)
    if op not in ("and", "or"):
        return tree
    deciding, passing = (("not", ("true",)), ("true",)) if op == "and" else (("true",), ("not", ("true",)))
    parts = [one for one in map(simple, rest) if one != passing]
    if deciding in parts:
        return deciding
    parts = list(dict.fromkeys(parts))
    return passing if not parts else parts[0] if len(parts) == 1 else (op, *parts)


_TRUE: Tree = ("true",)
_FALSE: Tree = ("not", ("true",))


class Lowering:
    """Writes tests as the program takes them."""

    def __init__(self, inputs: Inputs, schema: Any) -> None:
        self._inputs, self._schema = inputs, schema

    def truth(self, tree: Tree, *, wanted: bool) -> Tree:
        """Return the program's test of whether a test is true, or whether it is false."""
        op, *rest = tree
        if op == "true":
            return _TRUE if wanted else _FALSE
        if op == "not":
            return self.truth(rest[0], wanted=not wanted)
        if op in ("and", "or"):
            return ("and" if (op == "and") == wanted else "or", *(self.truth(part, wanted=wanted) for part in rest))
        if op in ("null", "valid"):
            there = self.there(rest[0])
            return there if (op == "valid") == wanted else ("not", there)
        if op == "given":
            return "and", self.there(rest[0]), self.truth(rest[1], wanted=wanted)
        if op == "in" and not isinstance(rest[0], str):
            return self.truth(("or", *(("==", rest[0], value) for value in rest[1])), wanted=wanted)
        left = ("col", rest[0]) if isinstance(rest[0], str) else rest[0]
        if left[0] == "col" and self._operand(left[1]).dictionary is not None:
            return self._of_codes(tree, left[1], wanted=wanted)
        made = self._leaf(op, left, rest[1:])
        there = self.there(left)
        if len(rest) > 1 and op != "in" and isinstance(rest[1], tuple):
            there = ("and", there, self.there(rest[1]))
        return "and", there, made if wanted else ("not", made)

    def _operand(self, name: str) -> Operand:
        column_type(name, self._schema)
        return self._inputs.operands[name]

    def there(self, value: Any) -> Tree:
        """Test whether all columns of a value are there."""
        if isinstance(value, str):
            return self.there(("col", value))
        if value[0] == "col":
            if self._operand(value[1]).valid is None:
                return _TRUE
            return "flag", self._inputs.array(value[1], "valid")
        return ("and", *(self.there(part) for part in value[1:])) if value[0] != "value" else _TRUE

    def _leaf(self, op: str, left: Tree, rest: list[Any]) -> Tree:
        """Test of values that are there."""
        if op == "is":
            return "flag", self._column(left[1])
        if op in ("begins", "ends", "holds"):
            raise _Undecided("text that is stored plainly")
        one = operand_kind(left, self._schema)
        if op == "in":
            return self._one_of(left, one, rest[0])
        if not isinstance(rest[0], tuple):
            return self._bounded(op, left, one, rest[0])
        other = operand_kind(rest[0], self._schema, one)
        if not comparable(one, other) or one.family in ("text", "bytes"):
            raise _Undecided("text that is stored plainly")
        if "float" in (one.family, other.family):
            return op, self._float(left), self._float(rest[0])
        unit = min(one.unit, other.unit)
        sides = (
            _scaled(self._value(left, one), one.unit, unit),
            _scaled(self._value(rest[0], other), other.unit, unit),
        )
        return op, *sides

    def _bounded(self, op: str, left: Tree, kind: Kind, value: Any) -> Tree:
        """Compare with a constant."""
        if left[0] == "col":
            found: Any = bound(left[1], column_type(left[1], self._schema), op, value)
        elif kind.family == "number":
            found = whole_bound("of a test", kind, op, value)
        else:
            found = (op, float(value.as_py() if isinstance(value, pa.Scalar) else value))
        if isinstance(found, bool):
            return _TRUE if found else _FALSE
        return self._compared(found[0], left, kind, found[1])

    def _compared(self, op: str, left: Tree, kind: Kind, number: Any) -> Tree:
        """Compare with a number of the kind's unit, a float, or a truth value."""
        if kind.family == "truth":
            flag: Tree = ("flag", self._column(left[1]))
            return flag if number == (op == "==") else ("not", flag)
        if kind.family in ("text", "bytes", "other"):
            raise _Undecided("text that is stored plainly")
        made = self._value(left, kind)
        shape = self._inputs.typed(made)
        if shape.is_float:
            dtype = np.dtype("float32" if shape.type == "float" else "float64")
            return op, made, self._inputs.scalar(dtype, number)
        if not shape.low <= number <= shape.high:  # the array has no such number
            return _TRUE if op == "!=" or (op != "==" and (number > shape.high) == (op[0] == "<")) else _FALSE
        if shape.type == "__int128":
            return op, made, ("const", number)
        return op, made, self._inputs.scalar(np.dtype(shape.type.removesuffix("_t")), number)

    def _one_of(self, left: Tree, kind: Kind, values: tuple[Any, ...]) -> Tree:
        if kind.family in ("text", "bytes", "other"):
            raise _Undecided("text that is stored plainly")
        tests = [bound(left[1], column_type(left[1], self._schema), "==", value) for value in values]
        found = sorted({one[1] for one in tests if not isinstance(one, bool)})
        if len(found) <= _RANGES_MAX:
            return ("or", *(self._compared("==", left, kind, one) for one in found))
        made = self._value(left, kind)
        shape = self._inputs.typed(made)
        if shape.type == "__int128":
            raise _Undecided("many values of a decimal of more digits")
        if not shape.is_float:
            found = [one for one in found if shape.low <= one <= shape.high]
        dtype = "float64" if shape.is_float else "uint64" if shape.type.startswith("u") else "int64"
        return "among", made, self._inputs.table(np.array(found, dtype))

    def _of_codes(self, tree: Tree, name: str, *, wanted: bool) -> Tree:
        """Decide a test of one column over its dictionary."""
        if names(tree) != {name}:
            raise _Undecided("two columns, of which one is stored by codes")
        operand = self._operand(name)
        count = len(operand.dictionary)
        by = f"code of {name}"
        values = pa.table({name: operand.dictionary, by: pa.array(np.arange(count), pa.int64())})
        test = Test(tree) if wanted else Test(("not", tree))
        codes = values.filter(expression_of(test, values.schema))[by].to_numpy()
        there = self.there(name)
        number = self._column(name, coded=True)
        if codes.size == count:
            return there
        value: Tree = ("input", number)
        cuts = np.flatnonzero(np.diff(codes) != 1) + 1
        if len(cuts) < _RANGES_MAX:
            runs = [(int(run[0]), int(run[-1])) for run in np.split(codes, cuts) if run.size]
            return "and", there, ("within", value, tuple(runs))
        table = np.zeros(count + 1, np.uint8)
        table[codes] = 1
        return "and", there, ("listed", value, self._inputs.table(table))

    def _column(self, name: str, *, coded: bool = False) -> int:
        """Take the values of a column, of a dtype that programs read; its codes only for a test of codes."""
        operand = self._operand(name)
        if operand.values is None or (operand.dictionary is not None and not coded):
            raise _Undecided("a column that is stored otherwise")
        dtype, kind = operand.values.dtype, operand.type
        wide = operand.dictionary is None and pa.types.is_decimal(value_type(kind)) and kind.precision > DIGITS_64
        if wide and dtype != _LIMBS:
            raise _Undecided("a decimal of more digits")
        if not wide and (dtype.kind not in "biufmM" or not dtype.isnative or dtype.itemsize > 8):  # noqa: PLR2004
            raise _Undecided("elements that programs do not read")
        return self._inputs.array(name, "values")

    def value(self, value: Tree, kind: Kind) -> Tree:
        """Write a value; a float that is computed is a float64."""
        return self._float(value) if kind.family == "float" and value[0] != "col" else self._value(value, kind)

    def _value(self, value: Tree, kind: Kind) -> Tree:
        """Write a value: whole numbers of a kind's unit, or a float."""
        op, *rest = value
        if op == "col":
            made: Tree = ("input", self._column(rest[0]))
            own = kind_of(column_type(rest[0], self._schema))
            return (*made, own.low, own.high) if own.is_whole else made
        if op == "value":
            one = rest[0].as_py() if isinstance(rest[0], pa.Scalar) else rest[0]
            if kind.family == "float":
                return "const", float(one)
            exact = fraction("of a test", kind, rest[0])
            if isinstance(exact, float):
                raise _Undecided("a constant that is no finite number")
            number = exact / kind.unit
            if number.denominator != 1:
                raise _Undecided("a constant between two values")
            return "const", int(number)
        if kind.family == "float":
            return self._float(value)
        if op == "negative":
            return "negative", self._value(rest[0], kind)
        first = operand_kind(next((part for part in rest if part[0] != "value"), rest[0]), self._schema)
        kinds = [operand_kind(part, self._schema, first) for part in rest]
        sides = [self._value(part, one) for part, one in zip(rest, kinds, strict=True)]
        if op != "*":
            unit = min(one.unit for one in kinds)
            sides = [_scaled(side, one.unit, unit) for side, one in zip(sides, kinds, strict=True)]
        return op, *sides

    def _float(self, value: Tree) -> Tree:
        """Write a value as float64."""
        op, *rest = value
        if op == "value":
            return self._value(value, Kind("float"))
        kind = operand_kind(value, self._schema)
        if op == "col" or kind.family == "number":
            if kind.unit != 1:
                raise _Undecided("a decimal beside a float")
            return "float", self._value(value, kind)
        return (op, *(self._float(part) for part in rest))


def _scaled(value: Tree, unit: Any, wanted: Any) -> Tree:
    """Bring a whole number of a unit to one of a finer unit."""
    factor = unit / wanted
    if factor == 1:
        return value
    if factor.denominator != 1:
        raise _Undecided("units that are no multiples of each other")
    return ("const", value[1] * int(factor)) if value[0] == "const" else ("*", value, ("const", int(factor)))
